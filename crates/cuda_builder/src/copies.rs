//! Widens the loops that copy or clear large values.
//!
//! LLVM copies a value of 128 bytes and more by a loop over its bytes, and clears it by another:
//!
//! ```text
//! mov.b64 %rd3, 0;
//! $L__BB0_1:
//! add.s64 %rd4, %rd1, %rd3;
//! ld.local.b8 %rs1, [%rd4];
//! add.s64 %rd5, %rd2, %rd3;
//! st.local.b8 [%rd5], %rs1;
//! add.s64 %rd3, %rd3, 1;
//! setp.lt.u64 %p1, %rd3, 280;
//! @%p1 bra $L__BB0_1;
//! ```
//!
//! ptxas unrolls this loop: a kernel with a hundred copies of 280 bytes takes 9 s to compile. If both addresses are multiples of 8,
//! [`widen`] makes a loop over words of 8 bytes, and tells ptxas not to unroll it: the kernel takes 0.7 s.

use std::collections::HashMap;

/// The most accesses of one kind in the body of a loop.
const MOST: usize = 16;

/// Returns a function whose loops over bytes are loops over the widest words that the addresses allow.
pub(crate) fn widen(function: &str) -> String {
    let lines: Vec<&str> = function.lines().collect();
    if !function.contains(".b8 [") {
        return function.to_owned();
    }
    let alignments = Alignments::of(&lines);
    let mut widened = String::with_capacity(function.len());
    let mut at = 0;
    while at < lines.len() {
        let (text, len) =
            match Loop::at(&lines, at).and_then(|found| Some((found.widened(&alignments)?, found.len))) {
                Some(found) => found,
                None => (format!("{}\n", lines[at]), 1),
            };
        widened.push_str(&text);
        at += len;
    }
    if !function.ends_with('\n') {
        widened.pop();
    }
    widened
}

/// A loop over the bytes of a value, from the first to the last or, if the value is moved and may overlap, from the last to the
/// first.
struct Loop<'a> {
    /// Its first line, the label.
    label: &'a str,
    /// The register that counts bytes, and how many there are.
    count: &'a str,
    bytes: usize,
    /// For a copy, how bytes are loaded.
    load: Option<Access<'a>>,
    store: Access<'a>,
    is_forward: bool,
    /// The predicate that the comparison sets, and the branches after it.
    predicate: &'a str,
    branches: &'a [&'a str],
    /// How many lines it has.
    len: usize,
}

/// How a loop loads or stores bytes.
struct Access<'a> {
    /// The register for the address, and what is added to the count.
    address: &'a str,
    base: &'a str,
    /// The instruction without its type, as `ld.local`.
    instruction: &'a str,
}

impl<'a> Access<'a> {
    /// Parses the computation of an address and the access; returns the count and the loaded or stored value too.
    fn of([address, access]: [&'a str; 2]) -> Option<(Self, &'a str, &'a str)> {
        let [register, base, count] = operands(address, "add.s64")?;
        let (instruction, _) = access.split_once(".b8 ")?;
        let [first, second] = operands(access, access.split(' ').next()?)?;
        let (place, value) = if instruction.starts_with("ld.") { (second, first) } else { (first, second) };
        let is_here = place.strip_prefix('[')?.strip_suffix(']')? == register;
        is_here.then_some((Self { address: register, base, instruction }, count, value))
    }

    /// Accesses words of `bits` bits at constant distances from the count.
    fn words(&self, count: &str, bits: usize, values: impl Iterator<Item = String>) -> String {
        let Self { address, base, instruction } = self;
        let mut text = format!("add.s64 {address}, {base}, {count};\n");
        for (index, value) in values.enumerate() {
            let place = format!("[{address}+{}]", index * bits / 8);
            let [first, second] =
                if instruction.starts_with("ld.") { [value, place] } else { [place, value] };
            text += &format!("{instruction}.b{bits} {first}, {second};\n");
        }
        text
    }
}

impl<'a> Loop<'a> {
    /// Returns the loop whose label is a line, if the line before sets the count.
    fn at(lines: &'a [&'a str], first: usize) -> Option<Self> {
        let label = lines[first].strip_suffix(':').filter(|label| label.starts_with('$'))?;
        let body = &lines[first + 1..];
        let pair = |index: usize| Access::of([body.get(index)?, body.get(index + 1)?]);
        let (access, count, value) = pair(0)?;
        let (load, store) = if access.instruction.starts_with("ld.") {
            let (store, same, stored) = pair(2)?;
            (same == count && stored == value).then_some((Some(access), store))?
        } else {
            (value == "0").then_some((None, access))?
        };
        if !store.instruction.starts_with("st.") {
            return None;
        }
        let end = if load.is_some() { 4 } else { 2 };
        let [sum, term, step] = operands(body.get(end)?, "add.s64")?;
        let compare = body.get(end + 1)?;
        let up = operands(compare, "setp.lt.u64").or_else(|| operands(compare, "setp.ne.b64"));
        let is_forward = step == "1";
        let [predicate, compared, last] = if is_forward { up? } else { operands(compare, "setp.eq.b64")? };
        let start =
            operands::<2>(lines[..first].last()?, "mov.b64").filter(|[register, _]| *register == count)?[1];
        let branches = body.get(end + 2..end + if is_forward { 3 } else { 4 })?;
        let (bytes, is_loop) = if is_forward {
            let is_loop = start == "0" && branches[0] == format!("@{predicate} bra {label};");
            (last.parse().ok()?, is_loop)
        } else {
            let is_loop = step == "-1" && last == "-1" && branches[1] == format!("bra.uni {label};");
            (
                start.parse::<usize>().ok()? + 1,
                is_loop && branches[0].starts_with(&format!("@{predicate} bra $")),
            )
        };
        let len = 1 + end + 2 + branches.len();
        ([sum, term, compared] == [count; 3] && is_loop).then_some(Self {
            label: lines[first],
            count,
            bytes,
            load,
            store,
            is_forward,
            predicate,
            branches,
            len,
        })
    }

