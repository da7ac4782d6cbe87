use crate::element::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, Source};
use crate::op::exponential::{NEAR, difference, exp, plus_ln};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};
#[cfg(not(target_arch = "nvptx64"))]
use core::ops::Range;

/// The natural logarithm of the sum of the elements' exponentials, with no overflow on the way: an `f64` of integers and `f64`, else an `f32`.
/// −∞ of no elements, and where all are −∞; NaN if there is one, else ∞ if there is one.
///
/// Exponentials are those of distances from the first element, computed and summed in `f64`, to 2^-24 for an `f32`. What lies further from
/// it than the exponentials of an `f64` reach has its own value to count from; results are right there, too, and take longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct LogSumExp {
    /// What distances are from: the first element, where it is finite.
    origin: f64,
}

/// A sum of exponentials of distances.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Exponentials {
    /// The sum; of none, 0.
    sum: f64,
    /// What distances are from: 0 says the origin, else it is the complement of the value's bits.
    from: u64,
}

impl Exponentials {
    /// What distances are from.
    #[inline(always)]
    fn from(self, origin: f64) -> f64 {
        if self.from == 0 { origin } else { f64::from_bits(!self.from) }
    }
}

impl<T: Element> Op<T> for LogSumExp {
    const NAME: &'static str = "logsumexp";
    type Accumulator = Exponentials;
    type Output = T::Real;
    const EXACT: bool = false;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();
    /// The code that folds far items, which is seldom run, is long: it is there once.
    const ROOM: [usize; 2] = [1, 1];

    #[inline(always)]
    fn begin(&self, first: T) -> Self {
        let first = first.to_f64();
        Self { origin: if first.is_finite() { first } else { 0.0 } }
    }

    #[inline(always)]
    fn end(&self, all: Exponentials, _: u64) -> Exponentials {
        Exponentials { sum: all.sum, from: !all.from(self.origin).to_bits() }
    }

    #[inline(always)]
    fn identity(&self) -> Exponentials {
        Exponentials { sum: 0.0, from: 0 }
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Exponentials {
        let value = element.to_f64();
        let distance = difference(value, self.origin);
        if distance[0].abs() <= NEAR {
            Exponentials { sum: exp::<T>(distance), from: 0 }
        } else if value == f64::NEG_INFINITY {
            Exponentials { sum: 0.0, from: 0 }
        } else if value.is_nan() {
            Exponentials { sum: value, from: 0 }
        } else {
            Exponentials { sum: 1.0, from: !value.to_bits() }
        }
    }

    /// As if all were near: where that is so, the bits are the same.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = T>>(&self, items: S, range: Range<usize>, row: usize) -> Exponentials {
        let sum = cpu::fold_range(&Near(self.origin), items, range.clone(), row);
        if sum.is_nan() { cpu::fold_range(self, items, range, row) } else { Exponentials { sum, from: 0 } }
    }

    #[inline(always)]
    fn combine(&self, a: Exponentials, b: Exponentials) -> Exponentials {
        if a.from == b.from {
            return Exponentials { sum: a.sum + b.sum, from: a.from };
        }
        if a.sum == 0.0 {
            return b;
        }
        if b.sum == 0.0 {
            return a;
        }
        // Value by value: choosing between the two takes them to memory.
        let [apart, error] = difference(a.from(self.origin), b.from(self.origin));
        let a_is_high = apart > 0.0;
        let choose = |if_high, if_low| if a_is_high { if_high } else { if_low };
        let distance = -apart.abs();
        // The low sum may be 2^64 exponentials of NEAR, and the high one an exponential of -NEAR. Twice the root, which does not vanish.
        let root = if distance < -2.2 * NEAR { 0.0 } else { exp::<T>([0.5 * distance, 0.5 * choose(-error, error)]) };
        Exponentials {
            sum: choose(a.sum, b.sum) + choose(b.sum, a.sum) * root * root,
            from: if a_is_high { a.from } else { b.from },
        }
    }

    #[inline(always)]
    fn finish(&self, all: Exponentials, _: u64) -> Option<T::Real> {
        Some(T::real(if all.sum == 0.0 { f64::NEG_INFINITY } else { plus_ln(all.from(self.origin), all.sum) }))
    }
}

/// The sum of exponentials of near distances from an origin, NaN where not all are near.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
struct Near(f64);

#[cfg(not(target_arch = "nvptx64"))]
impl<T: Element> Op<T> for Near {
    const NAME: &'static str = "logsumexp";
    type Accumulator = f64;
    type Output = f64;
    const EXACT: bool = false;

    #[inline(always)]
    fn identity(&self) -> f64 {
        0.0
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> f64 {
        let value = element.to_f64();
        let distance = difference(value, self.0);
        let near = if distance[0].abs() <= NEAR { exp::<T>(distance) } else { f64::NAN };
        if value == f64::NEG_INFINITY { 0.0 } else { near }
    }

    #[inline(always)]
    fn combine(&self, a: f64, b: f64) -> f64 {
        a + b
    }

    #[inline(always)]
    fn finish(&self, all: f64, _: u64) -> Option<f64> {
        Some(all)
    }
}
