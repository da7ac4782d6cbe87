//! `examples/pipeline.rs` from end to end: files of numbers in; printed lines, files of sums, and errors out.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use gpu_reduce::{Element, Reduce, Sum};
use support::example::executable;
use support::{Sample, samples};
use tempfile::{TempDir, TempPath};

/// A file with these bytes, deleted when it is dropped.
fn file(bytes: &[u8]) -> TempPath {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("the temporary file takes the bytes");
    file.into_temp_path()
}

fn run(options: &[&str], file: &Path) -> Output {
    Command::new(executable("pipeline")).args(options).arg(file).output().expect("the example starts")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the example prints UTF-8")
}

/// Checks what is printed and written for these numbers, on the CPU and on the emulator.
#[track_caller]
fn expect<T: Element>(numbers: &[T], row: usize, options: &[&str], total: impl Fn(&[T::Wide]) -> String) {
    let input = file(bytemuck::cast_slice(numbers));
    let rows: Vec<T::Wide> = numbers.chunks(row).map(|row| row.reduce::<Sum, 256>().unwrap()).collect();
    let row = row.to_string();
    for device in ["cpu", "emulator"] {
        let folder = TempDir::new().unwrap();
        let output = folder.path().join("sums");
        let fixed =
            ["--device", device, "--row", &row, "--dtype", T::NAME, "--output", output.to_str().unwrap()];
        let ran = run(&[&fixed, options].concat(), &input);
        assert_eq!((text(ran.stderr), ran.status.code()), (String::new(), Some(0)), "{options:?}");
        let printed = text(ran.stdout);
        let lines: Vec<_> = printed.lines().map(|line| line.split_once("  ").unwrap()).collect();
        let names: Vec<_> = lines.iter().map(|(name, _)| name.trim()).collect();
        let all = [
            "total", "rows", "bytes", "device", "set-up", "time", "GB/s", "upload", "overlap", "reading",
            "in turn",
        ];
        assert_eq!(names, all);
        let value = |index: usize| lines[index].1.trim().to_owned();
        let expected = [total(&rows), rows.len().to_string(), size_of_val(numbers).to_string()];
        assert_eq!([value(0), value(1), value(2)], expected, "{options:?} on {device}");
        assert!(value(3).to_lowercase().contains(device), "{printed}");
        let written = fs::read(&output).unwrap();
        assert_eq!(written, bytemuck::cast_slice::<_, u8>(&rows), "{options:?} on {device}");
    }
}

/// Pieces and rows of many lengths, and files that end in the middle of one.
#[track_caller]
fn expect_of_lengths<T: Sample>(total: impl Fn(&[T::Wide]) -> String) {
    let numbers = samples(20_000, T::any);
    for (len, row, options) in [
        (20_000, 100, &["--piece", "4KiB"][..]),
        (19_999, 100, &["--piece", "4KiB", "--slots", "2"]),
        (19_901, 100, &["--piece", "5000", "--slots", "1"]),
        (12_345, 4096, &["--piece", "16KiB", "--slots", "7"]),
        // Rows that are longer than a piece or than the file.
        (12_345, 5000, &["--piece", "1"]),
        (12_345, 1_000_000_000_000, &["--slots", "1000"]),
        (12_345, 1, &["--piece", "32 KiB"]),
        (1, 1, &[]),
        (4096, 4096, &[]),
        (4097, 4096, &[]),
    ] {
        expect(&numbers[..len], row, options, &total);
    }
}

#[test]
fn floats() {
    expect_of_lengths::<f32>(|rows| rows.iter().fold(0.0, |sum, &row| sum + f64::from(row)).to_string());
}

#[test]
fn doubles() {
    expect_of_lengths::<f64>(|rows| rows.iter().fold(0.0, |sum, &row| sum + row).to_string());
}

#[test]
fn integers() {
    expect_of_lengths::<i32>(|rows| rows.iter().sum::<i64>().to_string());
}

/// The default pieces, rows and type, with a file of more than one piece.
#[test]
fn defaults() {
    let numbers: Vec<f32> = (0..9_000_001u32).map(|index| (index % 8) as f32).collect();
    let ran = run(&["--device", "cpu"], &file(bytemuck::cast_slice(&numbers)));
    let total: f64 = numbers.iter().map(|&x| f64::from(x)).sum();
    let start = format!("total    {total}\nrows     2198\nbytes    36000004\ndevice   cpu (");
    let printed = text(ran.stdout);
    assert!(printed.starts_with(&start), "{printed}");
}

/// Checks that the run fails with only this message.
#[track_caller]
fn expect_error(options: &[&str], file: &Path, message: &str) {
    let output = run(&[&["--device", "cpu"], options].concat(), file);
    assert_eq!(text(output.stderr), format!("error: {message}\n"));
    assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)));
}

#[test]
fn errors() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing");
    let (path, reason) = (missing.display(), "No such file or directory (os error 2)");
    expect_error(&[], &missing, &format!("cannot read `{path}`: {reason}"));
    let empty = file(&[]);
    expect_error(&[], &empty, &format!("`{}` is empty: there is nothing to reduce", empty.display()));
    let odd = file(&[0; 1001]);
    let message = format!(
        "`{}` has 1001 bytes, which are not a whole number of f64: they have 8 bytes each",
        odd.display()
    );
    expect_error(&["--dtype", "f64"], &odd, &message);

    let good = file(&[0; 64]);
    for option in ["--row", "--piece", "--slots"] {
        expect_error(&[option, "0"], &good, &format!("{option} is 0: give at least 1"));
    }
    let message = format!("`{}` is the file that is read: name another for --output", good.display());
    expect_error(&["--output", good.to_str().unwrap()], &good, &message);
    assert_eq!(fs::read(&good).unwrap(), [0; 64]);
    let nowhere = missing.join("sums");
    let reason = "No such file or directory (os error 2)";
    expect_error(
        &["--output", nowhere.to_str().unwrap()],
        &good,
        &format!("cannot write `{}`: {reason}", nowhere.display()),
    );
    let size = run(&["--piece", "32MB"], &good);
    assert_eq!(size.status.code(), Some(2));
    let stderr = text(size.stderr);
    assert!(stderr.contains("a size is a number of bytes, such as 1000, 64KiB, 32MiB or 1GiB"), "{stderr}");
}

/// The error appears while other pieces are read.
#[test]
#[cfg(target_os = "linux")]
fn an_error_on_the_way_ends_it() {
    let input = file(&[0; 1 << 20]);
    for slots in ["1", "2", "5"] {
        let options = ["--row", "1", "--piece", "4KiB", "--slots", slots, "--output", "/dev/full"];
        expect_error(&options, &input, "cannot write `/dev/full`: No space left on device (os error 28)");
    }
}
