//! Tests of the program `gpu-reduce` from end to end: input files in, printed lines and errors out.

use std::fmt::Debug;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpu_reduce::{Element, Reduce, Sum, bf16, f16};
use tempfile::TempPath;

#[path = "cli/conditions.rs"]
mod conditions;
#[path = "cli/kinds.rs"]
mod kinds;
#[path = "cli/several.rs"]
mod several;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-reduce");

/// Creates a file of these bytes, deleted on drop.
fn file(extension: &str, bytes: impl AsRef<[u8]>) -> TempPath {
    let mut file = tempfile::Builder::new().suffix(extension).tempfile().expect("a temporary file");
    file.write_all(bytes.as_ref()).expect("the temporary file takes the bytes");
    file.into_temp_path()
}

/// The path of a test file that another program made with `data/make.py`.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Runs the program with `input` on standard input.
fn piped(options: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // The program may end before it has read all input.
    _ = child.stdin.take().expect("it is piped").write_all(input);
    child.wait_with_output().expect("the program ends")
}

/// What never ends is refused when memory is full, before the system ends the program.
#[cfg(target_os = "linux")]
#[test]
fn more_than_memory_holds() {
    let limited = format!("ulimit -v 1500000; exec {PROGRAM} --device cpu --dtype u8 --raw /dev/zero");
    let output = Command::new("sh").args(["-c", &limited]).output().expect("a shell");
    let stderr = text(output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("cannot read `/dev/zero`: it does not fit in memory, which is full after"),
        "{stderr}"
    );
}

/// The standard output of a successful run on the CPU.
#[track_caller]
fn printed(options: &[&str], files: &[&Path]) -> String {
    let output = Command::new(PROGRAM).args(["--device", "cpu"]).args(options).args(files).output();
    let output = output.expect("the program starts");
    assert_eq!(
        (without_times(output.stderr), output.status.code()),
        (String::new(), Some(0)),
        "{options:?} {files:?}"
    );
    text(output.stdout)
}

/// The lines on stderr before the device and times, which come last if they are printed.
#[track_caller]
fn without_times(stderr: Vec<u8>) -> String {
    let stderr = text(stderr);
    let Some((before, times)) = stderr.split_once("device  ") else { return stderr };
    let mut lines = times.lines();
    assert!(lines.next().is_some_and(|device| device.starts_with('c')), "{stderr}");
    for name in ["load    ", "time    ", "GB/s    "] {
        assert!(lines.next().is_some_and(|line| line.starts_with(name)), "{stderr}");
    }
    assert_eq!(lines.next(), None, "{stderr}");
    before.to_owned()
}

fn run(options: &[&str], file: &Path) -> Output {
    Command::new(PROGRAM).args(options).arg(file).output().expect("the program starts")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the program prints UTF-8")
}

/// The names and values that a run on the CPU prints.
#[track_caller]
fn lines(options: &[&str], file: &Path) -> Vec<(String, String)> {
    let printed = printed(options, &[file]);
    let lines = printed.lines().map(|line| line.split_once("  ").expect("a name and a value"));
    lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// Checks the lines of a run without `--op`.
#[track_caller]
fn expect(options: &[&str], file: &Path, [count, sum, min, max, mean]: [&str; 5]) {
    let expected = [("count", count), ("sum", sum), ("min", min), ("max", max), ("mean", mean)];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(lines(options, file), expected);
}

/// Checks that the run fails with this message alone.
#[track_caller]
fn expect_error(options: &[&str], file: &Path, message: &str) {
    let output = run(&[&["--device", "cpu"], options].concat(), file);
    assert_eq!(text(output.stderr), format!("error: {message}\n"));
    assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)));
}

/// A `.npy` file. NumPy pads the header so that the data start at a multiple of 64 bytes; here they start
/// `shift` bytes later.
fn npy(version: u8, header: &str, shift: usize, data: &[u8]) -> Vec<u8> {
    let preamble = if version == 1 { 10 } else { 12 };
    let length = (preamble + header.len() + 1).next_multiple_of(64) + shift - preamble;
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    bytes.extend(&(length as u32).to_le_bytes()[..preamble - 8]);
    bytes.extend(format!("{header:<width$}\n", width = length - 1).as_bytes());
    bytes.extend(data);
    bytes
}

/// The printed CSV, which must be the same on the CPU and on the emulator.
#[track_caller]
fn csv(options: &[&str], file: &Path) -> String {
    let [on_cpu, on_emulator] = ["cpu", "emulator"].map(|device| {
        let output = run(&[&["--device", device], options].concat(), file);
        assert_eq!((text(output.stderr), output.status.code()), (String::new(), Some(0)), "{options:?}");
        text(output.stdout)
    });
    assert_eq!(on_cpu, on_emulator, "{options:?}");
    on_cpu
}

/// Checks the file that `--output` writes.
#[track_caller]
fn expect_output(options: &[&str], file: &Path, expected: &[u8]) {
    let output =
        tempfile::Builder::new().suffix(".npy").tempfile().expect("a temporary file").into_temp_path();
    let name = output.to_str().expect("its name is UTF-8");
    assert_eq!(csv(&[options, &["--output", name]].concat(), file), "");
    let written = std::fs::read(&output).expect("the file was written");
    assert_eq!(written, expected, "{options:?}: {}", String::from_utf8_lossy(&written));
}

/// Checks that the arguments are refused, and how the message starts.
#[track_caller]
fn expect_refused(options: &[&str], file: &Path, message: &str) {
    let output = run(options, file);
    let stderr = text(output.stderr);
    assert!(stderr.starts_with(&format!("error: {message}")), "{options:?}: {stderr}");
    assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(2)));
}

/// A `.npy` file of this type and shape, as NumPy saves it.
fn npy_of(descr: &str, shape: &str, data: &[u8]) -> TempPath {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    file(".npy", npy(1, &header, 0, data))
}

/// Checks a run on these numbers as a raw, a `.npy` and a CSV file.
#[track_caller]
fn expect_in_each_format<T: Element + Debug>(dtype: &str, descr: &str, values: [T; 4], expected: [&str; 5]) {
    let bytes = bytemuck::cast_slice(&values);
    expect(&["--dtype", dtype], &file(".bin", bytes), expected);

    let options: &[&str] = if dtype == "bf16" { &["--dtype", "bf16"] } else { &[] };
    expect(options, &npy_of(descr, "(4,)", bytes), expected);

    let csv = values.iter().fold("x".to_owned(), |csv, value| format!("{csv}\n{value:?}"));
    expect(&["--dtype", dtype], &file(".csv", csv), expected);
}

#[test]
fn each_type_in_each_format() {
    let signed = ["4", "204", "-3", "100", "51.0"];
    expect_in_each_format("i8", "|i1", [-3_i8, 100, 100, 7], signed);
    expect_in_each_format("i16", "<i2", [-3_i16, 100, 100, 7], signed);
    expect_in_each_format("i32", "<i4", [-3_i32, 100, 100, 7], signed);
    expect_in_each_format("i64", "<i8", [-3_i64, 100, 100, 7], signed);
    let unsigned = ["4", "312", "5", "200", "78.0"];
    expect_in_each_format("u8", "|u1", [200_u8, 100, 5, 7], unsigned);
    expect_in_each_format("u16", "<u2", [200_u16, 100, 5, 7], unsigned);
    expect_in_each_format("u32", "<u4", [200_u32, 100, 5, 7], unsigned);
    expect_in_each_format("u64", "<u8", [200_u64, 100, 5, 7], unsigned);
    let float = ["4", "8.75", "-1.5", "8.0", "2.1875"];
    expect_in_each_format("f16", "<f2", [0.25, -1.5, 8.0, 2.0].map(f16::from_f32), float);
    expect_in_each_format("bf16", "<V2", [0.25, -1.5, 8.0, 2.0].map(bf16::from_f32), float);
    expect_in_each_format("f32", "<f4", [0.25_f32, -1.5, 8.0, 2.0], float);
    expect_in_each_format("f64", "<f8", [0.25_f64, -1.5, 8.0, 2.0], float);
}

#[test]
fn more_values_than_one_tile() {
    let values: Vec<u32> = (1..=1_000_000).collect();
    let expected = ["1000000", "500000500000", "1", "1000000", "500000.5"];
    expect(&["--dtype", "u32"], &file("", bytemuck::cast_slice(&values)), expected);
    let csv = values.iter().fold("x\n".to_owned(), |csv, value| csv + &value.to_string() + "\n");
    expect(&["--dtype", "u32"], &file(".csv", csv), expected);
}

#[test]
fn npy_versions_shapes_and_spellings() {
    let values: Vec<f64> = (0..12).map(f64::from).collect();
    let data = bytemuck::cast_slice(&values);
    let expected = ["12", "66.0", "0.0", "11.0", "5.5"];
    for shape in ["(12,)", "(3, 4)", "(12)", "(2,3,2,)", "(1, 12, 1)"] {
        expect(&[], &npy_of("<f8", shape, data), expected);
    }
    expect(&["--dtype", "f64"], &npy_of("<f8", "(12,)", data), expected);
    expect(&[], &npy_of("<f8", "()", &data[8..16]), ["1", "1.0", "1.0", "1.0", "1.0"]);
    expect(&["--dtype", "bf16"], &npy_of("|V2", "(1,)", &[0x80, 0x3f]), ["1", "1.0", "1.0", "1.0", "1.0"]);

    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
    for version in [1, 2, 3] {
        // The magic bytes identify the format, whatever the extension.
        expect(&[], &file(".dat", npy(version, header, 0, data)), expected);
    }
    let header = r#"{"shape":(4,3),"fortran_order":True,"descr":"<f8"}"#;
    expect(&[], &file(".npy", npy(1, header, 0, data)), expected);
}

#[test]
fn npy_data_that_are_not_aligned_for_their_type() {
    let values: Vec<f64> = (0..12).map(f64::from).collect();
    let header = "{'descr': '<f8', 'fortran_order': False, 'shape': (12,), }";
    for shift in [1, 2, 4, 7] {
        let file = file(".npy", npy(1, header, shift, bytemuck::cast_slice(&values)));
        expect(&[], &file, ["12", "66.0", "0.0", "11.0", "5.5"]);
    }
}

#[test]
fn csv_quotes_line_ends_and_columns() {
    let expected = ["3", "6", "1", "3", "2.0"];
    let plain = file(".csv", "a,x,b\n9,1,9\n9,2,9\n9,3,9\n");
    expect(&["--column", "x"], &plain, expected);
    expect(&["--column", "1"], &plain, expected);
    // A name takes precedence over an index.
    expect(&["--header", "--column", "1"], &file(".csv", "1,2\n1,9\n2,9\n3,9"), expected);
    // With --column, files of any name are CSV.
    expect(&["--column", "x"], &file(".txt", "x,y\n1,9\n2,9\n3,9"), expected);

    let rfc4180 = "\"note, \"\"quoted\"\"\",\"x\"\r\n\"two\r\nlines\",\"1\"\r\n,2\r\n\" \",3\r\n";
    expect(&["--column", "x"], &file(".CSV", rfc4180), expected);
    expect(
        &["--column", "note, \"quoted\"", "--dtype", "u8"],
        &file(".csv", "\"note, \"\"quoted\"\"\"\n7"),
        ["1", "7", "7", "7", "7.0"],
    );
    expect(&[], &file(".csv", "\u{feff}x\n 1 \n\n2e0\n+3."), ["3", "6.0", "1.0", "3.0", "2.0"]);
    expect(&[], &file(".csv", "x\n1\nNaN\n-inf"), ["3", "NaN", "NaN", "NaN", "NaN"]);
}

#[test]
fn csv_without_a_header() {
    let expected = ["3", "9", "1", "5", "3.0"];
    for numbers in [
        "1\n3\n5",
        "1\r\n3\r\n5\r\n",
        "\n\r\n\n1\n\n3\n5\n",
        "\u{feff}1\n3\n5\n",
        "\u{feff}\n1\n3\n5\n",
        "\"1\"\n\"3\"\n\"5\"",
        " +1 \n\t3\n05",
    ] {
        for options in [&[][..], &["--no-header"], &["--column", "0"], &["--no-header", "--column", "0"]] {
            expect(options, &file(".csv", numbers), expected);
        }
        let rest = ["2", "8", "3", "5", "4.0"];
        expect(&["--header"], &file(".csv", numbers), rest);
    }
    let floats = file(".csv", " +1. \n\t3e0\n0.5E+1");
    expect(&[], &floats, ["3", "9.0", "1.0", "5.0", "3.0"]);
    expect(&["--header"], &floats, ["2", "8.0", "3.0", "5.0", "4.0"]);
    expect(&["--column", "2"], &file(".csv", "7,7,1\n8,8,3\n9,9,5"), expected);
    expect(&["--column", "0", "--dtype", "i8"], &file("", "1,-2\n3,-2\n5,-2"), ["3", "9", "1", "5", "3.0"]);
    expect(&[], &file(".csv", "7"), ["1", "7", "7", "7", "7.0"]);
    expect(&["--no-header", "--column", "1"], &file(".csv", "bob,1\n,3\n0,5\n"), expected);
    // The index is also the name of a column, if the first row were a header.
    expect(&["--no-header", "--column", "1"], &file(".csv", "7,1\n7,3\n7,5\n"), expected);
    let none = "none (empty input)";
    expect(&["--no-header"], &file(".csv", ""), ["0", "0.0", none, none, none]);

    let expect_no_name = |options: &[&str], column, last| {
        let message = format!(
            "the CSV file has no column `{column}`: its columns have no names, only indices from 0 to \
             {last}; if the first row has the names, say so with --header"
        );
        expect_error(options, &file(".csv", "7,8\n3,4"), &message);
    };
    expect_no_name(&["--column", "x"], "x", 1);
    expect_no_name(&["--column", "2"], "2", 1);
    expect_no_name(&["--no-header", "--column", "2"], "2", 1);
    for (options, csv, message) in [
        (&[][..], "1,2\n3,4", "there are several columns or arrays; choose one with --column: `0`, `1`"),
        (&["--no-header"], "x\n1", "line 1: `x` in column `0` is not a valid f64"),
        (&["--no-header"], "\u{feff}\n\nx\n1", "line 3: `x` in column `0` is not a valid f64"),
        (&["--dtype", "i64"], "\n1.5\n2", "line 2: `1.5` in column `0` is not a valid i64"),
        (&[], "1\n2,3", "line 2: 2 fields, but the first row has 1"),
    ] {
        expect_error(options, &file(".csv", csv), message);
    }
}

