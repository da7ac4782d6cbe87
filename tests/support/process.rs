//! Tests that need a process of their own, because what they set or look at belongs to the whole process.

use std::process::Command;

/// Set in the process that runs one test.
const CHILD: &str = "GPU_REDUCE_TESTS_CHILD";

/// Runs a test in a process of its own. Returns true in that process, where the test does its work, and false
/// in the process that started it.
///
/// `test` is the test's path in its program, such as `fork::children_of_a_worker`. `set` may set the
/// environment.
#[track_caller]
pub fn is_own(test: &str, set: impl FnOnce(&mut Command)) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut program = Command::new(std::env::current_exe().expect("the running test has a path"));
    program.args([test, "--exact", "--nocapture"]).env(CHILD, "1");
    set(&mut program);
    let output = program.output().expect("the running test can be started again");
    let printed =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    false
}
