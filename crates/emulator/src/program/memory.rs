//! Loads, stores and atomics, decoded. (PTX ISA, "ld", "st", "atom", "red".)

use crate::{
    alu::{self, BF16, F16, Integer, Words, bank_of, bits_of},
    exec::lanes::{Bank, Register},
    ptx::ast::{self, Operand, Type},
};

use super::{
    LoadError,
    code::{Atomic, Load, Operation, Order, Scope, Space, Store, Update},
    decode::Decoder,
    flow::Uses,
};

pub fn decode(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    match instruction.name.as_str() {
        "ld" | "ldu" => load(decoder, instruction),
        "st" => store(decoder, instruction),
        "isspacep" => in_space(decoder, instruction),
        "atom" | "red" => atomic(decoder, instruction),
        // Hints, which change no value.
        _ => decoder.emit(Operation::Nothing, Uses::default()),
    }
}

/// The memory that is named, generic where none is.
fn space(words: &mut Words) -> Space {
    let spaces =
        ["global", "shared::cta", "shared", "local", "param::entry", "param::func", "param", "const"];
    match words.take_any(&spaces) {
        None => Space::Generic,
        Some("global" | "const") => Space::Global,
        Some("shared::cta" | "shared") => Space::Shared,
        Some("local") => Space::Local,
        Some(_) => Space::Param,
    }
}

fn order(words: &mut Words, default: Order) -> Order {
    // `.mmio.relaxed` is as strong as `.relaxed`, and is never split or merged, which nothing is here.
    words.take("mmio");
    match words.take_any(&["weak", "volatile", "relaxed", "acquire", "release", "acq_rel"]) {
        Some("weak") => Order::Weak,
        Some("volatile") => Order::Volatile,
        Some("relaxed") => Order::Relaxed,
        Some("acquire") => Order::Acquire,
        Some("release") => Order::Release,
        Some(_) => Order::AcqRel,
        None => default,
    }
}

fn scope(words: &mut Words) -> Scope {
    match words.take_any(&["cta", "cluster", "gpu", "sys"]) {
        Some("cta") => Scope::Block,
        Some("sys") => Scope::System,
        _ => Scope::Device,
    }
}

/// Cache operators and hints, which change no value.
fn drop_hints(words: &mut Words) {
    words.take_any(&["ca", "cg", "cs", "lu", "cv", "wb", "wt"]);
    words.take("nc");
    words.drop_all("L1::");
    words.drop_all("L2::");
}

/// How many values, and the type of each.
fn shape(words: &mut Words) -> Result<(usize, Type), String> {
    let count = match words.take_any(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    };
    let ty = words.ty()?;
    match count as u32 * bits_of(ty) {
        ..=128 => Ok((count, ty)),
        bits => Err(format!("a vector of {bits} bits; an access has up to 128")),
    }
}

/// The registers of `{a, b}`, or the only one.
fn parts(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(parts) => parts,
        operand => std::slice::from_ref(operand),
    }
}

/// What the words of a load or a store say.
struct Access {
    order: Order,
    scope: Scope,
    space: Space,
    count: usize,
    ty: Type,
}

fn access(decoder: &Decoder, instruction: &ast::Instruction) -> Result<Access, LoadError> {
    decoder.expect(instruction, 2)?;
    let mut words = Words::new(instruction);
    let order = order(&mut words, Order::Weak);
    let scope = scope(&mut words);
    let space = space(&mut words);
    drop_hints(&mut words);
    let (count, ty) = or_fail(decoder, shape(&mut words))?;
    or_fail(decoder, words.finish())?;
    Ok(Access { order, scope, space, count, ty })
}

