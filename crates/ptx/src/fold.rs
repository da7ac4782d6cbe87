//! Leaves out the code of a module that constants make unreachable, and instructions whose values nothing uses.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Returns a module without the code that its constants make unreachable, without instructions whose values nothing uses, and without
/// functions that nothing calls. A jump over another jump becomes one.
///
/// The driver leaves such code out, too, but only after it has read and analysed it. What this function does not know, it
/// leaves as it is: an instruction is only left out if its name is in a list of those that do nothing but compute their first
/// operand, and a function with a table of jumps stays whole.
///
/// ```
/// let module = "\
/// .entry whole(.param .u32 whole_param_0)
/// {
/// mov.b32 %r0, 1;
/// setp.eq.b32 %p0, %r0, 2;
/// @%p0 bra $L__BB0_0;
/// st.global.b32 [%rd0], %r0;
/// ret;
/// $L__BB0_0:
/// trap;
/// }
/// ";
/// let folded = gpu_reduce_ptx::fold_constants(module);
/// assert!(folded.contains("st.global") && !folded.contains("trap") && !folded.contains("setp"));
/// ```
pub fn fold_constants(module: &str) -> String {
    // Each piece is a function after what precedes it.
    let mut pieces = Vec::new();
    let mut rest = module;
    // A function's braces have lines of their own.
    while let Some(start) = rest.find("\n{\n") {
        let (head, body) = rest.split_at(start + 3);
        let Some(end) = end_of_body(body) else { break };
        let mut piece = head.to_owned();
        fold_body(&body[..end], &mut piece);
        let after = &body[end..];
        let line = after.find('\n').map_or(after.len(), |line| line + 1);
        piece.push_str(&after[..line]);
        pieces.push(piece);
        rest = &after[line..];
    }
    pieces.push(rest.to_owned());
    // Of each piece, where its function begins, and the function's name, if only this module can call the function and no caller has been
    // found yet.
    let mut unused: Vec<_> =
        pieces.iter().map(|piece| function(piece).map(|(start, name)| (start, name.to_owned()))).collect();
    let mut open: Vec<_> = pieces.iter().zip(&unused).map(|(piece, unused)| without(piece, unused)).collect();
    while let Some(text) = open.pop() {
        for (piece, function) in pieces.iter().zip(&mut unused) {
            if function.as_ref().is_some_and(|(_, name)| text.contains(name.as_str())) {
                *function = None;
                open.push(piece);
            }
        }
    }
    pieces.iter().zip(&unused).map(|(piece, unused)| without(piece, unused)).collect()
}

/// Returns a piece without its function, if that is unused.
fn without<'a>(piece: &'a str, unused: &Option<(usize, String)>) -> &'a str {
    match unused {
        Some((start, _)) => &piece[..*start],
        None => piece,
    }
}

/// Returns the name of a piece's function, and where the function begins, if it is one that only the module itself can call.
fn function(piece: &str) -> Option<(usize, &str)> {
    let head = &piece[..piece.find("\n{\n")?];
    let start = if head.starts_with(".func") { 0 } else { head.rfind("\n.func")? + 1 };
    let name = head[start..].strip_prefix(".func")?.trim_start();
    // What it returns comes before its name. A declaration ends with a semicolon.
    let name = if name.starts_with('(') { name.split_once(')')?.1.trim_start() } else { name };
    let name = name.split(|letter: char| letter == '(' || letter.is_whitespace()).next()?;
    (!name.is_empty() && !head[start..].contains(';')).then_some((start, name))
}

/// Returns where the line is that closes a function whose body begins here.
fn end_of_body(body: &str) -> Option<usize> {
    let (mut depth, mut at) = (1, 0);
    for line in body.split_inclusive('\n') {
        depth += braces(line);
        if depth == 0 {
            return Some(at);
        }
        at += line.len();
    }
    None
}

