//! The driver, and its one device.

use super::state::{initialise, state};
use super::{Answer, MEMORY_BYTES, api, put, require};
use cust_raw::{CUdevice, CUdevice_attribute, CUresult, CUuuid};
use std::ffi::{c_char, c_int, c_uint};

/// CUDA 13.0, as `cuDriverGetVersion` counts.
const VERSION: c_int = 13_000;
const NAME: &[u8] = b"PTX emulator";
const UUID: &[u8; 16] = b"PTX emulator 0.1";

/// The device that the limits and attributes are those of is an H200: compute capability 9.0.
pub const WARP: u32 = 32;
pub const BLOCK_THREADS: u32 = 1024;
pub const BLOCK_LIMITS: [u32; 3] = [1024, 1024, 64];
pub const GRID_LIMITS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
pub const MULTIPROCESSORS: u32 = 132;
/// For each multiprocessor.
pub const BLOCKS: u32 = 32;
pub const WARPS: u32 = 64;
pub const REGISTERS: u32 = 65_536;
pub const SHARED_BYTES: u32 = 228 << 10;
/// Shared memory that the driver keeps for itself, for each block.
pub const SHARED_RESERVED: u32 = 1 << 10;
/// Shared memory that a block may have, unasked and where `cuFuncSetAttribute` asked for it.
pub const BLOCK_SHARED: u32 = 48 << 10;
pub const BLOCK_SHARED_OPT_IN: u32 = 227 << 10;

/// That this is the device, which has the number 0.
pub fn check(device: CUdevice) -> Answer {
    if device == 0 { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) }
}

/// What an H200 answers; 0 for what the emulator does not have, such as textures.
#[rustfmt::skip]
fn attribute(attribute: CUdevice_attribute) -> Answer<u32> {
    use CUdevice_attribute::*;
    Ok(match attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => BLOCK_THREADS,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X => BLOCK_LIMITS[0],
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => BLOCK_LIMITS[1],
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => BLOCK_LIMITS[2],
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => GRID_LIMITS[0],
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y => GRID_LIMITS[1],
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => GRID_LIMITS[2],
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => BLOCK_SHARED,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => BLOCK_SHARED_OPT_IN,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => SHARED_BYTES,
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => SHARED_RESERVED,
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 64 << 10,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => WARP,
        CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX as u32,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK => REGISTERS,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => REGISTERS,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_980_000,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 3_201_000,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 6144,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 60 << 20,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => MULTIPROCESSORS,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => BLOCKS,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => WARPS * WARP,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 0,
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | CU_DEVICE_ATTRIBUTE_ECC_ENABLED
        | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING => 1,
        CU_DEVICE_ATTRIBUTE_MAX => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        _ => 0,
    })
}

fn uuid(place: *mut CUuuid, device: CUdevice) -> Answer {
    let _state = state()?;
    check(device)?;
    // SAFETY: the driver functions below pass on their caller's pointer.
    unsafe { put(place, CUuuid { bytes: UUID.map(|byte| byte as c_char) }) }
}

api! {
    fn cuInit(flags: c_uint) {
        require(flags == 0)?;
        initialise();
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut c_int) {
        put(version, VERSION)
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        let _state = state()?;
        put(count, 1)
    }

    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) {
        let _state = state()?;
        require(!device.is_null())?;
        check(ordinal)?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) {
        let _state = state()?;
        check(device)?;
        require(!name.is_null() && len > 0)?;
        let copied = NAME.len().min(len as usize - 1);
        name.copy_from_nonoverlapping(NAME.as_ptr().cast(), copied);
        put(name.add(copied), 0)
    }

    fn cuDeviceGetUuid(place: *mut CUuuid, device: CUdevice) {
        uuid(place, device)
    }

    fn cuDeviceGetUuid_v2(place: *mut CUuuid, device: CUdevice) {
        uuid(place, device)
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) {
        let _state = state()?;
        check(device)?;
        put(bytes, MEMORY_BYTES as usize)
    }

    fn cuDeviceGetAttribute(value: *mut c_int, asked: CUdevice_attribute, device: CUdevice) {
        let _state = state()?;
        check(device)?;
        put(value, attribute(asked)? as c_int)
    }
}
