//! The reduction of a whole array: described first, then run in one of several ways.

use crate::cpu::Operator;
use crate::data::{Data, gpu_of, other_device};
use crate::pending::Pending;
use crate::place::Place::{self, Cpu, Gpu};
use crate::request::{Operation, Types};
use crate::sharded::Located;
use crate::steps::{Fold, Way};
use crate::{Block, Both, Device, Error, Item, Op, Stream, Threads, View, ViewMut, cpu, default_block};
use bytemuck::{Zeroable, bytes_of};
use gpu_reduce_kernels::agent::several::Reducer;
use gpu_reduce_kernels::agent::{Agent, fold_alike};
use gpu_reduce_kernels::input::Input;
use gpu_reduce_kernels::slot;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice;

/// A reduction of a whole array that has not started: what [`Reduce::by`](crate::Reduce::by) returns.
///
/// [`block`](Self::block) chooses BLOCK; without it, the library chooses one by the length of the input, as
/// the one-line functions do. Then one of these runs it: [`run`](Self::run) waits for the result,
/// [`run_async`](Self::run_async) returns at once, and [`run_into`](Self::run_into) leaves the result on the
/// device.
///
/// ```
/// use gpu_reduce::{Max, Min, Reduce, Sum, Var};
///
/// let x = [1.0f32, 2.0, 6.0];
/// assert_eq!(x.by(Var::new(1)).run()?, 7.0);
/// assert_eq!(x.by((Sum, Min, Max)).block::<64>().run()?, (9.0, 1.0, 6.0));
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a reduction does nothing until it is run"]
pub struct Reduction<'a, D, O> {
    data: D,
    op: O,
    block: Option<u32>,
    lifetime: PhantomData<&'a ()>,
}

impl<'a, D: Data<'a>, O: Op<D::Item>> Reduction<'a, D, O> {
    pub(crate) fn new(data: D, op: O) -> Self {
        Self { data, op, block: None, lifetime: PhantomData }
    }

    /// Chooses BLOCK, the threads of a block on a GPU: a power of two from 32 to 1024. The bits of a float's
    /// sum, and of other operators for which the order counts, depend on it.
    ///
    /// Another BLOCK does not compile.
    pub fn block<const BLOCK: u32>(self) -> Self
    where
        Threads<BLOCK>: Block,
    {
        Self { block: Some(BLOCK), ..self }
    }

    fn chosen_block(&self) -> u32 {
        let bytes = || self.data.len() as u64 * D::Pointers::BYTES as u64;
        self.block.unwrap_or_else(|| default_block::<O, D::Item>(bytes()))
    }

    /// Runs the reduction where the items lie, and waits for the result.
    ///
    /// # Errors
    ///
    /// As [`Reduce::reduce`](crate::Reduce::reduce).
    pub fn run(self) -> Result<O::Output, Error> {
        let block = self.chosen_block();
        O::agent().by_parts(&self.op, &Blocking { data: self.data, block, lifetime: PhantomData })
    }

    /// Starts the reduction on a stream of the device where the items lie, and returns at once, as
    /// [`Reduce::reduce_async`](crate::Reduce::reduce_async).
    pub fn run_async(self, stream: &Stream) -> Pending<'a, O::Output> {
        let block = self.chosen_block();
        let starting = Starting { data: self.data, block, stream, lifetime: PhantomData };
        O::agent().by_parts(&self.op, &starting).unwrap_or_else(Pending::from)
    }

    /// Enqueues the reduction on a stream of the device where the items lie. The result goes to the first
    /// element of `result`, as with [`Reduce::reduce_into`](crate::Reduce::reduce_into).
    ///
    /// # Safety
    ///
    /// As for [`Reduce::reduce_into`](crate::Reduce::reduce_into).
    ///
    /// # Errors
    ///
    /// As [`Reduce::reduce_into`](crate::Reduce::reduce_into).
    pub unsafe fn run_into<'r>(
        self,
        stream: &Stream,
        result: impl Into<ViewMut<'r, O::Output>>,
    ) -> Result<(), Error>
    where
        O::Output: Item,
    {
        let block = self.chosen_block();
        // SAFETY: as the caller vouches.
        unsafe { enqueue(self.data, &self.op, block, stream, result.into()) }
    }

    /// Returns the bytes of scratch memory that [`run_into`](Self::run_into) takes if the caller
    /// [lends](Stream::with_scratch) it to the stream; 0 on the CPU.
    pub fn scratch_bytes(&self) -> usize {
        let Ok(Gpu((gpu, pointers))) = self.data.place() else { return 0 };
        let request = Operation::whole::<O, D::Pointers>(&self.op, self.chosen_block())
            .of_whole(&pointers, self.data.len() as u64);
        gpu.scratch_bytes(request.by.types, &request.shape, request.by.block)
    }
}

