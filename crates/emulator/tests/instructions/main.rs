//! Every instruction that the emulator knows, in a kernel of its own.
//!
//! The results on the emulator are compared with independent references, for edge cases and random values. If
//! there is a GPU, its results are compared with the emulator's, too.
//!
//! Results must be equal bit by bit, except those that PTX leaves to the machine:
//! - approximations ([`row::near`]) must be within the error that the ISA states, or that an H200 showed;
//! - a NaN of `f64` ([`value::Operand::same`]) must be a NaN;
//! - clocks, and the numbers of multiprocessors, grids and hardware warps ([`row::of_machine`]), need only
//!   exist.

mod gpu;
mod inputs;
mod interpreter;
mod kernel;
mod row;
mod table;
mod value;

use self::row::{Expected, Row, Thread};
use self::value::Operand;
use emulator::program::forms;
use emulator::ptx::{
    self,
    ast::{Instruction, Statement},
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Rows per module.
const BATCH: usize = 64;

/// Runs a function on all rows, one batch at a time, on all cores; returns all its results.
fn in_batches<T: Send>(rows: &[Row], f: impl Fn(&[(usize, &Row)]) -> Vec<T> + Sync) -> Vec<T> {
    let numbered: Vec<(usize, &Row)> = rows.iter().enumerate().collect();
    let batches: Vec<&[(usize, &Row)]> = numbered.chunks(BATCH).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let take = || batches.get(next.fetch_add(1, Relaxed));
        std::iter::from_fn(take).flat_map(|batch| f(batch)).collect::<Vec<T>>()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Describes the wrong results of a row, one per thread.
///
/// Compares bits with `wanted`, or with the reference if it is `None`.
fn wrong<'a>(
    row: &'a Row,
    sources: &'a [[u64; 4]],
    results: &'a [[u64; 2]],
    wanted: Option<&'a [[u64; 2]]>,
) -> impl Iterator<Item = String> + 'a {
    let block = kernel::BLOCK.iter().product::<u32>() as usize;
    (0..sources.len()).filter_map(move |index| {
        let (given, found) = (&sources[index][..row.sources.len()], &results[index][..row.results.len()]);
        let wanted = match (&row.expected, wanted) {
            (Expected::Any, _) => return None,
            (Expected::Bits(_), Some(wanted)) => unlike(row, found, &wanted[index]),
            (Expected::Bits(expected), None) => {
                let block = &sources[index / block * block..][..block];
                unlike(row, found, &expected(&Thread { index, threads: sources.len(), block }))
            }
            (Expected::Near(near), _) => far(row, given, found[0], near),
        }?;
        let text = row.text.replace('\n', " ");
        Some(format!("{text} of {given:x?} gave {found:x?}, not {wanted}"))
    })
}

/// Returns the wanted results if the found ones differ.
fn unlike(row: &Row, found: &[u64], wanted: &[u64]) -> Option<String> {
    let wanted = &wanted[..found.len()];
    let mut pairs = found.iter().zip(wanted).zip(&row.results);
    let same = pairs.all(|((&found, &wanted), operand)| operand.same(found, wanted));
    (!same).then(|| format!("{wanted:x?}"))
}

/// Returns the wanted number if a found one is too far off.
fn far(row: &Row, given: &[u64], found: u64, near: &row::OfNumbers) -> Option<String> {
    let numbers = |(&bits, operand): (&u64, &Operand)| operand.numbers(bits);
    let sources: Vec<Vec<f64>> = given.iter().zip(&row.sources).map(numbers).collect();
    row.results[0].numbers(found).iter().enumerate().find_map(|(part, &found)| {
        let sources: Vec<f64> = sources.iter().map(|numbers| numbers[part]).collect();
        let near = near(&sources)?;
        (!near.allows(found, row.results[0].greatest())).then(|| format!("{found} but {near:?}"))
    })
}

