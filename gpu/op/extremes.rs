//! What the minimum and the maximum have in common.

use crate::element::Element;
use bytemuck::Pod;
use core::ops::{Shl, Shr};

macro_rules! extreme {
    ($(#[$doc:meta])* $op:ident $name:literal: $pick:ident $pick_wide:ident, NaN is $nan:ident, nothing is $nothing:ident;) => {
        use crate::element::{Dtype, Element, Key, Wide};
        use crate::op::extremes::extreme_of_words;
        use crate::op::{OnCpu, Op};
        use crate::table;
        use bytemuck::{Pod, Zeroable, cast};

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $op;

        impl<T: Element> Op<T> for $op {
            const NAME: &'static str = $name;
            type Accumulator = T::Key;
            type Output = T;
            const EXACT: bool = true;
            const ON_CPU: Option<OnCpu<Self, T>> = table::on_cpu::<_, _, T>();

            #[inline(always)]
            fn identity(&self) -> T::Key {
                T::Key::$nothing
            }

            #[inline(always)]
            fn lift(&self, element: T, _: u64) -> T::Key {
                element.key(T::Key::$nan)
            }

            /// Floats compare in the wide type, for which there are instructions, and are brought to a key once.
            #[inline(always)]
            fn lift_load<const N: usize>(&self, load: [T; N], _: u64) -> T::Key {
                match T::DTYPE {
                    Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => {
                        let wide = load.map(T::widen);
                        let has_nan = wide.iter().fold(false, |has, value| has | value.is_nan());
                        let extreme = wide.into_iter().reduce(Wide::$pick_wide).unwrap_or(T::Wide::ZERO);
                        if has_nan { T::Key::$nan } else { T::narrow(extreme).key_of_number() }
                    }
                    Dtype::I8 | Dtype::I16 if size_of::<[T; N]>() == 16 => {
                        extreme_of_words::<i32, T>(cast(load), Ord::$pick)
                    }
                    Dtype::U8 | Dtype::U16 if size_of::<[T; N]>() == 16 => {
                        extreme_of_words::<u32, T>(cast(load), Ord::$pick)
                    }
                    _ => load.into_iter().fold(T::Key::$nothing, |all, element| all.$pick(element.key(T::Key::$nan))),
                }
            }

            #[inline(always)]
            fn combine(&self, a: T::Key, b: T::Key) -> T::Key {
                a.$pick(b)
            }

            #[inline(always)]
            fn finish(&self, all: T::Key, count: u64) -> Option<T> {
                (count > 0).then(|| T::from_key(all))
            }
        }
    };
}

/// The key of a load's extreme, of two or four integers a word. They are compared a word at a time: shifted to its upper
/// end, an integer orders as before, whatever follows below.
#[inline(always)]
pub(super) fn extreme_of_words<W, T>(words: [W; 4], pick: impl Fn(W, W) -> W) -> T::Key
where
    W: Pod + Shl<usize, Output = W> + Shr<usize, Output = W>,
    T: Element,
{
    let bits = 8 * size_of::<T>();
    let mut extremes = words;
    let mut shift = bits;
    while shift < 32 {
        extremes = core::array::from_fn(|word| pick(extremes[word], words[word] << shift));
        shift += bits;
    }
    let [a, b, c, d] = extremes;
    // The key of an integer is the integer itself, which has so many bytes.
    let extreme = pick(pick(a, b), pick(c, d)) >> ((32 - bits.min(32)) % 32);
    bytemuck::pod_read_unaligned(&bytemuck::bytes_of(&extreme)[..size_of::<T::Key>().min(4)])
}
