//! Parts of a reduction, serialised as their bytes.

use super::Partial;
use crate::{Block, Error, GroupKey, Item, Op, Parameterless, PartialGroups, Threads};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// What is read from bytes by an operator's default.
trait FromBytes: Sized {
    fn from_bytes(bytes: &[u8]) -> Result<Self, Error>;
}

impl<O: Op<T> + Parameterless, T: Item, const BLOCK: u32> FromBytes for Partial<O, T, BLOCK>
where
    Threads<BLOCK>: Block,
{
    fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_bytes(O::default(), bytes)
    }
}

impl<O: Op<T> + Default, K: GroupKey, T: Copy + 'static> FromBytes for PartialGroups<O, K, T> {
    fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_bytes(O::default(), bytes)
    }
}

/// Serialises the bytes of [`to_bytes`](Partial::to_bytes).
impl<O: Op<T>, T: Item, const BLOCK: u32> Serialize for Partial<O, T, BLOCK>
where
    Threads<BLOCK>: Block,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

/// Reads the bytes by [`from_bytes`](Partial::from_bytes) with the operator's default; other parameters are
/// an error.
impl<'de, O: Op<T> + Parameterless, T: Item, const BLOCK: u32> Deserialize<'de> for Partial<O, T, BLOCK>
where
    Threads<BLOCK>: Block,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes(PhantomData))
    }
}

/// Serialises the bytes of [`to_bytes`](PartialGroups::to_bytes).
impl<O: Op<T>, K: GroupKey, T: Copy + 'static> Serialize for PartialGroups<O, K, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

/// Reads the bytes by [`from_bytes`](PartialGroups::from_bytes) with the operator's default; other parameters
/// are an error.
impl<'de, O: Op<T> + Default, K: GroupKey, T: Copy + 'static> Deserialize<'de> for PartialGroups<O, K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes(PhantomData))
    }
}

struct Bytes<P>(PhantomData<P>);

impl<'de, P: FromBytes> Visitor<'de> for Bytes<P> {
    type Value = P;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the bytes of a partial result")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<P, E> {
        P::from_bytes(bytes).map_err(E::custom)
    }

    /// For formats without bytes, such as JSON.
    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<P, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = numbers.next_element()? {
            bytes.push(byte);
        }
        self.visit_bytes(&bytes)
    }
}
