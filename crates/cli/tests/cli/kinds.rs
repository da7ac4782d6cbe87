//! Compressed files, encodings of text, notations of numbers, dates and decimals.

use super::*;

#[test]
fn compressed_tables() {
    for name in ["parts.csv.bz2", "parts.csv.xz", "parts.csv.lz4", "one.zip"] {
        expect(&["--column", "y"], &data(name), ["3", "12", "2", "6", "4.0"]);
        let bytes = std::fs::read(data(name)).expect("the file is there");
        let output = piped(&["--column", "x", "--op", "sum"], &bytes);
        assert_eq!(text(output.stdout), "count  3\nsum    9\n", "{name}");

        let cut = file(".csv.x", &bytes[..bytes.len() - 9]);
        let output = run(&["--column", "x"], &cut);
        assert!(text(output.stderr).starts_with("error: "), "{name}");
        assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)), "{name}");
    }
    // Text that starts as bzip2 data do.
    expect(&["--header"], &file(".csv", "BZh9\n1\n3\n"), ["2", "4", "1", "3", "2.0"]);
}

#[test]
fn utf16() {
    let little = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    let big = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>();
    let table = "\u{feff}größe,x\r\n\"ä,b\",1\r\n𝄞,3";
    for bytes in [little(table), big(table)] {
        for extension in [".csv", ".txt", ""] {
            expect(&["--column", "x"], &file(extension, &bytes), ["2", "4", "1", "3", "2.0"]);
        }
        let by = csv(&["--by", "größe", "--column", "x", "--op", "sum"], &file(".csv", &bytes));
        assert_eq!(by, "größe,sum\n\"ä,b\",1\n𝄞,3\n");
    }
    expect(&[], &file("", little("\u{feff}1\n3\n")), ["2", "4", "1", "3", "2.0"]);
    // A mark may also start raw numbers.
    let raw = [0xff, 0xfe, 0, 1];
    expect(&["--dtype", "i16"], &file(".bin", raw), ["2", "-1", "-257", "256", "-0.5"]);
}

#[test]
fn comments() {
    let table = "# \"made, by\n#\n\nx,y\n# 1,2\n1,\"#\n2\"\r\n#,\"\n\n3,\"\"\"\"\n#\n5,#\n#";
    let options = ["--comment", "#", "--column", "x"];
    let file_of = |table: &str| file(".csv", table);
    expect(&options, &file_of(table), ["3", "9", "1", "5", "3.0"]);
    assert_eq!(
        csv(&["--comment", "#", "--by", "y", "--column", "x", "--op", "sum"], &file_of(table)),
        "y,sum\n\"\"\"\",3\n#,5\n\"#\n2\",1\n"
    );
    expect_error(
        &options,
        &file_of(&(table.to_owned() + "\n\nz,1")),
        "line 15: `z` in column `x` is not a valid f64",
    );
    expect_error(&options, &file_of("#"), "the CSV file is empty; its first row must name its columns");
    expect(&options, &file_of("x;y\n1;2\n# 3"), ["1", "1", "1", "1", "1.0"]);
    // Many pieces, whose comments have quotes.
    let rows: String = (0..120_000).map(|row| format!("{row},\"a\nb\"\n# an \"odd, \"quote\n")).collect();
    let options = ["--comment", "#", "--column", "x", "--dtype", "u32", "--op", "sum"];
    let printed = printed(&options, &[&file_of(&("x,y\n".to_owned() + &rows))]);
    assert_eq!(printed, "count  120000\nsum    7199940000\n");
    expect_refused(&["--comment", "ab"], &file_of(table), "invalid value 'ab' for '--comment <CHARACTER>'");
    expect_error(
        &["--comment", "#"],
        &npy_of("<f4", "(1,)", &[0; 4]),
        "--comment is for CSV files; this is a NumPy file, which has no named columns or keys",
    );
}

#[test]
fn words_for_missing_values() {
    let table = file(".csv", "k,x\na,1\nb,-\na,-999\nb,n.a.\na,\nb,4\n");
    let options = ["--column", "x", "--missing", "-,-999,n.a."];
    let skip = [&options[..], &["--skip-missing", "--csv", "--op", "sum,min"]].concat();
    assert_eq!(printed(&skip, &[&table]), "count,missing,sum,min\n2,4,5,1\n");
    expect_error(
        &options,
        &table,
        "line 3: `-` in column `x` is a missing value: --skip-missing leaves such rows out",
    );
    expect_error(
        &["--missing", "-", "--skip-missing"],
        &file(".csv", "-\n1\n"),
        "the first row of the CSV file may be a header or data; say which with --header or --no-header: `-`",
    );
}