impl<T: Item, O: Op<T>> Reduction<'_, View<'_, T>, O> {
    /// As [`run`](Self::run) by one operator, in this [way](Way). Returns none if the result was not waited for.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::EmptyInput`] if the items lie on the CPU and are not folded.
    #[doc(hidden)]
    pub fn run_by(self, way: Way<T>) -> Result<Option<O::Output>, Error> {
        let block = self.chosen_block();
        let operation = Operation::whole::<O, *const T>(&self.op, block);
        let on_host = Operator::new::<O, &[T], *const T>(&self.op, block);
        let mut result = MaybeUninit::<O::Output>::uninit();
        // SAFETY: the types are these, and the result is written if the call returns `Written`.
        match unsafe { run_erased(self.data, operation, on_host, way, result.as_mut_ptr().cast())? } {
            // SAFETY: as above.
            Outcome::Written => Ok(Some(unsafe { result.assume_init() })),
            Outcome::Enqueued => Ok(None),
            Outcome::NoValue => Err(Error::empty(&self.op)),
        }
    }
}

/// What has become of a result.
enum Outcome {
    Written,
    /// The operator has none for these items.
    NoValue,
    Enqueued,
}

impl Outcome {
    fn of(is_written: bool) -> Self {
        if is_written { Self::Written } else { Self::NoValue }
    }
}

/// Writes the result of a whole array, or enqueues that it is written. The same code for all operators.
///
/// # Safety
///
/// Both are the operator for the items, on a GPU and on the CPU, and there is a place for the result.
#[inline(never)]
unsafe fn run_erased<T: Item>(
    data: View<T>,
    operation: Operation,
    on_host: Operator,
    way: Way<T>,
    place: *mut (),
) -> Result<Outcome, Error> {
    let len = data.len() as u64;
    match (data.place()?, way) {
        // SAFETY: as the caller vouches; without a fold, the accumulator is the identity.
        _ if len == 0 => unsafe { on_host.finished(0, |_| Ok(()), place).map(Outcome::of) },
        (Cpu(items), Way::Wait(by)) => {
            let by = |prepared: cpu::Prepared| {
                // SAFETY: the items are a slice, and all are borrowed until `by` returns.
                let fold = unsafe { Fold::<T>::new(prepared) };
                by(&fold);
                fold.len()
            };
            // SAFETY: as the caller vouches; `by` returns a number if it has written the accumulator.
            Ok(Outcome::of(unsafe { on_host.over::<(), _>(&items).all_to(&by, place) }))
        }
        (Gpu((gpu, pointers)), Way::Wait(_)) => {
            // SAFETY: as the caller vouches; the data are borrowed.
            let fold =
                |all: &mut [u8]| unsafe { gpu.run(&operation.of_whole(&pointers, len), all).map(drop) };
            // SAFETY: as the caller vouches; a GPU ends the operator.
            unsafe { on_host.finished(len, fold, place).map(Outcome::of) }
        }
        (Gpu((gpu, pointers)), Way::Enqueue(to)) => {
            // SAFETY: the caller vouches for the types, and who made the places for their size.
            unsafe { to.enqueue(gpu, operation.of_whole(&pointers, len))? };
            Ok(Outcome::Enqueued)
        }
        (Cpu(_), Way::Enqueue(to)) => to.refuse_host().map(|()| Outcome::Enqueued),
    }
}

