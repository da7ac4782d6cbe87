//! The rows that `--where` keeps, and completions.

use super::*;

#[test]
fn conditions() {
    let table = file(
        ".csv",
        "city,year,x,note\r\noslo,2019,1,\r\n\"new york\",2020,2,a and b\r\noslo,2021,4,\"it's\"\r\n,2022,8,<\r\nrome,,16,=",
    );
    for (conditions, sum) in [
        ("city=oslo", "5"),
        ("city != oslo", "18"),
        (" 'city' = \"new york\" ", "2"),
        ("city=new york", "2"),
        ("year>=2020", "14"),
        ("year>2020 and year<2022", "4"),
        ("year<=2019.5 and city<p and x=1", "1"),
        ("year=2020.0", "2"),
        // In quotes it is text.
        ("year='2020.0'", "0.0"),
        ("year != 2020", "13"),
        ("1 < '2020'", "1"),
        ("note='a and b'", "2"),
        ("note=\"it's\" and x>0", "4"),
        ("note='<'", "8"),
        // A field that is no number is different.
        ("city!=1", "23"),
        ("city<1", "0.0"),
        ("year=''", "0.0"),
    ] {
        let options = ["--column", "x", "--op", "sum", "--where", conditions];
        let printed = printed(&options, &[&table]);
        assert_eq!(
            printed.lines().nth(1).map(|line| line.replace("sum    ", "")),
            Some(sum.into()),
            "{conditions}"
        );
    }
    let options =
        ["--by", "city", "--column", "x,year", "--where", "x<9", "--op", "count,max", "--skip-missing"];
    assert_eq!(
        text(run(&options, &table).stdout),
        "city,x_count,x_max,year_count,year_max\n,1,8,1,2022\nnew york,1,2,1,2020\noslo,2,4,2,2021\n"
    );
    // Rows that are left out need no number; missing rows are counted among the others.
    let options = ["--column", "year", "--op", "min", "--csv", "--where"];
    assert_eq!(printed(&[&options[..], &["city!=rome"]].concat(), &[&table]), "count,min\n3,2019\n");
    assert_eq!(
        printed(&[&options[..], &["x>1", "--skip-missing"]].concat(), &[&table]),
        "count,missing,min\n3,1,2020\n"
    );
    expect_error(
        &["--column", "x", "--where", "town=oslo"],
        &table,
        "there is no column or array `town`; there are `city`, `year`, `x`, `note`",
    );
    for (conditions, message) in [
        ("city", "no comparison follows a column; write =, !=, <, <=, > or >="),
        ("", "a column or a value is missing"),
        ("=1", "a column or a value is missing"),
        ("city=", "a column or a value is missing"),
        ("city=oslo and ", "a column or a value is missing"),
        ("city='oslo", "a quote is never closed"),
        ("city='oslo' or x=1", "only ` and ` may follow a value"),
    ] {
        let start = format!("invalid value '{conditions}' for '--where <CONDITIONS>': {message}");
        expect_refused(&["--column", "x", "--where", conditions], &table, &start);
    }
    let options = ["--where", "x=1"];
    let message = "--where is for CSV files; this is a NumPy file, which has no named columns or keys";
    expect_error(&options, &npy_of("<f4", "(1,)", &[0; 4]), message);
}

#[test]
fn conditions_of_typed_columns() {
    for name in ["instants.parquet", "instants.arrow"] {
        for (conditions, sum) in [
            ("x>=2 and x<8", "6"),
            ("x='4'", "4"),
            ("day=2024-02-29", "9"),
            ("day<2000", "0"),
            ("day<'2000'", "2"),
            ("day!=2024-02-29", "2"),
            ("time=09:05:00.250", "1"),
            ("local>1950-01-01T00:00:00", "5"),
            ("decimal>0", "5"),
            ("decimal=10.5", "5"),
        ] {
            let printed = printed(&["--column", "x", "--op", "sum", "--where", conditions], &[&data(name)]);
            assert_eq!(printed.lines().nth(1), Some(&*format!("sum    {sum}")), "{name} {conditions}");
        }
    }
    for name in ["snappy.parquet", "lz4.feather", "stream.arrows"] {
        let sum = |conditions| {
            let options = ["--column", "count", "--op", "sum", "--csv", "--where", conditions];
            printed(&options, &[&data(name)])
        };
        assert_eq!(sum("city=rome"), "count,sum\n2,2\n", "{name}");
        assert_eq!(sum("kind=a and price>-5"), "count,sum\n3,8\n");
        assert_eq!(sum("sold=true"), "count,sum\n3,8\n");
        expect_error(
            &["--column", "price", "--where", "kind=b"],
            &data(name),
            "row 1 (counted from 0) has no value in column `price`: --skip-missing leaves such rows out",
        );
        expect_error(
            &["--column", "price", "--where", "count=5"],
            &data(name),
            "row 4 (counted from 0) has no value in column `price`: --skip-missing leaves such rows out",
        );
    }
}

#[test]
fn completions() {
    for (shell, part) in [
        ("bash", "complete -F _gpu__reduce"),
        ("zsh", "#compdef gpu-reduce"),
        ("fish", "complete -c gpu-reduce"),
    ] {
        let output =
            Command::new(PROGRAM).args(["--completions", shell]).output().expect("the program starts");
        let script = text(output.stdout);
        assert!(script.contains(part) && script.contains("skip-missing"), "{shell}: {script}");
        assert_eq!((text(output.stderr), output.status.code()), (String::new(), Some(0)));
    }
}