#[test]
fn notations_of_numbers() {
    let hexadecimal = file(".csv", "x\n0x1f\n-0XFF\n1\n");
    expect(&[], &hexadecimal, ["3", "-223", "-255", "31", "-74.33333333333333"]);
    expect(&["--dtype", "i16"], &hexadecimal, ["3", "-223", "-255", "31", "-74.33333333333333"]);
    expect(&["--dtype", "f32"], &hexadecimal, ["3", "-223.0", "-255.0", "31.0", "-74.333336"]);
    let message = "line 3: `-0XFF` in column `x` is not a valid u8";
    expect_error(&["--dtype", "u8"], &hexadecimal, message);
    expect(
        &["--dtype", "u64"],
        &file(".csv", "x\n0xffffffffffffffff\n0\n"),
        ["2", "18446744073709551615", "0", "18446744073709551615", "9.223372036854776e18"],
    );
    let percent = file(".csv", "x\n12.5 %\n50%\n+1\n-.5 %\n");
    expect(&[], &percent, ["4", "1.62", "-0.005", "1.0", "0.405"]);
    expect_error(&["--dtype", "i32"], &percent, "line 2: `12.5 %` in column `x` is not a valid i32");
    for bad in ["%", ".%", "1e3%", "nan%", "0x", "0x+1", "0xg", "--0x1", "5 percent", "1%%"] {
        let bad = file(".csv", format!("x\n1\n{bad}\n"));
        let output = run(&["--header"], &bad);
        assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)));
    }
    // The first row may be data.
    for first in ["0x1f", "12.5 %"] {
        let message = format!(
            "the first row of the CSV file may be a header or data; say which with --header or --no-header: \
             `{first}`"
        );
        expect_error(&[], &file(".csv", format!("{first}\n1\n")), &message);
        let count = printed(&["--no-header", "--op", "count"], &[&file(".csv", format!("{first}\n1\n"))]);
        assert_eq!(count, "count  2\n");
    }
}

#[test]
fn dates_times_and_decimals_as_keys() {
    for name in ["instants.parquet", "instants.arrow"] {
        let by = |key| csv(&["--by", key, "--column", "x", "--op", "sum"], &data(name));
        assert_eq!(by("day"), "day,sum\n,4\n1969-12-31,2\n2024-02-29,9\n", "{name}");
        assert_eq!(by("time"), "time,sum\n,8\n09:05:00,6\n09:05:00.250,1\n");
        assert_eq!(by("local"), "local,sum\n1950-01-01T00:00:00,10\n2024-02-29T09:05:00,5\n");
        assert_eq!(by("utc"), "utc,sum\n2024-02-29T09:05:00Z,15\n");
        assert_eq!(by("decimal"), "decimal,sum\n-9.75,2\n10.50,5\n,8\n");
        assert_eq!(
            by("day,decimal"),
            "day,decimal,sum\n,10.50,4\n1969-12-31,-9.75,2\n2024-02-29,10.50,1\n2024-02-29,,8\n"
        );
    }
}

#[test]
fn dates_times_and_decimals_as_values() {
    for name in ["instants.parquet", "instants.arrow"] {
        let of = |column, op| {
            let args = ["--column", column, "--op", op, "--skip-missing", "--csv"];
            printed(&args, &[&data(name)]).lines().nth(1).expect("the results").to_owned()
        };
        assert_eq!(of("day", "min,max,mean"), "3,1,1969-12-31,2024-02-29,2006-02-09", "{name}");
        assert_eq!(of("day", "median,argmin"), "3,1,2024-02-29,1");
        assert_eq!(of("time", "minmax,mean"), "3,1,09:05:00,09:05:00.250,09:05:00.083333");
        assert_eq!(of("local", "min,max"), "4,0,1950-01-01T00:00:00,2024-02-29T09:05:00");
        assert_eq!(
            of("utc", "max,mean,median"),
            "4,0,2024-02-29T09:05:00Z,2024-02-29T09:05:00Z,2024-02-29T09:05:00Z"
        );
        assert_eq!(of("decimal", "sum,min,max,mean,median"), "3,1,11.25,-9.75,10.50,3.75,10.5");
        assert_eq!(of("decimal", "any,count_nonzero,exact_mean"), "3,1,true,3,3.75");
        let floats = ["--column", "decimal", "--skip-missing", "--op", "sum,std", "--dtype", "f64", "--csv"];
        assert_eq!(printed(&floats, &[&data(name)]), "count,missing,sum,std\n3,1,11.25,9.545941546018392\n");

        let by = text(run(&["--by", "x", "--column", "day", "--skip-missing"], &data(name)).stdout);
        assert_eq!(
            by,
            "x,min,max,mean\n1,2024-02-29,2024-02-29,2024-02-29\n2,1969-12-31,1969-12-31,1969-12-31\n\
             8,2024-02-29,2024-02-29,2024-02-29\n"
        );
        let two = printed(&["--column", "day,x", "--skip-missing"], &[&data(name)]);
        let lines = [
            "column  count  missing  sum   min         max         mean",
            "day     3      1        none  1969-12-31  2024-02-29  2006-02-09",
            "x       4      0        15    1           8           3.75",
        ];
        assert_eq!(two.lines().collect::<Vec<_>>(), lines);
        let json = printed(&["--column", "day", "--skip-missing", "--json", "--op", "min"], &[&data(name)]);
        assert_eq!(json, "{\"count\": 3, \"missing\": 1, \"min\": \"1969-12-31\"}\n");

        let skip = |column, more| ["--column", column, "--skip-missing", "--op", more];
        expect_error(
            &skip("day", "sum"),
            &data(name),
            "sum of dates is not computed: choose count, min, max, mean or median",
        );
        expect_error(
            &skip("decimal", "var"),
            &data(name),
            "var of decimals is not computed: read the column as floats with --dtype f64",
        );
        let dtype = ["--column", "day", "--skip-missing", "--dtype", "i64"];
        expect_error(&dtype, &data(name), "the file holds `Date32`, but --dtype says i64");
    }
}

