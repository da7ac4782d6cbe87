//! The inputs of reductions: a view, shards on several devices, or a pair of these.

use crate::by_index::{Indices, Order};
use crate::cuda::Gpu;
use crate::place::Place::{self, Cpu, Gpu as OnGpu};
use crate::sharded::Shards;
use crate::{Buffer, Device, Error, Item, Reduce, View, cpu::Source};
use gpu_reduce_kernels::input::Input;
use std::ops::Range;

/// Borrowed input of a reduction.
///
/// It is a [`View`], the [`Shards`] of several devices, or a pair of these with the same length, whose
/// elements are reduced in pairs. Kernels trust its pointers and lengths, so only the library implements it:
/// a program's own [`Reduce`](crate::Reduce) returns a value of these types.
pub trait Data<'a>: Clone + sealed::Sealed {
    /// An element, or a pair of elements.
    type Item: Copy + 'static;

    /// The items as slices on the CPU.
    #[doc(hidden)]
    type Slices: Source<Item = Self::Item>;

    /// The items as pointers on a GPU.
    #[doc(hidden)]
    type Pointers: Input<Item = Self::Item>;

    /// The items of one device.
    #[doc(hidden)]
    type Shard: Shard<'a>
        + Data<'a, Shard = Self::Shard, Item = Self::Item, Slices = Self::Slices, Pointers = Self::Pointers>;

    /// Copies of items.
    #[doc(hidden)]
    type Owned: Reduce<Item = Self::Item>;

    /// Copies items in an order to the device where they lie.
    #[doc(hidden)]
    fn gather(&self, order: &Order) -> Result<Self::Owned, Error>;

    /// Copies the items to the host.
    #[doc(hidden)]
    fn to_host(&self) -> Result<Self::Owned, Error>;

    /// Copies items in the order of their indices, which are below `count`. Returns where those of each
    /// begin.
    #[doc(hidden)]
    fn sort(&self, indices: &Indices, count: usize) -> Result<(Self::Owned, Order), Error> {
        let order = indices.order(count)?;
        Ok((self.gather(&order)?, order))
    }

    /// Whether the items may be on several devices.
    #[doc(hidden)]
    const MAY_BE_SHARDED: bool;

    /// The items of each device, in order.
    #[doc(hidden)]
    fn shards(&self) -> Result<Vec<Self::Shard>, Error>;

    #[doc(hidden)]
    fn len(&self) -> usize;

    #[doc(hidden)]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items' slices or pointers, if they are on one device.
    #[doc(hidden)]
    fn place(&self) -> Result<PlaceOf<'a, Self>, Error>;
}

/// Input on one device.
pub trait Shard<'a>: Data<'a> + Copy + Send + Sync {
    /// The items in `range`.
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
    type Owned = Buffer<T>;
    const MAY_BE_SHARDED: bool = false;

    fn gather(&self, order: &Order) -> Result<Buffer<T>, Error> {
        match (self.0, order) {
            (Cpu(items), _) => Ok(Buffer::of_host(order.gather(items)?)),
            (OnGpu(part), Order::OfGpu { places, .. }) => {
                let mut copies = Buffer::<T>::room(part.gpu, places.len())?;
                let layout = [size_of::<T>(), align_of::<T>()];
                if let (OnGpu(to), OnGpu(from)) = (copies.whole_mut(), places.view().place()?) {
                    // SAFETY: there is a place for each copy, and an item at each place.
                    unsafe {
                        part.gpu.gather(part.pointer().cast(), layout, (from.1, places.len()), to.cast())?
                    };
                }
                Ok(copies)
            }
            (OnGpu(_), _) => self.device().upload(&order.gather(&self.to_vec()?)?),
        }
    }

    fn to_host(&self) -> Result<Buffer<T>, Error> {
        Ok(Buffer::of_host(self.to_vec()?))
    }

    fn sort(&self, indices: &Indices, count: usize) -> Result<(Buffer<T>, Order), Error> {
        match self.0 {
            OnGpu(part)
                if matches!(size_of::<T>(), 1 | 2 | 4 | 8)
                    && align_of::<T>() == size_of::<T>()
                    && indices.can_be_sorted(count) =>
            {
                let mut sorted = Buffer::<T>::room(part.gpu, indices.len())?;
                let OnGpu(to) = sorted.whole_mut() else { unreachable!("it lies on a GPU") };
                let items = (part.pointer().cast(), size_of::<T>());
                // SAFETY: there are as many items as indices, and room for them.
                let offsets = unsafe { indices.sort(part.gpu, count, items, to.cast())? };
                Ok((sorted, Order::without_places(offsets)?))
            }
            _ => {
                let order = indices.order(count)?;
                Ok((self.gather(&order)?, order))
            }
        }
    }

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
    type Owned = (A::Owned, B::Owned);
    const MAY_BE_SHARDED: bool = A::MAY_BE_SHARDED || B::MAY_BE_SHARDED;

    fn gather(&self, order: &Order) -> Result<Self::Owned, Error> {
        Ok((self.0.gather(order)?, self.1.gather(order)?))
    }

    fn to_host(&self) -> Result<Self::Owned, Error> {
        Ok((self.0.to_host()?, self.1.to_host()?))
    }

    fn shards(&self) -> Result<Vec<Self::Shard>, Error> {
        let (first, second) = (self.0.shards()?, self.1.shards()?);
        if first.iter().map(Data::len).eq(second.iter().map(Data::len)) {
            return Ok(first.into_iter().zip(second).collect());
        }
        let first = format!("{:?}", first.iter().map(Data::len).collect::<Vec<_>>());
        let second = format!("{:?}", second.iter().map(Data::len).collect::<Vec<_>>());
        Err(Error::ShardMismatch { first, second })
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn place(&self) -> Result<PlaceOf<'a, Self>, Error> {
        let (first, second) = (self.0.len(), self.1.len());
        if first != second {
            return Err(Error::LengthMismatch { first, second });
        }
        match (self.0.place()?, self.1.place()?) {
            (Cpu(a), Cpu(b)) => Ok(Cpu((a, b))),
            (OnGpu((gpu, a)), OnGpu((other, b))) if gpu == other => Ok(OnGpu((gpu, (a, b)))),
            (first, second) => Err(other_device(gpu_of(&first), &device_of(gpu_of(&second)))),
        }
    }
}

/// The GPU of a place; none on the CPU.
pub fn gpu_of<C, P>(place: &Place<C, (&'static Gpu, P)>) -> Option<&'static Gpu> {
    match place {
        Cpu(_) => None,
        OnGpu((gpu, _)) => Some(gpu),
    }
}

/// Returns an error unless `gpu` (the CPU if none) is `device`.
pub fn lies_on(gpu: Option<&'static Gpu>, device: &Device) -> Result<(), Error> {
    match (gpu, &device.0) {
        (None, Cpu(())) => Ok(()),
        (Some(gpu), OnGpu(other)) if gpu == *other => Ok(()),
        _ => Err(other_device(gpu, device)),
    }
}

/// The error for data on `gpu` (the CPU if none) in a call on `device`.
#[cold]
pub fn other_device(gpu: Option<&'static Gpu>, device: &Device) -> Error {
    Error::DeviceMismatch { buffer: device_of(gpu).to_string(), device: device.to_string() }
}

fn device_of(gpu: Option<&'static Gpu>) -> Device {
    Device(gpu.map_or(Cpu(()), OnGpu))
}
