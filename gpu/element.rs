//! The element types, in one table, and the arithmetic that operators do on them.

use crate::op::tally::Tallied;
use crate::op::{
    Compensated, Counted, Distances, Scaled, Spread, SpreadOfNumbers, Squares, SumAndCount, Twofold,
};
use bytemuck::Pod;
use core::fmt::{Debug, Display};
use core::ops::Sub;
use half::{bf16, f16};
use num_traits::{AsPrimitive, Bounded, ConstOne, ConstZero, Num, NumCast};

/// A number type that the library's operators reduce.
///
/// The twelve types are listed in [`Dtype`]. `usize` and `isize` reduce as `u64` and `i64`. `bool` is not an
/// element, but the operators of one array reduce it as `u8`. An operator of your own reduces any plain
/// value.
///
/// Every element type has the traits of `num-traits` below, so that one `impl` of your own operator serves
/// all of them:
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use gpu_reduce_kernels::{Element, Op};
/// use num_traits::{AsPrimitive, clamp};
///
/// /// The sum of the elements, each first clamped to 0 and 1.
/// #[derive(Clone, Copy, Pod, Zeroable)]
/// #[repr(C)]
/// struct ClampedSum;
///
/// impl<T: Element> Op<T> for ClampedSum {
///     const NAME: &'static str = "clamped_sum";
///     type Accumulator = f64;
///     type Output = f64;
///     const EXACT: bool = false;
///
///     fn identity(&self) -> f64 {
///         -0.0 // -0.0 + x has the bits of x, also for x = -0.0
///     }
///     fn lift(&self, element: T, _: u64) -> f64 {
///         clamp(element, T::zero(), T::one()).as_()
///     }
///     fn combine(&self, a: f64, b: f64) -> f64 {
///         a + b
///     }
///     fn finish(&self, all: f64, _: u64) -> Option<f64> {
///         Some(all + 0.0)
///     }
/// }
///
/// assert_eq!(ClampedSum.lift(200u8, 0), 1.0);
/// assert_eq!(ClampedSum.lift(-2.5f32, 0), 0.0);
/// ```
#[diagnostic::on_unimplemented(
    message = "the library's operators do not reduce elements of type `{Self}`",
    note = "they reduce `i8` to `i64`, `u8` to `u64`, `usize`, `isize`, `f16`, `bf16`, `f32` and `f64`, and most of them `bool`; some of them pairs of these, `(x, y)` of two arrays",
    note = "what else reduces is any plain value, by an operator of your own: `impl Op<{Self}> for …`"
)]
pub trait Element:
    Pod + Num + NumCast + Bounded + AsPrimitive<f64> + PartialOrd + Display + Debug + Send + Sync + sealed::Sealed
{
    /// The type as a value. Operators choose faster code for some types by it.
    const DTYPE: Dtype;

    /// The type's name in kernels, files and options, as `f32`.
    const NAME: &'static str;

    /// The type of sums and products: `i64` or `u64` for integers, `f32` for `f16`, `bf16` and `f32`, `f64`
    /// for `f64`.
    type Wide: Wide + Element<Wide = Self::Wide>;

    /// An integer that orders as the element does.
    type Key: Key;

    /// The type that means sum in: `i128` for integers, which fewer than 2^64 elements cannot overflow;
    /// `Wide` for floats.
    type Total: Total;

    /// The type of statistics: `f64` for integers and `f64`, `f32` for the other floats.
    type Real: Pod + PartialOrd + Display + Debug + Send + Sync;

    /// Converts to the wide type, exactly.
    fn widen(self) -> Self::Wide;

    /// Converts to the type that means sum in, exactly.
    fn total(self) -> Self::Total;

    /// Converts to the nearest `f64`. Exact except for integers of more than 53 bits. `as_` gives the same
    /// value, but more slowly for `f16` and `bf16`.
    fn as_f64(self) -> f64;

    /// Converts to the nearest value of the type of statistics; makes a NaN canonical.
    fn real(value: f64) -> Self::Real;

    /// Returns an integer that orders as the magnitude does. For a float: the bits without the sign, which
    /// for a NaN are greater than those of infinity.
    fn magnitude(self) -> u64;

    /// Converts [`magnitude`](Self::magnitude) to the nearest `f64`.
    fn of_magnitude(magnitude: u64) -> f64;

    /// Converts from the wide type a value that the element type has exactly.
    fn narrow(wide: Self::Wide) -> Self;

    /// Returns the key of an element that is not NaN. −0.0 is below +0.0.
    fn key_of_number(self) -> Self::Key;

    /// Returns the key, or `nan` for a NaN.
    fn key(self, nan: Self::Key) -> Self::Key;

    /// Returns the element with this key, or the canonical NaN if no number has it.
    fn from_key(key: Self::Key) -> Self;
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) mod alias;

