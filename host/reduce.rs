//! The typed call, and the one-line functions.

use crate::call::{Call, Types};
use crate::data::{Data, gpu_of, lies_on};
use crate::place::Place::{self, Cpu, Gpu};
use crate::sharded::Located;
use crate::{
    Buffer, Comparison, Device, Element, Error, Item, Offsets, Op, Pending, PinnedBuffer, Runs, Segments,
    Shaped, Stream, View, ViewMut, cpu, default_block, for_each_comparison, for_each_integer_operator,
    for_each_operator, for_each_pair_operator,
};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::op::{Reducer, fold_alike};
use gpu_reduce_kernels::plan::assert_block;
use std::borrow::Cow;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::rc::Rc;
use std::slice;
use std::sync::Arc;

/// Data that reduces: buffers and views on the device where they lie, slices in host memory on the CPU, and pairs of these,
/// which an operator of two inputs takes item by item. (A GPU would not help slices: a CPU thread sums data in the time that it
/// takes to copy them for the GPU.)
///
/// The result's bits depend on the elements, their number, the operator and `BLOCK` alone: not on the device, its size,
/// the data's alignment, nor the number of threads. `BLOCK`, the threads of a block on a GPU, is a power of two from 32 to
/// 1024; another is an error when the program compiles.
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
/// Without `use gpu_reduce::Reduce` the compiler finds another `reduce`, that of iterators, and says that a `Vec` is none; the one-line functions,
/// as [`sum`], need no `use`. A `VecDeque` lies in two pieces: [`make_contiguous`](std::collections::VecDeque::make_contiguous) makes one of them, or a
/// [`Reducer`](crate::Reducer) takes one after the other.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that reduces",
    label = "no array in host or device memory, nor a pair of two",
    note = "slices, `Vec`, arrays, boxed and shared slices, and the library's buffers and views reduce, with elements that are plain values; collect an iterator first",
    note = "of an array of ndarray, arrow-array or another library, there is a feature of this crate or a view: `View`, `ReduceAxis`, `ReduceArray`"
)]
pub trait Reduce {
    /// An element; of a pair, a pair of elements.
    type Item: Copy + 'static;

    /// The items where they lie.
    type Data<'a>: Data<'a, Item = Self::Item>
    where
        Self: 'a;

    /// The items where they lie. Each call asks for them once, and reduces what it was told, wherever that is.
    fn data(&self) -> Self::Data<'_>;

    /// Items, of which calls have their number from [`data`](Self::data).
    fn len(&self) -> usize {
        self.data().len()
    }

    /// Whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reduces the items where they lie.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyInput`] where the operator has no value for no items; of a pair, [`Error::OtherLength`] and
    /// [`Error::OtherDevice`]; on a GPU also [`Error::NoKernel`], [`Error::Launch`], [`Error::OutOfMemory`] and
    /// [`Error::Driver`].
    fn reduce<O: Op<Self::Item> + Default, const BLOCK: u32>(&self) -> Result<O::Output, Error> {
        self.reduce_by::<O, BLOCK>(O::default())
    }

    /// As [`reduce`](Self::reduce), by an operator that has parameters.
    ///
    /// # Errors
    ///
    /// As there.
    fn reduce_by<O: Op<Self::Item>, const BLOCK: u32>(&self, op: O) -> Result<O::Output, Error> {
        const { assert_block(BLOCK) };
        op.by_parts(&Blocks { data: self.data(), block: BLOCK, lifetime: PhantomData })
    }

