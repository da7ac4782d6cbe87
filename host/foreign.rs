//! Arrays of other libraries: the names of their element types, and their layout.

use crate::{Error, Item, bf16, f16, for_each_alias};
use std::fmt::Debug;

/// A type that the array protocols can name: the types of [`Element`](crate::Element), and `bool`.
pub trait ArrayItem: Item + Named {}

/// The names of a type in the array protocols.
pub trait Named {
    /// The name in Rust.
    const NAME: &'static str;

    /// NumPy's `typestr`, for little-endian elements, as GPUs have them.
    const TYPESTR: &'static str;

    /// DLPack's `DLDataTypeCode`.
    #[cfg(feature = "dlpack")]
    const CODE: u8;
}

macro_rules! array_items {
    ($($type:ident: $typestr:literal $code:literal;)*) => {$(
        impl ArrayItem for $type {}
        impl Named for $type {
            const NAME: &'static str = stringify!($type);
            const TYPESTR: &'static str = $typestr;
            #[cfg(feature = "dlpack")]
            const CODE: u8 = $code;
        }
    )*};
}

// NumPy has no bf16: `<V2` is the `typestr` of ml_dtypes and PyTorch (pytorch/pytorch, pull request 143042).
array_items! {
    bool: "|b1" 6;
    i8: "|i1" 0;
    i16: "<i2" 0;
    i32: "<i4" 0;
    i64: "<i8" 0;
    u8: "|u1" 1;
    u16: "<u2" 1;
    u32: "<u4" 1;
    u64: "<u8" 1;
    f16: "<f2" 2;
    bf16: "<V2" 4;
    f32: "<f4" 2;
    f64: "<f8" 2;
}

macro_rules! aliases {
    ({} $($type:ident: $other:ident;)*) => {$(
        impl ArrayItem for $type {}
        impl Named for $type {
            const NAME: &'static str = stringify!($type);
            const TYPESTR: &'static str = <$other as Named>::TYPESTR;
            #[cfg(feature = "dlpack")]
            const CODE: u8 = <$other as Named>::CODE;
        }
    )*};
}

for_each_alias! { aliases! {} }

/// Returns the number of `T`s in an array that must be C-contiguous.
///
/// `unit` is the stride between neighbouring elements, and `units` names what strides count. An axis of
/// length 1 may have any stride, an empty array any strides.
pub fn contiguous_len<T, L, S>(
    shape: &[L],
    strides: Option<&[S]>,
    (unit, units): (usize, &str),
) -> Result<usize, Error>
where
    L: Copy + Debug + TryInto<usize>,
    S: Copy + Debug + TryInto<usize>,
{
    if let Some(strides) = strides.filter(|strides| strides.len() != shape.len()) {
        return Err(Error::BadArray(format!(
            "its shape {shape:?} and its strides {strides:?} differ in length"
        )));
    }
    let length = |axis: usize| {
        let bad = |_| Error::BadArray(format!("its shape {shape:?} has a length below 0 or too large"));
        shape[axis].try_into().map_err(bad)
    };
    for axis in 0..shape.len() {
        if length(axis)? == 0 {
            return Ok(0);
        }
    }
    let mut len = 1usize;
    for axis in (0..shape.len()).rev() {
        let length = length(axis)?;
        if let Some(strides) = strides
            && length > 1
            && strides[axis].try_into().ok() != Some(unit * len)
        {
            let strides = format!("{strides:?} {units}");
            return Err(Error::NotContiguous { shape: format!("{shape:?}"), strides });
        }
        let fits = |&len: &usize| len <= isize::MAX as usize / size_of::<T>();
        len = len.checked_mul(length).filter(fits).ok_or_else(|| {
            Error::BadArray(format!("its shape {shape:?} has more bytes than an address space"))
        })?;
    }
    Ok(len)
}
