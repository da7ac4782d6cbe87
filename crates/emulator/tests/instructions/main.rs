//! Every instruction that the emulator knows, in kernels of one instruction each: on the emulator against references
//! that are independent of it, with values at which instructions change their minds; and, where there is a GPU, against
//! that, bit by bit, with random values too.

mod gpu;
mod interpreter;
mod kernel;
mod row;
mod table;
mod value;

use emulator::program::forms;
use emulator::ptx::{
    self,
    ast::{Instruction, Statement},
};
use row::{Expected, Row, Thread};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Rows of a module.
const BATCH: usize = 64;

/// Runs a function over all rows, a batch at a time, on all cores; gives what it gave, in order.
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

/// What is wrong with the results of a row, of the first threads that have a wrong one.
fn wrong(row: &Row, sources: &[[u64; 4]], results: &[[u64; 2]]) -> Vec<String> {
    let threads = sources.len();
    let block = kernel::BLOCK.iter().product::<u32>() as usize;
    let message = |index: usize| {
        let (given, found) = (&sources[index][..row.sources.len()], &results[index][..row.results.len()]);
        let wanted = match &row.expected {
            Expected::Any => None,
            Expected::Bits(expected) => {
                let first = index / block * block;
                let thread = Thread { index, threads, block: &sources[first..first + block] };
                let expected = expected(&thread);
                let same = found.iter().zip(&expected).zip(&row.results);
                let same =
                    same.into_iter().all(|((&found, &expected), operand)| operand.same(found, expected));
                (!same).then(|| format!("{expected:x?}"))
            }
            Expected::Near(near) => {
                let numbers: Vec<Vec<f64>> =
                    given.iter().zip(&row.sources).map(|(&bits, operand)| operand.numbers(bits)).collect();
                let found = row.results[0].numbers(found[0]);
                found.iter().enumerate().find_map(|(part, &found)| {
                    let sources: Vec<f64> = numbers.iter().map(|numbers| numbers[part]).collect();
                    let near = near(&sources)?;
                    (!near.allows(found, row.results[0].greatest()))
                        .then(|| format!("{near:?} for {sources:?}, found {found}"))
                })
            }
        };
        wanted.map(|wanted| format!("{}: {given:x?} gave {found:x?}, not {wanted}", row.text))
    };
    (0..threads).filter_map(message).take(3).collect()
}

#[test]
fn every_instruction_gives_what_its_reference_gives() {
    let rows = table::rows();
    let wrong = in_batches(&rows, |batch| {
        let module = interpreter::Module::new(batch);
        let wrong = |&(index, row): &(usize, &Row)| {
            let sources = value::inputs(&row.sources, 2048, kernel::UNIT);
            wrong(row, &sources, &module.run(index, &sources, true))
        };
        batch.iter().flat_map(wrong).collect()
    });
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// Every word of every form that the decoder takes stands in a row of that form.
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

/// All instructions of a body.
fn collect(statements: &[Statement], into: &mut Vec<Instruction>) {
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => into.push(instruction.clone()),
            Statement::Block(statements) => collect(statements, into),
            _ => {}
        }
    }
}

/// Needs a GPU of compute capability 9.0 or higher; elsewhere it passes, and says why.
#[test]
fn a_gpu_gives_the_same_bits() {
    let device = match gpu::device() {
        Ok(device) => device,
        Err(why) => return println!("not compared with a GPU: {why}"),
    };
    let rows = table::rows();
    let compared = in_batches(&rows, |batch| {
        let (module, loaded) = (interpreter::Module::new(batch), gpu::Module::new(device, batch));
        let compare = |&(index, row): &(usize, &Row)| {
            let sources = value::inputs(&row.sources, 1 << 16, kernel::UNIT);
            let ours = module.run(index, &sources, false);
            let theirs = loaded.run(index, &sources);
            Comparison::new(row, &sources, &ours, &theirs)
        };
        batch.iter().map(compare).collect()
    });
    let (results, differ) =
        compared.iter().fold((0, 0), |(results, differ), row| (results + row.results, differ + row.differ));
    for row in &compared {
        println!("{:>9} compared {:>7} differ  {}", row.results, row.differ, row.name);
    }
    println!("{} rows, {results} results compared, {differ} differ", compared.len());
    let examples: Vec<&str> =
        compared.iter().flat_map(|row| row.examples.iter().map(String::as_str)).collect();
    assert!(examples.is_empty(), "{differ} of {results} results differ:\n{}", examples.join("\n"));
}

/// How a row went on the GPU.
struct Comparison {
    name: String,
    results: usize,
    differ: usize,
    examples: Vec<String>,
}

impl Comparison {
    fn new(row: &Row, sources: &[[u64; 4]], ours: &[[u64; 2]], theirs: &[[u64; 2]]) -> Comparison {
        let name = row.text.replace('\n', " ");
        let (mut differ, mut examples) = (0, Vec::new());
        match row.expected {
            Expected::Bits(_) => {
                for ((sources, ours), theirs) in sources.iter().zip(ours).zip(theirs) {
                    let parts = row.results.iter().zip(ours.iter().zip(theirs));
                    if !parts.into_iter().all(|(operand, (&ours, &theirs))| operand.same(ours, theirs)) {
                        differ += 1;
                        if examples.len() < 3 {
                            let count = row.results.len();
                            examples.push(format!(
                                "{name} of {:x?}: emulator {:x?}, GPU {:x?}",
                                &sources[..row.sources.len()],
                                &ours[..count],
                                &theirs[..count]
                            ));
                        }
                    }
                }
            }
            // The emulator's own are within the bound by the test above.
            Expected::Near(_) | Expected::Any => {
                examples = wrong(row, sources, theirs);
                differ = examples.len();
            }
        }
        Comparison { name, results: sources.len(), differ, examples }
    }
}
