//! The one error type.

use crate::Op;

/// What can go wrong: what it was, with the offending value, and what to do about it. After any of them, the device and
/// every buffer are as they were.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine has no usable CUDA driver.
    #[error("{0}")]
    NoDriver(String),

    /// The library was built without GPU support.
    #[error(
        "this build has no GPU support: it needs the feature `cuda`, and Linux on x86-64 or aarch64; \
         use Device::cpu() otherwise"
    )]
    NoCuda,

    /// The library was built without the emulator.
    #[error(
        "this build has no emulator: build it with `--features gpu_reduce/emulator`, for Linux on x86-64 or \
         aarch64"
    )]
    NoEmulator,

    /// The program uses the machine's driver and asks for the emulator, or the other way round.
    #[error("{0}")]
    OtherDriver(String),

    /// The environment variable `GPU_REDUCE_DRIVER` names no driver.
    #[error("GPU_REDUCE_DRIVER is `{0}`: set it to `emulator` or `cuda`, or not at all")]
    UnknownDriver(String),

    /// The driver of GPUs was started in a process that forked this one.
    #[error(
        "{device} cannot be used in this process: the driver was started before the process was forked; open \
         devices in the child alone, or start the child with exec (Python: multiprocessing's `spawn`)"
    )]
    Forked {
        /// The device, as `cuda:0`.
        device: String,
    },

    /// The driver found no GPU at all.
    #[error(
        "the CUDA driver finds no GPU: check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use Device::cpu()"
    )]
    NoDevice,

    /// The index is past the last device.
    #[error("there is no device cuda:{index}: this machine has {count}, counted from cuda:0")]
    NoSuchDevice {
        /// The index asked for.
        index: usize,
        /// Devices that the driver sees.
        count: usize,
    },

    /// The driver does not know the kernels' PTX version.
    #[error(
        "the driver is one for CUDA {driver}, but the kernels need CUDA {needed} or newer: update the driver"
    )]
    DriverTooOld {
        /// The CUDA version of the driver, as `8.0`.
        driver: String,
        /// The oldest that serves.
        needed: String,
    },

    /// The GPU lacks what the kernels need.
    #[error("{device} has compute capability {capability}, but the kernels need {needed} or higher")]
    DeviceTooOld {
        /// The device.
        device: String,
        /// Its compute capability, as `6.1`.
        capability: String,
        /// The lowest that serves.
        needed: String,
    },

    /// A device's memory, or the host's, does not suffice.
    #[error(
        "out of memory on {device}: asked for {requested} bytes{}; reduce in pieces or free buffers",
        free.map_or(String::new(), |free| format!(", {free} are free"))
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for; `usize::MAX` where they are more.
        requested: usize,
        /// Bytes free when it failed, on a GPU. What a host has left, its system does not say.
        free: Option<usize>,
    },

    /// A reduction that has no value for no elements got none.
    #[error("{op} of an empty input: it has no value; check the length first")]
    EmptyInput {
        /// The operator's name.
        op: &'static str,
    },

    /// A buffer lies on another device than the one asked to work on it.
    #[error("the buffer lies on {buffer}, not on {device}: reduce it where it lies, or copy it")]
    DeviceMismatch {
        /// Where the buffer lies.
        buffer: String,
        /// The device that was asked.
        device: String,
    },

    /// A stream or memory is of another context of the driver's than the one that the library works in.
    #[error(
        "{what} is of the context {context:#x}, and {device} works in its primary context {own:#x}: use one of that (cust::context::Context, \
         cuDevicePrimaryCtxRetain)"
    )]
    ContextMismatch {
        /// What it is.
        what: &'static str,
        /// Its context.
        context: usize,
        /// The device.
        device: String,
        /// The device's context.
        own: usize,
    },

    /// What is to be captured in a graph is the first of its kind, or would be waited for.
    #[error(
        "the stream is being captured, and this call allocates or is waited for: enqueue the same once before the capture, on the same Stream"
    )]
    Capture,

    /// The memory that was lent to a stream does not suffice.
    #[error(
        "the stream's scratch memory has {left} bytes left, and the call takes {needed}: lend as many as `scratch_bytes` says, for calls of several \
         kinds their sum"
    )]
    Scratch {
        /// Bytes that are needed.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },

    /// Two inputs that reduce together have different lengths.
    #[error(
        "the first input has {first} elements and the second {second}: inputs that reduce together have one length"
    )]
    LengthMismatch {
        /// Elements in the first.
        first: usize,
        /// Elements in the second.
        second: usize,
    },

    /// Two inputs that reduce together lie on several devices, and not item by item on the same.
    #[error(
        "the first input's shards have {first} elements and the second's {second}: inputs that reduce together are cut at the same places"
    )]
    ShardMismatch {
        /// Elements of each of the first's, as `[3, 4]`.
        first: String,
        /// Elements of each of the second's.
        second: String,
    },

    /// Devices that are to be used together, or their streams, are not several GPUs, each once, nor one device.
    #[error(
        "{device} cannot be one of several devices: give each GPU once, or the CPU alone, and at least one"
    )]
    NotDistinct {
        /// The device that is there twice, or the CPU; or none.
        device: String,
    },

    /// Data on several devices were given to what takes them on one.
    #[error("the items lie on {devices}: copy them to one device first (Sharded::to_vec, Device::upload)")]
    SeveralDevices {
        /// The devices.
        devices: String,
    },

    /// A range of elements reaches past the buffer's end, or ends before it starts.
    #[error("elements {start}..{end} are not in a buffer of {len} elements")]
    OutOfBounds {
        /// The range's start.
        start: usize,
        /// The range's end, exclusive.
        end: usize,
        /// Elements in the buffer.
        len: usize,
    },

    /// A reduction piece by piece has not got all of its items yet.
    #[error(
        "{count} of {len} items were pushed: push the others, or make the Reducer by `new`, for any number"
    )]
    Incomplete {
        /// Items so far.
        count: u64,
        /// The number given beforehand.
        len: u64,
    },

    /// Elements that are to be a part of a whole have a part of a chunk.
    #[error(
        "elements {start}..{end} of {len} are not whole chunks, which begin at multiples of {chunk}: Plan::part says where parts lie"
    )]
    Unchunked {
        /// The first.
        start: u64,
        /// The one after the last.
        end: u64,
        /// Elements of a chunk.
        chunk: u64,
        /// Elements of the whole.
        len: u64,
    },

    /// Elements are in a partial result already.
    #[error("elements {start}..{end} of {len} are there twice: each has to be in one partial result")]
    Twice {
        /// The first.
        start: u64,
        /// The one after the last that lies beside it and is there twice.
        end: u64,
        /// Elements of the whole.
        len: u64,
    },

    /// Elements are in none of the partial results.
    #[error("elements {start}..{end} of {len} are missing: merge the partial result that has them")]
    Missing {
        /// The first.
        start: u64,
        /// The one after the last that lies beside it and is missing.
        end: u64,
        /// Elements of the whole.
        len: u64,
    },

    /// A partial result is one of another reduction.
    #[error("a partial result of another reduction: the {what} is {found}, and here {expected}")]
    ReductionMismatch {
        /// What differs.
        what: &'static str,
        /// What it is there.
        found: String,
        /// What it is here.
        expected: String,
    },

    /// Bytes are no partial result.
    #[error("these bytes are no partial result: {0}")]
    BadPartial(String),

    /// A rank of a communicator failed, or cannot go on.
    #[error("rank {rank} failed: {reason}")]
    Rank {
        /// The first that did.
        rank: usize,
        /// Why.
        reason: String,
    },

    /// A rank of a communicator reduces something else than the others.
    #[error(
        "rank {rank} disagrees with rank 0 on the {what}: {found}, not {expected}; all ranks make the same call"
    )]
    Disagree {
        /// What differs.
        what: &'static str,
        /// The first rank that differs from rank 0.
        rank: usize,
        /// What it has.
        found: String,
        /// What rank 0 has.
        expected: String,
    },

    /// Elements do not lie at a multiple of their alignment.
    #[error(
        "elements at {address:#x} are not aligned: theirs is a multiple of {align} bytes; copy them, or reduce a type that has it"
    )]
    Unaligned {
        /// Where they lie.
        address: u64,
        /// Their type's alignment.
        align: usize,
    },

    /// The elements of another library's array are of another type than the one asked for.
    #[error("the array's elements are {found}, not {expected}: take them as what they are, or convert them")]
    OtherType {
        /// Their type, as the array's protocol says it.
        found: String,
        /// The one asked for.
        expected: String,
    },

    /// The elements of another library's array do not lie side by side in row-major order.
    #[error(
        "an array of shape {shape} with strides of {strides} is not C-contiguous: make it so first (x.contiguous() of PyTorch, cupy.ascontiguousarray(x))"
    )]
    NotContiguous {
        /// The array's shape, as `[2, 3]`.
        shape: String,
        /// Its strides, as `[4, 8] bytes`.
        strides: String,
    },

    /// Another library's array is not to be written to.
    #[error("the array at {address:#x} is read-only: give results another place")]
    ReadOnly {
        /// Where it lies.
        address: u64,
    },

    /// Another library's array lies on a device that is neither the CPU nor of CUDA.
    #[error("the array lies on {device}: copy it to the CPU or to a CUDA GPU")]
    ForeignDevice {
        /// The device, as its protocol says it.
        device: String,
    },

    /// Another library's array is described in a way that its protocol does not allow.
    #[error("the array's description is wrong: {0}")]
    BadArray(String),

    /// An offset is below the one before, or past the end of the items.
    #[error(
        "offset {index} is {offset}: it has to be at least {before}, as the one before, and at most {len}, the number of items"
    )]
    BadOffset {
        /// The first that is wrong, counted from 0.
        index: u64,
        /// The offset.
        offset: u64,
        /// The one before; 0 of the first.
        before: u64,
        /// Items.
        len: u64,
    },

    /// Segments are given by no offset at all.
    #[error("there are no offsets: give one more than there are segments, at least one")]
    NoOffsets,

    /// A segment has no items, and the operator no value for it.
    #[error(
        "{op} of segment {segment}, which is empty: it has no value; reduce_or takes one for such segments"
    )]
    EmptySegment {
        /// The operator's name.
        op: &'static str,
        /// The first such segment, counted from 0.
        segment: u64,
    },

    /// A shape does not have as many items as there are.
    #[error("{shape} do not make up {len} items: give lengths whose product is that")]
    Shape {
        /// The shape, as `rows of 3`.
        shape: String,
        /// Items.
        len: usize,
    },

    /// An array does not have such axes.
    #[error(
        "there are no axes {start}..{end} in an array of {axes}: give one, or a range of neighbouring ones, counted from 0"
    )]
    Axes {
        /// The first.
        start: usize,
        /// The one after the last.
        end: usize,
        /// Axes of the array.
        axes: usize,
    },

    /// No kernel was compiled for this operator, type and BLOCK.
    #[error(
        "no kernel of {kernel} is compiled: reduce on Device::cpu(), or compile one in the crate of the operator \
         (gpu_reduce_kernels::kernels!) and name its table as Op::KERNELS"
    )]
    NoKernel {
        /// The kernel's operator, items and BLOCK, as `sum over f32 with BLOCK 256`.
        kernel: String,
    },

    /// The CPU backend has one way to reduce.
    #[error(
        "{variant} runs on GPUs, and the data lies on the CPU: upload it to a GPU, or to Device::emulator()"
    )]
    NoVariant {
        /// The variant's name, as `sequential`.
        variant: &'static str,
    },

    /// A list to be merged is not sorted.
    #[error(
        "list {list} is not sorted: its element {index} is less than the one before it (NaN is the least)"
    )]
    NotSorted {
        /// The number of the list.
        list: usize,
        /// The first element that is out of order.
        index: usize,
    },

    /// The driver refused a kernel or its launch, or the launch failed.
    #[error("kernel {kernel} failed on {device}: {reason}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// The device.
        device: String,
        /// What the driver says.
        reason: String,
    },

    /// Any other driver call failed.
    #[error("{call} failed on {device}: {reason}")]
    Driver {
        /// What was being done.
        call: &'static str,
        /// The device.
        device: String,
        /// What the driver says.
        reason: String,
    },
}

impl Error {
    /// Of an operator that has no value for no items.
    pub(crate) fn empty<O: Op<I>, I: Copy + 'static>(op: &O) -> Self {
        Self::EmptyInput { op: op.without_value() }
    }
}
