//! Decodes `mbarrier`. (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".)

use crate::{
    alu::Words,
    exec::lanes::{self, Bank, Register},
    ptx::ast::{self, Operand},
};

use super::{
    LoadError,
    code::{Address, Operation, Order, Space},
    decode::Decoder,
    flow::Uses,
    memory::or_fail,
};

/// An operation on an mbarrier, or on several: each lane has its own address.
#[derive(Debug)]
pub struct Mbarrier {
    pub kind: Kind,
    pub address: Address,
    pub order: Order,
    /// The state of an arrival, or the predicate of a wait. `None` for `_`.
    pub target: Option<Register>,
    /// A count of threads or bytes, or what a wait waits for: a state or a parity.
    pub operand: Option<Register>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Init,
    Invalidate,
    Arrive {
        /// `arrive_drop`: the next phases expect that many arrivals less.
        drops: bool,
        /// `.expect_tx`: the operand counts bytes, and one thread arrives.
        expects: bool,
        /// `.noComplete`: the arrival must not complete the phase.
        completes: bool,
    },
    Expect,
    Complete,
    /// `test_wait` and `try_wait`.
    Wait {
        parity: bool,
    },
    /// `cp.async.mbarrier.arrive`. `.noinc` if it counts among the arrivals that were announced.
    Copies {
        counts: bool,
    },
}

impl Kind {
    /// Its name in a fault.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Init => "initialisation of an mbarrier",
            Kind::Invalidate => "invalidation of an mbarrier",
            Kind::Arrive { .. } | Kind::Copies { .. } => "arrival at an mbarrier",
            Kind::Expect | Kind::Complete => "change of the bytes that an mbarrier expects",
            Kind::Wait { .. } => "wait at an mbarrier",
        }
    }
}

/// The bits of a count of threads in a state.
pub const COUNT: u64 = (1 << 20) - 1;

pub(super) fn decode(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let mut words = Words::new(instruction);
    let operation = words.take_any(&[
        "init",
        "inval",
        "arrive_drop",
        "arrive",
        "expect_tx",
        "complete_tx",
        "test_wait",
        "try_wait",
        "pending_count",
    ]);
    if operation == Some("pending_count") {
        return pending_count(decoder, instruction);
    }
    let kind = match operation {
        Some("init") => Kind::Init,
        Some("inval") => Kind::Invalidate,
        Some("complete_tx") => Kind::Complete,
        Some(arrive @ ("arrive" | "arrive_drop")) => Kind::Arrive {
            drops: arrive == "arrive_drop",
            expects: words.take("expect_tx"),
            completes: !words.take("noComplete"),
        },
        Some("test_wait" | "try_wait") => Kind::Wait { parity: words.take("parity") },
        Some(_) => Kind::Expect,
        None => return decoder.unknown(instruction),
    };
    let order = match words.take_any(&["relaxed", "acquire", "release"]) {
        Some("relaxed") => Order::Relaxed,
        _ => Order::AcqRel,
    };
    words.take_any(&["cta", "cluster"]);
    let is_remote = instruction.modifiers.iter().any(|word| word == "shared::cluster");
    let space = space(&mut words);
    or_fail(decoder, words.ty().map(drop))?;
    or_fail(decoder, words.finish())?;
    let hint = matches!(operation, Some("try_wait")) && instruction.operands.len() == 4;
    let (first, last) = match kind {
        Kind::Init | Kind::Expect | Kind::Complete => (0, 1),
        Kind::Invalidate | Kind::Copies { .. } => (0, 0),
        Kind::Arrive { completes, expects, .. } => {
            (1, if completes && !expects && instruction.operands.len() == 2 { 1 } else { 2 })
        }
        Kind::Wait { .. } => (1, 2),
    };
    decoder.expect(instruction, last + 1 + usize::from(hint))?;
    let operands = &instruction.operands;
    let target = match (kind, &operands[0]) {
        (Kind::Wait { .. }, operand) => Some(decoder.target(operand, Bank::Predicate)?),
        (Kind::Arrive { .. }, Operand::Name(name)) if name == "_" => None,
        (Kind::Arrive { .. }, _) if is_remote => {
            return decoder.error("the state of an arrival in `.shared::cluster` must be `_`");
        }
        (Kind::Arrive { .. }, operand) => Some(decoder.target(operand, Bank::Double)?),
        _ => None,
    };
    let address = decoder.address(&operands[first], space)?;
    let operand = match operands[..=last].get(first + 1) {
        Some(operand) => {
            let bank = if kind == (Kind::Wait { parity: false }) { Bank::Double } else { Bank::Word };
            Some(decoder.source(operand, bank)?)
        }
        None => None,
    };
    let hint = if hint { Some(decoder.source(&operands[3], Bank::Word)?) } else { None };
    let read = address.base.into_iter().chain(operand).chain(hint).collect();
    let uses = Uses { read, written: target.into_iter().collect() };
    let mbarrier = Mbarrier { kind, address, order, target, operand };
    decoder.emit(Operation::Mbarrier(Box::new(mbarrier)), uses)
}

/// Decodes `cp.async.mbarrier.arrive`.
pub(super) fn copies(
    decoder: &mut Decoder,
    instruction: &ast::Instruction,
    mut words: Words,
) -> Result<(), LoadError> {
    words.take("arrive");
    let counts = words.take("noinc");
    let space = space(&mut words);
    or_fail(decoder, words.ty().map(drop))?;
    or_fail(decoder, words.finish())?;
    decoder.expect(instruction, 1)?;
    let address = decoder.address(&instruction.operands[0], space)?;
    let kind = Kind::Copies { counts };
    let mbarrier = Mbarrier { kind, address, order: Order::Relaxed, target: None, operand: None };
    let uses = Uses { read: address.base.into_iter().collect(), written: vec![] };
    decoder.emit(Operation::Mbarrier(Box::new(mbarrier)), uses)
}

/// The space of an mbarrier. Each cluster is one block, so that its shared memory is the block's.
fn space(words: &mut Words) -> Space {
    match words.take_any(&["shared::cta", "shared::cluster", "shared"]) {
        Some(_) => Space::Shared,
        None => Space::Generic,
    }
}

fn pending_count(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    decoder.expect(instruction, 2)?;
    let target = decoder.target(&instruction.operands[0], Bank::Word)?;
    let source = decoder.source(&instruction.operands[1], Bank::Double)?;
    let operation = lanes::convert(Bank::Word, [Bank::Double], |[state]| state & COUNT);
    let operands = [target.index, source.index, 0, 0, 0, 0, 0, 0];
    decoder.emit(Operation::Lanes(operation, operands), Uses { read: vec![source], written: vec![target] })
}
