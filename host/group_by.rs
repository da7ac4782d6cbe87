//! Reductions by keys of any value: items with equal keys are a group.

mod number;

use crate::by_index::{IndexReduction, Order};
use crate::data::{Data, gpu_of, lies_on};
use crate::operators::Operators;
use crate::place::Place::{Cpu, Gpu};
use crate::request::{KeyColumn, MOST_ORDERED};
use crate::{
    Block, Buffer, Device, Element, Error, Item, Op, Parameterless, Pending, Reduce, Stream, Threads, View,
};
use gpu_reduce_kernels::keys::bits;
use number::number;

/// Keys: an array of keys, or several columns of keys, in pairs, `(&a, &b)` or `(&a, (&b, &c))`.
///
/// Keys are elements of the twelve types, all columns together of at most 16 bytes. They are equal as in
/// NumPy's `unique`: −0.0 equals +0.0, and NaN equals NaN. The first column orders first.
pub trait Keys<'a>: Data<'a> {
    /// Bytes of a key of all columns.
    #[doc(hidden)]
    const BYTES: usize;

    /// The bits of an item's key, which order as the keys do.
    ///
    /// # Safety
    ///
    /// There is such an item.
    #[doc(hidden)]
    unsafe fn bits(keys: &Self::Slices, place: usize) -> u128;

    /// Appends the columns on a GPU.
    #[doc(hidden)]
    fn columns(keys: &Self::Pointers, columns: &mut Vec<KeyColumn>);
}

impl<'a, K: Element + Item> Keys<'a> for View<'a, K> {
    const BYTES: usize = size_of::<K>();

    #[inline(always)]
    unsafe fn bits(keys: &&'a [K], place: usize) -> u128 {
        // SAFETY: as the caller vouches. (With a check, the search for the extremes is not vectorized.)
        bits(unsafe { *keys.get_unchecked(place) }).into()
    }

    fn columns(&keys: &*const K, columns: &mut Vec<KeyColumn>) {
        columns.push(KeyColumn::new(keys));
    }
}

impl<'a, A: Keys<'a>, B: Keys<'a>> Keys<'a> for (A, B) {
    const BYTES: usize = A::BYTES + B::BYTES;

    #[inline(always)]
    unsafe fn bits((a, b): &(A::Slices, B::Slices), place: usize) -> u128 {
        // SAFETY: as the caller vouches.
        unsafe { A::bits(a, place) << (8 * B::BYTES) | B::bits(b, place) }
    }

    fn columns((a, b): &(A::Pointers, B::Pointers), columns: &mut Vec<KeyColumn>) {
        A::columns(a, columns);
        B::columns(b, columns);
    }
}

/// Items that are grouped by their keys: the number of each item's group, and the key of each group.
///
/// The numbers are indices for any array with as many items: `x.by_index(groups.numbers(), groups.len())`.
/// [`Reduce::group_by`] does both.
///
/// ```
/// use gpu_reduce::{Device, Groups};
///
/// let device = Device::default_device();
/// let keys = device.upload(&[7i32, -3, 7, 40])?;
/// let groups = Groups::of(&keys)?;
/// assert_eq!(groups.keys().to_vec()?, [-3, 7, 40]);
/// assert_eq!(groups.numbers().to_vec()?, [1, 0, 1, 2]);
/// let groups = Groups::in_order_of_appearance(&keys)?;
/// assert_eq!(groups.keys().to_vec()?, [7, -3, 40]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Debug)]
pub struct Groups<K> {
    numbers: Buffer<u32>,
    keys: K,
    len: usize,
}

impl<K> Groups<K> {
    /// Groups items by their keys; groups ascend by key, NaN last. Of floats that are equal but differ in
    /// their bits, a group's key is the first.
    ///
    /// # Errors
    ///
    /// [`Error::KeysTooWide`] for columns of more than 16 bytes together, [`Error::LengthMismatch`] if
    /// columns differ in length, [`Error::DeviceMismatch`], [`Error::OutOfMemory`], [`Error::Launch`],
    /// [`Error::Driver`].
    pub fn of<'a, Q>(keys: &'a Q) -> Result<Self, Error>
    where
        Q: Reduce<Data<'a>: Keys<'a, Owned = K>> + ?Sized,
    {
        Self::new(keys.data(), false)
    }

    /// Groups items by their keys; groups stand in the order of the first item of each.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub fn in_order_of_appearance<'a, Q>(keys: &'a Q) -> Result<Self, Error>
    where
        Q: Reduce<Data<'a>: Keys<'a, Owned = K>> + ?Sized,
    {
        Self::new(keys.data(), true)
    }

    pub(crate) fn new<'a, D: Keys<'a, Owned = K>>(keys: D, by_place: bool) -> Result<Self, Error> {
        if D::BYTES > 16 {
            return Err(Error::KeysTooWide { bytes: D::BYTES });
        }
        let (numbers, order) = match keys.place()? {
            Gpu((gpu, pointers)) if (1..=MOST_ORDERED).contains(&keys.len()) => {
                let mut columns = Vec::new();
                D::columns(&pointers, &mut columns);
                // SAFETY: the keys are borrowed.
                let (numbers, places) = unsafe { gpu.number(&columns, keys.len(), by_place)? };
                (numbers, Order::of_gpu(places)?)
            }
            Gpu(_) if !keys.is_empty() => return Err(Error::TooManyKeys { len: keys.len() }),
            place => {
                let (numbers, places) = match &place {
                    Cpu(slices) => number_on_host::<D>(slices, keys.len(), by_place),
                    Gpu(_) => Default::default(),
                };
                let numbers = match place {
                    Cpu(_) => Buffer::of_host(numbers),
                    Gpu((gpu, _)) => Buffer::room(gpu, 0)?,
                };
                (numbers, Order::of_host(places))
            }
        };
        Ok(Self { numbers, len: order.len(), keys: keys.gather(&order)? })
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the key of each group: a buffer, or for columns a pair of buffers.
    pub fn keys(&self) -> &K {
        &self.keys
    }

    /// Returns the key of each group.
    pub fn into_keys(self) -> K {
        self.keys
    }

    /// Returns the number of each item's group.
    pub fn numbers(&self) -> &Buffer<u32> {
        &self.numbers
    }
}

