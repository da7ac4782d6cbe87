//! What the minimum and the maximum have in common.

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::Source;
use crate::element::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::element::Wide;
use bytemuck::Pod;
use core::ops::{Shl, Shr};

macro_rules! extreme {
    ($(#[$doc:meta])* $op:ident $name:literal: $pick:ident $pick_wide:ident $before:ident, NaN is $nan:ident,
     nothing is $nothing:ident;) => {
        #[cfg(not(target_arch = "nvptx64"))]
        use crate::cpu::{Source, fold_in_turn};
        use crate::element::{Dtype, Element, Key, Wide};
        #[cfg(not(target_arch = "nvptx64"))]
        use crate::op::extremes::{LANES, extreme_of_floats};
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
            const LARGE_BLOCK: u32 = 1024;
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

            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            fn fold_items<S: Source<Item = T>>(&self, items: S, first: u64) -> T::Key {
                if const { matches!(T::DTYPE, Dtype::F32 | Dtype::F64) } && items.len() >= LANES {
                    extreme_of_floats(items, T::Key::$nan, Ord::$pick, PartialOrd::$before)
                } else {
                    fold_in_turn::<true, _, _>(self, items, first)
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

/// Lanes that floats are folded into: eight registers of `f64` with AVX-512.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const LANES: usize = 64;

/// The key of the extreme of [`LANES`] floats or more, on a CPU. They compare as they are, by one instruction, and only lanes are
/// brought to keys: the least of 10^4 `f32` took 0.36 µs by keys and takes 0.21 (Zen 5). So NaNs are lost, and are looked for
/// besides; and of two zeros either may be left, which is why a flag says whether any item is as extreme as the one that counts.
/// The last lanes are filled with items that come before, too: an extreme may count twice.
#[cfg(not(target_arch = "nvptx64"))]
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the vectoriser's, see there")]
pub(super) fn extreme_of_floats<T: Element, S: Source<Item = T>>(
    items: S,
    nan: T::Key,
    pick: impl Fn(T::Key, T::Key) -> T::Key,
    before: impl Fn(&T::Wide, &T::Wide) -> bool,
) -> T::Key {
    let key = |value| T::narrow(value).key_of_number();
    let zero = pick(key(T::Wide::NOTHING), key(T::Wide::ZERO));
    let last = items.len() - LANES;
    // SAFETY: there are items.
    let mut lanes = [unsafe { items.get(0) }.widen(); LANES];
    let mut reaches_zero = false;
    let mut start = 0;
    loop {
        // Flags of these items alone: one that went on from before would make each round wait for the last.
        let (mut has_nan, mut reaches) = (false, false);
        // A loop for flags and one for lanes, by indices, and none that reads items besides: else lanes come to lie in memory (`argmin`
        // took 13 µs of 10^5 `f32` and takes 2.6, Zen 5), or more registers are asked for than there are.
        let mut values = lanes;
        for i in 0..LANES {
            // SAFETY: `start` is at most `last`.
            values[i] = unsafe { items.get(start + i) }.widen();
        }
        for i in 0..LANES {
            has_nan |= values[i].is_nan();
            reaches |= pick(key(values[i]), zero) == key(values[i]);
        }
        for i in 0..LANES {
            lanes[i] = if before(&values[i], &lanes[i]) { values[i] } else { lanes[i] };
        }
        if has_nan {
            return nan;
        }
        reaches_zero |= reaches;
        if start == last {
            break;
        }
        start = (start + LANES).min(last);
    }
    let mut all = key(lanes[0]);
    for lane in lanes {
        all = pick(all, key(lane));
    }
    if reaches_zero { pick(all, zero) } else { all }
}