/// Returns how many braces a line opens more than it closes.
fn braces(line: &str) -> i32 {
    line.bytes().map(|byte| i32::from(byte == b'{') - i32::from(byte == b'}')).sum()
}

/// A line of a body, or several in braces.
struct Line<'a> {
    text: Cow<'a, str>,
    what: What<'a>,
    /// The registers that its instructions write, and those that they read.
    written: Vec<u32>,
    read: Vec<u32>,
    /// Whether it does nothing but compute the registers that it writes.
    computes: bool,
}

enum What<'a> {
    Label(&'a str),
    Instruction(Instruction<'a>),
    /// Instructions in braces, with names of their own. Several lines of them, as of a call, stay if they can be reached.
    Group(Vec<Instruction<'a>>),
    /// Declarations and directives.
    Other,
}

struct Instruction<'a> {
    /// The register that must be true, or false if there is a `!` before it.
    condition: Option<(bool, u32)>,
    name: &'a str,
    operands: Vec<Operand<'a>>,
}

struct Operand<'a> {
    text: &'a str,
    /// The registers in it.
    registers: Vec<u32>,
    value: Value,
}

/// What is known of an operand.
#[derive(Clone, Copy)]
enum Value {
    Register(u32),
    Number(u64),
    Unknown,
}

/// What an instruction does with its first operand.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// It computes it, and does nothing else.
    Computes,
    /// It writes it, and does something else.
    Writes,
    /// It reads it.
    Reads,
    /// Unknown: it may read and write all of its operands.
    Unknown,
}

/// The registers of a body, numbered.
#[derive(Default)]
struct Registers<'a>(HashMap<&'a str, u32>);

impl<'a> Registers<'a> {
    fn number(&mut self, register: &'a str) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(register).or_insert(next)
    }

    fn operand(&mut self, text: &'a str) -> Operand<'a> {
        let mut registers = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            rest = &rest[at..];
            let end = rest[1..].find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let (register, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
            registers.push(self.number(register));
            rest = after;
        }
        let number = || match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse::<i64>().map(|value| value as u64).or_else(|_| text.parse()).ok(),
        };
        let value = match registers[..] {
            [register] if text.starts_with('%') && rest.is_empty() => Value::Register(register),
            [] => number().map_or(Value::Unknown, Value::Number),
            _ => Value::Unknown,
        };
        Operand { text, registers, value }
    }

    /// Parses an instruction without its semicolon.
    fn instruction(&mut self, text: &'a str) -> Instruction<'a> {
        let (condition, text) = match text.strip_prefix('@').and_then(|text| text.split_once(' ')) {
            Some((register, text)) => match register.strip_prefix('!') {
                Some(register) => (Some((false, self.number(register))), text.trim_start()),
                None => (Some((true, self.number(register))), text.trim_start()),
            },
            None => (None, text),
        };
        let (name, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operands = split(operands).map(|operand| self.operand(operand)).collect();
        Instruction { condition, name, operands }
    }
}

/// Splits operands at the commas that are in no brackets.
fn split(operands: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let operands = operands.split(move |letter| {
        depth += i32::from(matches!(letter, '(' | '[' | '{')) - i32::from(matches!(letter, ')' | ']' | '}'));
        letter == ',' && depth == 0
    });
    operands.map(str::trim).filter(|operand| !operand.is_empty())
}

impl<'a> Instruction<'a> {
    fn root(&self) -> &'a str {
        self.name.split('.').next().unwrap_or_default()
    }

    fn first(&self) -> First {
        let has = |parts: &[&str]| self.name.split('.').skip(1).any(|part| parts.contains(&part));
        match self.root() {
            // A carry is passed outside of the operands.
            "add" | "sub" | "mad" if has(&["cc"]) => First::Unknown,
            "mov" | "cvt" | "cvta" | "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "min"
            | "max" | "abs" | "neg" | "and" | "or" | "xor" | "not" | "shl" | "shr" | "shf" | "setp"
            | "selp" | "bfe" | "bfi" | "bfind" | "popc" | "clz" | "brev" | "prmt" | "lop3" | "sad"
            | "sqrt" | "rsqrt" | "rcp" | "ex2" | "lg2" | "copysign" | "dp4a" | "dp2a" => First::Computes,
            "ld" if !has(&["volatile", "relaxed", "acquire", "mmio"]) => First::Computes,
            "ld" | "shfl" | "vote" | "atom" | "match" | "activemask" => First::Writes,
            "st" | "red" | "bra" | "bar" | "membar" | "fence" | "ret" | "exit" | "trap" => First::Reads,
            _ => First::Unknown,
        }
    }

    /// Where it jumps to.
    fn target(&self) -> Option<&'a str> {
        (self.root() == "bra").then(|| self.operands.first()).flatten().map(|operand| operand.text)
    }

