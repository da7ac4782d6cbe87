//! Function bodies (PTX ISA, "Instruction Statements", "Instruction Operands").

use super::ast::{Frame, Guard, Instruction, Operand, Statement, Variable};
use super::grammar::{
    DEPTH, Input, Parsed, count, exactly, expect, given, integer, line, list, name, number, of, offset, wrong,
};
use super::module::{hints, pragma};
use super::number::Number;
use super::token::{Kind, Token};
use super::variable::{bytes, declaration, parameters};
use winnow::combinator::{alt, cut_err, delimited, opt, peek, preceded, repeat, terminated};
use winnow::prelude::*;
use winnow::token::any;

/// Parses `{ … }`, inside `depth` others.
pub(super) fn block(depth: usize, input: &mut Input<'_>) -> Parsed<Vec<Statement>> {
    if depth == DEPTH {
        return wrong(input, format!("scopes nested more than {DEPTH} deep"));
    }
    expect("{").parse_next(input)?;
    let mut statements = Vec::new();
    while !given("}", input)? {
        statement(depth, &mut statements, input)?;
    }
    Ok(statements)
}

fn statement(depth: usize, into: &mut Vec<Statement>, input: &mut Input<'_>) -> Parsed<()> {
    match input[..] {
        [Token { kind: Kind::Word, text, .. }, Token { text: ":", .. }, ..] => {
            (any, any).parse_next(input)?;
            into.push(Statement::Label(text.to_owned()));
        }
        [Token { kind: Kind::Word, .. } | Token { text: "@", .. }, ..] => {
            into.push(Statement::Instruction(instruction(input)?));
        }
        [Token { text: "{", .. }, ..] => into.push(Statement::Block(block(depth + 1, input)?)),
        [Token { text: ".loc", .. }, ..] => into.push(location(input)?),
        [Token { text: ".pragma", .. }, ..] => pragma(input)?,
        [Token { text: ".branchtargets" | ".calltargets" | ".callprototype", .. }, ..] => {
            into.push(Statement::Instruction(targets(input)?));
        }
        _ => {
            let declaration = |input: &mut Input<'_>| declaration(false, input);
            let what = "an instruction, a label, a declaration or `}`";
            into.extend(declaration.context(what).parse_next(input)?.into_iter().map(Statement::Declare));
        }
    }
    Ok(())
}

/// Parses `.loc 1 12 5`, also with `, function_name $L__name, inlined_at 1 9 1`.
fn location(input: &mut Input<'_>) -> Parsed<Statement> {
    let frame = |input: &mut Input<'_>| {
        let (file, line, column) = (count, count, count).parse_next(input)?;
        Ok(Frame { file, line, column })
    };
    let (_, at) = (any, frame).parse_next(input)?;
    let inlined_at = if given(",", input)? {
        (expect("function_name"), name, offset, expect(","), expect("inlined_at")).parse_next(input)?;
        Some(frame(input)?)
    } else {
        None
    };
    Ok(Statement::Location { frame: at, inlined_at })
}

fn instruction(input: &mut Input<'_>) -> Parsed<Instruction> {
    let line = line(input);
    let guard = opt(preceded(exactly("@"), guard)).parse_next(input)?;
    let name = name(input)?.to_owned();
    let modifiers = repeat(0.., of(Kind::Dotted).map(|word| word[1..].to_owned())).parse_next(input)?;
    Ok(Instruction { line, guard, name, modifiers, operands: operands(input)? })
}

fn guard(input: &mut Input<'_>) -> Parsed<Guard> {
    let negated = given("!", input)?;
    Ok(Guard { negated, register: name(input)?.to_owned() })
}

