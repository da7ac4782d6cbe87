//! Finds kernels by their identity, and has the driver compile each entry point at its first launch.

use super::{Gpu, lock};
use crate::Error;
use crate::request::Types;
use cust::error::CudaError;
use cust::function::Function;
use cust::module::{Module, ModuleJitOption};
use cust::stream::Stream;
use cust::sys::{self, CUfunction_attribute};
#[cfg(feature = "ladder")]
use gpu_reduce_kernels::kernels::Kernel;
use gpu_reduce_kernels::kernels::{Identity, Kernels, Known, Parameters, Ptx};
use gpu_reduce_kernels::plan::ANY_BLOCK;
use gpu_reduce_kernels::table;
use gpu_reduce_ptx::fold_constants;
#[cfg(feature = "ladder")]
use std::any::TypeId;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Mutex;

/// The library's kernels that are of no one operator.
const SHARED: &[&[Kernels]] = &[
    table::SHARED,
    #[cfg(feature = "ladder")]
    gpu_reduce_kernels::ladder::table::KERNELS,
];

/// The most threads of a block, for which a kernel for any block is compiled.
const MOST_THREADS: u32 = 1024;

/// Compiled kernels, kept for the program's life; `None` if no table has the kernel. The key is the identity, BLOCK, and the threads
/// that their registers suffice for. A kernel is compiled for each list of [words](Parameters::known) that are constants in it.
pub type Loaded = Mutex<HashMap<(Identity, u32, u32), Vec<(Vec<Known>, Option<&'static Compiled>)>>>;

/// A compiled kernel.
pub struct Compiled {
    name: String,
    function: Function<'static>,
}

impl Compiled {
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The grid of a launch.
#[derive(Clone, Copy)]
pub struct Grid {
    pub blocks: u32,
    pub block: u32,
    /// Threads that a multiprocessor must have registers for at a time: `block`, or more, so that several
    /// blocks fit. More is for kernels that are always launched with blocks of this size.
    pub resident: u32,
}

impl Gpu {
    /// Launches a kernel of the library's tables or of `own`, and returns it.
    ///
    /// # Safety
    ///
    /// Memory that the arguments point to stays valid until the stream has been waited for. The grid and the
    /// arguments meet the kernel's requirements.
    #[cfg(feature = "ladder")]
    pub(super) unsafe fn launch<K: Kernel>(
        &self,
        own: Kernels,
        stream: &Stream,
        grid: Grid,
        arguments: &K::Arguments,
    ) -> Result<&'static Compiled, Error> {
        let parameters = Parameters::of(arguments);
        // SAFETY: the caller's contract; `K::Arguments` are the kernel's parameters.
        unsafe {
            self.launch_if_compiled(Identity::of_type(TypeId::of::<K>()), own, stream, grid, &parameters)
        }?
        .ok_or_else(|| no_kernel(std::any::type_name::<K>(), grid.block))
    }

    /// Launches kernel `of`, from the library's tables or `own`, and returns it. Does nothing if
    /// no table has it for this BLOCK. It is not generic, so it is compiled once.
    ///
    /// # Safety
    ///
    /// As for [`launch`](Self::launch), and `parameters` are made from the kernel's arguments.
    pub(super) unsafe fn launch_if_compiled(
        &self,
        of: Identity,
        own: Kernels,
        stream: &Stream,
        grid: Grid,
        parameters: &Parameters,
    ) -> Result<Option<&'static Compiled>, Error> {
        // SAFETY: the caller's contract.
        unsafe { self.launch_with_shared(of, own, stream, (grid, 0), parameters) }
    }

    /// As [`launch_if_compiled`](Self::launch_if_compiled), with bytes of dynamic shared memory for each
    /// block.
    ///
    /// # Safety
    ///
    /// As for [`launch_if_compiled`](Self::launch_if_compiled).
    pub(super) unsafe fn launch_with_shared(
        &self,
        of: Identity,
        own: Kernels,
        stream: &Stream,
        (grid, shared): (Grid, u32),
        parameters: &Parameters,
    ) -> Result<Option<&'static Compiled>, Error> {
        let known = parameters.known();
        let Some(kernel) = self.kernel(of, own, (grid.block, grid.resident), known)? else { return Ok(None) };
        if shared > 0 {
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is one of the context.
            let set =
                unsafe { sys::cuFuncSetAttribute(kernel.function.to_raw(), most, self.most_shared as i32) };
            self.done("asking for shared memory", set)?;
        }
        // SAFETY: the caller's contract.
        unsafe { stream.launch(&kernel.function, grid.blocks, grid.block, shared, parameters.as_slice()) }
            .map_err(|error| self.launch_failed(&kernel.name, error))?;
        Ok(Some(kernel))
    }

    /// Returns kernel `of`, compiled at the first call, if a table has it.
    fn kernel(
        &self,
        of: Identity,
        own: Kernels,
        (block, resident): (u32, u32),
        known: &[Known],
    ) -> Result<Option<&'static Compiled>, Error> {
        let mut loaded = lock(&self.loaded);
        let find = |loaded: &HashMap<_, Vec<(Vec<Known>, _)>>, key| {
            let kernels = loaded.get(&key)?;
            kernels.iter().find_map(|(words, kernel)| (words == known).then_some(*kernel))
        };
        if let Some(kernel) = find(&loaded, (of, block, resident)) {
            return Ok(kernel);
        }
        let mut kernel = None;
        if let Some((name, entry_block, ptx)) = entry(of, own, block)
            && let Ok(ptx) = CString::new(for_known(ptx, &name, known))
        {
            let has_any_block = entry_block == ANY_BLOCK && resident == block;
            let threads = if has_any_block { MOST_THREADS } else { entry_block.max(resident) };
            kernel = find(&loaded, (of, entry_block, threads)).flatten();
            if kernel.is_none() {
                let function = self.compile(&name, &ptx, threads)?;
                kernel = Some(&*Box::leak(Box::new(Compiled { name, function })));
                loaded.entry((of, entry_block, threads)).or_default().push((known.to_vec(), kernel));
            }
        }
        if find(&loaded, (of, block, resident)).is_none() {
            loaded.entry((of, block, resident)).or_default().push((known.to_vec(), kernel));
        }
        Ok(kernel)
    }

    /// Returns whether a table has the kernel of these types.
    pub fn has_kernel(&self, of: &Types, block: u32) -> bool {
        find(of.kernel, of.own)
            .is_some_and(|(name, ptx)| [block, ANY_BLOCK].iter().any(|&block| ptx.has_block(&name, block)))
    }

    /// Has the driver compile a module, with so few registers a thread that a multiprocessor has them for
    /// `threads` threads at a time.
    pub(super) fn compile(
        &self,
        name: &str,
        ptx: &CString,
        threads: u32,
    ) -> Result<Function<'static>, Error> {
        // They must fit in the 65,536 registers of a multiprocessor, which are allocated in eights.
        let registers = (65536 / threads / 8 * 8).min(255);
        let failed = |error| self.launch_failed(name, error);
        let module =
            Module::from_ptx_cstr(ptx, &[ModuleJitOption::MaxRegisters(registers)]).map_err(failed)?;
        // Leaked: a kernel stays loaded for the program's life.
        Box::leak(Box::new(module)).get_function(name).map_err(failed)
    }

    /// Converts the result of waiting for a launched kernel.
    pub(super) fn launched(&self, kernel: &Compiled, result: Result<(), CudaError>) -> Result<(), Error> {
        result.map_err(|error| self.launch_failed(&kernel.name, error))
    }
}

