//! Splits PTX into words, numbers, strings and signs, each with its line.

use super::ParseError;
use winnow::ascii::{digit0, digit1};
use winnow::combinator::{alt, not, opt, repeat};
use winnow::prelude::*;
use winnow::token::{any, none_of, one_of, take_till, take_until, take_while};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Token<'t> {
    pub kind: Kind,
    /// As written, with the dot of a dotted word and the quotes of a string.
    pub text: &'t str,
    pub line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// `mov`, `%r1`, `$L__BB0_1`, `_`.
    Word,
    /// `.global`, `.shared::cta`.
    Dotted,
    /// `16`, `0x10U`, `0f3F800000`, `6.0`.
    Number,
    /// `"file.rs"`.
    Text,
    Sign,
}

/// Splits a text into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let mut rest = text;
    let mut line = 1;
    let mut tokens = Vec::new();
    loop {
        line = after(line, blank(&mut rest).unwrap_or_default());
        if rest.is_empty() {
            return Ok(tokens);
        }
        let start = rest;
        let (kind, text) = token(&mut rest).map_err(|_| ParseError { line, message: unreadable(start) })?;
        tokens.push(Token { kind, text, line });
        line = after(line, text);
    }
}

type Lexed<T> = winnow::Result<T, winnow::error::EmptyError>;

/// Returns the line on which a text ends that starts on `line`.
fn after(line: u32, text: &str) -> u32 {
    let breaks = text.bytes().filter(|&byte| byte == b'\n').count();
    line.saturating_add(u32::try_from(breaks).unwrap_or(u32::MAX))
}

fn unreadable(rest: &str) -> String {
    match rest.chars().next() {
        Some('"') => "a string that does not end".into(),
        Some('/') if rest.starts_with("/*") => "a comment that does not end".into(),
        first => format!("expected a word, a number or a sign, found {:?}", first.unwrap_or_default()),
    }
}

/// Parses white space and comments.
fn blank<'t>(rest: &mut &'t str) -> Lexed<&'t str> {
    let space = take_while(1.., |c: char| c.is_ascii_whitespace() || c == '\x0b').void();
    let line = ("//", take_till(0.., '\n')).void();
    let comment = ("/*", take_until(0.., "*/"), "*/").void();
    repeat::<_, _, (), _, _>(0.., alt((space, line, comment))).take().parse_next(rest)
}

fn token<'t>(rest: &mut &'t str) -> Lexed<(Kind, &'t str)> {
    alt((
        word.map(|text| (Kind::Word, text)),
        sign.map(|text| (Kind::Sign, text)),
        number.map(|text| (Kind::Number, text)),
        dotted.map(|text| (Kind::Dotted, text)),
        string.map(|text| (Kind::Text, text)),
    ))
    .parse_next(rest)
}

fn within_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

fn word<'t>(rest: &mut &'t str) -> Lexed<&'t str> {
    alt((
        (one_of(('a'..='z', 'A'..='Z', '_')), take_while(0.., within_name)).take(),
        (one_of(['%', '$']), take_while(1.., within_name)).take(),
    ))
    .parse_next(rest)
}

fn sign<'t>(rest: &mut &'t str) -> Lexed<&'t str> {
    one_of(['{', '}', '(', ')', '[', ']', '<', '>', ',', ';', ':', '+', '-', '!', '|', '@', '='])
        .take()
        .parse_next(rest)
}

fn number<'t>(rest: &mut &'t str) -> Lexed<&'t str> {
    let decimal = (digit1, alt((('.', digit0, opt(exponent)).void(), exponent.void()))).take();
    // A letter after the digits makes it a modifier such as `.2d`.
    let fraction = ('.', digit1, opt(exponent), not(one_of(within_name))).take();
    // Includes the letters of a prefix such as `0x`, of hexadecimal digits and of the suffix `U`.
    let other = (one_of('0'..='9'), take_while(0.., within_name)).take();
    alt((decimal, other, fraction)).parse_next(rest)
}

fn exponent<'t>(rest: &mut &'t str) -> Lexed<&'t str> {
    (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1).take().parse_next(rest)
}

fn dotted<'t>(rest: &mut &'t str) -> Lexed<&'t str> {
    let part = || take_while(1.., within_name);
    ('.', part(), repeat::<_, _, (), _, _>(0.., ("::", part()))).take().parse_next(rest)
}

fn string<'t>(rest: &mut &'t str) -> Lexed<&'t str> {
    let piece = alt((('\\', any).void(), none_of(['"', '\\']).void()));
    ('"', repeat::<_, _, (), _, _>(0.., piece), '"').take().parse_next(rest)
}
