//! Decodes `cp.async.bulk` and `cp.reduce.async.bulk`. (PTX ISA, "Asynchronous copy: Bulk copy".)

use std::fmt;

use crate::{
    alu::{Words, bits_of},
    exec::lanes::{Bank, Register},
    ptx::ast::{self, Operand},
};

use super::{
    LoadError,
    code::{Address, Operation, Space, Update},
    decode::Decoder,
    flow::Uses,
    memory::{cache_policy, or_fail, update},
};

/// A bulk copy: each lane makes its own.
#[derive(Debug)]
pub struct Bulk {
    pub to: Address,
    pub from: Address,
    /// The number of bytes.
    pub size: Register,
    pub way: Way,
}

#[derive(Debug)]
pub enum Way {
    /// From global to shared memory. The bytes count at an mbarrier.
    ToShared(Address),
    /// From shared to global memory, perhaps by a reduction. The copy belongs to a group.
    ToGlobal(Option<Reduction>),
}

/// What combines each element with the old one.
pub struct Reduction {
    /// Bytes of an element.
    pub size: u32,
    pub update: Update,
}

impl fmt::Debug for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduction").field("size", &self.size).finish_non_exhaustive()
    }
}

/// What orders bulk copies.
#[derive(Clone, Copy, Debug)]
pub enum Group {
    /// `cp.async.bulk.commit_group`.
    Commit,
    /// `cp.async.bulk.wait_group` for all but the last groups; with `.read`, only until their copies have
    /// read.
    Wait { groups: u32, reads: bool },
    /// `fence.proxy.async`: bulk copies from shared memory see what was written before.
    Fence,
}

/// Decodes what follows `cp.async.bulk` or `cp.reduce.async.bulk`.
pub(super) fn decode(
    decoder: &mut Decoder,
    instruction: &ast::Instruction,
    mut words: Words,
) -> Result<(), LoadError> {
    match words.take_any(&["commit_group", "wait_group", "prefetch"]) {
        Some("commit_group") => {
            decoder.expect(instruction, 0)?;
            decoder.emit(Operation::Group(Group::Commit), Uses::default())
        }
        Some("wait_group") => {
            decoder.expect(instruction, 1)?;
            let Operand::Integer(groups) = instruction.operands[0] else {
                return decoder.error("`cp.async.bulk.wait_group` needs a constant number of groups");
            };
            let groups = u32::try_from(groups).unwrap_or(u32::MAX);
            let reads = words.take("read");
            decoder.emit(Operation::Group(Group::Wait { groups, reads }), Uses::default())
        }
        // It changes no values.
        Some(_) => decoder.emit(Operation::Nothing, Uses::default()),
        None => copy(decoder, instruction, words),
    }
}

fn copy(decoder: &mut Decoder, instruction: &ast::Instruction, mut words: Words) -> Result<(), LoadError> {
    let to_shared = words.take("mbarrier::complete_tx::bytes");
    words.take("bulk_group");
    words.take("global");
    words.take_any(&["shared::cta", "shared::cluster"]);
    let hint = words.take("L2::cache_hint");
    let reduces = words.take("reduce");
    let reduction = if reduces { Some(reduction(decoder, instruction, &mut words)?) } else { None };
    or_fail(decoder, words.finish())?;
    let operands = &instruction.operands;
    let count = if to_shared { 4 } else { 3 };
    let policy = cache_policy(decoder, instruction, count, hint)?;
    let (to, from) = if to_shared { (Space::Shared, Space::Global) } else { (Space::Global, Space::Shared) };
    let to = decoder.address(&operands[0], to)?;
    let from = decoder.address(&operands[1], from)?;
    let size = decoder.source(&operands[2], Bank::Word)?;
    let way = match to_shared {
        true => Way::ToShared(decoder.address(&operands[3], Space::Shared)?),
        false => Way::ToGlobal(reduction),
    };
    let mbarrier = match &way {
        Way::ToShared(address) => address.base,
        Way::ToGlobal(_) => None,
    };
    let read = [to.base, from.base, Some(size), mbarrier, policy].into_iter().flatten().collect();
    decoder.emit(Operation::Bulk(Box::new(Bulk { to, from, size, way })), Uses { read, written: vec![] })
}

fn reduction(
    decoder: &mut Decoder,
    instruction: &ast::Instruction,
    words: &mut Words,
) -> Result<Reduction, LoadError> {
    let operation = words.take_any(&["add", "and", "or", "xor", "min", "max", "inc", "dec"]);
    words.take("noftz");
    let ty = or_fail(decoder, words.ty())?;
    // Unlike `red`, it keeps subnormal `f32`, as an H200 shows.
    match operation.and_then(|operation| update(operation, ty)) {
        Some(update) => Ok(Reduction { size: bits_of(ty) / 8, update }),
        None => decoder.unknown(instruction),
    }
}
