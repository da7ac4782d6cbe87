//! Declarations of variables, registers and parameters (PTX ISA, "State Spaces, Types, and Variables").

use super::ast::{Initial, Space, Type, Variable};
use super::grammar::{
    DEPTH, Input, Parsed, count, exactly, expect, given, line, list, name, number, of, offset, unsigned,
    wrong,
};
use super::number::Number;
use super::token::{Kind, Token};
use winnow::combinator::{alt, cut_err, delimited, empty, opt, preceded, terminated};
use winnow::prelude::*;
use winnow::token::take_till;

/// The most registers in one range: far above what compilers emit, low enough to allocate.
const REGISTERS: u32 = 1 << 20;

/// Parses a declaration.
///
/// `.reg .b32 %r<5>, %x;`, `.shared .align 16 .b8 tile[4096];`, `.global .u32 table[2] = {1, 2};`
pub(super) fn declaration(external: bool, input: &mut Input<'_>) -> Parsed<Vec<Variable>> {
    let head = Variable { external, ..head(input)? };
    let variables = list(|input: &mut Input<'_>| declarator(&head, input)).parse_next(input)?;
    expect(";").context("`,` or `;`").parse_next(input)?;
    Ok(variables)
}

/// Parses `(.param .u64 .ptr .align 1 a, .param .align 8 .b8 b[16])`, or nothing.
pub(super) fn parameters(input: &mut Input<'_>) -> Parsed<Vec<Variable>> {
    if !given("(", input)? || given(")", input)? {
        return Ok(Vec::new());
    }
    let parameter = |input: &mut Input<'_>| {
        let head = head(input)?;
        declarator(&head, input)
    };
    terminated(list(parameter), expect(")").context("`,` or `)`")).parse_next(input)
}

