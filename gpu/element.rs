//! The element types, in one table, and the arithmetic that operators do on them.

use crate::op::{Compensated, Scaled, Squares, Twofold};
use bytemuck::Pod;
use core::fmt::{Debug, Display};
use half::{bf16, f16};

/// A number type whose slices reduce by the operators that come with the library. There are twelve, [`Dtype`] has them all; `usize` and `isize` are
/// `u64` and `i64` by other names, and `bool`, which is none, reduces as `u8` by the operators of one array. What else reduces is any plain value, by an operator
/// written for it.
#[diagnostic::on_unimplemented(
    message = "the library's operators do not reduce elements of type `{Self}`",
    note = "they reduce `i8` to `i64`, `u8` to `u64`, `usize`, `isize`, `f16`, `bf16`, `f32` and `f64`, and most of them `bool`; some of them pairs of these, `(x, y)` of two arrays",
    note = "what else reduces is any plain value, by an operator of your own: `impl Op<{Self}> for …`"
)]
pub trait Element: Pod + PartialOrd + Display + Debug + Send + Sync + sealed::Sealed {
    /// Which of the types it is: what an operator has of faster ways for some of them, it chooses by this.
    const DTYPE: Dtype;

    /// The type's name in kernels, files and options, as `f32`.
    const NAME: &'static str;

    /// What sums and products accumulate in and return: 64 bits for integers, `f32` for `f16` and `bf16`.
    type Wide: Wide;

    /// An integer that orders as the element does.
    type Key: Key;

    /// What a mean sums in: 128-bit integers, which no sum of fewer than 2^64 elements overflows; the wide type for floats.
    type Total: Total;

    /// What statistics return: `f64` for integers and `f64`, `f32` for the other floats.
    type Real: Pod + PartialOrd + Display + Debug + Send + Sync;

    /// The same value in the wide type; exact.
    fn widen(self) -> Self::Wide;

    /// The same value; exact.
    fn total(self) -> Self::Total;

    /// The nearest `f64`: the same value, but for integers of over 53 bits.
    fn to_f64(self) -> f64;

    /// The nearest of the type that statistics return; a NaN becomes the canonical one.
    fn real(value: f64) -> Self::Real;

    /// An integer that orders as the element's magnitude does: for a float its bits without the sign, over those of infinity for a NaN.
    fn magnitude(self) -> u64;

    /// The magnitude that has this integer.
    fn of_magnitude(magnitude: u64) -> f64;

    /// The element that has this value, if one has.
    fn narrow(wide: Self::Wide) -> Self;

    /// The element's key, if it is no NaN. −0.0 is below +0.0.
    fn key_of_number(self) -> Self::Key;

    /// The element's key, or `nan` for a NaN.
    fn key(self, nan: Self::Key) -> Self::Key;

    /// The element that has this key; the canonical NaN for a key that no number has.
    fn from_key(key: Self::Key) -> Self;
}

#[cfg(not(target_arch = "nvptx64"))]
mod alias;

mod sealed {
    /// Kernels are found by type, and their bits rest on the arithmetic here.
    pub trait Sealed {}
}

/// A plain value that operators accumulate in: shuffles, shared memory and slots move it by words.
pub trait Accumulator: Pod + Send + Sync {}

impl<V: Pod + Send + Sync> Accumulator for V {}

/// The wide types: wrapping 64-bit integers, and IEEE floats.
pub trait Wide: Accumulator + PartialOrd + Display + Debug {
    /// What squares sum in where they must not overflow: an `f64`, which holds those of all types but its own.
    type Squares: Squares;
    /// What a compensated sum sums in.
    type Compensated: Compensated<Self>;
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
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
    /// Whether it is a NaN.
    fn is_nan(self) -> bool;
    /// The smaller, on a GPU by one instruction for a float, for which NaN counts only beside another.
    fn lesser(self, other: Self) -> Self;
    /// The larger, as [`lesser`](Self::lesser).
    fn greater(self, other: Self) -> Self;
    /// The value, with every NaN made the one quiet NaN with no payload: which NaN an operation gives differs between
    /// processors (PTX ISA, "Floating Point Instructions"; IEEE 754-2019, 6.2.3).
    fn canonical(self) -> Self;
}

