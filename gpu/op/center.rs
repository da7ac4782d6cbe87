//! The means by index, from which variances by index take distances.
//!
//! `docs/groups.md` has the bound of the error.

use crate::element::{Dtype, Element, Summand, Total};
use crate::op::exact::{Exact, center_of};
use crate::op::tally::{OfTally, Tallied};
use crate::op::{Op, sqrt};
use bytemuck::{Pod, Zeroable};

/// The mean of some items, as the sum of two `f64`, and the number of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Center {
    /// The `f64` nearest to the mean.
    mean: f64,
    /// The rest of the mean; NaN if the mean is not finite.
    rest: f64,
    count: u64,
}

impl Center {
    /// The square of an item's distance from the mean.
    #[inline(always)]
    pub fn square<T: Element>(&self, item: T) -> f64 {
        let [high, low] = in_two(item);
        let distance = ((high - self.mean) + low) - self.rest;
        distance * distance
    }

    /// The variance, or if `is_root` the standard deviation, of the items, whose distances from the mean have
    /// `squares` as the sum of their squares.
    #[inline(always)]
    pub fn spread(&self, squares: f64, ddof: u64, is_root: bool) -> f64 {
        if self.count <= ddof {
            return f64::NAN;
        }
        let variance = squares / (self.count - ddof) as f64;
        if is_root { sqrt(variance) } else { variance }
    }
}

/// The item as the sum of two `f64`, the second of which is 0 if the first can be the item.
#[inline(always)]
fn in_two<T: Element>(item: T) -> [f64; 2] {
    const LOW: u32 = 11;
    match T::DTYPE {
        Dtype::I64 | Dtype::U64 => {
            let value: i128 = item.widen().addend().map_or(0, Into::into);
            if matches!(value >> 53, -1 | 0) {
                return [value as i64 as f64, 0.0];
            }
            [(value >> LOW) as i64 as f64 * (1 << LOW) as f64, (value as u64 & ((1 << LOW) - 1)) as f64]
        }
        _ => [item.as_f64(), 0.0],
    }
}

/// Variances and standard deviations: what is made of the squared distances from the mean.
pub trait OfSquares<T: Element>: Op<T, Output = T::Real> {
    /// Whether it is the square root of the variance.
    const IS_ROOT: bool;

    /// What is subtracted from the number of items.
    fn ddof(&self) -> u64;
}

/// Finds the [`Center`].
#[derive(Clone, Copy, Debug)]
pub struct Centers;

impl<T: Element> Op<T> for Centers {
    const NAME: &'static str = "center";
    type Accumulator = T::Total;
    type Output = Center;
    const EXACT: bool = T::Total::EXACT;

    accumulators_add_up! { T::Total }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Total {
        element.total()
    }

    #[inline(always)]
    fn finish(&self, all: T::Total, count: u64) -> Option<Center> {
        Some(Center { mean: all.to_f64() / count as f64, rest: 0.0, count })
    }
}

impl<T: Element> OfTally<T> for Centers {
    const COUNTS: bool = true;

    #[inline(always)]
    fn of_tally(sum: &impl Exact, low: i32, count: u64) -> Center {
        let [mean, rest] = center_of(sum, low, count);
        Center { mean, rest, count }
    }
}