#[test]
fn a_first_row_that_may_be_a_header() {
    for (options, csv, row) in [
        // `1` is a column's name if the first row is a header, else an index.
        (&["--column", "1"][..], "1,2\n1,9\n2,9", "`1`, `2`"),
        (&["--column", "1"], ",0,1\n0,7,8", "``, `0`, `1`"),
        // The field may be the column's first number.
        (&["--column", "1"], "bob,7\nann,5", "`bob`, `7`"),
        (&["--column", "1"], "bob,1e3\nann,5", "`bob`, `1e3`"),
        (&["--column", "1"], "bob,nan,7\nann,5,7", "`bob`, `nan`, `7`"),
        (&["--column", "0"], ",7\n5,7", "``, `7`"),
        (&["--column", "0"], "1,2,\n3,4,", "`1`, `2`, ``"),
        (&[], "nan\n1\n2", "`nan`"),
        (&[], "Inf\n1\n2", "`Inf`"),
        (&[], "\"1,000\"\n2\n3", "`1,000`"),
        (&[], "1_000\n2\n3", "`1_000`"),
        (&[], "$5\n6\n7", "`$5`"),
    ] {
        let message = format!(
            "the first row of the CSV file may be a header or data; say which with --header or --no-header: \
             {row}"
        );
        expect_error(options, &file(".csv", csv), &message);
    }

    let expected = ["2", "4", "1", "3", "2.0"];
    expect(&["--header", "--column", "1"], &file(".csv", "bob,7\n,1\n,3"), expected);
    expect(&["--header"], &file(".csv", "nan\n1\n3"), expected);
    // A row with numbers is a header if it names the column.
    expect(&["--column", "name"], &file(".csv", "name,2021\n1,5\n3,5"), expected);
    expect(&["--column", "0"], &file(".csv", "name,2021\n1,5\n3,5"), expected);
    expect(&["--column", "2021"], &file(".csv", "name,2021\nbob,1\nann,3"), expected);
    expect(&["--column", "x"], &file(".csv", ",x\n0,1\n1,3"), expected);
    expect(&["--column", "2"], &file(".csv", ",x,y2\n0,1,1\n1,3,3"), expected);
}

#[test]
fn columns_of_one_name() {
    let twice = file(".csv", "x,y, x \n1,2,3\n1,2,3");
    let message = "several columns are named `x`; choose one by its index: `0`, `2`";
    for options in [&["--column", "x"][..], &["--column", "x", "--header"]] {
        expect_error(options, &twice, message);
    }
    expect(&["--column", "y"], &twice, ["2", "4", "2", "2", "2.0"]);
    expect(&["--column", "0"], &twice, ["2", "2", "1", "1", "1.0"]);
    expect(&["--column", "2"], &twice, ["2", "6", "3", "3", "3.0"]);
}

#[test]
fn tables_with_tabs() {
    let table = file(".tsv", "x, y\tz\n1\t4\n\"2\"\t5\n3\t\n");
    expect(&["--column", "x, y"], &table, ["3", "6", "1", "3", "2.0"]);
    expect_error(
        &["--column", "z"],
        &table,
        "line 4: `` in column `z` is a missing value: --skip-missing leaves such rows out",
    );
    let numbers = file(".TSV", "7\t4\n8\t5\n9\t6\n");
    expect(&["--column", "1"], &numbers, ["3", "15", "4", "6", "5.0"]);
}

#[test]
fn text_is_csv_or_nothing() {
    let numbers = "1\n3\n5\n10\n";
    let all = ["4", "19", "1", "10", "4.75"];
    for extension in [".txt", ".TXT", "", ".dat"] {
        expect(&[], &file(extension, numbers), all);
    }
    expect(&[], &file("", "x\r\n-1.5\r\n"), ["1", "-1.5", "-1.5", "-1.5", "-1.5"]);
    expect(&["--dtype", "u8"], &file(".txt", numbers), ["4", "19", "1", "10", "4.75"]);
    for (extension, content, options) in [
        (".json", "[1, 3, 5]", &[][..]),
        (".json", "[\n1, 3, 5]\n", &[]),
        (".log", numbers, &[]),
        // It may also be raw numbers of this type.
        ("", numbers, &["--dtype", "u8"]),
        (".dat", "x\r\n-1.5\r\n", &["--dtype", "u8"]),
        (".bin", "\u{feff}1 2\n3 4\n", &["--dtype", "u8"]),
    ] {
        let file = file(extension, content);
        let message = format!(
            "`{}` is text, not raw numbers: read it as CSV with --column, --header or --no-header, or read \
             its bytes as numbers with --raw and --dtype",
            file.display()
        );
        expect_error(options, &file, &message);
        let count = lines(&["--dtype", "u8", "--raw"], &file);
        assert_eq!(count[0].1, file.metadata().expect("the file is there").len().to_string());
    }
    expect(&["--no-header"], &file(".log", numbers), all);
    expect(&["--header"], &file("", "x\r\n-1.5\r\n"), ["1", "-1.5", "-1.5", "-1.5", "-1.5"]);
    // Printable bytes are not text without a line end or without a number.
    expect(&["--dtype", "u8"], &file(".bin", "12345678"), ["8", "420", "49", "56", "52.5"]);
    expect(
        &["--dtype", "u8"],
        &file(".bin", [100_u8, 50, 10]),
        ["3", "160", "10", "100", "53.333333333333336"],
    );
}

#[test]
fn known_formats_are_not_raw() {
    let xlsx = std::fs::read(data("no_arrays.zip")).expect("the file is there");
    let tar = [&[b'x'; 257][..], b"ustar"].concat();
    let (x, u8) = (&["--column", "x"][..], &["--dtype", "u8"][..]);
    let zip = "a zip archive (as .xlsx files are) that is no .npz file and has not one file";
    for (options, extension, content, what) in [
        // Formats known by extension, and by first bytes.
        (u8, ".npz", &b""[..], zip),
        (u8, ".dat", &xlsx, zip),
        (x, ".csv", &xlsx, zip),
        (u8, "", &tar, "a tar archive"),
        (u8, ".h5", b"12345678", "an HDF5 file"),
        (u8, "", b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (&[], ".feather", b"FEA1....", "a Feather file of version 1"),
        // Options for CSV do not override a known format.
        (x, ".csv", b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    ] {
        let file = file(extension, content);
        let message = format!(
            "`{}` is {what}, which is not supported: convert it to CSV, .npy or Parquet, or read its bytes \
             as numbers with --raw and --dtype",
            file.display()
        );
        expect_error(options, &file, &message);
        let count = lines(&["--dtype", "u8", "--raw"], &file);
        assert_eq!(count[0].1, content.len().to_string());
    }

    let utf16: Vec<_> = "\u{feff}x\n1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (options, extension, content) in [(x, ".txt", &utf16[2..]), (&[], ".csv", &[1, 0, 2, 0])] {
        let file = file(extension, content);
        let message = format!(
            "`{}` has NUL bytes, as UTF-16 and binary files do, so it is not CSV: save it as UTF-8, or \
             read its bytes as numbers with --raw and --dtype",
            file.display()
        );
        expect_error(options, &file, &message);
    }
}

#[test]
fn raw_says_that_bytes_are_numbers() {
    let ones = ["2", "2", "1", "1", "1.0"];
    expect(&["--raw", "--dtype", "i32"], &file(".csv", bytemuck::cast_slice(&[1, 1])), ones);
    expect(&["--raw", "--dtype", "i32"], &file(".npy", bytemuck::cast_slice(&[1, 1])), ones);
    let count = lines(&["--raw", "--dtype", "u8", "--op", "max"], &npy_of("<i4", "(1,)", &[0; 4]));
    assert_eq!(count, [("count", "132"), ("max", "147")].map(|(name, value)| (name.into(), value.into())));

    let file = file(".csv", "x\n1\n");
    for options in [
        &["--raw"][..],
        &["--raw", "--dtype", "u8", "--column", "x"],
        &["--raw", "--dtype", "u8", "--header"],
        &["--raw", "--dtype", "u8", "--no-header"],
        &["--header", "--no-header"],
    ] {
        let output = run(options, &file);
        assert!(text(output.stderr).starts_with("error: "), "{options:?}");
        assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(2)), "{options:?}");
    }
}

#[test]
fn means_of_sums_that_wrap_or_overflow() {
    let mean = |dtype: &str, bytes: &[u8]| {
        ["cpu", "emulator"].map(|device| {
            let output =
                run(&["--dtype", dtype, "--op", "mean", "--device", device, "--raw"], &file(".bin", bytes));
            assert_eq!((without_times(output.stderr), output.status.code()), (String::new(), Some(0)));
            let lines = text(output.stdout);
            lines.lines().find_map(|line| line.strip_prefix("mean   ")).expect("a mean").to_owned()
        })
    };
    let of_i64 = |values: &[i64]| mean("i64", bytemuck::cast_slice(values));
    let of_u64 = |values: &[u64]| mean("u64", bytemuck::cast_slice(values));
    let of_f32 = |values: &[f32]| mean("f32", bytemuck::cast_slice(values));
    let of_f64 = |values: &[f64]| mean("f64", bytemuck::cast_slice(values));
    assert_eq!(of_i64(&[i64::MAX; 2]), ["9.223372036854776e18"; 2]);
    assert_eq!(of_i64(&[i64::MIN; 3]), ["-9.223372036854776e18"; 2]);
    assert_eq!(of_i64(&[i64::MAX, i64::MIN, -1, 6]), ["1.0"; 2]);
    assert_eq!(of_u64(&[u64::MAX; 2]), ["1.8446744073709552e19"; 2]);
    assert_eq!(of_f32(&[f32::MAX; 4]), [format!("{:?}", f32::MAX), format!("{:?}", f32::MAX)]);
    assert_eq!(of_f64(&[f64::MAX; 3]), ["1.7976931348623157e308"; 2]);
    assert_eq!(of_f64(&[-1e308, -1.5e308]), ["-1.25e308"; 2]);
    assert_eq!(of_f64(&[f64::INFINITY, 1.0]), ["inf"; 2]);
    assert_eq!(of_f64(&[f64::INFINITY, -f64::INFINITY]), ["NaN"; 2]);

    let most = file(".bin", bytemuck::cast_slice(&[i64::MAX; 2]));
    let max = "9223372036854775807";
    expect(&["--dtype", "i64"], &most, ["2", "-2", max, max, "9.223372036854776e18"]);
}

#[test]
fn op_chooses_what_is_printed() {
    let file = file(".bin", bytemuck::cast_slice(&[2_i32, 3, -4, 5]));
    for (options, expected) in [
        (&["--op", "sum"][..], &[("sum", "6")][..]),
        (&["--op", "prod"], &[("prod", "-120")]),
        (&["--op", "min"], &[("min", "-4")]),
        (&["--op", "max"], &[("max", "5")]),
        (&["--op", "mean"], &[("mean", "1.5")]),
        (&["--op", "max,min"], &[("min", "-4"), ("max", "5")]),
        (&["--op", "mean", "--op", "sum"], &[("sum", "6"), ("mean", "1.5")]),
        (&["--op", "argmin,argmax"], &[("argmin", "2 (-4)"), ("argmax", "3 (5)")]),
        (
            &["--op", "var,std", "--ddof", "1"],
            &[("var", "15.0 (ddof 1)"), ("std", "3.872983346207417 (ddof 1)")],
        ),
        (&["--op", "minmax,sumsq,norm_l1"], &[("minmax", "-4 5"), ("sumsq", "54"), ("norm_l1", "14.0")]),
        (
            &["--op", "moments,skewness,kurtosis"],
            &[
                ("moments", "1.5 11.25 -30.0 267.5625"),
                ("skewness", "-0.7950463919999252"),
                ("kurtosis", "-0.885925925925926"),
            ],
        ),
        (
            &["--op", "bit_and,bit_or,bit_xor,compensated_sum"],
            &[("compensated_sum", "6"), ("bit_and", "0"), ("bit_or", "-1"), ("bit_xor", "-8")],
        ),
        (&["--op", "any,all,count_nonzero"], &[("any", "true"), ("all", "true"), ("count_nonzero", "4")]),
        (
            &["--op", "exact_sum,exact_sum_twofold,exact_mean"],
            &[("exact_sum", "6"), ("exact_sum_twofold", "6.0 0.0"), ("exact_mean", "1.5")],
        ),
    ] {
        let lines = lines(&[options, &["--dtype", "i32"]].concat(), &file);
        let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(lines, [&[("count", "4")], expected].concat(), "{options:?}");
    }
    let message = "bit_and, bit_or and bit_xor take integers, not f32";
    expect_error(&["--op", "sum,bit_or", "--dtype", "f32"], &file, message);
}

#[test]
fn an_empty_input() {
    let none = "none (empty input)";
    for (options, file) in [
        (&["--dtype", "f32"][..], file(".bin", "")),
        (&[], npy_of("<f8", "(0,)", &[])),
        (&[], npy_of("<f8", "(3, 0, 4)", &[])),
        (&[], file(".csv", "x\n")),
    ] {
        expect(options, &file, ["0", "0.0", none, none, none]);
        let prod = lines(&[options, &["--op", "prod"]].concat(), &file);
        assert_eq!(prod[1], ("prod".to_owned(), "1.0".to_owned()));
        for op in ["min", "max"] {
            let output = run(&[options, &["--device", "cpu", "--op", op]].concat(), &file);
            let message = text(output.stderr);
            assert!(message.starts_with("error: ") && message.contains("empty"), "{message}");
            assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)));
        }
        let message = "mean has no value, because the input is empty: choose sum, prod or a count, or leave \
                       out --op";
        expect_error(&[options, &["--op", "mean"]].concat(), &file, message);
    }
}

#[test]
fn devices() {
    let file = file(".bin", bytemuck::cast_slice(&[1_u16, 2, 3]));
    let results = "count  3\nsum    6\nmin    1\nmax    3\nmean   2.0\n";
    let output = run(&["--device", "auto", "--dtype", "u16"], &file);
    assert_eq!((text(output.stdout), output.status.code()), (results.into(), Some(0)));
    let times = text(output.stderr);
    assert!(times.starts_with("device  c"), "{times}");

    let emulated = |options: &[&str], driver: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(options).args(["--dtype", "u16"]).arg(&*file).env("GPU_REDUCE_DRIVER", driver);
        let output = command.output().expect("the program starts");
        assert_eq!((text(output.stdout), output.status.code()), (results.into(), Some(0)));
        let times = text(output.stderr);
        assert!(times.starts_with("device  cuda:0 (PTX emulator)\n"), "{times}");
    };
    emulated(&["--device", "emulator"], "");
    emulated(&["--device", "cuda:0"], "emulator");
    for device in ["emulated", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "CPU", ""] {
        let output = run(&["--device", device, "--dtype", "u16"], &file);
        let expected = format!(
            "error: invalid value '{device}' for '--device <DEVICE>': \
             unknown device; the devices are auto, cpu, emulator, and cuda:N, such as cuda:0\n"
        );
        let message = text(output.stderr);
        assert!(message.starts_with(&expected), "{message}");
        assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(2)));
    }

    // No machine has that many GPUs.
    let output = run(&["--device", "cuda:4096", "--dtype", "u16"], &file);
    assert!(text(output.stderr).starts_with("error: "));
    assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)));
}

