//! A library does not export the functions: other CUDA code in its process would bind to them instead of the
//! driver.

use libloading::{Library, Symbol};
use std::ffi::c_void;

#[test]
fn a_c_library_does_not_export_the_functions() {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap().join("examples");
    // SAFETY: loading the library runs no code except Rust's own.
    let plugin = unsafe { Library::new(folder.join(libloading::library_filename("plugin"))) };
    let plugin =
        plugin.unwrap_or_else(|error| panic!("build it with `cargo build --example plugin`: {error}"));
    // SAFETY: this is the function's signature.
    let version: Symbol<extern "C" fn() -> i32> = unsafe { plugin.get("plugin_cuda_version") }.unwrap();
    let version = version();
    assert!(version == -100 || version >= 9000, "neither `no device` nor a version: {version}");
    for name in ["cuInit", "cuMemAlloc_v2", "cuLaunchKernel", "cuGetErrorString"] {
        // SAFETY: the symbol is not used.
        let exported = unsafe { plugin.get::<*const c_void>(name) }.is_ok();
        assert!(!exported, "{name} is exported");
    }
}
