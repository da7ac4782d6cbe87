//! Directives at module scope, and function heads (PTX ISA, "Directives").

use super::ast::{Function, Module, Statement, Variable};
use super::grammar::{Input, Parsed, count, exactly, expect, given, line, list, name, of, unsigned};
use super::instruction::block;
use super::token::{Kind, Token};
use super::variable::{attribute, declaration, parameters};
use winnow::combinator::{alt, cut_err, fail, opt, preceded, repeat};
use winnow::prelude::*;
use winnow::token::{any, take_till};

pub(super) fn module(input: &mut Input<'_>) -> Parsed<Module> {
    let version = preceded(expect(".version"), cut_err(version)).parse_next(input)?;
    let target = list(name.map(str::to_owned)).context("a target");
    let target = preceded(expect(".target"), target).parse_next(input)?;
    let mut module =
        Module { version, target, variables: Vec::new(), functions: Vec::new(), files: Vec::new() };
    while !input.is_empty() {
        item(&mut module, input)?;
    }
    Ok(module)
}

/// Parses `6.0`.
fn version(input: &mut Input<'_>) -> Parsed<(u32, u32)> {
    of(Kind::Number)
        .verify_map(|text| {
            let (major, minor) = text.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        })
        .context("a version such as `6.0`")
        .parse_next(input)
}

fn item(module: &mut Module, input: &mut Input<'_>) -> Parsed<()> {
    match input[..] {
        [Token { text: ".address_size", .. }, ..] => address_size(input)?,
        [Token { text: ".file", .. }, ..] => module.files.push(file(input)?),
        [Token { text: ".section", .. }, ..] => section(input)?,
        [Token { text: ".pragma", .. }, ..] => pragma(input)?,
        // A label that debug data refers to.
        [Token { kind: Kind::Word, .. }, Token { text: ":", .. }, ..] => {
            (any, any).void().parse_next(input)?
        }
        _ => {
            let external = linkage(input)?;
            match input.first().map(|token| token.text) {
                Some(".entry" | ".func") => module.functions.push(function(input)?),
                _ => module.variables.append(&mut variables(external, input)?),
            }
        }
    }
    Ok(())
}

fn address_size(input: &mut Input<'_>) -> Parsed<()> {
    let wide = |bits| match bits {
        64 => Ok(()),
        _ => Err(format!("{bits}-bit addresses; only 64-bit addresses are supported")),
    };
    preceded(any, cut_err(count.try_map(wide))).parse_next(input)
}

/// Parses `.file 1 "src/lib.rs", 1700000000, 5120`; the last two are the file's time and size.
fn file(input: &mut Input<'_>) -> Parsed<(u32, String)> {
    let path = cut_err(of(Kind::Text)).context("a path in quotes").map(unquote);
    let (_, index, path) = (any, count, path).parse_next(input)?;
    if given(",", input)? {
        list(unsigned).parse_next(input)?;
    }
    Ok((index, path))
}

/// Returns the string between the quotes, with its escapes as written.
fn unquote(text: &str) -> String {
    text[1..text.len() - 1].to_owned()
}

/// Parses `.section .debug_abbrev { … }`.
fn section(input: &mut Input<'_>) -> Parsed<()> {
    let content = take_till(0.., |token: &Token<'_>| token.text == "}");
    let name = cut_err(of(Kind::Dotted)).context("the name of a section");
    (any, name, expect("{"), content, expect("}")).void().parse_next(input)
}

/// Parses `.pragma "nounroll";`.
pub(super) fn pragma(input: &mut Input<'_>) -> Parsed<()> {
    (any, list(of(Kind::Text).context("a string")), expect(";")).void().parse_next(input)
}

/// Parses the linkage; whether the symbol is external. Other linkage makes no difference within one module.
fn linkage(input: &mut Input<'_>) -> Parsed<bool> {
    let word = alt((
        exactly(".extern").value(true),
        exactly(".visible").value(false),
        exactly(".weak").value(false),
        exactly(".common").value(false),
    ));
    repeat(0.., word).fold(|| false, |external, word| external | word).parse_next(input)
}

fn variables(external: bool, input: &mut Input<'_>) -> Parsed<Vec<Variable>> {
    let what = "a function, a variable or another directive of a module";
    match input.first().map(|token| token.text) {
        Some(".global" | ".const" | ".shared") => declaration(external, input),
        _ => cut_err(fail.context(what)).parse_next(input),
    }
}

fn function(input: &mut Input<'_>) -> Parsed<Function> {
    let line = line(input);
    let entry = any.parse_next(input)?.text == ".entry";
    attribute(input)?;
    let returns = if entry { Vec::new() } else { parameters(input)? };
    let name = name.context("the name of a function").parse_next(input)?.to_owned();
    let params = parameters(input)?;
    let (max_threads, all_threads) = hints(input)?;
    let body = match given(";", input)? {
        true => None,
        false => Some(body(input)?),
    };
    Ok(Function { name, entry, returns, params, body, max_threads, all_threads, line })
}

fn body(input: &mut Input<'_>) -> Parsed<Vec<Statement>> {
    let block = |input: &mut Input<'_>| block(0, input);
    block.context("`{` or `;`").parse_next(input)
}

/// Parses the directives between a function's parameters and its body, such as `.maxntid 256` or `.noreturn`.
///
/// Returns the extents of `.maxntid` or `.reqntid`, and whether a `.reqntid` was among the directives.
pub(super) fn hints(input: &mut Input<'_>) -> Parsed<(Option<[u32; 3]>, bool)> {
    let (mut threads, mut all) = (None, false);
    loop {
        match input.first().map_or("", |token| token.text) {
            word @ (".maxntid" | ".reqntid") => {
                all |= word == ".reqntid";
                threads = Some(extents(input)?);
            }
            ".minnctapersm"
            | ".maxnctapersm"
            | ".maxnreg"
            | ".reqnctapercluster"
            | ".maxclusterrank"
            | ".abi_preserve"
            | ".abi_preserve_control" => {
                (any, list(count)).parse_next(input)?;
            }
            ".noreturn" | ".explicitcluster" | ".blocksareclusters" => {
                any.parse_next(input)?;
            }
            ".pragma" => pragma(input)?,
            _ => return Ok((threads, all)),
        }
    }
}

/// Parses `.maxntid 16, 16`; an omitted extent is 1.
fn extents(input: &mut Input<'_>) -> Parsed<[u32; 3]> {
    let more = || opt(preceded(exactly(","), count)).map(|extent| extent.unwrap_or(1));
    preceded(any, (count, more(), more())).map(<[u32; 3]>::from).parse_next(input)
}
