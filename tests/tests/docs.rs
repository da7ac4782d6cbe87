//! The documentation against its sources: what `docs/ladder.md` quotes and counts, the speed in the README,
//! and the files, names and numbers in `docs/architecture.md`.

use gpu_reduce::{
    for_each_comparison, for_each_element, for_each_integer, for_each_integer_operator, for_each_operator,
    for_each_pair_operator,
};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::example::executable;

/// A file of the repository.
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
            // Two rows are the table's header.
            let values = [step + 1, step + 2].map(|row| rows[row][column].clone());
            let expected = if step == 0 { values[1].clone() } else { values.join(" → ") };
            assert_eq!(counter, format!("{} {expected}", rows[0][column]));
        }
    }
}

/// The tables and charts of the README and of `docs/speed.md`, and the summary of the sweep, are what the
/// example makes of the lines in `docs/speed/`.
#[test]
fn speed() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("h200.svg");
    let tables = printed("speed", &["--chart", chart.to_str().unwrap(), "docs/speed/h200.jsonl"]);
    let readme = read("README.md");
    let shown = format!("<!-- speed -->\n{tables}<!-- end of speed -->\n");
    assert!(readme.contains(&shown), "the tables are now\n{tables}");
    let drawn = fs::read_to_string(chart).unwrap();
    assert!(drawn == read("docs/speed/h200.svg"), "docs/speed/h200.svg is not what is drawn");
    let page = read("docs/speed.md");
    for name in ["operators", "segmented"] {
        let tables = printed("speed", &[&format!("docs/speed/{name}.jsonl")]);
        let shown = format!("<!-- {name} -->\n{tables}<!-- end of {name} -->\n");
        assert!(page.contains(&shown), "the tables are now\n{tables}");
    }
    let chart = folder.path().join("segmented.svg");
    let files = ["segmented", "segmented-sweep"].map(|name| format!("docs/speed/{name}.jsonl"));
    printed("speed", &["--segments-chart", chart.to_str().unwrap(), &files[0], &files[1]]);
    let drawn = fs::read_to_string(chart).unwrap();
    assert!(drawn == read("docs/speed/segmented.svg"), "docs/speed/segmented.svg is not what is drawn");
    let sweep = printed("speed", &["docs/speed/sweep.jsonl"]);
    let (_, summary) = sweep.split_once("\n\n").unwrap();
    let shown = format!("<!-- sweep -->\n{summary}<!-- end of sweep -->\n");
    assert!(page.contains(&shown), "the summary is now\n{summary}");
}

/// The tables of `docs/scale.md` are what the simulation makes of the measurements. It agrees with the
/// measured times within a tenth.
#[test]
fn scale() {
    let tables = printed("scale", &["docs/speed/several.jsonl"]);
    let page = read("docs/scale.md");
    let shown = format!("<!-- simulated -->\n{tables}<!-- end of simulated -->\n");
    assert!(page.contains(&shown), "the tables are now\n{tables}");
    let (beside, _) = tables.split_once("\n\n").unwrap();
    let ratios: Vec<f64> =
        beside.lines().skip(2).map(|line| line.split('|').nth(4).unwrap().trim().parse().unwrap()).collect();
    assert!(ratios.len() >= 2, "{beside}");
    assert!(ratios.iter().all(|ratio| (0.9..=1.1).contains(ratio)), "{beside}");
}

/// All files under a folder of the repository whose names end with `end`.
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

/// The files and names in `docs/architecture.md` exist, and so do the names in the errors' texts.
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
    assert!(checked > 100, "{checked} names");
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
    // A row of the table: `("NAME", &[(BLOCK, BYTES), …]),`.
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
    let keys = rows().filter(|(name, _)| name.starts_with("runs_")).count();
    let packed: Vec<u64> =
        files("ptx", ".ptx.br").iter().map(|file| fs::metadata(file).unwrap().len()).collect();
    let tuples = table.matches("packed:").count() - integers - others - 1;
    let operators = integers + others;
    let thousands = |number: usize| format!("{},{:03}", number / 1000, number % 1000);
    for count in [
        format!(
            "The {operators} operators, {tuples} tuples and {keys} types of keys are {} entry points",
            thousands(all.len())
        ),
        format!("a file an operator, {} files of", packed.len()),
        format!("The folds for CPUs are {},", others * types + integers * for_each_integer! { count! {} }),
    ] {
        assert!(page.contains(&count), "not in docs/architecture.md: {count}");
    }
    let mean = |bytes: &[usize]| bytes.iter().sum::<usize>() as f64 / bytes.len() as f64 / 1e3;
    for (before, size) in [
        ("for short segments, ", mean(&of("_segments"))),
        ("for rows and larger segments, ", mean(&of("_rows"))),
        ("for columns, ", mean(&of("_columns"))),
        ("entry points, ", all.iter().sum::<usize>() as f64 / 1e6),
        (" files of ", packed.iter().sum::<u64>() as f64 / 1e6),
    ] {
        let said = page.split(before).skip(1).find_map(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        let said = said.unwrap_or_else(|| panic!("no number after {before:?} in docs/architecture.md"));
        assert!((said / size - 1.0).abs() < 0.05, "{before}{said} in docs/architecture.md: it is {size:.1}");
    }
}
