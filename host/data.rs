//! What reduces: one array where it lies, or two together.

use crate::cuda::Gpu;
use crate::place::Place::{self, Cpu, Gpu as OnGpu};
use crate::sharded::Shards;
use crate::{Device, Error, Item, View, cpu::Source};
use gpu_reduce_kernels::input::Input;
use std::ops::Range;

/// Items where they lie: a [`View`], the [`Shards`] of several, or a pair of these of one length, whose elements reduce in
/// pairs. Kernels trust its pointers and lengths, so that only the library implements it. Its answers stay the same: what
/// a program's own [`Reduce`](crate::Reduce) says, it says once, as a value of these types.
pub trait Data<'a>: Clone + sealed::Sealed {
    /// An element, or a pair of elements.
    type Item: Copy + 'static;

    /// Where they are on the CPU.
    #[doc(hidden)]
    type Slices: Source<Item = Self::Item>;

    /// Where they are on a GPU.
    #[doc(hidden)]
    type Pointers: Input<Item = Self::Item>;

    /// Items on one device.
    #[doc(hidden)]
    type Shard: Shard<'a>
        + Data<'a, Shard = Self::Shard, Item = Self::Item, Slices = Self::Slices, Pointers = Self::Pointers>;

    /// Whether they may lie on several devices.
    #[doc(hidden)]
    const MAY_BE_SHARDED: bool;

    /// Those on each device, one after the other.
    #[doc(hidden)]
    fn shards(&self) -> Result<Vec<Self::Shard>, Error>;

    /// Items.
    #[doc(hidden)]
    fn len(&self) -> usize;

    /// Whether there are no items.
    #[doc(hidden)]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where they are.
    #[doc(hidden)]
    fn place(&self) -> Result<PlaceOf<'a, Self>, Error>;
}

/// Items that lie on one device.
pub trait Shard<'a>: Data<'a> + Copy + Send + Sync {
    /// Those in a range.
    #[doc(hidden)]
    fn part(self, range: Range<usize>) -> Result<Self, Error>;
}

impl<'a, T: Item> Shard<'a> for View<'a, T> {
    fn part(self, range: Range<usize>) -> Result<Self, Error> {
        self.slice(range)
    }
}

impl<'a, A: Shard<'a>, B: Shard<'a>> Shard<'a> for (A, B) {
    fn part(self, range: Range<usize>) -> Result<Self, Error> {
        Ok((self.0.part(range.clone())?, self.1.part(range)?))
    }
}

mod sealed {
    pub trait Sealed {}
}

impl<T: Item> sealed::Sealed for View<'_, T> {}

impl<A: sealed::Sealed, B: sealed::Sealed> sealed::Sealed for (A, B) {}

impl<V> sealed::Sealed for Shards<V> {}

/// Where data are: slices on the CPU, or pointers on a GPU.
pub type PlaceOf<'a, D> = Place<<D as Data<'a>>::Slices, (&'static Gpu, <D as Data<'a>>::Pointers)>;

impl<'a, T: Item> Data<'a> for View<'a, T> {
    type Item = T;
    type Slices = &'a [T];
    type Pointers = *const T;
    type Shard = Self;
    const MAY_BE_SHARDED: bool = false;

    fn shards(&self) -> Result<Vec<Self>, Error> {
        Ok(vec![*self])
    }

    fn len(&self) -> usize {
        View::len(*self)
    }

    fn place(&self) -> Result<PlaceOf<'a, Self>, Error> {
        Ok(match self.0 {
            Cpu(data) => Cpu(data),
            OnGpu(part) => OnGpu((part.gpu, part.pointer())),
        })
    }
}

impl<'a, A: Data<'a>, B: Data<'a>> Data<'a> for (A, B) {
    type Item = (A::Item, B::Item);
    type Slices = (A::Slices, B::Slices);
    type Pointers = (A::Pointers, B::Pointers);
    type Shard = (A::Shard, B::Shard);
    const MAY_BE_SHARDED: bool = A::MAY_BE_SHARDED || B::MAY_BE_SHARDED;

    fn shards(&self) -> Result<Vec<Self::Shard>, Error> {
        let (first, second) = (self.0.shards()?, self.1.shards()?);
        let lens = |lens: &[usize]| format!("{lens:?}");
        let of_first: Vec<_> = first.iter().map(|shard| shard.len()).collect();
        let of_second: Vec<_> = second.iter().map(|shard| shard.len()).collect();
        match of_first == of_second {
            true => Ok(first.into_iter().zip(second).collect()),
            false => Err(Error::OtherShards { first: lens(&of_first), second: lens(&of_second) }),
        }
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn place(&self) -> Result<PlaceOf<'a, Self>, Error> {
        let (first, second) = (self.0.len(), self.1.len());
        if first != second {
            return Err(Error::OtherLength { first, second });
        }
        match (self.0.place()?, self.1.place()?) {
            (Cpu(a), Cpu(b)) => Ok(Cpu((a, b))),
            (OnGpu((gpu, a)), OnGpu((other, b))) if gpu == other => Ok(OnGpu((gpu, (a, b)))),
            (first, second) => Err(apart(gpu_of(&first), gpu_of(&second))),
        }
    }
}

/// The GPU where data are; on the CPU, none.
pub fn gpu_of<C, P>(place: &Place<C, (&'static Gpu, P)>) -> Option<&'static Gpu> {
    match place {
        Cpu(_) => None,
        OnGpu((gpu, _)) => Some(gpu),
    }
}

/// An error unless what lies on this GPU, or on the CPU, lies on `device`.
pub fn lies_on(gpu: Option<&'static Gpu>, device: &Device) -> Result<(), Error> {
    match (gpu, &device.0) {
        (None, Cpu(())) => Ok(()),
        (Some(gpu), OnGpu(other)) if gpu == *other => Ok(()),
        _ => Err(other_device(gpu, device)),
    }
}

/// What lies on this GPU, or on the CPU, does not lie on `device`.
#[cold]
pub fn other_device(gpu: Option<&'static Gpu>, device: &Device) -> Error {
    let buffer = Device(gpu.map_or(Cpu(()), OnGpu));
    Error::OtherDevice { buffer: buffer.to_string(), device: device.to_string() }
}

/// Two data of a pair lie on two devices.
#[cold]
fn apart(first: Option<&'static Gpu>, second: Option<&'static Gpu>) -> Error {
    let name = |gpu: Option<&'static Gpu>| gpu.map_or("the CPU".to_owned(), |gpu| gpu.to_string());
    Error::OtherDevice { buffer: name(first), device: name(second) }
}
