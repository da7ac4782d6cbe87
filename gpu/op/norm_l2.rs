use crate::agent::chunks::MiddlingFirst;
use crate::op::Squares as _;
use crate::op::by_value::{ByValue, Value, by_value, taken};
use crate::op::prelude::*;

/// The Euclidean norm: the square root of the sum of the squares of the elements.
///
/// The result is an `f64` for integers and `f64`, else an `f32`. No intermediate result overflows or
/// underflows: squares sum in `f64`, those of `f64` scaled if necessary. For no elements it is 0. A NaN makes
/// it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NormL2;

type Squares<T> = <<T as Element>::Wide as Wide>::Squares;

impl<T: Element> ByValue<T> for NormL2 {
    #[inline(always)]
    fn lift_twin(&self, item: T, _: u64, is_second: bool) -> Squares<T> {
        Squares::<T>::of(taken(Value, item, is_second))
    }
}

impl<T: Element> Op<T> for NormL2 {
    const NAME: &'static str = "norm_l2";
    type Accumulator = Squares<T>;
    type Output = T::Real;
    const EXACT: bool = false;

    fn agent() -> impl Agent<Self, T> {
        MiddlingFirst
    }

    accumulators_add_up! { Squares<T> }

    by_value! { T }

    #[inline(always)]
    fn finish(&self, all: Squares<T>, _: u64) -> Option<T::Real> {
        Some(T::real(all.root()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu;
    use std::vec::Vec;

    #[test]
    fn middling_chunks_have_the_root_of_all() {
        let middling = |i: usize| (i as f64 * 0.37).sin() * 2f64.powi(i as i32 % 900 - 450);
        for other in [
            0.0,
            -0.0,
            1.0,
            2f64.powi(-511),
            2f64.powi(-512),
            -5e-324,
            2f64.powi(486),
            2f64.powi(487),
            f64::MAX,
        ] {
            for others in [1, 2, 1000] {
                let mut items = (0..1000).map(middling).collect::<Vec<_>>();
                items.iter_mut().step_by(1000 / others).for_each(|item| *item = other);
                let whole = cpu::fold_chunk(&NormL2, &items[..], 0, 64);
                let chunk = MiddlingFirst.fold_chunk(&NormL2, &items[..], 0, 64);
                assert_eq!(chunk.root().to_bits(), whole.root().to_bits(), "{others} of {other}");
            }
        }
        for item in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(MiddlingFirst.fold_chunk(&NormL2, &[1.0, item][..], 0, 64).root().is_nan(), item.is_nan());
        }
    }
}