/// Parses `.attribute(.managed)` and ignores it.
pub(super) fn attribute(input: &mut Input<'_>) -> Parsed<()> {
    if given(".attribute", input)? {
        (expect("("), take_till(0.., |token: &Token<'_>| token.text == ")"), expect(")"))
            .parse_next(input)?;
    }
    Ok(())
}

/// Parses what the declarators of one directive share, into a variable without a name.
fn head(input: &mut Input<'_>) -> Parsed<Variable> {
    let line = line(input);
    let space = space(input)?;
    attribute(input)?;
    let align = align(input)?;
    let vector = vector(input)?;
    let ty = ty(input)?;
    if given(".ptr", input)? {
        // The space and alignment of a pointer's target, which nothing here uses.
        opt(self::space).parse_next(input)?;
        self::align(input)?;
    }
    Ok(Variable {
        space,
        ty,
        vector,
        align: align.unwrap_or(size(ty) * vector),
        name: String::new(),
        len: None,
        registers: None,
        initial: Vec::new(),
        external: false,
        line,
    })
}

fn space(input: &mut Input<'_>) -> Parsed<Space> {
    of(Kind::Dotted)
        .verify_map(|word| match word {
            ".reg" => Some(Space::Reg),
            ".global" => Some(Space::Global),
            ".shared" => Some(Space::Shared),
            ".local" => Some(Space::Local),
            ".const" => Some(Space::Const),
            ".param" => Some(Space::Param),
            _ => None,
        })
        .context("`.reg`, `.global`, `.shared`, `.local`, `.const` or `.param`")
        .parse_next(input)
}

fn ty(input: &mut Input<'_>) -> Parsed<Type> {
    let ty = of(Kind::Dotted).verify_map(|word| match word {
        ".b8" => Some(Type::B8),
        ".b16" => Some(Type::B16),
        ".b32" => Some(Type::B32),
        ".b64" => Some(Type::B64),
        ".b128" => Some(Type::B128),
        // Handles, which only instructions for textures and surfaces read.
        ".texref" | ".samplerref" | ".surfref" => Some(Type::B64),
        ".u8" => Some(Type::U8),
        ".u16" => Some(Type::U16),
        ".u32" => Some(Type::U32),
        ".u64" => Some(Type::U64),
        ".s8" => Some(Type::S8),
        ".s16" => Some(Type::S16),
        ".s32" => Some(Type::S32),
        ".s64" => Some(Type::S64),
        ".f16" => Some(Type::F16),
        ".f16x2" => Some(Type::F16x2),
        ".bf16" => Some(Type::Bf16),
        ".bf16x2" => Some(Type::Bf16x2),
        ".f32" => Some(Type::F32),
        ".f64" => Some(Type::F64),
        ".pred" => Some(Type::Pred),
        _ => None,
    });
    cut_err(ty).context("a type").parse_next(input)
}

fn size(ty: Type) -> u32 {
    match ty {
        Type::B8 | Type::U8 | Type::S8 | Type::Pred => 1,
        Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 2,
        Type::B32
        | Type::U32
        | Type::S32
        | Type::F32
        | Type::U16x2
        | Type::S16x2
        | Type::F16x2
        | Type::Bf16x2 => 4,
        Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
        Type::B128 => 16,
    }
}

/// The bytes of a variable.
pub(super) fn bytes(variable: &Variable) -> u64 {
    let element = u64::from(size(variable.ty) * variable.vector);
    element.saturating_mul(variable.len.unwrap_or(1))
}

fn align(input: &mut Input<'_>) -> Parsed<Option<u32>> {
    let power = |bytes: u32| match bytes.is_power_of_two() {
        true => Ok(bytes),
        false => Err(format!("an alignment of {bytes}, which is not a power of two")),
    };
    opt(preceded(exactly(".align"), cut_err(count.try_map(power)))).parse_next(input)
}

fn vector(input: &mut Input<'_>) -> Parsed<u32> {
    alt((exactly(".v2").value(2), exactly(".v4").value(4), empty.value(1))).parse_next(input)
}

/// Parses a name with its range, dimensions and initial values.
fn declarator(head: &Variable, input: &mut Input<'_>) -> Parsed<Variable> {
    let name = name(input)?.to_owned();
    let mut variable = Variable { name, ..head.clone() };
    if head.space == Space::Reg {
        variable.registers = opt(delimited(exactly("<"), range, expect(">"))).parse_next(input)?;
    }
    let dimensions = dimensions(u64::from(size(head.ty) * head.vector), input)?;
    if !dimensions.is_empty() {
        variable.len = Some(dimensions.iter().product());
    }
    if given("=", input)? {
        match input[..] {
            // (Handles count as `.b64`.)
            [Token { text: "{", .. }, Token { kind: Kind::Word, .. }, Token { text: "=", .. }, ..]
                if head.ty == Type::B64 =>
            {
                properties(input)?;
            }
            _ => initialise(&mut variable, &dimensions, input)?,
        }
    }
    Ok(variable)
}

/// Parses the properties of a texture, a surface or a sampler, and ignores them: only instructions for these
/// use them.
///
/// `{ addr_mode_0 = wrap, force_unnormalized_coords = 1 }`
fn properties(input: &mut Input<'_>) -> Parsed<()> {
    let value = alt((of(Kind::Word), of(Kind::Number))).context("a word or a number");
    let property = (of(Kind::Word).context("a property"), expect("="), cut_err(value));
    let end = expect("}").context("`,` or `}`");
    delimited(exactly("{"), list(property), end).void().parse_next(input)
}

fn range(input: &mut Input<'_>) -> Parsed<u32> {
    let few = |registers| match registers {
        0..=REGISTERS => Ok(registers),
        _ => Err(format!("{registers} registers in one range; the most is {REGISTERS}")),
    };
    cut_err(count.try_map(few)).parse_next(input)
}

/// Parses `[4][2]`, outermost dimension first; `[]` is 0. Fails if the array's bytes exceed 64 bits.
fn dimensions(element: u64, input: &mut Input<'_>) -> Parsed<Vec<u64>> {
    let mut dimensions = Vec::new();
    let mut bytes = element;
    while given("[", input)? {
        let unknown = dimensions.is_empty() && given("]", input)?;
        let dimension = if unknown { 0 } else { terminated(unsigned, expect("]")).parse_next(input)? };
        dimensions.push(dimension);
        match bytes.checked_mul(dimension.max(1)) {
            Some(product) if dimensions.len() <= DEPTH => bytes = product,
            _ => return wrong(input, format!("an array of more than 2⁶⁴ bytes or {DEPTH} dimensions")),
        }
    }
    Ok(dimensions)
}

/// Parses the values after `=`, which also set the length of a `[]`.
fn initialise(variable: &mut Variable, dimensions: &[u64], input: &mut Input<'_>) -> Parsed<()> {
    if matches!(variable.ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::Pred)
        || matches!(variable.space, Space::Reg | Space::Param)
    {
        let name = &variable.name;
        return wrong(input, format!("`{name:.40}` has a space or a type that cannot have initial values"));
    }
    // The most values within a brace, the outermost brace first.
    let lanes = (variable.vector > 1).then_some(u64::from(variable.vector));
    let mut rows: Vec<u64> = dimensions.iter().copied().chain(lanes).collect();
    for outer in (1..rows.len()).rev() {
        rows[outer - 1] *= rows[outer];
    }
    let open = dimensions.first() == Some(&0);
    if open {
        rows[0] = u64::MAX;
    }
    values(variable, &rows, input)?;
    if open {
        let entry = rows.get(1).map_or(1, |&row| row.max(1));
        let entries = (variable.initial.len() as u64).div_ceil(entry);
        variable.len = Some(entries * dimensions[1..].iter().product::<u64>());
    }
    Ok(())
}

/// Parses one value, or braces with one row of the array.
fn values(variable: &mut Variable, rows: &[u64], input: &mut Input<'_>) -> Parsed<()> {
    if !given("{", input)? {
        variable.initial.push(value(variable.ty, input)?);
        return Ok(());
    }
    let Some((&row, inner)) = rows.split_first() else {
        return wrong(input, format!("more braces than `{:.40}` has dimensions", variable.name));
    };
    let start = variable.initial.len() as u64;
    if !start.is_multiple_of(row) {
        return wrong(
            input,
            format!("a row of `{:.40}` starts before the previous row is full", variable.name),
        );
    }
    list(|input: &mut Input<'_>| values(variable, inner, input)).parse_next(input)?;
    if variable.initial.len() as u64 - start > row {
        return wrong(input, format!("more than {row} values in a row of `{:.40}`", variable.name));
    }
    expect("}").context("`,` or `}`").void().parse_next(input)
}

fn value(ty: Type, input: &mut Input<'_>) -> Parsed<Initial> {
    let Some(word) = opt(of(Kind::Word)).parse_next(input)? else {
        let bits = number.try_map(|number| bits(ty, number));
        return cut_err(bits).context("a value").map(Initial::Bits).parse_next(input);
    };
    let generic = word == "generic";
    let (name, within) = match generic {
        true => delimited(expect("("), (name, offset), expect(")")).parse_next(input)?,
        false => (word, 0),
    };
    let offset = offset(input)?.wrapping_add(within);
    Ok(Initial::Address { name: name.to_owned(), offset, generic })
}

/// Converts a number to bits of the variable's type, as `ptxas` 13 does.
///
/// Rounds a 64-bit float to 32 bits for a 32-bit type; keeps all other bits, also those of `0f…` in 64 bits.
fn bits(ty: Type, number: Number) -> Result<u64, String> {
    use Type::{F32, F64, S8, S16, S32, S64, U8, U16, U32, U64};
    let (float, integer) =
        (matches!(ty, F32 | F64), matches!(ty, S8 | S16 | S32 | S64 | U8 | U16 | U32 | U64));
    match number {
        Number::Integer(_) if float => Err("an integer as the initial value of a float".into()),
        Number::F32(_) | Number::F64(_) if integer => {
            Err("a float as the initial value of an integer".into())
        }
        Number::F64(bits) if size(ty) == 4 => Ok((f64::from_bits(bits) as f32).to_bits().into()),
        Number::F32(bits) => Ok(bits.into()),
        Number::Integer(bits) | Number::F64(bits) => Ok(bits),
    }
}
