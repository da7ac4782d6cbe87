use super::place::Place;
#[cfg(not(target_arch = "nvptx64"))]
use super::place::first_extremes;
#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::Source;
use crate::element::{Element, Key};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The index of the largest element, of the first where there are several; that of the first NaN if there is one, as in NumPy and
/// PyTorch. −0.0 is below +0.0. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ArgMax;

impl<T: Element> Op<T> for ArgMax {
    const NAME: &'static str = "argmax";
    type Accumulator = Place;
    type Output = u64;
    const EXACT: bool = true;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu();

    #[inline(always)]
    fn identity(&self) -> Place {
        Place::NONE
    }

    #[inline(always)]
    fn lift(&self, element: T, index: u64) -> Place {
        let key = element.key(T::Key::GREATEST).wide();
        Place { key: !key, index }
    }

    /// Within a load by keys as they are, which are narrower.
    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], index: u64) -> Place {
        let mut least = T::Key::LEAST;
        let mut at = 0;
        for (place, element) in (0..).zip(load) {
            let key = element.key(T::Key::GREATEST);
            if key > least || place == 0 {
                (least, at) = (key, place);
            }
        }
        Place { key: !least.wide(), index: index + at }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn fold_items<S: Source<Item = T>>(&self, items: S, first: u64) -> Place {
        first_extremes::<T, S, false, true>(items, first)[1]
    }

    #[inline(always)]
    fn combine(&self, a: Place, b: Place) -> Place {
        a.first(b)
    }

    #[inline(always)]
    fn finish(&self, all: Place, count: u64) -> Option<u64> {
        (count > 0).then_some(all.index)
    }
}
