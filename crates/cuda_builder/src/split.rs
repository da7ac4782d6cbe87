//! Splits a PTX module into one module per kernel.

use crate::copies::widen;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
};

/// A statement at the top level of a module: a directive, a variable, or a function.
struct Statement<'a> {
    text: &'a str,
    /// The name that it declares or defines; `None` for other directives.
    name: Option<&'a str>,
    /// The statements whose names it mentions.
    mentions: Vec<usize>,
}

impl Statement<'_> {
    fn is_kernel(&self) -> bool {
        words(self.text).take_while(|word| word.starts_with('.')).any(|word| word == ".entry")
    }
}

/// Returns a module for each kernel in `ptx`, by the kernel's name.
///
/// A module has the directives, the kernel and everything that it reaches, in the order of `ptx`. If two
/// kernels use a `static`, each module has its own copy.
///
/// Removes comments, blank lines and indentation, and renumbers what LLVM numbers across the whole module, so
/// that a kernel's module does not depend on the other kernels. Numbers a function's registers and labels in the order in
/// which they occur, so that similar kernels have the same numbers; ptxas makes the same code of them.
pub fn split(ptx: &str) -> BTreeMap<String, String> {
    let ptx = without_comments(ptx);
    let statements = parse(&ptx);
    let kernels = statements.iter().enumerate().filter(|(_, statement)| statement.is_kernel());
    kernels.filter_map(|(i, kernel)| Some((kernel.name?.to_owned(), module_of(i, &statements)))).collect()
}

/// The module of the kernel defined by the statement of this index.
fn module_of(kernel: usize, statements: &[Statement]) -> String {
    let mut needed: Vec<bool> = statements.iter().map(|statement| statement.name.is_none()).collect();
    let mut open = vec![kernel];
    while let Some(i) = open.pop() {
        if !mem::replace(&mut needed[i], true) {
            open.extend(&statements[i].mentions);
        }
    }
    let mut module = String::new();
    let mut numbers = Numbers::new();
    for (statement, _) in statements.iter().zip(needed).filter(|(_, needed)| *needed) {
        let mut text = String::new();
        renumber(statement.text, statements[kernel].name, &mut numbers, &mut text);
        module += &widen(&text);
        module.push('\n');
    }
    module
}

/// Removes comments, empty lines and superfluous blanks.
fn without_comments(ptx: &str) -> String {
    let mut code = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(at) = rest.find(['"', '/']) {
        let (before, after) = rest.split_at(at);
        code.push_str(before);
        let (is_code, len) = match after.as_bytes() {
            [b'/', b'/', ..] => (false, after.find('\n')),
            [b'/', b'*', ..] => (false, after.find("*/").map(|end| end + 2)),
            [b'"', ..] => (true, after[1..].find('"').map(|end| end + 2)),
            _ => (true, Some(1)),
        };
        let (piece, after) = after.split_at(len.unwrap_or(after.len()));
        if is_code {
            code.push_str(piece);
        }
        rest = after;
    }
    code.push_str(rest);
    let lines = code.lines().map(|line| line.trim().replace(" \t", " "));
    lines.filter(|line| !line.is_empty()).flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// Parses a module without comments into its statements.
fn parse(ptx: &str) -> Vec<Statement<'_>> {
    let mut statements = Vec::new();
    let mut rest = ptx.trim_start();
    while !rest.is_empty() {
        let (text, after) = rest.split_at(end_of_statement(rest));
        statements.push(Statement { text, name: name_of(text), mentions: Vec::new() });
        rest = after.trim_start();
    }
    // A function has a statement for each prototype and one for its definition.
    let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, statement) in statements.iter().enumerate() {
        if let Some(name) = statement.name {
            named.entry(name).or_default().push(i);
        }
    }
    for statement in &mut statements {
        statement.mentions =
            words(statement.text).filter_map(|word| named.get(word)).flatten().copied().collect();
    }
    statements
}

/// Whether the statement is a single line, such as `.target sm_70`. All others end in `;` or `}`.
fn is_line(statement: &str) -> bool {
    [".version", ".target", ".address_size", ".file"].iter().any(|directive| statement.starts_with(directive))
}

