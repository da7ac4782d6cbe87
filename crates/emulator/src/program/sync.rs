//! Decodes barriers, fences and warp collectives. (PTX ISA, "Parallel Synchronization and Communication
//! Instructions".)

use crate::{
    alu::Words,
    exec::lanes::{Bank, Register},
    ptx::ast::{self, Operand, Type},
};

use super::{
    LoadError,
    bulk::Group,
    code::{Barrier, Collective, CollectiveKind, Operation, Reduce, Reduction, Scope, Shuffle, WarpReduce},
    decode::Decoder,
    flow::Uses,
    mbarrier,
};

pub fn decode(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let mut words = Words::new(instruction);
    match instruction.name.as_str() {
        "bar" | "barrier" => {
            if words.take("warp") {
                if !words.take("sync") || words.finish().is_err() {
                    return decoder.unknown(instruction);
                }
                decoder.expect(instruction, 1)?;
                let mask = decoder.source(&instruction.operands[0], Bank::Word)?;
                return Parts::new(decoder, CollectiveKind::Barrier, mask).emit(decoder);
            }
            barrier(decoder, instruction, words)
        }
        "mbarrier" => mbarrier::decode(decoder, instruction),
        "membar" | "fence" => fence(decoder, instruction, words),
        "activemask" => {
            decoder.expect(instruction, 1)?;
            if words.ty() != Ok(Type::B32) || words.finish().is_err() {
                return decoder.unknown(instruction);
            }
            let target = decoder.target(&instruction.operands[0], Bank::Word)?;
            decoder.emit(Operation::Active(target), Uses { read: vec![], written: vec![target] })
        }
        // Launches run one after another, so there is nothing to wait for.
        "nanosleep" | "griddepcontrol" => decoder.emit(Operation::Nothing, Uses::default()),
        // Lists, not instructions.
        ".branchtargets" | ".calltargets" | ".callprototype" => Ok(()),
        _ => collective(decoder, instruction, words),
    }
}

fn fence(decoder: &mut Decoder, instruction: &ast::Instruction, mut words: Words) -> Result<(), LoadError> {
    decoder.expect(instruction, 0)?;
    if words.take("proxy") {
        // Of other proxies, and of global memory, which the checks do not look at.
        let is_checked = words.take("async") && !words.take("global");
        let operation = if is_checked { Operation::Group(Group::Fence) } else { Operation::Nothing };
        return decoder.emit(operation, Uses::default());
    }
    // Of a block's cluster, which is the block.
    words.take("mbarrier_init");
    words.take_any(&["sc", "acq_rel", "acquire", "release"]);
    let scope = match words.take_any(&["cta", "cluster", "gpu", "gl", "sys"]) {
        Some("cta") => Scope::Block,
        Some(_) => Scope::Device,
        None => return decoder.unknown(instruction),
    };
    if words.finish().is_err() {
        return decoder.unknown(instruction);
    }
    decoder.emit(Operation::Fence(scope), Uses::default())
}

fn barrier(decoder: &mut Decoder, instruction: &ast::Instruction, mut words: Words) -> Result<(), LoadError> {
    words.take("cta");
    let aligned = instruction.name == "bar" || words.take("aligned");
    let kind = words.take_any(&["sync", "arrive", "red"]);
    let mut operands = instruction.operands.as_slice();
    let mut uses = Uses::default();
    let mut reduction = None;
    if kind == Some("red") {
        let (kind, bank) = match words.take_any(&["popc", "and", "or"]) {
            Some("popc") => (Reduce::Popc, Bank::Word),
            Some("and") => (Reduce::And, Bank::Predicate),
            Some(_) => (Reduce::Or, Bank::Predicate),
            None => return decoder.unknown(instruction),
        };
        let ty = if kind == Reduce::Popc { Type::U32 } else { Type::Pred };
        let ([target, middle @ .., source], true) = (operands, words.ty() == Ok(ty)) else {
            return decoder.unknown(instruction);
        };
        let target = decoder.target(target, bank)?;
        let (source, negated) = decoder.predicate(source)?;
        uses.read.push(source);
        // Lanes that do not take part keep their old value.
        uses.written.push(target);
        reduction = Some(Reduction { kind, target, source, negated });
        operands = middle;
    }
    if kind.is_none() || words.finish().is_err() || !matches!(operands.len(), 1 | 2) {
        return decoder.unknown(instruction);
    }
    let index = decoder.source(&operands[0], Bank::Word)?;
    let threads = match operands.get(1) {
        Some(operand) => Some(decoder.source(operand, Bank::Word)?),
        None if kind == Some("arrive") => return decoder.unknown(instruction),
        None => None,
    };
    uses.read.extend([index].into_iter().chain(threads));
    let barrier = Barrier { waits: kind != Some("arrive"), aligned, index, threads, reduction };
    decoder.emit(Operation::Barrier(Box::new(barrier)), uses)
}

/// A collective that is being decoded.
pub(super) struct Parts {
    pub collective: Collective,
    uses: Uses,
}

impl Parts {
    pub fn new(decoder: &mut Decoder, kind: CollectiveKind, mask: Register) -> Parts {
        let (word, flag) = (decoder.sink(Bank::Word), decoder.sink(Bank::Predicate));
        let collective =
            Collective { kind, mask, target: word, flag, source: mask, negated: false, control: [mask; 2] };
        Parts { collective, uses: Uses { read: vec![mask], written: vec![] } }
    }