    /// Whether the next line is not reached from it.
    fn ends(&self) -> bool {
        self.condition.is_none() && matches!(self.root(), "bra" | "ret" | "exit")
    }

    /// Returns what it computes, if that is a constant of 64 bits at most.
    fn value(&self, constants: &[Option<u64>]) -> Option<u64> {
        let of = |index: usize| match self.operands.get(index + 1)?.value {
            Value::Register(register) => constants[register as usize],
            Value::Number(number) => Some(number),
            Value::Unknown => None,
        };
        if self.condition.is_some() {
            return None;
        }
        let (root, types) = self.name.split_once('.')?;
        let (kind, of_type) = types.split_once('.').unwrap_or(("", types));
        if of_type == "pred" {
            // Any number but 0 is true.
            let is = |index| of(index).map(|value| value != 0);
            let (a, b) = (is(0), is(1));
            let value = match root {
                "mov" => a?,
                "not" => !a?,
                "and" if a == Some(false) || b == Some(false) => false,
                "or" if a == Some(true) || b == Some(true) => true,
                "and" => a? & b?,
                "or" => a? | b?,
                "xor" => a? ^ b?,
                _ => return None,
            };
            return Some(value.into());
        }
        let (signed, bits) = integer(of_type)?;
        let short = |value: u64| value & mask(bits);
        let (a, b) = (of(0).map(short), of(1).map(short));
        let is_less = |a, b| if signed { extend(a, bits) < extend(b, bits) } else { a < b };
        let value = match (root, kind) {
            ("mov", "") => a?,
            ("selp", "") if of(2)? == 0 => b?,
            ("selp", "") => a?,
            ("cvt", to) => {
                let value = if signed { extend(a?, bits) as u64 } else { a? };
                return Some(value & mask(integer(to)?.1));
            }
            ("setp", order) => {
                let (a, b) = (a?, b?);
                let holds = match order {
                    "eq" => a == b,
                    "ne" => a != b,
                    "lt" | "lo" => is_less(a, b),
                    "le" | "ls" => !is_less(b, a),
                    "gt" | "hi" => is_less(b, a),
                    "ge" | "hs" => !is_less(a, b),
                    _ => return None,
                };
                return Some(holds.into());
            }
            ("and", "") | ("mul", "lo") if a == Some(0) || b == Some(0) => 0,
            ("and", "") => a? & b?,
            ("or", "") => a? | b?,
            ("xor", "") => a? ^ b?,
            ("not", "") => !a?,
            ("add", "") => a?.wrapping_add(b?),
            ("sub", "") => a?.wrapping_sub(b?),
            ("mul", "lo") => a?.wrapping_mul(b?),
            // The number of places has 32 bits. If it is more than the bits of the type, all bits are shifted out.
            ("shl", "") => a?.checked_shl(of(1)? as u32).unwrap_or(0),
            ("shr", "") if signed => (extend(a?, bits) >> (of(1)? as u32).min(63)) as u64,
            ("shr", "") => a?.checked_shr(of(1)? as u32).unwrap_or(0),
            ("min", "") => {
                if is_less(a?, b?) {
                    a?
                } else {
                    b?
                }
            }
            ("max", "") => {
                if is_less(a?, b?) {
                    b?
                } else {
                    a?
                }
            }
            _ => return None,
        };
        Some(short(value))
    }
}