    /// Reduces the items on `device`: host data is copied there first.
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce), and [`Error::OtherDevice`] for a buffer that lies elsewhere.
    fn reduce_on<O: Op<Self::Item> + Default, const BLOCK: u32>(
        &self,
        device: &Device,
    ) -> Result<O::Output, Error> {
        const { assert_block(BLOCK) };
        let data = self.data();
        lies_on(gpu_of(&data.place()?), device)?;
        O::default().by_parts(&Blocks { data, block: BLOCK, lifetime: PhantomData })
    }

    /// The segments between offsets, `u32` or `u64`, on the host or where the items lie: one more of them than there are segments, and
    /// none below the one before. What comes before the first and after the last is left out. Or the [`Runs`] of keys.
    ///
    /// # Errors
    ///
    /// Of offsets on the host, [`Error::BadOffset`]; [`Error::NoOffsets`]. Of [`Runs`], [`Error::OtherLength`] and
    /// [`Error::OtherDevice`].
    fn segments<'a>(
        &'a self,
        offsets: impl Into<Offsets<'a>>,
    ) -> Result<Segments<'a, Self::Data<'a>>, Error> {
        Segments::new(self.data(), offsets.into())
    }

    /// The rows of a matrix of so many columns, row after row.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] where they do not make up the items.
    fn rows(&self, columns: usize) -> Result<Segments<'_, Self::Data<'_>>, Error> {
        Segments::rows(self.data(), columns)
    }

    /// The columns of a matrix of so many, which lies row after row.
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
    /// [`Error::Shape`] where they do not make up the items.
    fn columns(&self, columns: usize) -> Result<Segments<'_, Self::Data<'_>>, Error> {
        let data = self.data();
        let len = data.len();
        match len.checked_rem(columns) {
            Some(0) => Ok(Segments::columns(data, [columns, len / columns, columns])),
            _ => Err(Error::Shape { shape: format!("{columns} columns"), len }),
        }
    }

    /// The items as an array of axes of these lengths, row-major, to be [reduced over](Shaped::over) some of them.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] where the product of the lengths is not the number of items.
    fn shaped(&self, shape: &[usize]) -> Result<Shaped<'_, Self::Data<'_>>, Error> {
        Shaped::new(self.data(), shape)
    }

    /// The runs of equal neighbouring items, as keys of values that lie on the same device, one for each key:
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

    /// Enqueues the reduction on a stream of the device where the items lie; when the stream comes to it, the result goes to the first element of
    /// `result`, on the same device. Nothing is waited for, nothing allocated or cleared but by the first call of its kind on a stream, and where the operator
    /// has no value for its items, the element becomes zero. It may be captured in a CUDA graph ([`Stream::as_raw`]) after a first call.
    ///
    /// On the CPU it is done when the call returns.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let x = device.upload(&[1.5f32, 2.5])?;
    /// let mut sums = device.zeros::<f32>(2)?;
    /// let stream = device.stream()?;
    /// // SAFETY: both buffers stay, and are not used otherwise, until the stream has been waited for.
    /// unsafe { x.enqueue::<Sum, 256>(&stream, sums.slice_mut(1..)?)? };
    /// stream.wait()?;
    /// assert_eq!(sums.to_vec()?, [0.0, 4.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until the stream has been waited for, neither the items nor `result` are freed, the items are not written, and the
    /// element of `result` is neither read nor written; by what is enqueued on the same stream, they may be. So it is with a graph that it was captured
    /// in, each time that one runs; and graphs that were captured on one `Stream`, and what is enqueued there, run one after the other.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] where `result` has no element, [`Error::OtherDevice`], [`Error::Capture`] of a first call while the stream is captured, and as
    /// [`reduce`](Self::reduce). A launch that fails later is an error of the stream.
    unsafe fn enqueue<'r, O: Op<Self::Item, Output: Item> + Default, const BLOCK: u32>(
        &self,
        stream: &Stream,
        result: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        unsafe { self.enqueue_by::<O, BLOCK>(O::default(), stream, result) }
    }

    /// As [`enqueue`](Self::enqueue), by an operator that has parameters.
    ///
    /// # Safety
    ///
    /// As there.
    ///
    /// # Errors
    ///
    /// As there.
    unsafe fn enqueue_by<'r, O: Op<Self::Item, Output: Item>, const BLOCK: u32>(
        &self,
        op: O,
        stream: &Stream,
        result: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error> {
        const { assert_block(BLOCK) };
        // SAFETY: as the caller vouches.
        unsafe { stream.enqueue(self.data(), &op, BLOCK, result.into()) }
    }

    /// Bytes of scratch memory that [`enqueue`](Self::enqueue) takes where the caller [lends](Stream::with_scratch) it to the stream; none on the CPU.
    fn scratch_bytes<O: Op<Self::Item>, const BLOCK: u32>(&self) -> usize {
        const { assert_block(BLOCK) };
        let data = self.data();
        match data.place() {
            Ok(Gpu((gpu, _))) => {
                let types = Types::of::<O, <Self::Data<'_> as Data>::Pointers>();
                gpu.scratch_bytes(types, data.len() as u64, BLOCK)
            }
            _ => 0,
        }
    }

    /// Launches the reduction on a stream of the device where the items lie, and returns at once: the result is [`Pending`]. On the CPU it is there.
    ///
    /// ```
    /// use gpu_reduce::{Device, Reduce, Sum};
    ///
    /// let device = Device::default_device();
    /// let x = device.upload(&[1.5f32, 2.5])?;
    /// let stream = device.stream()?;
    /// let sum = x.launch::<Sum, 256>(&stream);
    /// // … the program goes on …
    /// assert_eq!(sum.wait()?, 4.0);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    fn launch<'a, O: Op<Self::Item> + Default, const BLOCK: u32>(
        &'a self,
        stream: &Stream,
    ) -> Pending<'a, O::Output> {
        self.launch_by::<O, BLOCK>(O::default(), stream)
    }

    /// As [`launch`](Self::launch), by an operator that has parameters.
    fn launch_by<'a, O: Op<Self::Item>, const BLOCK: u32>(
        &'a self,
        op: O,
        stream: &Stream,
    ) -> Pending<'a, O::Output> {
        const { assert_block(BLOCK) };
        stream.launch(self.data(), op, BLOCK).unwrap_or_else(Pending::from)
    }
}

