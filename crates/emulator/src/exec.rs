//! Launches: blocks over CPU threads, warps by turns, an instruction of a warp at a time.

mod access;
mod asynchronous;
mod block;
mod clocks;
mod collective;
mod counting;
mod grid;
pub(crate) mod lanes;
mod log;
mod print;
mod race;
mod shadow;
#[cfg(test)]
mod tests;
mod undefined;
mod warp;

use std::collections::{BTreeMap, HashMap};
use std::sync::{
    Mutex, Once, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::time::Duration;

use crate::{
    counters::Counters,
    fault::{Fault, FaultKind, Place},
    history::Touch,
    memory::Memory,
    program::{Kernel, Program},
    ptx::ast::Space,
};

pub(crate) use self::clocks::Kind;
use self::{block::Block, grid::Grid, log::Log};

/// The message that a check covers part of a launch.
static PART: Once = Once::new();

/// Blocks that run at a time, at most, as they wait for each other: as many as an H200 holds.
const RESIDENT: usize = 132 * 32;
/// How long a CPU thread sleeps that has only waiting blocks: twice as long each time, up to the second.
const PAUSE: Duration = Duration::from_micros(20);
const MOST_PAUSE: Duration = Duration::from_millis(1);

/// Bytes of shared memory a block may have: those of an H200.
const SHARED_LIMIT: u64 = 227 * 1024;

/// What a kernel is launched with.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory a block, besides the kernel's static ones.
    pub dynamic_shared: u32,
    /// The parameters, laid out as [`Kernel::params`] says: [`Kernel::param_bytes`] bytes, or fewer, and the kernel is at
    /// fault that reads one past them.
    pub params: &'a [u8],
}

/// How launches run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Look for races, reads of unwritten memory and the like. Accesses out of bounds are always faults.
    pub checks: bool,
    /// Interleave warps, and a warp's diverged paths, at random from this seed, an instruction at a time. Otherwise a warp
    /// runs until it must wait, then the next.
    pub seed: Option<u64>,
    /// CPU threads to run blocks on, at least 1.
    pub threads: usize,
    /// The most instructions that the warps of one block may issue before the launch counts as one without end.
    pub instruction_limit: u64,
    /// The longest that a launch may run by the clock. What it stops says which threads waited where, and for what.
    pub time_limit: Duration,
    /// Bytes for what the checks note of accesses to global memory, in which races are looked for after a launch. When
    /// they are spent, the accesses that follow are not looked at for races, and a message says so once. A sum of f32
    /// takes a sixth of its input's bytes.
    pub race_log_bytes: u64,
    /// Devices that there are, 1 to 64; other numbers count as the nearest of these. `cuInit` reads it, and later
    /// changes of it change nothing.
    pub devices: u32,
    /// Whether devices can access each other's memory, once `cuCtxEnablePeerAccess` has enabled it. Without, memory goes
    /// from one to another by copies alone. `cuInit` reads it, as it reads [`devices`](Self::devices).
    pub peer_access: bool,
}

impl Default for Settings {
    /// Checks, warps in order, one CPU thread, 2^32 instructions, a minute, 1 GiB of accesses, one device; others, where there are
    /// such, have peer access.
    fn default() -> Self {
        Settings {
            checks: true,
            seed: None,
            threads: 1,
            instruction_limit: 1 << 32,
            time_limit: Duration::from_secs(60),
            race_log_bytes: 1 << 30,
            devices: 1,
            peer_access: true,
        }
    }
}

/// A program whose variables have addresses.
#[derive(Debug)]
pub struct Loaded {
    /// Address and size of each of [`Program::variables`].
    addresses: HashMap<String, (u64, u64)>,
}

impl Loaded {
    /// Gives each variable memory, and its initial value. `None` where the memory does not suffice.
    pub fn new(program: &Program, memory: &Memory) -> Option<Loaded> {
        let mut loaded = Loaded { addresses: HashMap::new() };
        for variable in program.variables() {
            // An allocation's alignment is more than a variable's can be.
            let address = match variable.space {
                Space::Const => memory.allocate_constant(variable.size),
                _ => memory.allocate(variable.size),
            };
            let Some(address) = address else {
                loaded.unload(memory);
                return None;
            };
            loaded.addresses.insert(variable.name.clone(), (address, variable.size));
            let filled = memory.fill(address, &[0], variable.size);
            let written = memory.write(address, &variable.initial);
            if filled.is_err() || written.is_err() {
                loaded.unload(memory);
                return None;
            }
        }
        for variable in program.variables() {
            for relocation in &variable.relocations {
                let (base, _) = loaded.address(&variable.name)?;
                let Some((target, _)) = loaded.address(&relocation.name) else { continue };
                let value = target.wrapping_add(relocation.addend as u64).to_le_bytes();
                memory.write(base + relocation.at as u64, &value[..relocation.size.min(8)]).ok()?;
            }
        }
        Some(loaded)
    }

