//! What [`Any`](crate::Any) and [`All`](crate::All) have in common.

macro_rules! quantifier {
    ($(#[$doc:meta])* $op:ident $name:literal: $combine:tt $assign:tt, of nothing $nothing:literal;) => {
        #[cfg(not(target_arch = "nvptx64"))]
        use crate::cpu::{Source, for_each_block};
        use crate::element::{Element, Wide};
        use crate::op::{OnCpu, Op};
        use crate::table;
        use bytemuck::{Pod, Zeroable};

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op;

        impl<T: Element> Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = u32;
            type Output = bool;
            const EXACT: bool = true;
            const LARGE_BLOCK: u32 = 1024;
            const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

            #[inline(always)]
            fn identity(&self) -> u32 {
                $nothing.into()
            }

            #[inline(always)]
            fn lift(&self, element: T, _: u64) -> u32 {
                (element.widen() != T::Wide::ZERO).into()
            }

            #[inline(always)]
            fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> u32 {
                load.into_iter().fold($nothing.into(), |all, element| all $combine self.lift(element, 0))
            }

            /// To the first block that says it.
            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn fold_items<S: Source<Item = T>>(&self, items: S, _: u64) -> u32 {
                let mut all = $nothing;
                for_each_block::<1024, S>(items, |block, _| {
                    for i in 0..block.len() {
                        // SAFETY: `i` is in bounds.
                        all $assign unsafe { block.get(i) }.widen() != T::Wide::ZERO;
                    }
                    all == $nothing
                });
                all.into()
            }

            #[inline(always)]
            fn combine(&self, a: u32, b: u32) -> u32 {
                a $combine b
            }

            #[inline(always)]
            fn finish(&self, all: u32, _: u64) -> Option<bool> {
                Some(all != 0)
            }
        }
    };
}
