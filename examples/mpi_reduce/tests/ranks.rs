//! Runs ranks with `mpirun`: any number of them gives the same bits, and every rank gets the error of any
//! one. Each run has a time limit, so no test hangs.

use std::process::{Command, Output};

/// Starts ranks of a program, with a time limit.
fn start(ranks: u32, program: &str, args: &[&str]) -> Output {
    let limit = "120";
    let output = Command::new("timeout")
        .args([limit, "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"])
        .args(["-n", &ranks.to_string(), program])
        .args(args)
        .env("RAYON_NUM_THREADS", "1")
        // Containers may forbid this mechanism, and Open MPI would warn about it.
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        .output()
        .expect("timeout and mpirun are installed");
    assert_ne!(output.status.code(), Some(124), "{program} {args:?} of {ranks} ranks hangs: {output:?}");
    output
}

/// The lines that the ranks of the test program print, in order.
fn said(ranks: u32, what: &str) -> Vec<String> {
    let output = start(ranks, env!("CARGO_BIN_EXE_rank"), &[what]);
    assert!(output.status.success(), "{what} of {ranks}: {output:?}");
    let mut lines: Vec<_> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.len(), ranks as usize, "{what}: {lines:?}");
    lines
}

/// The same text from every rank.
fn all(ranks: u32, text: &str) -> Vec<String> {
    (0..ranks).map(|rank| format!("rank {rank}: {text}")).collect()
}

#[test]
fn ranks_have_the_bits_of_one_slice() {
    for ranks in [1, 2, 3, 7] {
        assert_eq!(said(ranks, "same"), all(ranks, "the same"));
    }
}

#[test]
fn ranks_send_groups() {
    assert_eq!(said(3, "groups"), all(3, "the same"));
}

#[test]
fn ranks_merge_groups_by_key() {
    for ranks in [1, 2, 3, 7] {
        assert_eq!(said(ranks, "keys"), all(ranks, "the same"));
    }
    let disagrees =
        "rank 1 disagrees with rank 0 on the keys' type: i64, not u64; all ranks must make the same call";
    assert_eq!(said(3, "keys-type"), all(3, disagrees));
}

#[test]
fn no_elements_at_all() {
    assert_eq!(said(3, "empty"), all(3, "min of an empty input has no value: check the length first"));
}

#[test]
fn a_rank_that_disagrees_is_told_to_all() {
    let disagrees = |rank, what, found, expected| {
        let text = format!(
            "rank {rank} disagrees with rank 0 on the {what}: {found}, not {expected}; all ranks must make \
             the same call"
        );
        all(3, &text)
    };
    let op = |name: &str, path| format!("{name} (gpu_reduce_kernels::op::{name}::{path})");
    assert_eq!(said(3, "operator"), disagrees(1, "operator", op("max", "Max"), op("sum", "Sum")));
    assert_eq!(said(3, "type"), disagrees(1, "elements' type", "f64".into(), "f32".into()));
    assert_eq!(said(3, "block"), disagrees(2, "BLOCK", "64".into(), "256".into()));
    let [found, expected] = [1u64, 0].map(|ddof| format!("0x{:016x}{:016x}", ddof.swap_bytes(), 0));
    assert_eq!(said(3, "parameters"), disagrees(2, "operator's parameters", found, expected));
    // Elements of another size too; one is larger than the ranks' first message.
    assert_eq!(
        said(3, "element"),
        disagrees(1, "operator", "digest (rank::Digest)".into(), op("sum", "Sum"))
    );
}

#[test]
fn a_rank_that_fails_is_told_to_all() {
    let lines = said(3, "device");
    let (_, error) = lines[0].split_once(": ").unwrap();
    assert!(error.starts_with("rank 1 failed: ") && error.contains("emulator"), "{error}");
    assert_eq!(lines, all(3, error));
    // A failure before any rank has sent elements.
    let lines = said(2, "memory");
    let (_, error) = lines[0].split_once(": ").unwrap();
    assert!(
        error.starts_with("rank 0 failed: out of memory on cpu") && error.contains(" 131072000 bytes"),
        "{error}"
    );
    assert_eq!(lines, all(2, error));
    // A rank that panics tells the others first.
    let output = start(3, env!("CARGO_BIN_EXE_rank"), &["panic"]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    for rank in [0, 2] {
        assert!(text.contains(&format!("rank {rank}: rank 1 failed: it panicked")), "{output:?}");
    }
    assert!(String::from_utf8_lossy(&output.stderr).contains("an element that begins with 0"), "{output:?}");
}

#[test]
fn a_rank_that_is_killed_ends_the_others() {
    let output = start(3, env!("CARGO_BIN_EXE_rank"), &["killed"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("signal 9"), "{output:?}");
}

/// The first line that the example prints.
fn printed(ranks: u32, args: &[&str]) -> String {
    let output = start(ranks, env!("CARGO_BIN_EXE_mpi_reduce"), args);
    assert!(output.status.success(), "{args:?} of {ranks}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (first, second) = text.split_once('\n').unwrap();
    assert!(second.starts_with(&format!("{ranks} ranks, ")) && second.ends_with(" GB/s\n"), "{text}");
    first.into()
}

#[test]
fn the_example_prints_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let [raw, npy] = ["x.raw", "x.npy"].map(|name| folder.path().join(name).display().to_string());
    let bytes: Vec<u8> = (0..100_003u32).flat_map(|i| ((i as f32).sqrt() - 150.0).to_le_bytes()).collect();
    std::fs::write(&raw, &bytes).unwrap();
    let head = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (100003,), }");
    std::fs::write(&npy, [b"\x93NUMPY\x01\0\x76\0", head.as_bytes(), &bytes].concat()).unwrap();
    for op in ["sum", "var", "exact-sum"] {
        let expected = printed(1, &["--dtype", "f32", "--op", op, &raw]);
        assert!(expected.contains(" 0x"), "{expected}");
        for (ranks, split) in [(2, "1,1"), (3, "1,0,99"), (7, "5,0,1,1000,3,0,0")] {
            assert_eq!(printed(ranks, &["--op", op, "--split", split, &npy]), expected, "{op} {split}");
        }
        assert_eq!(printed(3, &["--op", op, "--device", "emulator", &npy]), expected);
    }
    // An error on one rank only ends all ranks.
    let output = start(2, env!("CARGO_BIN_EXE_mpi_reduce"), &["--split", "1,2,3", &npy]);
    assert!(!output.status.success());
    let error = "--split has 3 weights for 2 ranks";
    assert!(String::from_utf8_lossy(&output.stderr).contains(error), "{output:?}");
}