/// Returns whether an integer type is signed, and its bits.
fn integer(name: &str) -> Option<(bool, u32)> {
    let bits = name.get(1..)?.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))?;
    matches!(name.as_bytes()[0], b'b' | b'u' | b's').then_some((name.starts_with('s'), bits))
}

const fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

const fn extend(value: u64, bits: u32) -> i64 {
    (value << (64 - bits)) as i64 >> (64 - bits)
}

impl<'a> Line<'a> {
    fn new(text: &'a str, what: What<'a>) -> Self {
        let mut line = Self { text: text.into(), what, written: vec![], read: vec![], computes: false };
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for instruction in line.instructions() {
            let first = instruction.first();
            read.extend(instruction.condition.map(|(_, register)| register));
            for (index, operand) in instruction.operands.iter().enumerate() {
                if first == First::Unknown || index == 0 && first != First::Reads {
                    written.extend(&operand.registers);
                }
                if first == First::Unknown || index > 0 || first == First::Reads {
                    read.extend(&operand.registers);
                }
            }
        }
        let mut all = line.instructions().iter();
        line.computes = all.len() > 0 && all.all(|instruction| instruction.first() == First::Computes);
        Self { written, read, ..line }
    }

    fn instructions(&self) -> &[Instruction<'a>] {
        match &self.what {
            What::Instruction(instruction) => std::slice::from_ref(instruction),
            What::Group(instructions) => instructions,
            What::Label(_) | What::Other => &[],
        }
    }

    fn target(&self) -> Option<&'a str> {
        match &self.what {
            What::Instruction(instruction) => instruction.target(),
            _ => None,
        }
    }

    /// Whether the next line is not reached from this one.
    fn ends(&self) -> bool {
        matches!(&self.what, What::Instruction(instruction) if instruction.ends())
    }

    /// Turns this conditional jump, which jumps over `jump`, into `jump` with the opposite condition.
    fn jump_unless(&mut self, jump: Self) {
        let (What::Instruction(this), What::Instruction(jump)) = (&mut self.what, jump.what) else { return };
        let (Some((when, _)), Some(to)) = (&mut this.condition, jump.target()) else { return };
        let code = code_of(&self.text).trim_start_matches(['@', '!']);
        let register = code.split(char::is_whitespace).next().unwrap_or_default();
        self.text = format!("@{}{register} bra {to};\n", if *when { "!" } else { "" }).into();
        *when = !*when;
        this.operands = jump.operands;
    }

    fn is_pragma(&self) -> bool {
        self.text.trim_start().starts_with(".pragma")
    }
}

/// Appends the body of a function, folded.
fn fold_body(body: &str, folded: &mut String) {
    let mut registers = Registers::default();
    let Some(mut lines) = parse(body, &mut registers) else { return folded.push_str(body) };
    let registers = registers.0.len();
    loop {
        let before = lines.len();
        let has_chosen = choose(&mut lines, registers);
        if !keep_reachable(&mut lines) {
            break;
        }
        keep_used(&mut lines, registers);
        if lines.len() == before && !has_chosen {
            break;
        }
    }
    lines.iter().for_each(|line| folded.push_str(&line.text));
}

/// Returns a line without its comment.
fn code_of(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code).trim()
}

