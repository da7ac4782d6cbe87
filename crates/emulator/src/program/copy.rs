//! Decodes `cp.async` that is not in bulk. (PTX ISA, "Asynchronous copy".)

use crate::{
    alu::Words,
    exec::lanes::Bank,
    ptx::ast::{self, Operand},
};

use super::{
    LoadError, bulk,
    code::{AsyncCopy, Operation, Space},
    decode::Decoder,
    flow::Uses,
    mbarrier,
    memory::{cache_policy, or_fail},
};

pub fn decode(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let mut words = Words::new(instruction);
    words.take("async");
    if words.take("bulk") {
        return bulk::decode(decoder, instruction, words);
    }
    if words.take("mbarrier") {
        return mbarrier::copies(decoder, instruction, words);
    }
    match words.take_any(&["commit_group", "wait_group", "wait_all"]) {
        Some("wait_group") => {
            decoder.expect(instruction, 1)?;
            match instruction.operands[0] {
                Operand::Integer(groups) => {
                    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
                    decoder.emit(Operation::Wait(Some(groups)), Uses::default())
                }
                _ => decoder.error("`cp.async.wait_group` needs a constant number of groups"),
            }
        }
        Some(word) => {
            decoder.expect(instruction, 0)?;
            let operation = if word == "commit_group" { Operation::Commit } else { Operation::Wait(None) };
            decoder.emit(operation, Uses::default())
        }
        None => copy(decoder, instruction, words),
    }
}

fn copy(decoder: &mut Decoder, instruction: &ast::Instruction, mut words: Words) -> Result<(), LoadError> {
    let sizes: &[u64] = if words.take_any(&["ca", "cg"]) == Some("cg") { &[16] } else { &[4, 8, 16] };
    words.take_any(&["shared::cta", "shared"]);
    words.take("global");
    let hint = words.take("L2::cache_hint");
    words.drop_all("L2::");
    or_fail(decoder, words.finish())?;
    let operands = instruction.operands.as_slice();
    let count = operands.len().saturating_sub(usize::from(hint)).clamp(3, 4);
    let policy = cache_policy(decoder, instruction, count, hint)?;
    let size = match operands[2] {
        Operand::Integer(size) if sizes.contains(&size) => size as u32,
        _ => return decoder.error(format!("the size of this `cp.async` must be one of {sizes:?} bytes")),
    };
    let to = decoder.address(&operands[0], Space::Shared)?;
    let from = decoder.address(&operands[1], Space::Global)?;
    let mut copy = AsyncCopy { to, from, size, reads: None, ignores: None };
    if let Some(operand) = operands.get(3).filter(|_| count == 4) {
        let bank = decoder.register(operand)?.map(|(register, _)| register.bank);
        match operand {
            Operand::Not(_) => copy.ignores = Some(decoder.predicate(operand)?),
            _ if bank == Some(Bank::Predicate) => copy.ignores = Some(decoder.predicate(operand)?),
            _ => copy.reads = Some(decoder.source(operand, Bank::Word)?),
        }
    }
    let ignores = copy.ignores.map(|(register, _)| register);
    let read = [to.base, from.base, copy.reads, ignores, policy].into_iter().flatten().collect();
    decoder.emit(Operation::Copy(Box::new(copy)), Uses { read, written: vec![] })
}
