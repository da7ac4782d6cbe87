//! cust on an implementation of the driver API other than the NVIDIA driver.
//!
//! Only one test, because the table of functions belongs to the whole program.

use std::{ffi::c_void, ptr, sync::OnceLock};

use cust::{
    CudaApiVersion, CudaFlags,
    error::CudaError,
    sys::{self, CUfunction, CUresult, CUstream},
};
use libcuda::LoadError;

type Launch = (usize, [u32; 7], usize, usize, usize);
static LAUNCHED: OnceLock<Launch> = OnceLock::new();

extern "C" fn init(flags: u32) -> CUresult {
    if flags == 0 { CUresult::CUDA_SUCCESS } else { CUresult::CUDA_ERROR_INVALID_VALUE }
}

unsafe extern "C" fn driver_get_version(version: *mut i32) -> CUresult {
    // SAFETY: cust passes a pointer that is valid for writes.
    unsafe { *version = 12_060 };
    CUresult::CUDA_SUCCESS
}

#[allow(clippy::too_many_arguments)]
extern "C" fn launch_kernel(
    function: CUfunction,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let sizes = [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes];
    LAUNCHED.set((function.addr(), sizes, stream.addr(), parameters.addr(), extra.addr())).unwrap();
    CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
}

fn resolve(name: &str) -> Option<*const c_void> {
    Some(match name {
        "cuInit" => init as *const c_void,
        "cuDriverGetVersion" => driver_get_version as *const c_void,
        "cuLaunchKernel" => launch_kernel as *const c_void,
        _ => return None,
    })
}

#[test]
fn cust_calls_what_is_installed() {
    for _ in 0..2 {
        // SAFETY: the three functions have the signatures of cust_raw.
        assert_eq!(unsafe { libcuda::install("a test", &resolve) }, Ok(()));
    }
    for _ in 0..2 {
        let error = LoadError::AlreadyInstalled { installed: "a test", refused: "libcuda.so.1" };
        assert_eq!(libcuda::load(), Err(error));
    }

    assert_eq!(cust::init(CudaFlags::empty()), Ok(()));
    // SAFETY: an unknown flag only returns an error.
    assert_eq!(unsafe { sys::cuInit(1) }, CUresult::CUDA_ERROR_INVALID_VALUE);
    let version = CudaApiVersion::get().unwrap();
    assert_eq!((version.major(), version.minor()), (12, 6));

    // Eleven arguments: on both architectures, the last ones are passed on the stack.
    let address = |n: usize| ptr::without_provenance_mut::<c_void>(usize::MAX - n);
    // SAFETY: launch_kernel dereferences none of the pointers.
    let launched = unsafe {
        let (function, stream) = (address(1).cast(), address(2).cast());
        sys::cuLaunchKernel(
            function,
            1,
            2,
            3,
            4,
            5,
            6,
            u32::MAX,
            stream,
            address(3).cast(),
            address(4).cast(),
        )
    };
    assert_eq!(launched, CUresult::CUDA_ERROR_LAUNCH_TIMEOUT);
    let expected =
        (usize::MAX - 1, [1, 2, 3, 4, 5, 6, u32::MAX], usize::MAX - 2, usize::MAX - 3, usize::MAX - 4);
    assert_eq!(LAUNCHED.get(), Some(&expected));

    // A function that the implementation lacks.
    assert_eq!(cust::device::Device::num_devices(), Err(CudaError::NotSupported));
}