/// Parses a body; not one with a table of jumps, or with an instruction that is spread over several lines without braces.
fn parse<'a>(body: &'a str, registers: &mut Registers<'a>) -> Option<Vec<Line<'a>>> {
    if body.contains("brx.idx") || body.contains(".branchtargets") {
        return None;
    }
    let mut lines = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let mut end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let mut depth = braces(&rest[..end]);
        while depth > 0 && end < rest.len() {
            let next = rest[end..].find('\n').map_or(rest.len(), |next| end + next + 1);
            depth += braces(&rest[end..next]);
            end = next;
        }
        let (text, after) = rest.split_at(end);
        let code = code_of(text);
        let what = if let Some(label) = code.strip_suffix(':') {
            What::Label(label)
        } else if code.starts_with('{') {
            let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
            let pieces = inner.lines().flat_map(|line| code_of(line).split(';')).map(str::trim);
            let pieces = pieces.filter(|piece| !piece.is_empty() && !piece.starts_with('.'));
            What::Group(pieces.map(|piece| registers.instruction(piece)).collect())
        } else if code.is_empty() || code.starts_with('.') {
            What::Other
        } else {
            let instruction = code.strip_suffix(';').filter(|code| !code.contains(';'))?;
            What::Instruction(registers.instruction(instruction))
        };
        lines.push(Line::new(text, what));
        rest = after;
    }
    Some(lines)
}

/// Returns the value of each register that is a constant wherever it is read: it is written in one place.
fn constants(lines: &[Line], registers: usize) -> Vec<Option<u64>> {
    let mut places = vec![0u32; registers];
    lines.iter().flat_map(|line| &line.written).for_each(|&register| places[register as usize] += 1);
    let mut constants = vec![None; registers];
    let mut has_more = true;
    while std::mem::take(&mut has_more) {
        for instruction in lines.iter().filter(|line| line.computes).flat_map(Line::instructions) {
            let Some(to) = instruction.operands.first() else { continue };
            let is_new = |constants: &[Option<u64>], register: u32| {
                places[register as usize] == 1 && constants[register as usize].is_none()
            };
            match (to.value, &to.registers[..]) {
                (Value::Register(register), _) if is_new(&constants, register) => {
                    constants[register as usize] = instruction.value(&constants);
                    has_more |= constants[register as usize].is_some();
                }
                // The halves of a word, of which one has a name of the group.
                (Value::Unknown, &[half]) if instruction.name == "mov.b64" && is_new(&constants, half) => {
                    let Some(word) = instruction.value(&constants) else { continue };
                    let is_lower = to.text.trim_start_matches(['{', ' ']).starts_with('%');
                    constants[half as usize] = Some(if is_lower { word & mask(32) } else { word >> 32 });
                    has_more = true;
                }
                _ => {}
            }
        }
    }
    constants
}

/// Takes jumps and choices whose condition is a constant. Returns whether there were any.
fn choose(lines: &mut Vec<Line>, registers: usize) -> bool {
    let constants = constants(lines, registers);
    let mut has_chosen = false;
    lines.retain_mut(|line| {
        let What::Instruction(instruction) = &mut line.what else { return true };
        if let (Some((when, register)), Some(to)) = (instruction.condition, instruction.target()) {
            let Some(value) = constants[register as usize] else { return true };
            has_chosen = true;
            instruction.condition = None;
            line.text = format!("bra.uni {to};\n").into();
            line.read.clear();
            return (value != 0) == when;
        }
        if let ("selp", None, [to, first, second, condition]) =
            (instruction.root(), instruction.condition, &instruction.operands[..])
            && let Value::Register(register) = condition.value
            && let Some(value) = constants[register as usize]
        {
            has_chosen = true;
            let (place, from) = if value != 0 { (1, first) } else { (2, second) };
            let name = instruction.name.replace("selp", "mov");
            line.text = format!("{name} {}, {};\n", to.text, from.text).into();
            line.read.clone_from(&from.registers);
            instruction.name = match instruction.name {
                "selp.b64" => "mov.b64",
                "selp.b32" => "mov.b32",
                _ => "mov",
            };
            instruction.operands.swap(1, place);
            instruction.operands.truncate(2);
        }
        true
    });
    has_chosen
}