/// Data that is reduced by blocks of so many threads.
struct Blocks<'a, D: Data<'a>> {
    data: D,
    block: u32,
    lifetime: PhantomData<&'a ()>,
}

impl<'a, D: Data<'a>> Reducer<D::Item> for Blocks<'a, D> {
    type Error = Error;

    /// Of no items each operator says by itself what they are.
    fn has<O: Op<D::Item>>(&self) -> Result<bool, Error> {
        if self.data.is_empty() || !const { fold_alike::<O, D::Item>(D::Pointers::BYTES) } {
            return Ok(false);
        }
        if const { D::MAY_BE_SHARDED }
            && let Some(sharded) = Located::of(&self.data)?
        {
            return sharded.first_gpu().has_kernel(Types::of::<O, D::Pointers>(), self.block);
        }
        match self.data.place()? {
            Cpu(_) => Ok(true),
            Gpu((gpu, _)) => gpu.has_kernel(Types::of::<O, D::Pointers>(), self.block),
        }
    }

    /// It is compiled for each operator and element type that a program uses, and so is no more than what is of these types.
    fn reduce<O: Op<D::Item>>(&self, op: &O) -> Result<O::Output, Error> {
        if const { D::MAY_BE_SHARDED }
            && let Some(sharded) = Located::of(&self.data)?
        {
            return sharded.reduce(op, self.block);
        }
        let mut all = op.identity();
        // SAFETY: the types are these, and the bytes those of an accumulator, which is plain.
        let place = unsafe {
            let bytes = slice::from_raw_parts_mut((&raw mut all).cast(), size_of::<O::Accumulator>());
            let types = Types::of::<O, D::Pointers>();
            reduce_on_gpu(&self.data, types, (&raw const *op).cast(), self.block, bytes)
        };
        let output = match place {
            Err(error) => return Err(error),
            Ok(Cpu(slices)) => cpu::reduce::<O, D::Slices, D::Pointers>(op, slices, self.block),
            Ok(Gpu(len)) => op.finish(all, len),
        };
        match output {
            Some(output) => Ok(output),
            None => Err(Error::empty(op)),
        }
    }
}

