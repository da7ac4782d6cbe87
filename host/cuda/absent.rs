//! A build without GPUs: the types of `cuda`, without values. Code that has one compiles, and never runs.

use crate::by_index::Tally;
use crate::request::{InOrder, KeyColumn, Operation, Request, Shape, Sorting, Spread, Terms, ToWords, Types};
use crate::sharded::{GpuShard, ShardsCall, SlotOrder, SlotsOfChunks};
use crate::{Buffer, Error};
use gpu_reduce_kernels::columns::Columns;
use gpu_reduce_kernels::indices::{Bins, Rows};
use gpu_reduce_kernels::segments::SegmentBounds;
use std::convert::Infallible;
use std::ffi::c_void;
use std::fmt;

/// A GPU that was opened.
#[derive(Debug, PartialEq)]
pub struct Gpu(Infallible);

/// Memory on a GPU.
pub struct Memory(Infallible);

/// Page-locked memory of the host.
pub struct Pinned(Infallible);

/// A stream that callers enqueue on.
pub struct GpuStream(Infallible);

/// Work that is enqueued.
pub struct Launched(Infallible);

/// Methods of types without values.
macro_rules! absent {
    ($($type:ident { $($(#[$cfg:meta])* fn $name:ident(&self $(, $argument:ty)*) $(-> $result:ty)?;)* })*) => {$(
        impl $type {$(
            $(#[$cfg])*
            pub fn $name(&self $(, _: $argument)*) $(-> $result)? {
                match self.0 {}
            }
        )*}
    )*};
    (unsafe $($type:ident { $(fn $name:ident(&self $(, $argument:ty)*) -> $result:ty;)* })*) => {$(
        impl $type {$(
            /// # Safety
            ///
            /// It is never called.
            pub unsafe fn $name(&self $(, _: $argument)*) -> $result {
                match self.0 {}
            }
        )*}
    )*};
}

absent! {
    Gpu {
        #[cfg(feature = "dlpack")]
        fn index(&self) -> usize;
        fn peak_bandwidth(&self) -> f64;
        fn is_emulator(&self) -> bool;
        fn expose(&self);
        fn has_kernel(&self, &Types, u32) -> bool;
        fn scratch_bytes(&self, &Types, &Shape, u32) -> usize;
        fn check_memory(&self, u64, usize) -> Result<(), Error>;
        fn tally_bytes(&self, &Tally) -> usize;
        fn spread_bytes(&self, &Spread) -> usize;
        fn bytes_of_terms(&self, &Terms) -> usize;
        fn bytes_to_words(&self, &ToWords) -> usize;
        fn in_order_bytes(&self, &InOrder) -> usize;
    }
    Memory {
        fn gpu(&self) -> &'static Gpu;
        fn address(&self, usize) -> u64;
    }
    Pinned {
        fn gpu(&self) -> &'static Gpu;
        fn bytes(&self) -> usize;
        fn as_ptr(&self) -> *const u8;
    }
    GpuStream {
        fn gpu(&self) -> &'static Gpu;
        fn as_raw(&self) -> *mut c_void;
        fn synchronize(&self) -> Result<(), Error>;
        fn is_capturing(&self) -> Result<bool, Error>;
        fn wait_unless_captured(&self) -> Result<(), Error>;
    }
    Launched {
        fn is_done(&self) -> Result<bool, Error>;
        fn wait(&self) -> Result<(), Error>;
        fn words(&self) -> &[u64];
    }
}

absent! { unsafe
    Gpu {
        fn read(&self, u64, &mut [u8]) -> Result<(), Error>;
        fn write(&self, u64, &[u8]) -> Result<(), Error>;
        fn run(&self, &Request, &mut [u8]) -> Result<u64, Error>;
        fn list_offsets(&self, &SegmentBounds) -> Result<(), Error>;
        fn reduce_shards(&self, &ShardsCall, &mut dyn FnMut(&[SlotsOfChunks], &[u64])) -> Result<(), Error>;
        fn copy(&self, u64, u64, usize) -> Result<(), Error>;
        fn tally(&self, &Tally) -> Result<u64, Error>;
        fn spread(&self, &Spread) -> Result<u64, Error>;
        fn tally_terms(&self, &Terms) -> Result<u64, Error>;
        fn sort(&self, &Sorting, *mut u32) -> Result<u64, Error>;
        fn gather(&self, *const c_void, [usize; 2], (*const u32, usize), *mut c_void) -> Result<(), Error>;
        fn number(&self, &[KeyColumn], usize, bool) -> Result<(Buffer<u32>, Buffer<u32>), Error>;
        fn expand(&self, Rows) -> Result<u64, Error>;
        fn reduce_to_words(&self, &ToWords) -> Result<[u64; 2], Error>;
    }
    GpuStream {
        fn come_after(&self, *mut c_void) -> Result<(), Error>;
        fn upload(&self, *const u8, *mut u8, usize) -> Result<(), Error>;
        fn download(&self, *const u8, *mut u8, usize) -> Result<(), Error>;
        fn fill(&self, *mut u8, &[u8]) -> Result<(), Error>;
        fn enqueue(&self, &Request) -> Result<(), Error>;
        fn enqueue_to(&self, Request, usize, u64) -> Result<(), Error>;
        fn launch(&self, &Request) -> Result<Launched, Error>;
        fn enqueue_tally(&self, &Tally) -> Result<(), Error>;
        fn enqueue_spread(&self, &Spread) -> Result<(), Error>;
        fn enqueue_terms(&self, &Terms) -> Result<(), Error>;
        fn enqueue_to_words(&self, &ToWords) -> Result<(), Error>;
        fn launch_tally(&self, &Tally) -> Result<Launched, Error>;
        fn launch_spread(&self, &Spread) -> Result<Launched, Error>;
        fn launch_terms(&self, &Terms) -> Result<Launched, Error>;
        fn launch_to_words(&self, &ToWords) -> Result<Launched, Error>;
        fn enqueue_in_order(&self, &InOrder) -> Result<(), Error>;
        fn launch_in_order(&self, &InOrder) -> Result<Launched, Error>;
    }
}

impl Gpu {
    pub fn open(_: usize) -> Result<&'static Self, Error> {
        Err(Error::NoCuda)
    }

    pub fn open_emulator() -> Result<&'static Self, Error> {
        Err(Error::NoEmulator)
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, _: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {}
    }
}

impl Memory {
    pub fn new(gpu: &'static Gpu, _: usize) -> Result<Self, Error> {
        match gpu.0 {}
    }

    pub fn clear(&mut self) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn write(&mut self, _: usize, _: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }
}

impl Pinned {
    pub fn new(gpu: &'static Gpu, _: usize) -> Result<Self, Error> {
        match gpu.0 {}
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        match self.0 {}
    }
}

impl GpuStream {
    pub fn new(gpu: &'static Gpu) -> Result<Self, Error> {
        match gpu.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn of(gpu: &'static Gpu, _: *mut c_void) -> Result<Self, Error> {
        match gpu.0 {}
    }

    pub fn lend(&mut self, _: u64, _: usize) -> Result<(), Error> {
        match self.0 {}
    }
}

impl Gpu {
    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn find_bins<T>(
        &self,
        _: *const T,
        _: usize,
        _: Bins,
        _: *const f64,
    ) -> Result<Buffer<u32>, Error> {
        match self.0 {}
    }
}

impl Launched {
    pub fn together(all: Vec<Self>) -> Self {
        match all.into_iter().next() {
            Some(first) => first,
            None => unreachable!("there is at least one"),
        }
    }

    pub fn words_of_parts(&self) -> impl Iterator<Item = &[u64]> {
        match self.0 {}
        #[allow(unreachable_code)]
        std::iter::empty()
    }
}

/// # Safety
///
/// It is never called.
pub unsafe fn launch_columns_of_shards(
    _: &[GpuStream],
    _: &[GpuShard],
    gpu: &'static Gpu,
    _: Operation,
    _: Columns,
    _: *mut c_void,
) -> Result<Launched, Error> {
    match gpu.0 {}
}

/// # Safety
///
/// It is never called.
pub unsafe fn enqueue_columns_of_shards(
    _: &[GpuStream],
    _: &[GpuShard],
    gpu: &'static Gpu,
    _: Operation,
    _: Columns,
    _: *mut c_void,
) -> Result<(), Error> {
    match gpu.0 {}
}

pub fn meet(_: &[GpuStream]) -> Result<bool, Error> {
    Ok(false)
}

pub fn stream_of<'s>(_: &'s [GpuStream], gpu: &Gpu) -> Result<&'s GpuStream, Error> {
    match gpu.0 {}
}

/// # Safety
///
/// Nothing: there are no streams.
pub unsafe fn launch_shards(_: &[GpuStream], _: &ShardsCall) -> Result<(Launched, Vec<SlotOrder>), Error> {
    Err(Error::NoCuda)
}

/// # Safety
///
/// Nothing: there are no streams.
pub unsafe fn enqueue_shards(
    _: &[GpuStream],
    _: &ShardsCall,
    gpu: &'static Gpu,
    _: *mut (),
) -> Result<(), Error> {
    match gpu.0 {}
}
