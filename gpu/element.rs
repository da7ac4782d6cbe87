//! The element types, in one table, and the arithmetic that operators do on them.

use bytemuck::Pod;
use core::fmt::{Debug, Display};
use cuda_std::warp::WarpShuffleValue;
use half::{bf16, f16};

/// A type whose slices reduce.
pub trait Element: Pod + PartialOrd + Display + Debug + Send + Sync {
    /// The type's name in kernels, files and options, as `f32`.
    const NAME: &'static str;

    /// Elements in a 16-byte load.
    const WIDTH: usize = 16 / size_of::<Self>();

    /// One `V` for each element of a 16-byte load.
    type Lanes<V: Copy>: Lanes<V>;

    /// What sums and products accumulate in and return: 64 bits for integers, `f32` for `f16` and `bf16`.
    type Wide: Wide;

    /// An integer that orders as the element does.
    type Key: Key;

    /// The same value in the wide type; exact.
    fn widen(self) -> Self::Wide;

    /// The element's key, or `nan` for a NaN. −0.0 is below +0.0.
    fn key(self, nan: Self::Key) -> Self::Key;

    /// The element that has this key; the canonical NaN for a key that no number has.
    fn from_key(key: Self::Key) -> Self;

    /// The sum of a load's elements, on a GPU, for a wide type that is [exact](Wide::EXACT).
    #[inline(always)]
    fn sum_of_load(load: Self::Lanes<Self>) -> Self::Wide {
        load.as_ref().iter().fold(Self::Wide::NOTHING, |sum, element| sum.plus(element.widen()))
    }

    /// The product of a load's elements, on a GPU, for a wide type that is [exact](Wide::EXACT).
    #[inline(always)]
    fn product_of_load(load: Self::Lanes<Self>) -> Self::Wide {
        load.as_ref().iter().fold(Self::Wide::ONE, |product, element| product.times(element.widen()))
    }

    /// The least key in a load, that of NaN being [`Key::LEAST`], on a GPU.
    fn least_of_load(load: Self::Lanes<Self>) -> Self::Key;

    /// The greatest key in a load, that of NaN being [`Key::GREATEST`], on a GPU.
    fn greatest_of_load(load: Self::Lanes<Self>) -> Self::Key;
}

/// The array `[V; WIDTH]`.
pub trait Lanes<V: Copy>: Copy + AsRef<[V]> + AsMut<[V]> {
    /// `value` in every lane.
    fn splat(value: V) -> Self;
}

impl<V: Copy, const N: usize> Lanes<V> for [V; N]
where
    [V; N]: AsRef<[V]> + AsMut<[V]>,
{
    #[inline(always)]
    fn splat(value: V) -> Self {
        [value; N]
    }
}

/// An accumulator: a plain value that shuffles and shared memory move.
pub trait Accumulator: Pod + WarpShuffleValue + Send + Sync {}

impl<V: Pod + WarpShuffleValue + Send + Sync> Accumulator for V {}

/// The wide types: wrapping 64-bit integers, and IEEE floats.
pub trait Wide: Accumulator + PartialOrd + Display + Debug {
    /// Whether addition and multiplication give the same bits in every order, as wrapping integers do.
    const EXACT: bool;
    /// What an empty sum is.
    const ZERO: Self;
    /// Added to any value it leaves the value's bits: zero for integers, −0.0 for floats.
    const NOTHING: Self;
    /// What an empty product is.
    const ONE: Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// The value, with every NaN made the one quiet NaN with no payload: which NaN an operation gives differs between
    /// processors (PTX ISA, "Floating Point Instructions"; IEEE 754-2019, 6.2.3).
    fn canonical(self) -> Self;
}

/// The key types.
pub trait Key: Accumulator + Ord {
    /// Below every key.
    const LEAST: Self;
    /// Above every key.
    const GREATEST: Self;
}

macro_rules! wide_integers {
    ($($type:ident)*) => {$(
        impl Wide for $type {
            const EXACT: bool = true;
            const ZERO: Self = 0;
            const NOTHING: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn canonical(self) -> Self {
                self
            }
        }
    )*};
}

macro_rules! wide_floats {
    ($($type:ident)*) => {$(
        impl Wide for $type {
            const EXACT: bool = false;
            const ZERO: Self = 0.0;
            const NOTHING: Self = -0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn canonical(self) -> Self {
                if self.is_nan() { Self::NAN } else { self }
            }
        }
    )*};
}

macro_rules! keys {
    ($($type:ident)*) => {$(
        impl Key for $type {
            const LEAST: Self = Self::MIN;
            const GREATEST: Self = Self::MAX;
        }
    )*};
}

