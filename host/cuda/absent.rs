//! No GPU, in a build without: the types of `cuda`, of which there are no values, so that whoever has one need not ask.

use crate::Error;
use crate::call::{Call, ColumnsCall, RunsCall, SegmentsCall, Types};
use std::convert::Infallible;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// A GPU that was opened: there is none.
#[derive(Debug, PartialEq)]
pub struct Gpu(Infallible);

/// Memory on a GPU.
pub struct Memory(Infallible);

/// A stream of a caller's own.
pub struct OwnStream(Infallible);

impl Gpu {
    pub fn open(_: usize) -> Result<Arc<Self>, Error> {
        Err(Error::NoCuda)
    }

    pub fn open_emulator() -> Result<Arc<Self>, Error> {
        Err(Error::NoEmulator)
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
    pub fn new(gpu: &Arc<Gpu>, _: usize) -> Result<Self, Error> {
        match gpu.0 {}
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
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

    pub fn read(&self, _: usize, _: &mut [u8]) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn address(&self, _: usize) -> u64 {
        match self.0 {}
    }
}

impl OwnStream {
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        match gpu.0 {}
    }

    pub fn gpu(&self) -> &Arc<Gpu> {
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
    pub unsafe fn fill(&mut self, _: *mut u8, _: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue(&mut self, _: &Call, _: *mut ()) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue_segments(&mut self, _: &SegmentsCall) -> Result<(), Error> {
        match self.0 {}
    }

    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue_runs(&mut self, _: &RunsCall) -> Result<(), Error> {
        match self.0 {}
    }
}

impl OwnStream {
    /// # Safety
    ///
    /// It is never called.
    pub unsafe fn enqueue_columns(&mut self, _: &ColumnsCall) -> Result<(), Error> {
        match self.0 {}
    }
}
