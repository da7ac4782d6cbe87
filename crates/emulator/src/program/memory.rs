//! Decodes loads, stores and atomics. (PTX ISA, "ld", "st", "atom", "red".)

use crate::{
    alu::{self, BF16, F16, Integer, Words, bank_of, bits_of},
    exec::lanes::{Bank, Register},
    ptx::ast::{self, Operand, Type},
};

use super::{
    LoadError,
    code::{Atomic, Load, Operation, Order, Scope, Space, Store, Update},
    copy,
    decode::Decoder,
    flow::Uses,
};

pub fn decode(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    match instruction.name.as_str() {
        "ld" | "ldu" => load(decoder, instruction),
        "st" => store(decoder, instruction),
        "isspacep" => in_space(decoder, instruction),
        "atom" | "red" => atomic(decoder, instruction),
        "cp" => copy::decode(decoder, instruction),
        "createpolicy" => policy(decoder, instruction),
        // Hints do not change values.
        _ => decoder.emit(Operation::Nothing, Uses::default()),
    }
}

/// The state space that the words name; generic by default.
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
    // `.mmio.relaxed` is `.relaxed` without splitting or merging, which the emulator never does.
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

/// Drops cache operators and hints, which do not change values. Returns whether the last operand is a cache
/// policy.
fn drop_hints(words: &mut Words) -> bool {
    words.take_any(&["ca", "cg", "cs", "lu", "cv", "wb", "wt"]);
    words.take("nc");
    let hint = words.take("L2::cache_hint");
    words.drop_all("L1::");
    words.drop_all("L2::");
    hint
}

/// The value of every cache policy, which has no visible effect.
const POLICY: u64 = 0;

/// `createpolicy`.
fn policy(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let is = |kind: &str| instruction.modifiers.iter().any(|word| word == kind);
    let operands = &instruction.operands;
    let mut read = Vec::new();
    if is("range") {
        decoder.expect(instruction, 4)?;
        let space = if is("global") { Space::Global } else { Space::Generic };
        read.extend(decoder.address(&operands[1], space)?.base);
        for size in &operands[2..] {
            read.push(decoder.source(size, Bank::Word)?);
        }
    } else if is("cvt") {
        decoder.expect(instruction, 2)?;
        read.push(decoder.source(&operands[1], Bank::Double)?);
    } else if let [_, fraction] = operands.as_slice() {
        read.push(decoder.source(fraction, Bank::Word)?);
    } else {
        decoder.expect(instruction, 1)?;
    }
    let target = decoder.target(&operands[0], Bank::Double)?;
    let operation = crate::exec::lanes::convert(Bank::Double, [], |[]| POLICY);
    let operands = [target.index, 0, 0, 0, 0, 0, 0, 0];
    decoder.emit(Operation::Lanes(operation, operands), Uses { read, written: vec![target] })
}

/// The number of values and their type.
fn shape(words: &mut Words) -> Result<(usize, Type), String> {
    let count = match words.take_any(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    };
    let ty = words.ty()?;
    match count as u32 * bits_of(ty) {
        ..=128 => Ok((count, ty)),
        bits => Err(format!("a vector of {bits} bits; an access has at most 128")),
    }
}

/// The operands of `{a, b}`, or the single operand.
pub(super) fn parts(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(parts) => parts,
        operand => std::slice::from_ref(operand),
    }
}

/// The modifiers of a load or a store.
struct Access {
    order: Order,
    scope: Scope,
    space: Space,
    count: usize,
    ty: Type,
    /// The register of the cache policy.
    policy: Option<Register>,
}

fn access(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<Access, LoadError> {
    let mut words = Words::new(instruction);
    let order = order(&mut words, Order::Weak);
    let scope = scope(&mut words);
    let space = space(&mut words);
    let hint = drop_hints(&mut words);
    let (count, ty) = or_fail(decoder, shape(&mut words))?;
    or_fail(decoder, words.finish())?;
    let policy = cache_policy(decoder, instruction, 2, hint)?;
    Ok(Access { order, scope, space, count, ty, policy })
}

/// The register of the cache policy that follows the other operands.
pub(super) fn cache_policy(
    decoder: &mut Decoder,
    instruction: &ast::Instruction,
    operands: usize,
    hint: bool,
) -> Result<Option<Register>, LoadError> {
    decoder.expect(instruction, operands + usize::from(hint))?;
    match instruction.operands.get(operands) {
        Some(policy) => decoder.source(policy, Bank::Double).map(Some),
        None => Ok(None),
    }
}

fn load(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let Access { order, scope, space, count, ty, policy } = access(decoder, instruction)?;
    let operands = parts(&instruction.operands[0]);
    if operands.len() != count {
        return decoder.error(format!("`ld` loads {count} values into {} registers", operands.len()));
    }
    let mut targets = Vec::new();
    for operand in operands {
        let register = match decoder.register(operand)? {
            Some((register, bits)) if bits >= bits_of(ty) => register,
            Some((_, bits)) => {
                return decoder
                    .error(format!("a register of {bits} bits cannot hold a value of {} bits", bits_of(ty)));
            }
            None => decoder.target(operand, bank_of(ty).unwrap_or(Bank::Double))?,
        };
        targets.push(register);
    }
    let address = decoder.address(&instruction.operands[1], space)?;
    let uses = Uses { read: address.base.into_iter().chain(policy).collect(), written: targets.clone() };
    let signed = matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64);
    let constant = instruction.modifiers.iter().any(|word| word == "nc");
    let size = bits_of(ty) / 8;
    let (reads_flag, starts_swap) = (false, false);
    let load = Load { address, order, scope, size, signed, constant, reads_flag, starts_swap, targets };
    decoder.emit(Operation::Load(Box::new(load)), uses)
}

