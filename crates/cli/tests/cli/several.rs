//! Several columns, counts and quantiles.

use super::*;

const TABLE: &str = "k,a,b,\"c,d\"\nx,1,0.5,9\ny,2,,9\nx,3,NA,9\ny,,,9\nx,,4,8\n";

#[test]
fn columns_side_by_side() {
    let table = file(".csv", TABLE);
    let options = ["--skip-missing", "--op", "sum,max,minmax"];
    let expected = "column  count  missing  sum  max  minmax\n\
                    a       3      2        6    3    1 3\n\
                    b       2      3        4.5  4.0  0.5 4.0\n";
    for columns in [&["--column", "a,b"][..], &["--column", "a", "--column", "b"], &["--column", "1, 2"]] {
        assert_eq!(printed(&[&options[..], columns].concat(), &[&table]), expected, "{columns:?}");
    }
    let options = ["--skip-missing", "--op", "sum,minmax", "--column", "a,b"];
    assert_eq!(
        printed(&[&options[..], &["--csv"]].concat(), &[&table]),
        "column,count,missing,sum,minmax_1,minmax_2\na,3,2,6,1,3\nb,2,3,4.5,0.5,4.0\n"
    );
    let json: serde_json::Value =
        serde_json::from_str(&printed(&[&options[..], &["--json"]].concat(), &[&table])).expect("it is JSON");
    assert_eq!(
        json,
        serde_json::json!([
            {"column": "a", "count": 3, "missing": 2, "sum": 6, "minmax": [1, 3]},
            {"column": "b", "count": 2, "missing": 3, "sum": 4.5, "minmax": [0.5, 4.0]},
        ])
    );

    // A column whose name has a comma is named whole.
    let options = ["--column", "c,d", "--column", "k", "--op", "sum"];
    expect_error(&options, &table, "line 2: `x` in column `k` is not a valid f64");
    expect(&["--column", "c,d"], &table, ["5", "44", "8", "9", "8.8"]);
    expect_error(&["--column", "a,1"], &table, "column `a` is chosen twice: name each column once");
    expect_error(
        &["--column", "a,z"],
        &table,
        "there is no column or array `z`; there are `k`, `a`, `b`, `c,d`",
    );
    let drawn = tempfile::Builder::new().suffix(".svg").tempfile().expect("a temporary file");
    let plot = ["--plot", drawn.path().to_str().expect("its name is UTF-8")];
    let options = [&plot[..], &["--column", "a,b", "--skip-missing"]].concat();
    expect_error(&options, &table, "--plot takes one column, but there are 2: choose one with --column");

    // Without a header, with one type for all, and without rows.
    let options = ["--column", "0,1", "--op", "sum", "--csv"];
    assert_eq!(printed(&options, &[&file(".csv", "7,8\n3,4\n")]), "column,count,sum\n0,2,10\n1,2,12\n");
    let options = ["--column", "x,y", "--op", "sum", "--csv", "--dtype", "f32"];
    assert_eq!(
        printed(&options, &[&file(".csv", "x,y\n1,2\n3,4.5\n")]),
        "column,count,sum\nx,2,4.0\ny,2,6.5\n"
    );
    assert_eq!(printed(&options, &[&file(".csv", "x,y\n")]), "column,count,sum\nx,0,0.0\ny,0,0.0\n");
}

#[test]
fn columns_by_key() {
    let table = file(".csv", TABLE);
    let options = ["--by", "k", "--column", "a,b", "--skip-missing", "--op", "count,sum,minmax"];
    for device in ["cpu", "emulator"] {
        let output = run(&[&options[..], &["--device", device]].concat(), &table);
        let expected = "k,a_count,a_sum,a_minmax_1,a_minmax_2,b_count,b_sum,b_minmax_1,b_minmax_2\n\
                        x,2,4,1,3,2,4.5,0.5,4.0\ny,1,2,2,2,,,,\n";
        assert_eq!(text(output.stdout), expected, "{device}");
        assert_eq!(text(output.stderr), "a_missing  2\nb_missing  3\n");
    }
    let output = run(&["--json", "--by", "k", "--column", "a,b", "--skip-missing", "--op", "max"], &table);
    assert_eq!(
        text(output.stdout),
        "[\n{\"k\": \"x\", \"a_max\": 3, \"b_max\": 4.0},\n{\"k\": \"y\", \"a_max\": 2, \"b_max\": null}\n]\n"
    );
    // The run of `y` in the middle has no value of `b`, and does not join its neighbours.
    let options = ["--runs", "--by", "k", "--column", "a,b", "--skip-missing", "--op", "sum,median"];
    let output = run(&options, &table);
    assert_eq!(
        text(output.stdout),
        "k,a_sum,a_median,b_sum,b_median\nx,1,1.0,0.5,0.5\ny,2,2.0,,\nx,3,3.0,4.0,4.0\n"
    );
    let options = ["--by", "k", "--column", "a,c,d", "--op", "sum"];
    expect_error(&options, &table, "there is no column or array `c`; there are `k`, `a`, `b`, `c,d`");

    // Many rows: each column has the results of its own run.
    let rows: String = (0..60_000)
        .map(|row| {
            let field = |every| {
                if row % every == 0 {
                    String::new()
                } else {
                    format!("{}.5", (row % 1009) * (row % 1009) % 1013)
                }
            };
            format!("{},{},{}\n", row % 7, field(3), field(5))
        })
        .collect();
    let table = file(".csv", "k,a,b\n".to_owned() + &rows);
    let options = ["--by", "k", "--skip-missing", "--op", "count,sum,std,argmax,median"];
    let of = |column| {
        let printed = text(run(&[&options[..], &["--column", column]].concat(), &table).stdout);
        let mut lines = printed.lines();
        let names = lines.next().expect("names").split(',');
        let names: Vec<_> =
            names.map(|name| if name == "k" { "k".into() } else { format!("{column}_{name}") }).collect();
        [names.join(",")].into_iter().chain(lines.map(str::to_owned)).collect::<Vec<_>>()
    };
    let joined = of("a").into_iter().zip(of("b")).map(|(a, b)| {
        let (_, b) = b.split_once(',').expect("a key");
        format!("{a},{b}\n")
    });
    let both = run(&[&options[..], &["--column", "a,b"]].concat(), &table);
    assert_eq!(text(both.stdout), joined.collect::<String>());
}