/// What means sum in.
pub trait Total: Accumulator {
    /// Whether every order of adding gives the same bits.
    const EXACT: bool;
    /// Added to any value it leaves the value's bits.
    const NOTHING: Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The difference.
    fn minus(self, other: Self) -> Self;
    /// The magnitude.
    fn abs(self) -> Self;
    /// The nearest `f64`, or one beside it.
    fn to_f64(self) -> f64;
}

impl Total for i128 {
    const EXACT: bool = true;
    const NOTHING: Self = 0;
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.wrapping_abs()
    }
    /// By halves, because GPUs have no conversion of 128 bits.
    #[inline(always)]
    fn to_f64(self) -> f64 {
        const HALF: f64 = 18446744073709551616.0; // 2^64
        match i64::try_from(self) {
            Ok(short) => short as f64,
            Err(_) => (self >> 64) as i64 as f64 * HALF + self as u64 as f64,
        }
    }
}

/// The key types.
pub trait Key: Accumulator + Ord + Debug {
    /// Below every key.
    const LEAST: Self;
    /// Above every key.
    const GREATEST: Self;
    /// A 64-bit integer that orders as the key does.
    fn wide(self) -> i64;
}

macro_rules! wide_integers {
    ($($type:ident)*) => {$(
        impl Wide for $type {
            type Squares = f64;
            type Compensated = $type;
            const EXACT: bool = true;
            const ZERO: Self = 0;
            const NOTHING: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline(always)]
            fn canonical(self) -> Self {
                self
            }
        }
    )*};
}

macro_rules! wide_floats {
    ($($type:ident $squares:ident $compensated:ident $min:ident $max:ident)*) => {$(
        impl Wide for $type {
            type Squares = $squares;
            type Compensated = $compensated;
            const EXACT: bool = false;
            const ZERO: Self = 0.0;
            const NOTHING: Self = -0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                cuda_std::intrinsics::$min(self, other)
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                cuda_std::intrinsics::$max(self, other)
            }
            #[inline(always)]
            fn canonical(self) -> Self {
                if Wide::is_nan(self) { Self::NAN } else { self }
            }
        }

        impl Total for $type {
            const EXACT: bool = false;
            const NOTHING: Self = -0.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn abs(self) -> Self {
                Self::from_bits(self.to_bits() << 1 >> 1)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.into()
            }
        }
    )*};
}

macro_rules! keys {
    ($($type:ident: $from:literal)*) => {$(
        impl Key for $type {
            const LEAST: Self = Self::MIN;
            const GREATEST: Self = Self::MAX;
            #[inline(always)]
            fn wide(self) -> i64 {
                (self as i64).wrapping_add($from)
            }
        }
    )*};
}

wide_integers! { i64 u64 }
wide_floats! { f32 f64 f64 fmin_f32 fmax_f32 f64 Scaled Twofold fmin_f64 fmax_f64 }
keys! { i8: 0 i16: 0 i32: 0 i64: 0 u8: 0 u16: 0 u32: 0 u64: -0x8000_0000_0000_0000 }

