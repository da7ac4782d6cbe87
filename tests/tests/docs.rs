//! Checks the claims of the pages: quotes, counters, speed, operators, names and counts.
//!
//! Some tables of the pages are generated here. If the environment variable `UPDATE_DOCS` is set, the tests
//! write them into the pages. Otherwise they compare.

use gpu_reduce::{
    Comparison, Error, Op, bf16, f16, for_each_comparison, for_each_element, for_each_integer,
    for_each_integer_operator, for_each_operator, for_each_pair_operator,
};
use std::any::type_name;
use std::collections::HashSet;
use std::env;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::example::executable;

/// Reads a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(Path::new("..").join(path)).unwrap()
}

fn page() -> String {
    read("docs/ladder.md")
}

/// The lines without their indentation.
fn lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim())).collect()
}

/// A fenced block that is tagged with a file is in that file, apart from its indentation.
#[test]
fn quotes() {
    let page = page();
    let quotes: Vec<&str> = page.split("\n```rust gpu/").skip(1).collect();
    assert_eq!(quotes.len(), 10);
    for quote in quotes {
        let (file, quote) = quote.split_once('\n').unwrap();
        let (quote, _) = quote.split_once("\n```").unwrap();
        let source = read(&format!("gpu/{file}"));
        assert!(lines(&source).contains(&lines(quote)), "gpu/{file} does not have\n{quote}");
    }
}

/// What an example prints when it runs in the root of the repository.
#[track_caller]
fn printed(name: &str, options: &[&str]) -> String {
    let output = Command::new(executable(name)).args(options).current_dir("..").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The table is what the example prints. "Counters: NAME BEFORE → AFTER, …" of a step are the values in its
/// row and the row before.
#[test]
fn counters() {
    let table = printed("ladder", &["--device", "emulator", "--n", "2^20"]);
    let page = page();
    assert!(page.contains(&format!("<!-- counters -->\n```text\n{table}```\n")), "the table is now\n{table}");

    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = table.lines().filter(|line| line.starts_with('|')).map(cells).collect();
    let counters: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("Counters: ")).collect();
    assert_eq!(counters.len(), 9, "one line a step");
    for (step, line) in counters.into_iter().enumerate() {
        for counter in line.trim_end_matches('.').split(", ") {
            let column =
                (1..rows[0].len() - 1).find(|&column| counter.starts_with(&rows[0][column])).unwrap();
            // The first two rows are the table's header.
            let values = [step + 1, step + 2].map(|row| rows[row][column].clone());
            let expected = if step == 0 { values[1].clone() } else { values.join(" → ") };
            assert_eq!(counter, format!("{} {expected}", rows[0][column]));
        }
    }
}

/// The text of a page between `<!-- NAME -->` and `<!-- end of NAME -->`.
fn block<'a>(page: &'a str, name: &str) -> &'a str {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let inside = page.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    inside.unwrap_or_else(|| panic!("no block {name} in\n{page}")).0
}

/// Checks that the block `name` of a page is `expected`; writes it there if `UPDATE_DOCS` is set.
#[track_caller]
fn hold(path: &str, name: &str, expected: &str) {
    let page = read(path);
    let old = block(&page, name);
    if old == expected {
        return;
    }
    assert!(env::var_os("UPDATE_DOCS").is_some(), "{path}: the block {name} is now\n{expected}");
    let begin = format!("<!-- {name} -->\n");
    let new = page.replacen(&format!("{begin}{old}"), &format!("{begin}{expected}"), 1);
    fs::write(Path::new("..").join(path), new).unwrap();
}

/// The first cell of a table's row, which names it.
fn key(row: &str) -> &str {
    row.split('|').nth(1).unwrap_or_default().trim()
}

/// Checks that the rows of a page's block are rows of a table.
#[track_caller]
fn hold_rows(path: &str, name: &str, table: &str) {
    let page = read(path);
    let of = |old: &str| -> String {
        let row = table.lines().find(|row| key(row) == key(old));
        format!("{}\n", row.unwrap_or_else(|| panic!("{path}: the table {name} lacks {old}")))
    };
    hold(path, name, &block(&page, name).lines().map(of).collect::<String>());
}