wide_integers! { i64 u64 }
wide_floats! { f32 f64 }
keys! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// How one kind of type widens and orders.
macro_rules! arithmetic {
    (integer $type:ident $wide:ident) => {
        type Key = $type;
        #[inline(always)]
        fn sum_of_load(load: Self::Lanes<Self>) -> $wide {
            sum_of_load::$type(load)
        }
        #[inline(always)]
        fn product_of_load(load: Self::Lanes<Self>) -> $wide {
            product_of_words!(load, $type, $wide)
        }
        #[inline(always)]
        fn least_of_load(load: Self::Lanes<Self>) -> $type {
            extreme_of_words!(load, $type, min, $type::MAX)
        }
        #[inline(always)]
        fn greatest_of_load(load: Self::Lanes<Self>) -> $type {
            extreme_of_words!(load, $type, max, $type::MIN)
        }
        #[inline(always)]
        fn widen(self) -> $wide {
            self.into()
        }
        #[inline(always)]
        fn key(self, _: $type) -> $type {
            self
        }
        #[inline(always)]
        fn from_key(key: $type) -> $type {
            key
        }
    };
    // A float's bits, read as a sign-and-magnitude integer, order as its values do. Flipping the magnitude of the
    // negative ones makes that two's complement. The least and the greatest key are both the bits of a NaN, so that no
    // number has them.
    (float $type:ident $wide:ident $key:ident) => {
        type Key = $key;
        #[inline(always)]
        fn least_of_load(load: Self::Lanes<Self>) -> $key {
            extreme_of_load!(load, $type, $wide, min, $key::LEAST)
        }
        #[inline(always)]
        fn greatest_of_load(load: Self::Lanes<Self>) -> $key {
            extreme_of_load!(load, $type, $wide, max, $key::GREATEST)
        }
        #[inline(always)]
        fn widen(self) -> $wide {
            widen::$type(self)
        }
        #[inline(always)]
        fn key(self, nan: $key) -> $key {
            let bits = self.to_bits() as $key;
            let infinity = $type::INFINITY.to_bits() as $key;
            let key = bits ^ ((bits >> ($key::BITS - 1)) & $key::MAX);
            if bits & $key::MAX > infinity { nan } else { key }
        }
        #[inline(always)]
        fn from_key(key: $key) -> $type {
            let bits = key ^ ((key >> ($key::BITS - 1)) & $key::MAX);
            let infinity = $type::INFINITY.to_bits() as $key;
            if bits & $key::MAX > infinity { $type::NAN } else { $type::from_bits(bits as _) }
        }
    };
}

/// The key of a load's extreme: on the wide type, which has instructions for it, and once back.
macro_rules! extreme_of_load {
    ($load:ident, $type:ident, $wide:ident, $pick:ident, $nan:expr) => {{
        let wide = $load.map(Element::widen);
        let has_nan = wide.iter().fold(false, |has, value| has | value.is_nan());
        let extreme = wide.into_iter().reduce(pick::$wide::$pick).unwrap_or(0.0);
        if has_nan { $nan } else { narrow::$type(extreme).key($nan) }
    }};
}

/// The extreme of a load of integers. Two or four of them are compared a word at a time: shifted to its upper end, an
/// integer orders as before, whatever follows below.
macro_rules! extreme_of_words {
    ($load:ident, $type:ident, $pick:ident, $identity:expr) => {{
        const BITS: u32 = $type::BITS;
        if BITS >= 32 {
            $load.into_iter().fold($identity, Ord::$pick)
        } else {
            let words: [<$type as InWord>::Word; 4] = bytemuck::cast($load);
            let mut extremes = words;
            let mut shift = BITS;
            while shift < 32 {
                let shifted = words.map(|word| word << shift);
                extremes = core::array::from_fn(|word| extremes[word].$pick(shifted[word]));
                shift += BITS;
            }
            let [a, b, c, d] = extremes;
            (a.$pick(b).$pick(c.$pick(d)) >> (32 - BITS.min(32)) % 32) as $type
        }
    }};
}

/// The product of a load of integers. Two or four of them, a word, multiply in 32 bits, which hold what comes of it.
macro_rules! product_of_words {
    ($load:ident, $type:ident, $wide:ident) => {{
        if $type::BITS >= 32 {
            $load.into_iter().fold(1, |product, factor| product.wrapping_mul($wide::from(factor)))
        } else {
            let mut product: $wide = 1;
            for word in $load.chunks_exact(4 / size_of::<$type>().min(4)) {
                let factors = word.iter().map(|&factor| factor as <$type as InWord>::Word);
                product =
                    product.wrapping_mul(factors.reduce(<$type as InWord>::multiply).unwrap_or(1).into());
            }
            product
        }
    }};
}

/// The 32-bit integer with the signedness of a type.
trait InWord {
    type Word;
    fn multiply(a: Self::Word, b: Self::Word) -> Self::Word;
}

macro_rules! in_word {
    ($($word:ident $multiply:ident: $($type:ident)*;)*) => {$($(
        impl InWord for $type {
            type Word = $word;
            #[inline(always)]
            fn multiply(a: $word, b: $word) -> $word {
                cuda_std::intrinsics::$multiply(a, b)
            }
        }
    )*)*};
}