/// Removes lines that cannot be reached, jumps to the next line or over another jump, and labels that nothing jumps to. Returns false,
/// and removes nothing, if a jump goes to no label of these lines.
fn keep_reachable(lines: &mut Vec<Line>) -> bool {
    let label_of = |(place, line): (usize, &Line)| match line.what {
        What::Label(label) => Some((label.to_owned(), place)),
        _ => None,
    };
    let places: HashMap<String, usize> = lines.iter().enumerate().filter_map(label_of).collect();
    let mut is_reached = vec![false; lines.len()];
    let mut from = vec![0];
    while let Some(mut place) = from.pop() {
        while let Some(line) = lines.get(place)
            && !is_reached[place]
        {
            is_reached[place] = true;
            if let Some(label) = line.target() {
                let Some(&target) = places.get(label) else { return false };
                from.push(target);
            }
            if line.ends() {
                break;
            }
            place += 1;
        }
    }
    // Declarations stay wherever they are.
    let mut reached = is_reached.iter();
    lines.retain(|line| {
        let is_declaration = matches!(line.what, What::Other) && !line.is_pragma();
        *reached.next().unwrap_or(&true) || is_declaration
    });
    let mut index = 0;
    while index + 1 < lines.len() {
        let is_to = |ahead: usize| {
            let label = lines.get(index + ahead).map(|line| &line.what);
            matches!(label, Some(What::Label(label)) if lines[index].target() == Some(label))
        };
        if is_to(1) && lines[index].ends() {
            lines.remove(index);
        } else if is_to(2) && lines[index + 1].ends() && lines[index + 1].target().is_some() {
            let jump = lines.remove(index + 1);
            lines[index].jump_unless(jump);
        } else {
            index += 1;
        }
    }
    let targets: HashSet<String> = lines.iter().filter_map(Line::target).map(str::to_owned).collect();
    let mut was_label = false;
    lines.retain(|line| {
        // A directive for a loop follows the loop's label.
        let stays = match line.what {
            What::Label(label) => targets.contains(label),
            _ => !(was_label && line.is_pragma()),
        };
        was_label = !stays;
        stays
    });
    true
}

/// Removes instructions whose values nothing uses.
fn keep_used(lines: &mut Vec<Line>, registers: usize) {
    let mut readers = vec![0u32; registers];
    lines.iter().flat_map(|line| &line.read).for_each(|&register| readers[register as usize] += 1);
    let mut has_removed = true;
    while std::mem::take(&mut has_removed) {
        // What computes a value mostly comes before what uses it.
        let mut stays: Vec<bool> = lines
            .iter()
            .rev()
            .map(|line| {
                let is_unused =
                    line.computes && line.written.iter().all(|&register| readers[register as usize] == 0);
                if is_unused {
                    line.read.iter().for_each(|&register| readers[register as usize] -= 1);
                    has_removed = true;
                }
                !is_unused
            })
            .collect();
        lines.retain(|_| stays.pop().unwrap_or(true));
    }
}

#[cfg(test)]
mod tests {
    use super::fold_constants;

    fn folded(body: &str) -> String {
        let head = ".version 6.0\n.visible .entry whole()\n{\n";
        let module = fold_constants(&format!("{head}{body}}}\n"));
        module.strip_prefix(head).unwrap().strip_suffix("}\n").unwrap().to_owned()
    }

    #[test]
    fn a_branch_that_is_not_taken_is_left_out() {
        let body = "mov.b64 %rd0, 65536;\nand.b64 %rd1, %rd0, 65536;\nsetp.ne.b64 %p0, %rd1, 0;\n@%p0 bra $L__BB0_0;\n\
                    st.global.b32 [%rd2], 1;\n$L__BB0_0:\nst.global.b32 [%rd2], 2;\nret;\n";
        assert_eq!(folded(body), "st.global.b32 [%rd2], 2;\nret;\n");
        let taken = body.replace("@%p0", "@!%p0");
        assert_eq!(folded(&taken), "st.global.b32 [%rd2], 1;\nst.global.b32 [%rd2], 2;\nret;\n");
    }