#[test]
fn dates_and_times_in_csv() {
    let of = |fields: &str| {
        let args = ["--header", "--csv", "--op", "min,max,mean"];
        printed(&args, &[&file(".csv", format!("t\n{fields}\n"))]).lines().nth(1).expect("results").to_owned()
    };
    assert_eq!(of("2024-02-29\n1969-12-31\n2024-02-29"), "3,1969-12-31,2024-02-29,2006-02-09");
    assert_eq!(of("09:05\n09:05:00.25"), "2,09:05:00,09:05:00.250,09:05:00.125");
    let local = "2024-02-29T09:05:00,2024-02-29T12:00:00.500,2024-02-29T10:32:30.250";
    assert_eq!(of("2024-02-29 09:05\n2024-02-29T12:00:00.5"), format!("2,{local}"));
    let utc = "2024-02-29T09:05:00Z,2024-02-29T09:05:00Z,2024-02-29T09:05:00Z";
    assert_eq!(of("2024-02-29 10:05:00+01:00"), format!("1,{utc}"));

    let bad =
        ["2024-02-30", "2024-2-1", "24-02-01", "9:05", "25:00", "2024-02-29T09:05:00.0000001", "2024-02-29x"];
    for bad in bad {
        let output = run(&["--header"], &file(".csv", format!("t\n{bad}\n")));
        assert_eq!((text(output.stdout), output.status.code()), (String::new(), Some(1)), "{bad}");
    }
    for other in ["5", "2024-02-29T00:00:00", "09:05"] {
        let mixed = file(".csv", format!("t\n2024-02-29\n{other}\n"));
        let message = format!("line 3: `{other}` in column `t` is not a valid f64");
        expect_error(&["--header"], &mixed, &message);
        // Threads read these pieces.
        let days = "2024-02-29\n".repeat(100_000);
        let others = format!("{other}\n").repeat(100_000);
        let message = "column `t` holds numbers and dates, or dates and times in several forms: write all \
                       fields in one form";
        let far = run(&["--header"], &file(".csv", format!("t\n{days}{others}")));
        let far = text(far.stderr);
        assert!(far.contains(message) || far.contains("is not a valid f64"), "{far}");
    }
    let many = "2024-02-29\n1969-12-31\n".repeat(100_000);
    assert_eq!(of(&many), "200000,1969-12-31,2024-02-29,1997-01-30");
}

/// Digits of each length, with a point at each place, as keys of themselves and as values.
#[test]
fn digits() {
    let digits = "98765432109876543210";
    let number = |length: usize| {
        (0..=length).map(move |point| format!("{}.{}", &digits[..point], &digits[point..length]))
    };
    let numbers: Vec<String> = (1..digits.len())
        .flat_map(number)
        .chain((1..digits.len()).map(|length| digits[..length].to_owned()))
        .collect();
    let lines: String = numbers.iter().enumerate().map(|(key, number)| format!("{key},{number}\n")).collect();
    let values = numbers.iter().map(|number| number.parse::<f64>().expect("a float")).enumerate();
    let expected = values.fold("k,max\n".to_owned(), |csv, (key, value)| csv + &format!("{key},{value:?}\n"));
    assert_eq!(printed(&["--by", "k", "--op", "max"], &[&file(".csv", format!("k,x\n{lines}"))]), expected);
}
