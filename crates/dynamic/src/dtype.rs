//! The types of elements.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use gpu_reduce::Element;

/// A type of elements, by its name in Rust.
#[expect(non_camel_case_types, reason = "each variant has the name of its Rust type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// Integers of 8 bits.
    i8,
    /// Integers of 16 bits.
    i16,
    /// Integers of 32 bits.
    i32,
    /// Integers of 64 bits.
    i64,
    /// Integers of 8 bits that are not negative.
    u8,
    /// Integers of 16 bits that are not negative.
    u16,
    /// Integers of 32 bits that are not negative.
    u32,
    /// Integers of 64 bits that are not negative.
    u64,
    /// Floats of 16 bits, as IEEE 754 defines them.
    f16,
    /// Floats of 16 bits with the exponent of `f32`.
    bf16,
    /// Floats of 32 bits.
    f32,
    /// Floats of 64 bits.
    f64,
}

/// Evaluates an expression with the type `$T` that a [`Dtype`] names.
#[macro_export]
macro_rules! with_type {
    ($dtype:expr, $T:ident => $value:expr) => {
        $crate::with_type!(@ $dtype, $T => $value, i8 i16 i32 i64 u8 u16 u32 u64 f32 f64; f16 bf16)
    };
    (@ $dtype:expr, $T:ident => $value:expr, $($type:ident)*; $($half:ident)*) => {
        match $dtype {
            $($crate::Dtype::$type => {
                type $T = $type;
                $value
            })*
            $($crate::Dtype::$half => {
                type $T = $crate::gpu_reduce::$half;
                $value
            })*
        }
    };
}

macro_rules! names {
    ($($dtype:ident $($alias:literal)*;)*) => {
        impl Dtype {
            /// All types.
            pub const ALL: &[Self] = &[$(Self::$dtype),*];

            /// The name in Rust.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$dtype => stringify!($dtype),)*
                }
            }

            /// The names in NumPy and C, which [`FromStr`] understands too.
            pub const fn aliases(self) -> &'static [&'static str] {
                match self {
                    $(Self::$dtype => &[$($alias),*],)*
                }
            }
        }
    };
}

names! {
    i8 "int8";
    i16 "int16";
    i32 "int32";
    i64 "int64";
    u8 "uint8";
    u16 "uint16";
    u32 "uint32";
    u64 "uint64";
    f16 "float16" "half";
    bf16 "bfloat16";
    f32 "float32" "float";
    f64 "float64" "double";
}

impl Dtype {
    /// The size of an element in bytes.
    pub fn size(self) -> usize {
        with_type!(self, T => size_of::<T>())
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name in Rust or one of the [aliases](Dtype::aliases).
impl FromStr for Dtype {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let is_named = |dtype: &&Self| dtype.name() == name || dtype.aliases().contains(&name);
        let names = || Self::ALL.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
        Self::ALL
            .iter()
            .find(is_named)
            .copied()
            .ok_or_else(|| format!("no type of elements; there are {}", names()))
    }
}

/// `bytes` as elements; copies them only if they are not aligned for `T`. Bytes that are no whole element at
/// the end are left out.
pub fn cast<T: Element>(bytes: &[u8]) -> Cow<'_, [T]> {
    let whole = &bytes[..bytes.len() - bytes.len() % size_of::<T>()];
    match bytemuck::try_cast_slice(whole) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => Cow::Owned(whole.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()),
    }
}
