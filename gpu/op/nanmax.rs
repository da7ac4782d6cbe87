use crate::element::{Element, Key};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// The largest element that is not NaN; NaN where all are. −0.0 is below +0.0. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NanMax;

impl<T: Element> Op<T> for NanMax {
    const NAME: &'static str = "nanmax";
    type Accumulator = T::Key;
    type Output = T;
    const EXACT: bool = true;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> T::Key {
        T::Key::LEAST
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Key {
        element.key(T::Key::LEAST)
    }

    #[inline(always)]
    fn combine(&self, a: T::Key, b: T::Key) -> T::Key {
        a.max(b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Key, count: u64) -> Option<T> {
        (count > 0).then(|| T::from_key(all))
    }
}
