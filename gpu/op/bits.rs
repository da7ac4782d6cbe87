//! The operators on the bits of integers.

macro_rules! bits {
    ($(#[$doc:meta])* $op:ident $name:literal: $trait:ident $bit:tt, of nothing $nothing:expr;) => {
        use crate::element::Element;
        use crate::op::{OnCpu, Op};
        use crate::table;
        use bytemuck::{Pod, Zeroable, bytes_of, cast, pod_read_unaligned};
        use core::ops;

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op;

        impl<T: Element + ops::$trait<Output = T>> Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = T;
            type Output = T;
            const EXACT: bool = true;
            const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

            #[inline(always)]
            fn identity(&self) -> T {
                pod_read_unaligned(&bytes_of(&[$nothing; 8])[..size_of::<T>()])
            }

            #[inline(always)]
            fn lift(&self, element: T, _: u64) -> T {
                element
            }

            /// Four elements of a byte in one instruction, two of two bytes.
            #[inline(always)]
            fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> T {
                if size_of::<[T; N]>() != 16 || size_of::<T>() >= 4 {
                    return load.into_iter().fold(Op::<T>::identity(self), |all, element| all $bit element);
                }
                let [a, b, c, d]: [u32; 4] = cast(load);
                let mut word = (a $bit b) $bit (c $bit d);
                word = word $bit (word >> 16);
                if size_of::<T>() == 1 {
                    word = word $bit (word >> 8);
                }
                pod_read_unaligned(&bytes_of(&word)[..size_of::<T>().min(4)])
            }

            #[inline(always)]
            fn combine(&self, a: T, b: T) -> T {
                a $bit b
            }

            #[inline(always)]
            fn finish(&self, all: T, _: u64) -> Option<T> {
                Some(all)
            }
        }
    };
}