    /// The address and size of the variable of this name.
    pub fn address(&self, name: &str) -> Option<(u64, u64)> {
        self.addresses.get(name).copied()
    }

    /// Frees the variables' memory.
    pub fn unload(self, memory: &Memory) {
        for (address, _) in self.addresses.into_values() {
            memory.free(address);
        }
    }
}

/// Runs a kernel, and returns when all its blocks have ended.
///
/// # Errors
///
/// What the kernel did wrong: of several faults, one of the first block that has one; races in global memory only if there
/// is no other. Memory is then as far written as the kernel came.
pub fn launch(
    program: &Program,
    module: &Loaded,
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Memory,
    settings: &Settings,
) -> Result<Counters, Box<Fault>> {
    run(program, module, kernel, launch, memory, settings, None)
}

/// [`launch`], which also says what the launch did to memory, where it is asked and the checks are on.
pub(crate) fn run(
    program: &Program,
    module: &Loaded,
    kernel: &Kernel,
    launch: &Launch<'_>,
    memory: &Memory,
    settings: &Settings,
    touches: Option<&mut Vec<Touch>>,
) -> Result<Counters, Box<Fault>> {
    let refused = |place, kind| {
        let (kernel, block) = (kernel.name.clone(), [0; 3]);
        Err(Box::new(Fault { kernel, place, block, threads: Vec::new(), kind }))
    };
    if let Some(unknown) = &kernel.unknown {
        let place = Place { line: unknown.line, source: None };
        return refused(Some(place), FaultKind::Unknown(unknown.message.clone()));
    }
    if let Err(message) = check(kernel, launch) {
        return refused(None, FaultKind::Launch(message));
    }
    let grid = Grid::new(program, module, kernel, launch, memory, settings);
    let blocks = launch.grid.iter().map(|&count| u64::from(count)).product::<u64>();
    let next = AtomicU64::new(0);
    // The lowest block with a fault so far: those after it need not run.
    let failed = AtomicU64::new(u64::MAX);
    let workers = settings.threads.clamp(1, 1024).min(usize::try_from(blocks).unwrap_or(usize::MAX));
    // Those that wait for others, by number: whichever CPU thread has time looks at them again.
    let waiting = Mutex::new(BTreeMap::<u64, Block>::new());
    let held = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        let mut worker = Worker { grid: &grid, failed: &failed, spare: None, found: Found::default() };
        let begin =
            || Some(next.fetch_add(1, Relaxed)).filter(|&number| number < blocks.min(failed.load(Relaxed)));
        let (mut from, mut moved, mut pause) = (0, false, PAUSE);
        loop {
            let block = {
                let mut waiting = held();
                let number = waiting.range(from..).next().map(|(&number, _)| number);
                number.and_then(|number| waiting.remove(&number))
            };
            if let Some(block) = block {
                from = block.number() + 1;
                match worker.resume(block) {
                    Some(block) => _ = held().insert(block.number(), block),
                    None => moved = true,
                }
                continue;
            }
            // All have been looked at. As many more are begun as wait, so that these are not looked at too often.
            let count = held().len();
            let room = RESIDENT.saturating_sub(count);
            let more = if moved { 1 } else { count.max(1) };
            for number in (0..more.min(room)).map_while(|_| begin()) {
                moved = true;
                let block = worker.begin(number);
                if let Some(block) = worker.resume(block) {
                    held().insert(number, block);
                }
            }
            match (moved, count) {
                (true, _) => pause = PAUSE,
                (false, 0) => return worker.found,
                // Another CPU thread has what they wait for; give it the core.
                (false, _) if workers > 1 => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(MOST_PAUSE);
                }
                (false, _) => {}
            }
            (from, moved) = (0, false);
        }
    };
    let results: Vec<_> = if workers == 1 {
        vec![work()]
    } else {
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let results = running.into_iter().map(|worker| worker.join());
            results.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    };
    let mut counters = Counters::default();
    let (mut logs, mut faults, mut suspicions) = (Vec::new(), Vec::new(), Vec::new());
    for found in results {
        counters += found.counters;
        logs.extend(found.logs);
        faults.extend(found.fault);
        suspicions.extend(found.suspicion);
    }
    let first = |faults: Vec<(u64, Box<Fault>)>| faults.into_iter().min_by_key(|fault| fault.0);
    match (first(faults), first(suspicions)) {
        (Some((block, _)), Some((earlier, suspicion))) if earlier < block => Err(suspicion),
        (Some((_, fault)), _) => Err(fault),
        (None, suspicion) => {
            if settings.checks && grid.room.is_spent() {
                let (name, bytes) = (&kernel.name, settings.race_log_bytes);
                PART.call_once(|| {
                    eprintln!(
                        "kernel {name}: its accesses to global memory do not fit in Settings::race_log_bytes, \
                         {bytes}: races are looked for only among the first ones"
                    )
                });
            }
            race::find(&grid, &mut logs)?;
            if let Some((_, fault)) = suspicion {
                return Err(fault);
            }
            if let Some(touches) = touches {
                *touches = race::touches(&grid, &logs);
            }
            Ok(counters)
        }
    }
}