/// Reduces data on a GPU to `all`, the identity's bytes, and says how many items there were; so it does with no items anywhere. Of
/// others says where on the CPU they are. For all operators the same code.
///
/// # Safety
///
/// What lies at `op` is an operator of the `types`, `all` are the bytes of its accumulator, and the pointers are the others.
#[inline(never)]
unsafe fn reduce_on_gpu<'a, D: Data<'a>>(
    data: &D,
    types: &'static Types,
    op: *const c_void,
    block: u32,
    all: &mut [u8],
) -> Result<Place<D::Slices, u64>, Error> {
    let len = data.len() as u64;
    match data.place()? {
        _ if len == 0 => {}
        Cpu(slices) => return Ok(Cpu(slices)),
        // SAFETY: as the caller vouches; the data are borrowed.
        Gpu((gpu, pointers)) => unsafe { gpu.reduce(&Call::new(types, op, &pointers, len, block), all)? },
    }
    Ok(Gpu(len))
}

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

impl<T: Item> Reduce for Buffer<T> {
    type Item = T;
    type Data<'a> = View<'a, T>;

    fn data(&self) -> View<'_, T> {
        self.view()
    }
}

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

impl<D: Reduce + ?Sized> Reduce for &D {
    type Item = D::Item;
    type Data<'a>
        = D::Data<'a>
    where
        Self: 'a;

    fn data(&self) -> Self::Data<'_> {
        D::data(self)
    }

    fn reduce_on<O: Op<D::Item> + Default, const BLOCK: u32>(
        &self,
        device: &Device,
    ) -> Result<O::Output, Error> {
        D::reduce_on::<O, BLOCK>(self, device)
    }
}

/// Host data, which can be copied to a device.
macro_rules! host_data {
    ($([$($generics:tt)*] $data:ty;)*) => {$(
        impl<T: Item, $($generics)*> Reduce for $data {
            type Item = T;
            type Data<'a> = View<'a, T> where Self: 'a;

            fn data(&self) -> View<'_, T> {
                View::host(self)
            }

            fn reduce_on<O: Op<T> + Default, const BLOCK: u32>(&self, device: &Device) -> Result<O::Output, Error> {
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
    [] Cow<'_, [T]>;
    [] PinnedBuffer<T>;
}

/// A one-line function: of one array, of two, or of one and a comparison.
macro_rules! one_line {
    ({ element } $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {$(
        one_line! {
            $(#[$doc])*
            $name [D: Reduce + ?Sized] [data: &D] crate::$op, D::Item => data, crate::$op::default()
        }
    )*};
    ({ pair } $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {$(
        one_line! {
            $(#[$doc])*
            $name [A: Reduce + ?Sized, B: Reduce + ?Sized] [first: &A, second: &B] crate::$op, (A::Item, B::Item) =>
            &(first, second), crate::$op::default()
        }
    )*};
    ({ comparison } $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {$(
        one_line! {
            $(#[$doc])*
            $name [D: Reduce<Item: Element> + ?Sized] [data: &D, comparison: Comparison<D::Item>] crate::$op<D::Item>, D::Item =>
            data, crate::$op::new(comparison)
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
            reduce($data, $value)
        }
    };
}

for_each_operator! { one_line! { element } }
for_each_integer_operator! { one_line! { element } }
for_each_pair_operator! { one_line! { pair } }
for_each_comparison! { one_line! { comparison } }

/// Reduces by any operator, a program's own or several in a tuple, with the BLOCK that the one-line functions have.
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
pub fn reduce<D: Reduce + ?Sized, O: Op<D::Item>>(data: &D, op: O) -> Result<O::Output, Error> {
    let data = data.data();
    let block =
        default_block::<O, D::Item>(data.len() as u64 * <D::Data<'_> as Data>::Pointers::BYTES as u64);
    op.by_parts(&Blocks { data, block, lifetime: PhantomData })
}