    #[test]
    fn a_function_that_nothing_calls_is_left_out() {
        let function = |name: &str, body: &str| {
            format!(
                ".func (.param .b32 func_retval0) {name}(\n.param .b32 {name}_param_0\n)\n{{\n{body}ret;\n}}\n"
            )
        };
        let call = |name| format!("{{\ncall.uni (retval0), {name}, (param0);\n}}\n");
        let [inner, outer, unused] =
            [function("inner", ""), function("outer", &call("inner")), function("unused", "")];
        let entry = |body: &str| format!(".visible .entry whole()\n{{\n{body}ret;\n}}\n");
        let head = ".version 6.0\n.target sm_70\n";
        let jump = "mov.b32 %r0, 0;\nsetp.eq.b32 %p0, %r0, 0;\n@%p0 bra $L__BB0_0;\n";
        let body = format!("{}{jump}{}$L__BB0_0:\n", call("outer"), call("unused"));
        let module = format!("{head}{unused}{inner}{outer}{}", entry(&body));
        let expected = format!("{head}{inner}{outer}{}", entry(&call("outer")));
        assert_eq!(fold_constants(&module), expected);
        // A function may come after one that calls it.
        let caller = function("outer", &call("inner"));
        let module = format!("{head}.func inner();\n{caller}{inner}{}", entry(&call("outer")));
        assert_eq!(fold_constants(&module), module);
    }

    #[test]
    fn a_loop_that_is_not_entered_is_left_out_with_its_directive() {
        let body = "mov.b32 %r0, 0;\nsetp.eq.b32 %p0, %r0, 0;\n@%p0 bra $L__BB0_1;\n$L__BB0_0:\n.pragma \"nounroll\";\n\
                    st.global.b32 [%rd2], %r1;\nadd.s32 %r1, %r1, 1;\nbra.uni $L__BB0_0;\n$L__BB0_1:\nret;\n";
        assert_eq!(folded(body), "ret;\n");
    }

    #[test]
    fn what_is_written_in_two_places_is_no_constant() {
        let body = "mov.b32 %r0, 0;\n@%p1 bra $L__BB0_0;\nmov.b32 %r0, 1;\n$L__BB0_0:\nsetp.eq.b32 %p0, %r0, 0;\n\
                    selp.b32 %r1, %r2, %r3, %p0;\nst.global.b32 [%rd2], %r1;\nret;\n";
        assert_eq!(folded(body), body);
    }

    #[test]
    fn a_jump_over_a_jump_becomes_one() {
        let body = "@%p0 bra $L__BB0_0;\nbra.uni $L__BB0_1;\n$L__BB0_0:\nst.global.b32 [%rd2], 1;\n$L__BB0_1:\nret;\n";
        let expected = "@!%p0 bra $L__BB0_1;\nst.global.b32 [%rd2], 1;\n$L__BB0_1:\nret;\n";
        assert_eq!(folded(body), expected);
        assert_eq!(folded(&body.replace("@", "@!")), expected.replace("@!", "@"));
        let spaced = body.replace("@%p0 bra ", "\t@%p0 bra \t").replace("bra.uni ", "\tbra.uni \t");
        assert_eq!(folded(&spaced), expected);
        // The label of a loop stays.
        let body = "$L__BB0_0:\n@%p0 bra $L__BB0_1;\nbra.uni $L__BB0_2;\n$L__BB0_1:\nst.global.b32 [%rd2], %r1;\n\
                    @%p1 bra $L__BB0_1;\nbra.uni $L__BB0_0;\n$L__BB0_2:\nret;\n";
        let expected = body.replace("@%p0 bra $L__BB0_1;\nbra.uni $L__BB0_2;\n", "@!%p0 bra $L__BB0_2;\n");
        assert_eq!(folded(body), expected);
        // Two jumps over others, one after the other.
        let body = "@%p0 bra $L__BB0_0;\n@%p1 bra $L__BB0_1;\nbra.uni $L__BB0_2;\n$L__BB0_0:\nst.global.b32 [%rd2], 1;\n\
                    $L__BB0_1:\nst.global.b32 [%rd2], 2;\n$L__BB0_2:\nret;\n";
        assert_eq!(folded(body), body);
    }