    /// Returns the loop by words; `None` if it has no whole words or an address may not be a multiple of their size.
    fn widened(&self, alignments: &Alignments) -> Option<String> {
        let Self { label, count, bytes, load, store, is_forward, predicate, branches, .. } = self;
        let of = |access: &Access| alignments.of_term(access.base);
        let size = of(store).min(load.as_ref().map_or(WORD, of));
        if size == 1 || bytes % size != 0 {
            return None;
        }
        let words = (1..=MOST).rev().find(|words| (bytes / size).is_multiple_of(*words))?;
        let (bits, step) = (8 * size, words * size);
        let mut text = String::new();
        if !is_forward {
            text += &format!("mov.b64 {count}, {};\n", bytes - step);
        }
        text += &format!("{label}\n.pragma \"nounroll\";\n");
        let copied = || (0..words).map(|index| format!("%copied{index}"));
        text += &match load {
            Some(load) => format!(
                "{{\n.reg .b{bits} %copied<{words}>;\n{}{}}}\n",
                load.words(count, bits, copied()),
                store.words(count, bits, copied())
            ),
            None => store.words(count, bits, (0..words).map(|_| "0".to_owned())),
        };
        text += &if *is_forward {
            format!("add.s64 {count}, {count}, {step};\nsetp.lt.u64 {predicate}, {count}, {bytes};\n")
        } else {
            format!("add.s64 {count}, {count}, -{step};\nsetp.eq.b64 {predicate}, {count}, -{step};\n")
        };
        branches.iter().for_each(|branch| text += &format!("{branch}\n"));
        Some(text)
    }
}

/// The operands of an instruction without a predicate, if it has this name and as many operands.
fn operands<'a, const COUNT: usize>(line: &'a str, name: &str) -> Option<[&'a str; COUNT]> {
    let operands = line.strip_prefix(name)?.strip_prefix(' ')?.strip_suffix(';')?;
    operands.split(", ").collect::<Vec<_>>().try_into().ok()
}

/// For each register and variable of a function, a power of two, at most [`WORD`], of which its value or address is always a
/// multiple.
struct Alignments<'a>(HashMap<&'a str, usize>);

/// Bytes of the widest word.
const WORD: usize = 8;