    fn target(&mut self, decoder: &mut Decoder, operand: &Operand, bank: Bank) -> Result<(), LoadError> {
        let first = match operand {
            Operand::Pair(first, second) => {
                self.flag(decoder, &Operand::Name(second.clone()))?;
                &Operand::Name(first.clone())
            }
            operand => operand,
        };
        self.collective.target = decoder.target(first, bank)?;
        self.uses.written.push(self.collective.target);
        Ok(())
    }

    fn flag(&mut self, decoder: &mut Decoder, operand: &Operand) -> Result<(), LoadError> {
        self.collective.flag = decoder.target(operand, Bank::Predicate)?;
        self.uses.written.push(self.collective.flag);
        Ok(())
    }

    fn source(&mut self, decoder: &mut Decoder, operand: &Operand, bank: Bank) -> Result<(), LoadError> {
        let (source, negated) = match bank {
            Bank::Predicate => decoder.predicate(operand)?,
            bank => (decoder.source(operand, bank)?, false),
        };
        (self.collective.source, self.collective.negated) = (source, negated);
        self.uses.read.push(source);
        Ok(())
    }

    fn emit(self, decoder: &mut Decoder) -> Result<(), LoadError> {
        decoder.emit(Operation::Collective(Box::new(self.collective)), self.uses)
    }
}

fn collective(
    decoder: &mut Decoder,
    instruction: &ast::Instruction,
    mut words: Words,
) -> Result<(), LoadError> {
    words.take("sync");
    let count = match instruction.name.as_str() {
        "shfl" => 5,
        "elect" => 2,
        _ => 3,
    };
    decoder.expect(instruction, count)?;
    let operands = &instruction.operands;
    let mask = decoder.source(&operands[count - 1], Bank::Word)?;
    let mode = words.take_any(&[
        "up", "down", "bfly", "idx", "all", "any", "uni", "ballot", "add", "min", "max", "and", "or", "xor",
    ]);
    let ty = if instruction.name == "elect" { Type::Pred } else { words.ty().unwrap_or(Type::Pred) };
    if words.finish().is_err() {
        return decoder.unknown(instruction);
    }
    use CollectiveKind::*;
    let (kind, target, source) = match (instruction.name.as_str(), mode, ty) {
        ("shfl", Some("up"), Type::B32) => (Shuffle(self::Shuffle::Up), Bank::Word, Bank::Word),
        ("shfl", Some("down"), Type::B32) => (Shuffle(self::Shuffle::Down), Bank::Word, Bank::Word),
        ("shfl", Some("bfly"), Type::B32) => (Shuffle(self::Shuffle::Butterfly), Bank::Word, Bank::Word),
        ("shfl", Some("idx"), Type::B32) => (Shuffle(self::Shuffle::Index), Bank::Word, Bank::Word),
        ("vote", Some("all"), Type::Pred) => (VoteAll, Bank::Predicate, Bank::Predicate),
        ("vote", Some("any"), Type::Pred) => (VoteAny, Bank::Predicate, Bank::Predicate),
        ("vote", Some("uni"), Type::Pred) => (VoteUniform, Bank::Predicate, Bank::Predicate),
        ("vote", Some("ballot"), Type::B32) => (Ballot, Bank::Word, Bank::Predicate),
        ("match", Some("any"), Type::B32) => (MatchAny, Bank::Word, Bank::Word),
        ("match", Some("any"), Type::B64) => (MatchAny, Bank::Word, Bank::Double),
        ("match", Some("all"), Type::B32) => (MatchAll, Bank::Word, Bank::Word),
        ("match", Some("all"), Type::B64) => (MatchAll, Bank::Word, Bank::Double),
        ("elect", None, _) => (Elect, Bank::Word, Bank::Word),
        ("redux", Some(mode), ty) => {
            let reduce = match (mode, ty) {
                ("add", Type::U32 | Type::S32) => WarpReduce::Add,
                ("min", Type::U32) => WarpReduce::MinUnsigned,
                ("max", Type::U32) => WarpReduce::MaxUnsigned,
                ("min", Type::S32) => WarpReduce::MinSigned,
                ("max", Type::S32) => WarpReduce::MaxSigned,
                ("and", Type::B32) => WarpReduce::And,
                ("or", Type::B32) => WarpReduce::Or,
                ("xor", Type::B32) => WarpReduce::Xor,
                _ => return decoder.unknown(instruction),
            };
            (Reduce(reduce), Bank::Word, Bank::Word)
        }
        _ => return decoder.unknown(instruction),
    };
    let mut parts = Parts::new(decoder, kind, mask);
    parts.target(decoder, &operands[0], target)?;
    let kind = &parts.collective.kind;
    let is_shuffle = matches!(kind, Shuffle(_));
    if !matches!(kind, Elect) {
        parts.source(decoder, &operands[1], source)?;
    }
    if is_shuffle {
        for place in 0..2 {
            let control = decoder.source(&operands[2 + place], Bank::Word)?;
            parts.collective.control[place] = control;
            parts.uses.read.push(control);
        }
    }
    parts.emit(decoder)
}
