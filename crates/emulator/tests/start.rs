//! The driver before and after initialisation, and contexts.
//!
//! Only one test, because initialisation affects the whole program.

use cust::sys::cudaError_enum::*;
use cust::sys::*;
use std::ffi::CStr;
use std::ptr::{null_mut, without_provenance_mut as handle};

#[test]
fn initialisation_and_contexts() {
    emulator::install().unwrap();
    emulator::install().unwrap();
    let (mut number, mut flags, mut context, mut address) = (0, 0, null_mut(), 0);
    // SAFETY: each pointer is null or to a variable of the type that the function writes.
    unsafe {
        assert_eq!(cuDeviceGetCount(&mut number), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cuMemAlloc_v2(&mut address, 4), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!((cuDriverGetVersion(&mut number), number), (CUDA_SUCCESS, 13_000));
        assert_eq!(cuInit(1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuInit(0), CUDA_SUCCESS);
        assert_eq!(cuInit(0), CUDA_SUCCESS);
        assert_eq!((cuDeviceGetCount(&mut number), number), (CUDA_SUCCESS, 1));

        // No context.
        assert_eq!(cuMemAlloc_v2(&mut address, 4), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuStreamSynchronize(null_mut()), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxGetDevice(&mut number), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxPopCurrent_v2(&mut context), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxPushCurrent_v2(null_mut()), CUDA_ERROR_INVALID_VALUE);
        assert_eq!((cuCtxGetCurrent(&mut context), context), (CUDA_SUCCESS, null_mut()));
        assert_eq!(cuCtxSetCurrent(handle(0x5000)), CUDA_ERROR_INVALID_CONTEXT);

        // No such device.
        assert_eq!(cuDeviceGet(&mut number, 1), CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(cuDeviceGet(&mut number, -1), CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(cuDeviceGet(null_mut(), 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 1), CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(cuCtxCreate_v2(&mut context, 0, 7), CUDA_ERROR_INVALID_DEVICE);

        // The primary context is live while it is retained, and always has the same handle.
        let active = |flags: &mut u32, number: &mut i32| {
            assert_eq!(cuDevicePrimaryCtxGetState(0, flags, number), CUDA_SUCCESS);
            (*flags, *number)
        };
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        assert_eq!(cuDevicePrimaryCtxSetFlags_v2(0, 1 << 20), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuDevicePrimaryCtxSetFlags_v2(0, 4), CUDA_SUCCESS);
        assert_eq!(active(&mut flags, &mut number), (4, 0));
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), CUDA_SUCCESS);
        let primary = context;
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), CUDA_SUCCESS);
        assert_eq!(context, primary);
        assert_eq!(active(&mut flags, &mut number), (4, 1));
        assert_eq!(cuCtxSetCurrent(primary), CUDA_SUCCESS);
        assert_eq!(cuMemAlloc_v2(&mut address, 4), CUDA_SUCCESS);
        assert_eq!(cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
        assert_eq!(active(&mut flags, &mut number), (0, 0));
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_eq!(cuMemFree_v2(address), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_eq!(cuCtxGetApiVersion(primary, &mut flags), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
        assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), CUDA_SUCCESS);
        assert_eq!(cuCtxSynchronize(), CUDA_SUCCESS);

        // A created context on this thread's stack, destroyed by another thread.
        assert_eq!(cuCtxCreate_v2(&mut context, 1 << 20, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuCtxCreate_v2(&mut context, 0, 0), CUDA_SUCCESS);
        let own = context;
        assert_eq!(cuMemAlloc_v2(&mut address, 4), CUDA_SUCCESS);
        assert_eq!(cuCtxPopCurrent_v2(&mut context), CUDA_SUCCESS);
        assert_eq!(context, own);
        assert_eq!((cuCtxGetCurrent(&mut context), context), (CUDA_SUCCESS, primary));
        assert_eq!(cuCtxPushCurrent_v2(own), CUDA_SUCCESS);
        let number = own.addr();
        let destroy = move || cuCtxDestroy_v2(handle(number));
        assert_eq!(std::thread::spawn(destroy).join().unwrap(), CUDA_SUCCESS);
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_eq!(cuCtxDestroy_v2(own), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxPopCurrent_v2(null_mut()), CUDA_SUCCESS);
        assert_eq!(cuCtxSynchronize(), CUDA_SUCCESS);

        let mut name = [1; 4];
        assert_eq!(cuDeviceGetName(name.as_mut_ptr(), 4, 0), CUDA_SUCCESS);
        assert_eq!(CStr::from_ptr(name.as_ptr()), c"PTX");
        let mut graph = null_mut();
        assert_eq!(cuGraphCreate(&mut graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    }
}