#[test]
fn bad_files() {
    let missing = file(".npy", "").to_path_buf();
    let system = std::fs::read(&missing).expect_err("the file was deleted with its guard");
    expect_error(&[], &missing, &format!("cannot read `{}`: {system}", missing.display()));

    let name_the_type = "unknown format: if the file holds raw numbers, name their type with --dtype; if it \
                         is CSV, say so with --header or --no-header";
    expect_error(&[], &file(".bin", "12345678"), name_the_type);
    let nothing = "the input is empty: if it should hold raw numbers, name their type with --dtype";
    expect_error(&[], &file(".bin", ""), nothing);
    for (dtype, size) in [("i16", 2), ("bf16", 2), ("f32", 4), ("u64", 8)] {
        let message = format!("9 bytes are not a whole number of {dtype} elements of {size} bytes");
        expect_error(&["--dtype", dtype], &file(".bin", "123456789"), &message);
    }
}

#[test]
fn bad_npy_headers() {
    let valid = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    let whole = npy(1, valid, 0, &[0; 8]);
    for (bytes, reason) in [
        (&b""[..], r"it does not start with the bytes \x93NUMPY"),
        (b"NUMPY", r"it does not start with the bytes \x93NUMPY"),
        (&whole[..6], "the file ends within its header"),
        (&whole[..7], "the file ends within its header"),
        (&whole[..9], "the file ends within its header"),
        (&whole[..100], "the file ends within its header"),
        (&npy(2, valid, 0, &[])[..10], "the file ends within its header"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "the file ends within its header"),
        (b"\x93NUMPY\x04\x00\x02\x00\x00\x00{}", "version 4.0 is not 1.0, 2.0 or 3.0"),
        (b"\x93NUMPY\x01\x01\x02\x00{}", "version 1.1 is not 1.0, 2.0 or 3.0"),
    ] {
        expect_error(&[], &file(".npy", bytes), &format!("not a valid .npy file: {reason}"));
    }

    for header in [
        "",
        "{}",
        "[1, 2]",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,),",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'shape': (2,)}",
        "{'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'extra': 1}",
        "{'descr' '<f4', 'fortran_order' False, 'shape' (2,)}",
        "{descr: '<f4', fortran_order: False, shape: (2,)}",
    ] {
        let message = format!(
            "not a valid .npy file: `{header}` is not a dictionary of descr, fortran_order and shape"
        );
        expect_error(&[], &file(".npy", npy(1, header, 0, &[0; 8])), &message);
    }

    for shape in ["2", "[2]", "(-2,)", "(2.0,)", "(2,,)", "(,2)", "(4294967296, 4294967296)"] {
        let message =
            format!("not a valid .npy file: `{shape}` is not a shape whose elements can be counted");
        expect_error(&[], &npy_of("<f4", shape, &[0; 8]), &message);
    }
}

#[test]
fn npy_files_of_another_type_or_length() {
    let supported = "supported are booleans, integers of 8 to 64 bits, floats of 16 to 64 bits, and, with \
                     --dtype bf16, `<V2`, which is how NumPy saves bfloat16";
    for descr in ["<c8", ">c16", "|O", "|S3", "<U5", "<M8[ns]", "<f16", "<V2", "|V4", "f4"] {
        let message = format!("the .npy file holds `{descr}`; {supported}");
        expect_error(&[], &npy_of(descr, "(2,)", &[0; 8]), &message);
    }
    let header = "{'descr': [('x', '<f4'), ('y, z', '>i4')], 'fortran_order': False, 'shape': (1,), }";
    let message = format!("the .npy file holds `[('x', '<f4'), ('y, z', '>i4')]`; {supported}");
    expect_error(&[], &file(".npy", npy(3, header, 0, &[0; 8])), &message);

    let floats = npy_of("<f4", "(2,)", &[0; 8]);
    expect_error(&["--dtype", "f64"], &floats, "the file holds `<f4`, but --dtype says f64");
    expect_error(&["--dtype", "bf16"], &floats, "the file holds `<f4`, but --dtype says bf16");
    for options in [&["--column", "x"][..], &["--by", "x"], &["--header"], &["--no-header"]] {
        let message = format!(
            "{} is for CSV files; this is a NumPy file, which has no named columns or keys",
            options[0]
        );
        expect_error(options, &floats, &message);
    }

    for (shape, count, bytes) in
        [("(3, 1)", 3, 8), ("(2,)", 2, 7), ("(2,)", 2, 9), ("()", 1, 0), ("(0,)", 0, 4)]
    {
        let hint = if bytes < 4 * count { ": the file is cut off" } else { "" };
        let message = format!(
            "the .npy file's shape {shape} needs {count} elements of 4 bytes, but {bytes} bytes follow the \
             header{hint}"
        );
        expect_error(&[], &npy_of("<f4", shape, &vec![0; bytes]), &message);
    }
}

#[test]
fn bad_csv_files() {
    let x: &[&str] = &["--column", "x"];
    let missing = |field: &str| {
        format!("line 3: `{field}` in column `x` is a missing value: --skip-missing leaves such rows out")
    };
    for (options, csv, message) in [
        (x, "", "the CSV file is empty; its first row must name its columns"),
        (x, "a,b\n1,2", "there is no column or array `x`; there are `a`, `b`"),
        (&["--column", "2"], "a,b\n1,2", "there is no column or array `2`; there are `a`, `b`"),
        (&[], "a,b\n1,2", "there are several columns or arrays; choose one with --column: `a`, `b`"),
        (x, "x\n1\ntwo\n3", "line 3: `two` in column `x` is not a valid f64"),
        (x, "x,y\n1,1\n,2\n", &missing("")),
        (x, "x\n1\n\"\"\n", &missing("")),
        (x, "x\n1\nn/a\n", &missing("n/a")),
        (x, "x\n1,5\n", "line 2: 2 fields, but the header row has 1"),
        (x, "y,x\n1,2\n3\n", "line 3: 1 fields, but the header row has 2"),
        // Line numbers count all lines of the file: CRLF, blank lines, and line ends in quoted fields.
        (x, "x\r\n1\r\n\r\ntwo\r\n", "line 4: `two` in column `x` is not a valid f64"),
        (x, "y,x\n\"a\nb\",1\nc,two\n", "line 4: `two` in column `x` is not a valid f64"),
        (&["--dtype", "u8"], "x\n255\n256", "line 3: `256` in column `x` is not a valid u8"),
        (&["--dtype", "u8"], "x\n-1", "line 2: `-1` in column `x` is not a valid u8"),
        (&["--dtype", "i64"], "x\n1.5", "line 2: `1.5` in column `x` is not a valid i64"),
        (&["--dtype", "f16"], "x\nhalf", "line 2: `half` in column `x` is not a valid f16"),
        (&["--dtype", "bf16"], "x\n1,5", "line 2: 2 fields, but the header row has 1"),
    ] {
        expect_error(options, &file(".csv", csv), message);
    }
    let not_utf8 = file(".csv", b"x\n1\n\xff\n");
    expect_error(&[], &not_utf8, "line 3: `\u{fffd}` in column `x` is not a valid f64");
}

#[test]
fn rows_and_columns() {
    let values: Vec<i32> = (1..=12).collect();
    let data = bytemuck::cast_slice(&values);
    let raw = file(".bin", data);
    let fortran = |shape: &str| {
        let header = format!("{{'descr': '<i4', 'fortran_order': True, 'shape': {shape}, }}");
        file(".npy", npy(1, &header, 0, data))
    };
    let of_rows = "row,sum,min,max,mean\n0,10,1,4,2.5\n1,26,5,8,6.5\n2,42,9,12,10.5\n";
    let of_columns = "column,sum,min,max,mean\n0,15,1,9,5.0\n1,18,2,10,6.0\n2,21,3,11,7.0\n3,24,4,12,8.0\n";
    let as_other = |csv: &str, from: &str, to: &str| csv.replacen(from, to, 1);
    for (options, expected) in [(["--rows", "3"], of_rows), (["--columns", "4"], of_columns)] {
        let of_raw: &[&str] = &[&options[..], &["--dtype", "i32"]].concat();
        assert_eq!(csv(of_raw, &raw), expected);
        assert_eq!(csv(&[of_raw, &["--raw"]].concat(), &raw), expected);
        assert_eq!(csv(&options, &npy_of("<i4", "(12,)", data)), expected);
        let matrix = npy_of("<i4", "(3, 4)", data);
        assert_eq!(csv(&options, &matrix), expected);
        assert_eq!(csv(&[options[0], "--ddof", "0"], &matrix), expected);
    }
    // In Fortran order the axes of the same bytes are swapped.
    assert_eq!(csv(&["--columns", "3"], &fortran("(4, 3)")), as_other(of_rows, "row", "column"));
    assert_eq!(csv(&["--rows", "4"], &fortran("(4, 3)")), as_other(of_columns, "column", "row"));
    assert_eq!(csv(&["--rows", "3"], &fortran("(12,)")), of_rows);

    let ops = &["--rows", "2", "--dtype", "i32", "--op", "argmax,var,prod,max", "--ddof", "1"];
    assert_eq!(csv(ops, &raw), "row,prod,max,var,argmax\n0,720,6,3.5,5\n1,665280,12,3.5,5\n");
    assert_eq!(csv(&["--rows", "12", "--dtype", "i32", "--op", "sum"], &raw).lines().count(), 13);

    // The number may also be left out at the end.
    let matrix = npy_of("<i4", "(3, 4)", data);
    let output = Command::new(PROGRAM).args(["--device", "cpu"]).arg(&*matrix).arg("--rows").output();
    assert_eq!(text(output.expect("the program starts").stdout), of_rows);
}

#[test]
fn slices_of_each_operator() {
    let x = file(".bin", bytemuck::cast_slice(&[2.0_f64, 3.0, -4.0, 5.0, f64::NAN, 1.0, 0.0, 1.0]));
    for (op, expected) in [
        ("std", "row,std\n0,3.5\n1,NaN\n"),
        ("minmax", "row,minmax_1,minmax_2\n0,-4.0,5.0\n1,NaN,NaN\n"),
        ("any,all", "row,any,all\n0,true,true\n1,true,false\n"),
        ("count_nonzero,count_nan", "row,count_nonzero,count_nan\n0,4,0\n1,3,1\n"),
        ("nansum,nanargmax", "row,nansum,nanargmax\n0,6.0,3\n1,2.0,1\n"),
        ("sumsq,norm_l1", "row,sumsq,norm_l1\n0,54.0,14.0\n1,NaN,NaN\n"),
    ] {
        let output = run(&["--device", "cpu", "--dtype", "f64", "--rows", "2", "--op", op], &x);
        let expected =
            if op == "std" { expected.replace("3.5", "3.3541019662496847") } else { expected.to_owned() };
        assert_eq!((text(output.stdout), text(output.stderr)), (expected, String::new()));
    }
    let message = "bit_and, bit_or and bit_xor take integers, not f64";
    expect_error(&["--dtype", "f64", "--rows", "2", "--op", "bit_or"], &x, message);
}

#[test]
fn each_slice_has_the_bits_of_reducing_it_alone() {
    let (rows, columns) = (7, 5_000);
    let values: Vec<f32> =
        (0..rows * columns).map(|i| ((i * 2_654_435_761) % 1_000_003) as f32 * 0.37).collect();
    let x = file(".bin", bytemuck::cast_slice(&values));
    let sums = |axis: &str, number: usize| {
        let csv = csv(&["--dtype", "f32", "--op", "sum", axis, &number.to_string()], &x);
        let lines = csv.lines().skip(1).enumerate();
        let sum = |(index, line): (usize, &str)| {
            let (label, sum) = line.split_once(',').expect("two fields");
            assert_eq!(label, index.to_string());
            sum.parse().expect("a sum")
        };
        lines.map(sum).collect::<Vec<f32>>()
    };
    let alone = |slice: Vec<f32>| slice.reduce::<Sum, 256>().expect("it has a sum");
    let of_rows: Vec<_> = values.chunks(columns).map(|row| alone(row.to_vec())).collect();
    assert_eq!(sums("--rows", rows), of_rows);
    let column = |column: usize| values.iter().skip(column).step_by(rows).copied().collect();
    let of_columns: Vec<_> = (0..rows).map(|index| alone(column(index))).collect();
    assert_eq!(sums("--columns", rows), of_columns);
}