/// How one kind of type widens and orders.
macro_rules! arithmetic {
    (integer $type:ident $wide:ident) => {
        type Key = $type;
        #[inline(always)]
        fn widen(self) -> $wide {
            self.into()
        }
        type Total = i128;
        type Real = f64;
        #[inline(always)]
        fn total(self) -> i128 {
            self.into()
        }
        #[inline(always)]
        fn to_f64(self) -> f64 {
            self as f64
        }
        #[inline(always)]
        fn real(value: f64) -> f64 {
            Wide::canonical(value)
        }
        #[inline(always)]
        #[allow(unused_comparisons)]
        fn magnitude(self) -> u64 {
            if self < 0 { (self as u64).wrapping_neg() } else { self as u64 }
        }
        #[inline(always)]
        fn of_magnitude(magnitude: u64) -> f64 {
            magnitude as f64
        }
        #[inline(always)]
        fn narrow(wide: $wide) -> $type {
            wide as $type
        }
        #[inline(always)]
        fn key_of_number(self) -> $type {
            self
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
        fn widen(self) -> $wide {
            widen::$type(self)
        }
        type Total = $wide;
        type Real = $wide;
        #[inline(always)]
        fn total(self) -> $wide {
            widen::$type(self)
        }
        #[inline(always)]
        fn to_f64(self) -> f64 {
            widen::$type(self).into()
        }
        #[inline(always)]
        fn real(value: f64) -> $wide {
            Wide::canonical(value as $wide)
        }
        #[inline(always)]
        fn magnitude(self) -> u64 {
            (self.to_bits() as $key & $key::MAX) as u64
        }
        #[inline(always)]
        fn of_magnitude(magnitude: u64) -> f64 {
            widen::$type($type::from_bits(magnitude as _)).into()
        }
        #[inline(always)]
        fn narrow(wide: $wide) -> $type {
            narrow::$type(wide)
        }
        #[inline(always)]
        fn key_of_number(self) -> $key {
            let bits = self.to_bits() as $key;
            bits ^ ((bits >> ($key::BITS - 1)) & $key::MAX)
        }
        #[inline(always)]
        fn key(self, nan: $key) -> $key {
            let bits = self.to_bits() as $key;
            let infinity = $type::INFINITY.to_bits() as $key;
            if bits & $key::MAX > infinity { nan } else { self.key_of_number() }
        }
        #[inline(always)]
        fn from_key(key: $key) -> $type {
            let bits = key ^ ((key >> ($key::BITS - 1)) & $key::MAX);
            let infinity = $type::INFINITY.to_bits() as $key;
            if bits & $key::MAX > infinity { $type::NAN } else { $type::from_bits(bits as _) }
        }
    };
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

/// The element types as values, in the order of the table.
macro_rules! dtypes {
    ({} $($type:ident: $dtype:ident $($row:ident)*;)*) => {
        /// The element types.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Dtype { $($dtype),* }
    };
}

macro_rules! elements {
    ({} $($type:ident: $dtype:ident $kind:ident $wide:ident $($key:ident)?;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            const NAME: &'static str = stringify!($type);
            type Wide = $wide;
            arithmetic! { $kind $type $wide $($key)? }
        }
    )*};
}

/// The element types: calls `$callback! { { ARGUMENTS } ROW ROW … }`, a row being `TYPE: DTYPE KIND WIDE KEY;` (an integer is
/// its own key).
#[macro_export]
macro_rules! for_each_element {
    ($callback:ident! { $($arguments:tt)* }) => {
        $crate::for_each_integer! { with_floats! { $callback { $($arguments)* } } }
    };
}

/// The integer types, as [`for_each_element!`].
#[macro_export]
macro_rules! for_each_integer {
    (with_floats! $callback:tt) => {
        $crate::for_each_integer! { @rows [$crate::with_floats!] $callback }
    };
    ($callback:ident! { $($arguments:tt)* }) => {
        $crate::for_each_integer! { @rows [$callback!] { $($arguments)* } }
    };
    (@rows [$($callback:tt)*] $arguments:tt) => {
        $($callback)* {
            $arguments
            i8: I8 integer i64;
            i16: I16 integer i64;
            i32: I32 integer i64;
            i64: I64 integer i64;
            u8: U8 integer u64;
            u16: U16 integer u64;
            u32: U32 integer u64;
            u64: U64 integer u64;
        }
    };
}

/// The rows of the integer types and those of the others.
#[doc(hidden)]
#[macro_export]
macro_rules! with_floats {
    ({ $callback:ident { $($arguments:tt)* } } $($integers:tt)*) => {
        $callback! {
            { $($arguments)* }
            $($integers)*
            f16: F16 float f32 i16;
            bf16: Bf16 float f32 i16;
            f32: F32 float f32 i32;
            f64: F64 float f64 i64;
        }
    };
}

for_each_element! { dtypes! {} }
for_each_element! { elements! {} }