fn load(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let Access { order, scope, space, count, ty } = access(decoder, instruction)?;
    let operands = parts(&instruction.operands[0]);
    if operands.len() != count {
        return decoder.error(format!("`ld` of {count} values into {} registers", operands.len()));
    }
    let mut targets = Vec::new();
    for operand in operands {
        let register = match decoder.register(operand)? {
            Some((register, bits)) if bits >= bits_of(ty) => register,
            Some((_, bits)) => {
                return decoder.error(format!("{bits} bits do not hold a value of {}", bits_of(ty)));
            }
            None => decoder.target(operand, bank_of(ty).unwrap_or(Bank::Double))?,
        };
        targets.push(register);
    }
    let address = decoder.address(&instruction.operands[1], space)?;
    let uses = Uses { read: address.base.into_iter().collect(), written: targets.clone() };
    let signed = matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64);
    let load = Load { address, order, scope, size: bits_of(ty) / 8, signed, targets };
    decoder.emit(Operation::Load(Box::new(load)), uses)
}

fn store(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let Access { order, scope, space, count, ty } = access(decoder, instruction)?;
    let operands = parts(&instruction.operands[1]);
    if operands.len() != count {
        return decoder.error(format!("`st` of {count} values out of {} registers", operands.len()));
    }
    let mut sources = Vec::new();
    for operand in operands {
        sources.push(value(decoder, operand, ty)?);
    }
    let address = decoder.address(&instruction.operands[0], space)?;
    let read = sources.iter().copied().chain(address.base).collect();
    let store = Store { address, order, scope, size: bits_of(ty) / 8, sources };
    decoder.emit(Operation::Store(Box::new(store)), Uses { read, written: vec![] })
}

/// A value to store: of the type's bits, or the low ones of a wider register.
fn value(decoder: &mut Decoder, operand: &Operand, ty: Type) -> Result<Register, LoadError> {
    match decoder.register(operand)? {
        Some((register, bits)) if bits >= bits_of(ty) => Ok(register),
        Some((_, bits)) => decoder.error(format!("{bits} bits are no value of {}", bits_of(ty))),
        None => decoder.source(operand, bank_of(ty).unwrap_or(Bank::Double)),
    }
}

fn in_space(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    use super::code::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
    decoder.expect(instruction, 2)?;
    let mut words = Words::new(instruction);
    let space = space(&mut words);
    or_fail(decoder, words.finish())?;
    let inside = match space {
        Space::Shared => |a: u64| a.wrapping_sub(SHARED_WINDOW) < WINDOW,
        Space::Local => |a: u64| a.wrapping_sub(LOCAL_WINDOW) < WINDOW,
        Space::Param => |a: u64| a.wrapping_sub(PARAM_WINDOW) < WINDOW,
        // Constants lie among global variables here.
        Space::Global if instruction.modifiers.iter().all(|word| word != "const") => {
            |a: u64| a < SHARED_WINDOW
        }
        _ => return decoder.unknown(instruction),
    };
    let target = decoder.target(&instruction.operands[0], Bank::Predicate)?;
    let source = decoder.source(&instruction.operands[1], Bank::Double)?;
    let operation = crate::exec::lanes::test(inside);
    let operands = [target.index, source.index, 0, 0, 0, 0, 0, 0];
    decoder.emit(Operation::Lanes(operation, operands), Uses { read: vec![source], written: vec![target] })
}

fn atomic(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let returns = instruction.name == "atom";
    let mut words = Words::new(instruction);
    let order = order(&mut words, Order::Relaxed);
    let scope = scope(&mut words);
    let space = space(&mut words);
    let operations = ["add", "and", "or", "xor", "min", "max", "exch", "cas", "inc", "dec"];
    let Some(operation) = words.take_any(&operations) else { return decoder.unknown(instruction) };
    words.take("noftz");
    let ty = or_fail(decoder, words.ty())?;
    or_fail(decoder, words.finish())?;
    let Some(update) = update(operation, ty) else { return decoder.unknown(instruction) };
    if matches!(space, Space::Local | Space::Param) {
        return decoder.unknown(instruction);
    }
    let values = if operation == "cas" { 2 } else { 1 };
    decoder.expect(instruction, usize::from(returns) + 1 + values)?;
    let (target, operands) = match (returns, instruction.operands.split_first()) {
        (true, Some((target, rest))) => {
            let target = match decoder.register(target)? {
                Some((register, bits)) if bits == bits_of(ty) => Some(register),
                Some(_) => return decoder.error("the register's width is not the type's"),
                None => Some(decoder.target(target, bank_of(ty).unwrap_or(Bank::Double))?),
            };
            (target, rest)
        }
        _ => (None, instruction.operands.as_slice()),
    };
    let address = decoder.address(&operands[0], space)?;
    let b = value(decoder, &operands[1], ty)?;
    let c = match operands.get(2) {
        Some(operand) => value(decoder, operand, ty)?,
        None => b,
    };
    let uses = Uses {
        read: [b, c].into_iter().chain(address.base).collect(),
        written: target.into_iter().collect(),
    };
    // "… on global memory flushes subnormal inputs and results to sign-preserving zero." (PTX ISA, "atom".)
    let update_global = if ty == Type::F32 { Some(sum(alu::flush)) } else { None };
    let size = bits_of(ty) / 8;
    let atomic = Atomic { address, order, scope, size, update, update_global, target, b, c };
    decoder.emit(Operation::Atomic(Box::new(atomic)), uses)
}

