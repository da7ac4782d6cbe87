//! Compiles the kernels of `gpu/` to `ptx/`, which takes a device toolchain (see `crates/cuda_builder`).
//!
//! ```text
//! cargo run --release -p ptx_tools --bin rebuild                      compiles all kernels, and writes what differs
//! cargo run --release -p ptx_tools --bin rebuild -- --family FAMILY…  compiles these: for a try, as the others may have changed too
//! cargo run --release -p ptx_tools --bin rebuild -- --changed         names the sources that changed since then
//! cargo run --release -p ptx_tools --bin rebuild -- --compare FAMILY  compiles one family, compares it with `ptx/`
//! ```
//!
//! rustc compiles a crate to PTX on one core, so the families of kernels are compiled side by side. Then the
//! kernels of each operator are packed into a file. A file whose kernels are as before is not packed again,
//! which takes longest.

mod sources;

use cuda_builder::CudaBuilder;
use gpu_reduce_ptx::{Packed, Ptx};
use rayon::prelude::*;
use sources::Sources;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

/// The features of `gpu/` that have kernels, those first that take longest.
const FAMILIES: [&str; 6] = ["segments", "columns", "rows", "reduce", "index", LADDER];

/// The family of the classic kernels, which have a file of their own.
const LADDER: &str = "ladder";

/// What follows a type in the name of a kernel, in the order in which an operator's kernels of a type are
/// packed.
const SHAPES: [&str; 35] = [
    "row", "segments", "rows", "columns", "groups", "chunks", "short", "larger", "lines", "spans", "index",
    "rest", "finish", "count", "scan", "move", "offsets", "gather", "encode", "collect", "list", "rank",
    "tell", "assign", "build", "look", "expand", "bin", "offer", "square", "divide", "pick", "multiply",
    "keep", "narrow",
];

/// The types, those first that are reduced most.
const TYPES: [&str; 12] = ["f32", "f64", "i32", "i64", "u32", "u64", "f16", "bf16", "i8", "u8", "i16", "u16"];

/// What `ptx/` held when this was compiled.
const TABLES: [&[&Ptx]; 2] = [kernels::ALL, ladder::ALL];

#[path = "../../../../../ptx/kernels.rs"]
mod kernels;
#[path = "../../../../../ptx/ladder.rs"]
mod ladder;

/// Where a module is among those of its file: the type's rank, the shape's, the kernel's name, BLOCK.
type Place<'a> = (usize, usize, &'a str, u32);

/// Entry points' modules.
type Modules = BTreeMap<String, String>;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let exe = env::current_exe()?;
    let target = exe.ancestors().nth(2).ok_or("no target folder")?;
    let arguments: Vec<_> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => rebuild(&root, target, &FAMILIES),
        ["--family", ref families @ ..]
            if !families.is_empty() && families.iter().all(|family| FAMILIES.contains(family)) =>
        {
            rebuild(&root, target, families)
        }
        ["--changed"] => {
            Sources::changed(&root)?.iter().for_each(|name| println!("{name}"));
            Ok(())
        }
        ["--compare", family] if FAMILIES.contains(&family) => compare(&root, target, family),
        _ => Err(format!(
            "nothing, --changed, --family and some of {0}, or --compare and one of {0}",
            FAMILIES.join(", ")
        )
        .into()),
    }
}

