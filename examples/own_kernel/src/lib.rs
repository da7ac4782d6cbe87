//! Host code for the kernels, written with cust. It runs on a GPU after `libcuda::load()`, and on the
//! emulator after `emulator::install()`.

use cust::error::CudaResult;
use cust::launch;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::Stream;

/// The PTX of the kernels.
pub const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// Returns the dot product of two arrays, up to the shorter length.
pub fn dot(stream: &Stream, x: &DeviceBuffer<f32>, y: &DeviceBuffer<f32>) -> CudaResult<f32> {
    let module = Module::from_ptx(PTX, &[])?;
    let len = x.len().min(y.len());
    let blocks = len.div_ceil(kernels::BLOCK as usize).max(1);
    let partials = DeviceBuffer::from_slice(&vec![0.0; blocks])?;
    // SAFETY: both arrays have `len` elements, and there is a partial sum for each block.
    unsafe {
        launch!(module.dot<<<blocks as u32, kernels::BLOCK, 0, stream>>>(
            x.as_device_ptr(), y.as_device_ptr(), len as u64, partials.as_device_ptr()
        ))?;
    }
    stream.synchronize()?;
    Ok(partials.as_host_vec()?.iter().sum())
}