fn update(operation: &str, ty: Type) -> Option<Update> {
    let bits = bits_of(ty);
    Some(match (operation, ty) {
        ("exch", Type::B32 | Type::B64) => Box::new(|_, b, _| b),
        ("cas", Type::B16 | Type::B32 | Type::B64) => Box::new(|a, b, c| if a == b { c } else { a }),
        ("and", Type::B32 | Type::B64) => Box::new(|a, b, _| a & b),
        ("or", Type::B32 | Type::B64) => Box::new(|a, b, _| a | b),
        ("xor", Type::B32 | Type::B64) => Box::new(|a, b, _| a ^ b),
        ("inc", Type::U32) => Box::new(|a, b, _| if a >= b { 0 } else { a + 1 }),
        ("dec", Type::U32) => Box::new(|a, b, _| if a == 0 || a > b { b } else { a - 1 }),
        ("add", Type::U32 | Type::S32 | Type::U64 | Type::S64) => {
            Box::new(move |a, b, _| a.wrapping_add(b) & crate::exec::lanes::low(bits))
        }
        ("min", Type::U32 | Type::U64) => Box::new(|a, b, _| a.min(b)),
        ("max", Type::U32 | Type::U64) => Box::new(|a, b, _| a.max(b)),
        ("min", Type::S32) => signed::<i32>(i32::min),
        ("max", Type::S32) => signed::<i32>(i32::max),
        ("min", Type::S64) => signed::<i64>(i64::min),
        ("max", Type::S64) => signed::<i64>(i64::max),
        ("add", Type::F32) => sum(|a| a),
        ("add", Type::F64) => {
            Box::new(|a, b, _| alu::add_f64(f64::from_bits(a), f64::from_bits(b)).to_bits())
        }
        ("add", Type::F16) => Box::new(|a, b, _| alu::add_small(F16, a, b)),
        ("add", Type::Bf16) => Box::new(|a, b, _| alu::add_small(BF16, a, b)),
        ("add", Type::F16x2) => Box::new(|a, b, _| add_pair(F16, a, b)),
        ("add", Type::Bf16x2) => Box::new(|a, b, _| add_pair(BF16, a, b)),
        _ => return None,
    })
}

/// A sum of `f32`, operands and result passed through a function.
fn sum(pass: fn(f32) -> f32) -> Update {
    let float = move |bits: u64| pass(f32::from_bits(bits as u32));
    Box::new(move |a, b, _| pass(alu::add_f32(float(a), float(b))).to_bits().into())
}

fn signed<T: Integer>(pick: fn(T, T) -> T) -> Update {
    Box::new(move |a, b, _| pick(T::from_bits(a), T::from_bits(b)).bits())
}

fn add_pair(format: alu::Format, a: u64, b: u64) -> u64 {
    alu::add_small(format, a & 0xffff, b & 0xffff) | alu::add_small(format, a >> 16, b >> 16) << 16
}

fn or_fail<T>(decoder: &Decoder, result: Result<T, String>) -> Result<T, LoadError> {
    result.or_else(|message| decoder.error(message))
}
