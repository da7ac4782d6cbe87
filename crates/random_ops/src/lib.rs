//! Random operators: families over accumulators of many sizes, whose behaviour is in a value that a test
//! draws.
//!
//! The crate is laid out like a user's: operators, a table, a build script.
#![no_std]

mod functions;
mod item;
mod word;

pub use functions::{Float as FloatOfFunctions, Functions, SPECIAL, special_item};
pub use item::{Colour, Place, Point, Triple, Value};
pub use word::{Float, Word};

use bytemuck::{Pod, Zeroable};
use core::array::from_fn;
use core::fmt::Debug;
use core::marker::PhantomData;
use gpu_reduce_kernels::{Kernels, Op};

/// The parameters of [`Exact`] and [`Ordered`]; any bits are valid.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Parameters {
    /// Hashed with each item.
    pub seed: u64,
    /// How words combine, in two bits per word.
    pub kinds: u32,
    /// The number of bits by which words rotate.
    pub turn: u16,
    /// First, the low bits of accumulators that have no value; second, the number of bits by which the words
    /// of results rotate.
    pub none: [u8; 2],
}

/// The hash of an item at an index.
#[inline(always)]
fn hash(seed: u64, item: impl Value, index: u64) -> u64 {
    let mixed = (item.bits() ^ seed).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// One word derived from a hash.
#[inline(always)]
fn part(hash: u64, word: usize) -> u64 {
    let mixed = hash.wrapping_mul(2 * word as u64 + 3);
    mixed ^ mixed >> 32
}

impl Parameters {
    /// The result: the accumulator, and a mix of it with the count.
    #[inline(always)]
    fn finish<W: Word, const N: usize>(&self, all: [W; N], count: u64) -> Option<[[W; N]; 2]> {
        let none = count == 0 || (all[0].low() ^ self.none[0]).is_multiple_of(16);
        (!none).then(|| [all, all.map(|word| word.turned(self.none[1].into(), W::of(count)))])
    }
}

/// N words per accumulator, with the same result in every order: each is the sum, exclusive or, minimum or
/// maximum, as the parameters say.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Exact<W, const N: usize>(pub Parameters, pub PhantomData<W>);

impl<W: Word, const N: usize, I: Value> Op<I> for Exact<W, N> {
    const NAME: &'static str = "exact";
    type Accumulator = [W; N];
    type Output = [[W; N]; 2];
    const EXACT: bool = true;
    const KERNELS: Kernels = crate::KERNELS;

    #[inline(always)]
    fn identity(&self) -> [W; N] {
        from_fn(|word| W::identity(self.0.kinds >> (2 * word)))
    }

    #[inline(always)]
    fn lift(&self, item: I, index: u64) -> [W; N] {
        let hash = hash(self.0.seed, item, index);
        from_fn(|word| W::of(part(hash, word)))
    }

    #[inline(always)]
    fn combine(&self, a: [W; N], b: [W; N]) -> [W; N] {
        from_fn(|word| W::combined(self.0.kinds >> (2 * word), a[word], b[word]))
    }

    #[inline(always)]
    fn finish(&self, all: [W; N], count: u64) -> Option<[[W; N]; 2]> {
        self.0.finish(all, count)
    }
}

/// N words per accumulator, whose result depends on the order: rotated sums. The first word of an accumulator
/// with items is odd. The seed and the rotation depend on the first item.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Ordered<W, const N: usize>(pub Parameters, pub PhantomData<W>);

impl<W: Word, const N: usize> Ordered<W, N> {
    #[inline(always)]
    fn of_items(mut words: [W; N]) -> [W; N] {
        words[0] = words[0].odd();
        words
    }
}

impl<W: Word, const N: usize, I: Value> Op<I> for Ordered<W, N> {
    const NAME: &'static str = "ordered";
    type Accumulator = [W; N];
    type Output = [[W; N]; 2];
    const EXACT: bool = false;
    const KERNELS: Kernels = crate::KERNELS;

    #[inline(always)]
    fn begin(&self, first: I) -> Self {
        let hash = hash(self.0.seed, first, 0);
        Self(Parameters { seed: hash, turn: hash as u16, ..self.0 }, PhantomData)
    }

    #[inline(always)]
    fn end(&self, all: [W; N], count: u64) -> [W; N] {
        all.map(|word| word.turned(self.0.turn.into(), W::of(count)))
    }

    #[inline(always)]
    fn identity(&self) -> [W; N] {
        [W::zeroed(); N]
    }

    #[inline(always)]
    fn lift(&self, item: I, index: u64) -> [W; N] {
        let hash = hash(self.0.seed, item, index);
        Self::of_items(from_fn(|word| W::of(part(hash, word))))
    }

    #[inline(always)]
    fn combine(&self, a: [W; N], b: [W; N]) -> [W; N] {
        if a[0] == W::zeroed() {
            b
        } else if b[0] == W::zeroed() {
            a
        } else {
            Self::of_items(from_fn(|word| a[word].turned(self.0.turn.into(), b[word])))
        }
    }

    #[inline(always)]
    fn finish(&self, all: [W; N], count: u64) -> Option<[[W; N]; 2]> {
        self.0.finish(all, count)
    }
}

/// N sums of floats of many magnitudes. Its parameters have a size and an alignment that fit no register.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct Sums<F, const N: usize>(pub [u8; 3], pub PhantomData<F>);

impl<F: Float, const N: usize, I: Value> Op<I> for Sums<F, N> {
    const NAME: &'static str = "sums";
    type Accumulator = [F; N];
    type Output = [F; N];
    const EXACT: bool = false;
    const KERNELS: Kernels = crate::KERNELS;

    #[inline(always)]
    fn identity(&self) -> [F; N] {
        [F::NOTHING; N]
    }

    #[inline(always)]
    fn lift(&self, item: I, index: u64) -> [F; N] {
        let [a, b, c] = self.0;
        let hash = hash(u32::from_le_bytes([a, b, c, 1]).into(), item, index);
        from_fn(|word| F::of(part(hash, word), c))
    }

    #[inline(always)]
    fn combine(&self, a: [F; N], b: [F; N]) -> [F; N] {
        from_fn(|word| a[word].plus(b[word]))
    }

    #[inline(always)]
    fn finish(&self, all: [F; N], _: u64) -> Option<[F; N]> {
        Some(all)
    }
}

/// The rows of the table, for tests: calls `$callback! { ROW ROW … }`. Names contain the size of the
/// accumulator in bytes.
///
/// With `GPU_REDUCE_TEST_PART`, a number from 0 to 5, these are the rows of that part alone, because rustc
/// takes about ten seconds to compile the kernels of a row. Who calls this macro imports `from_part_0` to
/// `from_part_5` and `from_end` too.
#[macro_export]
macro_rules! for_each_row {
    ($callback:ident) => {
        from_part_0! { $callback; }
    };
}

macro_rules! parts {
    ($d:tt $($part:literal $name:ident $next:ident { $($rows:tt)* })*) => {$(
        #[doc(hidden)]
        #[cfg(part = $part)]
        #[macro_export]
        macro_rules! $name {
            ($d callback:ident; $d ($d before:tt)*) => {
                $next! { $d callback; $d ($d before)* $($rows)* }
            };
        }

        #[doc(hidden)]
        #[cfg(not(part = $part))]
        #[macro_export]
        macro_rules! $name {
            ($d callback:ident; $d ($d before:tt)*) => {
                $next! { $d callback; $d ($d before)* }
            };
        }
    )*};
}

#[doc(hidden)]
#[macro_export]
macro_rules! from_end {
    ($callback:ident; $($rows:tt)*) => {
        $callback! { $($rows)* }
    };
}

parts! {
    $
    // Those that tests beside the tests of rows use.
    "0" from_part_0 from_part_1 {
        exact_1: Exact<u8, 1>, u8;
        ordered_40: Ordered<u64, 5>, u32;
        ordered_4_of_colours: Ordered<u32, 1>, Colour;
        ordered_4_of_points: Ordered<u32, 1>, Point;
        sums_12_of_places: Sums<f32, 3>, Place;
        exact_8_of_triples: Exact<u64, 1>, Triple;
        ordered_12_of_two: Ordered<u32, 3>, u8, f64;
        sums_40_of_two: Sums<f64, 5>, Colour, u16;
    }
    "1" from_part_1 from_part_2 {
        functions_8_of_f16: Functions<f16>, u64;
        functions_8_of_bf16: Functions<bf16>, u64;
        functions_8_of_f32: Functions<f32>, u64;
        functions_8_of_f64: Functions<f64>, u64;
        exact_2: Exact<u16, 1>, u16;
        exact_4: Exact<u32, 1>, u32;
    }
    "2" from_part_2 from_part_3 {
        exact_8: Exact<u64, 1>, u64;
        exact_16: Exact<u64, 2>, u32;
        exact_40: Exact<u32, 10>, u32;
        exact_4_of_colours: Exact<u32, 1>, Colour;
        exact_8_of_two: Exact<u64, 1>, u8, f64;
    }
    "3" from_part_3 from_part_4 {
        ordered_1: Ordered<u8, 1>, u8;
        ordered_2: Ordered<u16, 1>, u16;
        ordered_4: Ordered<u32, 1>, u32;
        ordered_8: Ordered<u64, 1>, u32;
        ordered_16: Ordered<u32, 4>, u32;
    }
    "4" from_part_4 from_part_5 {
        ordered_64: Ordered<u64, 8>, u32;
        ordered_3: Ordered<u8, 3>, u32;
        ordered_6: Ordered<u16, 3>, u16;
        // Loads of fewer than 16 bytes, because accumulators are wider than items.
        ordered_4_of_bytes: Ordered<u32, 1>, u8;
        ordered_8_of_bytes: Ordered<u64, 1>, u8;
    }
    "5" from_part_5 from_end {
        ordered_2_of_places: Ordered<u16, 1>, Place;
        sums_4: Sums<f32, 1>, f32;
        sums_24: Sums<f64, 3>, f64;
        ordered_8_of_two: Ordered<u64, 1>, f32, u32;
    }
}

use gpu_reduce_kernels::kernels;
#[allow(unused_imports, reason = "a part of the rows has none")]
use gpu_reduce_kernels::{bf16, f16};
for_each_row! { kernels }
