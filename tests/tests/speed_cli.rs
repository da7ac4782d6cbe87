//! `examples/speed.rs` from end to end: files of lines in; tables, charts and errors out.

use std::fs;
use std::process::{Command, Output};

use support::example::executable;
use tempfile::TempDir;

/// Runs the example on files of these lines, with the chart that the option names. Returns also the folder of
/// `0.jsonl`, `1.jsonl`, … and `chart.svg`.
fn run(chart: &str, files: &[&str]) -> (Output, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..files.len()).map(|index| format!("{index}.jsonl")).collect();
    for (name, lines) in names.iter().zip(files) {
        fs::write(folder.path().join(name), lines).unwrap();
    }
    let mut example = Command::new(executable("speed"));
    let example = example.args([chart, "chart.svg"]).args(names).current_dir(&folder);
    (example.output().expect("the example starts"), folder)
}

const OURS: &str = r#"
{"impl":"peak","device":"some GPU","gbps":4000}
{"impl":"gpu_reduce","op":"sum","dtype":"f32","n":1,"segment":0,"us":1.0,"gbps":0.0,"block":32}
{"impl":"gpu_reduce","op":"sum","dtype":"f32","n":1000,"segment":0,"us":2.0,"gbps":2.0}
{"impl":"gpu_reduce","op":"min","dtype":"f64","n":2097152,"segment":0,"us":8.0,"gbps":2097.2}
skipped: this is no line of JSON
{"impl":"gpu_reduce","op":"segsum","dtype":"i8","n":4096,"segment":32,"us":4.0}
"#;

/// `one` lacks a case that we and `other` have, and has one that we lack. `other` has no sums of `f32`.
const PEERS: &str = r#"{"impl":"one","op":"sum","dtype":"f32","n":1000,"segment":0,"us":1.0,"gbps":4.0}
{"impl":"one","op":"sum","dtype":"f32","n":1,"segment":0,"us":4.0,"gbps":0.0}
{"impl":"one","op":"min","dtype":"f64","n":2097152,"segment":0,"us":32.0,"gbps":524.3}
{"impl":"one","op":"argmin","dtype":"f64","n":2097152,"segment":0,"us":32.0,"gbps":524.3}
{"impl":"other","op":"segsum","dtype":"i8","n":4096,"segment":32,"us":40.0,"gbps":0.1}
"#;

#[test]
fn tables_and_chart() {
    // The geometric mean of 4 and 1/2 is √2, and with another 4 it is 2.
    let expected = "\
| reduction    |   µs | GB/s | % of peak | one, µs | times as fast | other, µs | times as fast |
| ------------ | ---: | ---: | --------: | ------: | ------------: | --------: | ------------: |
| sum f32 1    | 1.00 |    0 |           |    4.00 |         4.000 |           |               |
| sum f32 1000 | 2.00 |    2 |           |    1.00 |         0.500 |           |               |
| min f64 2^21 | 8.00 | 2097 |      52.4 |   32.00 |         4.000 |           |               |

| reduction          |   µs | GB/s of the input | one, µs | other, µs | times as fast as the fastest |
| ------------------ | ---: | ----------------: | ------: | --------: | ---------------------------: |
| segsum i8 2^12 2^5 | 4.00 |              1.02 |         |     40.00 |                       10.000 |

| times as fast as |  cases | geometric mean |                      worst |
| ---------------- | -----: | -------------: | -------------------------: |
| one              | 3 of 4 |          2.000 |        0.500, sum f32 1000 |
| one, sum f32     | 2 of 2 |          1.414 |        0.500, sum f32 1000 |
| other            | 1 of 1 |         10.000 | 10.000, segsum i8 2^12 2^5 |
";
    let parts =
        ["Sums of f32: GB/s over length, on some GPU", "gpu_reduce", "one", "the peak of the memory, 4000"];
    expect("--chart", &[OURS, PEERS], expected, &parts);
}

const SEGMENTS: &str = r#"
{"impl":"gpu_reduce","op":"segsum","dtype":"f32","n":67108864,"segment":1,"us":400.0}
{"impl":"gpu_reduce","op":"segsum","dtype":"f32","n":67108864,"segment":100,"us":80.0}
{"impl":"gpu_reduce","op":"segpow","dtype":"f32","n":67108864,"segment":0,"us":160.0}
{"impl":"gpu_reduce","op":"colsum","dtype":"f32","n":67108864,"segment":32,"us":80.0}
{"impl":"gpu_reduce","op":"rowsum","dtype":"f32","n":67108864,"segment":8,"us":80.0}
"#;