fn store(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let Access { order, scope, space, count, ty, policy } = access(decoder, instruction)?;
    let operands = parts(&instruction.operands[1]);
    if operands.len() != count {
        return decoder.error(format!("`st` stores {count} values from {} registers", operands.len()));
    }
    let mut sources = Vec::new();
    for operand in operands {
        sources.push(value(decoder, operand, ty)?);
    }
    let address = decoder.address(&instruction.operands[0], space)?;
    let read = sources.iter().copied().chain(address.base).chain(policy).collect();
    let store = Store { address, order, scope, size: bits_of(ty) / 8, sources };
    decoder.emit(Operation::Store(Box::new(store)), Uses { read, written: vec![] })
}

/// Resolves a value to store. A register may be wider than the type; its low bits are stored.
fn value(decoder: &mut Decoder, operand: &Operand, ty: Type) -> Result<Register, LoadError> {
    match decoder.register(operand)? {
        Some((register, bits)) if bits >= bits_of(ty) => Ok(register),
        Some((_, bits)) => decoder
            .error(format!("a register of {bits} bits is too narrow for a value of {} bits", bits_of(ty))),
        None => decoder.source(operand, bank_of(ty).unwrap_or(Bank::Double)),
    }
}

fn in_space(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    use super::code::{LOCAL_WINDOW, LOCAL_WINDOWS, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
    decoder.expect(instruction, 2)?;
    let mut words = Words::new(instruction);
    let space = space(&mut words);
    or_fail(decoder, words.finish())?;
    let inside = match space {
        Space::Shared => |a: u64| a.wrapping_sub(SHARED_WINDOW) < WINDOW,
        Space::Local => |a: u64| a.wrapping_sub(LOCAL_WINDOW) < LOCAL_WINDOWS,
        Space::Param => |a: u64| a.wrapping_sub(PARAM_WINDOW) < WINDOW,
        // Constants lie among the global variables here.
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
    let hint = words.take("L2::cache_hint");
    let (count, ty) = or_fail(decoder, shape(&mut words))?;
    or_fail(decoder, words.finish())?;
    let Some(update) = update(operation, ty) else { return decoder.unknown(instruction) };
    if matches!(space, Space::Local | Space::Param) {
        return decoder.unknown(instruction);
    }
    let values = if operation == "cas" { 2 } else { 1 };
    let policy = cache_policy(decoder, instruction, usize::from(returns) + 1 + values, hint)?;
    let (target, operands) = instruction.operands.split_at(usize::from(returns));
    let mut targets = Vec::new();
    for target in target.iter().flat_map(parts) {
        targets.push(match decoder.register(target)? {
            Some((register, bits)) if bits == bits_of(ty) => register,
            Some((_, bits)) => {
                return decoder
                    .error(format!("a register of {bits} bits for a value of {} bits", bits_of(ty)));
            }
            None => decoder.target(target, bank_of(ty).unwrap_or(Bank::Double))?,
        });
    }
    let address = decoder.address(&operands[0], space)?;
    let mut b = Vec::new();
    for operand in parts(&operands[1]) {
        b.push(value(decoder, operand, ty)?);
    }
    if b.len() != count || returns && targets.len() != count {
        return decoder.error(format!("`{}` has {count} values but {} registers", instruction.name, b.len()));
    }
    let c = if values == 2 { value(decoder, &operands[2], ty)? } else { b[0] };
    let read = b.iter().copied().chain([c]).chain(address.base).chain(policy).collect();
    let uses = Uses { read, written: targets.clone() };
    let update_global = update_global(operation, ty);
    let size = bits_of(ty) / 8;
    let is_swap = operation == "cas";
    let atomic = Atomic { address, order, scope, size, update, update_global, is_swap, targets, b, c };
    decoder.emit(Operation::Atomic(Box::new(atomic)), uses)
}

/// The update in global memory, if it differs.
///
/// "… on global memory flushes subnormal inputs and results to sign-preserving zero." (PTX ISA, "atom".)
pub(super) fn update_global(operation: &str, ty: Type) -> Option<Update> {
    ((operation, ty) == ("add", Type::F32)).then(|| sum(alu::flush))
}

pub(super) fn update(operation: &str, ty: Type) -> Option<Update> {
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

/// Adds two `f32`, applying `pass` to the operands and the result.
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

pub(super) fn or_fail<T>(decoder: &Decoder, result: Result<T, String>) -> Result<T, LoadError> {
    result.or_else(|message| decoder.error(message))
}
