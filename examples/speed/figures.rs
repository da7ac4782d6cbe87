//! The measurements in the files.

use std::fmt;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use gpu_reduce::{bf16, f16, for_each_element, for_each_pair_operator};
use serde::de::{Deserialize, Deserializer, Error as _, Unexpected};
use serde_json::Value;

use super::error::{Error, LineError};
use crate::common::table::length;

/// This library's name in the files.
pub const OURS: &str = "gpu_reduce";

macro_rules! dtypes {
    ({} $($type:ident: $($row:ident)*;)*) => {
        /// The type of the elements.
        #[derive(Clone, Copy, Debug, serde::Deserialize, PartialEq)]
        pub enum Dtype {
            $($type),*
        }

        impl Dtype {
            fn size(self) -> usize {
                match self { $(Self::$type => size_of::<$type>()),* }
            }
        }
    };
}

for_each_element! { dtypes! {} }

/// A measured reduction.
#[derive(Clone, Debug, serde::Deserialize, PartialEq)]
pub struct Case {
    op: String,
    dtype: Dtype,
    pub n: NonZeroUsize,
    /// Elements per segment; 0 if there are no segments, or segments of many lengths.
    #[serde(default)]
    pub segment: usize,
}

macro_rules! pairs {
    ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
        /// The operators of two arrays.
        const OF_PAIRS: &[&str] = &[$(stringify!($name)),*];
    };
}

for_each_pair_operator! { pairs! {} }

impl Case {
    /// The size of all input arrays.
    pub fn bytes(&self) -> f64 {
        let arrays = if OF_PAIRS.contains(&self.op.as_str()) { 2.0 } else { 1.0 };
        arrays * self.n.get() as f64 * self.dtype.size() as f64
    }

    pub fn is_of_f32(&self, op: &str) -> bool {
        self.op == op && self.dtype == Dtype::f32
    }

    /// Whether there is a result for each segment, row, column or key.
    pub fn is_segmented(&self) -> bool {
        self.segment > 0 || self.op == "segpow"
    }
}

/// Formats as `sum f32 2^20`, or as `segsum f32 2^20 2^10` with the length of segments, as in the benchmarks'
/// case files.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {:?} {}", self.op, self.dtype, length(self.n.get()))?;
        if self.segment > 0 { write!(f, " {}", length(self.segment)) } else { Ok(()) }
    }
}

/// The time of a reduction by one implementation.
#[derive(serde::Deserialize)]
pub struct Time {
    r#impl: String,
    #[serde(flatten)]
    pub case: Case,
    /// Microseconds.
    #[serde(deserialize_with = "positive")]
    pub us: f64,
}

impl Time {
    pub fn gbps(&self) -> f64 {
        self.case.bytes() / self.us / 1e3
    }
}

/// The memory's peak bandwidth.
#[derive(serde::Deserialize)]
pub struct Peak {
    pub device: String,
    #[serde(deserialize_with = "positive")]
    pub gbps: f64,
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if number > 0.0 {
        Ok(number)
    } else {
        Err(D::Error::invalid_value(Unexpected::Float(number), &"a number above 0"))
    }
}

/// The measurements of all files.
#[derive(Default)]
pub struct Figures {
    pub peak: Option<Peak>,
    times: Vec<Time>,
}

impl Figures {
    pub fn read(paths: &[PathBuf]) -> Result<Self, Error> {
        let mut figures = Self::default();
        for path in paths {
            let text =
                fs::read_to_string(path).map_err(|source| Error::Read { path: path.clone(), source })?;
            // Other lines are messages of the programs.
            for (index, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('{')) {
                let failed = |source| Error::Line { path: path.clone(), line: index + 1, source };
                figures.add(line).map_err(failed)?;
            }
        }
        if figures.of(OURS).next().is_some() { Ok(figures) } else { Err(Error::NoneOfOurs) }
    }

    fn add(&mut self, line: &str) -> Result<(), LineError> {
        let line: Value = serde_json::from_str(line)?;
        if line["impl"] == "peak" {
            self.peak = Some(Peak::deserialize(line)?);
            return Ok(());
        }
        let time = Time::deserialize(line)?;
        if self.find(&time.r#impl, &time.case).is_some() {
            return Err(LineError::Twice { of: time.r#impl, case: time.case });
        }
        self.times.push(time);
        Ok(())
    }

    /// The peers' names, in the order of the files.
    pub fn peers(&self) -> Vec<&str> {
        let mut peers = Vec::new();
        for Time { r#impl, .. } in &self.times {
            if r#impl != OURS && !peers.contains(&r#impl.as_str()) {
                peers.push(r#impl);
            }
        }
        peers
    }

    /// The times of the implementation of this name.
    pub fn of(&self, name: &str) -> impl Iterator<Item = &Time> {
        self.times.iter().filter(move |time| time.r#impl == name)
    }

    pub fn find(&self, name: &str, case: &Case) -> Option<&Time> {
        self.of(name).find(|time| time.case == *case)
    }

    /// The speedup over a peer, for each case that both have.
    pub fn ratios(&self, peer: &str) -> impl Iterator<Item = (&Case, f64)> {
        self.of(OURS).filter_map(move |ours| Some((&ours.case, self.find(peer, &ours.case)?.us / ours.us)))
    }
}
