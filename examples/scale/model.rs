//! The simulation.

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
    /// The number of chunks of a long array.
    pub chunks: u32,
    network: Network,
    /// The time of a very short sum on a GPU.
    start_us: f64,
    /// The number of elements in a part. `parts` has its times by number of chunks, most chunks first.
    part: u64,
    parts: Vec<(u32, f64)>,
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
    /// The messages, and the fold that waits for them.
    Messages,
}

/// A simulated sum over many GPUs.
pub struct Simulated {
    pub us: f64,
    /// Bytes that each GPU receives.
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
            .ok_or(Error::NoLatency { op: "mpi_sum", by: "`mpi_reduce` with one rank and with several" })?;
        Ok(Self { chunks, network, start_us: start.us, part: part.n, parts, fold_us: fold.us, round_us })
    }

    /// The time of a GPU's part, which has this many elements in this many chunks.
    fn part_us(&self, chunks: u32, elements: u64) -> f64 {
        let measured = self.parts.iter().filter(|&&(count, _)| count <= chunks);
        let us = measured.map(|&(_, us)| us).next().unwrap_or(f64::INFINITY);
        self.start_us + (us - self.start_us) * elements as f64 / self.part as f64
    }

    /// The time of an all-gather of `bytes` in all.
    fn gather_us(&self, gpus: u32, bytes: u64) -> f64 {
        let rounds = f64::from(gpus.next_power_of_two().ilog2());
        rounds * (self.round_us + self.network.latency_us) + bytes as f64 / self.network.gbps / 1e3
    }

    /// Simulates a sum of `len` elements, equally many on each GPU.
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

    /// Sums that were measured but are not part of the model: a description, the measured time and the
    /// simulated time.
    pub fn beside(&self, measured: &Measured) -> Vec<(String, f64, f64)> {
        let mut lines = Vec::new();
        for time in measured.of("sum_one") {
            lines.push((format!("2^{}, one GPU", time.n.ilog2()), time.us, self.sum(1, time.n).us));
        }
        for time in measured.of("sum_even") {
            // There are no messages: the host has all partial results and folds them.
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

/// The time of a round of an all-gather. A reduction makes two all-gathers; several ranks take that much
/// longer than one.
fn round<'a>(times: impl Iterator<Item = &'a Time>) -> Option<f64> {
    let times: Vec<&Time> = times.collect();
    let alone = times.iter().find(|time| time.ranks == 1)?.us;
    let several = times.iter().filter(|time| time.ranks > 1);
    let rounds =
        several.map(|time| (time.us - alone) / (2.0 * f64::from(time.ranks.next_power_of_two().ilog2())));
    let rounds: Vec<f64> = rounds.collect();
    (!rounds.is_empty()).then(|| rounds.iter().sum::<f64>() / rounds.len() as f64)
}
