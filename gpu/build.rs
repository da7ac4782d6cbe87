//! Says whether the crate is compiled with optimisations: without them a CPU's folds have one form, not one for each
//! instruction set, because most of the first build's time would be theirs.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(optimised)");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level != "0") {
        println!("cargo::rustc-cfg=optimised");
    }
}