#[test]
fn output_as_npy() {
    fn expect_of<T: Element, S: bytemuck::Pod, M: bytemuck::Pod>(
        (dtype, descr): (&str, &str),
        values: [T; 4],
        (sum_descr, sums): (&str, [S; 2]),
        mins: [T; 2],
        (mean_descr, means): (&str, [M; 2]),
    ) {
        let x = file(".bin", bytemuck::cast_slice(&values));
        let output = |descr: &str, data: &[u8]| {
            npy(1, &format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2,), }}"), 0, data)
        };
        let options = |op| ["--dtype", dtype, "--rows", "2", "--op", op];
        expect_output(&options("sum"), &x, &output(sum_descr, bytemuck::cast_slice(&sums)));
        expect_output(&options("mean"), &x, &output(mean_descr, bytemuck::cast_slice(&means)));
        expect_output(&options("argmin"), &x, &output("<u8", bytemuck::cast_slice(&[0_u64, 1])));
        if descr.is_empty() {
            let message = "NumPy has no type for the results of min (bf16 or 128-bit integers): leave \
                           out --output to print CSV";
            expect_error(&[&options("min")[..], &["--output", "x.npy"]].concat(), &x, message);
        } else {
            expect_output(&options("min"), &x, &output(descr, bytemuck::cast_slice(&mins)));
        }
    }
    let (signed, unsigned) = (("<i8", [97_i64, 107]), ("<u8", [97_u64, 107]));
    let (wide, single) = (("<f8", [48.5_f64, 53.5]), ("<f4", [48.5_f32, 53.5]));
    let sums = ("<f4", [97.0_f32, 107.0]);
    expect_of(("i8", "|i1"), [-3_i8, 100, 100, 7], signed, [-3, 7], wide);
    expect_of(("i16", "<i2"), [-3_i16, 100, 100, 7], signed, [-3, 7], wide);
    expect_of(("i32", "<i4"), [-3_i32, 100, 100, 7], signed, [-3, 7], wide);
    expect_of(("i64", "<i8"), [-3_i64, 100, 100, 7], signed, [-3, 7], wide);
    expect_of(("u8", "|u1"), [2_u8, 95, 100, 7], unsigned, [2, 7], wide);
    expect_of(("u16", "<u2"), [2_u16, 95, 100, 7], unsigned, [2, 7], wide);
    expect_of(("u32", "<u4"), [2_u32, 95, 100, 7], unsigned, [2, 7], wide);
    expect_of(("u64", "<u8"), [2_u64, 95, 100, 7], unsigned, [2, 7], wide);
    let f16s = [-3.0, 100.0, 100.0, 7.0].map(f16::from_f32);
    expect_of(("f16", "<f2"), f16s, sums, [f16s[0], f16s[3]], single);
    let bf16s = [-3.0, 100.0, 100.0, 7.0].map(bf16::from_f32);
    expect_of(("bf16", ""), bf16s, sums, [bf16s[0], bf16s[3]], single);
    expect_of(("f32", "<f4"), [-3_f32, 100.0, 100.0, 7.0], sums, [-3.0, 7.0], single);
    expect_of(("f64", "<f8"), [-3_f64, 100.0, 100.0, 7.0], ("<f8", [97.0, 107.0]), [-3.0, 7.0], wide);

    let csv = file(".csv", "k,x\n1,5\n1,6\n2,7\n");
    let header = "{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }";
    let sums = npy(1, header, 0, bytemuck::cast_slice(&[11_i64, 7]));
    expect_output(&["--by", "k", "--op", "sum"], &csv, &sums);
    // No results.
    let none = npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }", 0, &[]);
    expect_output(&["--by", "k", "--op", "sum"], &file(".csv", "k,x\n"), &none);

    // Results of several numbers, and booleans; these operators are not compiled for GPUs.
    let x = file(".bin", [3_u8, 1, 0, 0]);
    let expect_on_cpu = |op: &str, header: &str, data: &[u8]| {
        let output =
            tempfile::Builder::new().suffix(".npy").tempfile().expect("a temporary file").into_temp_path();
        let name = output.to_str().expect("its name is UTF-8");
        let options = ["--device", "cpu", "--dtype", "u8", "--rows", "2", "--op", op, "--output", name];
        assert_eq!(text(run(&options, &x).stderr), "");
        let expected = npy(1, header, 0, data);
        assert_eq!(std::fs::read(&output).expect("the file was written"), expected, "{op}");
    };
    expect_on_cpu("minmax", "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }", &[1, 3, 0, 0]);
    expect_on_cpu("any", "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", &[1, 0]);

    let rows: &[&str] = &["--dtype", "u8", "--rows", "2"];
    let message = "a .npy file holds the results of one operator, not of 4: choose one with --op";
    expect_error(&[rows, &["--output", "x.npy"]].concat(), &x, message);
    let message = "`x.csv` does not end in .npy: --output writes only .npy files; leave it out to print CSV";
    expect_error(&[rows, &["--op", "sum", "--output", "x.csv"]].concat(), &x, message);
    let missing = Path::new("no").join("such").join("folder.npy");
    let system = std::fs::write(&missing, []).expect_err("there is no such folder");
    let message = format!("cannot write `{}`: {system}", missing.display());
    let missing = missing.to_str().expect("it is UTF-8");
    expect_error(&[rows, &["--op", "sum", "--output", missing]].concat(), &x, &message);
    expect_refused(&["--dtype", "u8", "--output", "x.npy"], &x, "the following required arguments");
}

#[test]
fn runs_of_equal_keys() {
    let cities = file(".csv", "city,x\noslo,1\noslo,2\nrome,3\noslo,4\n\"a, \"\"b\"\"\",5\n");
    let all = "city,sum,min,max,mean\n";
    assert_eq!(
        csv(&["--by", "city", "--runs"], &cities),
        all.to_owned() + "oslo,3,1,2,1.5\nrome,3,3,3,3.0\noslo,4,4,4,4.0\n\"a, \"\"b\"\"\",5,5,5,5.0\n"
    );
    let sum: &[&str] = &["--op", "sum"];
    let sorted = |options: &[&str], file: &Path| csv(&[options, sum].concat(), file);
    assert_eq!(sorted(&["--by", "city"], &cities), "city,sum\n\"a, \"\"b\"\"\",5\noslo,7\nrome,3\n");
    // Indices count all rows; of a run, its own.
    let places = csv(&["--by", "city", "--op", "argmax", "--dtype", "i8"], &cities);
    assert_eq!(places, "city,argmax\n\"a, \"\"b\"\"\",4\noslo,3\nrome,2\n");
    let of_runs = csv(&["--by", "city", "--runs", "--op", "argmax", "--dtype", "i8"], &cities);
    assert_eq!(of_runs, "city,argmax\noslo,1\nrome,0\noslo,0\n\"a, \"\"b\"\"\",0\n");

    // Integers are compared by value, even beyond 64 bits; the first text of equal keys is printed.
    let integers = "k,x\n10,1\n9,2\n-3,4\n010,8\n36893488147419103233,16\n36893488147419103232,32\n";
    assert_eq!(
        sorted(&["--by", "k", "--column", "x"], &file(".csv", integers)),
        "k,sum\n-3,4\n9,2\n10,9\n36893488147419103232,32\n36893488147419103233,16\n"
    );
    // Floats are compared by value: both zeros are equal, and so are all NaNs; empty keys come last.
    let floats =
        file(".csv", "k,x\n,1\n1e1,2\nNaN,4\n-inf,8\n-0.0,16\n0,32\n9.5,64\nnan,128\n10,256\n,512\n");
    assert_eq!(sorted(&["--by", "k"], &floats), "k,sum\n-inf,8\n-0.0,48\n9.5,64\n1e1,258\nNaN,132\n,513\n");
    assert_eq!(
        csv(&["--by", "k", "--runs", "--op", "sum"], &floats),
        "k,sum\n,1\n1e1,2\nNaN,4\n-inf,8\n-0.0,48\n9.5,64\nnan,128\n10,256\n,512\n"
            .replace("nan,", "NaN,")
            .replace("\n10,256", "\n1e1,256")
    );
    // Integers that floats cannot distinguish are compared as text.
    let mixed = file(".csv", "k,x\n9007199254740993,1\n9007199254740992,2\n0.5,4\n");
    assert_eq!(sorted(&["--by", "k"], &mixed), "k,sum\n0.5,4\n9007199254740992,2\n9007199254740993,1\n");
    // Text is compared by its bytes, which may be invalid UTF-8.
    let text = file(".csv", "k,x\nb,1\n10,2\nB,4\n9,8\n,16\n\u{e9},32\nb,64\n");
    assert_eq!(sorted(&["--by", "k"], &text), "k,sum\n,16\n10,2\n9,8\nB,4\nb,65\n\u{e9},32\n");
    let bytes = file(".csv", b"k,x\n\xff,1\n\xfe,2\n\xff,4\n");
    let output = run(&["--device", "cpu", "--by", "k", "--op", "sum"], &bytes);
    assert_eq!(output.stdout, b"k,sum\n\xfe,2\n\xff,5\n");

    // The keys' column by index, without a header, among several columns, in a file with tabs.
    let numbers = file(".csv", "7,1\n7,2\n8,3\n");
    assert_eq!(csv(&["--by", "0", "--op", "sum"], &numbers), "0,sum\n7,3\n8,3\n");
    let several = file(".tsv", "a\tb\tc\nx\t1\t1\ny\t1\t2\n");
    assert_eq!(csv(&["--by", "b", "--column", "c", "--op", "sum"], &several), "b,sum\n1,3\n");
    assert_eq!(
        csv(&["--by", "a", "--column", "1", "--op", "sum", "--header"], &several),
        "a,sum\nx,1\ny,1\n"
    );
    assert_eq!(csv(&["--by", "k", "--op", "sum"], &file("", "k,2021\nbob,5\n")), "k,sum\nbob,5\n");
    assert_eq!(csv(&["--by", "k", "--op", "sum"], &file(".csv", "k\n1\n1\n2\n")), "k,sum\n1,2\n2,2\n");
    // No rows.
    assert_eq!(sorted(&["--by", "k"], &file(".csv", "k,x\n")), "k,sum\n");
    assert_eq!(csv(&["--by", "0", "--no-header"], &file(".csv", "")), "0,sum,min,max,mean\n");

    // Many keys; the expected sums are counted here.
    let keys: Vec<u64> = (0..20_000_u64).map(|i| i * i % 997).collect();
    let csv_of_keys = keys.iter().fold("k,x\n".to_owned(), |csv, key| csv + &format!("{key},1\n"));
    let mut counts = std::collections::BTreeMap::new();
    keys.iter().for_each(|&key| *counts.entry(key).or_insert(0) += 1);
    let expected =
        counts.iter().fold("k,sum\n".to_owned(), |csv, (key, count)| csv + &format!("{key},{count}\n"));
    assert_eq!(sorted(&["--by", "k", "--dtype", "u32"], &file(".csv", csv_of_keys)), expected);
}

#[test]
fn bad_slices() {
    let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let data = bytemuck::cast_slice(&values);
    let raw = file(".bin", data);
    let of_f32: &[&str] = &["--dtype", "f32"];
    let cube = npy_of("<f4", "(3, 2, 2)", data);
    let matrix = npy_of("<f4", "(3, 4)", data);
    let csv_file = file(".csv", "k,x\n1,2\n");
    for (options, file, message) in [
        (
            &["--rows", "5", "--dtype", "f32"][..],
            &raw,
            "12 numbers cannot be split into 5 rows of equal length: give --rows a number that divides 12",
        ),
        (
            &["--columns", "0", "--dtype", "f32"],
            &raw,
            "12 numbers cannot be split into 0 columns of equal length: give --columns a number that divides \
             12",
        ),
        (
            &["--rows", "--dtype", "f32"],
            &raw,
            "the file does not say how many rows there are: give --rows a number",
        ),
        (
            &["--rows", "4"],
            &matrix,
            "the .npy file's shape (3, 4) has 3 rows, not 4: give --rows no number, or 3",
        ),
        (
            &["--columns", "3"],
            &matrix,
            "the .npy file's shape (3, 4) has 4 columns, not 3: give --columns no number, or 4",
        ),
        (
            &["--rows", "3"],
            &cube,
            "the .npy file's shape (3, 2, 2) is not a matrix: save it with two axes, for example as \
             x.reshape(len(x), -1) in NumPy",
        ),
        (
            &["--rows", "1"],
            &csv_file,
            "--rows is for raw and .npy files; --by COLUMN is for CSV, Parquet and Arrow files",
        ),
        (
            &["--columns", "1", "--column", "x"],
            &csv_file,
            "--columns is for raw and .npy files; --by COLUMN is for CSV, Parquet and Arrow files",
        ),
    ] {
        expect_error(options, file, message);
    }

    // Empty slices, and no slices.
    let empty = npy_of("<f4", "(3, 0)", &[]);
    expect_error(&["--rows", "3"], &empty, "min of row 0 has no value: it has no elements");
    assert_eq!(
        csv(&["--rows", "3", "--op", "sum,mean"], &empty),
        "row,sum,mean\n0,0.0,NaN\n1,0.0,NaN\n2,0.0,NaN\n"
    );
    assert_eq!(csv(&["--columns", "0"], &empty), "column,sum,min,max,mean\n");
    assert_eq!(
        csv(&["--rows", "2", "--dtype", "f32", "--op", "prod"], &file(".bin", "")),
        "row,prod\n0,1.0\n1,1.0\n"
    );
    let most = format!("({}, 0)", usize::MAX);
    let output = run(&["--device", "cpu", "--rows", "--op", "sum"], &npy_of("<f4", &most, &[]));
    assert!(text(output.stderr).starts_with("error: out of memory"));

    for (options, csv, message) in [
        (&["--by", "y"][..], "k,x\n1,2", "there is no column or array `y`; there are `k`, `x`"),
        (
            &["--by", "k"],
            "k,x,y\n1,2,3",
            "there are several columns or arrays; choose one with --column: `x`, `y`",
        ),
        (&["--by", "k"], "k,x\n1,two", "line 2: `two` in column `x` is not a valid f64"),
        (&["--by", "k"], "k,x\n1,2\n1\n", "line 3: 1 fields, but the header row has 2"),
        (&["--by", "k"], "k,k,x\n1,2,3", "several columns are named `k`; choose one by its index: `0`, `1`"),
        (&["--by", "k"], "", "the CSV file is empty; its first row must name its columns"),
        (
            &["--by", "0"],
            "0,1\n2,3",
            "the first row of the CSV file may be a header or data; say which with --header or --no-header: \
             `0`, `1`",
        ),
        (
            &["--by", "0"],
            "bob,1\nann,3",
            "the first row of the CSV file may be a header or data; say which with --header or --no-header: \
             `bob`, `1`",
        ),
    ] {
        expect_error(options, &file(".csv", csv), message);
    }

    let number = "invalid value 'x' for '--rows [<N>]': not a number; to leave the number out, put the file \
                  before the option";
    expect_refused(&[of_f32, &["--rows", "x"]].concat(), &raw, number);
    let together = "the argument '--rows [<N>]' cannot be used with";
    expect_refused(&[of_f32, &["--rows", "3", "--columns", "4"]].concat(), &raw, together);
    expect_refused(&["--rows", "3", "--by", "k"], &csv_file, together);
    expect_refused(
        &["--raw", "--dtype", "f32", "--by", "k"],
        &csv_file,
        "the argument '--raw' cannot be used with",
    );
    expect_refused(&["--runs"], &csv_file, "the following required arguments");
}

