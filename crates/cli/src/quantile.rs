//! Quantiles, interpolated linearly between two numbers as NumPy does by default.

use std::cmp::Ordering;
use std::str::FromStr;

use gpu_reduce::Element;
use rayon::prelude::*;

/// What part of the numbers is below a quantile, from 0 to 1.
#[derive(Clone, Copy, PartialEq)]
pub struct Level(pub f64);

impl FromStr for Level {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Level, &'static str> {
        let level = text.parse().ok().filter(|level| (0.0..=1.0).contains(level));
        // `+ 0.0` removes the sign of zero.
        level.map(|level: f64| Level(level + 0.0)).ok_or("not a number from 0 to 1, such as 0.25")
    }
}

impl Eq for Level {}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Level) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Level) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The quantile of each slice; NaN if it has a NaN. The slices have these lengths, none of which is 0, and
/// lie one after the other in `values`, whose order changes.
pub fn of_each<T: Element>(mut values: &mut [T], lengths: &[usize], level: f64) -> Vec<f64> {
    let slices: Vec<&mut [T]> = lengths.iter().filter_map(|&length| values.split_off_mut(..length)).collect();
    slices.into_par_iter().map(|slice| of(slice, level)).collect()
}

fn of<T: Element>(values: &mut [T], level: f64) -> f64 {
    if values.iter().any(|value| value.partial_cmp(value).is_none()) {
        return f64::NAN;
    }
    let compare = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(Ordering::Equal);
    let place = level * (values.len() - 1) as f64;
    let (index, part) = (place as usize, place.fract());
    let (_, &mut below, rest) = values.select_nth_unstable_by(index, compare);
    let above = rest.iter().copied().min_by(compare).unwrap_or(below);
    let (below, above): (f64, f64) = (below.as_(), above.as_());
    match part {
        // Without a difference, which is NaN for infinities.
        0.0 => below,
        _ if below == above => below,
        0.5.. => above - (above - below) * (1.0 - part),
        _ => below + (above - below) * part,
    }
}
