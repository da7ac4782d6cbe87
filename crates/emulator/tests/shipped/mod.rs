//! The kernels that ship: each entry point of the files in `ptx/` as a module of its own, by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Says of the address of a kernel's result that there is a slot (`gpu_reduce_kernels::reduce::Target`).
#[allow(dead_code)] // each test uses its part
pub const IN_SLOT: u64 = 1 << 63;

/// All of them.
pub fn kernels() -> BTreeMap<String, String> {
    const ENTRY: &str = "\n.visible .entry ";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ptx");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    files
        .flat_map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let (heading, entries) = text.split_once(ENTRY).unwrap();
            let module = |entry: &str| {
                let name = entry.split_once('(').unwrap().0;
                (name.to_owned(), format!("{heading}{ENTRY}{}\n", entry.trim_end()))
            };
            entries.split(ENTRY).map(module).collect::<Vec<_>>()
        })
        .collect()
}

/// The one of this name.
#[allow(dead_code)] // each test uses its part
pub fn kernel(name: &str) -> String {
    kernels().remove(name).unwrap_or_else(|| panic!("no kernel {name}"))
}