/// The tables and charts of the pages are made by the example from the lines in `docs/speed/`.
#[test]
fn speed() {
    const PAGE: &str = "docs/speed.md";
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("h200.svg");
    let tables = printed("speed", &["--chart", chart.to_str().unwrap(), "docs/speed/h200.jsonl"]);
    let drawn = fs::read_to_string(chart).unwrap();
    assert!(drawn == read("docs/speed/h200.svg"), "docs/speed/h200.svg is not what is drawn");
    hold_rows("README.md", "rows of h200", tables.split("\n\n").next().unwrap());
    // The README's text has the number of cases, the geometric mean and the worst case of each peer.
    let readme = read("README.md");
    for row in tables.split("\n\n").nth(1).unwrap().lines().skip(2).filter(|row| !key(row).contains(',')) {
        for cell in row.split('|').skip(2).take(3) {
            let number = cell.split([' ', ',']).find(|word| !word.is_empty()).unwrap();
            assert!(readme.contains(number), "README.md lacks {number} of {row}");
        }
    }
    for name in ["h200", "operators", "segmented"] {
        let tables = printed("speed", &[&format!("docs/speed/{name}.jsonl")]);
        hold("docs/speed/tables.md", name, &tables);
        let (cases, summary) = tables.split_once("\n\n").unwrap();
        hold_rows(PAGE, &format!("rows of {name}"), cases);
        hold(PAGE, &format!("summary of {name}"), summary);
    }
    let chart = folder.path().join("segmented.svg");
    let files = ["segmented", "segmented-sweep"].map(|name| format!("docs/speed/{name}.jsonl"));
    printed("speed", &["--segments-chart", chart.to_str().unwrap(), &files[0], &files[1]]);
    let drawn = fs::read_to_string(chart).unwrap();
    assert!(drawn == read("docs/speed/segmented.svg"), "docs/speed/segmented.svg is not what is drawn");
    let sweep = printed("speed", &["docs/speed/sweep.jsonl"]);
    let (_, summary) = sweep.split_once("\n\n").unwrap();
    hold(PAGE, "summary of sweep", summary);
}

/// The tables of `docs/scale.md` are what the simulation makes of the measurements. It agrees with the
/// measured times within a tenth.
#[test]
fn scale() {
    let tables = printed("scale", &["docs/speed/several.jsonl"]);
    hold("docs/scale.md", "simulated", &tables);
    let (beside, _) = tables.split_once("\n\n").unwrap();
    let ratios: Vec<f64> =
        beside.lines().skip(2).map(|line| line.split('|').nth(4).unwrap().trim().parse().unwrap()).collect();
    assert!(ratios.len() >= 2, "{beside}");
    assert!(ratios.iter().all(|ratio| (0.9..=1.1).contains(ratio)), "{beside}");
}

/// The result type of an operator for one element type, and whether every order gives the same bits.
struct Fact {
    element: &'static str,
    output: String,
    is_exact: bool,
}

impl Fact {
    fn of<O: Op<I>, I: Copy + 'static>(element: &'static str) -> Self {
        // Shortens `[half::binary16::f16; 2]` to `[f16; 2]`.
        let name = type_name::<O::Output>().replace("half::", "").replace("binary16::", "");
        Self { element, output: name.replace("bfloat::", ""), is_exact: O::EXACT }
    }
}

/// The value of an operator for no items.
fn of_no_items<T: Debug>(result: Result<T, Error>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(Error::EmptyInput { .. }) => "error".to_owned(),
        Err(error) => panic!("{error}"),
    }
}

/// A row of the library's tables of operators.
struct Operator {
    name: &'static str,
    op: &'static str,
    items: &'static str,
    doc: &'static str,
    facts: Vec<Fact>,
    of_no_items: String,
}

macro_rules! facts {
    ({ pair $op:ident } $($type:ident: $($row:ident)*;)*) => {
        vec![$(Fact::of::<gpu_reduce::$op, ($type, $type)>(stringify!($type))),*]
    };
    ({ comparison $op:ident } $($type:ident: $($row:ident)*;)*) => {
        vec![$(Fact::of::<gpu_reduce::$op<$type>, $type>(stringify!($type))),*]
    };
    ({ $kind:ident $op:ident } $($type:ident: $($row:ident)*;)*) => {
        vec![$(Fact::of::<gpu_reduce::$op, $type>(stringify!($type))),*]
    };
}

