//! Misuse of the driver API. The codes are those of the NVIDIA driver 580 on an H200, unless a comment says
//! otherwise.
//!
//! The tests share the primary context; each of them retains it.

use cust::sys::cudaError_enum::*;
use cust::sys::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut, without_provenance_mut as handle};

const PTX: &CStr = c"
.version 6.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .const .align 4 .u32 seven = 7;
.visible .entry small(.param .u64 to) .maxntid 128, 1, 1 {
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    .shared .align 4 .b8 room[4096];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    or.b32 %r1, %r1, %r2;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    ld.param.u64 %rd1, [to];
    st.shared.u32 [room], %r1;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry big(.param .u64 to, .param .u32 value, .param .u8 unused) {
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    mov.u32 %r1, %tid.z;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
";

fn context() -> cust::context::Context {
    emulator::install().unwrap();
    cust::quick_init().unwrap()
}

/// # Safety
///
/// There is a current context.
unsafe fn module() -> CUmodule {
    let mut module = null_mut();
    // SAFETY: the text ends in a zero.
    assert_eq!(unsafe { cuModuleLoadData(&mut module, PTX.as_ptr().cast()) }, CUDA_SUCCESS);
    module
}

/// # Safety
///
/// The module is loaded.
unsafe fn function(module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = null_mut();
    // SAFETY: the name ends in a zero.
    assert_eq!(unsafe { cuModuleGetFunction(&mut function, module, name.as_ptr()) }, CUDA_SUCCESS);
    function
}

#[test]
fn memory() {
    let _context = context();
    let (mut a, mut base, mut bytes, mut host, mut flags) = (0, 0, 0, null_mut(), 0);
    // SAFETY: pointers are to variables of the right type; only `a` and `host` are used as memory, while they
    // live.
    unsafe {
        assert_eq!(cuMemAlloc_v2(null_mut(), 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemAlloc_v2(&mut a, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemAlloc_v2(&mut a, 1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(cuMemAlloc_v2(&mut a, usize::MAX), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(cuMemAlloc_v2(&mut a, 100), CUDA_SUCCESS);
        assert_eq!(cuMemGetAddressRange_v2(&mut base, &mut bytes, a + 99), CUDA_SUCCESS);
        assert_eq!((base, bytes), (a, 100));
        assert_eq!(cuMemGetAddressRange_v2(&mut base, &mut bytes, a + 100), CUDA_ERROR_NOT_FOUND);
        assert_eq!(cuMemFree_v2(a + 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemFreeHost(handle(a as usize)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemFree_v2(a), CUDA_SUCCESS);
        assert_eq!(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemFree_v2(0), CUDA_SUCCESS);

        assert_eq!(cuMemAllocHost_v2(&mut host, 100), CUDA_SUCCESS);
        let address = host.addr() as u64;
        assert_eq!(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemHostGetDevicePointer_v2(&mut a, host.byte_add(8), 0), CUDA_SUCCESS);
        assert_eq!(a, address + 8);
        assert_eq!(cuMemHostGetDevicePointer_v2(&mut a, (&raw mut a).cast(), 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!((cuMemHostGetFlags(&mut flags, host), flags), (CUDA_SUCCESS, 2));
        assert_eq!(cuMemHostUnregister(host), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemHostRegister_v2(host, 100, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemFreeHost(host), CUDA_SUCCESS);
        assert_eq!(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemFreeHost(null_mut()), CUDA_SUCCESS);
        assert_eq!((cuMemAllocHost_v2(&mut host, 0), host), (CUDA_SUCCESS, null_mut()));

        let mut own = vec![0u8; 64];
        let own: *mut c_void = own.as_mut_ptr().cast();
        assert_eq!(cuMemHostRegister_v2(own, 64, 0), CUDA_SUCCESS);
        assert_eq!(cuMemHostRegister_v2(own, 64, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        assert_eq!(cuMemHostGetDevicePointer_v2(&mut a, own, 0), CUDA_SUCCESS);
        assert_eq!(cuMemFreeHost(own), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemHostUnregister(own.byte_add(8)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemHostUnregister(own), CUDA_SUCCESS);
        assert_eq!(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);

        assert_eq!(cuMemAllocManaged(&mut a, 100, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemAllocManaged(&mut a, 100, 1), CUDA_SUCCESS);
        assert_eq!(cuMemPrefetchAsync(a, 100, 0, null_mut()), CUDA_SUCCESS);
        assert_eq!(cuMemPrefetchAsync(a, 101, 0, null_mut()), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemFree_v2(a), CUDA_SUCCESS);
        assert_eq!(cuMemAllocPitch_v2(&mut a, &mut bytes, 513, 2, 3), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemAllocPitch_v2(&mut a, &mut bytes, 513, 2, 4), CUDA_SUCCESS);
        assert_eq!(bytes, 1024);
        assert_eq!(cuMemFreeAsync(a, null_mut()), CUDA_SUCCESS);
        assert_eq!(cuMemAllocAsync(&mut a, 100, null_mut()), CUDA_SUCCESS);
        assert_eq!(cuMemFree_v2(a), CUDA_SUCCESS);
        assert_eq!(cuMemFreeAsync(a, null_mut()), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn memory_pools() {
    let _context = context();
    let mut properties = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 },
        ..CUmemPoolProps::default()
    };
    let (mut default, mut own, mut pool, mut a) = (null_mut(), null_mut(), null_mut(), 0);
    let set = |pool, attribute, mut value: u64| {
        // SAFETY: the attribute has eight bytes.
        unsafe { cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()) }
    };
    let get = |pool, attribute| {
        let mut value = 0u64;
        // SAFETY: as above.
        let code = unsafe { cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) };
        (code, value)
    };
    let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    let used = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    let high = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    // SAFETY: pools are only looked up.
    unsafe {
        assert_eq!(cuDeviceGetDefaultMemPool(&mut default, 9), CUDA_ERROR_INVALID_DEVICE);
        assert_eq!(cuDeviceGetDefaultMemPool(&mut default, 0), CUDA_SUCCESS);
        assert_eq!((cuDeviceGetMemPool(&mut pool, 0), pool), (CUDA_SUCCESS, default));
        assert_eq!(set(default, threshold, u64::MAX), CUDA_SUCCESS);
        assert_eq!(get(default, threshold), (CUDA_SUCCESS, u64::MAX));
        assert_eq!(get(null_mut(), threshold), (CUDA_ERROR_INVALID_VALUE, 0));

        assert_eq!(cuMemPoolCreate(&mut own, null()), CUDA_ERROR_INVALID_VALUE);
        properties.location.id = 9;
        assert_eq!(cuMemPoolCreate(&mut own, &properties), CUDA_ERROR_INVALID_DEVICE);
        properties.location.id = 0;
        assert_eq!(cuMemPoolCreate(&mut own, &properties), CUDA_SUCCESS);
        assert_eq!(cuMemAllocFromPoolAsync(&mut a, 100, own, null_mut()), CUDA_SUCCESS);
        assert_eq!(get(own, used), (CUDA_SUCCESS, 100));
        assert_eq!(set(own, used, 0), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemsetD8_v2(a, 7, 100), CUDA_SUCCESS);
        assert_eq!(cuMemFreeAsync(a, null_mut()), CUDA_SUCCESS);
        assert_eq!((get(own, used), get(own, high)), ((CUDA_SUCCESS, 0), (CUDA_SUCCESS, 100)));
        assert_eq!(set(own, high, 1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!((set(own, high, 0), get(own, high)), (CUDA_SUCCESS, (CUDA_SUCCESS, 0)));
        assert_eq!(cuMemPoolTrimTo(own, 0), CUDA_SUCCESS);

        // The device's streams allocate from the current pool.
        assert_eq!(cuDeviceSetMemPool(0, own), CUDA_SUCCESS);
        assert_eq!(cuMemAllocAsync(&mut a, 60, null_mut()), CUDA_SUCCESS);
        assert_eq!(get(own, used), (CUDA_SUCCESS, 60));
        assert_eq!(cuMemPoolDestroy(own), CUDA_SUCCESS);
        assert_eq!(cuMemPoolDestroy(own), CUDA_ERROR_INVALID_VALUE);
        assert_eq!((cuDeviceGetMemPool(&mut pool, 0), pool), (CUDA_SUCCESS, default));
        assert_eq!(cuMemPoolDestroy(default), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemFreeAsync(a, null_mut()), CUDA_SUCCESS);
        let mut flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        assert_eq!(cuMemPoolGetAccess(&mut flags, default, &mut properties.location), CUDA_SUCCESS);
        assert_eq!(flags, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        let mut access = CUmemAccessDesc { location: properties.location, flags };
        assert_eq!(cuMemPoolSetAccess(default, &access, 1), CUDA_SUCCESS);
        access.flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        assert_eq!(cuMemPoolSetAccess(default, &access, 1), CUDA_ERROR_INVALID_VALUE);
    }
}

#[test]
fn copies() {
    let _context = context();
    let (mut a, mut b) = (0, 0);
    let mut bytes = [1u8; 64];
    let host: *mut c_void = bytes.as_mut_ptr().cast();
    let address = host.addr() as u64;
    // SAFETY: host ranges lie in `bytes`, or have no length.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&mut a, 32), CUDA_SUCCESS);
        assert_eq!(cuMemAlloc_v2(&mut b, 32), CUDA_SUCCESS);
        assert_eq!(cuMemcpyHtoD_v2(a, host, 32), CUDA_SUCCESS);
        assert_eq!(cuMemcpyHtoD_v2(a, host, 33), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(a + 31, host, 2), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(0, host, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(0, host, 0), CUDA_SUCCESS);
        assert_eq!(cuMemcpyHtoD_v2(a, null(), 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoD_v2(address, host, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyDtoH_v2(null_mut(), a, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyDtoH_v2(host, a, 33), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyDtoD_v2(b, a, 32), CUDA_SUCCESS);
        assert_eq!(cuMemcpyDtoD_v2(b, a, 33), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyDtoD_v2(b, 0, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyHtoDAsync_v2(a, host, 33, null_mut()), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemsetD8_v2(b, 2, 33), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemsetD16_v2(b + 1, 2, 1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemsetD32_v2(b + 2, 2, 1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemsetD32_v2(b, 2, 0), CUDA_SUCCESS);
        assert_eq!(cuMemsetD16_v2(b + 4, 0x0302, 3), CUDA_SUCCESS);
        // Either side of cuMemcpy may be host memory.
        assert_eq!(cuMemcpy(address, b, 12), CUDA_SUCCESS);
        assert_eq!(bytes[..12], [1, 1, 1, 1, 2, 3, 2, 3, 2, 3, 1, 1]);
        assert_eq!(cuMemFree_v2(a), CUDA_SUCCESS);
        assert_eq!(cuMemFree_v2(b), CUDA_SUCCESS);
    }
}

#[test]
fn handles() {
    let _context = context();
    let (mut stream, mut event, mut other, mut time) = (null_mut(), null_mut(), null_mut(), 0.0);
    let mut number = 0;
    extern "C" fn call_the_driver(answer: *mut c_void) {
        let mut device = 0;
        // SAFETY: `answer` is the code below.
        unsafe { *answer.cast::<CUresult>() = cuCtxGetDevice(&mut device) };
    }
    // SAFETY: handles are looked up, never followed; pointers are to variables of the right type.
    unsafe {
        // The NVIDIA driver crashes on handles that it never returned or that were destroyed.
        for wrong in [handle(0x5000), handle(0x5001)] {
            assert_eq!(cuStreamSynchronize(wrong), CUDA_ERROR_INVALID_HANDLE);
        }
        assert_eq!(cuEventQuery(handle(0x5000)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuModuleUnload(handle(0x5000)), CUDA_ERROR_INVALID_HANDLE);
        let launch = |f| cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut());
        assert_eq!(launch(handle(0x5000)), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(launch(null_mut()), CUDA_ERROR_INVALID_HANDLE);

        assert_eq!(cuStreamCreate(&mut stream, 2), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuStreamCreateWithPriority(&mut stream, 1, -99), CUDA_SUCCESS);
        assert_eq!((cuStreamGetPriority(stream, &mut number), number), (CUDA_SUCCESS, -5));
        for fixed in 0..3 {
            assert_eq!(cuStreamQuery(handle(fixed)), CUDA_SUCCESS);
            assert_eq!(cuStreamDestroy_v2(handle(fixed)), CUDA_ERROR_INVALID_HANDLE);
        }

        assert_eq!(cuEventCreate(&mut event, 64), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuEventCreate(&mut event, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuEventCreate(&mut event, 0), CUDA_SUCCESS);
        assert_eq!(cuEventCreate(&mut other, 2), CUDA_SUCCESS);
        assert_eq!(cuEventQuery(event), CUDA_SUCCESS);
        assert_eq!(cuEventElapsedTime(&mut time, event, event), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuEventRecord(event, stream), CUDA_SUCCESS);
        assert_eq!(cuEventSynchronize(event), CUDA_SUCCESS);
        assert_eq!((cuEventElapsedTime(&mut time, event, event), time), (CUDA_SUCCESS, 0.0));
        assert_eq!(cuEventRecord(other, stream), CUDA_SUCCESS);
        assert_eq!(cuEventElapsedTime(&mut time, event, other), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuStreamWaitEvent(stream, null_mut(), 0), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuEventDestroy_v2(event), CUDA_SUCCESS);
        assert_eq!(cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);

        let mut answer = CUDA_SUCCESS;
        assert_eq!(cuLaunchHostFunc(stream, None, null_mut()), CUDA_ERROR_INVALID_VALUE);
        let called = cuLaunchHostFunc(stream, Some(call_the_driver), (&raw mut answer).cast());
        assert_eq!((called, answer), (CUDA_SUCCESS, CUDA_ERROR_NOT_PERMITTED));
        assert_eq!(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        assert_eq!(cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);

        let module = module();
        let function = function(module, c"big");
        assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
        assert_eq!(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(launch(function), CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn each_handle_brings_its_own_context() {
    let _context = context();
    let (mut stream, mut event, mut context, mut a, mut module_function) =
        (null_mut(), null_mut(), null_mut(), 0, null_mut());
    // SAFETY: pointers are to variables of the right type; the arguments match the kernel.
    unsafe {
        let module = module();
        let function = function(module, c"big");
        assert_eq!(cuStreamCreate(&mut stream, 0), CUDA_SUCCESS);
        assert_eq!(cuEventCreate(&mut event, 0), CUDA_SUCCESS);
        assert_eq!(cuMemAlloc_v2(&mut a, 64), CUDA_SUCCESS);
        let (mut value, mut unused) = (3u32, 0u8);
        let mut arguments = [(&raw mut a).cast(), (&raw mut value).cast(), (&raw mut unused).cast()];
        let mut launch = |stream| {
            cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments.as_mut_ptr(), null_mut())
        };
        assert_eq!(cuCtxGetCurrent(&mut context), CUDA_SUCCESS);
        let primary = context;

        // No context is current.
        assert_eq!(cuCtxSetCurrent(null_mut()), CUDA_SUCCESS);
        assert_eq!(launch(stream), CUDA_SUCCESS);
        assert_eq!(launch(null_mut()), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuEventRecord(event, stream), CUDA_SUCCESS);
        assert_eq!(cuEventRecord(event, null_mut()), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_eq!(cuModuleGetFunction(&mut module_function, module, c"big".as_ptr()), CUDA_SUCCESS);
        assert_eq!(module_function, function);
        assert_eq!(cuMemsetD8Async(a, 1, 4, stream), CUDA_SUCCESS);
        assert_eq!(cuMemsetD8_v2(a, 1, 4), CUDA_ERROR_INVALID_CONTEXT);

        // Another context is current.
        assert_eq!(cuCtxCreate_v2(&mut context, 0, 0), CUDA_SUCCESS);
        assert_eq!(launch(stream), CUDA_SUCCESS);
        assert_eq!(launch(null_mut()), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuEventRecord(event, null_mut()), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuStreamSynchronize(stream), CUDA_SUCCESS);
        assert_eq!(cuMemsetD8_v2(a, 1, 4), CUDA_SUCCESS);
        assert_eq!(cuCtxSynchronize(), CUDA_SUCCESS);
        assert_eq!(cuMemFree_v2(a), CUDA_SUCCESS);
        assert_eq!(cuCtxDestroy_v2(context), CUDA_SUCCESS);
        assert_eq!(cuCtxSetCurrent(primary), CUDA_SUCCESS);
        assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
    }
}

#[test]
fn launches_past_the_limits() {
    let _context = context();
    let mut a = 0;
    // SAFETY: the arguments match the kernels, also the packed ones.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&mut a, 64), CUDA_SUCCESS);
        let module = module();
        let (small, big) = (function(module, c"small"), function(module, c"big"));
        let (mut value, mut unused) = (3u32, 0u8);
        let mut arguments = [(&raw mut a).cast(), (&raw mut value).cast(), (&raw mut unused).cast()];
        let arguments: *mut *mut c_void = arguments.as_mut_ptr();
        let launch = |function, grid: [u32; 3], block: [u32; 3], dynamic| {
            let ([x, y, z], [u, v, w]) = (grid, block);
            cuLaunchKernel(function, x, y, z, u, v, w, dynamic, null_mut(), arguments, null_mut())
        };
        let one = [1; 3];
        for (function, grid, block, dynamic) in [
            (big, [0, 1, 1], one, 0),
            (big, [1, 0, 1], one, 0),
            (big, one, [0, 1, 1], 0),
            (big, one, [1025, 1, 1], 0),
            (big, one, [512, 3, 1], 0),
            (big, one, [1, 1, 65], 0),
            (big, [1 << 31, 1, 1], one, 0),
            (big, [1, 65_536, 1], one, 0),
            (big, [1, 1, 65_536], one, 0),
            (big, one, one, 49_153),
            (small, one, [129, 1, 1], 0),
            (small, one, one, 49_152 - 4095),
        ] {
            let refused = launch(function, grid, block, dynamic);
            assert_eq!(refused, CUDA_ERROR_INVALID_VALUE, "{grid:?} {block:?} {dynamic}");
        }
        assert_eq!(launch(big, one, [1, 1, 64], 49_152), CUDA_SUCCESS);
        // All blocks of a cooperative launch run at a time: 132 multiprocessors hold 2,048 threads each.
        let together = |blocks, threads| {
            cuLaunchCooperativeKernel(big, blocks, 1, 1, threads, 1, 1, 0, null_mut(), arguments)
        };
        assert_eq!(together(1, 1), CUDA_SUCCESS);
        assert_eq!(together(132 * 2 + 1, 1024), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        assert_eq!(together(1, 1025), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(launch(small, one, [64, 2, 1], 49_152 - 4096), CUDA_SUCCESS);

        use CUfunction_attribute_enum::*;
        let dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let mut number = 0;
        assert_eq!((cuFuncGetAttribute(&mut number, dynamic, small), number), (CUDA_SUCCESS, 45_056));
        assert_eq!(cuFuncSetAttribute(small, dynamic, 232_448 - 4095), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuFuncSetAttribute(small, dynamic, -1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuFuncSetAttribute(small, CU_FUNC_ATTRIBUTE_NUM_REGS, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuFuncSetAttribute(small, dynamic, 100_000), CUDA_SUCCESS);
        assert_eq!(launch(small, one, one, 100_000), CUDA_SUCCESS);
        assert_eq!(launch(small, one, one, 100_001), CUDA_ERROR_INVALID_VALUE);

        // Arguments through `extra`: 13 bytes, the last of which may be left out.
        let mut packed = [0u8; 16];
        packed[..8].copy_from_slice(&a.to_ne_bytes());
        packed[8..12].copy_from_slice(&77u32.to_ne_bytes());
        for (mut bytes, code) in [
            (13usize, CUDA_SUCCESS),
            (12, CUDA_SUCCESS),
            (16, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
            (usize::MAX, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
        ] {
            let mut extra: [*mut c_void; 5] =
                [handle(1), packed.as_mut_ptr().cast(), handle(2), (&raw mut bytes).cast(), null_mut()];
            let extra = extra.as_mut_ptr();
            let no_stream = null_mut();
            let both = cuLaunchKernel(big, 1, 1, 1, 1, 1, 1, 0, no_stream, arguments, extra);
            assert_eq!(both, CUDA_ERROR_INVALID_VALUE);
            let packed = cuLaunchKernel(big, 1, 1, 1, 1, 1, 1, 0, no_stream, null_mut(), extra);
            assert_eq!(packed, code, "{bytes}");
        }
        let none = cuLaunchKernel(big, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut());
        assert_eq!(none, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuMemcpyDtoH_v2((&raw mut value).cast(), a, 4), CUDA_SUCCESS);
        assert_eq!(value, 77);
        assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
        assert_eq!(cuMemFree_v2(a), CUDA_SUCCESS);
    }
}

#[test]
fn occupancy() {
    let _context = context();
    // SAFETY: pointers are to variables of the right type.
    unsafe {
        let module = module();
        let (small, big) = (function(module, c"small"), function(module, c"big"));
        let active = |function, threads, dynamic| {
            let mut blocks = -1;
            let code = cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, threads, dynamic);
            (code == CUDA_SUCCESS).then_some(blocks)
        };
        // Threads and dynamic shared memory per block, and how many blocks of `small` fit a multiprocessor of
        // an H200.
        for (threads, dynamic, blocks) in [
            (1, 0, 32),
            (32, 1000, 32),
            (64, 16_384, 10),
            (96, 0, 21),
            (128, 45_056, 4),
            (128, 49_152, 0),
            (129, 0, 12),
            (1024, 0, 2),
            (1025, 0, 0),
        ] {
            assert_eq!(active(small, threads, dynamic), Some(blocks), "{threads} {dynamic}");
        }
        assert_eq!(active(small, 0, 0), None);
        let available = |function, blocks, threads| {
            let mut bytes = 0;
            let code = cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, function, blocks, threads);
            (code == CUDA_SUCCESS).then_some(bytes)
        };
        for (blocks, threads, bytes) in [
            (1, 32, Some(45_056)),
            (5, 32, Some(42_496)),
            (7, 128, Some(29_184)),
            (16, 128, Some(10_496)),
            (26, 96, None),
            (3, 1024, None),
            (0, 32, None),
        ] {
            assert_eq!(available(small, blocks, threads), bytes, "{blocks} {threads}");
        }
        let potential = |function, dynamic, limit| {
            let (mut grid, mut block) = (-1, -1);
            let code =
                cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, function, None, dynamic, limit);
            (code == CUDA_SUCCESS).then_some((grid, block))
        };
        assert_eq!(potential(small, 0, 0), Some((2112, 128)));
        assert_eq!(potential(small, 0, 100), Some((4224, 64)));
        assert_eq!(potential(small, 0, 33), Some((4224, 33)));
        assert_eq!(potential(small, 16_384, 0), Some((1320, 128)));
        assert_eq!(potential(small, 49_152, 0), Some((0, 0)));
        assert_eq!(potential(small, 0, -1), None);
        assert_eq!(potential(big, 0, 0), Some((264, 1024)));
        assert_eq!(cuModuleUnload(module), CUDA_SUCCESS);
    }
}

#[test]
fn attributes_of_the_device() {
    use cust::device::DeviceAttribute::*;
    let _context = context();
    let device = cust::device::Device::get_device(0).unwrap();
    for (attribute, value) in [
        (MaxThreadsPerBlock, 1024),
        (MaxSharedMemoryPerBlock, 49_152),
        (WarpSize, 32),
        (MaxRegistersPerBlock, 65_536),
        (MultiprocessorCount, 132),
        (GlobalMemoryBusWidth, 6144),
        (UnifiedAddressing, 1),
        (ComputeCapabilityMajor, 9),
        (ComputeCapabilityMinor, 0),
    ] {
        assert_eq!(device.get_attribute(attribute), Ok(value), "{attribute:?}");
    }
    assert_eq!(device.total_memory(), Ok(cust::memory::mem_get_info().unwrap().1));
    let mut value = 0;
    let attribute = CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX;
    // SAFETY: the pointer is to a variable of the right type.
    assert_eq!(unsafe { cuDeviceGetAttribute(&mut value, attribute, 0) }, CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn every_code_has_a_name_and_a_text() {
    emulator::install().unwrap();
    let text = |get: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult, code| {
        let mut text = null();
        // SAFETY: the pointer is to a variable of the right type; the text lives as long as the program.
        unsafe {
            assert_eq!(get(code, &mut text), CUDA_SUCCESS);
            CStr::from_ptr(text).to_str().unwrap()
        }
    };
    for code in [CUDA_SUCCESS, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_TIMEOUT, CUDA_ERROR_UNKNOWN] {
        assert_eq!(text(cuGetErrorName, code), format!("{code:?}"));
    }
    assert_eq!(text(cuGetErrorString, CUDA_ERROR_INVALID_VALUE), "invalid argument");
    assert_eq!(text(cuGetErrorString, CUDA_SUCCESS), "no error");
}
