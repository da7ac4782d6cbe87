//! The typed call, and the one-line functions.

use crate::data::{Data, gpu_of, lies_on};
use crate::place::Place::{Cpu, Gpu};
use crate::{
    Block, Buffer, ByIndex, Comparison, Device, Element, Error, GroupBy, Indices, Item, Keys, Offsets, Op,
    Parameterless, Pending, PinnedBuffer, Reduction, Reshaped, Runs, Segments, Stream, Threads, View,
    ViewMut, for_each_comparison, for_each_integer_operator, for_each_operator, for_each_pair_operator,
};
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

/// Data that can be reduced.
///
/// Buffers and views reduce on the device where they lie, and slices in host memory on the CPU. A pair of two
/// reduces item by item, by an operator of pairs. (A GPU would not help slices: a CPU thread sums data in the
/// time that it takes to copy them to the GPU.)
///
/// The result's bits depend on the elements, their number, the operator and `BLOCK` alone: not on the device,
/// its size, the data's alignment, nor the number of threads. `BLOCK`, the threads of a block on a GPU, is a
/// power of two from 32 to 1024; another does not compile.
///
/// ```
/// use gpu_reduce::{Min, Reduce, Sum};
///
/// let samples = vec![0.5f32; 1000];
/// assert_eq!(samples.reduce::<Sum, 256>()?, 500.0);
/// assert_eq!(samples.reduce::<Min, 64>()?, 0.5);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// ```compile_fail
/// use gpu_reduce::{Reduce, Sum};
///
/// [1, 2, 3].reduce::<Sum, 48>();
/// ```
///
/// Without `use gpu_reduce::Reduce`, the compiler finds the method `reduce` of iterators instead, and says
/// that a `Vec` is not an iterator. The one-line functions, as [`sum`], need no `use`. A `VecDeque` lies in
/// two pieces: join them by [`make_contiguous`](std::collections::VecDeque::make_contiguous), or give both to
/// a [`Reducer`](crate::Reducer).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be reduced",
    label = "not an array in host or device memory, nor a pair of two",
    note = "slices, `Vec`, arrays, boxed and shared slices, and the library's buffers and views reduce, if their elements are plain values; collect an iterator first",
    note = "for arrays of ndarray, arrow-array and other libraries, see `ReduceAxis`, `ReduceArray` and `View`"
)]
pub trait Reduce {
    /// An element; of a pair, a pair of elements.
    type Item: Copy + 'static;

    /// The items where they lie.
    type Data<'a>: Data<'a, Item = Self::Item>
    where
        Self: 'a;

    /// Returns the items where they lie. Each call asks for them once, and reduces what it was told.
    fn data(&self) -> Self::Data<'_>;

    /// Returns the number of items. Calls take it from [`data`](Self::data).
    fn len(&self) -> usize {
        self.data().len()
    }