/// Numbers keys on the CPU. Returns the number of each item's key, and the first item of each number.
fn number_on_host<'a, D: Keys<'a>>(keys: &D::Slices, len: usize, by_place: bool) -> (Vec<u32>, Vec<usize>) {
    macro_rules! number {
        ($type:ident) => {
            // SAFETY: `number` asks for places below `len`, which all columns have.
            number(len, |place| unsafe { D::bits(keys, place) } as $type).with_places(by_place)
        };
    }
    match D::BYTES {
        0..=4 => number!(u32),
        5..=8 => number!(u64),
        _ => number!(u128),
    }
}

/// Items that are grouped by keys: what [`Reduce::group_by`] returns.
///
/// Each result depends on the items of its group alone, and on their order, as with
/// [`ByIndex`](crate::ByIndex): sums and means of floats are the correctly rounded ones, in any order of the
/// items. Operators that return indices, as [`ArgMax`](crate::ArgMax), return those of the whole array.
///
/// ```
/// use gpu_reduce::{Device, Max, Mean, Reduce, Sum};
///
/// let device = Device::default_device();
/// let cities = device.upload(&[30u64, 10, 30, 10, 20])?;
/// let years = device.upload(&[1999i16, 2000, 1999, 2001, 2000])?;
/// let x = device.upload(&[1.0f32, 2.0, 4.0, 8.0, 16.0])?;
///
/// let groups = x.group_by(&cities)?;
/// assert_eq!(groups.keys().to_vec()?, [10, 20, 30]);
/// assert_eq!(groups.reduce::<Sum, 256>()?.to_vec()?, [10.0, 16.0, 5.0]);
/// let (means, largest) = groups.by((Mean, Max))?.run()?;
/// assert_eq!(largest.to_vec()?, [8.0, 16.0, 4.0]);
///
/// let groups = x.group_by(&(&cities, &years))?;
/// let (cities, years) = groups.keys();
/// assert_eq!(cities.to_vec()?, [10, 10, 20, 30]);
/// assert_eq!(years.to_vec()?, [2000, 2001, 2000, 1999]);
/// assert_eq!(groups.reduce::<Sum, 256>()?.to_vec()?, [2.0, 8.0, 16.0, 5.0]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Debug)]
pub struct GroupBy<'a, X: ?Sized, K> {
    items: &'a X,
    groups: Groups<K>,
}

impl<'a, X: Reduce + ?Sized, K> GroupBy<'a, X, K> {
    pub(crate) fn new<'k, D: Keys<'k, Owned = K>>(items: &'a X, keys: D) -> Result<Self, Error> {
        let (first, second) = (items.data().len(), keys.len());
        if first != second {
            return Err(Error::LengthMismatch { first, second });
        }
        if let Gpu((gpu, _)) = keys.place()?
            && first > 0
        {
            lies_on(gpu_of(&items.data().place()?), &Device(Gpu(gpu)))?;
        }
        Ok(Self { items, groups: Groups::new(keys, false)? })
    }

    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.groups.len
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the key of each group, in ascending order: a buffer, or for columns a pair of buffers.
    pub fn keys(&self) -> &K {
        &self.groups.keys
    }

    /// Returns the groups, for other arrays of as many items.
    pub fn groups(&self) -> &Groups<K> {
        &self.groups
    }

    /// Reduces the items of each group, and waits. The results lie where the items do, in the order of
    /// [`keys`](Self::keys).
    ///
    /// # Errors
    ///
    /// As [`ByIndex::reduce`](crate::ByIndex::reduce).
    pub fn reduce<O: Op<X::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
    ) -> Result<Buffer<O::Output>, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.items.by_index(&self.groups.numbers, self.groups.len)?.reduce::<O, BLOCK>()
    }

    /// Describes the reduction by an operator, or by several in a tuple, which is then run as
    /// [`IndexReduction`] says.
    ///
    /// # Errors
    ///
    /// As [`Reduce::by_index`].
    pub fn by<O: Operators<X::Item, M>, M>(
        &self,
        ops: O,
    ) -> Result<IndexReduction<'_, X::Data<'_>, O, M>, Error> {
        Ok(self.items.by_index(&self.groups.numbers, self.groups.len)?.by(ops))
    }

    /// Starts the reduction of the items of each group on a stream, as [`Reduce::reduce_async`].
    ///
    /// # Errors
    ///
    /// As [`Reduce::by_index`].
    pub fn reduce_async<O: Op<X::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
        stream: &Stream,
    ) -> Result<Pending<'_, Buffer<O::Output>>, Error>
    where
        Threads<BLOCK>: Block,
    {
        Ok(self.items.by_index(&self.groups.numbers, self.groups.len)?.reduce_async::<O, BLOCK>(stream))
    }
}