    #[test]
    fn any_number_but_zero_is_true() {
        let body =
            "mov.pred %p0, -1;\nnot.pred %p1, %p0;\n@%p1 bra $L__BB0_0;\nret;\n$L__BB0_0:\ntrap;\nret;\n";
        assert_eq!(folded(body), "ret;\n");
    }

    #[test]
    fn a_choice_becomes_its_value() {
        let body = "mov.b32 %r0, -2147483648;\nsetp.lt.s32 %p0, %r0, 0;\nadd.s32 %r2, %r4, 1;\nadd.s32 %r3, %r4, 2;\n\
                    selp.b32 %r1, %r2, %r3, %p0;\nst.global.b32 [%rd2], %r1;\nret;\n";
        let expected = "add.s32 %r2, %r4, 1;\nmov.b32 %r1, %r2;\nst.global.b32 [%rd2], %r1;\nret;\n";
        assert_eq!(folded(body), expected);
    }

    #[test]
    fn the_upper_half_of_a_constant_is_one() {
        let body = "mov.b64 %rd0, 4294967297;\n{ .reg .b32 tmp; mov.b64 {tmp, %r0}, %rd0; }\nsetp.eq.b32 %p0, %r0, 1;\n\
                    @%p0 bra $L__BB0_0;\ntrap;\n$L__BB0_0:\nret;\n";
        assert_eq!(folded(body), "ret;\n");
    }

    #[test]
    fn what_does_more_than_compute_stays() {
        for line in [
            "shfl.sync.down.b32 %r0|%p0, %r1, 1, 31, -1;\n",
            "ld.volatile.shared.b32 %r0, [%r1];\n",
            "atom.global.add.u32 %r0, [%rd0], 1;\n",
            "add.cc.u32 %r0, %r1, %r2;\naddc.u32 %r3, %r4, %r5;\n",
            "{ .reg .pred never; setp.eq.u32 never, %r0, 0xffffffff; @never exit; }\n",
            "{\n.param .b32 param0;\nst.param.b32 [param0], %r0;\ncall.uni f, (param0);\n}\n",
            "bar.sync 0;\n",
            "unheard.of %r0, %r1;\n",
        ] {
            let body = format!("{line}ret;\n");
            assert_eq!(folded(&body), body);
        }
    }

    #[test]
    fn what_is_not_understood_stays_whole() {
        for line in [
            "brx.idx %r1, $L_brx_0;\n",
            "add.s32 %r0,\n%r1, 1;\n",
            "add.s32 %r0, %r1, 1; add.s32 %r2, %r3, 4;\n",
        ] {
            let body = format!("{line}add.s32 %r5, %r6, 1;\nret;\n");
            assert_eq!(folded(&body), body);
        }
    }

    #[test]
    fn shifts_and_comparisons_are_those_of_the_type() {
        for (computed, is_one) in [
            ("shl.b32 %r1, %r0, 32", false),
            ("shr.u32 %r1, %r0, 31", true),
            ("shr.s32 %r1, %r0, 31", false),
            ("cvt.u32.u64 %r1, 4294967297", true),
            ("min.s32 %r1, %r0, 1", false),
            ("min.u32 %r1, %r0, 1", true),
            ("max.s32 %r1, %r0, 1", true),
            ("sub.s32 %r1, %r0, 2147483647", true),
            ("mul.lo.s32 %r1, %r9, 0", false),
        ] {
            let body = format!(
                "mov.b32 %r0, -2147483648;\n{computed};\nsetp.eq.b32 %p0, %r1, 1;\n@%p0 bra $L__BB0_0;\ntrap;\n$L__BB0_0:\nret;\n"
            );
            assert_eq!(folded(&body), if is_one { "ret;\n" } else { "trap;\nret;\n" }, "{computed}");
        }
    }
}