    /// Whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reduces the items where they lie, and waits for the result.
    ///
    /// For an operator with parameters, several operators at once, or a BLOCK that the library chooses, see
    /// [`by`](Self::by).
    ///
    /// # Errors
    ///
    /// [`Error::EmptyInput`] if there are no items and the operator has no value for none; of a pair,
    /// [`Error::LengthMismatch`] and [`Error::DeviceMismatch`]; on a GPU also [`Error::NoKernel`],
    /// [`Error::Launch`], [`Error::OutOfMemory`] and [`Error::Driver`].
    fn reduce<O: Op<Self::Item> + Parameterless, const BLOCK: u32>(&self) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.by(O::default()).block::<BLOCK>().run()
    }

    /// Describes the reduction by an operator, or by several in a tuple, which is then run as [`Reduction`]
    /// says.
    ///
    /// ```
    /// use gpu_reduce::{Max, Min, Reduce, Sum, Var};
    ///
    /// let x = [1.0f32, 2.0, 6.0];
    /// assert_eq!(x.by(Var::new(1)).block::<256>().run()?, 7.0);
    /// assert_eq!(x.by((Sum, Min, Max)).run()?, (9.0, 1.0, 6.0));
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    fn by<O: Op<Self::Item>>(&self, op: O) -> Reduction<'_, Self::Data<'_>, O> {
        Reduction::new(self.data(), op)
    }

    /// Reduces the items on `device`. Host data is copied there first.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce), and [`Error::DeviceMismatch`] for a buffer that lies elsewhere.
    fn reduce_on<O: Op<Self::Item> + Parameterless, const BLOCK: u32>(
        &self,
        device: &Device,
    ) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        let data = self.data();
        lies_on(gpu_of(&data.place()?), device)?;
        Reduction::new(data, O::default()).block::<BLOCK>().run()
    }

    /// Starts the reduction on a stream of the device where the items lie, and returns at once: the result is
    /// [`Pending`]. On the CPU it is there already.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let x = device.upload(&[1.5f32, 2.5])?;
    /// let stream = device.stream()?;
    /// let sum = x.reduce_async::<Sum, 256>(&stream);
    /// // … the program goes on …
    /// assert_eq!(sum.wait()?, 4.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    fn reduce_async<'a, O: Op<Self::Item> + Parameterless, const BLOCK: u32>(
        &'a self,
        stream: &Stream,
    ) -> Pending<'a, O::Output>
    where
        Threads<BLOCK>: Block,
    {
        self.by(O::default()).block::<BLOCK>().run_async(stream)
    }

    /// Enqueues the reduction on a stream of the device where the items lie. When the stream gets there, the
    /// result goes to the first element of `result`, on the same device.
    ///
    /// The call waits for nothing. It allocates and clears scratch memory only if it is the first of its kind
    /// on the stream; after that it may be captured in a CUDA graph ([`Stream::as_raw`]). If the operator has
    /// no value for the items, the element becomes zero. On the CPU the result is there when the call
    /// returns.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let x = device.upload(&[1.5f32, 2.5])?;
    /// let mut sums = device.zeros::<f32>(2)?;
    /// let stream = device.stream()?;
    /// // SAFETY: both buffers stay, and are not used otherwise, until the stream has been synchronized.
    /// unsafe { x.reduce_into::<Sum, 256>(&stream, sums.slice_mut(1..)?)? };
    /// stream.synchronize()?;
    /// assert_eq!(sums.to_vec()?, [0.0, 4.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, neither the items nor `result` are freed, the items are not
    /// written, and the element of `result` is neither read nor written. What is enqueued on the same stream
    /// may do so. The same holds for a graph that captured the call, each time it runs. Graphs that were
    /// captured on one `Stream`, and what is enqueued there, run one after the other.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if `result` has no element, [`Error::DeviceMismatch`], [`Error::Capture`] of a
    /// first call while the stream is captured, and as [`reduce`](Self::reduce). A launch that fails later is
    /// an error of the stream.
    unsafe fn reduce_into<'r, O: Op<Self::Item, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
        stream: &Stream,
        result: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error>
    where
        Threads<BLOCK>: Block,
    {
        // SAFETY: as the caller vouches.
        unsafe { self.by(O::default()).block::<BLOCK>().run_into(stream, result) }
    }

    /// Returns the segments between consecutive offsets, or the [`Runs`] of keys.
    ///
    /// Offsets are `u32` or `u64`, on the host or where the items lie. They do not descend, and there is one
    /// more of them than there are segments. Items before the first offset and after the last one are left
    /// out.
    ///
    /// # Errors
    ///
    /// [`Error::BadOffset`] of offsets on the host; [`Error::NoOffsets`]; of [`Runs`],
    /// [`Error::LengthMismatch`] and [`Error::DeviceMismatch`].
    fn segments<'a>(
        &'a self,
        offsets: impl Into<Offsets<'a>>,
    ) -> Result<Segments<'a, Self::Data<'a>>, Error> {
        Segments::new(self.data(), offsets.into())
    }

    /// Returns the rows of a row-major matrix with this number of columns.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the items are no whole number of rows.
    fn rows(&self, columns: usize) -> Result<Segments<'_, Self::Data<'_>>, Error> {
        Segments::rows(self.data(), columns)
    }

    /// Returns the columns of a row-major matrix with this number of columns.
    ///
    /// ```
    /// use gpu_reduce::{Max, Reduce, Sum};
    ///
    /// let x = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    /// assert_eq!(x.columns(3)?.reduce::<Sum, 256>()?.to_vec()?, [5.0, 7.0, 9.0]);
    /// assert_eq!(x.columns(2)?.reduce::<Max, 256>()?.to_vec()?, [5.0, 6.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the items are no whole number of rows.
    fn columns(&self, columns: usize) -> Result<Segments<'_, Self::Data<'_>>, Error> {
        let data = self.data();
        let len = data.len();
        match len.checked_rem(columns) {
            Some(0) => Ok(Segments::columns(data, [columns, len / columns, columns])),
            _ => Err(Error::Shape { shape: format!("{columns} columns"), len }),
        }
    }

    /// Returns the items as a row-major array with axes of these lengths, to be reduced over
    /// [some](Reshaped::axis) of them.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the product of the lengths is not the number of items.
    fn reshape(&self, shape: &[usize]) -> Result<Reshaped<'_, Self::Data<'_>>, Error> {
        Reshaped::new(self.data(), shape)
    }

    /// Returns the items with an index each, which names the one of `count` results that the item belongs to.
    ///
    /// Indices are `u32`, `u64`, `i32`, `i64` or `usize`, on the items' device.
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::DeviceMismatch`]; [`Error::TooManyGroups`] for more than 2^31
    /// results.
    fn by_index<'a>(
        &'a self,
        indices: impl Into<Indices<'a>>,
        count: usize,
    ) -> Result<ByIndex<'a, Self::Data<'a>>, Error> {
        ByIndex::new(self.data(), indices.into(), count)
    }

    /// Groups the items by their keys, which lie on the same device. Keys are elements of any type, or
    /// several columns of them, in any order; see [`Keys`].
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], and as [`Groups::of`](crate::Groups::of).
    fn group_by<'k, Q>(
        &self,
        keys: &'k Q,
    ) -> Result<GroupBy<'_, Self, <Q::Data<'k> as Data<'k>>::Owned>, Error>
    where
        Q: Reduce<Data<'k>: Keys<'k>> + ?Sized,
    {
        GroupBy::new(self, keys.data())
    }

    /// Finds the runs of equal neighbouring items, which are the keys of as many values on the same device:
    /// `values.segments(&keys.runs()?)`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`], [`Error::Launch`], [`Error::Driver`].
    fn runs<'a, K: Element>(&'a self) -> Result<Runs<K>, Error>
    where
        Self: Reduce<Data<'a>: Data<'a, Shard = View<'a, K>>>,
    {
        Runs::of(self.data())
    }
}