/// With `GPU_REDUCE_TEST_PART`, of a sixth of the rows.
#[test]
fn every_instruction_gives_what_its_reference_gives() {
    let part = std::env::var("GPU_REDUCE_TEST_PART");
    let part: Option<usize> =
        part.ok().map(|part| part.parse().expect("GPU_REDUCE_TEST_PART is a number from 0 to 5"));
    let all = table::rows().into_iter().enumerate();
    let rows: Vec<Row> =
        all.filter(|(number, _)| part.is_none_or(|part| number % 6 == part)).map(|(_, row)| row).collect();
    let wrong = in_batches(&rows, |batch| {
        let module = interpreter::Module::new(batch);
        let wrong = |&(index, row): &(usize, &Row)| {
            let sources = inputs::inputs(&row.sources, 2048, kernel::UNIT);
            wrong(row, &sources, &module.run(index, &sources, true), None).take(3).collect::<Vec<_>>()
        };
        batch.iter().flat_map(wrong).collect()
    });
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// Every word of every form that the decoder accepts occurs in a row of that form.
#[test]
fn the_table_has_every_form_that_is_known() {
    let mut instructions = Vec::new();
    for row in table::rows() {
        let text = format!(".version 8.0 .target sm_90 .visible .entry k() {{ {} }}", row.text);
        let module = ptx::parse(&text).unwrap_or_else(|error| panic!("{error}: {}", row.text));
        collect(module.functions[0].body.as_deref().unwrap_or_default(), &mut instructions);
    }
    let mut missing = Vec::new();
    for form in forms::all() {
        let fitting: Vec<&Instruction> = instructions
            .iter()
            .filter(|instruction| instruction.name == form.name && form.fits(instruction))
            .collect();
        let has = |word: &str| {
            fitting.iter().any(|instruction| instruction.modifiers.iter().any(|has| has == word))
        };
        missing.extend(form.words().filter(|word| !has(word)).map(|word| format!("`.{word}` of {form:?}")));
        if fitting.is_empty() {
            missing.push(format!("{form:?}"));
        }
    }
    assert!(missing.is_empty(), "not in the table:\n{}", missing.join("\n"));
}

/// Collects all instructions of a body.
fn collect(statements: &[Statement], into: &mut Vec<Instruction>) {
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => into.push(instruction.clone()),
            Statement::Block(statements) => collect(statements, into),
            _ => {}
        }
    }
}

/// Needs a GPU of compute capability 9.0 or higher; otherwise passes and prints why.
#[test]
fn a_gpu_gives_the_same_bits() {
    let gpu = match gpu::Gpu::new() {
        Ok(gpu) => gpu,
        Err(why) => return println!("not compared with a GPU: {why}"),
    };
    let rows = table::rows();
    let compared = in_batches(&rows, |batch| {
        let (module, loaded) = (interpreter::Module::new(batch), gpu.load(batch));
        let compare = |&(index, row): &(usize, &Row)| {
            let sources = inputs::inputs(&row.sources, 1 << 16, kernel::UNIT);
            let (ours, theirs) = (module.run(index, &sources, false), loaded.run(index, &sources));
            let mut wrong = wrong(row, &sources, &theirs, Some(&ours));
            let examples: Vec<String> = wrong.by_ref().take(3).collect();
            let differ = examples.len() + wrong.count();
            Comparison { text: row.text.replace('\n', " "), results: sources.len(), differ, examples }
        };
        batch.iter().map(compare).collect()
    });
    for Comparison { text, results, differ, .. } in &compared {
        println!("{results:>9} compared {differ:>7} differ  {text}");
    }
    let results: usize = compared.iter().map(|row| row.results).sum();
    let differ: usize = compared.iter().map(|row| row.differ).sum();
    println!("{} rows: {results} results compared, {differ} differ", compared.len());
    let examples: Vec<&str> = compared.iter().flat_map(|row| &row.examples).map(String::as_str).collect();
    assert!(examples.is_empty(), "the GPU's results are not the emulator's:\n{}", examples.join("\n"));
}

/// The comparison of a row's results on the GPU with the emulator's.
struct Comparison {
    text: String,
    results: usize,
    differ: usize,
    examples: Vec<String>,
}
