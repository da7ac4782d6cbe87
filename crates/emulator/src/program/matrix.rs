//! Decodes matrix instructions. (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".)
//!
//! The ISA shows which lane holds which element of a fragment of `mma`. It leaves the fragments of `wmma`
//! open; here they are tiles of `mma`, as on an H100.

use crate::{
    alu::{Arithmetic, BF16, F16, F32, Format, Narrow, Rounding, TF32},
    exec::lanes::{ALL, Bank, LANES, Register},
    ptx::ast::{self, Operand},
};

use super::{
    LoadError,
    code::{CollectiveKind, Constant, Fragment, Lines, Matrix, Multiply, Operation, Space},
    decode::Decoder,
    flow::Uses,
    memory::parts,
    sync::Parts,
};

/// A matrix of `mma` or `wmma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    A,
    B,
    /// c or d.
    Sum,
}

/// The rows of a, the columns of b, and the elements of a row of a.
#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
}

impl Shape {
    /// Parses `m16n8k16`.
    fn parse(word: &str) -> Option<Shape> {
        let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some(Shape { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
    }

    /// The rows and columns of a matrix.
    fn size(self, role: Role) -> [usize; 2] {
        match role {
            Role::A => [self.m, self.k],
            Role::B => [self.k, self.n],
            Role::Sum => [self.m, self.n],
        }
    }

    /// The row and column of an element of a matrix, by its register, its place there and its lane.
    ///
    /// A lane holds pieces of a row of a and c, and of a column of b. The fragments of larger shapes are
    /// tiles of 16 rows and 8 columns, one after another. With 8 rows and 32 columns, all matrices are
    /// transposed.
    fn element(self, role: Role, per: usize, (register, place, lane): (usize, usize, usize)) -> [usize; 2] {
        let Shape { m, n, k } = self;
        if (m, n) == (8, 32) {
            let role = match role {
                Role::A => Role::B,
                Role::B => Role::A,
                Role::Sum => Role::Sum,
            };
            let [row, column] = Shape { m: n, n: m, k }.element(role, per, (register, place, lane));
            return [column, row];
        }
        let high = m.min(16);
        let [rows, columns] = match role {
            Role::A => [high, k],
            Role::B => [k, 8],
            Role::Sum => [high, 8],
        };
        let each = rows * columns / LANES / per;
        let (tile, register) = (register / each, register % each);
        let (group, member) = (lane / 4, lane % 4);
        let along = |piece: usize| 4 * per * piece + per * member + place;
        let index = register * per + place;
        match role {
            Role::A => {
                let halves = high / 8;
                [tile * 16 % m + register % halves * 8 + group, along(register / halves)]
            }
            Role::B => [along(register), tile * 8 % n + group],
            Role::Sum if n == 8 => [tile * 16 + index / 2 * 8 + group, 2 * member + index % 2],
            Role::Sum => [index / 2 * 8 + group, tile * 8 + 2 * member + index % 2],
        }
    }
}

/// The bits of an element.
fn bits(ty: &str) -> Option<u32> {
    Some(match ty {
        "b1" => 1,
        "s4" | "u4" => 4,
        "s8" | "u8" => 8,
        "f16" | "bf16" => 16,
        "tf32" | "f32" | "s32" => 32,
        "f64" => 64,
        _ => return None,
    })
}

fn format(ty: &str) -> Option<Format> {
    Some(match ty {
        "f16" => F16,
        "bf16" => BF16,
        "tf32" => TF32,
        "f32" => F32,
        _ => return None,
    })
}

/// The elements of a register.
fn per_register(bits: u32) -> usize {
    (32 / bits).max(1) as usize
}

fn bank(bits: u32) -> Bank {
    if bits == 64 { Bank::Double } else { Bank::Word }
}

pub fn decode(decoder: &mut Decoder, instruction: &ast::Instruction) -> Result<(), LoadError> {
    let decoded = match instruction.name.as_str() {
        "mma" => multiply(decoder, instruction)?,
        "wmma" if instruction.modifiers.iter().any(|word| word == "mma") => multiply(decoder, instruction)?,
        "wmma" => tile(decoder, instruction)?,
        "movmatrix" => transpose(decoder, instruction)?,
        _ => rows(decoder, instruction)?,
    };
    let Some((matrix, uses)) = decoded else { return decoder.unknown(instruction) };
    let mask = decoder.constant(Bank::Word, Constant::Bits(ALL.into()));
    let Parts { collective, .. } = Parts::new(decoder, CollectiveKind::Matrix(Box::new(matrix)), mask);
    decoder.emit(Operation::Matrix(Box::new(collective)), uses)
}

/// An instruction and its registers. `None` if it is not supported.
type Decoded = Result<Option<(Matrix, Uses)>, LoadError>;

/// Resolves the registers of a fragment, with the number of each element.
fn fragment(
    decoder: &mut Decoder,
    (operand, writes): (&Operand, bool),
    (bits, count, registers): (u32, usize, usize),
    number: impl Fn(usize, usize, usize) -> usize,
) -> Result<Fragment, LoadError> {
    let operands = parts(operand);
    if operands.len() != registers {
        return decoder
            .error(format!("a fragment of {registers} registers is needed here, not of {}", operands.len()));
    }
    let mut found = Vec::new();
    for operand in operands {
        found.push(match writes {
            true => decoder.target(operand, bank(bits))?,
            false => decoder.source(operand, bank(bits))?,
        });
    }
    let slots =
        (0..registers).flat_map(|register| (0..per_register(bits)).map(move |place| (register, place)));
    let lanes = |(register, place)| std::array::from_fn(|lane| number(register, place, lane) as u16);
    Ok(Fragment { registers: found, bits, count, places: slots.map(lanes).collect() })
}

/// The numbers of registers of a fragment of `mma`, or of `wmma`, in which f16 factors always have 8.
fn registers(instruction: &ast::Instruction, [rows, columns]: [usize; 2], role: Role, ty: &str) -> usize {
    match (role, ty) {
        (Role::A | Role::B, "f16") if instruction.name == "wmma" => 8,
        _ => rows * columns / LANES / bits(ty).map_or(1, per_register),
    }
}

fn multiply(decoder: &mut Decoder, instruction: &ast::Instruction) -> Decoded {
    decoder.expect(instruction, 4)?;
    let words = || instruction.modifiers.iter().map(String::as_str);
    let types: Vec<&str> = words().filter(|word| bits(word).is_some()).collect();
    let [d, a, b, c] = match types[..] {
        [d, c] => [d, "f16", "f16", c],
        [d, a, b, c] => [d, a, b, c],
        _ => return Ok(None),
    };
    let Some(shape) = words().find_map(Shape::parse) else { return Ok(None) };
    // Measured on an H200: `wmma` of tf32 takes two steps.
    let step = if instruction.name == "wmma" && a == "tf32" { 4 } else { shape.k };
    let Some(arithmetic) = arithmetic([d, a, b, c], step, words()) else { return Ok(None) };
    let mut one = |place: usize, role: Role, ty: &str| {
        let [rows, columns] = shape.size(role);
        let bits = bits(ty).unwrap_or(32);
        let count = registers(instruction, [rows, columns], role, ty);
        let number = |register, place, lane| {
            let [row, column] = shape.element(role, per_register(bits), (register, place, lane));
            if role == Role::B { column * rows + row } else { row * columns + column }
        };
        let operand = (&instruction.operands[place], place == 0);
        fragment(decoder, operand, (bits, rows * columns, count), number)
    };
    let (d, a) = (one(0, Role::Sum, d)?, one(1, Role::A, a)?);
    let (b, c) = (one(2, Role::B, b)?, one(3, Role::Sum, c)?);
    let read = [&a, &b, &c].into_iter().flat_map(|fragment| &fragment.registers).copied().collect();
    let uses = Uses { read, written: d.registers.clone() };
    let multiply = Multiply { arithmetic, k: shape.k, columns: shape.n, a, b, c, d };
    Ok(Some((Matrix::Multiply(Box::new(multiply)), uses)))
}

fn arithmetic<'a>(
    [d, a, b, c]: [&str; 4],
    step: usize,
    mut words: impl Iterator<Item = &'a str> + Clone,
) -> Option<Arithmetic> {
    let narrow = |ty: &str| Some(Narrow { bits: bits(ty)?, signed: ty.starts_with('s') });
    Some(match d {
        "s32" => {
            let has = |wanted: &str| words.clone().any(|word| word == wanted);
            let (saturates, differs) = (has("satfinite"), has("xor"));
            Arithmetic::Integer { a: narrow(a)?, b: narrow(b)?, saturates, differs }
        }
        "f64" => {
            let rounding = |word| match word {
                "rz" => Some(Rounding::Zero),
                "rm" => Some(Rounding::Down),
                "rp" => Some(Rounding::Up),
                _ => None,
            };
            Arithmetic::Double(words.find_map(rounding).unwrap_or(Rounding::Nearest))
        }
        _ => Arithmetic::Float { factor: format(a)?, c: format(c)?, d: format(d)?, step },
    })
}

/// `wmma.load` and `wmma.store`.
fn tile(decoder: &mut Decoder, instruction: &ast::Instruction) -> Decoded {
    let has = |word: &str| instruction.modifiers.iter().any(|has| has == word);
    let words = || instruction.modifiers.iter().map(String::as_str);
    let stores = has("store");
    let role = match () {
        () if has("a") => Role::A,
        () if has("b") => Role::B,
        () => Role::Sum,
    };
    let (Some(shape), Some(ty)) = (words().find_map(Shape::parse), words().find(|word| bits(word).is_some()))
    else {
        return Ok(None);
    };
    if !matches!(instruction.operands.len(), 2 | 3) {
        decoder.expect(instruction, 3)?;
    }
    let size = shape.size(role);
    let by_rows = has("row");
    let [count, length] = if by_rows { size } else { [size[1], size[0]] };
    let bits = bits(ty).unwrap_or(32);
    let number = |register, place, lane| {
        let [row, column] = shape.element(role, per_register(bits), (register, place, lane));
        if by_rows { row * length + column } else { column * length + row }
    };
    let of_fragment = (bits, count * length, registers(instruction, size, role, ty));
    let operand = (&instruction.operands[usize::from(stores)], !stores);
    let fragment = fragment(decoder, operand, of_fragment, number)?;
    let address = decoder.address(&instruction.operands[usize::from(!stores)], space(instruction))?;
    let stride = match instruction.operands.get(2) {
        Some(operand) => decoder.source(operand, Bank::Word)?,
        None => decoder.constant(Bank::Word, Constant::Bits(length as u64)),
    };
    Ok(Some(access(Lines { fragment, address, count, length, stride: Some(stride) }, stores)))
}

/// `ldmatrix` and `stmatrix`: 8 rows of 8 elements for each register.
fn rows(decoder: &mut Decoder, instruction: &ast::Instruction) -> Decoded {
    decoder.expect(instruction, 2)?;
    let has = |word: &str| instruction.modifiers.iter().any(|has| has == word);
    let stores = instruction.name == "stmatrix";
    let registers = match () {
        () if has("x1") => 1,
        () if has("x2") => 2,
        () => 4,
    };
    let transposed = has("trans");
    let number = |register: usize, place: usize, lane: usize| {
        let (row, column) = (lane / 4, 2 * (lane % 4) + place);
        64 * register + if transposed { 8 * column + row } else { 8 * row + column }
    };
    let operand = (&instruction.operands[usize::from(stores)], !stores);
    let fragment = fragment(decoder, operand, (16, 64 * registers, registers), number)?;
    let address = decoder.address(&instruction.operands[usize::from(!stores)], space(instruction))?;
    Ok(Some(access(Lines { fragment, address, count: 8 * registers, length: 8, stride: None }, stores)))
}

fn access(lines: Lines, stores: bool) -> (Matrix, Uses) {
    let of_fragment = lines.fragment.registers.clone();
    let of_address: Vec<Register> = lines.address.base.into_iter().chain(lines.stride).collect();
    match stores {
        true => {
            (Matrix::Store(lines), Uses { read: [of_fragment, of_address].concat(), written: Vec::new() })
        }
        false => (Matrix::Load(lines), Uses { read: of_address, written: of_fragment }),
    }
}

fn space(instruction: &ast::Instruction) -> Space {
    let space = |word: &str| match word {
        "global" => Some(Space::Global),
        "shared" | "shared::cta" => Some(Space::Shared),
        _ => None,
    };
    instruction.modifiers.iter().find_map(|word| space(word)).unwrap_or(Space::Generic)
}

/// `movmatrix`: a lane's two elements of a row become those of a column.
fn transpose(decoder: &mut Decoder, instruction: &ast::Instruction) -> Decoded {
    decoder.expect(instruction, 2)?;
    let by_rows = |_, place: usize, lane: usize| 8 * (lane / 4) + 2 * (lane % 4) + place;
    let by_columns = |_, place: usize, lane: usize| 8 * (2 * (lane % 4) + place) + lane / 4;
    let target = fragment(decoder, (&instruction.operands[0], true), (16, 64, 1), by_columns)?;
    let source = fragment(decoder, (&instruction.operands[1], false), (16, 64, 1), by_rows)?;
    let uses = Uses { read: source.registers.clone(), written: target.registers.clone() };
    Ok(Some((Matrix::Move { target, source }, uses)))
}
