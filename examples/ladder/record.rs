//! The measurements, as they are printed, written to files and read back.

use std::path::Path;
use std::time::Duration;

use gpu_reduce::emulator::Counters;
use gpu_reduce::{Device, Element};
use serde::{Deserialize, Serialize};

use super::error::Error;

/// The measurement of a variant at one length: a row of a CSV file, or an object in JSON.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Record {
    /// The variant's name, or `cpu` or `cpu_one_thread`.
    pub variant: String,
    pub r#type: String,
    /// The number of elements.
    pub n: usize,
    /// Threads per block.
    pub threads: u32,
    pub device: String,
    /// The time of one reduction in microseconds; on a GPU, of its launches only.
    pub us: Option<f64>,
    /// Bytes of input per time, in GB/s.
    pub gbps: Option<f64>,
    /// The peak bandwidth of the device's memory, in GB/s.
    pub peak_gbps: Option<f64>,
    /// The number of elements in the emulator's run; the counters below are totals over its launches.
    pub counted_n: Option<usize>,
    /// Barriers per block.
    pub barriers: Option<f64>,
    /// Divergent branches per warp.
    pub divergent_branches: Option<f64>,
    /// Active lanes per instruction that a warp issues, of 32.
    pub lanes_active: Option<f64>,
    /// Extra passes per shared memory access, because of bank conflicts.
    pub bank_conflicts: Option<f64>,
    /// Sectors of 32 bytes per load from global memory.
    pub sectors_per_load: Option<f64>,
    /// Instructions that warps issue per 32 elements.
    pub instructions: Option<f64>,
}

impl Record {
    /// A record without time and counters.
    pub fn new<T: Element>(variant: &str, n: usize, threads: u32, device: &Device) -> Self {
        let (variant, device) = (variant.to_owned(), device.to_string());
        Self { variant, r#type: T::NAME.to_owned(), n, threads, device, ..Self::default() }
    }

    /// Adds the time of one reduction. `peak` is the memory's peak bandwidth in bytes per second.
    pub fn timed<T: Element>(self, time: Duration, peak: Option<f64>) -> Self {
        let gigabytes = (self.n * size_of::<T>()) as f64 / 1e9;
        let seconds = time.as_secs_f64();
        Self {
            us: Some(seconds * 1e6),
            gbps: Some(gigabytes / seconds),
            peak_gbps: peak.map(|peak| peak / 1e9),
            ..self
        }
    }

    /// Adds the counters of a reduction of all elements.
    pub fn counted(self, counters: &Counters) -> Self {
        let per = |count: u64, of: u64| Some(if of == 0 { 0.0 } else { count as f64 / of as f64 });
        let c = counters;
        Self {
            counted_n: Some(self.n),
            barriers: per(c.barriers, c.blocks),
            divergent_branches: per(c.divergent_branches, c.warps),
            lanes_active: per(c.lane_instructions, c.warp_instructions),
            bank_conflicts: per(
                c.shared_load_conflicts + c.shared_store_conflicts,
                c.shared_load_requests + c.shared_store_requests,
            ),
            sectors_per_load: per(c.global_load_sectors, c.global_load_requests),
            instructions: per(32 * c.warp_instructions, self.n as u64),
            ..self
        }
    }

    /// Adds the counters of another record.
    pub fn counted_as(self, other: &Self) -> Self {
        Self {
            us: self.us,
            gbps: self.gbps,
            peak_gbps: self.peak_gbps,
            n: self.n,
            device: self.device,
            ..other.clone()
        }
    }
}

pub fn to_csv(records: &[Record]) -> Result<Vec<u8>, Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    records.iter().try_for_each(|record| writer.serialize(record))?;
    writer.into_inner().map_err(|error| csv::Error::from(error.into_error()).into())
}

pub fn to_json(records: &[Record]) -> Result<Vec<u8>, Error> {
    let mut json = serde_json::to_vec_pretty(records)?;
    json.push(b'\n');
    Ok(json)
}

/// Parses the output of [`to_csv`].
pub fn from_csv(csv: &[u8]) -> Result<Vec<Record>, csv::Error> {
    csv::Reader::from_reader(csv).deserialize().collect()
}

/// Reads the records from a CSV file.
pub fn read(path: &Path) -> Result<Vec<Record>, Error> {
    let failed = |source| Error::Read { path: path.into(), source };
    let csv = std::fs::read(path).map_err(|error| failed(error.into()))?;
    from_csv(&csv).map_err(failed)
}
