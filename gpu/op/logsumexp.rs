#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, Source};
use crate::input::{Input, OneByOne};
use crate::op::exponential::{NEAR, exp, plus_ln};
use crate::op::prelude::*;
use crate::op::{Room, two_sum};
use crate::stage::chunk;
use cuda_std::{shared_array, thread};

/// The natural logarithm of the sum of the exponentials of the elements, without overflow.
///
/// The result is an `f64` for integers and `f64`, else an `f32`. A NaN makes it NaN; else ∞ makes it ∞. It is
/// −∞ for no elements, or if all are −∞.
///
/// The exponentials are those of the distances from the first element, computed and summed in `f64`; for
/// `f32` results, to 2^-24. A chunk is folded a second time, more slowly, if an element is so much greater
/// than the first that the sum would overflow, or if the first element's magnitude is not below 2^30: then
/// each exponential has an origin of its own. Both ways compute the same exponential of an element for which
/// the first element is a good origin, so that a chunk's bits do not depend on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct LogSumExp {
    near: Near,
}

/// A sum of exponentials of distances from an origin.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Exponentials {
    /// The sum; 0 for no elements.
    sum: f64,
    /// The origin: 0 if it is the first element, else the complement of its bits.
    from: u64,
}

impl Exponentials {
    const NONE: Self = Self { sum: 0.0, from: 0 };

    /// Returns the origin.
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
    const ROOM: Room<Self, T> = Room::same_as::<Near, T>();

    fn parameters(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    #[inline(always)]
    fn begin(&self, first: T) -> Self {
        const MOST: f64 = (1 << 30) as f64;
        let first = first.to_f64();
        Self { near: Near { origin: if first.abs() < MOST { first } else { f64::NAN } } }
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
        let sum = exp::<T>(self.near.distance(element));
        let value = element.to_f64();
        if self.near.will_do(sum) {
            Exponentials { sum, from: 0 }
        } else if value == f64::NEG_INFINITY {
            Exponentials::NONE
        } else if value.is_nan() {
            Exponentials { sum: value, from: 0 }
        } else {
            Exponentials { sum: 1.0, from: !value.to_bits() }
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = T>>(&self, chunk: S, first: u64, row: usize) -> Exponentials {
        let near = cpu::fold_chunk(&self.near, chunk, first, row);
        if self.near.will_do(near) {
            Exponentials { sum: near, from: 0 }
        } else {
            cpu::fold_chunk(self, chunk, first, row)
        }
    }

    #[inline(always)]
    unsafe fn fold_on_gpu<P: Input<Item = T>, const BLOCK: u32, const WIDTH: usize>(
        &self,
        chunk: P,
        len: u32,
        start: u64,
    ) -> Exponentials {
        let is_near = shared_array![u32; 1];
        // SAFETY: as the caller vouches. All threads reach the barrier and read the same flag.
        unsafe {
            let near = chunk::fold_chunk::<_, P, BLOCK, WIDTH>(&self.near, chunk, len, start);
            if thread::thread_idx_x() == 0 {
                is_near.write(0, self.near.will_do(near).into());
            }
            thread::sync_threads();
            if is_near.read(0) == 1 {
                return Exponentials { sum: near, from: 0 };
            }
            // One by one, because there is no shared memory for another exchange.
            chunk::fold_chunk::<_, OneByOne<P>, BLOCK, WIDTH>(self, OneByOne(chunk), len, start)
        }
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
        // Chooses each field: choosing between the two structs would move them to memory.
        let [apart, error] = two_sum(a.from(self.near.origin), -b.from(self.near.origin));
        let a_is_high = apart > 0.0;
        let choose = |if_high, if_low| if a_is_high { if_high } else { if_low };
        let distance = -apart.abs();
        // The low sum may be 2^64 exponentials of NEAR, and the high one an exponential of -NEAR. Multiplies
        // by the square root of the exponential twice, because the exponential may underflow.
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

    #[inline(always)]
    fn finish(&self, all: Exponentials, _: u64) -> Option<T::Real> {
        Some(T::real(if all.sum == 0.0 {
            f64::NEG_INFINITY
        } else {
            plus_ln(all.from(self.near.origin), all.sum)
        }))
    }
}

/// The sum of exponentials of the distances from one of the items.
///
/// The exponential of a much smaller item does not count and becomes the least one. That of a much greater
/// item or of a NaN becomes so great that the sum [will not do](Self::will_do).
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Near {
    origin: f64,
}

impl Near {
    /// Whether no element of the sum was too great.
    #[inline(always)]
    fn will_do(self, sum: f64) -> bool {
        const EXP_NEAR: f64 = 3.7730203009299397e260;
        sum < EXP_NEAR && !self.origin.is_nan()
    }

    /// Returns an element's distance from the origin, and its rounding error.
    #[inline(always)]
    fn distance<T: Element>(self, element: T) -> [f64; 2] {
        let value = element.to_f64();
        let (least, most) = (self.origin - NEAR, self.origin + 1.1 * NEAR);
        // In this order, so that a NaN becomes `most`.
        match T::DTYPE {
            // In `f32`, for which there are minimum and maximum instructions.
            Dtype::F16 | Dtype::Bf16 | Dtype::F32 => {
                let value = at_least(at_most(value as f32, most as f32), least as f32);
                [f64::from(value) - self.origin, 0.0]
            }
            _ => {
                let value = if value < most { value } else { most };
                two_sum(if value > least { value } else { least }, -self.origin)
            }
        }
    }
}

/// Returns the lesser of `value` and `most`; `most` if `value` is NaN.
#[inline(always)]
fn at_most(value: f32, most: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::fmin_f32(value, most)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        if value < most { value } else { most }
    }
}

/// Returns the greater of `value` and `least`.
#[inline(always)]
fn at_least(value: f32, least: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        cuda_std::intrinsics::fmax_f32(value, least)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        if value > least { value } else { least }
    }
}

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
        exp::<T>(self.distance(element))
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::bytes_of;
    use std::vec::Vec;

    /// Folds chunks of items at these distances from the first by both ways. Returns whether the faster one
    /// did for all.
    fn check<T: Element>(first: f64, distances: &[f64], from: impl Fn(f64) -> T) -> bool {
        let mixed = |i: usize| distances[i.wrapping_mul(0x9e37_79b9) / 7 % distances.len()];
        let items = (0..900).map(|i| from(first + if i == 0 { 0.0 } else { mixed(i) })).collect::<Vec<_>>();
        let op = LogSumExp::default().begin(items[0]);
        let mut is_near = true;
        for len in [1, 2, 3, 16, 17, 100, 129, 900] {
            let (chunk, items) = (&items[..len], &items[items.len() - len..]);
            for items in [chunk, items] {
                is_near &= op.near.will_do(cpu::fold_chunk(&op.near, items, 0, 128));
                let (any, general) = (op.fold_chunk(items, 0, 128), cpu::fold_chunk(&op, items, 0, 128));
                assert_eq!(bytes_of(&any), bytes_of(&general), "{} {first} {distances:?} {len}", T::NAME);
            }
        }
        is_near
    }

    #[test]
    fn general_and_near_folds_agree() {
        let below: &[f64] =
            &[-650.0, -600.001, -600.0, -599.0, -1e6, -4e9, f64::NEG_INFINITY, -3.0, -0.0, 3.0];
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