#[test]
fn columns_of_typed_files() {
    for name in ["snappy.parquet", "lz4.feather", "stream.arrows"] {
        let options = ["--column", "price,count,half", "--op", "sum,argmax", "--csv", "--skip-missing"];
        let expected = "column,count,missing,sum,argmax\nprice,4,2,7.75,2\ncount,6,0,23,5\nhalf,6,0,15.0,5\n";
        assert_eq!(printed(&options, &[&data(name)]), expected, "{name}");
        let options = ["--by", "city", "--column", "price,sold", "--op", "count,sum", "--skip-missing"];
        let output = run(&options, &data(name));
        let expected = "city,price_count,price_sum,sold_count,sold_sum\noslo,3,-0.25,3,2\nrome,1,8.0,2,1\n";
        assert_eq!(text(output.stdout), expected, "{name}");
    }
    expect_error(
        &["--column", "count,price"],
        &data("snappy.parquet"),
        "row 1 (counted from 0) has no value in column `price`: --skip-missing leaves such rows out",
    );
    expect_error(
        &["--column", "a,b"],
        &data("stored.npz"),
        "there is no column or array `a,b`; there are `weights`, `bias`",
    );
}

#[test]
fn quantiles_as_numpy() {
    let options = ["--op", "count,median,max", "--quantile", "0.25,0.9,1,0", "--csv"];
    let names = "count,max,median,quantile_0,quantile_0.25,quantile_0.9,quantile_1\n";
    let numbers = file(".csv", "x\n7\n1\n2.5\n10\n-3\n");
    assert_eq!(printed(&options, &[&numbers]), format!("{names}5,10.0,2.5,-3.0,1.0,8.8,10.0\n"));
    // Integers too large for floats are compared exactly; two infinities are not subtracted.
    let large = file(".csv", "x\n9007199254740993\n9007199254740992\n9007199254740994\n");
    assert_eq!(printed(&["--op", "median", "--csv"], &[&large]), "count,median\n3,9007199254740992.0\n");
    let infinite = file(".csv", "x\ninf\ninf\n1\n");
    assert_eq!(
        printed(&["--quantile", "0.75,0", "--csv"], &[&infinite]),
        "count,quantile_0,quantile_0.75\n3,1.0,inf\n"
    );
    let nan = file(".csv", "x\n1\nnan\n");
    assert_eq!(printed(&["--op", "median", "--csv"], &[&nan]), "count,median\n2,NaN\n");
    let floats = file(".bin", bytemuck::cast_slice(&[0.1_f32, 0.2, 0.3]));
    let options = ["--dtype", "f32", "--op", "median", "--csv"];
    assert_eq!(printed(&options, &[&floats]), "count,median\n3,0.2\n");

    let matrix = npy_of("|u1", "(2, 3)", &[5, 1, 2, 9, 9, 0]);
    assert_eq!(csv(&["--rows", "--op", "count,median"], &matrix), "row,count,median\n0,3,2.0\n1,3,9.0\n");
    assert_eq!(
        csv(&["--columns", "--quantile", "0.5"], &matrix),
        "column,quantile_0.5\n0,7.0\n1,5.0\n2,1.0\n"
    );
    let keyed = file(".csv", "k,x\na,1\nb,5\na,2\nb,7\na,9\n");
    assert_eq!(csv(&["--by", "k", "--op", "median,count"], &keyed), "k,count,median\na,3,2.0\nb,2,6.0\n");
    assert_eq!(csv(&["--by", "k", "--runs", "--op", "count"], &keyed), "k,count\na,1\nb,1\na,1\nb,1\na,1\n");
    expect_refused(
        &["--quantile", "1.5"],
        &keyed,
        "invalid value '1.5' for '--quantile <LEVELS>': not a number",
    );
    expect_error(
        &["--op", "median"],
        &file(".csv", "x\n"),
        "median has no value, because the input is empty: choose sum, prod or a count, or leave out --op",
    );
}
