//! What `docs/ladder.md` quotes is what the files say, and what it counts is what the emulator counts; the README's speed is
//! what the measurements say.

use std::fs;
use std::path::Path;
use std::process::Command;

use support::example::executable;

/// A file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(Path::new("..").join(path)).unwrap()
}

fn page() -> String {
    read("docs/ladder.md")
}

/// The lines, each without what it is indented by.
fn lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim())).collect()
}

/// A fenced block that is tagged with a file is in that file, but for its indentation.
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

/// What an example prints that runs in the root of the repository.
#[track_caller]
fn printed(name: &str, options: &[&str]) -> String {
    let output = Command::new(executable(name)).args(options).current_dir("..").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The table is what the example prints, and "Counters: NAME BEFORE → AFTER, …" of a step are its and the last step's rows.
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

/// The tables and the charts of the README and of `docs/speed.md` are what the example makes of the lines in `docs/speed/`, and so is
/// the summary of the sweep.
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

/// The tables of `docs/scale.md` are what the simulation makes of what was measured, of which it says the same within a tenth.
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
