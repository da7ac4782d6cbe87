//! The driver's version and its devices.

use super::state::{State, initialise, state};
use super::{Answer, MEMORY_BYTES, api, put, require};
use cust_raw::{CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUresult, CUuuid};
use std::ffi::{CStr, c_char, c_int, c_uint};

/// CUDA 13.0, in the format of `cuDriverGetVersion`.
const VERSION: c_int = 13_000;
const NAME: &str = "PTX emulator";
/// The first device's UUID; those of the others differ in the last byte.
const UUID: &[u8; 16] = b"PTX emulator 0.1";
/// The most devices there can be.
pub const MOST: u32 = 64;
/// The first device's PCI bus; each device has a bus of its own.
const FIRST_BUS: usize = 1;

// The limits and attributes of an H200: compute capability 9.0.

/// The compute capability, 90 for 9.0.
pub const CAPABILITY: u32 = 90;
pub const WARP: u32 = 32;
pub const BLOCK_THREADS: u32 = 1024;
pub const BLOCK_LIMITS: [u32; 3] = [1024, 1024, 64];
pub const GRID_LIMITS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
pub const MULTIPROCESSORS: u32 = 132;
/// The most blocks per multiprocessor.
pub const BLOCKS: u32 = 32;
/// The most warps per multiprocessor.
pub const WARPS: u32 = 64;
/// 32-bit registers per multiprocessor.
pub const REGISTERS: u32 = 65_536;
/// Bytes of shared memory per multiprocessor.
pub const SHARED_BYTES: u32 = 228 << 10;
/// Bytes of shared memory that the driver reserves per block.
pub const SHARED_RESERVED: u32 = 1 << 10;
/// The most bytes of shared memory per block by default.
pub const BLOCK_SHARED: u32 = 48 << 10;
/// The most bytes of shared memory per block after `cuFuncSetAttribute`.
pub const BLOCK_SHARED_OPT_IN: u32 = 227 << 10;

impl State {
    /// Checks a device's number and returns it as an index.
    pub fn device(&self, device: CUdevice) -> Answer<usize> {
        let number = usize::try_from(device).ok().filter(|&number| number < self.primaries.len());
        number.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Whether a device's kernels can access another device's memory once a context enables it.
    pub fn can_access_peer(&self, device: usize, peer: usize) -> bool {
        self.peer_access && device != peer
    }
}

/// Returns an attribute of an H200; 0 for features that the emulator lacks, such as textures.
#[rustfmt::skip]
fn attribute(attribute: CUdevice_attribute, device: usize) -> Answer<u32> {
    use CUdevice_attribute::*;
    Ok(match attribute {
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => (FIRST_BUS + device) as u32,
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
        CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH => 1,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => BLOCKS,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => WARPS * WARP,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => CAPABILITY / 10,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => CAPABILITY % 10,
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
    let device = state()?.device(device)?;
    let mut bytes = *UUID;
    // No overflow: there are at most `MOST` devices.
    bytes[15] += device as u8;
    // SAFETY: the driver functions below pass their caller's pointer.
    unsafe { put(place, CUuuid { bytes: bytes.map(|byte| byte as c_char) }) }
}

/// Writes as much of a text as fits, and a terminating zero.
///
/// # Safety
///
/// `place` is null, or valid for writes of `len` bytes.
unsafe fn put_text(place: *mut c_char, len: c_int, text: &str) -> Answer {
    require(!place.is_null() && len > 0)?;
    let copied = text.len().min(len as usize - 1);
    // SAFETY: `copied` bytes and the zero after them are at most `len` bytes, for which the caller vouches.
    unsafe {
        place.copy_from_nonoverlapping(text.as_ptr().cast(), copied);
        put(place.add(copied), 0)
    }
}

/// Parses the bus from a PCI address in hexadecimal.
///
/// Accepts `domain:bus:device.function`, `domain:bus:device` and `bus:device.function`; returns `None` for
/// other texts. The inner `None` stands for an address of no emulated device: one whose other parts are not
/// all zero.
fn bus(id: &str) -> Option<Option<usize>> {
    let (rest, function) = match id.split_once('.') {
        Some((rest, function)) => (rest, Some(function)),
        None => (id, None),
    };
    let (domain, bus, slot) = match (&rest.split(':').collect::<Vec<_>>()[..], function) {
        (&[domain, bus, slot], _) => (domain, bus, slot),
        (&[bus, slot], Some(_)) => ("0", bus, slot),
        _ => return None,
    };
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let others = [number(domain)?, number(slot)?, number(function.unwrap_or("0"))?];
    let bus = number(bus)?;
    Some((others == [0; 3]).then_some(bus))
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
        put(count, state()?.primaries.len() as c_int)
    }

    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) {
        let state = state()?;
        require(!device.is_null())?;
        state.device(ordinal)?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) {
        state()?.device(device)?;
        put_text(name, len, NAME)
    }

    fn cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CUdevice) {
        let bus = FIRST_BUS + state()?.device(device)?;
        put_text(id, len, &format!("0000:{bus:02X}:00.0"))
    }

    fn cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char) {
        let state = state()?;
        require(!device.is_null() && !id.is_null())?;
        let bus = CStr::from_ptr(id).to_str().ok().and_then(bus).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let number = bus.and_then(|bus| bus.checked_sub(FIRST_BUS)).and_then(|number| number.try_into().ok());
        let number = number.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        state.device(number)?;
        put(device, number)
    }

    fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) {
        let state = state()?;
        let (device, peer) = (state.device(device)?, state.device(peer)?);
        put(can, state.can_access_peer(device, peer).into())
    }

    fn cuDeviceGetP2PAttribute(
        value: *mut c_int,
        asked: CUdevice_P2PAttribute,
        device: CUdevice,
        peer: CUdevice,
    ) {
        use CUdevice_P2PAttribute::*;
        let state = state()?;
        let (device, peer) = (state.device(device)?, state.device(peer)?);
        if device == peer {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        put(value, match asked {
            CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED | CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED => {
                state.can_access_peer(device, peer).into()
            }
            // All links have the same rank, and there are no arrays.
            CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK | CU_DEVICE_P2P_ATTRIBUTE_ACCESS_ACCESS_SUPPORTED => 0,
        })
    }

    fn cuDeviceGetUuid(place: *mut CUuuid, device: CUdevice) {
        uuid(place, device)
    }

    fn cuDeviceGetUuid_v2(place: *mut CUuuid, device: CUdevice) {
        uuid(place, device)
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) {
        state()?.device(device)?;
        put(bytes, MEMORY_BYTES as usize)
    }

    fn cuDeviceGetAttribute(value: *mut c_int, asked: CUdevice_attribute, device: CUdevice) {
        let device = state()?.device(device)?;
        put(value, attribute(asked, device)? as c_int)
    }
}
