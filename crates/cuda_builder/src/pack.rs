//! Packing PTX for a program to carry: each entry point is a module of its own, so that the driver compiles it alone, and those of
//! one kernel are compressed together, because they hardly differ, with the numbers of their registers [encoded](registers::encode).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{CudaBuilderError, failed_at, registers, split, write};

/// What packed kernels need: the highest that one of them does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The version of the PTX ISA, major and minor number.
    pub ptx: (i32, i32),
    /// The compute capability, major and minor number.
    pub capability: (i32, i32),
}

/// Packs the kernels of PTX files for a program to embed: writes `kernels.rs` to a folder, an expression of the type
/// `&[Ptx]`, with the `Ptx` of `gpu_reduce_kernels::kernels`, and the files that it includes. An entry point is named `NAME_BLOCK`, for the threads
/// of its blocks.
///
/// # Errors
///
/// [`CudaBuilderError::NotPtx`] for a file with no kernels of such names, or without a PTX header; and where a file cannot be
/// read or written.
pub fn pack(files: &[PathBuf], folder: &Path) -> Result<Needs, CudaBuilderError> {
    // By the kernel's name, and the threads of its blocks.
    let mut kernels: BTreeMap<String, BTreeMap<u32, String>> = BTreeMap::new();
    let mut needs = Needs::default();
    for file in files {
        let not_ptx = || CudaBuilderError::NotPtx(file.clone());
        let ptx = fs::read_to_string(file).map_err(failed_at(file))?;
        let of_file = needs_of(&ptx).ok_or_else(not_ptx)?;
        needs.ptx = needs.ptx.max(of_file.ptx);
        needs.capability = needs.capability.max(of_file.capability);
        for (entry, module) in split::group(&ptx, str::to_owned) {
            let (name, block) = entry.rsplit_once('_').ok_or_else(not_ptx)?;
            let block = block.parse().map_err(|_| not_ptx())?;
            kernels.entry(name.to_owned()).or_default().insert(block, module);
        }
    }
    let mut rows = String::new();
    for (name, modules) in &kernels {
        let path = folder.join(name).with_extension("deflated");
        let (mut text, mut lengths) = (Vec::new(), Vec::new());
        for (block, module) in modules {
            let module = registers::encode(module);
            lengths.push((*block, module.len()));
            text.extend(module);
        }
        fs::write(&path, miniz_oxide::deflate::compress_to_vec(&text, 9)).map_err(failed_at(&path))?;
        rows += &format!(
            "    Ptx {{ name: {name:?}, modules: &{lengths:?}, deflated: include_bytes!({path:?}) }},\n"
        );
    }
    write(&folder.join("kernels.rs"), &format!("&[\n{rows}]\n"))?;
    Ok(needs)
}

/// What a module's first lines say that it needs.
fn needs_of(ptx: &str) -> Option<Needs> {
    let value_of = |directive| ptx.lines().find_map(|line| line.strip_prefix(directive));
    let (major, minor) = value_of(".version ")?.split_once('.')?;
    let target = value_of(".target sm_")?;
    let target: i32 = target.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    Some(Needs {
        ptx: (major.parse().ok()?, minor.trim_end().parse().ok()?),
        capability: (target / 10, target % 10),
    })
}
