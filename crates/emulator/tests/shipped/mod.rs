//! The kernels that ship: each entry point of `ptx/`, a module of its own, by name.

use gpu_reduce_ptx::Ptx;
use std::collections::BTreeMap;

const EMBEDDED: &[Ptx] = include!("../../../../ptx/kernels.rs");

/// Says of the address of a kernel's result that there is a slot (`gpu_reduce_kernels::reduce::Target`).
#[allow(dead_code)] // each test uses its part
pub const IN_SLOT: u64 = 1 << 63;

/// All of them.
#[allow(dead_code)] // each test uses its part
pub fn kernels() -> BTreeMap<String, String> {
    EMBEDDED.iter().flat_map(|ptx| ptx.modules().unwrap()).collect()
}

/// The one of this name.
#[allow(dead_code)] // each test uses its part
pub fn kernel(entry: &str) -> String {
    let (name, block) = entry.rsplit_once('_').unwrap();
    let module = EMBEDDED.iter().find_map(|ptx| ptx.module(name, block.parse().unwrap()));
    module.unwrap_or_else(|| panic!("no kernel {entry}"))
}
