//! The order in which blocks run.
//!
//! Without a seed, each CPU thread runs blocks to their ends, in the order of their numbers. A block that
//! waits for others is put aside, and any CPU thread may resume it. With a seed, one CPU thread holds up to a
//! window of blocks, and runs one of them at a time, a random one, for a random number of instructions.
//! Blocks start in the order of their numbers, as on a GPU.
//!
//! A block is **stuck** if all its warps have polled memory and none has read another value since it was
//! resumed. If as many blocks are stuck as the device holds, the others never start.

use std::collections::BTreeMap;
use std::sync::{
    Mutex, PoisonError,
    atomic::{
        AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};
use std::time::{Duration, Instant};

use crate::{counters::Counters, fault::Fault};

use super::{
    block::{Block, Progress, Random},
    checks::races::Log,
    grid::Grid,
    reports::Reports,
};

/// How long a CPU thread first sleeps if all its blocks wait; it doubles the time up to [`MOST_PAUSE`].
const PAUSE: Duration = Duration::from_micros(20);
const MOST_PAUSE: Duration = Duration::from_millis(1);

/// How long all blocks that the device holds must be stuck. The host may yet write what they wait for.
const STUCK: Duration = Duration::from_secs(1);

/// The windows that a seed draws from, and the turns, as logarithms.
const WINDOW: usize = 7;
const TURN: usize = 12;

/// Instructions in which a stuck block polls often enough to be stuck again.
const PROBE: u64 = 1 << 16;

/// The results of the blocks of a CPU thread; faults with the number of their block.
#[derive(Default)]
pub struct Found<'g> {
    pub counters: Counters,
    pub logs: Vec<Log<'g>>,
    pub fault: Option<(u64, Box<Fault>)>,
    pub suspicion: Option<(u64, Box<Fault>)>,
    pub reports: Reports,
}

/// Runs all blocks of a grid. Returns what each CPU thread has found.
pub fn run<'g>(grid: &'g Grid<'g>) -> Vec<Found<'g>> {
    match grid.settings.seed {
        Some(seed) => vec![by_seed(grid, seed)],
        None => in_order(grid),
    }
}

/// A CPU thread that runs blocks.
struct Worker<'g> {
    grid: &'g Grid<'g>,
    /// An ended block, whose memory the next block reuses.
    spare: Option<Block<'g>>,
    found: Found<'g>,
}

/// The blocks that wait for others, by number. Any CPU thread may resume them.
#[derive(Default)]
struct Waiting<'g> {
    blocks: BTreeMap<u64, Block<'g>>,
    /// Of each block that was stuck when it last ran, how often any block had got further before that.
    stuck: BTreeMap<u64, u64>,
}