impl<'a> Alignments<'a> {
    /// Looks at all instructions of a function.
    fn of(lines: &[&'a str]) -> Self {
        let mut alignments = Self(HashMap::new());
        // For each register, the terms of each value that it is given; none if a value is not known.
        let mut sums: HashMap<&str, Vec<Option<[&str; 2]>>> = HashMap::new();
        for line in lines {
            if let Some((name, alignment)) = variable(line) {
                alignments.0.insert(name, alignment);
            }
            if line.starts_with('.') {
                continue;
            }
            let code =
                line.strip_prefix('@').and_then(|line| line.split_once(' ')).map_or(*line, |(_, code)| code);
            let sum = ["add.s64", "add.u64"].iter().find_map(|name| operands(code, name));
            let copy = ["mov.b64", "mov.u64", "cvta.local.u64"].iter().find_map(|name| operands(code, name));
            let choice = operands(code, "selp.b64").map(|[register, a, b, _]| [register, a, b]);
            if let Some([register, a, b]) = sum.or(choice) {
                // (A choice of two is a multiple of what both are multiples of, as their sum.)
                sums.entry(register).or_default().push(Some([a, b]));
            } else if let Some([register, a]) = copy {
                sums.entry(register).or_default().push(Some([a, "0"]));
            } else {
                // The first operand may be several registers, or an address. A line of several instructions may give any of its
                // registers a value.
                let is_one = code.matches(';').count() == 1;
                let end = code.find([',', '[', '{']).filter(|_| is_one);
                let end =
                    end.and_then(|end| if code[end..].starts_with('{') { code.find('}') } else { Some(end) });
                for register in registers(&code[..end.unwrap_or(code.len())]) {
                    sums.entry(register).or_default().push(None);
                }
            }
        }
        // All are multiples until a value is not: a value in a loop may depend on itself.
        alignments.0.extend(sums.keys().map(|&register| (register, WORD)));
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for (register, sums) in &sums {
                let of_sum = |sum: &Option<[&str; 2]>| {
                    sum.map_or(1, |sum| {
                        sum.map(|term| alignments.of_term(term)).into_iter().fold(WORD, usize::min)
                    })
                };
                let alignment = sums.iter().map(of_sum).fold(WORD, usize::min);
                has_changed |= alignments.0.insert(register, alignment) != Some(alignment);
            }
        }
        alignments
    }

    /// Returns a power of two, at most [`WORD`], of which a register, a variable's address or a number is a multiple.
    fn of_term(&self, term: &str) -> usize {
        match term.parse::<i64>() {
            Ok(number) => 1 << number.trailing_zeros().min(WORD.trailing_zeros()),
            Err(_) => self.0.get(term).copied().unwrap_or(1),
        }
    }
}

/// Returns the name and the alignment of the variable that a line declares.
fn variable(line: &str) -> Option<(&str, usize)> {
    let (_, declaration) = line.strip_prefix(".local ")?.split_once(".align ")?;
    let mut words = declaration.split(' ');
    let alignment: usize = words.next()?.parse().ok()?;
    let name = words.next_back()?.split('[').next()?;
    Some((name, alignment.min(WORD)))
}