mod sealed {
    /// Kernels are found by type, and their bits depend on the arithmetic here.
    pub trait Sealed {}
}

/// A plain value that partial results are stored in: shuffles, shared memory and slots move it word by word.
pub trait Accumulator: Pod + Send + Sync {}

impl<V: Pod + Send + Sync> Accumulator for V {}

/// A value that adds up: integers wrap, floats round.
pub trait Summand: Accumulator {
    /// Whether addition gives the same bits in every order.
    const EXACT: bool = false;
    /// Added to any value, it leaves the value's bits: 0 for integers, −0.0 for floats.
    const NOTHING: Self;
    /// Adds two values.
    fn plus(self, other: Self) -> Self;
}

/// The types of sums and products: `i64` and `u64`, which wrap, `f32` and `f64`.
pub trait Wide: Summand + Tallied + ConstZero + ConstOne + PartialOrd + Display + Debug {
    /// The type of sums of squares that must not overflow: `f64`, except for `f64` itself.
    type Squares: Squares;
    /// The type of compensated sums.
    type Compensated: Compensated<Self>;
    /// The type that variances without NaNs sum in.
    type NanSpread: Distances;
    /// Subtracts; integers wrap.
    fn minus(self, other: Self) -> Self;
    /// Multiplies; integers wrap. Exact in every order if addition is.
    fn times(self, other: Self) -> Self;
    /// Whether it is a NaN.
    fn is_nan(self) -> bool;
    /// Returns the smaller; NaN only if both are. One instruction on a GPU.
    fn lesser(self, other: Self) -> Self;
    /// Returns the larger; NaN only if both are. One instruction on a GPU.
    fn greater(self, other: Self) -> Self;
    /// Replaces every NaN by the quiet NaN without payload: processors differ in which NaN an operation gives
    /// (PTX ISA, "Floating Point Instructions"; IEEE 754-2019, 6.2.3).
    fn canonical(self) -> Self;
}

/// The types that means sum in: `i128`, `f32` and `f64`.
pub trait Total: Summand + Sub<Output = Self> {
    /// The type that means without NaNs sum in.
    type Counted: Counted<Self>;
    /// Returns the magnitude.
    fn abs(self) -> Self;
    /// Converts to `f64`, within one unit in the last place.
    fn to_f64(self) -> f64;
}

impl Total for i128 {
    type Counted = Self;

    #[inline(always)]
    fn abs(self) -> Self {
        self.wrapping_abs()
    }
    /// Converts the two halves, because GPUs do not convert 128-bit integers.
    #[inline(always)]
    fn to_f64(self) -> f64 {
        const HALF: f64 = 18446744073709551616.0; // 2^64
        match i64::try_from(self) {
            Ok(short) => short as f64,
            Err(_) => (self >> 64) as i64 as f64 * HALF + self as u64 as f64,
        }
    }
}

/// The key types: integers of up to 64 bits.
pub trait Key: Accumulator + Bounded + Ord + Debug {
    /// Converts to a 64-bit integer that orders as the key does.
    fn wide(self) -> i64;

    /// Returns the key of such an integer.
    fn of_wide(wide: i64) -> Self;
}

macro_rules! summands {
    ($exact:literal, $nothing:literal, |$a:ident, $b:ident| $sum:expr; $($type:ty)*) => {$(
        impl Summand for $type {
            const EXACT: bool = $exact;
            const NOTHING: Self = $nothing;
            #[inline(always)]
            fn plus(self, $b: Self) -> Self {
                let $a = self;
                $sum
            }
        }
    )*};
}

macro_rules! wide_integers {
    ($($type:ident)*) => {$(
        impl Wide for $type {
            type Squares = f64;
            type Compensated = $type;
            type NanSpread = Spread;
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
            type NanSpread = SpreadOfNumbers;
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
            type Counted = SumAndCount<Self>;

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
            #[inline(always)]
            fn wide(self) -> i64 {
                (self as i64).wrapping_add($from)
            }

            #[inline(always)]
            fn of_wide(wide: i64) -> Self {
                wide.wrapping_sub($from) as $type
            }
        }
    )*};
}