#[test]
fn standard_input_and_several_files() {
    let sum = |options: &[&str], input: &[u8]| {
        let output = piped(&[options, &["--device", "cpu", "--csv", "--op", "sum", "-"]].concat(), input);
        assert_eq!((without_times(output.stderr), output.status.code()), (String::new(), Some(0)));
        let printed = text(output.stdout);
        let line = printed.lines().nth(1).expect("a row of results").to_owned();
        let fields: Vec<&str> = line.split(',').collect();
        format!("{} {}", fields[0], fields[1])
    };
    assert_eq!(sum(&[], b"1\n2\n3\n"), "3 6");
    assert_eq!(sum(&["--column", "b"], b"a,b\n1,2\n3,4\n"), "2 6");
    assert_eq!(sum(&["--dtype", "i16"], bytemuck::cast_slice(&[300_i16, -1])), "2 299");
    for (name, options, expected) in [
        ("members.csv.gz", &["--column", "price", "--skip-missing"][..], "4 2"),
        ("compressed.npz", &[], "5 12"),
        ("snappy.parquet", &["--column", "count"], "6 23"),
        ("stream.arrows", &["--column", "count"], "6 23"),
        ("legacy.arrows", &["--column", "count"], "6 23"),
        ("lz4.feather", &["--column", "count"], "6 23"),
        ("array.npy.gz", &[], "5 12"),
    ] {
        let bytes = std::fs::read(data(name)).expect("the file is there");
        assert_eq!(sum(options, &bytes), expected, "{name}");
    }
    let output = piped(&["-"], b"");
    let nothing = "error: the input is empty: if it should hold raw numbers, name their type with --dtype\n";
    assert_eq!((text(output.stderr), output.status.code()), (nothing.into(), Some(1)));
    let output = piped(&["--op", "sum"], b"1\n2\n");
    assert_eq!(text(output.stdout), "count  2\nsum    3\n");
    let output = piped(&["-", "-"], b"1\n");
    let twice = "error: standard input, `-`, is given twice, but can be read only once\n";
    assert_eq!((text(output.stderr), output.status.code()), (twice.into(), Some(1)));

    // Several files: in each format, by key, and as one matrix.
    let csv_files = [file(".csv", "k,x\na,1\nb,2\n"), file(".csv", "k,x\nb,4\na,8\n")];
    let csv_files = csv_files.each_ref().map(|file| &**file);
    assert!(printed(&["--column", "x"], &csv_files).starts_with("count  4\nsum    15\n"));
    assert_eq!(printed(&["--by", "k", "--runs", "--op", "sum"], &csv_files), "k,sum\na,1\nb,6\na,8\n");
    assert_eq!(printed(&["--by", "k", "--op", "sum"], &csv_files), "k,sum\na,9\nb,6\n");
    let raw = [file(".bin", [1_u8, 2]), file(".bin", [3_u8])];
    let raw = raw.each_ref().map(|file| &**file);
    assert!(
        printed(&["--dtype", "u8", "--op", "sum,argmax"], &raw)
            .starts_with("count   3\nsum     6\nargmax  2 (3)\n")
    );
    let upper = npy_of("|u1", "(2, 2)", &[1, 2, 3, 4]);
    let lower = npy_of("|u1", "(1, 2)", &[5, 6]);
    assert_eq!(printed(&["--op", "sum", "--rows", "--csv"], &[&upper, &lower]), "row,sum\n0,3\n1,7\n2,11\n");
    assert_eq!(printed(&["--op", "sum", "--columns", "2"], &[&upper, &lower]), "column,sum\n0,9\n1,12\n");
    let parquet = data("snappy.parquet");
    assert!(
        printed(&["--column", "count"], &[&parquet, &data("lz4.parquet")])
            .starts_with("count  12\nsum    46\n")
    );

    let fails = |options: &[&str], files: &[&Path], message: String| {
        let output = Command::new(PROGRAM).args(options).args(files).output().expect("the program starts");
        assert_eq!(text(output.stderr), format!("error: {message}\n"));
        assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)));
    };
    let wide = npy_of("|u1", "(1, 3)", &[5, 6, 7]);
    fails(
        &["--rows", "--csv"],
        &[&upper, &wide],
        "a .npy file of shape (1, 3) cannot be stacked below shape (2, 2): several files form one matrix \
         only if all are in C order and have the same number of columns"
            .into(),
    );
    let floats = npy_of("<f4", "(1,)", &[0; 4]);
    fails(
        &[],
        &[&upper, &floats],
        format!(
            "`{}` holds f32, but the first file holds u8: name one type for all with --dtype, or convert a \
             file",
            floats.display()
        ),
    );
    let bad = file(".csv", "k,x\na,one\n");
    fails(
        &["--column", "x"],
        &[csv_files[0], &bad],
        format!("`{}`: line 2: `one` in column `x` is not a valid f64", bad.display()),
    );
}

/// Checks the contents of files that other programs made.
#[test]
fn files_of_other_programs() {
    let sum = |name: &str, options: &[&str]| {
        let printed = printed(&[options, &["--op", "sum"]].concat(), &[&data(name)]);
        printed.lines().find_map(|line| line.strip_prefix("sum    ")).expect("a sum").to_owned()
    };
    for (name, column, expected) in [
        ("big_f8.npy", "", "3.0"),
        ("big_i2.npy", "", "12"),
        ("big_f2.npy", "", "3.0"),
        ("bool.npy", "", "3"),
        ("compressed.npz", "", "12"),
        ("compressed.npz", "arr_0", "12"),
        ("stored.npz", "weights", "6.0"),
        ("stored.npz", "1", "12"),
        ("array.npy.gz", "", "12"),
    ] {
        let options: &[&str] = if column.is_empty() { &[] } else { &["--column", column] };
        assert_eq!(sum(name, options), expected, "{name} {column}");
    }
    assert_eq!(sum("big_f8.npy", &["--dtype", "float64"]), "3.0");
    assert_eq!(sum("bool.npy", &["--dtype", "U8"]), "3");
    let tables = ["snappy.parquet", "pandas.parquet", "lz4.feather", "zstd.arrow", "stream.arrows"];
    for name in tables {
        for (column, expected) in
            [("single", "18.0"), ("count", "23"), ("large", "9223372036854775823"), ("4", "")]
        {
            if !expected.is_empty() {
                assert_eq!(sum(name, &["--column", column]), expected, "{name} {column}");
            }
        }
        for (column, expected, missing) in [("price", "7.75", 2), ("sold", "3", 1)] {
            let printed = printed(&["--column", column, "--skip-missing", "--op", "sum"], &[&data(name)]);
            let expected = format!("count    {}\nmissing  {missing}\nsum      {expected}\n", 6 - missing);
            assert!(printed.starts_with(&expected), "{name}: {printed}");
        }
        let by_city = printed(&["--by", "city", "--op", "sum", "--column", "count"], &[&data(name)]);
        assert_eq!(by_city, "city,sum\noslo,21\nrome,2\n", "{name}");
        let by_kind = printed(&["--by", "kind", "--op", "max", "--column", "single"], &[&data(name)]);
        assert_eq!(by_kind, "kind,max\na,3.5\nb,5.5\n", "{name}");
        let output = run(
            &["--by", "sold", "--runs", "--column", "price", "--op", "sum", "--skip-missing"],
            &data(name),
        );
        // Boolean keys are text; the keys of rows left out do not appear.
        assert_eq!(text(output.stdout), "sold,sum\ntrue,7.5\nfalse,0.25\n", "{name}");
        assert_eq!(text(output.stderr), "missing  2\n");

        let file = data(name);
        expect_error(
            &["--column", "price"],
            &file,
            "row 1 (counted from 0) has no value in column `price`: --skip-missing leaves such rows out",
        );
        let of_texts = text(run(&["--column", "city"], &file).stderr);
        assert!(of_texts.ends_with(", which is not a supported type of number\n"), "{of_texts}");
        expect_error(
            &["--column", "count", "--dtype", "f64"],
            &file,
            "the file holds `i32`, but --dtype says f64",
        );
        expect_error(
            &["--column", "count", "--header"],
            &file,
            "--header is for CSV files; this is a Parquet or Arrow file, whose columns have types and names",
        );
        let unknown = run(&["--column", "none"], &file);
        assert!(
            text(unknown.stderr)
                .starts_with("error: there is no column or array `none`; there are `city`, `kind`")
        );
    }
    for (name, expected) in [("snappy.parquet", "15.0"), ("lz4.feather", "15.0")] {
        assert_eq!(sum(name, &["--column", "half"]), expected);
    }
    for (name, column) in [("polars.parquet", "count"), ("lz4.parquet", "0")] {
        assert_eq!(sum(name, &["--column", column]), "23", "{name}");
    }
    for name in ["members.csv.gz", "frame.csv.zst"] {
        let printed = printed(&["--column", "price", "--skip-missing", "--op", "sum"], &[&data(name)]);
        assert!(printed.starts_with("count    4\nmissing  2\nsum      7.75\n"), "{name}: {printed}");
    }
    expect_error(
        &[],
        &data("stored.npz"),
        "there are several columns or arrays; choose one with --column: `weights`, `bias`",
    );
    expect_error(
        &["--by", "x"],
        &data("stored.npz"),
        "there are several columns or arrays; choose one with --column: `weights`, `bias`",
    );
    expect_error(
        &["--column", "bias", "--by", "x"],
        &data("stored.npz"),
        "--by is for CSV files; this is a NumPy file, which has no named columns or keys",
    );
}

