//! Finds the examples' executables, for tests that run them.

use std::path::{Path, PathBuf};

/// An example's executable. Cargo puts the running test in `deps/` and the example in `examples/`, next to
/// each other. `cargo test --workspace` builds both. A command that selects packages or tests may build only
/// the tests.
pub fn executable(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the running test has a path");
    let folder = test.parent().and_then(Path::parent).expect("the test lies in a folder of Cargo's");
    let path = folder.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(
        path.exists(),
        "there is no {}: build it with `cargo build --workspace --examples`",
        path.display()
    );
    path
}
