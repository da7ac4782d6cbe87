//! Keys of groups as values: their bits, which order as they do.

use crate::{Buffer, Error, Reduce, bf16, f16};
use gpu_reduce_kernels::keys::{bits, key_of_bits};
use std::marker::PhantomData;

/// A key of groups: an element of the twelve types, or a pair of keys, `(a, b)` or `(a, (b, c))`, of at most
/// 16 bytes together.
///
/// ```
/// use gpu_reduce::{Error, GroupKey, PartialGroups, Sum};
///
/// fn merged<K: GroupKey>(
///     mut parts: Vec<PartialGroups<Sum, K, f64>>,
/// ) -> Result<Option<PartialGroups<Sum, K, f64>>, Error> {
///     let Some(mut all) = parts.pop() else { return Ok(None) };
///     parts.into_iter().try_for_each(|part| all.merge(part))?;
///     Ok(Some(all))
/// }
/// ```
pub trait GroupKey: Copy + 'static {
    /// Bytes of a key.
    #[doc(hidden)]
    const BYTES: usize;

    /// Keys: a buffer, or for pairs a pair of buffers.
    type Columns: Reduce<Item = Self>;

    /// The bits of keys.
    #[doc(hidden)]
    fn bits(columns: &Self::Columns) -> Result<Vec<u128>, Error>;

    /// The keys with these bits, in host memory.
    #[doc(hidden)]
    fn columns(bits: Vec<u128>) -> Self::Columns;

    /// Whether a key has these bits.
    #[doc(hidden)]
    fn has(bits: u128) -> bool;
}

macro_rules! keys {
    ({} $($type:ident: $($row:ident)*;)*) => {$(
        impl GroupKey for $type {
            const BYTES: usize = size_of::<$type>();

            type Columns = Buffer<$type>;

            fn bits(columns: &Buffer<$type>) -> Result<Vec<u128>, Error> {
                Ok(columns.to_vec()?.into_iter().map(|key| bits(key).into()).collect())
            }

            fn columns(bits: Vec<u128>) -> Buffer<$type> {
                Buffer::of_host(bits.into_iter().map(|bits| key_of_bits(bits as u64)).collect())
            }

            fn has(of_key: u128) -> bool {
                u128::from(bits(key_of_bits::<$type>(of_key as u64))) == of_key
            }
        }
    )*};
}

crate::for_each_element! { keys! {} }

// As elements are.
#[cfg(target_pointer_width = "64")]
keys! { {} usize:; isize:; }

/// A key that may be an index: `u32`, `u64`, `i32`, `i64` or `usize`.
pub trait IndexKey: GroupKey {
    /// The index with these bits.
    #[doc(hidden)]
    fn index(bits: u128) -> i128;
}

macro_rules! indices {
    ($($type:ident)*) => {$(
        impl IndexKey for $type {
            fn index(bits: u128) -> i128 {
                key_of_bits::<$type>(bits as u64) as i128
            }
        }
    )*};
}

indices! { u32 u64 i32 i64 }
#[cfg(target_pointer_width = "64")]
indices! { usize }

impl<A: GroupKey, B: GroupKey> GroupKey for (A, B) {
    const BYTES: usize = A::BYTES + B::BYTES;

    type Columns = (A::Columns, B::Columns);

    fn bits((a, b): &Self::Columns) -> Result<Vec<u128>, Error> {
        let both = A::bits(a)?.into_iter().zip(B::bits(b)?);
        Ok(both.map(|(a, b)| a << (8 * B::BYTES) | b).collect())
    }

    fn columns(bits: Vec<u128>) -> Self::Columns {
        let a = A::columns(bits.iter().map(|bits| bits >> (8 * B::BYTES)).collect());
        let low = |bits: u128| bits & (u128::MAX >> (128 - 8 * B::BYTES));
        (a, B::columns(bits.into_iter().map(low).collect()))
    }

    fn has(bits: u128) -> bool {
        A::has(bits >> (8 * B::BYTES)) && B::has(bits & (u128::MAX >> (128 - 8 * B::BYTES)))
    }
}

/// The bits of different keys, which ascend; K::BYTES bytes each.
pub struct KeyList<K> {
    bytes: Vec<u8>,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for KeyList<K> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), of: PhantomData }
    }
}

impl<K: GroupKey> KeyList<K> {
    pub fn with_capacity(keys: usize) -> Self {
        Self { bytes: Vec::with_capacity(keys * K::BYTES), of: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.bytes.len() / K::BYTES
    }

    pub fn push(&mut self, bits: u128) {
        self.bytes.extend_from_slice(&bits.to_le_bytes()[..K::BYTES]);
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = u128> {
        self.bytes.chunks_exact(K::BYTES).map(|key| {
            let mut bits = [0; 16];
            bits[..K::BYTES].copy_from_slice(key);
            u128::from_le_bytes(bits)
        })
    }

    /// Returns the bits of any keys that ascend.
    pub fn of(bits: &[u128]) -> Self {
        let mut keys = Self::with_capacity(bits.len());
        bits.iter().for_each(|&bits| keys.push(bits));
        keys
    }
}