/// Parses `.branchtargets a, b;` and its like: the targets of a branch or a call through a register.
fn targets(input: &mut Input<'_>) -> Parsed<Instruction> {
    let (line, name) = (line(input), any.parse_next(input)?.text.to_owned());
    let operands = match name.as_str() {
        ".callprototype" => {
            let (results, _, params, ..) =
                (parameters, expect("_"), parameters, hints, expect(";")).parse_next(input)?;
            let sizes = |variables: &[Variable]| variables.iter().map(bytes).map(Operand::Integer).collect();
            vec![Operand::Arguments(sizes(&results)), Operand::Arguments(sizes(&params))]
        }
        _ => operands(input)?,
    };
    Ok(Instruction { line, guard: None, name, modifiers: Vec::new(), operands })
}

/// Parses the operands and the `;`.
fn operands(input: &mut Input<'_>) -> Parsed<Vec<Operand>> {
    if given(";", input)? {
        return Ok(Vec::new());
    }
    let end = expect(";").context("`,` or `;`");
    terminated(list(operand.context("an operand or `;`")), end).parse_next(input)
}

fn operand(input: &mut Input<'_>) -> Parsed<Operand> {
    match input[..] {
        [Token { kind: Kind::Word, .. }, ..] => named(input),
        [Token { text: "[", .. }, ..] => delimited(any, address, expect("]")).parse_next(input),
        [Token { text: "{", .. }, ..] => vector(input),
        [Token { text: "(", .. }, ..] => arguments(input),
        [Token { text: "!", .. }, ..] => preceded(any, register).map(Operand::Not).parse_next(input),
        _ => constant(input),
    }
}

/// Parses `%rd1+16`, `16`, or `texture, {%r1, %r2}`.
fn address(input: &mut Input<'_>) -> Parsed<Operand> {
    let base = opt(of(Kind::Word)).parse_next(input)?.map(str::to_owned);
    let offset = match base {
        Some(_) => offset(input)?,
        None => integer.context("a name or an integer").parse_next(input)?.cast_signed(),
    };
    if let (Some(base), true) = (&base, given(",", input)?) {
        let mut parts = vec![Operand::Name(base.clone())];
        // A texture may have a sampler.
        let sampler = opt(terminated(register, expect(","))).parse_next(input)?;
        parts.extend(sampler.map(Operand::Name));
        let index = preceded(peek(exactly("{")), vector);
        parts.push(cut_err(index).context("an index such as `{%r1, %r2}`").parse_next(input)?);
        return Ok(Operand::Element(parts));
    }
    Ok(Operand::Address { base, offset })
}

fn vector(input: &mut Input<'_>) -> Parsed<Operand> {
    let end = expect("}").context("`,` or `}`");
    delimited(any, elements, end).map(Operand::Vector).parse_next(input)
}

fn arguments(input: &mut Input<'_>) -> Parsed<Operand> {
    let none = peek(exactly(")")).value(Vec::new());
    let end = expect(")").context("`,` or `)`");
    delimited(any, alt((none, elements)), end).map(Operand::Arguments).parse_next(input)
}

/// Parses the elements of a vector or a list of arguments.
fn elements(input: &mut Input<'_>) -> Parsed<Vec<Operand>> {
    let element = alt((register.map(Operand::Name), constant));
    list(element.context("a name or a number")).parse_next(input)
}

/// Parses a name, a sum or a pair.
fn named(input: &mut Input<'_>) -> Parsed<Operand> {
    let name = register(input)?;
    match input.first().map(|token| token.text) {
        Some("+" | "-") => Ok(Operand::Sum(name, offset(input)?)),
        Some("|") => Ok(Operand::Pair(name, preceded(any, register).parse_next(input)?)),
        _ => Ok(Operand::Name(name)),
    }
}

/// Parses a name, including the part after the dot of `%tid.x`.
fn register(input: &mut Input<'_>) -> Parsed<String> {
    let member = opt(of(Kind::Dotted));
    (of(Kind::Word), member)
        .map(|(name, member)| [name, member.unwrap_or_default()].concat())
        .context("a name")
        .parse_next(input)
}

fn constant(input: &mut Input<'_>) -> Parsed<Operand> {
    Ok(match number(input)? {
        Number::Integer(bits) => Operand::Integer(bits),
        Number::F32(bits) => Operand::F32(bits),
        Number::F64(bits) => Operand::F64(bits),
    })
}
