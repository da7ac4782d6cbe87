//! The simulation.

use super::error::Error;
use super::measured::{Measured, Time};

/// Bytes of an `f32`, and of its sum.
const BYTES: u64 = 4;

/// Bytes that each rank tells all at first: what it reduces.
const CLAIM: u64 = 128;

/// What ranks talk by.
#[derive(Clone, Copy)]
pub struct Network {
    pub latency_us: f64,
    pub gbps: f64,
}

/// What each step was measured to take.
pub struct Model {
    /// Chunks of a whole that is long enough.
    pub chunks: u32,
    network: Network,
    /// A sum of next to nothing on a GPU.
    start_us: f64,
    /// Elements of a part, and for the numbers of chunks that they were, most first, what it took.
    part: u64,
    parts: Vec<(u32, f64)>,
    fold_us: f64,
    /// A round of an all-gather between processes of a machine.
    round_us: f64,
}

/// What most of the time goes to.
#[derive(Clone, Copy, PartialEq)]
pub enum Limit {
    /// A GPU's memory.
    Memory,
    /// A GPU has fewer chunks than it takes to keep its memory busy, or none.
    Chunks,
    /// What is sent, and the fold that waits for it.
    Messages,
}

/// A sum over many GPUs.
pub struct Simulated {
    pub us: f64,
    /// What each receives.
    pub bytes: u64,
    pub limit: Limit,
}

impl Model {
    pub fn new(measured: &Measured, block: u32, network: Network) -> Result<Self, Error> {
        let of_block = |op| measured.of(op).filter(move |time| time.block == block);
        let mut parts: Vec<(u32, f64)> = of_block("part_sum").map(|time| (time.chunks, time.us)).collect();
        parts.sort_by_key(|&(chunks, _)| std::cmp::Reverse(chunks));
        let (Some(&(chunks, _)), Some(part)) = (parts.first(), of_block("part_sum").next()) else {
            return Err(Error::None { op: "part_sum", block });
        };
        let fold = of_block("fold_sum").next().ok_or(Error::None { op: "fold_sum", block })?;
        let least = measured.of("blocking_sum_one").min_by_key(|time| time.n);
        let start =
            least.ok_or(Error::NoLatency { op: "blocking_sum_one", by: "`cargo bench --bench several`" })?;
        let round_us = round(measured.of("mpi_sum"))
            .ok_or(Error::NoLatency { op: "mpi_sum", by: "`mpi_reduce`, by one rank and by several," })?;
        Ok(Self { chunks, network, start_us: start.us, part: part.n, parts, fold_us: fold.us, round_us })
    }

    /// A GPU's part: so many elements that are so many chunks.
    fn part_us(&self, chunks: u32, elements: u64) -> f64 {
        let measured = self.parts.iter().filter(|&&(count, _)| count <= chunks);
        let us = measured.map(|&(_, us)| us).next().unwrap_or(f64::INFINITY);
        self.start_us + (us - self.start_us) * elements as f64 / self.part as f64
    }

    /// An all-gather of so many bytes in all.
    fn gather_us(&self, gpus: u32, bytes: u64) -> f64 {
        let rounds = f64::from(gpus.next_power_of_two().ilog2());
        rounds * (self.round_us + self.network.latency_us) + bytes as f64 / self.network.gbps / 1e3
    }

    /// A sum of so many elements, as many on each GPU.
    pub fn sum(&self, gpus: u32, len: u64) -> Simulated {
        let busy = gpus.min(self.chunks);
        let chunks = self.chunks.div_ceil(busy);
        let part_us = self.part_us(chunks, len / u64::from(busy));
        let others = u64::from(gpus - 1);
        let bytes = [CLAIM * others, (u64::from(self.chunks) * BYTES / u64::from(gpus) + 1) * others];
        let messages_us = match gpus {
            1 => 0.0,
            _ => bytes.iter().map(|&bytes| self.gather_us(gpus, bytes)).sum::<f64>() + self.fold_us,
        };
        let whole_us = self.part_us(self.chunks, len / u64::from(gpus));
        let limit = match () {
            () if messages_us > part_us / 2.0 => Limit::Messages,
            () if part_us > 1.1 * whole_us => Limit::Chunks,
            () => Limit::Memory,
        };
        Simulated { us: part_us + messages_us, bytes: bytes.iter().sum(), limit }
    }

    /// Sums that were measured on the GPUs that there are, not those that the model is made of: what it is, what it took, and what it takes here.
    pub fn beside(&self, measured: &Measured) -> Vec<(String, f64, f64)> {
        let mut lines = Vec::new();
        for time in measured.of("sum_one") {
            lines.push((format!("2^{}, one GPU", time.n.ilog2()), time.us, self.sum(1, time.n).us));
        }
        for time in measured.of("sum_even") {
            // Without a message: the host has all partial results, and folds them.
            let half = self.part_us(self.chunks / 2, time.n / 2);
            let (what, part) = match measured.gpus {
                1 => ("two halves on one GPU", 2.0 * half - self.start_us),
                _ => ("half on each of two GPUs", half),
            };
            lines.push((format!("2^{}, {what}", time.n.ilog2()), time.us, part + self.fold_us));
        }
        lines
    }
}

/// What a round of an all-gather takes, of which a reduction makes two, from what several ranks take longer than one.
fn round<'a>(times: impl Iterator<Item = &'a Time>) -> Option<f64> {
    let times: Vec<&Time> = times.collect();
    let alone = times.iter().find(|time| time.ranks == 1)?.us;
    let several = times.iter().filter(|time| time.ranks > 1);
    let rounds =
        several.map(|time| (time.us - alone) / (2.0 * f64::from(time.ranks.next_power_of_two().ilog2())));
    let rounds: Vec<f64> = rounds.collect();
    (!rounds.is_empty()).then(|| rounds.iter().sum::<f64>() / rounds.len() as f64)
}