/// Returns the registers that a text mentions.
fn registers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !super::split::is_of_word(c)).filter(|word| word.starts_with('%'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function with two addresses in a variable of this alignment, and these lines.
    fn function(alignment: usize, lines: &str) -> String {
        format!(
            ".visible .entry k()\n{{\n.local .align {alignment} .b8 __local_depot0[640];\n.reg .b64 %SPL;\n\
             mov.b64 %SPL, __local_depot0;\nadd.u64 %rd1, %SPL, 0;\nadd.u64 %rd2, %SPL, 280;\n{lines}ret;\n}}"
        )
    }

    fn copy(bytes: usize) -> String {
        format!(
            "mov.b64 %rd3, 0;\n$L__BB0_1:\nadd.s64 %rd4, %rd1, %rd3;\nld.local.b8 %rs1, [%rd4];\nadd.s64 %rd5, %rd2, %rd3;\n\
             st.local.b8 [%rd5], %rs1;\nadd.s64 %rd3, %rd3, 1;\nsetp.lt.u64 %p1, %rd3, {bytes};\n@%p1 bra $L__BB0_1;\n"
        )
    }

    #[test]
    fn a_copy_of_words_is_a_loop_over_words() {
        let expected = "mov.b64 %rd3, 0;\n$L__BB0_1:\n.pragma \"nounroll\";\n{\n.reg .b64 %copied<3>;\nadd.s64 %rd4, %rd1, %rd3;\n\
             ld.local.b64 %copied0, [%rd4+0];\nld.local.b64 %copied1, [%rd4+8];\nld.local.b64 %copied2, [%rd4+16];\n\
             add.s64 %rd5, %rd2, %rd3;\nst.local.b64 [%rd5+0], %copied0;\nst.local.b64 [%rd5+8], %copied1;\n\
             st.local.b64 [%rd5+16], %copied2;\n}\nadd.s64 %rd3, %rd3, 24;\nsetp.lt.u64 %p1, %rd3, 456;\n\
             @%p1 bra $L__BB0_1;\n";
        assert_eq!(widen(&function(8, &copy(456))), function(8, expected));
    }

    #[test]
    fn a_copy_that_may_overlap_goes_down_as_before() {
        let lines = |start: usize, body: &str, end: &str| {
            format!(
                "mov.b64 %rd3, {start};\n{body}{end}@%p1 bra $L__BB0_2;\nbra.uni $L__BB0_1;\n$L__BB0_2:\n"
            )
        };
        let by_bytes = lines(
            15,
            "$L__BB0_1:\nadd.s64 %rd4, %rd1, %rd3;\nld.local.b8 %rs1, [%rd4];\nadd.s64 %rd5, %rd2, %rd3;\nst.local.b8 [%rd5], %rs1;\n",
            "add.s64 %rd3, %rd3, -1;\nsetp.eq.b64 %p1, %rd3, -1;\n",
        );
        let by_words = lines(
            15,
            "mov.b64 %rd3, 0;\n$L__BB0_1:\n.pragma \"nounroll\";\n{\n.reg .b64 %copied<2>;\nadd.s64 %rd4, %rd1, %rd3;\n\
             ld.local.b64 %copied0, [%rd4+0];\nld.local.b64 %copied1, [%rd4+8];\nadd.s64 %rd5, %rd2, %rd3;\n\
             st.local.b64 [%rd5+0], %copied0;\nst.local.b64 [%rd5+8], %copied1;\n}\n",
            "add.s64 %rd3, %rd3, -16;\nsetp.eq.b64 %p1, %rd3, -16;\n",
        );
        assert_eq!(widen(&function(8, &by_bytes)), function(8, &by_words));
    }

    #[test]
    fn words_are_as_wide_as_addresses_are_aligned() {
        for (alignment, bits) in [(1, 8), (2, 16), (4, 32), (8, 64), (16, 64)] {
            let widened = widen(&function(alignment, &copy(280)));
            assert!(widened.contains(&format!("ld.local.b{bits} ")), "{alignment}: {widened}");
        }
        let clear = copy(280).replace("ld.local.b8 %rs1, [%rd4];\nadd.s64 %rd5, %rd2, %rd3;\n", "");
        let clear = clear.replace("[%rd5], %rs1", "[%rd4], 0");
        assert!(widen(&function(8, &clear)).contains("st.local.b64 [%rd4+48], 0;\nadd.s64 %rd3, %rd3, 56;"));
        // An address that is set elsewhere too.
        for (line, bits) in [
            ("add.s64 %rd1, %rd1, 12;\n", 32),
            ("selp.b64 %rd1, %rd2, %rd1, %p2;\n", 64),
            ("@%p2 mov.b64 %rd1, 6;\n", 16),
            ("ld.param.b64 %rd1, [k_param_0];\n", 8),
            ("mov.b64 {%rd1, %rd9}, %rd1;\n", 8),
            ("{ .reg .b32 tmp; mov.b64 {tmp, %r135}, %rd1; }\n", 8),
            ("st.local.b64 [%rd1], %rd9;\n", 64),
            ("ld.local.b64 %rd9, [%rd1];\n", 64),
        ] {
            let widened = widen(&function(8, &(line.to_owned() + &copy(280))));
            assert!(widened.contains(&format!("st.local.b{bits} ")), "{line}{widened}");
        }
    }

    #[test]
    fn other_loops_stay_as_they_are() {
        let copy = copy(280);
        for (line, other) in [
            ("%rd3, 0;", "%rd3, 8;"),
            ("%rd3, 1;", "%rd3, 2;"),
            ("[%rd5], %rs1", "[%rd5], %rs2"),
            ("[%rd4]", "[%rd4+1]"),
            ("%rd2, %rd3", "%rd2, %rd6"),
            ("setp.lt.u64 %p1, %rd3", "setp.lt.u64 %p1, %rd6"),
            ("@%p1 bra $L__BB0_1", "@%p1 bra $L__BB0_2"),
            ("280", "281"),
            ("st.local.b8", "st.local.b16"),
        ] {
            let function = function(8, &copy.replace(line, other));
            assert_ne!(copy, copy.replace(line, other));
            assert_eq!(widen(&function), function, "{other}");
        }
        for end in 0..copy.len() {
            widen(&copy[..end]);
        }
    }
}