#[diagnostic::do_not_recommend]
impl<T: Item> Reduce for View<'_, T> {
    type Item = T;
    type Data<'a>
        = View<'a, T>
    where
        Self: 'a;

    fn data(&self) -> View<'_, T> {
        *self
    }
}

#[diagnostic::do_not_recommend]
impl<T: Item> Reduce for Buffer<T> {
    type Item = T;
    type Data<'a> = View<'a, T>;

    fn data(&self) -> View<'_, T> {
        self.view()
    }
}

#[diagnostic::do_not_recommend]
impl<A: Reduce, B: Reduce> Reduce for (A, B) {
    type Item = (A::Item, B::Item);
    type Data<'a>
        = (A::Data<'a>, B::Data<'a>)
    where
        Self: 'a;

    fn data(&self) -> Self::Data<'_> {
        (self.0.data(), self.1.data())
    }
}

#[diagnostic::do_not_recommend]
impl<D: Reduce + ?Sized> Reduce for &D {
    type Item = D::Item;
    type Data<'a>
        = D::Data<'a>
    where
        Self: 'a;

    fn data(&self) -> Self::Data<'_> {
        D::data(self)
    }

    fn reduce_on<O: Op<D::Item> + Parameterless, const BLOCK: u32>(
        &self,
        device: &Device,
    ) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        D::reduce_on::<O, BLOCK>(self, device)
    }
}

