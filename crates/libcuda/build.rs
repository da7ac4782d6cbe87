//! Puts `link/lib64/libcuda.a`, an empty archive, on the link path.
//!
//! So cust's `-lcuda` resolves on machines without CUDA. The functions themselves are in this crate.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-search=native={}/link/lib64", std::env::var("CARGO_MANIFEST_DIR").unwrap());
}