summands! { true, 0, |a, b| a.wrapping_add(b); i64 u64 i128 }
summands! { false, -0.0, |a, b| a + b; f32 f64 }
wide_integers! { i64 u64 }
wide_floats! { f32 f64 f64 fmin_f32 fmax_f32 f64 Scaled Twofold fmin_f64 fmax_f64 }
keys! { i8: 0 i16: 0 i32: 0 i64: 0 u8: 0 u16: 0 u32: 0 u64: -0x8000_0000_0000_0000 }

/// Implements [`Element`] for types that are integers or floats of the table's form.
macro_rules! elements {
    ({} $($type:ident: $dtype:ident $kind:ident $wide:ident $($key:ident)?;)*) => {$(
        impl sealed::Sealed for $type {}
        #[diagnostic::do_not_recommend]
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            const NAME: &'static str = stringify!($type);
            type Wide = $wide;
            elements! { @$kind $type $wide $($key)? }
        }
    )*};
    (@integer $type:ident $wide:ident) => {
        elements! { @integer $type $wide $type }
    };
    (@integer $type:ident $wide:ident $key:ident) => {
        type Key = $key;
        type Total = i128;
        type Real = f64;
        #[inline(always)]
        fn widen(self) -> $wide {
            self as $wide
        }
        #[inline(always)]
        fn total(self) -> i128 {
            self as i128
        }
        #[inline(always)]
        fn as_f64(self) -> f64 {
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
        fn key_of_number(self) -> $key {
            self as $key
        }
        #[inline(always)]
        fn key(self, _: $key) -> $key {
            self as $key
        }
        #[inline(always)]
        fn from_key(key: $key) -> $type {
            key as $type
        }
    };
    // A float's bits, read as a sign and a magnitude, order as its values do. Flipping the magnitude of
    // negative values makes that two's complement. The least and the greatest key are the bits of NaNs, so
    // that no number has them.
    (@float $type:ident $wide:ident $key:ident) => {
        type Key = $key;
        type Total = $wide;
        type Real = $wide;
        #[inline(always)]
        fn widen(self) -> $wide {
            widen::$type(self)
        }
        #[inline(always)]
        fn total(self) -> $wide {
            widen::$type(self)
        }
        #[inline(always)]
        fn as_f64(self) -> f64 {
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

// The keys are those of `u64` and `i64`, whose kernels they share.
#[cfg(target_pointer_width = "64")]
elements! {
    {}
    usize: U64 integer u64 u64;
    isize: I64 integer i64 i64;
}

/// From the wide type, for values that the narrow type has exactly.
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
        #[cfg(target_arch = "nvptx64")]
        {
            cuda_std::intrinsics::upper_half(value.to_bits())
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            f32::from_bits(u32::from(value.to_bits()) << 16)
        }
    }

    /// One instruction on a GPU. On a CPU it has no branch, so that loops become SIMD, and no subnormal
    /// operands, which are slow.
    #[inline(always)]
    pub fn f16(value: f16) -> f32 {
        #[cfg(target_arch = "nvptx64")]
        {
            cuda_std::intrinsics::f16_bits_to_f32(value.to_bits())
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            const EXPONENT: u32 = 0x7c00 << 13; // that of infinities and NaNs
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

macro_rules! dtypes {
    ({} $($type:ident: $dtype:ident $($row:ident)*;)*) => {
        /// The element types as values, in the order of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Dtype { $($dtype),* }
    };
}

/// The twelve element types: calls `$callback! { { ARGUMENTS } ROW ROW … }`.
///
/// A row is `TYPE: DTYPE KIND WIDE KEY;`, without KEY for integers, which are their own keys.
#[macro_export]
macro_rules! for_each_element {
    ($($callback:ident)::+! { $($arguments:tt)* }) => {
        $crate::for_each_integer! { with_floats! { [$($callback)::+] { $($arguments)* } } }
    };
}

/// The integer types, in the form of [`for_each_element!`].
#[macro_export]
macro_rules! for_each_integer {
    (with_floats! $callback:tt) => {
        $crate::for_each_integer! { @rows [$crate::with_floats!] $callback }
    };
    ($($callback:ident)::+! { $($arguments:tt)* }) => {
        $crate::for_each_integer! { @rows [$($callback)::+!] { $($arguments)* } }
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

/// Appends the rows of the float types to those of the integers.
#[doc(hidden)]
#[macro_export]
macro_rules! with_floats {
    ({ [$($callback:tt)*] { $($arguments:tt)* } } $($integers:tt)*) => {
        $($callback)*! {
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