/// The length of the first statement in `text`.
fn end_of_statement(text: &str) -> usize {
    if is_line(text) {
        return text.find('\n').unwrap_or(text.len());
    }
    let (mut depth, mut initialised) = (0, false);
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'=' if depth == 0 => initialised = true,
            _ => {}
        }
        let is_end = byte == b';' || (byte == b'}' && !initialised);
        if depth == 0 && is_end {
            return i + 1;
        }
    }
    text.len()
}

/// The name that a statement declares: its first word that is not a directive, a number or in parentheses. (A
/// function's result precedes its name, in parentheses.)
fn name_of(statement: &str) -> Option<&str> {
    if is_line(statement) {
        return None;
    }
    let head = &statement[..statement.find(['{', '=']).unwrap_or(statement.len())];
    let mut depth = 0;
    head.split_inclusive(['(', ')']).find_map(|piece| {
        let is_outside = depth == 0;
        depth += if piece.ends_with('(') { 1 } else { -1 };
        words(piece).find(|word| {
            is_outside && !word.starts_with(|first: char| first == '.' || first.is_ascii_digit())
        })
    })
}

pub(crate) fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%.".contains(c)
}

/// The names, registers, directives, instructions and numbers in a text. An instruction with its type is one
/// word, so that `add.s32` is not taken for a function `add`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_of_word(c)).filter(|word| !word.is_empty())
}

/// New numbers, by prefix and old number.
type Numbers<'a> = HashMap<&'a str, HashMap<&'a str, usize>>;

/// The new number of an old one: how many others with this prefix came before it.
fn number_of<'a>(numbers: &mut Numbers<'a>, prefix: &'a str, number: &'a str) -> usize {
    let numbers = numbers.entry(prefix).or_default();
    let next = numbers.len();
    *numbers.entry(number).or_insert(next)
}

/// Appends a statement to the module and renumbers what LLVM numbers: `of_module` has what it numbers across the crate.
/// The kernel keeps its name.
fn renumber<'a>(text: &'a str, kernel: Option<&str>, of_module: &mut Numbers<'a>, module: &mut String) {
    let registers = registers_of(text);
    let mut of_function = Numbers::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_of_word) {
        let (before, after) = rest.split_at(start);
        let (word, after) = after.split_at(after.find(|c| !is_of_word(c)).unwrap_or(after.len()));
        module.push_str(before);
        rest = after;
        if kernel == Some(word) {
            module.push_str(word);
        } else if let Some((prefix, number, suffix)) = numbered(word) {
            module.push_str(&format!("{prefix}{}", number_of(of_module, prefix, number)));
            match suffix.strip_prefix('_').filter(|label| prefix == LABEL && is_number(label)) {
                Some(label) => module.push_str(&format!("_{}", number_of(&mut of_function, LABEL, label))),
                None => module.push_str(suffix),
            }
        } else {
            // A register may be a vector, whose elements are `%r1.x` and so on.
            let (register, element) = word.split_at(word.find('.').unwrap_or(word.len()));
            let name = register.trim_end_matches(|c: char| c.is_ascii_digit());
            let number = &register[name.len()..];
            if registers.contains(name) && is_number(number) {
                let number = number_of(&mut of_function, name, number);
                module.push_str(&format!("{name}{number}{element}"));
            } else {
                module.push_str(word);
            }
        }
    }
    module.push_str(rest);
}