/// Now one peer is faster, now the other. Columns have no peer.
const SEGMENTS_OF_PEERS: &str = r#"
{"impl":"one","op":"segsum","dtype":"f32","n":67108864,"segment":1,"us":800.0}
{"impl":"one","op":"segsum","dtype":"f32","n":67108864,"segment":100,"us":800.0}
{"impl":"one","op":"segpow","dtype":"f32","n":67108864,"segment":0,"us":80.0}
{"impl":"other","op":"segsum","dtype":"f32","n":67108864,"segment":1,"us":1600.0}
{"impl":"other","op":"segsum","dtype":"f32","n":67108864,"segment":100,"us":160.0}
"#;

#[test]
fn segments() {
    let expected = "\
| reduction           |     µs | GB/s of the input | one, µs | other, µs | times as fast as the fastest |
| ------------------- | -----: | ----------------: | ------: | --------: | ---------------------------: |
| segsum f32 2^26 1   | 400.00 |               671 |  800.00 |   1600.00 |                        2.000 |
| segsum f32 2^26 100 |  80.00 |              3355 |  800.00 |    160.00 |                        2.000 |
| segpow f32 2^26     | 160.00 |              1678 |   80.00 |           |                        0.500 |
| colsum f32 2^26 2^5 |  80.00 |              3355 |         |           |                              |
| rowsum f32 2^26 2^3 |  80.00 |              3355 |         |           |                              |

| times as fast as |  cases | geometric mean |                      worst |
| ---------------- | -----: | -------------: | -------------------------: |
| one              | 3 of 3 |          2.154 |     0.500, segpow f32 2^26 |
| other            | 2 of 2 |          2.828 | 2.000, segsum f32 2^26 100 |
";
    let title = "Sums of segments of 2^26 f32: GB/s of the input over their length";
    expect(
        "--segments-chart",
        &[SEGMENTS, SEGMENTS_OF_PEERS],
        expected,
        &[title, "Sums of rows: GB/s of the input over their length", "gpu_reduce", "one", "other"],
    );
    // No peer is not an error.
    let alone = "\
| reduction           |     µs | GB/s of the input | times as fast as the fastest |
| ------------------- | -----: | ----------------: | ---------------------------: |
| segsum f32 2^26 1   | 400.00 |               671 |                              |
| segsum f32 2^26 100 |  80.00 |              3355 |                              |
| segpow f32 2^26     | 160.00 |              1678 |                              |
| colsum f32 2^26 2^5 |  80.00 |              3355 |                              |
| rowsum f32 2^26 2^3 |  80.00 |              3355 |                              |
";
    expect("--segments-chart", &[SEGMENTS], alone, &[title, "gpu_reduce"]);
}

/// The printed text, and text lines of the chart.
#[track_caller]
fn expect(chart: &str, files: &[&str], tables: &str, parts: &[&str]) {
    let (output, folder) = run(chart, files);
    assert_eq!((String::from_utf8(output.stderr).unwrap(), output.status.code()), (String::new(), Some(0)));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), tables);
    let chart = fs::read_to_string(folder.path().join("chart.svg")).unwrap();
    for part in parts {
        assert!(chart.contains(&format!("\n{part}\n")), "no {part} in {chart}");
    }
}

#[track_caller]
fn expect_error(chart: &str, files: &[&str], message: &str) {
    let (output, _) = run(chart, files);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error: ") && stderr.contains(message), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn errors() {
    let wrong = |from, to| OURS.replacen(from, to, 1);
    for (line, message) in [
        (
            wrong(r#""us":2.0"#, r#""us":0"#),
            "`1.jsonl`, line 4: not a figure: invalid value: floating point `0.0`, expected a number above 0",
        ),
        (
            wrong(r#""n":1000"#, r#""n":0"#),
            "`1.jsonl`, line 4: not a figure: invalid value: integer `0`, expected a nonzero usize",
        ),
        (wrong(r#""dtype":"f64","#, ""), "`1.jsonl`, line 5: not a figure: missing field `dtype`"),
        (wrong("f64", "f8"), "`1.jsonl`, line 5: not a figure: unknown variant `f8`, expected one of `i8`,"),
        (wrong("4000}", "4000"), "`1.jsonl`, line 2: not a figure: EOF while parsing"),
        (OURS.to_owned() + OURS, "`1.jsonl`, line 10: a second time of gpu_reduce for sum f32 1;"),
    ] {
        expect_error("--chart", &[PEERS, &line], message);
    }
    expect_error("--chart", &[PEERS], r#"there is no line with "impl":"gpu_reduce""#);
    let one_length: Vec<&str> = OURS.lines().take(3).collect();
    expect_error(
        "--chart",
        &[PEERS, &one_length.join("\n")],
        "nothing to draw: a chart takes our sums of f32 of two lengths or more",
    );
    expect_error(
        "--segments-chart",
        &[OURS, SEGMENTS_OF_PEERS],
        "nothing to draw: a chart of segments takes our sums of segments or rows of 2^26 f32",
    );
}