in_word! { i32 mul_lo_i32: i8 i16 i32 i64; u32 mul_lo_u32: u8 u16 u32 u64; }

/// Sums of integer loads: a GPU adds up to four products of bytes in one instruction, here by ones.
mod sum_of_load {
    use cuda_std::intrinsics::{dp2a_lo_i32, dp2a_lo_u32, dp4a_i32, dp4a_u32};

    macro_rules! sums {
        ($($type:ident $wide:ident $lanes:literal: |$load:ident| $sum:expr;)*) => {$(
            #[inline(always)]
            pub fn $type($load: [$type; $lanes]) -> $wide {
                $sum
            }
        )*};
    }

    sums! {
        i8 i64 16: |load| words(load).into_iter().fold(0, |sum, word| dp4a_i32(word, 0x0101_0101, sum)).into();
        u8 u64 16: |load| words(load).into_iter().fold(0, |sum, word| dp4a_u32(word, 0x0101_0101, sum)).into();
        i16 i64 8: |load| words(load).into_iter().fold(0, |sum, word| dp2a_lo_i32(word, 0x0101, sum)).into();
        u16 u64 8: |load| words(load).into_iter().fold(0, |sum, word| dp2a_lo_u32(word, 0x0101, sum)).into();
        i32 i64 4: |load| load.into_iter().map(i64::from).sum();
        u32 u64 4: |load| load.into_iter().map(u64::from).sum();
        i64 i64 2: |load| load[0].wrapping_add(load[1]);
        u64 u64 2: |load| load[0].wrapping_add(load[1]);
    }

    fn words<L: bytemuck::Pod>(load: L) -> [u32; 4] {
        bytemuck::cast(load)
    }
}

/// The smaller and the larger of two numbers, by one instruction each.
mod pick {
    pub mod f32 {
        pub use cuda_std::intrinsics::{fmax_f32 as max, fmin_f32 as min};
    }
    pub mod f64 {
        pub use cuda_std::intrinsics::{fmax_f64 as max, fmin_f64 as min};
    }
}

/// Back from the wide type, for values that came from the narrow one.
mod narrow {
    use half::{bf16, f16};

    #[inline(always)]
    pub fn f32(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    pub fn f64(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    pub fn bf16(value: f32) -> bf16 {
        bf16::from_bits((value.to_bits() >> 16) as u16)
    }

    #[inline(always)]
    pub fn f16(value: f32) -> f16 {
        f16::from_bits(cuda_std::intrinsics::f32_to_f16_bits(value))
    }
}

/// To the wide type, exactly.
mod widen {
    use half::{bf16, f16};

    #[inline(always)]
    pub fn f32(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    pub fn f64(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    pub fn bf16(value: bf16) -> f32 {
        f32::from_bits(u32::from(value.to_bits()) << 16)
    }

    /// One instruction on a GPU; elsewhere without a branch, so that a loop of it becomes SIMD, and without the subnormal
    /// operands that cost a processor an assist each.
    #[inline(always)]
    pub fn f16(value: f16) -> f32 {
        #[cfg(target_arch = "nvptx64")]
        {
            cuda_std::intrinsics::f16_bits_to_f32(value.to_bits())
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            const EXPONENT: u32 = 0x7c00 << 13; // of infinities and NaNs, in place
            const REBIAS: u32 = (127 - 15) << 23;
            const LEAST_NORMAL: f32 = f32::from_bits(REBIAS + (1 << 23));
            let bits = u32::from(value.to_bits());
            let magnitude = (bits & 0x7fff) << 13;
            let normal = magnitude + REBIAS;
            let subnormal = (f32::from_bits(normal + (1 << 23)) - LEAST_NORMAL).to_bits();
            let extreme = normal + REBIAS;
            let wide = if magnitude >= EXPONENT { extreme } else { normal };
            let wide = if magnitude < 1 << 23 { subnormal } else { wide };
            f32::from_bits(wide | (bits & 0x8000) << 16)
        }
    }
}

macro_rules! elements {
    ({} $($type:ident: $kind:ident $wide:ident $($key:ident)?;)*) => {$(
        impl Element for $type {
            const NAME: &'static str = stringify!($type);
            type Lanes<V: Copy> = [V; 16 / size_of::<$type>()];
            type Wide = $wide;
            arithmetic! { $kind $type $wide $($key)? }
        }
    )*};
}

/// The element types: calls `$callback! { { ARGUMENTS } ROW ROW … }`, a row being `TYPE: KIND WIDE KEY;` (an integer is
/// its own key).
#[macro_export]
macro_rules! for_each_element {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            i8: integer i64;
            i16: integer i64;
            i32: integer i64;
            i64: integer i64;
            u8: integer u64;
            u16: integer u64;
            u32: integer u64;
            u64: integer u64;
            f16: float f32 i16;
            bf16: float f32 i16;
            f32: float f32 i32;
            f64: float f64 i64;
        }
    };
}

for_each_element! { elements! {} }
