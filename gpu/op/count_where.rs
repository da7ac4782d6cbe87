use crate::element::Element;
use crate::op::comparison::{Comparison, Range, comparison};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

comparison! {
    /// How many elements compare so with a scalar.
    CountWhere
}

impl<T: Element> Op<T> for CountWhere<T> {
    const NAME: &'static str = "count_where";
    type Accumulator = u64;
    type Output = u64;
    const EXACT: bool = true;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    #[inline(always)]
    fn identity(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> u64 {
        self.0.has(element).into()
    }

    #[inline(always)]
    fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> u64 {
        load.into_iter().fold(0u32, |count, element| count + u32::from(self.0.has(element))).into()
    }

    #[inline(always)]
    fn combine(&self, a: u64, b: u64) -> u64 {
        a + b
    }

    #[inline(always)]
    fn finish(&self, all: u64, _: u64) -> Option<u64> {
        Some(all)
    }
}
