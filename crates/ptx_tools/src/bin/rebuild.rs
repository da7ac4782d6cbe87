//! Compiles the kernels of `gpu/` to `ptx/`; needs a device toolchain (see `crates/cuda_builder`).
//!
//! rustc compiles a crate to PTX on one core, so families of kernels are compiled in parallel. Then the
//! kernels of each operator are packed into a file.
//!
//! ```text
//! cargo run --release -p ptx_tools --bin rebuild
//! ```

use cuda_builder::CudaBuilder;
use gpu_reduce_ptx::Packed;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Instant;
use std::{env, fs};

/// The features of `gpu/` that have kernels, each a family. Both halves of the list take equally long to
/// compile.
const FAMILIES: [&str; 5] = ["segments", "columns", "rows", "reduce", LADDER];

/// The classic kernels, which have a file of their own.
const LADDER: &str = "ladder";

/// What follows the type in a kernel's name. An operator's kernels of a type are packed in this order.
const SHAPES: [&str; 4] = ["row", "segments", "rows", "columns"];

/// The types, the most frequently used first.
const TYPES: [&str; 12] = ["f32", "f64", "i32", "i64", "u32", "u64", "f16", "bf16", "i8", "u8", "i16", "u16"];

/// The order of modules in a file: the type's rank, the shape's rank, the kernel's name, BLOCK.
type Place<'a> = (usize, usize, &'a str, u32);

/// Modules by entry point.
type Modules = BTreeMap<String, String>;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let exe = env::current_exe()?;
    let target = exe.ancestors().nth(2).ok_or("no target folder")?;
    let built: Vec<_> = FAMILIES
        .par_iter()
        .map(|family| compile(&root.join("gpu"), family, target))
        .collect::<Result<_, _>>()?;

    let mut files: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (family, (_, modules)) in FAMILIES.iter().zip(&built) {
        for (entry, module) in modules {
            let (file, place) =
                place(family, entry).ok_or_else(|| format!("{entry} is no name of a kernel"))?;
            files.entry(file).or_default().insert(place, (&**entry, &**module));
        }
    }
    let files: Vec<(_, Vec<_>)> =
        files.into_iter().map(|(file, modules)| (file, modules.into_values().collect())).collect();
    let files: Vec<_> =
        files.par_iter().map(|(file, modules)| pack(file, modules)).collect::<Result<_, _>>()?;

    let ptx = root.join("ptx");
    let mut new: BTreeMap<_, _> = files
        .iter()
        .map(|(file, packed)| (ptx.join(format!("{file}.ptx.br")), packed.bytes.clone()))
        .collect();
    for entry in fs::read_dir(&ptx)? {
        let old = entry?.path();
        if old.extension().is_some_and(|extension| extension == "br") && !new.contains_key(&old) {
            fs::remove_file(old)?;
        }
    }
    let (ladder, operators): (Vec<_>, Vec<_>) = files.iter().partition(|(file, _)| *file == LADDER);
    for (table, files) in [("kernels.rs", operators), ("ladder.rs", ladder)] {
        let rows = gpu_reduce_ptx::table(files.iter().map(|(_, packed)| packed));
        new.insert(ptx.join(table), format!("{}\n{rows}", built[0].0).into_bytes());
    }
    // Cargo recompiles what includes a file if the file was written, even with the same bytes.
    for (path, bytes) in new {
        if fs::read(&path).ok().as_ref() != Some(&bytes) {
            fs::write(path, bytes)?;
        }
    }
    Ok(())
}

/// Compiles a family; returns the comment that names the compiler, and the modules.
fn compile(kernels: &Path, family: &str, target: &Path) -> Result<(String, Modules), Failure> {
    let start = Instant::now();
    // A folder for each thread, so that the thread's next family reuses the standard library.
    let folder = target.join(format!("ptx-{}", rayon::current_thread_index().unwrap_or(0)));
    let file = CudaBuilder::new(kernels).build_args(&["--features", family]).target_dir(folder).build()?;
    let ptx = fs::read_to_string(file)?;
    let modules = cuda_builder::split(&ptx);
    println!("{family}: {} entry points, {} s", modules.len(), start.elapsed().as_secs());
    Ok((ptx.lines().next().unwrap_or_default().to_owned(), modules))
}

/// The file of an entry point, named after the operator or the ladder, and its place there. `sum_f32_256`,
/// `sum_f32_row_1024`, `sum_f32_segments_0`, `sum_f32_rows_0` and `sum_f32_columns_256` are all in `sum`.
fn place<'a>(family: &str, entry: &'a str) -> Option<(&'a str, Place<'a>)> {
    let (kernel, block) = entry.rsplit_once('_')?;
    let block = block.parse().ok()?;
    if family == LADDER {
        return Some((LADDER, (0, 0, kernel, block)));
    }
    let mut shapes = SHAPES.iter().zip(1..);
    let shaped =
        shapes.find_map(|(shape, rank)| Some((kernel.strip_suffix(shape)?.strip_suffix('_')?, rank)));
    let (whole, shape) = shaped.unwrap_or((kernel, 0));
    let (operator, of) = whole.rsplit_once('_')?;
    Some((operator, (TYPES.iter().position(|name| *name == of)?, shape, kernel, block)))
}

/// Packs the modules of a file.
fn pack<'a>(file: &'a str, modules: &[(&str, &str)]) -> Result<(&'a str, Packed), Failure> {
    let packed = gpu_reduce_ptx::pack(&format!("{file}.ptx.br"), modules.iter().copied(), 11);
    Ok((file, packed.ok_or_else(|| format!("the kernels of {file} are no PTX"))?))
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn an_entry_point_has_its_place() {
        for (entry, expected) in [
            ("sum_f32_256", Some(("sum", 0, 0, 256))),
            ("sum_min_max_f64_row_0", Some(("sum_min_max", 1, 1, 0))),
            ("bit_or_u16_segments_0", Some(("bit_or", 11, 2, 0))),
            ("dot_i8_rows_0", Some(("dot", 8, 3, 0))),
            ("dot_i8_columns_256", Some(("dot", 8, 4, 256))),
            ("runs_bf16_256", Some(("runs", 7, 0, 256))),
            ("sum_f32", None),
            ("sum_256", None),
            ("sum_f128_256", None),
        ] {
            let place = place("reduce", entry).map(|(file, (of, shape, _, block))| (file, of, shape, block));
            assert_eq!(place, expected, "{entry}");
        }
        assert_eq!(place("ladder", "merge_f32_32"), Some(("ladder", (0, 0, "merge_f32", 32))));
    }
}
