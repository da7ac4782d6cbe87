use crate::agent::Agent;
use crate::agent::near::{Near, NearFirst};
use crate::element::Element;
use crate::op::exponential::{NEAR, exp, plus_ln};
use crate::op::{Op, two_sum};
use bytemuck::{Pod, Zeroable};

/// The logarithm of the sum of the elements' exponentials, ln Σ eˣ, without overflow on the way.
///
/// For integers and `f64` it is an `f64`, else an `f32`. It is NaN if an element is NaN, else ∞ if one is ∞.
/// Of no elements, and of elements that are all −∞, it is −∞.
///
/// Exponentials are of distances from the first element, computed and summed in `f64`, to 2^−24 for an `f32`.
/// A chunk is folded once more, more slowly, if an element is so far above the first that an `f64` would
/// overflow, or if the first is not a number below 2^30 in magnitude: then each element that is too far has
/// an origin of its own. Both ways give an element near the first the same exponential, so they give a chunk
/// without others the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct LogSumExp {
    pub(crate) near: Near,
}

by_name! { LogSumExp { near: Near { origin: 0.0, is_second: 0 } } }

/// A sum of exponentials of distances from an origin.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Exponentials {
    /// The sum; 0 of no items.
    sum: f64,
    /// The origin: 0 for the first element, else the complement of its bits.
    from: u64,
}

impl Exponentials {
    const NONE: Self = Self { sum: 0.0, from: 0 };

    /// A sum of exponentials of distances from the first element.
    #[inline(always)]
    pub(crate) fn near(sum: f64) -> Self {
        Self { sum, from: 0 }
    }

    /// Whether the origin is the first element.
    #[inline(always)]
    pub(crate) fn is_near(&self) -> bool {
        self.from == 0
    }

    /// Adds a sum from the same origin.
    #[inline(always)]
    pub(crate) fn add_near(&mut self, sum: f64) {
        self.sum += sum;
    }

    /// The origin, if the first element is `first`.
    #[inline(always)]
    fn from(self, first: f64) -> f64 {
        if self.from == 0 { first } else { f64::from_bits(!self.from) }
    }
}

impl LogSumExp {
    /// The operator for items of the second of two types that share kernels, if `is_second`.
    #[inline(always)]
    #[cfg_attr(not(any(test, target_arch = "nvptx64")), allow(dead_code))]
    pub(crate) fn of_twin(self, is_second: bool) -> Self {
        Self { near: Near { is_second: is_second.into(), ..self.near } }
    }

    /// Returns the accumulator of an element of type `T`.
    #[inline(always)]
    pub(crate) fn lift_value<T: Element>(&self, value: f64) -> Exponentials {
        let sum = exp::<T>(self.near.distance::<T>(value));
        if self.near.will_do(sum) {
            Exponentials::near(sum)
        } else if value == f64::NEG_INFINITY {
            Exponentials::NONE
        } else if value.is_nan() {
            Exponentials::near(value)
        } else {
            Exponentials { sum: 1.0, from: !value.to_bits() }
        }
    }
}

impl<T: Element> Op<T> for LogSumExp {
    const NAME: &'static str = "logsumexp";
    type Accumulator = Exponentials;
    type Output = T::Real;
    const EXACT: bool = false;

    fn agent() -> impl Agent<Self, T> {
        NearFirst
    }

    fn parameters(&self) -> &[u8] {
        bytemuck::bytes_of(&self.near.origin)
    }

    #[inline(always)]
    fn begin(&self, first: T) -> Self {
        Self { near: self.near.from(first) }
    }

    #[inline(always)]
    fn end(&self, all: Exponentials, _: u64) -> Exponentials {
        Exponentials { sum: all.sum, from: !all.from(self.near.origin).to_bits() }
    }

