//! The types of numbers.

use std::borrow::Cow;

use clap::ValueEnum;
use gpu_reduce::{Element, bf16, f16};

#[cfg(target_endian = "big")]
compile_error!("this program reinterprets little-endian input in memory, so it needs a little-endian target");

/// The type of the numbers.
#[expect(non_camel_case_types, reason = "each variant has the name of its Rust type")]
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Dtype {
    #[value(alias = "int8")]
    i8,
    #[value(alias = "int16")]
    i16,
    #[value(alias = "int32")]
    i32,
    #[value(alias = "int64")]
    i64,
    #[value(alias = "uint8")]
    u8,
    #[value(alias = "uint16")]
    u16,
    #[value(alias = "uint32")]
    u32,
    #[value(alias = "uint64")]
    u64,
    #[value(aliases = ["float16", "half"])]
    f16,
    #[value(alias = "bfloat16")]
    bf16,
    #[value(aliases = ["float32", "float"])]
    f32,
    #[value(aliases = ["float64", "double"])]
    f64,
}

/// Evaluates an expression with the type `$T` that a [`Dtype`] names.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $value:expr) => {
        with_type!(@ $dtype, $T => $value, i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64)
    };
    (@ $dtype:expr, $T:ident => $value:expr, $($type:ident)*) => {
        match $dtype {
            $(Dtype::$type => {
                type $T = $type;
                $value
            })*
        }
    };
}
pub(crate) use with_type;

impl Dtype {
    /// The size of a number in bytes.
    pub fn size(self) -> usize {
        with_type!(self, T => size_of::<T>())
    }
}

/// `bytes` as numbers; copies them only if they are not aligned for `T`. Their length must be a multiple of
/// the size of `T`.
pub fn cast<T: Element>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => Cow::Owned(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()),
    }
}