/// Cuts off or changes files at random: the program must not panic, and must refuse files that are cut off.
#[test]
fn damaged_files() {
    let names = [
        "snappy.parquet",
        "pandas.parquet",
        "lz4.feather",
        "zstd.arrow",
        "stream.arrows",
        "legacy.arrows",
        "brotli.parquet",
        "encrypted.parquet",
        "encrypted_column.parquet",
        "stored.npz",
        "compressed.npz",
        "members.csv.gz",
        "frame.csv.zst",
        "array.npy.gz",
    ];
    for name in names {
        let whole = std::fs::read(data(name)).expect("the file is there");
        let (_, extension) = name.split_once('.').expect("a name with its ending");
        let extension = format!(".{extension}");
        let column = match extension.contains("npy") || name == "compressed.npz" {
            true => &[][..],
            false if extension.contains("npz") => &["--column", "bias"],
            false if extension.contains("csv") => &["--column", "price", "--skip-missing"],
            false => &["--column", "count"],
        };
        let options = [&["--device", "cpu", "--op", "sum"], column].concat();
        for part in 1..8 {
            let output = run(&options, &file(&extension, &whole[..whole.len() * part / 8]));
            let message = text(output.stderr);
            // A stream has no end mark, and gzip's first member is a complete file.
            let may_be_whole = name.ends_with(".arrows") || name == "members.csv.gz";
            assert!(
                output.status.code() == Some(1) || may_be_whole && output.status.success(),
                "{name}: {message}"
            );
            if output.status.code() == Some(1) {
                assert!(message.starts_with("error: "), "{name}: {message}");
            }
        }
        for seed in 0..40_u64 {
            let mut bytes = whole.clone();
            for turn in 0..3 {
                let draw = (seed * 3 + turn + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let at = (draw >> 20) as usize % bytes.len();
                bytes[at] = (draw >> 8) as u8;
            }
            let output = run(&options, &file(&extension, &bytes));
            let message = text(output.stderr);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{name}, seed {seed}: {message}");
        }
    }
}

#[test]
fn separators_between_fields() {
    let expected = ["2", "6.5", "2.5", "4.0", "3.25"];
    for (options, csv) in [
        (&["--column", "b"][..], "a;b\n1;2.5\n3;4\n"),
        (&["--column", "b"], "a|b\n1|2.5\n3|4\n"),
        (&["--column", "b"], "a\tb\n1\t2.5\n3\t4\n"),
        (&["--column", "b"], "a,b\n1;2,2.5\n3,4\n"),
        (&["--column", "b"], "\"a;b\";b\n\"1\n2\";2.5\n3;4\n"),
        (&["--column", "b", "--delimiter", ";"], "a;b\n1;2.5\n3;4\n"),
        (&["--column", "b", "--delimiter", "tab"], "a\tb\n1\t2.5\n3\t4\n"),
        (&["--column", "b", "--delimiter", ":"], "a:b\n1:2.5\n3:4\n"),
        (&["--column", "1", "--delimiter", " "], "7 2.5\n8 4\n"),
        // Without the option, the semicolon would be guessed.
        (&["--delimiter", ",", "--column", "b"], "a;c,b\n1;2,2.5\n3;4,4\n"),
    ] {
        expect(options, &file(".csv", csv), expected);
    }
    for text in ["", ";;", "\"", "ä"] {
        expect_refused(
            &["--delimiter", text],
            &file(".csv", "x\n1\n"),
            &format!("invalid value '{text}' for '--delimiter"),
        );
    }
    // The last of the first rows is cut off; that must not change the guess.
    let long = (0..20_000).fold("a;b\n".to_owned(), |csv, row| csv + &format!("{row};1\n"));
    expect(&["--column", "b"], &file(".csv", long), ["20000", "20000", "1", "1", "1.0"]);
    for (row, text) in [
        ("1 000", "1 000"),
        ("1_000", "1_000"),
        ("1'000.5", "1'000.5"),
        ("\"1,5\"", "1,5"),
        ("1.000.000", "1.000.000"),
    ] {
        let message = format!(
            "line 2: `{text}` in column `x` is not a valid f64: write numbers without thousands separators \
             and with a decimal point, as in 1234.5"
        );
        expect_error(&[], &file(".csv", format!("x\n{row}\n")), &message);
    }
}

#[test]
fn missing_values() {
    let some = "k,x\na,1\nb,NA\na,\nb,n/a\nb,null\na,none\nb,#N/A\na,<NA>\nb,NaN\na,2\n\n";
    let csv_file = file(".csv", some);
    let printed = printed(&["--column", "x", "--skip-missing", "--op", "nansum,count_nan"], &[&csv_file]);
    assert!(printed.starts_with("count      3\nmissing    7\ncount_nan  1\nnansum     3.0\n"), "{printed}");
    let by = run(&["--by", "k", "--column", "x", "--skip-missing", "--op", "nansum"], &csv_file);
    assert_eq!(
        (text(by.stdout), text(by.stderr)),
        ("k,nansum\na,3.0\nb,0.0\n".into(), "missing  7\n".into())
    );
    expect_error(
        &["--column", "x"],
        &csv_file,
        "line 3: `NA` in column `x` is a missing value: --skip-missing leaves such rows out",
    );
    let none = file(".csv", "x,y\n,1\nNA,2\n");
    expect_error(
        &["--column", "x", "--skip-missing", "--op", "min"],
        &none,
        "min has no value, because the input is empty without its 2 missing values: choose sum, prod or a \
         count, or leave out --op",
    );
    expect_error(
        &["--skip-missing"],
        &npy_of("<f4", "(1,)", &[0; 4]),
        "--skip-missing is for CSV files; this is a NumPy file, which has no named columns or keys",
    );
    // The first row may be data.
    expect_error(
        &["--skip-missing"],
        &file(".csv", "NA\n1\n"),
        "the first row of the CSV file may be a header or data; say which with --header or --no-header: `NA`",
    );
}

#[test]
fn open_quotes() {
    for (csv, line) in [
        ("x\n1\n\"2\n3\n", 3),
        ("x\n1\n2\n\"", 4),
        ("\"x\n1\n2\n", 1),
        ("k,x\na,1\n\"b,2\nc,3\n", 3),
        ("x\n\"1\"\"\n2", 2),
    ] {
        let message = format!(
            "line {line}: a quote opened in this row is never closed; to write a quote character in a field, \
             double it and quote the field"
        );
        let options: &[&str] = if csv.contains('k') { &["--column", "x"] } else { &["--header"] };
        expect_error(options, &file(".csv", csv), &message);
    }
    // These quotes are closed, or are not at the start of a field.
    for csv in ["k,x\n\"a\nb\",1\n\"\"\"\",2\n", "k,x\n5\",1\n3\",2", "k,x\nb,1\n\"a\",\"2\""] {
        let lines = lines(&["--column", "x", "--op", "sum"], &file(".csv", csv));
        assert_eq!(lines[1].1, "3", "{csv:?}");
    }
}

/// Control characters in a file must not reach the terminal.
#[test]
fn nothing_binary_is_printed() {
    let escape = "\x1b]0;title\x07\x1b[2J";
    for (options, csv) in [
        (&["--header"][..], format!("x\n{escape}\n")),
        (&["--column", "none"], format!("{escape},b\n1,2\n")),
        (&["--no-header"], escape.to_owned()),
        (&["--column", "x"], "x\n".to_owned() + &"\x7f\u{9b}".repeat(1000)),
        (&[], format!("{escape}1\n{escape}2\n")),
    ] {
        let output = run(options, &file(".csv", csv));
        let message = text(output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.len() < 1000 && message.trim_end().chars().all(|c| !c.is_control()), "{message:?}");
    }
    let header = format!("{{'descr': '{escape}', 'fortran_order': False, 'shape': (1,), }}");
    let output = run(&[], &file(".npy", npy(1, &header, 0, &[])));
    assert!(text(output.stderr).trim_end().chars().all(|c| !c.is_control()));
    let program = run(&["--column", "x"], Path::new(PROGRAM));
    assert_eq!(program.status.code(), Some(1));
    assert!(text(program.stderr).trim_end().chars().all(|c| !c.is_control()));
}

#[test]
fn names_of_types() {
    let floats = file(".bin", bytemuck::cast_slice(&[0.5_f32, 1.0]));
    for name in ["f32", "F32", "float32", "Float32", "float"] {
        assert!(printed(&["--dtype", name, "--op", "sum"], &[&floats]).starts_with("count  2\nsum    1.5\n"));
    }
    for name in ["f31", "32", "float128"] {
        expect_refused(&["--dtype", name], &floats, &format!("invalid value '{name}' for '--dtype"));
    }
}

/// Parses the output with `serde_json` and the `csv` crate, and compares each number bit by bit.
#[test]
fn json_and_csv() {
    use serde_json::Value;
    let values = [0.1_f64, 0.2, -1e300, 1e-310, 3.0];
    let numbers = file(".bin", bytemuck::cast_slice(&values));
    let json = |options: &[&str], file: &Path| -> Value {
        serde_json::from_str(&printed(&[&["--json"], options].concat(), &[file])).expect("it is JSON")
    };
    let ops = ["--dtype", "f64", "--op", "sum,minmax,argmin,std,any,mean"];
    let report = json(&ops, &numbers);
    let expected: f64 = values.reduce::<Sum, 256>().expect("a sum");
    assert_eq!(report["sum"].as_f64().map(f64::to_bits), Some(expected.to_bits()));
    assert_eq!(report["count"], 5);
    assert_eq!(report["minmax"], serde_json::json!([-1e300, 3.0]));
    assert_eq!(report["argmin"], 2);
    assert_eq!(report["any"], true);
    assert_eq!(report.as_object().map(serde_json::Map::len), Some(7));

    let csv = printed(&[&["--csv"][..], &ops].concat(), &[&numbers]);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let names: Vec<String> = reader.headers().expect("names").iter().map(str::to_owned).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(names, ["count", "sum", "minmax_1", "minmax_2", "mean", "std", "argmin", "any"]);
    let row = reader.records().next().expect("a row").expect("it has as many fields");
    assert_eq!(row[1].parse::<f64>().map(f64::to_bits), Ok(expected.to_bits()));
    assert_eq!((&row[6], &row[7]), ("2", "true"));

    let odd = file(".bin", bytemuck::cast_slice(&[f32::NAN, f32::INFINITY]));
    let report = json(&["--dtype", "f32", "--op", "sum,nanmax,nanmin"], &odd);
    assert_eq!((&report["sum"], &report["nanmax"]), (&Value::from("NaN"), &Value::from("Infinity")));
    let wide = file(".bin", bytemuck::cast_slice(&[u64::MAX; 3]));
    let report = printed(&["--json", "--dtype", "u64", "--op", "exact_sum"], &[&wide]);
    assert!(report.contains("\"exact_sum\": 55340232221128654845"), "{report}");
    let empty = json(&[], &file(".csv", "x\n"));
    assert_eq!((&empty["count"], &empty["min"]), (&Value::from(0), &Value::Null));
    assert!(printed(&["--csv"], &[&file(".csv", "x\n")]).starts_with("count,sum,min,max,mean\n0,"));

    let keyed = file(".csv", "k,x\n\"a \"\"b\"\"\",1\n2,2\n");
    let rows = json(&["--by", "k", "--op", "sum,minmax"], &keyed);
    let [a, two] = ["a \"b\"", "2"];
    assert_eq!(
        rows,
        serde_json::json!([{"k": two, "sum": 2, "minmax": [2, 2]}, {"k": a, "sum": 1, "minmax": [1, 1]}])
    );
    let rows = json(&["--rows", "2", "--dtype", "u8", "--op", "sum"], &file(".bin", [1_u8, 2, 3, 4]));
    assert_eq!(rows, serde_json::json!([{"row": 0, "sum": 3}, {"row": 1, "sum": 7}]));
    assert_eq!(json(&["--by", "k"], &file(".csv", "k,x\n")), serde_json::json!([]));
    expect_refused(&["--json", "--csv"], &numbers, "the argument '--json' cannot be used with");
}

/// Checks the heights of the bars, which must cover all numbers.
#[test]
fn histograms() {
    let plot = |bytes: &[u8], dtype: &str| {
        let numbers = file(".bin", bytes);
        let svg =
            tempfile::Builder::new().suffix(".svg").tempfile().expect("a temporary file").into_temp_path();
        let name = svg.to_str().expect("its name is UTF-8");
        printed(&["--raw", "--dtype", dtype, "--op", "sum", "--plot", name], &[&numbers]);
        let svg = std::fs::read_to_string(&svg).expect("the file was written");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
        let bars = svg.lines().filter(|line| line.starts_with("<rect ") && line.contains("#4285CC"));
        let height = |line: &str| {
            let (_, after) = line.split_once("height=\"").expect("a bar has a height");
            after.split('"').next().and_then(|number| number.parse::<u32>().ok()).expect("it is a number")
        };
        (bars.map(height).collect::<Vec<_>>(), svg)
    };
    // One bar for each integer.
    let (bars, svg) = plot(&[1, 1, 1, 1, 3, 3], "u8");
    assert_eq!(bars.len(), 3, "{svg}");
    assert!(bars[0].abs_diff(2 * bars[2]) <= 2 && bars[1] <= 1, "{bars:?}");
    assert!(svg.contains("6 numbers"));
    let uniform: Vec<f32> = (0..64_000).map(|i| i as f32 / 64_000.0).collect();
    let (bars, _) = plot(bytemuck::cast_slice(&uniform), "f32");
    assert_eq!(bars.len(), 64);
    assert!(bars.iter().all(|bar| bar.abs_diff(bars[0]) <= 2), "{bars:?}");
    // Extreme values, and values outside all ranges.
    let (bars, svg) = plot(bytemuck::cast_slice(&[f64::MAX, f64::MIN, 0.0, f64::NAN, f64::INFINITY]), "f64");
    assert_eq!(bars.len(), 2, "{svg}");
    assert!(svg.contains("3 numbers, without 2 that are NaN or infinite"), "{svg}");
    for one in [&[0.0_f64][..], &[5e-324], &[f64::MAX], &[f64::NAN], &[]] {
        plot(bytemuck::cast_slice(one), "f64");
    }
    plot(bytemuck::cast_slice(&[i64::MIN, i64::MAX]), "i64");

    let numbers = file(".csv", "x\n1\n");
    expect_error(&["--plot", "x.png"], &numbers, "`x.png` does not end in .svg: --plot draws SVG");
    expect_refused(
        &["--plot", "x.svg", "--by", "x"],
        &numbers,
        "the argument '--plot <FILE.svg>' cannot be used with",
    );
}

/// The progress bar appears after a second, and only on a terminal; `script` provides one.
#[cfg(unix)]
#[test]
fn progress() {
    let some = "yes 1.25 | head -n 500000";
    let command = format!("{{ {some}; sleep 1.2; {some}; }} | {PROGRAM} --device cpu --op sum -");
    let on_terminal =
        Command::new("script").args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").output();
    let Ok(on_terminal) = on_terminal else { return eprintln!("skipped: there is no `script`") };
    let shown = String::from_utf8_lossy(&on_terminal.stdout).into_owned();
    assert!(shown.contains("sum    1250000.0") && shown.contains("reading"), "{shown}");
    let output = Command::new("sh").args(["-c", &command]).output().expect("there is a shell");
    assert_eq!((without_times(output.stderr), output.status.code()), (String::new(), Some(0)));
}

/// The results of all numbers, and those of a matrix of one row, as lines of CSV.
#[track_caller]
fn whole_and_as_one_slice(dtype: &str, values: &[u8], ops: &str, device: &str) -> [String; 2] {
    let raw = file(".bin", values);
    let options = ["--raw", "--dtype", dtype, "--op", ops, "--csv", "--device", device];
    let rows = run(&[&options[..], &["--rows", "1"]].concat(), &raw);
    let whole = run(&options, &raw);
    [whole, rows].map(|output| {
        assert_eq!(output.status.code(), Some(0), "{dtype} {ops}: {}", text(output.stderr));
        let lines = text(output.stdout);
        let line = lines.lines().nth(1).expect("a row of results").to_owned();
        // The first field is the count, or the row's index.
        line.split_once(',').expect("several fields").1.to_owned()
    })
}

#[test]
fn a_file_that_is_one_slice_has_the_bits_of_the_whole() {
    let of_floats = "sum,prod,min,max,minmax,mean,var,std,sumsq,norm_l1,norm_l2,norm_max,argmin,argmax,\
                     any,all,count_nonzero,count_nan,nansum,nanmin,nanmax,nanmean,nanvar,nanstd,nanargmin,\
                     nanargmax,moments,skewness,kurtosis,logsumexp,compensated_sum,exact_sum,\
                     exact_sum_twofold,exact_mean";
    let of_integers = format!("{of_floats},bit_and,bit_or,bit_xor");
    for count in [3_u64, 1000, 3000, 50_000] {
        let mixed = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let f32s: Vec<f32> = (0..count).map(|index| (mixed(index) >> 40) as f32 * 0.37 - 1e6).collect();
        let f64s: Vec<f64> = (0..count).map(|index| (mixed(index) >> 11) as f64 * 1e-9 - 1e6).collect();
        let i64s: Vec<i64> = (0..count).map(|index| mixed(index) as i64).collect();
        let devices: &[&str] = if count > 3000 { &["cpu"] } else { &["cpu", "emulator"] };
        for device in devices {
            for (dtype, values, ops) in [
                ("f32", bytemuck::cast_slice(&f32s), of_floats),
                ("f64", bytemuck::cast_slice(&f64s), of_floats),
                ("i64", bytemuck::cast_slice(&i64s), &of_integers),
            ] {
                let [whole, row] = whole_and_as_one_slice(dtype, values, ops, device);
                assert!(whole.starts_with(&row), "{dtype}, {count}, {device}:\n{whole}\n{row}");
            }
        }
        // As the values of a single run.
        let keyed = f64s.iter().fold("k,x\n".to_owned(), |csv, value| csv + &format!("a,{value:?}\n"));
        let options = ["--column", "x", "--csv", "--op", of_floats, "--device", "cpu"];
        let keyed = file(".csv", keyed);
        let [whole, key] = [&[][..], &["--by", "k", "--runs"]].map(|by: &[&str]| {
            let printed = text(run(&[&options, by].concat(), &keyed).stdout);
            let line = printed.lines().nth(1).expect("a row of results").to_owned();
            line.split_once(',').expect("several fields").1.to_owned()
        });
        assert!(whole.starts_with(&key), "{count}:\n{whole}\n{key}");
    }
}

/// On each device: as a whole, as one row, and by key.
#[test]
fn means_whose_sums_overflow() {
    for (values, mean) in [
        (&[1e308, 1e308][..], "1e308"),
        (&[-f64::MAX, -f64::MAX, -f64::MAX], "-1.7976931348623157e308"),
        (&[1.5, 2.0], "1.75"),
        (&[f64::INFINITY, 1.0], "inf"),
        (&[f64::INFINITY, -f64::INFINITY], "NaN"),
        (&[f64::NAN], "NaN"),
    ] {
        for device in ["cpu", "emulator"] {
            let [whole, row] = whole_and_as_one_slice("f64", bytemuck::cast_slice(values), "mean", device);
            assert_eq!([whole.split(',').next(), Some(&row)], [Some(mean); 2], "{values:?} {device}");
        }
        let lines = values.iter().fold("k,x\n".to_owned(), |csv, value| csv + &format!("a,{value:?}\n"));
        let options = ["--by", "k", "--op", "mean"];
        assert_eq!(csv(&options, &file(".csv", lines)), format!("k,mean\na,{mean}\n"));
    }
    // Only the sum of one key overflows.
    let some = file(".csv", "k,x\na,1e308\na,1.5e308\nb,0.1\nb,0.2\nb,0.3\n");
    assert_eq!(csv(&["--by", "k", "--op", "mean"], &some), "k,mean\na,1.25e308\nb,0.2\n");
}

/// The device and times go to standard error.
#[test]
fn standard_output_has_results_alone() {
    let numbers = file(".csv", "x\n1.5\n2\n");
    for (options, expected) in [
        (&[][..], "count  2\nsum    3.5\n"),
        (&["--csv"], "count,sum\n2,3.5\n"),
        (&["--json"], "{\"count\": 2, \"sum\": 3.5}\n"),
    ] {
        let output = run(&[&["--op", "sum", "--device", "cpu"], options].concat(), &numbers);
        assert_eq!(text(output.stdout), expected);
        let times = text(output.stderr);
        assert!(times.starts_with("device  cpu"), "{times}");
        assert_eq!(without_times(times.into_bytes()), "");
    }
}

/// Closes the pipe early, as `gpu-reduce ... | head -1` and `gpu-reduce ... | true` do.
#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_it_quietly() {
    let rows = (0..100_000).fold("k,x\n".to_owned(), |csv, key| csv + &format!("{key},1.5\n"));
    let rows = file(".csv", rows);
    for options in [
        &["--by", "k", "--column", "x"][..],
        &["--by", "k", "--column", "x", "--json"],
        &["--column", "x"],
        &["--column", "x", "--csv"],
        &["--column", "x", "--json"],
    ] {
        let mut command = Command::new(PROGRAM);
        command.args(["--device", "cpu"]).args(options).arg(&*rows);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the program ends");
        assert_eq!((text(output.stderr), output.status.code()), (String::new(), Some(0)), "{options:?}");
    }
}