    #[inline(always)]
    fn identity(&self) -> Exponentials {
        Exponentials::NONE
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Exponentials {
        self.lift_value::<T>(self.near.value(element))
    }

    #[inline(always)]
    fn combine(&self, a: Exponentials, b: Exponentials) -> Exponentials {
        if a.from == b.from {
            return Exponentials { sum: a.sum + b.sum, from: a.from };
        }
        combine_apart::<T>(a, b, self.near.origin)
    }

    #[inline(always)]
    fn finish(&self, all: Exponentials, _: u64) -> Option<T::Real> {
        Some(T::real(if all.sum == 0.0 {
            f64::NEG_INFINITY
        } else {
            plus_ln(all.from(self.near.origin), all.sum)
        }))
    }
}

/// Combines two sums of exponentials of distances from origins that differ; `origin` is the first element's. A function
/// that kernels call: they combine in many places, and most sums have the same origin.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(always))]
fn combine_apart<T: Element>(a: Exponentials, b: Exponentials, origin: f64) -> Exponentials {
    if a.sum == 0.0 {
        return b;
    }
    if b.sum == 0.0 {
        return a;
    }
    // Each value is chosen for itself: to choose between the two structs would take them to memory.
    let [apart, error] = two_sum(a.from(origin), -b.from(origin));
    let a_is_high = apart > 0.0;
    let choose = |if_high, if_low| if a_is_high { if_high } else { if_low };
    let distance = -apart.abs();
    // The lower sum may be 2^64 exponentials of NEAR, and the higher one an exponential of −NEAR. The
    // factor may underflow, so its root is multiplied twice.
    let root = if distance < -2.2 * NEAR {
        0.0
    } else {
        exp::<T>([0.5 * distance, 0.5 * choose(-error, error)])
    };
    Exponentials {
        sum: choose(a.sum, b.sum) + choose(b.sum, a.sum) * root * root,
        from: if a_is_high { a.from } else { b.from },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu;
    use bytemuck::bytes_of;
    use std::vec::Vec;

    /// Compares both folds of items at these distances from the first. Returns whether all chunks were near.
    fn check<T: Element>(first: f64, distances: &[f64], from: impl Fn(f64) -> T) -> bool {
        let mixed = |i: usize| distances[i.wrapping_mul(0x9e37_79b9) / 7 % distances.len()];
        let items = (0..900).map(|i| from(first + if i == 0 { 0.0 } else { mixed(i) })).collect::<Vec<_>>();
        let op = LogSumExp::default().begin(items[0]);
        let mut is_near = true;
        for len in [1, 2, 3, 16, 17, 100, 129, 900] {
            let (chunk, items) = (&items[..len], &items[items.len() - len..]);
            for items in [chunk, items] {
                is_near &= op.near.will_do(cpu::fold_chunk(&op.near, items, 0, 128));
                let (any, general) = (NearFirst.fold_chunk(&op, items, 0, 128), cpu::fold_chunk(&op, items, 0, 128));
                assert_eq!(bytes_of(&any), bytes_of(&general), "{} {first} {distances:?} {len}", T::NAME);
            }
        }
        is_near
    }

    #[test]
    fn general_and_near_folds_agree() {
        let infinity = f64::INFINITY;
        let below: &[f64] = &[-650.0, -600.001, -600.0, -599.0, -1e6, -4e9, -infinity, -3.0, -0.0, 3.0];
        let above: &[f64] = &[-700.0, 0.0, 599.999, 600.0, 600.001, 650.0, 5e8];
        for first in [0.0, -0.0, 1e-9, -7.25, 900.0, -1e6, 1_073_741_000.0] {
            assert!(check(first, below, |value| value as f32) && check(first, below, |value| value));
            assert!(!check(first, above, |value| value as f32) && !check(first, above, |value| value));
            check(first, &[-20.0, f64::INFINITY, f64::NAN], |value| value);
            check(first, &[-500.0, 0.0, 90.0], |value| value as i64);
        }
        for first in [f64::NEG_INFINITY, f64::INFINITY, f64::NAN, 3e9] {
            assert!(!check(first, above, |value| value as f32) && !check(first, below, |value| value));
        }
    }
}