/// Finds a kernel in the library's tables or in `own`: its name and its PTX.
fn find(of: Identity, own: Kernels) -> Option<(String, &'static Ptx)> {
    SHARED.iter().copied().flatten().chain([&own]).find_map(|kernels| kernels.find(of))
}

/// Finds a kernel for BLOCK: its entry point, that point's BLOCK, and its PTX.
fn entry(of: Identity, own: Kernels, block: u32) -> Option<(String, u32, String)> {
    let (name, ptx) = find(of, own)?;
    let (block, ptx) =
        [block, ANY_BLOCK].into_iter().find_map(|block| Some((block, ptx.module(&name, block)?)))?;
    Some((format!("{name}_{block}"), block, ptx))
}

/// Returns the PTX of kernel `name` for a launch with these words: without the code for other values.
fn for_known(ptx: String, name: &str, known: &[Known]) -> String {
    let with_known = with_known(&ptx, name, known);
    if with_known == ptx { ptx } else { fold_constants(&with_known) }
}

/// Returns the PTX of kernel `name` with constants in the place of known words of the parameters, so that the driver compiles no code
/// for other values. The kernel of lines of sums of `f32` then has half the machine code. (Functions that the kernel calls have parameters of
/// other names.)
fn with_known(ptx: &str, name: &str, known: &[Known]) -> String {
    let declared = ptx.split_once(&format!(".entry {name}(")).and_then(|(_, rest)| rest.split_once(')'));
    let names: Vec<_> = declared
        .map_or("", |(declared, _)| declared)
        .split(',')
        .filter_map(|parameter| parameter.split('[').next()?.split_whitespace().last())
        .collect();
    let places: Vec<_> = known
        .iter()
        .filter_map(|Known { parameter, byte, value }| {
            let offset = if *byte == 0 { String::new() } else { format!("+{byte}") };
            Some((format!("[{}{offset}];", names.get(usize::from(*parameter))?), value))
        })
        .collect();
    let mut with_known = String::with_capacity(ptx.len());
    for line in ptx.split_inclusive('\n') {
        let load = line.trim_end().strip_prefix("ld.param.").and_then(|load| load.split_once(", "));
        // `to` has the type and the register. A load of 32 bits is of the word's lower half.
        let value = load.and_then(|(to, at)| {
            let (_, value) = places.iter().find(|(place, _)| place == at)?;
            match to.get(..3)? {
                "b64" => Some((to, **value)),
                "b32" => Some((to, **value & u64::from(u32::MAX))),
                _ => None,
            }
        });
        match value {
            Some((to, value)) => with_known.push_str(&format!("mov.{to}, {value};\n")),
            None => with_known.push_str(line),
        }
    }
    with_known
}