/// Compiles and packs families. Kernels of other shapes than the compiled ones stay in `ptx/`.
fn rebuild(root: &Path, target: &Path, families: &[&str]) -> Result<(), Failure> {
    let sources = Sources::now(root)?;
    let mut built: Vec<_> =
        families.par_iter().map(|family| compile(root, family, target)).collect::<Result<_, _>>()?;
    let mut names = families.to_vec();
    if families.len() < FAMILIES.len() {
        let compiled: BTreeSet<_> = families
            .iter()
            .zip(&built)
            .flat_map(|(&family, (_, modules))| modules.keys().map(move |entry| (family, entry)))
            .filter_map(|(family, entry)| Some((family == LADDER, place(family, entry)?.1.1)))
            .collect();
        let [kernels, ladder] = TABLES;
        for (name, table) in [("reduce", kernels), (LADDER, ladder)] {
            let modules: Vec<_> =
                table.iter().map(|ptx| ptx.modules()).collect::<Option<_>>().ok_or("ptx/ is damaged")?;
            names.insert(0, name);
            built.insert(
                0,
                (
                    built.last().map(|(comment, _)| comment.clone()).unwrap_or_default(),
                    // A kernel that has lost its place is one of a shape that is no more.
                    modules
                        .into_iter()
                        .flatten()
                        .filter(|(entry, _)| {
                            place(name, entry).is_some_and(|(_, (_, shape, ..))| {
                                !compiled.contains(&(name == LADDER, shape))
                            })
                        })
                        .collect(),
                ),
            );
        }
    }

    let mut files: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (family, (_, modules)) in names.iter().zip(&built) {
        for (entry, module) in modules.iter().filter(|(_, module)| has_code(module)) {
            let (file, place) =
                place(family, entry).ok_or_else(|| format!("{entry} is no name of a kernel"))?;
            files.entry(file).or_default().insert(place, (&**entry, &**module));
        }
    }
    let files: Vec<(_, Vec<_>)> =
        files.into_iter().map(|(file, modules)| (file, modules.into_values().collect())).collect();
    let ptx = root.join("ptx");
    let files: Vec<_> =
        files.par_iter().map(|(file, modules)| pack(&ptx, file, modules)).collect::<Result<_, _>>()?;

    let mut new: BTreeMap<_, _> =
        files.iter().map(|(file, packed)| (path(&ptx, file), packed.bytes.clone())).collect();
    for entry in fs::read_dir(&ptx)? {
        let old = entry?.path();
        if old.extension().is_some_and(|extension| extension == "br") && !new.contains_key(&old) {
            fs::remove_file(old)?;
        }
    }
    let (ladder, operators): (Vec<_>, Vec<_>) = files.iter().partition(|(file, _)| *file == LADDER);
    for (table, files) in [("kernels.rs", operators), ("ladder.rs", ladder)] {
        let statics = gpu_reduce_ptx::statics(files.iter().map(|(file, packed)| (*file, packed)));
        new.insert(ptx.join(table), format!("{}\n{statics}", built[0].0).into_bytes());
    }
    new.extend([sources.file(root)]);
    // Cargo compiles what includes a file again if the file was written, even with the same bytes.
    for (path, bytes) in new {
        if fs::read(&path).ok().as_ref() != Some(&bytes) {
            fs::write(path, bytes)?;
        }
    }
    Ok(())
}

/// Compiles one family. Fails if a kernel of it is not in `ptx/` or has another text there.
fn compare(root: &Path, target: &Path, family: &str) -> Result<(), Failure> {
    let (_, built) = compile(root, family, target)?;
    let committed: Vec<_> = TABLES
        .into_iter()
        .flatten()
        .map(|ptx| ptx.modules())
        .collect::<Option<_>>()
        .ok_or("ptx/ is damaged")?;
    let committed: Modules = committed.into_iter().flatten().collect();
    let differ: Vec<_> = built
        .iter()
        .filter(|(entry, module)| has_code(module) && committed.get(*entry) != Some(module))
        .collect();
    match differ[..] {
        [] => Ok(()),
        [(first, _), ..] => Err(format!(
            "{} of the {} kernels of {family} are not what ptx/ has, the first is {first}: rebuild ptx/",
            differ.len(),
            built.len()
        )
        .into()),
    }
}

/// Returns whether a module's kernel does anything. Those that do not are of shapes for which the host never launches an
/// operator's kernel: others fold them faster, or the operator has no order. They are not embedded.
fn has_code(module: &str) -> bool {
    !module.trim_end().ends_with("{\nret;\n}")
}

/// Compiles a family; returns the comment that says what has compiled it, and its kernels.
fn compile(root: &Path, family: &str, target: &Path) -> Result<(String, Modules), Failure> {
    let start = Instant::now();
    // The next family that this thread compiles finds the standard library there.
    let folder = target.join(format!("ptx-{}", rayon::current_thread_index().unwrap_or(0)));
    let kernels = CudaBuilder::new(root.join("gpu"));
    let file = kernels.build_args(&["--features", family]).target_dir(folder).build()?;
    let ptx = fs::read_to_string(file)?;
    let modules: Modules = cuda_builder::split(&ptx)
        .into_iter()
        .map(|(entry, module)| {
            let module = with_short_names(&gpu_reduce_ptx::fold_constants(&module));
            (entry, module)
        })
        .collect();
    println!("{family}: {} entry points, {} s", modules.len(), start.elapsed().as_secs());
    Ok((ptx.lines().next().unwrap_or_default().to_owned(), modules))
}