/// Whether several operators can reduce these data together: they fold as many items side by side, and there
/// is a kernel for them. Each operator alone says what the result of no items is.
fn has_kernel<'a, D: Data<'a>, O: Op<D::Item>>(data: &D, block: u32) -> Result<bool, Error> {
    if data.is_empty() || !const { fold_alike::<O, D::Item>(D::Pointers::BYTES) } {
        return Ok(false);
    }
    let types = Types::of::<O, D::Pointers>();
    if const { D::MAY_BE_SHARDED }
        && let Some(sharded) = Located::of(data)?
    {
        return Ok(sharded.first_gpu().has_kernel(types, block));
    }
    match data.place()? {
        Cpu(_) => Ok(true),
        Gpu((gpu, _)) => Ok(gpu.has_kernel(types, block)),
    }
}

/// Reduces data and waits for the result.
struct Blocking<'a, D: Data<'a>> {
    data: D,
    block: u32,
    lifetime: PhantomData<&'a ()>,
}

impl<'a, D: Data<'a>> Reducer<D::Item> for Blocking<'a, D> {
    type Error = Error;
    type Outcome<V: Copy + Send + 'static> = V;

    fn has<O: Op<D::Item>>(&self) -> Result<bool, Error> {
        has_kernel::<D, O>(&self.data, self.block)
    }

    /// Compiled for each operator and element type that a program uses, and so only what depends on these
    /// types.
    fn reduce<O: Op<D::Item>>(&self, op: &O) -> Result<O::Output, Error> {
        if const { D::MAY_BE_SHARDED }
            && let Some(sharded) = Located::of(&self.data)?
        {
            return sharded.reduce(op, self.block);
        }
        let mut all = op.identity();
        // SAFETY: the operation's types are these, and the bytes are those of an accumulator, which is plain.
        let place = unsafe {
            let bytes = slice::from_raw_parts_mut((&raw mut all).cast(), size_of::<O::Accumulator>());
            reduce_on_gpu(&self.data, Operation::whole::<O, D::Pointers>(op, self.block), bytes)
        };
        let output = match place? {
            Cpu(slices) => cpu::reduce::<O, D::Slices, D::Pointers>(op, slices, self.block),
            Gpu(len) => op.finish(all, len),
        };
        output.ok_or_else(|| Error::empty(op))
    }

    fn join<A: Copy + Send + 'static, B: Copy + Send + 'static>(a: A, b: B) -> Both<A, B> {
        Both(a, b)
    }

    fn map<A: Copy + Send + 'static, B: Copy + Send + 'static>(a: A, map: fn(A) -> B) -> B {
        map(a)
    }
}

/// Reduces data on a GPU: writes the accumulator to `all`, which holds the identity, and returns the number
/// of items. If there are no items, it returns 0 wherever the data lie. CPU data is returned unreduced. The
/// same code for all operators.
///
/// # Safety
///
/// The operation's types are those of its operator and the data, and `all` are the bytes of an accumulator.
#[inline(never)]
unsafe fn reduce_on_gpu<'a, D: Data<'a>>(
    data: &D,
    operation: Operation,
    all: &mut [u8],
) -> Result<Place<D::Slices, u64>, Error> {
    let len = data.len() as u64;
    match data.place()? {
        _ if len == 0 => {}
        Cpu(slices) => return Ok(Cpu(slices)),
        Gpu((gpu, pointers)) => {
            // SAFETY: as the caller vouches; the data are borrowed.
            unsafe { gpu.run(&operation.of_whole(&pointers, len), all)? };
        }
    }
    Ok(Gpu(len))
}

/// Starts the reduction of data on a stream.
struct Starting<'a, 's, D: Data<'a>> {
    data: D,
    block: u32,
    stream: &'s Stream<'s>,
    lifetime: PhantomData<&'a ()>,
}

impl<'a, D: Data<'a>> Reducer<D::Item> for Starting<'a, '_, D> {
    type Error = Error;
    type Outcome<V: Copy + Send + 'static> = Pending<'a, V>;

    fn has<O: Op<D::Item>>(&self) -> Result<bool, Error> {
        has_kernel::<D, O>(&self.data, self.block)
    }

