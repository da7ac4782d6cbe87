//! `examples/ladder.rs` from end to end: on the emulator, and from a file of results.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use support::example::executable;

fn run(options: &[&str], folder: &Path) -> Output {
    Command::new(executable("ladder")).args(options).current_dir(folder).output().expect("the example starts")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the example prints UTF-8")
}

/// The output of a run that succeeds without a warning.
#[track_caller]
fn printed(options: &[&str], folder: &Path) -> String {
    let output = run(options, folder);
    assert_eq!((text(output.stderr), output.status.code()), (String::new(), Some(0)));
    text(output.stdout)
}

/// The results of a run on the emulator.
fn results(options: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let json = printed(&[&["--device", "emulator", "--json", "-"], options].concat(), folder.path());
    serde_json::from_str(&json).unwrap()
}

#[test]
fn every_type_and_block_gives_what_the_cpu_gives() {
    for dtype in ["i32", "i64", "f32", "f64"] {
        for threads in ["32", "64", "128", "256", "512", "1024"] {
            let results = results(&["--type", dtype, "--threads", threads, "--n", "5000"]);
            assert_eq!(results.len(), 13);
            for result in results {
                assert_eq!(result["type"], dtype);
                assert_eq!(result["threads"].to_string(), threads);
                assert_eq!(result["device"], "cuda:0 (PTX emulator)");
                assert_eq!((&result["n"], &result["counted_n"]), (&5000.into(), &5000.into()));
                assert!(result["us"].is_null() && result["gbps"].is_null() && result["peak_gbps"].is_null());
                assert!(result["instructions"].as_f64() > Some(1.0), "{result}");
            }
        }
    }
}

/// The counters that the lecture's steps change, for blocks of 256 threads.
#[test]
fn counters_explain_the_steps() {
    let results = results(&["--type", "f32", "--threads", "256", "--n", "2^12"]);
    let counter = |variant: &str, name: &str| {
        let result = results.iter().find(|result| result["variant"] == variant).unwrap();
        result[name].as_f64().unwrap()
    };
    assert_eq!(counter("interleaved_modulo", "barriers"), 9.0);
    assert_eq!(counter("first_add", "barriers"), 8.0);
    assert_eq!(counter("unrolled", "barriers"), 3.0);
    assert_eq!(counter("shuffle", "barriers"), 1.0);
    assert!(counter("interleaved_modulo", "divergent_branches") > 5.0);
    assert!(counter("interleaved_strided", "divergent_branches") < 1.0);
    assert!(counter("interleaved_strided", "bank_conflicts") > 1.0);
    assert_eq!(counter("sequential", "bank_conflicts"), 0.0);
    assert!(counter("first_add", "instructions") < 0.7 * counter("sequential", "instructions"));
    // It would be 4 and 16 without the few loads of later launches.
    assert!((3.9..=4.0).contains(&counter("sequential", "sectors_per_load")));
    assert!((15.0..=16.0).contains(&counter("production", "sectors_per_load")));
}

#[test]
fn the_table() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        ["--device", "emulator", "--n", "2*3^2", "--threads", "32", "--variant", "sequential,atomic"];
    let expected = "\
Sums of i32, 32 threads a block, 18 elements; counters from the emulator

| variant    | barriers a block | divergent branches a warp | lanes active | bank conflicts an access |";
    let table = printed(&options, folder.path());
    assert!(table.starts_with(expected), "{table}");
    let rows: Vec<&str> = table.lines().skip(4).map(|row| row.split(" | ").next().unwrap()).collect();
    assert_eq!(rows, ["| sequential", "| atomic    "]);
}

/// A sweep on the emulator times only the CPU.
#[test]
fn a_sweep() {
    let options = ["--sweep", "2^3..2^6", "--type", "f64", "--threads", "64", "--variant", "block_atomic"];
    let results = results(&options);
    let row = |result: &Value| format!("{} {}", result["variant"], result["n"]);
    let expected = [8, 16, 32, 64]
        .map(|n| ["block_atomic", "cpu", "cpu_one_thread"].map(|name| format!("\"{name}\" {n}")));
    assert_eq!(results.iter().map(row).collect::<Vec<_>>(), expected.concat());
    for result in &results {
        assert_eq!(result["us"].as_f64() > Some(0.0), result["variant"] != "block_atomic", "{result}");
        assert_eq!(result["counted_n"].is_null(), result["variant"] != "block_atomic", "{result}");
    }

    let folder = tempfile::tempdir().unwrap();
    let options = [&["--device", "emulator", "--svg", "charts"], &options[..]].concat();
    let table = printed(&options, folder.path());
    assert!(table.starts_with("Sums of f64, 64 threads a block, on cuda:0 (PTX emulator): microseconds\n"));
    assert_eq!(
        table.lines().skip(4).map(|row| row.split(' ').nth(1).unwrap()).collect::<Vec<_>>(),
        ["2^3", "2^4", "2^5", "2^6"]
    );
    let chart = fs::read_to_string(folder.path().join("charts/sweep.svg")).unwrap();
    assert!(chart.contains("cpu_one_thread") && !chart.contains("block_atomic"), "{chart}");
}

