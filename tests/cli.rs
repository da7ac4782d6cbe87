//! `examples/reduce.rs` from end to end: input files in, printed lines and errors out.

#[path = "support/example.rs"]
mod example;

use std::fmt::Debug;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use example::executable;
use gpu_reduce::{Element, bf16, f16};
use tempfile::TempPath;

/// A file of these bytes, deleted when it is dropped.
fn file(extension: &str, bytes: impl AsRef<[u8]>) -> TempPath {
    let mut file = tempfile::Builder::new().suffix(extension).tempfile().expect("a temporary file");
    file.write_all(bytes.as_ref()).expect("the temporary file takes the bytes");
    file.into_temp_path()
}

fn run(options: &[&str], file: &Path) -> Output {
    Command::new(executable("reduce")).args(options).arg(file).output().expect("the example starts")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the example prints UTF-8")
}

/// The printed lines on the CPU, without those that differ from run to run.
#[track_caller]
fn lines(options: &[&str], file: &Path) -> Vec<(String, String)> {
    let output = run(&[&["--device", "cpu"], options].concat(), file);
    assert_eq!((text(output.stderr), output.status.code()), (String::new(), Some(0)));
    let lines = text(output.stdout);
    let lines = lines.lines().map(|line| line.split_once("  ").expect("a name and a value"));
    let mut lines: Vec<_> =
        lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect();
    let run_dependent = lines.split_off(lines.len() - 4);
    let names: Vec<_> = run_dependent.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["device", "load", "time", "GB/s"]);
    assert!(run_dependent[0].1.starts_with("cpu"), "{run_dependent:?}");
    lines
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

/// A `.npy` file. NumPy pads the header so that the data start at a multiple of 64 bytes; here `shift` bytes later.
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

/// A `.npy` file as NumPy saves an array of this type and shape.
fn npy_of(descr: &str, shape: &str, data: &[u8]) -> TempPath {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    file(".npy", npy(1, &header, 0, data))
}

/// Checks a run on these numbers in each of the formats.
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
        // The magic bytes tell the format, whatever the name.
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
    let expected = ["3", "6.0", "1.0", "3.0", "2.0"];
    let plain = file(".csv", "a,x,b\n9,1,9\n9,2,9\n9,3,9\n");
    expect(&["--column", "x"], &plain, expected);
    expect(&["--column", "1"], &plain, expected);
    // A name comes before an index.
    expect(&["--column", "1"], &file(".csv", "1,2\n1,9\n2,9\n3,9"), expected);
    // With --column, any file is CSV.
    expect(&["--column", "x"], &file(".txt", "x,y\n1,9\n2,9\n3,9"), expected);

    let rfc4180 = "\"note, \"\"quoted\"\"\",\"x\"\r\n\"two\r\nlines\",\"1\"\r\n,2\r\n\" \",3\r\n";
    expect(&["--column", "x"], &file(".CSV", rfc4180), expected);
    expect(
        &["--column", "note, \"quoted\"", "--dtype", "u8"],
        &file(".csv", "\"note, \"\"quoted\"\"\"\n7"),
        ["1", "7", "7", "7", "7.0"],
    );
    expect(&[], &file(".csv", "\u{feff}x\n 1 \n\n2e0\n+3."), expected);
    expect(&[], &file(".csv", "x\n1\nNaN\n-inf"), ["3", "NaN", "NaN", "NaN", "NaN"]);
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
    ] {
        let lines = lines(&[options, &["--dtype", "i32"]].concat(), &file);
        let lines: Vec<_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(lines, [&[("count", "4")], expected].concat(), "{options:?}");
    }
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
        let message = "the mean of no elements is undefined: the input is empty";
        expect_error(&[options, &["--op", "mean"]].concat(), &file, message);
    }
}

