//! The shipped kernels: each entry point of `ptx/` as a module of its own, by name.

use std::collections::BTreeMap;

#[path = "../../../../ptx/kernels.rs"]
mod embedded;

/// The bit of a result's address that marks a slot (`gpu_reduce_kernels::reduce::Target`).
#[allow(dead_code)] // each test uses its part
pub const IN_SLOT: u64 = 1 << 63;

/// Returns all shipped kernels by name.
#[allow(dead_code)] // each test uses its part
pub fn kernels() -> BTreeMap<String, String> {
    embedded::ALL.iter().flat_map(|ptx| ptx.modules().unwrap()).collect()
}

/// Returns the kernel with this name.
#[allow(dead_code)] // each test uses its part
pub fn kernel(entry: &str) -> String {
    let (name, block) = entry.rsplit_once('_').unwrap();
    let module = embedded::ALL.iter().find_map(|ptx| ptx.module(name, block.parse().unwrap()));
    module.unwrap_or_else(|| panic!("no kernel {entry}"))
}
