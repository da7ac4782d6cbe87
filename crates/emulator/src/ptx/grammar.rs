//! The parsers and errors that all parts of the grammar share.

use super::ParseError;
use super::number::Number;
use super::token::{Kind, Token};
use winnow::combinator::{cut_err, opt};
use winnow::error::{AddContext, ErrMode, FromExternalError, ParserError};
use winnow::prelude::*;
use winnow::stream::{Stream, TokenSlice};
use winnow::token::any;

pub(super) type Input<'t> = TokenSlice<'t, Token<'t>>;
pub(super) type Parsed<T> = ModalResult<T, Failure>;

/// The most levels of nested scopes or array dimensions. More could exhaust the stack.
pub(super) const DEPTH: usize = 64;

/// Where and why a parser stopped.
#[derive(Debug)]
pub(super) struct Failure {
    /// The number of tokens not yet read.
    left: usize,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    /// Expected this word or sign.
    Exactly(&'static str),
    /// Expected one of several, described in words.
    OneOf(&'static str),
    /// Found a token of the right form and a wrong value: the whole message.
    Wrong(String),
}

impl ParserError<Input<'_>> for Failure {
    type Inner = Self;

    fn from_input(input: &Input<'_>) -> Self {
        Failure { left: input.eof_offset(), cause: Cause::OneOf("something else") }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

/// Names what was expected, unless the parser has already read a part of it.
impl<'t> AddContext<Input<'t>, &'static str> for Failure {
    fn add_context(
        self,
        input: &Input<'t>,
        start: &<Input<'t> as Stream>::Checkpoint,
        what: &'static str,
    ) -> Self {
        let mut before = *input;
        before.reset(start);
        match self.cause {
            Cause::Exactly(_) | Cause::OneOf(_) if self.left == before.eof_offset() => {
                Failure { cause: Cause::OneOf(what), ..self }
            }
            _ => self,
        }
    }
}

impl FromExternalError<Input<'_>, String> for Failure {
    fn from_external_error(input: &Input<'_>, why: String) -> Self {
        Failure { left: input.eof_offset(), cause: Cause::Wrong(why) }
    }
}

/// Turns a failure into the error for a user.
pub(super) fn explain(Failure { left, cause }: Failure, tokens: &[Token<'_>]) -> ParseError {
    let found = tokens.len().checked_sub(left).and_then(|index| tokens.get(index));
    let line = found.or(tokens.last()).map_or(1, |token| token.line);
    let found = found.map_or("the end of the text".into(), |token| format!("`{:.40}`", token.text));
    let message = match cause {
        Cause::Exactly(text) => format!("expected `{text}`, found {found}"),
        Cause::OneOf(what) => format!("expected {what}, found {found}"),
        Cause::Wrong(why) => why,
    };
    ParseError { line, message }
}

/// Fails at the next token; no alternative is tried.
pub(super) fn wrong<T>(input: &Input<'_>, why: String) -> Parsed<T> {
    Err(ErrMode::Cut(Failure::from_external_error(input, why)))
}

/// Parses this word or sign.
pub(super) fn exactly<'t>(
    text: &'static str,
) -> impl Parser<Input<'t>, &'t Token<'t>, ErrMode<Failure>> + Copy {
    move |input: &mut Input<'t>| match input.peek_token() {
        Some(token) if token.text == text => any.parse_next(input),
        _ => Err(ErrMode::Backtrack(Failure { left: input.eof_offset(), cause: Cause::Exactly(text) })),
    }
}

/// Parses this word or sign; no alternative is tried.
pub(super) fn expect<'t>(text: &'static str) -> impl Parser<Input<'t>, &'t Token<'t>, ErrMode<Failure>> {
    cut_err(exactly(text))
}

/// Reads this word or sign if it comes next; whether it did.
pub(super) fn given(text: &'static str, input: &mut Input<'_>) -> Parsed<bool> {
    Ok(opt(exactly(text)).parse_next(input)?.is_some())
}

/// Parses any token of a kind.
pub(super) fn of<'t>(kind: Kind) -> impl Parser<Input<'t>, &'t str, ErrMode<Failure>> {
    any.verify_map(move |token: &'t Token<'t>| (token.kind == kind).then_some(token.text))
}

pub(super) fn name<'t>(input: &mut Input<'t>) -> Parsed<&'t str> {
    cut_err(of(Kind::Word)).context("a name").parse_next(input)
}

/// Parses a constant with its sign.
pub(super) fn number(input: &mut Input<'_>) -> Parsed<Number> {
    let negative = given("-", input)?;
    let number = of(Kind::Number).try_map(|text| Number::parse(text, negative));
    cut_err(number).context("a number").parse_next(input)
}

/// Parses an integer with its sign, in two's complement.
pub(super) fn integer(input: &mut Input<'_>) -> Parsed<u64> {
    let integer = number.try_map(|number| match number {
        Number::Integer(bits) => Ok(bits),
        _ => Err("expected an integer, found a float".to_owned()),
    });
    cut_err(integer).context("an integer").parse_next(input)
}

/// Parses an integer without a sign.
pub(super) fn unsigned(input: &mut Input<'_>) -> Parsed<u64> {
    let unsigned = of(Kind::Number).try_map(|text| match Number::parse(text, false)? {
        Number::Integer(bits) => Ok(bits),
        _ => Err(format!("expected an integer, found `{text:.40}`")),
    });
    cut_err(unsigned).context("an integer").parse_next(input)
}

/// Parses an unsigned 32-bit integer: a count, an index, a line.
pub(super) fn count(input: &mut Input<'_>) -> Parsed<u32> {
    let count =
        unsigned.try_map(|bits| u32::try_from(bits).map_err(|_| format!("{bits} does not fit 32 bits")));
    cut_err(count).parse_next(input)
}

/// Parses `+16`, `-16`, `+-16`, or nothing, which is 0.
pub(super) fn offset(input: &mut Input<'_>) -> Parsed<i64> {
    let plus = given("+", input)?;
    let minus = input.first().is_some_and(|token| token.text == "-");
    if plus || minus { Ok(integer(input)?.cast_signed()) } else { Ok(0) }
}

/// Returns the line of the next token.
pub(super) fn line(input: &Input<'_>) -> u32 {
    input.first().map_or(0, |token| token.line)
}

/// Parses one or more items separated by commas; no alternative is tried.
pub(super) fn list<'t, T>(
    item: impl Parser<Input<'t>, T, ErrMode<Failure>>,
) -> impl Parser<Input<'t>, Vec<T>, ErrMode<Failure>> {
    let mut item = cut_err(item);
    move |input: &mut Input<'t>| {
        let mut items = vec![item.parse_next(input)?];
        while given(",", input)? {
            items.push(item.parse_next(input)?);
        }
        Ok(items)
    }
}