#[test]
fn keys_that_come_back() {
    for (keys, groups) in [
        ("oslo rome rome oslo rome", "oslo 2 rome 3"),
        ("1 2 01 1.0", "1 3 2 1"),
        ("1 2 01 x 1.0", "01 1 1 1 1.0 1 2 1 x 1"),
        ("c a b c b a", "a 2 b 2 c 2"),
        ("x1 x2 x1 x2 x1 x2", "x1 3 x2 3"),
        ("-0 1 0", "-0 2 1 1"),
    ] {
        let lines = keys.split(' ').fold("k,x\n".to_owned(), |csv, key| csv + &format!("{key},0.5\n"));
        let groups: Vec<&str> = groups.split(' ').collect();
        let sums = groups
            .chunks(2)
            .map(|group| format!("{},{:?}\n", group[0], group[1].parse::<f64>().expect("a count") / 2.0));
        let sums = sums.fold("k,sum\n".to_owned(), |csv, line| csv + &line);
        assert_eq!(csv(&["--by", "k", "--op", "sum"], &file(".csv", lines)), sums, "{keys}");
    }
    // A key that returns in the next file.
    let files = [file(".csv", "k,x\nb,1\na,2\n"), file(".csv", "k,x\nc,8\nb,4\n")];
    let files = files.each_ref().map(|file| &**file);
    assert_eq!(printed(&["--by", "k", "--op", "sum"], &files), "k,sum\na,2\nb,5\nc,8\n");
    // Each operator takes the rows of a key in their order; places count all rows.
    let mixed = file(".csv", "k,x\nb,5\na,2\nb,7\na,1\nb,7\n");
    assert_eq!(
        csv(&["--by", "k", "--op", "sum,prod,min,max,mean,argmax,argmin"], &mixed),
        "k,sum,prod,min,max,mean,argmin,argmax\na,3,2,1,2,1.5,3,1\nb,19,245,5,7,6.333333333333333,0,2\n"
    );
}

/// Sums and means by key are correctly rounded. A run's sum and mean have the bits that the run alone has.
#[test]
fn sums_by_key_are_correctly_rounded() {
    let lines = file(".csv", "k,x\na,1e16\nb,1\na,1\na,-1e16\nb,0.1\nb,0.2\n");
    assert_eq!(csv(&["--by", "k", "--op", "sum"], &lines), "k,sum\na,1.0\nb,1.3\n");
    assert_eq!(
        csv(&["--by", "k", "--op", "sum,mean,exact_sum,exact_mean"], &lines),
        "k,sum,mean,exact_sum,exact_mean\na,1.0,0.3333333333333333,1.0,0.3333333333333333\n\
         b,1.3,0.43333333333333335,1.3,0.43333333333333335\n"
    );
}

#[test]
fn keys_in_several_columns() {
    let lines = "b,k,x,a\n2,v,1,\n10,u,2,p\n2,u,4,p\n2,v,8,\n10,u,16,\n2.0,u,32,p\n";
    let lines = file(".csv", lines);
    assert_eq!(
        csv(&["--by", "b,k", "--column", "x", "--op", "sum"], &lines),
        "b,k,sum\n2,u,36\n2,v,9\n10,u,18\n"
    );
    assert_eq!(
        csv(&["--by", "k,b", "--column", "x", "--op", "sum"], &lines),
        "k,b,sum\nu,2,36\nu,10,18\nv,2,9\n"
    );
    // The columns may be given one by one; the column that is left has the numbers.
    assert_eq!(
        csv(&["--by", "b", "--by", "a", "--by", "1", "--op", "max"], &lines),
        "b,a,k,max\n2,,v,8\n2,p,u,32\n10,,u,16\n10,p,u,2\n"
    );
    let runs = csv(&["--by", "k,a", "--column", "x", "--op", "sum", "--runs"], &lines);
    assert_eq!(runs, "k,a,sum\nv,,1\nu,p,6\nv,,8\nu,,16\nu,p,32\n");
    let json = csv(&["--by", "b,k", "--column", "x", "--op", "sum", "--json"], &lines);
    assert_eq!(
        json,
        "[\n{\"b\": \"2\", \"k\": \"u\", \"sum\": 36},\n{\"b\": \"2\", \"k\": \"v\", \"sum\": 9},\n\
         {\"b\": \"10\", \"k\": \"u\", \"sum\": 18}\n]\n"
    );
    for name in ["snappy.parquet", "pandas.parquet", "lz4.feather", "zstd.arrow", "stream.arrows"] {
        let printed = printed(&["--by", "kind,city", "--op", "sum", "--column", "count"], &[&data(name)]);
        assert_eq!(printed, "kind,city,sum\na,oslo,7\na,rome,1\nb,oslo,14\nb,rome,1\n", "{name}");
    }
    assert_eq!(csv(&["--by", "k,a", "--column", "x"], &file(".csv", "k,a,x\n")), "k,a,sum,min,max,mean\n");
    expect_error(&["--by", "k,c"], &lines, "there is no column or array `c`; there are `b`, `k`, `x`, `a`");
}

/// A file that is cut into pieces, with quoted keys of several lines where cuts may be.
#[test]
fn keys_in_many_pieces() {
    use std::collections::BTreeMap;
    const ROWS: u64 = 90_000;
    let fields = [
        ("plain", "plain"),
        ("\"a,b\"", "a,b"),
        ("\"two\n\nlines\"", "two\n\nlines"),
        ("\"say \"\"hi\"\"\"", "say \"hi\""),
        ("\"\n\"\"\n\"", "\"\n\""),
        ("5\"", "5\""),
        ("\" x\" ", "x"),
        ("", ""),
        ("\"q\"", "q"),
        ("q", "q"),
        ("\u{feff}b", "\u{feff}b"),
    ];
    for (shift, line_end) in [(0, "\n"), (1, "\n"), (5, "\r\n"), (11, "\n\n")] {
        let mut lines = "k,x,y".to_owned() + line_end + &"s".repeat(shift) + ",0,1" + line_end;
        let mut sums = BTreeMap::from([("s".repeat(shift), 0)]);
        for row in 0..ROWS {
            let (field, key) = fields[(row * row / 7) as usize % fields.len()];
            // The end of the file needs the csv crate only in rare rows.
            let (field, key) = if row > ROWS / 2 && row % 999 > 0 { ("late", "late") } else { (field, key) };
            lines += &format!("{field},{row},\"z\"{line_end}");
            *sums.entry(key.trim().to_owned()).or_insert(0) += row;
        }
        let file_of = |lines: &str| file(".csv", lines);
        let mut expected = csv::Writer::from_writer(Vec::new());
        expected.write_record(["k", "sum"]).expect("it takes the names");
        for (key, sum) in &sums {
            expected.write_record([key, &sum.to_string()]).expect("it takes the sum");
        }
        let expected = text(expected.into_inner().expect("it is complete"));
        let by_key = ["--by", "k", "--column", "x", "--op", "sum"];
        for options in [&by_key[..], &[&by_key[..], &["--dtype", "u32"]].concat()] {
            assert_eq!(printed(options, &[&file_of(&lines)]), expected, "{shift}");
        }

        // Errors name the line, and the first error counts.
        let line = lines.matches('\n').count() + 1;
        for (end, message) in [
            ("k,two,z\n\n\nk,three,z\nk,1", format!("line {line}: `two` in column `x` is not a valid f64")),
            ("k,1\nk,two,z\n", format!("line {line}: 2 fields, but the header row has 3")),
            (
                "k,1,\"\nk,two,z\n",
                format!(
                    "line {line}: a quote opened in this row is never closed; to write a quote character in \
                     a field, double it and quote the field"
                ),
            ),
        ] {
            expect_error(&by_key, &file_of(&(lines.clone() + end)), &message);
        }
        let early = lines.replacen(",17,", ",,", 1) + "k,two,z\n";
        let output = run(&[&["--device", "cpu"], &by_key[..]].concat(), &file_of(&early));
        assert!(text(output.stderr).contains("`` in column `x` is a missing value"));
    }
}

/// Keys that are known from earlier pieces, and new keys late in the file, short and long.
#[test]
fn new_keys_in_later_pieces() {
    const ROWS: usize = 600_000;
    let key = |row: usize| match row % 700 + row / 200_000 * 100 {
        key if key % 2 == 0 => format!("k{key:04}"),
        key => format!("a longer key {key:04}"),
    };
    let (mut lines, mut counts) = ("k,x\n".to_owned(), std::collections::BTreeMap::new());
    for row in 0..ROWS {
        let key = key(row);
        lines += &format!("{key},1\n");
        *counts.entry(key).or_insert(0) += 1;
    }
    let expected =
        counts.iter().fold("k,sum\n".to_owned(), |csv, (key, count)| csv + &format!("{key},{count}\n"));
    assert_eq!(printed(&["--by", "k", "--op", "sum"], &[&file(".csv", lines)]), expected);
}

/// Fields in pieces that are integers, before and after fields that are not.
#[test]
fn types_of_pieces() {
    const ROWS: usize = 200_000;
    let integers = "9007199254740993\n".repeat(ROWS / 8);
    for (at, other, sum) in [
        (0, "", "225179981368524825000"),
        (0, "0.5\n", "225179981368524800000.0"),
        (integers.len() / 2 / 17 * 17, "0.5\n", "225179981368524800000.0"),
        (integers.len(), "-0\n0.5\n", "225179981368524800000.0"),
        (integers.len(), "1e3\n", "225179981368524800000.0"),
    ] {
        let fields = "x\n".to_owned() + &integers[..at] + other + &integers[at..];
        assert!(fields.len() > 400_000);
        let printed = printed(&["--csv", "--op", "sum"], &[&file(".csv", fields)]);
        let printed =
            printed.lines().nth(1).and_then(|line| line.split(',').nth(1)).expect("a sum").to_owned();
        assert_eq!(printed.parse::<f64>(), sum.parse::<f64>(), "{at} {other:?}");
        assert_eq!(printed.contains('e') || printed.contains('.'), !other.is_empty(), "{printed}");
    }
}

/// Floats are parsed as by `str::parse`.
#[test]
fn floats_of_csv() {
    let texts = "0.5 -0.5 .5 5. -0 -0.0 +1.5 0.1 0.3 123456.789 1e5 1E-5 -1.5e300 123456789012345.6 \
                 1234567890.12345 9007199254740992. 9007199254740993.0 900719925474099.3 .000000000000001 \
                 0.000000000000001 1.00000000000000000001 2.2250738585072011e-308 5e-324 1e400 inf -Infinity \
                 NaN 999999999999999 9999999999999999 99999999.99999999 0000000000.000001 00000000000000001";
    let texts: Vec<&str> = texts.split(' ').collect();
    let lines = texts
        .iter()
        .enumerate()
        .fold("k,x\n".to_owned(), |csv, (key, text)| csv + &format!("{key},{text}\n"));
    let values = texts.iter().map(|text| text.parse::<f64>().expect("a float")).enumerate();
    let expected = values.fold("k,max\n".to_owned(), |csv, (key, value)| csv + &format!("{key},{value:?}\n"));
    for options in [&["--by", "k", "--op", "max"][..], &["--by", "k", "--op", "max", "--dtype", "f64"]] {
        assert_eq!(printed(options, &[&file(".csv", &lines)]), expected);
    }
    for bad in [".", "-", "-.", "1.2.3", "1,5", "--1", "1-", "0x1g", "1 2", "- 1", ""] {
        let bad = file(".csv", format!("x;k\n0.5;1\n{bad};2\n"));
        let output = run(&["--column", "x"], &bad);
        assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)));
    }
}