/// What the blocks of a CPU thread have left behind: faults with the number of the block.
#[derive(Default)]
struct Found<'g> {
    counters: Counters,
    logs: Vec<Log<'g>>,
    fault: Option<(u64, Box<Fault>)>,
    suspicion: Option<(u64, Box<Fault>)>,
}

/// A CPU thread that runs blocks.
struct Worker<'g> {
    grid: &'g Grid<'g>,
    /// The lowest block with a fault so far.
    failed: &'g AtomicU64,
    /// A block that has ended, whose memory the next takes over.
    spare: Option<Block<'g>>,
    found: Found<'g>,
}

impl<'g> Worker<'g> {
    fn begin(&mut self, number: u64) -> Block<'g> {
        let mut block = self.spare.take().unwrap_or_else(|| Block::new(self.grid));
        block.start(number);
        block
    }

    /// Runs a block on; gives it back where it waits for others.
    fn resume(&mut self, mut block: Block<'g>) -> Option<Block<'g>> {
        let number = block.number();
        let found = &mut self.found;
        match block.resume() {
            Ok(None) if self.failed.load(Relaxed) == u64::MAX => return Some(block),
            // It may wait for the one at fault.
            Ok(None) => {}
            Ok(Some(done)) => {
                found.logs.extend(done.log);
                let suspicion = done.suspicion.map(|suspicion| (number, suspicion));
                found.suspicion = found.suspicion.take().or(suspicion);
            }
            Err(fault) => {
                self.failed.fetch_min(number, Relaxed);
                let first = found.fault.take().filter(|earlier| earlier.0 < number);
                found.fault = first.or(Some((number, fault)));
            }
        }
        found.counters += block.take_counters();
        self.spare = Some(block);
        None
    }
}

/// What makes a launch impossible.
fn check(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), String> {
    let threads = launch.block.iter().try_fold(1u32, |product, &count| product.checked_mul(count));
    let max = kernel.max_threads;
    if threads.is_none_or(|threads| threads == 0 || threads > max) {
        return Err(format!("blocks of {:?} threads; the kernel takes 1 to {max}", launch.block));
    }
    if let Some(required) = kernel.required_threads.filter(|required| *required != launch.block) {
        return Err(format!(
            "blocks of {:?} threads; the kernel's `.reqntid` says {required:?}",
            launch.block
        ));
    }
    if launch.grid.iter().try_fold(1u64, |product, &count| product.checked_mul(count.into())).unwrap_or(0)
        == 0
    {
        return Err(format!("a grid of {:?} blocks", launch.grid));
    }
    let shared = kernel.shared_bytes as u64 + u64::from(launch.dynamic_shared);
    if shared > SHARED_LIMIT {
        return Err(format!("{shared} bytes of shared memory a block; there are {SHARED_LIMIT}"));
    }
    if launch.params.len() > kernel.param_bytes {
        let given = launch.params.len();
        return Err(format!("{given} bytes of parameters; the kernel has {}", kernel.param_bytes));
    }
    Ok(())
}
