//! The measurements in the file.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::error::Error;

/// A measured time.
#[derive(serde::Deserialize)]
pub struct Time {
    pub op: String,
    /// The number of elements.
    pub n: u64,
    #[serde(default)]
    pub block: u32,
    /// The number of chunks of the whole array that these elements were.
    #[serde(default)]
    pub chunks: u32,
    /// The number of parts of 2^30 elements that the whole array has.
    #[serde(default)]
    pub parts: u32,
    /// The number of ranks in the communicator.
    #[serde(default)]
    pub ranks: u32,
    /// Microseconds.
    pub us: f64,
}

/// All measurements.
pub struct Measured {
    /// The number of GPUs with shards.
    pub gpus: u32,
    pub times: Vec<Time>,
}

impl Measured {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let mut measured = Self { gpus: 1, times: Vec::new() };
        // Other lines are messages of the programs.
        for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('{')) {
            let failed = |source| Error::Line { path: path.to_owned(), line: index + 1, source };
            let value: Value = serde_json::from_str(line).map_err(failed)?;
            match value["count"].as_u64() {
                Some(count) => measured.gpus = count as u32,
                None => measured.times.push(serde_json::from_value(value).map_err(failed)?),
            }
        }
        Ok(measured)
    }

    pub fn of<'a>(&'a self, op: &'a str) -> impl Iterator<Item = &'a Time> {
        self.times.iter().filter(move |time| time.op == op)
    }
}