/// Results such as a GPU might give.
const TIMED: &str = "\
variant,type,n,threads,device,us,gbps,peak_gbps,counted_n,barriers,divergent_branches,lanes_active,bank_conflicts,sectors_per_load,instructions
interleaved_modulo,i32,1000,64,cuda:0 (some),8.0,0.5,4.0,,,,,,,
sequential,i32,1000,64,cuda:0 (some),4.0,1.0,4.0,,,,,,,
production,i32,1000,64,cuda:0 (some),1.25,3.2,4.0,,,,,,,
atomic,i32,1000,64,cuda:0 (some),80.0,0.05,4.0,,,,,,,
";

#[test]
fn results_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("timed.csv"), TIMED).unwrap();
    let options = ["--from", "timed.csv", "--svg", "charts", "--json", "timed.json"];
    let expected = "\
Sums of i32, 64 threads a block, 1000 elements on cuda:0 (some)

| variant            | time, µs | GB/s | step | total | % of peak |
| ------------------ | -------: | ---: | ---: | ----: | --------: |
| interleaved_modulo |     8.00 |  0.5 |      |  1.00 |      12.5 |
| sequential         |     4.00 |  1.0 | 2.00 |  2.00 |      25.0 |
| production         |     1.25 |  3.2 | 3.20 |  6.40 |      80.0 |
| atomic             |    80.00 |  0.1 |      |  0.10 |       1.2 |
";
    assert_eq!(printed(&options, folder.path()), expected);
    let json = fs::read_to_string(folder.path().join("timed.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[1]["variant"], &json[1]["us"]), (&"sequential".into(), &4.0.into()));

    for (name, value) in [("bandwidth.svg", "3.2"), ("time.svg", "1.25")] {
        let chart = fs::read_to_string(folder.path().join("charts").join(name)).unwrap();
        for part in ["interleaved_modulo", "sequential", "production", "atomic", value] {
            assert!(chart.contains(&format!("\n{part}\n")), "no {part} in {chart}");
        }
        assert_eq!(chart.contains("the peak of the memory"), name == "bandwidth.svg");
        // Nothing is black or white, because pages are light or dark.
        assert!(!chart.contains("#000000") && !chart.contains("#FFFFFF"), "{chart}");
    }

    // The file has what was read.
    let csv = printed(&["--from", "timed.csv", "--csv", "-"], folder.path());
    assert_eq!(csv, TIMED);
}

#[track_caller]
fn expect_error(options: &[&str], code: i32, message: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = run(options, folder.path());
    let stderr = text(output.stderr);
    assert!(stderr.starts_with("error: ") && stderr.contains(message), "{options:?}: {stderr}");
    assert_eq!(output.status.code(), Some(code));
}

#[test]
fn wrong_options() {
    for length in ["0", "", "x", "-1", "2^", "2^33", "2^64", "1*0", "1.5", "1024*65535*65535"] {
        expect_error(&[&format!("--n={length}")], 2, "a length is a number from 1 to 2^32, such as");
    }
    for sweep in ["2^3", "2^3..3", "2^4..2^3", "2^3..100", "..", "2^3...2^4"] {
        expect_error(&["--sweep", sweep], 2, "invalid value");
    }
    expect_error(&["--sweep", "8..6"], 2, "a sweep is FROM..TO, two powers of two, the lesser first");
    expect_error(&["--sweep", "2^3..2^4", "--n", "5"], 2, "cannot be used with");
    expect_error(&["--from", "a.csv", "--type", "f32"], 2, "cannot be used with");
    for threads in ["48", "0", "2048", "x"] {
        expect_error(&["--threads", threads], 2, "kernels are compiled for [32, 64, 128, 256, 512, 1024]");
    }
    expect_error(&["--variant", "fastest"], 2, "[possible values: all, interleaved_modulo,");
    expect_error(&["--type", "i8"], 2, "[possible values: i32, i64, f32, f64]");
    expect_error(&["--device", "gpu"], 2, "the devices are auto, cpu, emulator, and cuda:N");
}

#[test]
fn what_cannot_be_done() {
    let sequential = ["--n", "64", "--threads", "32", "--variant", "sequential"];
    let cpu = [&["--device", "cpu"], &sequential[..]].concat();
    expect_error(&cpu, 1, "sequential runs only on GPUs, and the data is on the CPU");
    let emulator = [&["--device", "emulator"], &sequential[..]].concat();
    let chart = [&["--csv", "out.csv", "--svg", "charts"], &emulator[..]].concat();
    expect_error(&chart, 1, "nothing to draw: there are no times");
    let unwritable = [&["--csv", "no/such/folder.csv"], &emulator[..]].concat();
    expect_error(&unwritable, 1, "cannot write `no/such/folder.csv`");
    expect_error(&["--from", "none.csv"], 1, "cannot read `none.csv`");
}
