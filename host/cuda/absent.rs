//! No GPU, in a build without: the types of `cuda`, of which there are no values, so that whoever has one need not ask.

use crate::Error;
use crate::call::{Call, ColumnsCall, RunsCall, SegmentsCall, ShapeCall, Types};
use crate::sharded::{GpuShard, ShardsCall, SlotOrder, SlotsOfChunks};
use gpu_reduce_kernels::columns::Columns;
use gpu_reduce_kernels::segments::Segments;
use std::convert::Infallible;
use std::ffi::c_void;
use std::fmt;

/// A GPU that was opened: there is none.
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

impl Gpu {
    pub fn open(_: usize) -> Result<&'static Self, Error> {
        Err(Error::NoCuda)
    }

    pub fn open_emulator() -> Result<&'static Self, Error> {
        Err(Error::NoEmulator)
    }

    #[cfg(feature = "dlpack")]
    pub fn index(&self) -> usize {
        match self.0 {}
    }

    pub fn peak_bandwidth(&self) -> f64 {
        match self.0 {}
    }

    pub fn is_emulator(&self) -> bool {
        match self.0 {}
    }

    pub fn has_kernel(&self, _: &Types, _: u32) -> Result<bool, Error> {
        match self.0 {}
    }

    pub fn scratch_bytes(&self, _: &Types, _: u64, _: u32) -> usize {
        match self.0 {}
    }

    pub fn scratch_bytes_of_segments(&self, _: &Types, _: &Segments, _: u32) -> usize {
        match self.0 {}
    }

    pub fn scratch_bytes_of_columns(&self, _: &Types, _: &Columns, _: u32) -> usize {
        match self.0 {}
    }

    pub fn scratch_bytes_of_runs(&self, _: u64, _: usize) -> usize {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn write(&self, _: u64, _: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn check_memory(&self, _: u64, _: usize) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn reduce(&self, _: &Call, _: &mut [u8]) -> Result<(), Error> {
        match self.0 {}
    }
}

impl Gpu {
    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn reduce_segments(&self, _: &SegmentsCall) -> Result<Option<u64>, Error> {
        match self.0 {}
    }
}

impl Gpu {
    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn reduce_columns(&self, _: &ColumnsCall) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn find_runs(&self, _: &RunsCall) -> Result<u64, Error> {
        match self.0 {}
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

    pub fn gpu(&self) -> &'static Gpu {
        match self.0 {}
    }

    pub fn bytes(&self) -> usize {
        match self.0 {}
    }

    pub fn clear(&mut self) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn write(&mut self, _: usize, _: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn address(&self, _: usize) -> u64 {
        match self.0 {}
    }
}

impl Pinned {
    pub fn new(gpu: &'static Gpu, _: usize) -> Result<Self, Error> {
        match gpu.0 {}
    }

    pub fn gpu(&self) -> &'static Gpu {
        match self.0 {}
    }

    pub fn bytes(&self) -> usize {
        match self.0 {}
    }

    pub fn as_ptr(&self) -> *const u8 {
        match self.0 {}
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

    pub fn gpu(&self) -> &'static Gpu {
        match self.0 {}
    }

    pub fn as_raw(&self) -> *mut c_void {
        match self.0 {}
    }

    pub fn wait(&self) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn come_after(&self, _: *mut c_void) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn upload(&self, _: *const u8, _: *mut u8, _: usize) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn download(&self, _: *const u8, _: *mut u8, _: usize) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn fill(&self, _: *mut u8, _: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue(&self, _: &Call, _: *mut ()) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue_segments(&self, _: &SegmentsCall) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue_columns(&self, _: &ColumnsCall) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue_runs(&self, _: &RunsCall) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn launch(&self, _: &Call) -> Result<Launched, Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn launch_segments(&self, _: &SegmentsCall) -> Result<Launched, Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn launch_columns(&self, _: &ColumnsCall) -> Result<Launched, Error> {
        match self.0 {}
    }
}

impl GpuStream {
    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue_segments_to(&self, _: SegmentsCall, _: usize, _: u64) -> Result<(), Error> {
        match self.0 {}
    }
}

impl Launched {
    pub fn together(all: Vec<Self>) -> Self {
        match all.into_iter().next() {
            Some(first) => first,
            None => unreachable!("there is none"),
        }
    }

    pub fn words_of_parts(&self) -> impl Iterator<Item = &[u64]> {
        match self.0 {}
        #[allow(unreachable_code)]
        std::iter::empty()
    }

    pub fn is_done(&self) -> Result<bool, Error> {
        match self.0 {}
    }

    pub fn wait(&self) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn words(&self) -> &[u64] {
        match self.0 {}
    }
}

/// # Safety
///
/// It is never called.
pub unsafe fn launch_columns_of_shards(
    _: &[GpuStream],
    _: &[GpuShard],
    gpu: &'static Gpu,
    _: ShapeCall<()>,
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
    _: ShapeCall<()>,
    _: Columns,
    _: *mut c_void,
) -> Result<(), Error> {
    match gpu.0 {}
}

pub fn meet(_: &[GpuStream]) -> Result<(), Error> {
    Ok(())
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

impl Gpu {
    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn reduce_shards(
        &self,
        _: &ShardsCall,
        _: &mut dyn FnMut(&[SlotsOfChunks], &[u64]),
    ) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn copy(&self, _: u64, _: u64, _: usize) -> Result<(), Error> {
        match self.0 {}
    }
}
