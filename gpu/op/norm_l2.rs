#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, Source};
use crate::op::Squares as _;
use crate::op::prelude::*;
#[cfg(not(target_arch = "nvptx64"))]
use crate::op::squares::Middling;

/// The Euclidean norm: the square root of the sum of the squares of the elements.
///
/// The result is an `f64` for integers and `f64`, else an `f32`. No intermediate result overflows or
/// underflows: squares sum in `f64`, those of `f64` scaled if necessary. For no elements it is 0. A NaN makes
/// it NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NormL2;

type Squares<T> = <<T as Element>::Wide as Wide>::Squares;

impl<T: Element> Op<T> for NormL2 {
    const NAME: &'static str = "norm_l2";
    type Accumulator = Squares<T>;
    type Output = T::Real;
    const EXACT: bool = false;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    accumulators_add_up! { Squares<T> }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> Squares<T> {
        Squares::<T>::of(element.as_f64())
    }

    /// Folds a chunk of middling values and zeros into one sum instead of three (10^5 `f64` took 28 µs and
    /// take 9, Zen 5), and other chunks once more.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_chunk<S: Source<Item = T>>(&self, chunk: S, first: u64, row: usize) -> Squares<T> {
        if const { size_of::<Squares<T>>() > 8 } {
            let middling = cpu::fold_chunk(&Middling, chunk, first, row);
            if let Some(squares) = Squares::<T>::of_middling(middling) {
                return squares;
            }
        }
        cpu::fold_chunk(self, chunk, first, row)
    }

    #[inline(always)]
    fn finish(&self, all: Squares<T>, _: u64) -> Option<T::Real> {
        Some(T::real(all.root()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                let chunk = NormL2.fold_chunk(&items[..], 0, 64);
                assert_eq!(chunk.root().to_bits(), whole.root().to_bits(), "{others} of {other}");
            }
        }
        for item in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(NormL2.fold_chunk(&[1.0, item][..], 0, 64).root().is_nan(), item.is_nan());
        }
    }
}