#[test]
fn devices() {
    let file = file(".bin", bytemuck::cast_slice(&[1_u16, 2, 3]));
    let output = run(&["--device", "auto", "--dtype", "u16"], &file);
    assert_eq!((text(output.stderr), output.status.code()), (String::new(), Some(0)));
    let lines = text(output.stdout);
    assert!(
        lines.starts_with("count   3\nsum     6\nmin     1\nmax     3\nmean    2.0\ndevice  c"),
        "{lines}"
    );

    let emulated = |options: &[&str], driver: &str| {
        let mut command = Command::new(executable("reduce"));
        command.args(options).args(["--dtype", "u16"]).arg(&*file).env("GPU_REDUCE_DRIVER", driver);
        let output = command.output().expect("the example starts");
        assert_eq!((text(output.stderr), output.status.code()), (String::new(), Some(0)));
        let lines = text(output.stdout);
        let expected =
            "count   3\nsum     6\nmin     1\nmax     3\nmean    2.0\ndevice  cuda:0 (PTX emulator)\n";
        assert!(lines.starts_with(expected), "{lines}");
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

    // More GPUs than any machine has.
    let output = run(&["--device", "cuda:4096", "--dtype", "u16"], &file);
    assert!(text(output.stderr).starts_with("error: "));
    assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)));
}

#[test]
fn bad_files() {
    let missing = file(".npy", "").to_path_buf();
    let system = std::fs::read(&missing).expect_err("the file was deleted with its guard");
    expect_error(&[], &missing, &format!("cannot read `{}`: {system}", missing.display()));

    let name_the_type =
        "neither a .npy nor a CSV file; if it holds raw numbers, name their type with --dtype";
    expect_error(&[], &file(".bin", "12345678"), name_the_type);
    for (dtype, size) in [("i16", 2), ("bf16", 2), ("f32", 4), ("u64", 8)] {
        let message =
            format!("9 bytes are not a whole number of {dtype} elements, which have {size} bytes each");
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
    let supported = "supported are little-endian integers of 8 to 64 bits, floats of 16 to 64 bits, \
                     and with --dtype bf16 `<V2`, as which NumPy saves bfloat16";
    for descr in
        [">f4", ">i8", "<c8", "<c16", "|O", "|b1", "|S3", "<U5", "<M8[ns]", "<f16", "<V2", "|V4", "f4"]
    {
        let message = format!("the .npy file holds `{descr}`; {supported}");
        expect_error(&[], &npy_of(descr, "(2,)", &[0; 8]), &message);
    }
    let header = "{'descr': [('x', '<f4'), ('y, z', '>i4')], 'fortran_order': False, 'shape': (1,), }";
    let message = format!("the .npy file holds `[('x', '<f4'), ('y, z', '>i4')]`; {supported}");
    expect_error(&[], &file(".npy", npy(3, header, 0, &[0; 8])), &message);

    let floats = npy_of("<f4", "(2,)", &[0; 8]);
    expect_error(
        &["--dtype", "f64"],
        &floats,
        "the .npy file holds `<f4`, which is not the f64 that --dtype names",
    );
    expect_error(
        &["--dtype", "bf16"],
        &floats,
        "the .npy file holds `<f4`, which is not the bf16 that --dtype names",
    );
    expect_error(&["--column", "x"], &floats, "a .npy file has no columns; --column is for CSV files");

    for (shape, count, bytes) in
        [("(3, 1)", 3, 8), ("(2,)", 2, 7), ("(2,)", 2, 9), ("()", 1, 0), ("(0,)", 0, 4)]
    {
        let message = format!(
            "the .npy file's shape {shape} needs {count} elements of 4 bytes; {bytes} bytes follow its header"
        );
        expect_error(&[], &npy_of("<f4", shape, &vec![0; bytes]), &message);
    }
}

#[test]
fn bad_csv_files() {
    let x: &[&str] = &["--column", "x"];
    for (options, csv, message) in [
        (x, "", "the CSV file is empty; its first row must name its columns"),
        (x, "a,b\n1,2", "the CSV file has no column `x`; it has `a`, `b`"),
        (&["--column", "2"], "a,b\n1,2", "the CSV file has no column `2`; it has `a`, `b`"),
        (&[], "a,b\n1,2", "the CSV file has several columns; choose one with --column: `a`, `b`"),
        (x, "x\n1\ntwo\n3", "line 3: `two` in column `x` is not a valid f64"),
        (x, "x,y\n1,1\n,2\n", "line 3: `` in column `x` is not a valid f64"),
        (x, "x\n1\n\"\"\n", "line 3: `` in column `x` is not a valid f64"),
        (x, "x\n1,5\n", "line 2: 2 fields, but the header row has 1"),
        (x, "y,x\n1,2\n3\n", "line 3: 1 fields, but the header row has 2"),
        // Lines are those of the file: with CRLF, blank lines, and quoted line ends before the value.
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
