//! The simulation.

use gpu_reduce::{Plan, Sum, width};

use super::error::Error;
use super::measured::{Measured, Time};

/// The size of an `f32`, and of its sum.
const BYTES: u64 = 4;

/// The size of each rank's first message, which says what it reduces.
const CLAIM: u64 = 128;

/// The network between ranks.
#[derive(Clone, Copy)]
pub struct Network {
    pub latency_us: f64,
    pub gbps: f64,
}

/// The measured time of each step.
pub struct Model {
    block: u32,
    network: Network,
    /// The time of a very short sum on a GPU.
    start_us: f64,
    /// One GPU's whole arrays: their length and time.
    whole: (u64, f64),
    /// The same by an operator without order.
    without_order: (u64, f64),
    /// Parts of the same whole: their chunks, elements and time, most chunks first.
    parts: Vec<(u32, u64, f64)>,
    /// The time to fold a partial result on the CPU.
    fold_us: f64,
    /// The time of a round of an all-gather between processes of one machine.
    round_us: f64,
}

/// The step that takes most of the time.
#[derive(Clone, Copy, PartialEq)]
pub enum Limit {
    /// The bandwidth of the GPU's memory.
    Memory,
    /// The number of chunks: too few per GPU to keep its memory busy, or none.
    Chunks,
    /// The messages, and the folds of partial results.
    Messages,
}

/// A simulated sum over many GPUs.
pub struct Simulated {
    pub chunks: u32,
    pub us: f64,
    /// The time of an operator without order.
    pub us_without_order: f64,
    /// Bytes that each GPU receives.
    pub bytes: u64,
    pub limit: Limit,
}

impl Model {
    pub fn new(measured: &Measured, block: u32, network: Network) -> Result<Self, Error> {
        let of_block = |op| {
            let times = measured.of(op).filter(move |time| time.block == block);
            let times: Vec<&Time> = times.collect();
            if times.is_empty() { Err(Error::None { op, block }) } else { Ok(times) }
        };
        let of_sum = of_block("part_sum")?;
        // Of the parts of one whole there are most.
        let plan_parts = of_sum[0].parts;
        let of_whole = of_sum.iter().filter(|time| time.parts == plan_parts);
        let mut parts: Vec<_> = of_whole.map(|time| (time.chunks, time.n, time.us)).collect();
        parts.sort_by_key(|&(chunks, _, _)| std::cmp::Reverse(chunks));
        let max = of_block("part_max")?[0];
        let folds = of_block("fold_sum")?;
        let fold = folds.iter().max_by_key(|time| time.chunks).unwrap_or(&folds[0]);
        let none = |op| Error::NoLatency { op, by: "`cargo bench --bench several`" };
        let least = measured.of("blocking_sum_one").min_by_key(|time| time.n);
        let whole = measured.of("sum_one").next().ok_or_else(|| none("sum_one"))?;
        let round_us = round(measured)
            .ok_or(Error::NoLatency { op: "mpi_sum", by: "`mpi_reduce` with one rank and with several" })?;
        Ok(Self {
            block,
            network,
            start_us: least.ok_or_else(|| none("blocking_sum_one"))?.us,
            whole: (whole.n, whole.us),
            without_order: (max.n, max.us),
            parts,
            fold_us: fold.us / f64::from(fold.chunks),
            round_us,
        })
    }

    /// The time of `elements` elements if the `measured` ones take their time.
    fn scaled(&self, measured: (u64, f64), elements: u64) -> f64 {
        self.start_us + (measured.1 - self.start_us) * elements as f64 / measured.0 as f64
    }

    /// The time of a GPU's part, which has this many elements in this many chunks, until the host has the
    /// chunks' partial results: that of the most chunks that were measured, and no more than these, scaled
    /// from the time of one chunk on.
    fn part_us(&self, chunks: u32, elements: u64) -> f64 {
        let least = self.parts.last().map_or(0.0, |&(_, _, us)| us);
        let measured = self.parts.iter().find(|&&(count, _, _)| count <= chunks);
        measured.map_or(0.0, |&(_, n, us)| least + (us - least) * elements as f64 / n as f64)
    }

    /// The time of an all-gather of `bytes` in all.
    fn gather_us(&self, gpus: u32, bytes: u64) -> f64 {
        let rounds = f64::from(gpus.next_power_of_two().ilog2());
        rounds * (self.round_us + self.network.latency_us) + bytes as f64 / self.network.gbps / 1e3
    }