    fn reduce<O: Op<D::Item>>(&self, &op: &O) -> Result<Pending<'a, O::Output>, Error> {
        let Self { data, block, stream, .. } = self;
        let value = move |value: Option<O::Output>| value.ok_or_else(|| Error::empty(&op));
        if const { D::MAY_BE_SHARDED }
            && !stream.streams().is_empty()
            && let Some(sharded) = Located::of(data)?
        {
            return sharded.launch(op, *block, stream.streams());
        }
        let place = data.place()?;
        match (place, stream.on(gpu_of(&place))?) {
            _ if data.len() == 0 => Ok(Pending::done(value(op.finish(op.identity(), 0)))),
            (Cpu(items), None) => {
                Ok(Pending::done(value(cpu::reduce::<O, D::Slices, D::Pointers>(&op, items, *block))))
            }
            (Gpu((_, items)), Some(stream)) => {
                let len = data.len() as u64;
                let request = Operation::whole::<O, D::Pointers>(&op, *block).of_whole(&items, len);
                // SAFETY: the types are these. The items are borrowed until the result is taken or discarded.
                // If it is discarded, they are only read, whatever has become of their memory, and freeing it
                // waits for the device.
                let launched = unsafe { stream.launch(&request)? };
                Ok(Pending::new(launched, move |launched| {
                    let words = launched.words();
                    let mut all = op.identity();
                    // SAFETY: the bytes of an accumulator, which is plain.
                    let bytes = unsafe {
                        let bytes = (&raw mut all).cast();
                        slice::from_raw_parts_mut(bytes, size_of::<O::Accumulator>())
                    };
                    slot::unpack_bytes(bytes, |index| words[index]);
                    value(op.finish(all, len))
                }))
            }
            (place, _) => Err(other_device(gpu_of(&place), &stream.device())),
        }
    }

    fn join<A: Copy + Send + 'static, B: Copy + Send + 'static>(
        a: Pending<'a, A>,
        b: Pending<'a, B>,
    ) -> Pending<'a, Both<A, B>> {
        a.join(b, Both)
    }

    fn map<A: Copy + Send + 'static, B: Copy + Send + 'static>(
        a: Pending<'a, A>,
        map: fn(A) -> B,
    ) -> Pending<'a, B> {
        a.join(Pending::done(Ok(())), move |a, ()| map(a))
    }
}

/// Enqueues a reduction, as [`Reduction::run_into`].
///
/// # Safety
///
/// As for [`Reduction::run_into`].
unsafe fn enqueue<'d, D: Data<'d>, O: Op<D::Item, Output: Item>>(
    data: D,
    op: &O,
    block: u32,
    stream: &Stream,
    result: ViewMut<'_, O::Output>,
) -> Result<(), Error> {
    let of_none = || op.finish(op.identity(), 0).ok_or_else(|| Error::empty(op));
    let result = result.slice_mut(..1)?;
    let gpu = result.gpu();
    let queue = stream.on(gpu)?;
    if const { D::MAY_BE_SHARDED }
        && !stream.streams().is_empty()
        && let Some(sharded) = Located::of_some(&data)?
    {
        let (Some(on), Gpu(place)) = (gpu, result.into_places()) else {
            unreachable!("the result lies on a GPU of the stream")
        };
        // SAFETY: as the caller vouches; the result has a place.
        return unsafe { sharded.enqueue(op, block, stream.streams(), on, place) };
    }
    match (data.place()?, result.into_places(), queue) {
        (Cpu(items), Cpu(result), None) => {
            result[0] = match data.len() {
                0 => of_none()?,
                _ => cpu::reduce::<O, D::Slices, D::Pointers>(op, items, block).unwrap_or(Zeroable::zeroed()),
            };
            Ok(())
        }
        // SAFETY: as the caller vouches; the result has a place.
        (_, Gpu(result), Some(queue)) if D::MAY_BE_SHARDED && data.len() == 0 => unsafe {
            queue.fill(result.cast(), bytes_of(&of_none()?))
        },
        // SAFETY: as above; the types are these.
        (Gpu((of_items, items)), Gpu(result), Some(queue)) if Some(of_items) == gpu => unsafe {
            match data.len() {
                0 => queue.fill(result.cast(), bytes_of(&of_none()?)),
                len => {
                    let operation = Operation::whole::<O, D::Pointers>(op, block);
                    let mut request = operation.of_whole(&items, len as u64);
                    request.results = result.cast();
                    queue.enqueue(&request)
                }
            }
        },
        (place, ..) => Err(other_device(gpu_of(&place), &Device(gpu.map_or(Cpu(()), Gpu)))),
    }
}
