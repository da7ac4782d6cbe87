//! The one error type.

use crate::Op;
use gpu_reduce_kernels::agent::Agent;

/// What went wrong, the offending value, and what to do.
///
/// After an error, the device and all buffers are as they were before the call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine has no usable CUDA driver.
    #[error("{0}")]
    NoDriver(String),

    /// The library was built without GPU support.
    #[error(
        "this build has no GPU support: enable the feature `cuda`, on Linux on x86-64 or aarch64, \
         or use Device::cpu()"
    )]
    NoCuda,

    /// The library was built without the emulator.
    #[error(
        "this build has no emulator: build with `--features gpu_reduce/emulator`, \
         on Linux on x86-64 or aarch64"
    )]
    NoEmulator,

    /// The program asked for the emulator while using the machine's driver, or the reverse.
    #[error("{0}")]
    OtherDriver(String),

    /// The environment variable `GPU_REDUCE_DRIVER` has an unknown value.
    #[error("GPU_REDUCE_DRIVER is `{0}`: set it to `emulator` or `cuda`, or unset it")]
    UnknownDriver(String),

    /// The driver was started before this process was forked.
    #[error(
        "{device} cannot be used in this process: the driver was started before the process was forked; open \
         devices only in the child, or start the child with exec (Python: multiprocessing's `spawn`)"
    )]
    Forked {
        /// The device, as `cuda:0`.
        device: String,
    },

    /// The driver found no GPU.
    #[error(
        "the CUDA driver finds no GPU: check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use Device::cpu()"
    )]
    NoDevice,

    /// No device has this index.
    #[error("there is no device cuda:{index}: devices are numbered from cuda:0, and the driver has {count}")]
    NoSuchDevice {
        /// The requested index.
        index: usize,
        /// The driver's number of devices.
        count: usize,
    },

    /// The driver is too old for the kernels' PTX.
    #[error(
        "the driver supports CUDA {driver}, but the kernels need CUDA {needed} or newer: update the driver"
    )]
    DriverTooOld {
        /// The driver's CUDA version, for example `8.0`.
        driver: String,
        /// The oldest version that the kernels run on.
        needed: String,
    },

    /// The GPU's compute capability is too low for the kernels.
    #[error(
        "{device} has compute capability {capability}, but the kernels need {needed} or higher: \
         use another GPU or Device::cpu()"
    )]
    DeviceTooOld {
        /// The device.
        device: String,
        /// Its compute capability, for example `6.1`.
        capability: String,
        /// The lowest capability that the kernels run on.
        needed: String,
    },

    /// The memory of a device or of the host is exhausted.
    #[error(
        "out of memory on {device}: asked for {requested} bytes{}; reduce in pieces or free buffers",
        free.map_or(String::new(), |free| format!(", {free} are free"))
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes requested; `usize::MAX` if there are more.
        requested: usize,
        /// Free bytes of a GPU at that time. None on the host, whose system does not tell.
        free: Option<usize>,
    },

    /// The input is empty, and the operator has no value for that.
    #[error("{op} of an empty input has no value: check the length first")]
    EmptyInput {
        /// The operator's name.
        op: &'static str,
    },

    /// A buffer is not on the device that should work on it.
    #[error("the buffer is on {buffer}, not on {device}: reduce it on its own device, or copy it")]
    DeviceMismatch {
        /// The buffer's device.
        buffer: String,
        /// The device of the call.
        device: String,
    },

    /// A stream or memory belongs to a context other than the device's primary one.
    #[error(
        "{what} belongs to context {context:#x}, but {device} works in its primary context {own:#x}: \
         use the primary context (cust::context::Context, cuDevicePrimaryCtxRetain)"
    )]
    ContextMismatch {
        /// `the stream` or `the memory`.
        what: &'static str,
        /// Its context.
        context: usize,
        /// The device.
        device: String,
        /// The device's primary context.
        own: usize,
    },

    /// A call on a stream that is being captured would allocate or wait.
    #[error(
        "the stream is being captured, and this call would allocate or wait: \
         enqueue the same call once before the capture, on the same Stream"
    )]
    Capture,

    /// The scratch memory that was lent to a stream is too small.
    #[error(
        "the call needs {needed} bytes of scratch memory, but the stream has {left} left: lend what \
         `scratch_bytes` returns, for calls of several kinds the sum"
    )]
    Scratch {
        /// Bytes that the call needs.
        needed: usize,
        /// Bytes left in the scratch memory.
        left: usize,
    },

    /// Two inputs of one reduction differ in length.
    #[error(
        "the first input has {first} elements and the second {second}: \
         inputs that are reduced together need the same length"
    )]
    LengthMismatch {
        /// Elements of the first input.
        first: usize,
        /// Elements of the second input.
        second: usize,
    },

    /// Two sharded inputs of one reduction are cut at different places.
    #[error(
        "the first input's shards have {first} elements and the second's {second}: \
         cut inputs that are reduced together at the same places"
    )]
    ShardMismatch {
        /// Elements of each shard of the first input, for example `[3, 4]`.
        first: String,
        /// Elements of each shard of the second input.
        second: String,
    },

    /// A list of devices or streams is empty, repeats a GPU, or has the CPU beside GPUs.
    #[error(
        "invalid list of devices ({device}): give each GPU once, or the CPU alone, and at least one device"
    )]
    NotDistinct {
        /// The GPU that is repeated, the CPU, or `none` if the list is empty.
        device: String,
    },

    /// A call that works on one device got data on several.
    #[error(
        "the items are on several devices ({devices}): \
         copy them to one device first (Sharded::to_vec, Device::upload)"
    )]
    SeveralDevices {
        /// The devices.
        devices: String,
    },

    /// A range ends past the buffer's end, or before its own start.
    #[error("elements {start}..{end} are not in a buffer of {len} elements")]
    OutOfBounds {
        /// The range's start.
        start: usize,
        /// The range's end, exclusive.
        end: usize,
        /// Elements in the buffer.
        len: usize,
    },

    /// A `Reducer` did not get as many items as announced.
    #[error(
        "only {count} of {len} items were pushed: push the rest, or create the Reducer with `new`, \
         which takes any number"
    )]
    Incomplete {
        /// Items pushed so far.
        count: u64,
        /// The announced number of items.
        len: u64,
    },

    /// A range given to a partial result does not consist of whole chunks.
    #[error(
        "elements {start}..{end} of {len} are not whole chunks, which begin at multiples of {chunk}: \
         use the ranges of Plan::part"
    )]
    Unchunked {
        /// The first element's index.
        start: u64,
        /// The index after the last element.
        end: u64,
        /// Elements in a chunk.
        chunk: u64,
        /// Elements of the whole input.
        len: u64,
    },

    /// Elements were merged into a partial result twice.
    #[error("elements {start}..{end} of {len} are in two partial results: add each element to exactly one")]
    Twice {
        /// The first element's index.
        start: u64,
        /// The end, exclusive, of the contiguous range that is repeated.
        end: u64,
        /// Elements of the whole input.
        len: u64,
    },

    /// Elements are in none of the merged partial results.
    #[error("elements {start}..{end} of {len} are missing: merge the partial result that has them")]
    Missing {
        /// The first element's index.
        start: u64,
        /// The end, exclusive, of the contiguous range that is missing.
        end: u64,
        /// Elements of the whole input.
        len: u64,
    },

    /// A partial result belongs to another reduction.
    #[error("the partial result belongs to another reduction: {what} {found}, not {expected}")]
    ReductionMismatch {
        /// What differs.
        what: &'static str,
        /// The value in the given partial result.
        found: String,
        /// The value in this one.
        expected: String,
    },

    /// The bytes do not encode a partial result.
    #[error("these bytes are not a partial result: {0}")]
    BadPartial(String),

    /// A rank of a communicator failed or cannot continue.
    #[error("rank {rank} failed: {reason}")]
    Rank {
        /// The first rank that failed.
        rank: usize,
        /// The cause.
        reason: String,
    },

    /// A rank of a communicator makes another call than rank 0.
    #[error(
        "rank {rank} disagrees with rank 0 on the {what}: {found}, not {expected}; \
         all ranks must make the same call"
    )]
    Disagree {
        /// What differs.
        what: &'static str,
        /// The first rank that differs from rank 0.
        rank: usize,
        /// That rank's value.
        found: String,
        /// Rank 0's value.
        expected: String,
    },

    /// The elements' address is not a multiple of their alignment.
    #[error(
        "elements at {address:#x} are not aligned to {align} bytes: \
         copy them to aligned memory, or use a type with a smaller alignment"
    )]
    Unaligned {
        /// The first element's address.
        address: u64,
        /// The alignment of their type, in bytes.
        align: usize,
    },

    /// An array of another library has elements of another type than requested.
    #[error("the array's elements are {found}, not {expected}: use their own type, or convert them")]
    OtherType {
        /// The elements' type, in the notation of the array's protocol.
        found: String,
        /// The requested type.
        expected: String,
    },

    /// An array of another library is not contiguous in row-major order.
    #[error(
        "an array of shape {shape} with strides of {strides} is not C-contiguous: copy it first \
         (PyTorch: x.contiguous(), CuPy: cupy.ascontiguousarray(x))"
    )]
    NotContiguous {
        /// The array's shape, for example `[2, 3]`.
        shape: String,
        /// Its strides, for example `[4, 8] bytes`.
        strides: String,
    },

    /// An array of another library is read-only.
    #[error("the array at {address:#x} is read-only: write the results elsewhere")]
    ReadOnly {
        /// The array's address.
        address: u64,
    },

    /// An array of another library is neither on the CPU nor on a CUDA GPU.
    #[error("the array is on {device}: copy it to the CPU or to a CUDA GPU")]
    ForeignDevice {
        /// The device, in the notation of the array's protocol.
        device: String,
    },

    /// The description of another library's array breaks the rules of its protocol.
    #[error("the array's description is invalid: {0}")]
    BadArray(String),

    /// An offset is less than the one before it, or greater than the number of items.
    #[error(
        "offset {index} is {offset}, not in {before}..={len}: \
         offsets must not descend, and must not exceed the number of items"
    )]
    BadOffset {
        /// The index of the first wrong offset, counted from 0.
        index: u64,
        /// The offset.
        offset: u64,
        /// The offset before it; 0 for the first.
        before: u64,
        /// The number of items.
        len: u64,
    },

    /// The list of offsets is empty.
    #[error("there are no offsets: give one more than segments, at least one")]
    NoOffsets,

    /// A segment is empty, and the operator has no value for that.
    #[error(
        "segment {segment} is empty, and {op} of no items has no value: \
         use reduce_or, which takes a value for empty segments"
    )]
    EmptySegment {
        /// The operator's name.
        op: &'static str,
        /// The first empty segment, counted from 0.
        segment: u64,
    },

    /// An index is negative, or too large.
    #[error(
        "index {place} is {index}, not in 0..{count}: give indices of the {count} results, or more results"
    )]
    BadIndex {
        /// The place of the first wrong index, counted from 0.
        place: u64,
        /// The index.
        index: i128,
        /// The number of results.
        count: usize,
    },

    /// There are more than 2^31 results; or on a GPU more than a table in shared memory has room for, and
    /// 2^31 items or more.
    #[error(
        "{count} results are too many for one call: up to 2^31 are possible, on a GPU of fewer than 2^31 items"
    )]
    TooManyGroups {
        /// The number of results.
        count: usize,
    },

    /// The bins of a histogram are wrong.
    #[error("bins: {reason}")]
    BadBins {
        /// What is wrong, and what to give.
        reason: String,
    },

    /// The columns of keys are too wide.
    #[error("keys of {bytes} bytes are too wide: all columns together have 16 bytes at most")]
    KeysTooWide {
        /// Bytes of a key of all columns.
        bytes: usize,
    },

    /// There are more keys than a GPU numbers in one call.
    #[error("{len} keys are too many for one call on a GPU: fewer than 2^31 are possible")]
    TooManyKeys {
        /// The number of keys.
        len: usize,
    },

    /// A shape does not match the number of items.
    #[error("{shape} do not make up {len} items: give lengths whose product is {len}")]
    Shape {
        /// The shape, for example `rows of 3`.
        shape: String,
        /// The number of items.
        len: usize,
    },

    /// An array does not have these axes.
    #[error(
        "axes {start}..{end} are not in an array of {axes} axes: \
         give one axis, or a range of neighbouring axes, counted from 0"
    )]
    Axes {
        /// The first axis.
        start: usize,
        /// The axis after the last.
        end: usize,
        /// The array's number of axes.
        axes: usize,
    },

    /// No kernel is compiled for this operator, type and BLOCK.
    #[error(
        "no kernel is compiled for {kernel}: reduce on Device::cpu(), or compile one in the operator's crate \
         (gpu_reduce_kernels::kernels!) and set Op::KERNELS to its table"
    )]
    NoKernel {
        /// Its operator, items and BLOCK, for example `sum over f32 with BLOCK 256`.
        kernel: String,
    },

    /// An operator does not do what [`Op`](crate::Op) asks of it: what [`check_op`](crate::check_op) returns.
    #[error("{op} breaks a law of operators ({law}): items {items} give {got} in place of {expected}")]
    BrokenLaw {
        /// The operator.
        op: &'static str,
        /// The law.
        law: &'static str,
        /// The items.
        items: String,
        /// The result, or accumulator, that breaks the law.
        got: String,
        /// What it should be.
        expected: String,
    },

    /// A variant that runs only on GPUs got data on the CPU.
    #[error(
        "{variant} runs only on GPUs, and the data is on the CPU: upload it to a GPU or to Device::emulator()"
    )]
    NoVariant {
        /// The variant's name, for example `sequential`.
        variant: &'static str,
    },

    /// A list to merge is not sorted.
    #[error(
        "list {list} is not sorted: its element {index} is less than the one before it (NaN is the least)"
    )]
    NotSorted {
        /// The list's number, counted from 0.
        list: usize,
        /// The index of the first element out of order.
        index: usize,
    },

    /// The driver refused a kernel or its launch, or the kernel failed.
    #[error("kernel {kernel} failed on {device}: {reason}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// The device.
        device: String,
        /// The driver's message.
        reason: String,
    },

    /// Another driver call failed.
    #[error("{call} failed on {device}: {reason}")]
    Driver {
        /// What the call was for.
        call: &'static str,
        /// The device.
        device: String,
        /// The driver's message.
        reason: String,
    },
}

impl Error {
    /// The error for an empty input of an operator that has no value for it.
    pub(crate) fn empty<O: Op<I>, I: Copy + 'static>(op: &O) -> Self {
        Self::EmptyInput { op: O::agent().without_value(op) }
    }
}