/// A block after a turn.
enum Turn<'g> {
    /// It has ended, with a fault or without.
    Ended,
    /// Its turn is over.
    Goes(Block<'g>),
    /// It waits for others, and has not seen a new value.
    Stuck(Block<'g>),
    /// It waits for others.
    Waits(Block<'g>),
}

impl<'g> Worker<'g> {
    fn new(grid: &'g Grid<'g>) -> Self {
        Worker { grid, spare: None, found: Found::default() }
    }

    fn begin(&mut self, number: u64) -> Block<'g> {
        let mut block = self.spare.take().unwrap_or_else(|| Block::new(self.grid));
        block.start(number);
        block
    }

    /// Runs a block for `turn` instructions; without a seed, until it ends or waits.
    fn resume(&mut self, mut block: Block<'g>, turn: u64) -> Turn<'g> {
        let number = block.number();
        match block.resume(turn, &mut self.found.reports) {
            Ok(Progress::Goes) => return Turn::Goes(block),
            Ok(Progress::Waits { stuck: true }) => return Turn::Stuck(block),
            Ok(Progress::Waits { stuck: false }) => return Turn::Waits(block),
            Ok(Progress::Ended(done, suspicion)) => {
                self.found.counters += done.counters;
                self.found.logs.extend(done.log);
                let suspicion = suspicion.map(|suspicion| (number, suspicion));
                self.found.suspicion = self.found.suspicion.take().or(suspicion);
            }
            Err(fault) => self.fail(number, fault),
        }
        self.retire(block);
        Turn::Ended
    }

    /// Keeps the first fault.
    fn fail(&mut self, number: u64, fault: Box<Fault>) {
        let first = self.found.fault.take().filter(|earlier| earlier.0 < number);
        self.found.fault = first.or(Some((number, fault)));
    }

    /// Keeps the memory of a block that does not run any more.
    fn retire(&mut self, block: Block<'g>) {
        self.spare = Some(block);
    }
}

/// Runs blocks in the order of their numbers, on [`Settings::threads`](super::Settings::threads) CPU threads.
fn in_order<'g>(grid: &'g Grid<'g>) -> Vec<Found<'g>> {
    let blocks = grid.blocks();
    let next = AtomicU64::new(0);
    // Blocks that have started and not ended.
    let running = AtomicU64::new(0);
    // The lowest block with a fault so far; later blocks need not start.
    let failed = AtomicU64::new(u64::MAX);
    // How often a block has got further, by which others may get further.
    let moves = AtomicU64::new(0);
    let workers = grid.settings.threads.clamp(1, 1024).min(usize::try_from(blocks).unwrap_or(usize::MAX));
    let waiting = Mutex::new(Waiting::default());
    let held = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let begin = || {
        let has_room = |count| (count < grid.resident).then_some(count + 1);
        running.fetch_update(SeqCst, SeqCst, has_room).ok()?;
        let number = next.fetch_add(1, Relaxed);
        if number < blocks.min(failed.load(Relaxed)) {
            return Some(number);
        }
        running.fetch_sub(1, SeqCst);
        None
    };
    let work = || {
        let mut worker = Worker::new(grid);
        // Runs a block, and puts it aside if it waits; returns whether it has ended.
        let resume = |worker: &mut Worker<'g>, block: Block<'g>| {
            let number = block.number();
            let before = moves.load(SeqCst);
            let turn = worker.resume(block, 0);
            match turn {
                Turn::Stuck(_) => held().stuck.insert(number, before),
                _ => held().stuck.remove(&number),
            };
            let block = match turn {
                Turn::Ended => {
                    if worker.found.fault.as_ref().is_some_and(|fault| fault.0 == number) {
                        failed.fetch_min(number, Relaxed);
                    }
                    moves.fetch_add(1, SeqCst);
                    running.fetch_sub(1, SeqCst);
                    return true;
                }
                Turn::Stuck(block) => block,
                Turn::Goes(block) | Turn::Waits(block) => {
                    moves.fetch_add(1, SeqCst);
                    block
                }
            };
            if failed.load(Relaxed) == u64::MAX {
                held().blocks.insert(number, block);
                return false;
            }
            // It may wait for the block at fault.
            worker.retire(block);
            running.fetch_sub(1, SeqCst);
            true
        };
        let (mut from, mut moved, mut pause, mut since) = (0, false, PAUSE, None);
        loop {
            let block = {
                let mut waiting = held();
                let number = waiting.blocks.range(from..).next().map(|(&number, _)| number);
                number.and_then(|number| waiting.blocks.remove(&number))
            };
            if let Some(block) = block {
                from = block.number() + 1;
                moved |= resume(&mut worker, block);
                continue;
            }
            // All waiting blocks have been resumed once. Start as many new blocks as wait, so that resuming
            // the waiting ones takes a bounded share of the time.
            let count = held().blocks.len();
            let more = if moved { 1 } else { count.max(1) };
            for number in (0..more).map_while(|_| begin()) {
                moved = true;
                let block = worker.begin(number);
                resume(&mut worker, block);
            }
            match (moved, count) {
                (true, _) => (pause, since) = (PAUSE, None),
                (false, 0) => return worker.found,
                (false, _) => {
                    if next.load(Relaxed) < blocks && failed.load(Relaxed) == u64::MAX {
                        let waiting = held();
                        let now = moves.load(SeqCst);
                        let are_stuck = waiting.stuck.len() as u64 == grid.resident
                            && waiting.stuck.values().all(|before| *before == now);
                        since = if are_stuck { since.or(Some(Instant::now())) } else { None };
                        if since.is_some_and(|since| since.elapsed() >= STUCK)
                            && let Some((&number, block)) = waiting.blocks.first_key_value()
                        {
                            worker.fail(number, block.never_resident());
                            failed.fetch_min(number, Relaxed);
                        }
                    }
                    // Another CPU thread, or the host, may write what they wait for; give it the core.
                    if workers > 1 || since.is_some() {
                        std::thread::sleep(pause);
                        pause = (2 * pause).min(MOST_PAUSE);
                    }
                }
            }
            (from, moved) = (0, false);
        }
    };
    if workers == 1 {
        return vec![work()];
    }
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let results = running.into_iter().map(|worker| worker.join());
        results.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// Runs blocks in the order that a seed draws, on one CPU thread, so that it is the same order each time.
fn by_seed<'g>(grid: &'g Grid<'g>, seed: u64) -> Found<'g> {
    let blocks = grid.blocks();
    let mut random = Random::new(seed ^ 0x6a09_e667_f3bc_c908);
    let mut window = grid.resident.min(2 << random.below(WINDOW));
    let mut worker = Worker::new(grid);
    let (mut going, mut stuck, mut next) = (Vec::<Block<'g>>::new(), Vec::<Block<'g>>::new(), 0);
    let (mut pause, mut since) = (PAUSE, None);
    loop {
        while next < blocks && ((going.len() + stuck.len()) as u64) < window {
            going.push(worker.begin(next));
            next += 1;
        }
        if going.is_empty() && stuck.is_empty() {
            return worker.found;
        }
        if !going.is_empty() {
            // Now and then a stuck one: it may get further.
            let is_stuck = !stuck.is_empty() && random.below(8) == 0;
            let from = if is_stuck { &mut stuck } else { &mut going };
            let block = from.swap_remove(random.below(from.len()));
            match worker.resume(block, 1 << random.below(TURN)) {
                Turn::Ended if worker.found.fault.is_some() => return worker.found,
                Turn::Ended => {}
                Turn::Goes(block) | Turn::Waits(block) => going.push(block),
                Turn::Stuck(block) => stuck.push(block),
            }
            continue;
        }
        // All are stuck. Unless one of them gets further now, others must start.
        let mut untried = std::mem::take(&mut stuck);
        let mut has_moved = false;
        while !untried.is_empty() && !has_moved {
            let block = untried.swap_remove(random.below(untried.len()));
            match worker.resume(block, PROBE) {
                Turn::Ended if worker.found.fault.is_some() => return worker.found,
                Turn::Ended => has_moved = true,
                Turn::Goes(block) | Turn::Waits(block) => {
                    has_moved = true;
                    going.push(block);
                }
                Turn::Stuck(block) => stuck.push(block),
            }
        }
        stuck.append(&mut untried);
        if has_moved {
            (pause, since) = (PAUSE, None);
        } else if next < blocks && window < grid.resident {
            window = grid.resident.min(2 * window);
        } else {
            let since = *since.get_or_insert_with(Instant::now);
            if next < blocks && since.elapsed() >= STUCK {
                worker.fail(stuck[0].number(), stuck[0].never_resident());
                return worker.found;
            }
            // The host may write what they wait for.
            std::thread::sleep(pause);
            pause = (2 * pause).min(MOST_PAUSE);
        }
    }
}
