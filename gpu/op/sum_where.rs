use crate::element::{Element, Wide};
use crate::op::comparison::{Comparison, Range, comparison};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

comparison! {
    /// The sum of the elements that compare so with a scalar, in the types of [`Sum`](crate::Sum). Of none it is 0.
    SumWhere
}

impl<T: Element> Op<T> for SumWhere<T> {
    const NAME: &'static str = "sum_where";
    type Accumulator = T::Wide;
    type Output = T::Wide;
    const EXACT: bool = T::Wide::EXACT;
    const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

    fn parameters(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    #[inline(always)]
    fn identity(&self) -> T::Wide {
        T::Wide::NOTHING
    }

    #[inline(always)]
    fn lift(&self, element: T, _: u64) -> T::Wide {
        if self.0.has(element) { element.widen() } else { T::Wide::NOTHING }
    }

    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a.plus(b)
    }

    #[inline(always)]
    fn finish(&self, all: T::Wide, _: u64) -> Option<T::Wide> {
        Some(all.canonical().plus(T::Wide::ZERO))
    }
}