/// The error for a kernel that no table has.
#[cold]
pub fn no_kernel(name: &str, block: u32) -> Error {
    Error::NoKernel { kernel: format!("{name} with BLOCK {block}") }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::BLOCKS;
    use gpu_reduce_kernels::agent::kernels;
    use gpu_reduce_kernels::columns::Columns;
    use gpu_reduce_kernels::kernels::Family;
    use gpu_reduce_kernels::op::Sum;
    use gpu_reduce_kernels::plan::GROUP;
    use gpu_reduce_kernels::segments::{Cut, SegmentBounds};
    use gpu_reduce_kernels::shape::Shape;
    use gpu_reduce_kernels::{order, runs};
    use std::ptr::{dangling, null};

    fn all() -> impl Iterator<Item = &'static Ptx> + Clone {
        let operators = gpu_reduce_kernels::ptx::kernels::ALL.iter().copied();
        #[cfg(feature = "ladder")]
        return operators.chain(gpu_reduce_kernels::ptx::ladder::ALL.iter().copied());
        #[cfg(not(feature = "ladder"))]
        operators
    }

    /// The name and PTX of each embedded entry point.
    pub fn embedded() -> impl Iterator<Item = (String, String)> {
        all().flat_map(|ptx| ptx.modules().unwrap())
    }

    /// The kernels of each operator.
    fn of_operators() -> Vec<Kernels> {
        macro_rules! of_rows {
            ({ $item:ty } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
                [$( kernels::<gpu_reduce_kernels::$op, $item>() ),*]
            };
            ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
                [$( kernels::<gpu_reduce_kernels::$op<u8>, u8>() ),*]
            };
        }
        [
            &gpu_reduce_kernels::for_each_operator! { of_rows! { u8 } }[..],
            &gpu_reduce_kernels::for_each_integer_operator! { of_rows! { u8 } },
            &gpu_reduce_kernels::for_each_pair_operator! { of_rows! { (u8, u8) } },
            &gpu_reduce_kernels::for_each_comparison! { of_rows! {} },
        ]
        .concat()
    }

    /// Asserts that kernels have numbers in the place of the words that are known of a launch.
    fn assert_known(names: &[&str], parameters: &Parameters) {
        let known = parameters.known();
        for (name, ptx) in embedded().filter(|(name, _)| names.contains(&name.as_str())) {
            assert_eq!(with_known(&ptx, &name, &[]), ptx);
            let numbers = with_known(&ptx, &name, known);
            assert_eq!(numbers.lines().count(), ptx.lines().count());
            for Known { parameter, byte, value } in known {
                let place = match byte {
                    0 => format!(", [p{parameter}];\n"),
                    _ => format!(", [p{parameter}+{byte}];\n"),
                };
                let loads = ptx.matches(&place).count();
                let changed = |text: &str| text.matches(&format!(", {value};\n")).count();
                assert!(!numbers.contains(&place), "{name} loads {place}");
                assert!(changed(&numbers) >= changed(&ptx) + loads, "{name} has no {value}");
            }
        }
    }

    #[test]
    fn known_words_are_numbers_of_the_ptx() {
        let input = null::<f32>();
        let mut parameters = Parameters::NONE;
        parameters.push(&input);
        let cut = Cut { weight: 1, ways: 77_777, ..Cut::NONE };
        SegmentBounds::of_length(8, 4, 32).push(&cut, &mut parameters);
        let kernels = ["short", "lines", "chunks", "larger"].map(|kernel| format!("sum_f32_{kernel}_0"));
        let kernels = kernels.each_ref().map(String::as_str);
        assert_known(&kernels, &parameters);
        // All of these read `ways`, and nothing else has this value.
        for (name, ptx) in embedded().filter(|(name, _)| kernels.contains(&name.as_str())) {
            assert!(with_known(&ptx, &name, parameters.known()).contains(", 77777;\n"), "{name}");
        }

        let mut parameters = Parameters::NONE;
        parameters.push(&input);
        SegmentBounds::of_offsets(dangling::<u32>(), 4, 32).push(&cut, &mut parameters);
        assert_eq!(parameters.known()[0].value, 4);
        assert_known(&["sum_f32_segments_0", "sum_f32_spans_0", "sum_f32_larger_0"], &parameters);

        let mut parameters = Parameters::NONE;
        parameters.push(&input);
        let columns = Columns { count: 100, reduced: 1000, inner: 100 };
        let cut = Types::of::<Sum, *const f32>().cut_columns(&columns, 256, 16);
        columns.push(&cut, &mut parameters);
        let (name, ptx) = embedded().find(|(name, _)| name == "sum_f32_columns_0").unwrap();
        assert_ne!(with_known(&ptx, &name, parameters.known()), ptx);
        assert_known(&["sum_f32_columns_0"], &parameters);

        // Without heads.
        let parameters = Parameters::of(&runs::Arguments::<u32>::NONE);
        assert_eq!(parameters.known().len(), 1);
        assert_known(&["runs_u32_256"], &parameters);
    }

    #[test]
    fn known_words_are_found_whatever_the_parameters_are_called() {
        let ptx = ".visible .entry own_0(\n.param .u64 .ptr .align 1 own_0_param_0,\n.param .align 8 .b8 cut[48]\n)\n{\n\
                   ld.param.b64 %rd0, [own_0_param_0];\nld.param.b64 %rd1, [cut+8];\nld.param.b32 %r1, [cut];\nret;\n}\n";
        let known = |parameter, byte, value| Known { parameter, byte, value };
        let numbers = with_known(ptx, "own_0", &[known(1, 8, 7), known(1, 0, (1 << 32) + 5), known(2, 0, 9)]);
        let expected = ptx.replace("ld.param.b64 %rd1, [cut+8]", "mov.b64 %rd1, 7");
        assert_eq!(numbers, expected.replace("ld.param.b32 %r1, [cut]", "mov.b32 %r1, 5"));
    }

    #[test]
    fn a_kernel_of_two_types_is_compiled_for_one() {
        use gpu_reduce_kernels::op::Max;
        let [unsigned, signed] = [Types::of::<Max, *const u8>(), Types::of::<Max, *const i8>()];
        let of = |types: &'static Types| {
            let (name, _, ptx) = entry(types.kernel.with(Family::Lines), types.own, 256).unwrap();
            assert_eq!(name, "max_u8_lines_0");
            // The last parameter says which type it is.
            let known = Known { parameter: 5, byte: 0, value: types.member.into() };
            let known = for_known(ptx.clone(), &name, &[known]);
            assert!(ptx.contains("[p5];") && !known.contains("[p5];"));
            assert!(known.len() < ptx.len() * 9 / 10, "{} of {} bytes", known.len(), ptx.len());
            known
        };
        assert_ne!(of(unsigned), of(signed));
    }

    #[test]
    fn every_entry_point_is_embedded_alone() {
        for (name, ptx) in embedded() {
            assert!(ptx.contains(&format!(".visible .entry {name}(")), "{name} is not in its module");
            assert_eq!(ptx.matches(".entry").count(), 1, "{name} is not alone in its module");
        }
    }

    #[test]
    fn what_is_embedded_is_what_the_tables_have() {
        let mut names: Vec<_> =
            SHARED.iter().copied().flatten().chain(&of_operators()).flat_map(Kernels::names).collect();
        names.sort();
        names.dedup(); // aliases such as `usize` share the kernels of their types
        let kernels = all().flat_map(|ptx| ptx.kernels);
        let mut embedded: Vec<_> = kernels.clone().map(|(name, _)| (*name).to_owned()).collect();
        embedded.sort();
        // Kernels that would do nothing are not embedded.
        let may_do_nothing = |name: &str| {
            ["_groups", "_segments", "_rows", "_short", "_larger", "_lines", "_spans"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        names.retain(|name| embedded.contains(name) || !may_do_nothing(name));
        assert_eq!(names, embedded);
        for (name, entries) in kernels.filter(|(name, _)| !name.starts_with("merge_")) {
            let blocks: Vec<_> = entries.iter().map(|&(block, _)| block).collect();
            let has_end = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
            let threads = if name.starts_with("order_") || name.ends_with("_move") {
                &[order::THREADS]
            } else if name.starts_with("runs_") || has_end(&["_finish", "_narrow"]) {
                &[runs::THREADS]
            } else if ["deal_", "indices_", "keys_", "terms_", "wide_keys_"]
                .iter()
                .any(|family| name.starts_with(family))
                || has_end(&["_groups", "_index", "_rest", "_offer", "_square", "_divide"])
            {
                &[GROUP]
            } else {
                &[ANY_BLOCK]
            };
            assert!(blocks == BLOCKS || blocks == *threads, "{name}");
        }
    }

    #[test]
    fn operators_that_differ_in_the_last_step_have_one_kernel() {
        use gpu_reduce_kernels::{
            ExactMean, ExactSum, ExactSumTwofold, Kurtosis, Moments, NanStd, NanVar, Skewness, Std, Var,
        };
        let names = |kernels: Kernels| kernels.names().collect::<Vec<_>>();
        let of_var = names(kernels::<Var, f32>());
        let of_nanvar = names(kernels::<NanVar, f32>());
        let of_mean = names(kernels::<ExactMean, f32>());
        assert_eq!(names(kernels::<Std, f32>()), of_var);
        assert_eq!(names(kernels::<NanStd, f32>()), of_nanvar);
        assert_eq!(names(kernels::<Kurtosis, f32>()), names(kernels::<Skewness, f32>()));
        assert_eq!(names(kernels::<Moments, f32>()), names(kernels::<Skewness, f32>()));
        assert_eq!(names(kernels::<ExactSum, f32>()), of_mean);
        assert_eq!(names(kernels::<ExactSumTwofold, f32>()), of_mean);
        let has = |names: &[String], name: &str| names.iter().any(|other| other == name);
        assert!(has(&of_nanvar, "nanvar_f64_rows") && has(&of_nanvar, "var_u32_rows"));
        assert!(has(&of_mean, "exact_mean_f64_rows") && has(&of_mean, "mean_u32_rows"));
    }

    #[test]
    fn all_that_is_embedded_needs_the_same() {
        for ptx in all() {
            let first = all().next().unwrap();
            assert_eq!((ptx.version, ptx.capability), (first.version, first.capability));
        }
    }

    #[test]
    fn what_embedding_adds_is_small() {
        let bytes: usize = all().map(|ptx| ptx.packed.len()).sum();
        assert!(bytes < 3_100_000, "{bytes} bytes");
    }
}