fn is_number(text: &str) -> bool {
    text == "0"
        || !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The names of a function's numbered registers, such as `%r` if it declares `.reg .b32 %r<8>`, that are declared once in
/// it. (Inline assembly may declare others of the same name in a block of its own.)
fn registers_of(text: &str) -> HashSet<&str> {
    let mut declared: HashMap<&str, usize> = HashMap::new();
    for declaration in text.split(".reg").skip(1) {
        let declaration = &declaration[..declaration.find(';').unwrap_or(0)];
        for name in words(declaration).filter(|word| word.starts_with('%')) {
            *declared.entry(name).or_default() += 1;
        }
    }
    declared.into_iter().filter_map(|(name, count)| (count == 1).then_some(name)).collect()
}

/// What precedes the numbers of a function and of one of its labels: `$L__BB2_3`.
const LABEL: &str = "$L__BB";

/// Splits a word that LLVM numbers into prefix, number and suffix. The number of a constant contains a hash
/// of the crate.
fn numbered(word: &str) -> Option<(&'static str, &str, &str)> {
    const COUNTERS: [&str; 6] =
        [LABEL, "$L__tmp", "$L__func_begin", "$L__func_end", "__local_depot", "prototype_"];
    const CONSTANT: &str = "anon_$_";
    if let Some(number) = word.strip_prefix(CONSTANT) {
        return Some((CONSTANT, number, ""));
    }
    let (prefix, rest) = COUNTERS.iter().find_map(|prefix| Some((*prefix, word.strip_prefix(prefix)?)))?;
    let (number, suffix) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    (!number.is_empty()).then_some((prefix, number, suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = ".version 6.0\n.target sm_70, debug\n.address_size 64\n";

    /// The modules of `HEADER` and `items`, without the header.
    fn split_items(items: &str) -> Vec<(String, String)> {
        let without_header = |(name, module): (String, String)| {
            (name, module.strip_prefix(HEADER).expect("a module begins with the header").to_owned())
        };
        split(&format!("//\n// Generated by LLVM\n//\n\n{HEADER}\n{items}"))
            .into_iter()
            .map(without_header)
            .collect()
    }

    #[test]
    fn a_module_has_what_its_kernel_reaches_and_nothing_else() {
        let items = "
.func (.param .b32 func_retval0) outer(.param .b32 outer_param_0)
;
.global .align 4 .b8 table[8] = {3, 0, 0, 0, 1};
.global .align 8 .u64 pointers[1] = {inner};
.visible .global .align 4 .u32 unused;
.extern .shared .align 16 .b8 dynamic[];
.func inner()
{
	mov.b64 %rd1, table;
	ret;
}
.func (.param .b32 func_retval0) outer(.param .b32 outer_param_0)
{
	{
	call.uni inner, ();
	}
	ret;
}
.visible .entry far(.param .u32 far_param_0) .maxntid 256, 1, 1
{
	call.uni (retval0), outer, (param0);
	ret;
}
.visible .entry near()
{
	mov.b32 %r1, dynamic;
	ld.global.b64 %rd1, [pointers+8];
	ret;
}
.visible .entry alone()
{
	ret;
}
";
        let [(alone, of_alone), (far, of_far), (near, of_near)] = &split_items(items)[..] else {
            panic!("three kernels")
        };
        assert_eq!((&far[..], &near[..], &alone[..]), ("far", "near", "alone"));
        let has = |module: &str| {
            ["outer(", "table[", "pointers[", "unused", "dynamic[", "inner()", ".entry far", ".entry near"]
                .map(|item| module.matches(item).count())
        };
        assert_eq!(has(of_far), [2, 1, 0, 0, 0, 1, 1, 0]);
        assert_eq!(has(of_near), [0, 1, 1, 0, 1, 1, 0, 1]);
        assert_eq!(of_alone, ".visible .entry alone()\n{\nret;\n}\n");
    }

    #[test]
    fn a_name_that_begins_with_another_is_another() {
        let items = "
.func add() { ret; }
.func add_2() { ret; }
.visible .entry sum(.param .u64 sum_param_0) { call.uni add_2, (); add.s32 %r1, %r2, %r3; ret; }
.visible .entry sum_2(.param .u64 sum_2_param_0) { call.uni add, (); ret; }
";
        let [(_, sum), (_, sum_2)] = &split_items(items)[..] else { panic!("two kernels") };
        assert!(sum.starts_with(".func add_2() { ret; }\n.visible .entry sum("), "{sum}");
        assert!(sum_2.starts_with(".func add() { ret; }\n.visible .entry sum_2("), "{sum_2}");
    }

    #[test]
    fn a_module_does_not_depend_on_the_other_kernels() {
        let kernel = |function: u32, call: u32, constant: &str| {
            format!(
                ".global .align 4 .b8 anon_$_{constant}[4] = {{1, 2, 3}};
.visible .entry prototype_1()
{{
.local .align 4 .b8 __local_depot{function}[8];
@%p1 bra $L__BB{function}_12;
mov.b64 %rd1, anon_$_{constant};
prototype_{call} : .callprototype ();
call %rd1, (), prototype_{call};
$L__BB{function}_12:
ret;
}}
"
            )
        };
        let of_many =
            split_items(&(".visible .entry other() { ret; }\n".to_owned() + &kernel(23, 7, "c0ffee_$_14")));
        assert_eq!(of_many[1].1, kernel(0, 0, "0").replace("BB0_12", "BB0_0"));
        assert_eq!(of_many[1], split_items(&kernel(1, 2, "dec0de_$_1"))[0]);
    }

    #[test]
    fn what_was_split_stays_as_it_is() {
        let kernel = |name: &str, label: usize| {
            format!(
                ".visible .entry {name}() {{ @%p1 bra $L__BB{label}_1; call.uni helper, (); $L__BB{label}_1: ret; }}\n"
            )
        };
        let helper = ".func helper() { ret; }\n";
        let modules = split(&[HEADER, helper, &kernel("a", 4), &kernel("b", 7)].concat());
        let expected = |name| [HEADER, helper, &kernel(name, 0)].concat().replace("BB0_1", "BB0_0");
        assert_eq!((&modules["a"], &modules["b"]), (&expected("a"), &expected("b")));
        assert_eq!(split(&modules["b"])["b"], modules["b"]);
    }

    #[test]
    fn registers_and_labels_are_numbered_as_they_occur() {
        let items = "
.func helper() {
.reg .b32 %r<9>;
mov.b32 %r8, %r7;
ret;
}
.visible .entry k() {
.reg .pred %p<3>;
.reg .b32 %r<40>;
.reg .v4 .f32 %v<2>;
.reg .b32 %SP;
@!%p2 bra $L__BB1_30;
add.s32 %r12, %r3, %r12;
mov.b32 %SP, %envreg3;
mov.u32 %r1, %r001;
mov.b32 %r5, %v1.x;
$L__BB1_30: bra $L__BB1_4;
call.uni helper, ();
$L__BB1_4: { .reg .b32 %x<9>; .reg .b32 %y<9>; mov.b32 %x8, %y8; }
{ .reg .b32 %y<4>; mov.b32 %y3, %clock64; }
}
";
        let expected = ".func helper() {
.reg .b32 %r<9>;
mov.b32 %r0, %r1;
ret;
}
.visible .entry k() {
.reg .pred %p<3>;
.reg .b32 %r<40>;
.reg .v4 .f32 %v<2>;
.reg .b32 %SP;
@!%p0 bra $L__BB0_0;
add.s32 %r0, %r1, %r0;
mov.b32 %SP, %envreg3;
mov.u32 %r2, %r001;
mov.b32 %r3, %v0.x;
$L__BB0_0: bra $L__BB0_1;
call.uni helper, ();
$L__BB0_1: { .reg .b32 %x<9>; .reg .b32 %y<9>; mov.b32 %x0, %y8; }
{ .reg .b32 %y<4>; mov.b32 %y3, %clock64; }
}
";
        assert_eq!(split_items(items), [("k".to_owned(), expected.to_owned())]);
    }

    #[test]
    fn comments_go_and_strings_stay() {
        let items = "	// .globl	k
.visible .entry k() // the kernel; {
{
	.pragma \"no//unroll\";
	// begin inline asm
	/* two
	lines } */ add.f32 %f1, %f2, 0f3F800000; // end
	// end inline asm

	ret;

}
	.file	1 \"src/*.rs\"
";
        let expected = ".visible .entry k()
{
.pragma \"no//unroll\";
add.f32 %f1, %f2, 0f3F800000;
ret;
}
.file	1 \"src/*.rs\"
";
        assert_eq!(split_items(items), [("k".to_owned(), expected.to_owned())]);
    }

    #[test]
    fn a_module_that_ends_early_is_no_reason_to_panic() {
        for end in
            ["", ".visible .entry k() { \"", ".visible .entry k() { /*", ".func (.param", "//", "\"", "}"]
        {
            assert!(split(&format!("{HEADER}{end}")).len() <= 1);
        }
    }
}