/// Host data, which can be copied to a device.
macro_rules! host_data {
    ($([$($generics:tt)*] $data:ty;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: Item, $($generics)*> Reduce for $data {
            type Item = T;
            type Data<'a> = View<'a, T> where Self: 'a;

            fn data(&self) -> View<'_, T> {
                View::host(self)
            }

            fn reduce_on<O: Op<T> + Parameterless, const BLOCK: u32>(&self, device: &Device) -> Result<O::Output, Error> where Threads<BLOCK>: Block {
                match &device.0 {
                    Cpu(()) => self.reduce::<O, BLOCK>(),
                    Gpu(_) => device.upload(self)?.reduce::<O, BLOCK>(),
                }
            }
        }
    )*};
}

host_data! {
    [] [T];
    [] Vec<T>;
    [const N: usize] [T; N];
    [] Box<[T]>;
    [] Rc<[T]>;
    [] Arc<[T]>;
    [] Rc<Vec<T>>;
    [] Arc<Vec<T>>;
    [] Cow<'_, [T]>;
    [] PinnedBuffer<T>;
}

/// A one-line function: of one array, of two, or of one and a comparison.
macro_rules! one_line {
    ({ element } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
        one_line! {
            $(#[$doc])*
            $name [D: Whole + ?Sized] [data: &D] crate::$op, D::Item => data.whole()?, crate::$op::default()
        }
    )*};
    ({ pair } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
        one_line! {
            $(#[$doc])*
            $name [A: Whole + ?Sized, B: Whole + ?Sized] [first: &A, second: &B] crate::$op, (A::Item, B::Item) =>
            (first.whole()?, second.whole()?), crate::$op::default()
        }
    )*};
    ({ comparison } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
        one_line! {
            $(#[$doc])*
            $name [D: Whole<Item: Element> + ?Sized] [data: &D, comparison: Comparison<D::Item>] crate::$op<D::Item>,
            D::Item => data.whole()?, crate::$op::new(comparison)
        }
    )*};
    ($(#[$doc:meta])* $name:ident [$($generics:tt)*] [$($arguments:tt)*] $op:ty, $item:ty => $data:expr, $value:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// As [`Reduce::reduce`].
        pub fn $name<$($generics)*>($($arguments)*) -> Result<<$op as Op<$item>>::Output, Error>
        where
            $op: Op<$item>,
        {
            $data.by($value).run()
        }
    };
}

/// Data that the one-line functions, as [`sum`], reduce as a whole: all that [`Reduce`], and with the feature
/// `ndarray` arrays and views of the crate `ndarray`, in row-major order.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be reduced: pass an array of numbers or other plain values",
    label = "not an array in host or device memory",
    note = "arrays are slices, `Vec`, boxed and shared slices, buffers, views, and pairs of these; collect an iterator first"
)]
pub trait Whole {
    /// An element; of a pair, a pair of elements.
    type Item: Copy + 'static;

    /// The data, or a copy of them in order.
    #[doc(hidden)]
    type Data<'a>: Reduce<Item = Self::Item>
    where
        Self: 'a;

    #[doc(hidden)]
    fn whole(&self) -> Result<Self::Data<'_>, Error>;
}

#[diagnostic::do_not_recommend]
impl<D: Reduce + ?Sized> Whole for D {
    type Item = D::Item;
    type Data<'a>
        = &'a D
    where
        Self: 'a;

    fn whole(&self) -> Result<&D, Error> {
        Ok(self)
    }
}

for_each_operator! { one_line! { element } }
for_each_integer_operator! { one_line! { element } }
for_each_pair_operator! { one_line! { pair } }
for_each_comparison! { one_line! { comparison } }

/// Reduces by any operator, one of your own or several in a tuple, with the BLOCK that the one-line functions
/// choose.
///
/// ```
/// use gpu_reduce::{Max, Min, Sum, Var};
///
/// let x = [1.0f32, 2.0, 6.0];
/// assert_eq!(gpu_reduce::reduce(&x, (Sum, Min, Max))?, (9.0, 1.0, 6.0));
/// assert_eq!(gpu_reduce::reduce(&x, Var::new(1))?, 7.0);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// As [`Reduce::reduce`].
pub fn reduce<D: Whole + ?Sized, O: Op<D::Item>>(data: &D, op: O) -> Result<O::Output, Error> {
    data.whole()?.by(op).run()
}