macro_rules! of_no_items {
    (element $name:ident) => {
        of_no_items(gpu_reduce::$name(&[0f32; 0]))
    };
    (integer $name:ident) => {
        of_no_items(gpu_reduce::$name(&[0i32; 0]))
    };
    (pair $name:ident) => {
        of_no_items(gpu_reduce::$name(&[0f32; 0], &[0f32; 0]))
    };
    (comparison $name:ident) => {
        of_no_items(gpu_reduce::$name(&[0f32; 0], Comparison::Less(0.0)))
    };
}

macro_rules! operators {
    (
        { $kind:ident $items:literal $for_each_type:ident }
        $($(#[doc = $doc:literal])* $name:ident: $op:ident $($how:ident)+;)*
    ) => {
        vec![$(Operator {
            name: stringify!($name),
            op: stringify!($op),
            items: $items,
            doc: concat!($($doc, "\n"),*),
            facts: $for_each_type! { facts! { $kind $op } },
            of_no_items: of_no_items!($kind $name),
        }),*]
    };
}

fn operators() -> Vec<Operator> {
    let mut all = for_each_operator! { operators! { element "elements" for_each_element } };
    all.extend(for_each_integer_operator! { operators! { integer "integers" for_each_integer } });
    all.extend(for_each_pair_operator! { operators! { pair "two arrays" for_each_element } });
    all.extend(for_each_comparison! { operators! { comparison "elements, a comparison" for_each_element } });
    all
}

/// Groups of element types, and the result types of each kind for them.
const GROUPS: [&str; 5] = ["i8 i16 i32 i64", "u8 u16 u32 u64", "f16 bf16", "f32", "f64"];
const RESULTS: [(&str, [&str; 5]); 3] = [
    ("wide", ["i64", "u64", "f32", "f32", "f64"]),
    ("real", ["f64", "f64", "f32", "f32", "f64"]),
    ("exact", ["i128", "i128", "f32", "f32", "f64"]),
];

/// The kind of results, from the result type for each element type.
fn kind_of_results(facts: &[Fact]) -> String {
    let outputs: Vec<&str> = facts.iter().map(|fact| fact.output.as_str()).collect();
    if let Some((_, len)) = outputs[0].trim_end_matches(']').split_once("; ") {
        let of_inner = |fact: &Fact| {
            let inner = fact.output.strip_prefix('[').unwrap().strip_suffix(&format!("; {len}]")).unwrap();
            Fact { element: fact.element, output: inner.to_owned(), is_exact: fact.is_exact }
        };
        return format!("{} × {len}", kind_of_results(&facts.iter().map(of_inner).collect::<Vec<_>>()));
    }
    if facts.iter().all(|fact| fact.output == fact.element) {
        return "item".to_owned();
    }
    if outputs.iter().all(|output| output == &outputs[0]) {
        return format!("`{}`", outputs[0]);
    }
    let is_of = |results: &[&str; 5]| {
        facts.iter().all(|fact| {
            let group = GROUPS.iter().position(|group| group.split(' ').any(|name| name == fact.element));
            fact.output == results[group.unwrap()]
        })
    };
    let kind = RESULTS.iter().find(|(_, results)| is_of(results));
    kind.unwrap_or_else(|| panic!("a new kind of results: {outputs:?}")).0.to_owned()
}

/// The first sentence of documentation, without links and references.
fn first_sentence(doc: &str) -> String {
    let paragraph: Vec<&str> = doc.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let sentence = paragraph.split(". ").next().unwrap().trim_end_matches('.');
    let sentence = sentence.split("; see [").next().unwrap();
    let mut parts = sentence.split("](crate::");
    let mut text = parts.next().unwrap().replace("[`", "`");
    for part in parts {
        text += &part.split_once(')').unwrap().1.replace("[`", "`");
    }
    text
}

/// A Markdown table with columns of equal width.
fn markdown(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap();
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let padded = |row: &Vec<String>| {
        line(row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect())
    };
    let rule = line(widths.iter().map(|&width| "-".repeat(width)).collect());
    let body: String = rows[1..].iter().map(padded).collect();
    padded(&rows[0]) + &rule + &body
}

/// The tables of `docs/operators.md` are made from the library's tables of operators, and the README names
/// all operators.
#[test]
fn operators_page() {
    let operators = operators();
    let header = ["function", "operator", "items", "result", "no items", "any order", "what it returns"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(operators.iter().map(|operator| {
        let exact = operator.facts.iter().filter(|fact| fact.is_exact);
        let exact: Vec<&str> = exact.map(|fact| fact.element).collect();
        let any_order = match exact.len() {
            0 => "no".to_owned(),
            count if count == operator.facts.len() => "yes".to_owned(),
            _ if exact.join(" ") == GROUPS[..2].join(" ") => "integers".to_owned(),
            _ => panic!("{} is exact of {exact:?}", operator.name),
        };
        vec![
            format!("`{}`", operator.name),
            format!("`{}`", operator.op),
            operator.items.to_owned(),
            kind_of_results(&operator.facts),
            operator.of_no_items.clone(),
            any_order,
            first_sentence(operator.doc),
        ]
    }));
    hold("docs/operators.md", "operators", &markdown(&rows));
    let types = GROUPS.map(|group| group.split(' ').map(|name| format!("`{name}`")).collect::<Vec<_>>());
    let mut rows = vec![vec!["result".to_owned()]];
    rows[0].extend(types.map(|names| names.join(" ")));
    rows.extend(RESULTS.iter().map(|(kind, results)| {
        let results = results.iter().map(|name| format!("`{name}`"));
        [(*kind).to_owned()].into_iter().chain(results).collect()
    }));
    hold("docs/operators.md", "results", &markdown(&rows));
    let readme = read("README.md");
    for Operator { name, .. } in &operators {
        assert!(readme.contains(&format!("`{name}`")), "README.md does not name {name}");
    }
}

/// All files in a folder of the repository with this ending.
fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let mut folders = vec![Path::new("..").join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_str().unwrap().ends_with(end) {
                files.push(path);
            }
        }
    }
    files
}

/// The names that a file of the library declares: items, which follow a keyword; fields and variants, which
/// begin a line; and the file's own name.
fn declared(source: &PathBuf) -> HashSet<String> {
    const KEYWORDS: [&str; 9] =
        ["struct", "enum", "trait", "type", "fn", "const", "static", "mod", "macro_rules"];
    let is_name = |char: char| char.is_alphanumeric() || char == '_';
    let mut names = HashSet::from([source.file_stem().unwrap().to_str().unwrap().to_owned()]);
    for line in fs::read_to_string(source).unwrap().lines().map(str::trim) {
        let line = line.split("//").next().unwrap();
        let words: Vec<&str> = line.split(|char| !is_name(char)).filter(|word| !word.is_empty()).collect();
        let items = words.windows(2).filter(|words| KEYWORDS.contains(&words[0])).map(|words| words[1]);
        names.extend(items.map(str::to_owned));
        let member = line.trim_start_matches("pub ");
        let (name, rest) = member.split_at(member.find(|char| !is_name(char)).unwrap_or(member.len()));
        if [",", "(", " {", ":"].iter().any(|after| rest.starts_with(after)) {
            names.insert(name.to_owned());
        }
    }
    names
}

/// The files and names in `docs/architecture.md` exist, and so do the names in the error texts.
#[test]
fn names() {
    /// Words of Rust, of the tables' rows, of PTX and of the driver; crates; environment variables.
    const OTHERS: [&str; 13] = [
        "unsafe",
        "struct",
        "cfg",
        "each",
        "TypeId",
        "cuLaunchKernel",
        "fork",
        "dp4a",
        "ndarray",
        "cli",
        "random_ops",
        "PROPTEST_CASES",
        "GPU_REDUCE_TEST_LEN",
    ];
    let sources: Vec<PathBuf> = ["gpu", "host"].iter().flat_map(|folder| files(folder, ".rs")).collect();
    let files_of_crates = files("crates", ".rs");
    let declared: Vec<HashSet<String>> = sources.iter().map(declared).collect();
    let is_declared =
        |name: &str| declared.iter().any(|names| names.contains(name)) || OTHERS.contains(&name);
    let page = read("docs/architecture.md");
    for link in page.split("](").skip(1) {
        let link = link.split(')').next().unwrap();
        assert!(Path::new("../docs").join(link).exists(), "docs/architecture.md links to {link}");
    }
    let (mut checked, mut missing) = (0, Vec::new());
    for span in page.split('`').skip(1).step_by(2) {
        let name = span.split('<').next().unwrap();
        if span.contains('(') || name.contains([' ', '-']) || name.contains("NAME") {
            continue;
        }
        let is_there = if name.contains(['/', '.']) {
            ["", "docs", "gpu", "host"].iter().any(|folder| Path::new("..").join(folder).join(name).exists())
                || sources.iter().chain(&files_of_crates).any(|file| file.ends_with(name))
        } else {
            name.trim_end_matches('!').split("::").all(is_declared)
        };
        checked += 1;
        missing.extend((!is_there).then_some(span));
    }
    assert!(missing.is_empty(), "docs/architecture.md names {missing:?}");
    assert!(checked > 60, "{checked} names");
    let errors = read("host/error.rs");
    let texts = errors.lines().filter(|line| !line.trim_start().starts_with("//"));
    for text in texts.filter(|line| line.contains('"')) {
        for path in text.split(|char: char| !(char.is_alphanumeric() || "_:".contains(char))) {
            let names: Vec<&str> = path.trim_matches(':').split("::").collect();
            let is_ours = names.len() > 1 && !["cust", "gpu_reduce_kernels", "String"].contains(&names[0]);
            // A type's fields and variants are in the type's own file.
            let is_there = declared.iter().any(|declared| names.iter().all(|&name| declared.contains(name)));
            assert!(is_there || !is_ours, "host/error.rs names {path}");
        }
    }
}

macro_rules! count {
    ({} $($(#[$doc:meta])* $name:ident: $($row:ident)*;)*) => {
        [$(stringify!($name)),*].len()
    };
}

/// The counts in `docs/architecture.md` are right, and the sizes are within a twentieth.
#[test]
fn sizes() {
    let page = read("docs/architecture.md").replace('\n', " ");
    let integers = for_each_integer_operator! { count! {} };
    let others = for_each_operator! { count! {} }
        + for_each_pair_operator! { count! {} }
        + for_each_comparison! { count! {} };
    let types = for_each_element! { count! {} };
    // A row of the table is `("NAME", &[(BLOCK, BYTES), …]),`.
    let table = read("ptx/kernels.rs");
    let rows = || table.lines().filter_map(|line| line.trim().strip_prefix("(\"")?.split_once("\", &["));
    let bytes = |row: &str| -> Vec<usize> {
        let entries = row.split('(').skip(1);
        entries
            .map(|entry| entry[entry.find(' ').unwrap() + 1..entry.find(')').unwrap()].parse().unwrap())
            .collect()
    };
    let all: Vec<usize> = rows().flat_map(|(_, row)| bytes(row)).collect();
    let of = |end: &str| -> Vec<usize> {
        rows().filter(|(name, _)| name.ends_with(end)).flat_map(|(_, row)| bytes(row)).collect()
    };
    let packed: Vec<u64> =
        files("ptx", ".ptx.br").iter().map(|file| fs::metadata(file).unwrap().len()).collect();
    let source = read("gpu/table.rs");
    let tuples =
        source.split("\ntogether! {").nth(1).unwrap().split('}').next().unwrap().matches(';').count();
    let operators = integers + others;
    let thousands = |number: usize| format!("{},{:03}", number / 1000, number % 1000);
    for count in [
        format!(
            "The {operators} operators, {tuples} tuples and {types} types of keys have {} entry points",
            thousands(all.len())
        ),
        format!("a file for each row that has any, {} files of", packed.len()),
        format!("The folds for CPUs are {},", others * types + integers * for_each_integer! { count! {} }),
    ] {
        assert!(page.contains(&count), "not in docs/architecture.md: {count}");
    }
    let mean = |bytes: &[usize]| bytes.iter().sum::<usize>() as f64 / bytes.len() as f64 / 1e3;
    for (before, size) in [
        ("for short segments, ", mean(&of("_segments"))),
        ("for short rows, ", mean(&of("_short"))),
        ("for other rows that warps fold, ", mean(&of("_rows"))),
        ("for larger segments, ", mean(&of("_larger"))),
        ("for rows that blocks fold by four loads a thread, ", mean(&of("_lines"))),
        ("for segments of many lines, ", mean(&of("_spans"))),
        ("few segments and segments of gigabytes, ", mean(&of("_chunks"))),
        ("for columns, ", mean(&of("_columns"))),
        ("entry points, ", all.iter().sum::<usize>() as f64 / 1e6),
        (" files of ", packed.iter().sum::<u64>() as f64 / 1e6),
    ] {
        let said = page.split(before).skip(1).find_map(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        let said = said.unwrap_or_else(|| panic!("no number after {before:?} in docs/architecture.md"));
        assert!((said / size - 1.0).abs() < 0.05, "{before}{said} in docs/architecture.md: it is {size:.1}");
    }
}