/// The same rows as CSV, Parquet and Arrow files, with keys of each type.
#[test]
fn keys_of_typed_columns() {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, BooleanArray, DictionaryArray, Float32Array, Float64Array, Int16Array, Int64Array,
        LargeStringArray, RecordBatch, StringArray, StringViewArray, UInt8Array,
    };
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;

    const ROWS: i64 = 3000;
    let mixed = |row: i64| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let some = |row: i64, every: u64| !mixed(row + 7).is_multiple_of(every);
    let ids = |row: i64| some(row, 11).then_some((mixed(row) % 50) as i64 - 20);
    let words = |row: i64| some(row, 13).then(|| format!("word {}", mixed(row) % 40));
    let words: Vec<_> = (0..ROWS).map(words).collect();
    let reals =
        |row: i64| some(row, 17).then(|| [0.5, -0.0, 0.0, f32::NAN, 1e20, 2.0][mixed(row) as usize % 6]);
    let columns: [(&str, ArrayRef); 9] = [
        (
            "x",
            Arc::new((0..ROWS).map(|row| some(row, 5).then_some(row as f64 / 8.0)).collect::<Float64Array>()),
        ),
        ("id", Arc::new((0..ROWS).map(ids).collect::<Int64Array>())),
        ("short", Arc::new((0..ROWS).map(|row| ids(row).map(|id| id as i16)).collect::<Int16Array>())),
        ("byte", Arc::new((0..ROWS).map(|row| Some(mixed(row) as u8)).collect::<UInt8Array>())),
        ("real", Arc::new((0..ROWS).map(reals).collect::<Float32Array>())),
        (
            "truth",
            Arc::new(
                (0..ROWS).map(|row| some(row, 3).then_some(mixed(row) % 2 > 0)).collect::<BooleanArray>(),
            ),
        ),
        ("word", Arc::new(words.iter().cloned().collect::<StringArray>())),
        ("large", Arc::new(words.iter().cloned().collect::<LargeStringArray>())),
        ("view", Arc::new(words.iter().cloned().collect::<StringViewArray>())),
    ];
    let entries = words.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>();
    let columns = columns.into_iter().chain([("entry", Arc::new(entries) as ArrayRef)]);
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)));
    let batch = batch.expect("the columns are of one length");

    let mut files = Vec::new();
    for (has_dictionaries, rows) in [(true, 700), (false, 700), (true, 1 << 20)] {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(has_dictionaries)
            .set_max_row_group_row_count(Some(rows))
            .build();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).expect("it takes the schema");
        writer.write(&batch).expect("it takes the rows");
        files.push(file(".parquet", writer.into_inner().expect("it is complete")));
    }
    let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).expect("a writer");
    for start in (0..ROWS as usize).step_by(1000) {
        writer.write(&batch.slice(start, 1000)).expect("it takes the rows");
    }
    files.push(file(".arrow", writer.into_inner().expect("it is complete")));

    let names = ["id", "short", "byte", "real", "truth", "word", "large", "view", "entry"];
    let texts = |name: &str, row: usize| match name {
        "x" => some(row as i64, 5).then(|| format!("{:?}", row as f64 / 8.0)),
        "id" | "short" => ids(row as i64).map(|id| id.to_string()),
        "byte" => Some((mixed(row as i64) as u8).to_string()),
        "real" => reals(row as i64).map(|real| format!("{real:?}")),
        "truth" => some(row as i64, 3).then(|| (mixed(row as i64) % 2 > 0).to_string()),
        _ => words[row].clone(),
    };
    let header: Vec<&str> = [&["x"], &names[..]].concat();
    let lines = (0..ROWS as usize).map(|row| {
        header.iter().map(|name| texts(name, row).unwrap_or_default()).collect::<Vec<_>>().join(",")
    });
    let csv = file(".csv", header.join(",") + "\n" + &lines.collect::<Vec<_>>().join("\n"));
    let of_files = |options: &[&str]| {
        let options = [options, &["--column", "x", "--skip-missing", "--device", "cpu"]].concat();
        let expected = run(&options, &csv);
        assert!(expected.status.success(), "{options:?}: {}", text(expected.stderr));
        for file in &files {
            let output = run(&options, file);
            assert_eq!(text(output.stderr), text(expected.stderr.clone()), "{options:?} {file:?}");
            assert_eq!(text(output.stdout), text(expected.stdout.clone()), "{options:?} {file:?}");
        }
    };
    for name in names {
        of_files(&["--by", name, "--op", "sum,mean,argmax"]);
        of_files(&["--by", name, "--op", "min", "--runs"]);
    }
    of_files(&["--by", "word,id", "--op", "sum"]);
    of_files(&["--by", "truth,entry,real", "--op", "max"]);
    for file in &files {
        let null = (0..ROWS).find(|&row| !some(row, 5)).expect("a row without a value");
        let message = format!(
            "row {null} (counted from 0) has no value in column `x`: --skip-missing leaves such rows out"
        );
        expect_error(&["--by", "id", "--column", "x"], file, &message);
    }
}

#[test]
fn parquet_that_is_not_read() {
    let brotli = |column: &str| {
        format!(
            "column `{column}` is compressed with Brotli, which is not supported: write the file with \
             Zstandard, gzip, Snappy or LZ4, or without compression"
        )
    };
    let encrypted = |what: &str| {
        format!("{what} is encrypted, which is not supported: write the file without encryption")
    };
    let bytes = |name: &str| std::fs::read(data(name)).expect("the file is there");
    for (name, options, message) in [
        ("brotli.parquet", &["--column", "count"][..], brotli("count")),
        ("partly_brotli.parquet", &["--column", "price"], brotli("price")),
        ("partly_brotli.parquet", &["--column", "count", "--by", "price"], brotli("price")),
        ("encrypted.parquet", &["--column", "count"], encrypted("the Parquet file")),
        ("encrypted_column.parquet", &["--column", "count"], encrypted("column `count`")),
    ] {
        expect_error(options, &data(name), &message);
        // The same under another name.
        expect_error(options, &file(".bin", bytes(name)), &message);
    }
    // Other columns of such files can be read.
    for name in ["partly_brotli.parquet", "encrypted_column.parquet"] {
        let column = if name.starts_with("partly") { "count" } else { "price" };
        let sum = lines(&["--column", column, "--op", "max"], &data(name));
        assert_eq!(sum[1].1, if column == "count" { "9" } else { "6.0" }, "{name}");
    }
}

/// Arrow streams, in the format since Arrow 0.15 and in the one before, recognised by their first bytes.
#[test]
fn streams_by_their_bytes() {
    for name in ["stream.arrows", "legacy.arrows"] {
        let bytes = std::fs::read(data(name)).expect("the file is there");
        for extension in ["", ".bin", ".csv", ".arrow", ".arrows"] {
            let stream = file(extension, &bytes);
            let sum = lines(&["--column", "count", "--op", "sum"], &stream);
            assert_eq!(sum, [("count", "6"), ("sum", "23")].map(|(name, value)| (name.into(), value.into())));
        }
    }
    // Raw numbers that start with the same bytes are not streams.
    let ones = file(".bin", bytemuck::cast_slice(&[-1_i32, 16, 1, 0]));
    expect(&["--dtype", "i32"], &ones, ["4", "16", "-1", "16", "4.0"]);
    let small = file(".bin", bytemuck::cast_slice(&[16_i32, 1, 2, 3, 4, 5]));
    expect(&["--dtype", "i32"], &small, ["6", "31", "1", "16", "5.166666666666667"]);
}

/// A CSV file of one column `x` with these fields.
fn column(fields: &[&str]) -> TempPath {
    file(".csv", "x\n".to_owned() + &fields.join("\n") + "\n")
}

#[test]
fn columns_of_integers() {
    let of = |fields: &[&str], ops: &str| {
        let options = ["--header", "--column", "x", "--skip-missing", "--csv", "--op", ops];
        let printed = printed(&options, &[&column(fields)]);
        let line = printed.lines().nth(1).expect("a row of results");
        line.splitn(3, ',').nth(2).expect("the results after count and missing").to_owned()
    };
    // 2^53 + 1 is not representable in f64.
    let precise = ["9007199254740993", "9007199254740993", "1"];
    assert_eq!(of(&precise, "sum,exact_sum,max"), "18014398509481987,9007199254740993,18014398509481987");
    assert_eq!(of(&["9007199254740993", "NA", "", "9007199254740992"], "sum,argmax"), "18014398509481985,0");
    assert_eq!(of(&["-9223372036854775808", "+7", "-0"], "min,max"), "-9223372036854775808,7");
    assert_eq!(of(&["NA", ""], "sum"), "0.0");
    let keyed = file(".csv", "k,x\na,9007199254740993\na,9007199254740993\na,1\nb,3\n");
    assert_eq!(csv(&["--by", "k", "--op", "sum"], &keyed), "k,sum\na,18014398509481987\nb,3\n");

    // One field that is not an integer makes all f64, also those before it.
    for fields in [
        &["9007199254740993", "-0", "9007199254740995", "0.5"][..],
        &["-0", "1e3"],
        &["-0", "0.0", "-0"],
        &["9223372036854775807", "NaN", "3"],
        &["1", "NA", "-0", "2.", "99999999999999999999"],
    ] {
        let ops = "sum,min,max,nanmin,minmax,mean,exact_sum,norm_l1,argmin";
        let options = ["--header", "--skip-missing", "--csv", "--op", ops];
        let fields = column(fields);
        let as_floats = printed(&[&options[..], &["--dtype", "f64"]].concat(), &[&fields]);
        assert_eq!(printed(&options, &[&fields]), as_floats);
    }
    assert_eq!(of(&["-0", "0.5"], "min"), "-0.0");
    // --dtype overrides the type of the fields.
    let printed = printed(&["--dtype", "f64", "--csv", "--op", "sum"], &[&column(&["1", "2"])]);
    assert_eq!(printed, "count,sum\n2,3.0\n");
}

/// The printed CSV, and the notes on stderr.
fn with_notes(options: &[&str], files: &[&Path]) -> (String, String) {
    let output = Command::new(PROGRAM).args(["--device", "cpu", "--csv"]).args(options).args(files).output();
    let output = output.expect("the program starts");
    (text(output.stdout), without_times(output.stderr))
}

#[test]
fn integers_that_do_not_fit() {
    for (large, sum) in [("9223372036854775808", "9.223372036854776e18"), ("-99999999999999999999", "-1e20")]
    {
        let fields = column(&["1", large, "2"]);
        let note = format!(
            "note: `{}`: `{large}` does not fit i64, so this column of integers is read as f64, which has 53 \
             bits of precision; choose another type with --dtype\n",
            fields.display()
        );
        assert_eq!(with_notes(&["--op", "sum"], &[&fields]), (format!("count,sum\n3,{sum}\n"), note.clone()));
        assert_eq!(with_notes(&["--op", "sum", "--dtype", "f64"], &[&fields]).1, "");
        // Large integers without a note: the column has floats.
        for fields in [&[large, "0.5"][..], &["0.5", large], &["1", large, "2e0", "1"]] {
            assert_eq!(with_notes(&["--op", "sum"], &[&column(fields)]).1, "", "{fields:?}");
        }
    }

    // Sums do not wrap either: the user did not ask for 64 bits.
    let most = "9223372036854775807";
    let least = "-9223372036854775808";
    for (fields, op, result, has_note) in [
        (&[most, most][..], "sum", "18446744073709551614", false),
        (&[most, "0"], "sum", most, false),
        (&[least, least, "1"], "sum", "-18446744073709551615", false),
        (&[most, most], "nansum", "18446744073709551614", false),
        (&[most, most], "compensated_sum", "18446744073709551614", false),
        (&[most, most], "mean", "9.223372036854776e18", false),
        (&[most], "prod", most, false),
        (&[most, "2"], "prod", "1.8446744073709552e19", true),
        (&["4611686018427387904", "2"], "prod", "9.223372036854776e18", true),
        (&["4611686018427387904", "-2"], "prod", least, false),
        (&["4294967296", "4294967296"], "prod", "1.8446744073709552e19", true),
        (&["4294967296", "4294967296", "0"], "prod", "0", false),
        (&["4294967296", "1"], "sumsq", "1.8446744073709552e19", true),
        (&["3000000000", "1"], "sumsq", "9000000000000000001", false),
    ] {
        let note = if has_note {
            format!("note: {op} does not fit i64, so it is computed in f64\n")
        } else {
            "".into()
        };
        let count = fields.len();
        let expected = format!("count,{op}\n{count},{result}\n");
        assert_eq!(with_notes(&["--op", op], &[&column(fields)]), (expected, note.clone()), "{fields:?}");
        // As the values of a key, beside another key whose result has the same type.
        let lines = fields.iter().fold("k,x\nb,6\n".to_owned(), |csv, field| csv + &format!("a,{field}\n"));
        for device in ["cpu", "emulator"] {
            let options = ["--by", "k", "--op", op, "--device", device];
            let output = run(&options, &file(".csv", &lines));
            assert_eq!(text(output.stderr), note);
            let other = if op == "sumsq" { "36" } else { "6" };
            let point = if has_note || op == "mean" { ".0" } else { "" };
            assert_eq!(text(output.stdout), format!("k,{op}\na,{result}\nb,{other}{point}\n"));
        }
    }
    let factors: Vec<String> = (1..=400).map(|factor| factor.to_string()).collect();
    let mut factors: Vec<&str> = factors.iter().map(String::as_str).collect();
    assert_eq!(
        with_notes(&["--op", "prod"], &[&column(&factors[..20])]).0,
        "count,prod\n20,2432902008176640000\n"
    );
    assert_eq!(
        with_notes(&["--op", "prod"], &[&column(&factors[..22])]).0,
        "count,prod\n22,1.1240007277776077e21\n"
    );
    factors.push("0");
    assert_eq!(
        with_notes(&["--op", "prod"], &[&column(&factors)]),
        ("count,prod\n401,0\n".into(), String::new())
    );
    // With an integer --dtype, sums wrap, as the help says.
    let wraps = with_notes(&["--op", "sum", "--dtype", "i64"], &[&column(&[most, most])]);
    assert_eq!(wraps, ("count,sum\n2,-2\n".into(), String::new()));
}

#[test]
fn columns_of_several_files_have_one_type() {
    let integers = column(&["9007199254740993"]);
    let [floats, none] = [column(&["0.5"]), file(".csv", "x\n")];
    let [of_i64, of_f64] =
        [npy_of("<i8", "(1,)", &1_i64.to_le_bytes()), npy_of("<f8", "(1,)", &2_f64.to_le_bytes())];
    for (files, sum) in [
        ([&integers, &integers], "18014398509481986"),
        ([&integers, &floats], "9007199254740992.0"),
        ([&floats, &integers], "9007199254740992.0"),
        ([&integers, &none], "9007199254740993"),
        ([&none, &integers], "9007199254740993"),
        ([&none, &none], "0.0"),
        ([&integers, &of_i64], "9007199254740994"),
        ([&of_i64, &integers], "9007199254740994"),
        ([&integers, &of_f64], "9007199254740994.0"),
        ([&of_f64, &floats], "2.5"),
        ([&of_f64, &none], "2.0"),
    ] {
        let (printed, notes) = with_notes(&["--op", "sum"], &files.map(|file| &**file));
        assert_eq!(printed.lines().nth(1).and_then(|line| line.split(',').nth(1)), Some(sum), "{notes}");
        assert_eq!(notes, "");
    }
    // Keys of several files.
    let [a, b] = [file(".csv", "k,x\nq,1\np,2\n"), file(".csv", "k,x\np,4\nr,8\nq,0.5\n")];
    let (sorted, _) = with_notes(&["--by", "k", "--op", "sum"], &[&a, &b]);
    assert_eq!(sorted, "k,sum\np,6.0\nq,1.5\nr,8.0\n");
    let (runs, _) = with_notes(&["--by", "k", "--runs", "--op", "sum"], &[&a, &b]);
    assert_eq!(runs, "k,sum\nq,1.0\np,6.0\nr,8.0\nq,0.5\n");
}
