//! Rows on the machine's GPU.

use crate::instructions::kernel::{self, BLOCK, OWN, ROWS};
use crate::instructions::row::Row;
use cust::context::Context;
use cust::device::{Device, DeviceAttribute};
use cust::launch;
use cust::memory::DeviceBuffer;
use cust::stream::{Stream, StreamFlags};
use std::error::Error;

/// The machine's first GPU.
pub struct Gpu {
    device: Device,
    /// Keeps the primary context alive.
    _context: Context,
}

/// A module of rows, for the thread that loaded it.
pub struct Module {
    module: cust::module::Module,
    stream: Stream,
    _context: Context,
}

impl Gpu {
    /// # Errors
    ///
    /// There is no driver, or no GPU that can run the kernels.
    pub fn new() -> Result<Gpu, Box<dyn Error>> {
        libcuda::load()?;
        cust::init(cust::CudaFlags::empty())?;
        let device = Device::get_device(0)?;
        match device.get_attribute(DeviceAttribute::ComputeCapabilityMajor)? {
            9.. => Ok(Gpu { device, _context: Context::new(device)? }),
            major => Err(format!("{} has compute capability {major}", device.name()?).into()),
        }
    }

    /// Compiles rows for this thread.
    pub fn load(&self, rows: &[(usize, &Row)]) -> Module {
        let context = Context::new(self.device).expect("a context");
        let text = kernel::module(rows.iter().copied());
        Module {
            module: cust::module::Module::from_ptx(text, &[]).expect("the driver takes the rows"),
            stream: Stream::new(StreamFlags::NON_BLOCKING, None).expect("a stream"),
            _context: context,
        }
    }
}

impl Module {
    /// Runs a row; returns the results for each thread's sources.
    pub fn run(&self, row: usize, sources: &[[u64; 4]]) -> Vec<[u64; 2]> {
        let function = self.module.get_function(kernel::name(row)).expect("the module has it");
        let threads = sources.len();
        let zeroed = |words| DeviceBuffer::from_slice(&vec![0u64; words]).expect("the memory suffices");
        let (results, own) = (zeroed(2 * threads), zeroed(OWN / 8 * threads));
        let sources = DeviceBuffer::from_slice(sources.as_flattened()).expect("the memory suffices");
        let columns = threads as u32 / ROWS / BLOCK.iter().product::<u32>();
        let [x, y, z] = BLOCK;
        let stream = &self.stream;
        // SAFETY: the kernel takes three pointers, to two words, four words and `OWN` bytes per thread.
        unsafe {
            launch!(function<<<(columns, ROWS, 1), (x, y, z), 0, stream>>>(
                results.as_device_ptr(),
                sources.as_device_ptr(),
                own.as_device_ptr()
            ))
        }
        .expect("the launch starts");
        stream.synchronize().unwrap_or_else(|error| panic!("{error}: row {row}"));
        results.as_host_vec().expect("copied").as_chunks().0.to_vec()
    }
}