/// Returns a module with numbers in place of mangled names of functions, which are long and contain a hash of the crate, and with short
/// labels and parameters: `$0_12` for `$L__BB0_12`, `p2` for `sum_f32_param_2`, `f2` for a parameter of a function that it calls.
fn with_short_names(module: &str) -> String {
    let is_no_name = |letter: char| !letter.is_ascii_alphanumeric() && !"_$%.".contains(letter);
    let mut functions: Vec<&str> = Vec::new();
    let mut short = String::with_capacity(module.len());
    for piece in module.split_inclusive(is_no_name) {
        let word = piece.trim_end_matches(is_no_name);
        if let Some(label) = word.strip_prefix("$L__BB") {
            short.push('$');
            short.push_str(label);
        } else if let Some((name, number)) = word.rsplit_once("_param_") {
            // A parameter is named after its function, but no other function sees it.
            short.push(if name.starts_with("_R") { 'f' } else { 'p' });
            short.push_str(number);
        } else if word.starts_with("_R") {
            let number = functions.iter().position(|other| *other == word).unwrap_or_else(|| {
                functions.push(word);
                functions.len() - 1
            });
            short.push_str(&format!("function_{number}"));
        } else {
            short.push_str(word);
        }
        short.push_str(&piece[word.len()..]);
    }
    short
}

/// The file of packed kernels in `ptx/`.
fn path(ptx: &Path, file: &str) -> PathBuf {
    ptx.join(format!("{file}.ptx.br"))
}

/// The file of an entry point, which is that of its operator, or of the ladder, and its place there:
/// `sum_f32_256`, `sum_f32_row_1024`, `sum_f32_groups_1024`, `sum_f32_segments_0` and so on are in
/// `sum`.
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

/// Packs modules for the file of this name, unless it has them already.
fn pack<'a>(ptx: &Path, file: &'a str, modules: &[(&str, &str)]) -> Result<(&'a str, Packed), Failure> {
    let old = fs::read(path(ptx, file)).unwrap_or_default();
    let packed = gpu_reduce_ptx::repack(&format!("{file}.ptx.br"), modules.iter().copied(), 11, &old);
    Ok((file, packed.ok_or_else(|| format!("the kernels of {file} are no PTX"))?))
}

#[cfg(test)]
mod tests {
    use super::{place, with_short_names};

    #[test]
    fn functions_parameters_and_labels_get_short_names() {
        let module = ".func (.param .b32 func_retval0) _RNvCs1_1f(
.param .b32 _RNvCs1_1f_param_0
)
{
ld.param.b32 %r1, [_RNvCs1_1f_param_0];
ret;
}
.func _RNvCs1_1g() { ret; }
.visible .entry k() {
call.uni (retval0), _RNvCs1_1f, (param0);
@%p1 bra $L__BB2_1;
call.uni _RNvCs1_1g, ();
$L__BB2_1:
ret;
}
";
        let expected = module.replace("_RNvCs1_1f_param_0", "f0").replace("_RNvCs1_1f", "function_0");
        let expected = expected.replace("_RNvCs1_1g", "function_1").replace("$L__BB", "$");
        assert_eq!(with_short_names(module), expected);
    }

    #[test]
    fn an_entry_point_has_its_place() {
        for (entry, expected) in [
            ("sum_f32_256", Some(("sum", 0, 0, 256))),
            ("sum_min_max_f64_row_0", Some(("sum_min_max", 1, 1, 0))),
            ("bit_or_u16_segments_0", Some(("bit_or", 11, 2, 0))),
            ("dot_i8_rows_0", Some(("dot", 8, 3, 0))),
            ("dot_i8_columns_256", Some(("dot", 8, 4, 256))),
            ("dot_i8_groups_1024", Some(("dot", 8, 5, 1024))),
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
