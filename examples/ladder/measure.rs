//! Runs variants on data of one type, checks each result against the CPU backend, and times or counts it.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use gpu_reduce::emulator::{self, Settings};
use gpu_reduce::{Block, Device, Reduce, Sum, Threads, View};
use indicatif::ProgressBar;

use super::error::Error;
use super::record::Record;
use super::rung::{Rung, rungs};
use super::sample::{Sample, samples};

/// The duration of a batch of repeats. What takes over ten times as long is timed once.
const BATCH: Duration = Duration::from_millis(10);

/// The number of batches; their median counts.
const BATCHES: usize = 5;

/// The type of the elements.
#[expect(non_camel_case_types, reason = "each variant has the name of its Rust type")]
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Dtype {
    i32,
    i64,
    f32,
    f64,
}

/// The measurements to make: each variant at each length.
pub struct Job {
    pub device: Device,
    pub dtype: Dtype,
    pub threads: u32,
    pub lengths: Vec<usize>,
    pub variants: Vec<String>,
    /// Whether to time the CPU too, with all threads and with one.
    pub cpu: bool,
}

impl Job {
    /// Whether the device is the emulator, which counts but has no times.
    pub fn is_emulated(&self) -> bool {
        self.device.to_string().contains("emulator")
    }

    /// Returns the records, ordered by length and then by variant.
    pub fn run(&self) -> Result<Vec<Record>, Error> {
        if self.is_emulated() {
            // Runs blocks one after the other. In parallel, the last block of the production kernel would
            // wait for the others, and its polling would be counted.
            emulator::set_settings(Settings { threads: 1, ..emulator::settings() });
        }
        macro_rules! each {
            ($($T:ident)*) => { match self.dtype { $(Dtype::$T => self.run_type::<$T>(),)* } };
        }
        each!(i32 i64 f32 f64)
    }

    fn run_type<T: Sample>(&self) -> Result<Vec<Record>, Error> {
        macro_rules! each {
            ($($block:literal)*) => {
                match self.threads {
                    $($block => self.run_block::<T, $block>(),)*
                    threads => unreachable!("--threads accepts no {threads}"),
                }
            };
        }
        each!(32 64 128 256 512 1024)
    }

    fn run_block<T: Sample, const BLOCK: u32>(&self) -> Result<Vec<Record>, Error>
    where
        Threads<BLOCK>: Block,
    {
        let host = samples::<T>(self.lengths.iter().copied().max().unwrap_or(0));
        let buffer = self.device.upload(&host)?;
        let mut rungs = rungs::<T, BLOCK>();
        rungs.retain(|rung| self.variants.iter().any(|name| name == rung.name));

        let progress = ProgressBar::new((self.lengths.len() * rungs.len()) as u64);
        let mut records = Vec::new();
        for &n in &self.lengths {
            let (data, view) = (&host[..n], buffer.slice(..n)?);
            let expected = data.reduce::<Sum, BLOCK>()?;
            for rung in &rungs {
                let (got, record) = if self.is_emulated() {
                    count::<T, BLOCK>(rung, view)?
                } else {
                    time::<T, BLOCK>(rung, view)?
                };
                if got != expected {
                    let (got, expected) = (format!("{got:?}"), format!("{expected:?}"));
                    return Err(Error::Wrong { variant: rung.name, n, dtype: T::NAME, got, expected });
                }
                records.push(record);
                progress.inc(1);
            }
            if self.cpu {
                records.push(time_cpu::<T, BLOCK>("cpu", data)?);
                let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
                records.push(one_thread.install(|| time_cpu::<T, BLOCK>("cpu_one_thread", data))?);
            }
        }
        Ok(records)
    }
}

/// Reduces on the emulator; returns the result and the counters.
fn count<T: Sample, const BLOCK: u32>(rung: &Rung<T>, view: View<T>) -> Result<(T::Wide, Record), Error>
where
    Threads<BLOCK>: Block,
{
    emulator::take_counters();
    let result = (rung.reduce)(view)?;
    let record = Record::new::<T>(rung.name, view.len(), BLOCK, &view.device());
    Ok((result, record.counted(&emulator::take_counters())))
}

/// Reduces on a GPU; returns the result and the time of the launches.
fn time<T: Sample, const BLOCK: u32>(rung: &Rung<T>, view: View<T>) -> Result<(T::Wide, Record), Error>
where
    Threads<BLOCK>: Block,
{
    let (result, time) = median(|repeats| (rung.time)(view, repeats))?;
    let record = Record::new::<T>(rung.name, view.len(), BLOCK, &view.device());
    Ok((result, record.timed::<T>(time, view.device().peak_bandwidth())))
}

/// Times the CPU, with the threads of the current pool.
fn time_cpu<T: Sample, const BLOCK: u32>(name: &str, data: &[T]) -> Result<Record, Error>
where
    Threads<BLOCK>: Block,
{
    let (_, time) = median(|repeats| {
        let start = Instant::now();
        let results: Result<Vec<_>, _> = (0..repeats.get()).map(|_| data.reduce::<Sum, BLOCK>()).collect();
        Ok((results?, start.elapsed() / repeats.get()))
    })?;
    Ok(Record::new::<T>(name, data.len(), BLOCK, &Device::cpu()).timed::<T>(time, None))
}

/// Returns the result, and the median time over several batches.
fn median<R>(
    time: impl Fn(NonZeroU32) -> Result<(R, Duration), gpu_reduce::Error>,
) -> Result<(R, Duration), gpu_reduce::Error> {
    let (result, once) = time(NonZeroU32::MIN)?;
    if once > 10 * BATCH {
        return Ok((result, once));
    }
    let repeats = (BATCH.as_nanos() / once.as_nanos().max(1)).min(1000) as u32;
    let repeats = NonZeroU32::new(repeats).unwrap_or(NonZeroU32::MIN);
    let mut times = (0..BATCHES).map(|_| Ok(time(repeats)?.1)).collect::<Result<Vec<_>, _>>()?;
    times.sort();
    Ok((result, times[BATCHES / 2]))
}