    /// Simulates a sum of `len` elements, cut as [`Plan::part`] does.
    pub fn sum(&self, gpus: u32, len: u64) -> Simulated {
        if gpus == 1 {
            let (us, us_without_order) = (self.scaled(self.whole, len), self.scaled(self.without_order, len));
            let chunks = self.plan(len).chunks;
            return Simulated { chunks, us, us_without_order, bytes: 0, limit: Limit::Memory };
        }
        let plan = self.plan(len);
        let chunks_of = |gpu| {
            let elements = plan.part(gpu, gpus);
            (elements.start / plan.chunk) as u32..elements.end.div_ceil(plan.chunk) as u32
        };
        let chunks = (0..gpus).map(|gpu| chunks_of(gpu).len()).max().unwrap_or(0) as u32;
        let trees = (0..gpus).map(|gpu| plan.trees(chunks_of(gpu)).count() as u64).sum::<u64>();
        let part_us = self.part_us(chunks, u64::from(chunks) * plan.chunk);
        let others = u64::from(gpus - 1);
        let [claims, sums] = [CLAIM * others, (trees * BYTES).div_ceil(u64::from(gpus)) * others + others];
        let folds_us = self.fold_us * (u64::from(chunks) + trees) as f64;
        let messages_us = self.gather_us(gpus, claims) + self.gather_us(gpus, sums) + folds_us;
        // The first message has the accumulator.
        let us_without_order =
            self.scaled(self.without_order, len / u64::from(gpus)) + self.gather_us(gpus, claims);
        let whole_us = self.scaled(self.whole, len / u64::from(gpus));
        let limit = match () {
            () if messages_us > part_us / 2.0 => Limit::Messages,
            () if part_us > 1.1 * whole_us => Limit::Chunks,
            () => Limit::Memory,
        };
        Simulated { chunks, us: part_us + messages_us, us_without_order, bytes: claims + sums, limit }
    }

    fn plan(&self, len: u64) -> Plan {
        Plan::new(len, width::<Sum, f32>(BYTES as usize), self.block)
    }

    /// What was measured but is not part of the model: a description, the measured time and the simulated
    /// time.
    pub fn beside(&self, measured: &Measured) -> Vec<(String, f64, f64)> {
        let mut lines = Vec::new();
        for time in measured.of("part_sum").filter(|time| time.block == self.block && time.n == 1 << 30) {
            let what = format!("2^30, a part of 2^{} on one GPU", (time.n * u64::from(time.parts)).ilog2());
            lines.push((what, time.us, self.part_us(time.chunks, time.n)));
        }
        for (op, parts) in [("sum_even", measured.gpus.max(2)), ("sum_partials", 64)] {
            for time in measured.of(op) {
                // There are no messages: the host has all partial results and folds them.
                let chunks = self.plan(time.n).chunks;
                let part = self.part_us(chunks / parts, time.n / u64::from(parts));
                let in_turn = if op == "sum_even" { parts.div_ceil(measured.gpus) } else { parts };
                // Shards of one GPU are launched together.
                let starts = if op == "sum_even" { in_turn - 1 } else { 0 };
                let parts_us = f64::from(in_turn) * part - f64::from(starts) * self.start_us;
                let what = format!("2^{} in {parts} parts on {} GPU", time.n.ilog2(), measured.gpus);
                lines.push((what, time.us, parts_us + self.fold_us * f64::from(chunks)));
            }
        }
        let alone = measured.of("mpi_sum").find(|time| time.ranks == 1).map_or(0.0, |time| time.us);
        for time in measured.of("mpi_sum").filter(|time| time.ranks > 2) {
            let rounds = 2.0 * f64::from(time.ranks.next_power_of_two().ilog2());
            let what = format!("2^{}, {} ranks on one machine", time.n.ilog2(), time.ranks);
            lines.push((what, time.us, alone + rounds * self.round_us));
        }
        lines
    }
}

/// The time of a round of an all-gather. A reduction makes two all-gathers; several ranks take that much
/// longer than one.
fn round(measured: &Measured) -> Option<f64> {
    let alone = measured.of("mpi_sum").find(|time| time.ranks == 1)?.us;
    let several = measured.of("mpi_sum").filter(|time| time.ranks > 1);
    let rounds: Vec<f64> = several
        .map(|time| (time.us - alone) / (2.0 * f64::from(time.ranks.next_power_of_two().ilog2())))
        .collect();
    (!rounds.is_empty()).then(|| rounds.iter().sum::<f64>() / rounds.len() as f64)
}
