//! Devices: their number, properties, limits and peers.

use crate::error::{Answer, INVALID_DEVICE, api, check, put};
use crate::{driver, runtime};
use cust_raw::{
    CUdevice_attribute, CUfunc_cache, CUsharedconfig, CUuuid, cuCtxDisablePeerAccess, cuCtxEnablePeerAccess,
    cuCtxGetCacheConfig, cuCtxGetLimit, cuCtxGetSharedMemConfig, cuCtxSetCacheConfig, cuCtxSetLimit,
    cuDeviceCanAccessPeer, cuDeviceGetAttribute, cuDeviceGetByPCIBusId, cuDeviceGetName,
    cuDeviceGetP2PAttribute, cuDeviceGetPCIBusId, cuDeviceGetUuid, cuDeviceTotalMem_v2, cuDriverGetVersion,
};
use std::ffi::{c_char, c_int, c_uint};

/// CUDA 13.0, whose functions and structs these are.
const VERSION: c_int = 13_000;
/// The last `cudaDeviceAttr` of CUDA 13.0.
const LAST_ATTRIBUTE: c_int = 147;

/// `cudaDeviceProp`, with names for the fields that the emulator has a value for.
#[repr(C)]
struct Properties {
    name: [c_char; 256],
    uuid: CUuuid,
    luid: [c_char; 8],
    luid_device_node_mask: c_uint,
    total_global_mem: usize,
    shared_per_block: usize,
    registers_per_block: c_int,
    warp_size: c_int,
    pitch: usize,
    max_threads_per_block: c_int,
    max_block: [c_int; 3],
    max_grid: [c_int; 3],
    total_const: usize,
    major: c_int,
    minor: c_int,
    texture_alignment: usize,
    texture_pitch_alignment: usize,
    multiprocessors: c_int,
    integrated: c_int,
    can_map_host_memory: c_int,
    textures: [c_int; 39],
    surface_alignment: usize,
    concurrent_kernels: c_int,
    ecc_enabled: c_int,
    pci_bus: c_int,
    pci_device: c_int,
    pci_domain: c_int,
    tcc_driver: c_int,
    async_engines: c_int,
    unified_addressing: c_int,
    memory_bus_width: c_int,
    l2_bytes: c_int,
    persisting_l2_bytes: c_int,
    max_threads_per_multiprocessor: c_int,
    stream_priorities: c_int,
    global_l1: c_int,
    local_l1: c_int,
    shared_per_multiprocessor: usize,
    registers_per_multiprocessor: c_int,
    managed_memory: c_int,
    multi_gpu_board: [c_int; 2],
    host_native_atomics: c_int,
    pageable_memory_access: c_int,
    concurrent_managed_access: c_int,
    compute_preemption: c_int,
    registered_host_pointers: c_int,
    cooperative_launch: c_int,
    shared_per_block_opt_in: usize,
    pageable_by_host_tables: c_int,
    direct_managed_access: c_int,
    max_blocks_per_multiprocessor: c_int,
    access_policy_window: c_int,
    reserved_shared_per_block: usize,
    host_register: c_int,
    sparse_arrays: c_int,
    host_register_read_only: c_int,
    timeline_semaphores: c_int,
    memory_pools: c_int,
    others: [c_int; 15],
    reserved: [c_int; 56],
}

const _: () = assert!(size_of::<Properties>() == 1008);

/// Returns an attribute of a device; 0 for those that are newer than the emulator.
fn attribute(attribute: c_int, device: c_int) -> Answer<c_int> {
    let mut value = 0;
    match driver::device_attribute(attribute) {
        // SAFETY: `value` is valid for writes.
        Ok(known) => check(unsafe { cuDeviceGetAttribute(&mut value, known, device) })?,
        Err(_) if (1..=LAST_ATTRIBUTE).contains(&attribute) => {}
        Err(unknown) => return Err(unknown),
    }
    Ok(value)
}

fn properties(device: c_int) -> Answer<Properties> {
    use CUdevice_attribute::*;
    let get = |known: CUdevice_attribute| attribute(known as c_int, device);
    let bytes = |known| get(known).map(|bytes| bytes as usize);
    let (mut name, mut uuid, mut total_global_mem) = ([0; 256], CUuuid { bytes: [0; 16] }, 0);
    // SAFETY: all are valid for writes.
    unsafe {
        check(cuDeviceGetName(name.as_mut_ptr(), 256, device))?;
        check(cuDeviceGetUuid(&mut uuid, device))?;
        check(cuDeviceTotalMem_v2(&mut total_global_mem, device))?;
    }
    Ok(Properties {
        name,
        uuid,
        luid: [0; 8],
        luid_device_node_mask: 0,
        total_global_mem,
        shared_per_block: bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
        registers_per_block: get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?,
        warp_size: get(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        pitch: bytes(CU_DEVICE_ATTRIBUTE_MAX_PITCH)?,
        max_threads_per_block: get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        max_block: [
            get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
            get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
            get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
        ],
        max_grid: [
            get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
            get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
            get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
        ],
        total_const: bytes(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY)?,
        major: get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        minor: get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        texture_alignment: bytes(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?,
        texture_pitch_alignment: bytes(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT)?,
        multiprocessors: get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        integrated: get(CU_DEVICE_ATTRIBUTE_INTEGRATED)?,
        can_map_host_memory: get(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY)?,
        textures: [0; 39],
        surface_alignment: bytes(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT)?,
        concurrent_kernels: get(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)?,
        ecc_enabled: get(CU_DEVICE_ATTRIBUTE_ECC_ENABLED)?,
        pci_bus: get(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        pci_device: get(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        pci_domain: get(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
        tcc_driver: get(CU_DEVICE_ATTRIBUTE_TCC_DRIVER)?,
        async_engines: get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?,
        unified_addressing: get(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)?,
        memory_bus_width: get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
        l2_bytes: get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        persisting_l2_bytes: get(CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE)?,
        max_threads_per_multiprocessor: get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
        stream_priorities: get(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED)?,
        global_l1: get(CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED)?,
        local_l1: get(CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED)?,
        shared_per_multiprocessor: bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        registers_per_multiprocessor: get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR)?,
        managed_memory: get(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)?,
        multi_gpu_board: [0; 2],
        host_native_atomics: get(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED)?,
        pageable_memory_access: get(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)?,
        concurrent_managed_access: get(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)?,
        compute_preemption: get(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED)?,
        registered_host_pointers: get(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)?,
        cooperative_launch: get(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)?,
        shared_per_block_opt_in: bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        pageable_by_host_tables: get(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)?,
        direct_managed_access: get(CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST)?,
        max_blocks_per_multiprocessor: get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?,
        access_policy_window: get(CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE)?,
        reserved_shared_per_block: bytes(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
        host_register: get(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)?,
        sparse_arrays: 0,
        host_register_read_only: 0,
        timeline_semaphores: 0,
        memory_pools: get(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?,
        others: [0; 15],
        reserved: [0; 56],
    })
}

api! {
    fn cudaGetDeviceCount(count: *mut c_int) {
        put(count, runtime::devices()?)
    }

    fn cudaGetDevice(device: *mut c_int) {
        put(device, runtime::enter()?)
    }

    fn cudaSetDevice(device: c_int) {
        runtime::set_device(device)
    }

    fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) {
        runtime::context(device).map(drop)
    }

    fn cudaDeviceGetSharedMemConfig(config: *mut CUsharedconfig) {
        check(cuCtxGetSharedMemConfig(config))
    }

    /// Banks have four bytes since compute capability 5.0, whatever a program sets.
    fn cudaDeviceSetSharedMemConfig(_config: c_int) {
        Ok(())
    }

    /// The flags say how the host waits, which it never does here.
    fn cudaSetDeviceFlags(_flags: c_uint) {
        Ok(())
    }

    fn cudaDeviceReset() {
        runtime::reset()
    }

    fn cudaGetDeviceProperties(place: *mut Properties, device: c_int) {
        put(place, properties(device)?)
    }

    fn cudaDeviceGetAttribute(value: *mut c_int, asked: c_int, device: c_int) {
        if !(0..runtime::devices()?).contains(&device) {
            return Err(INVALID_DEVICE);
        }
        put(value, attribute(asked, device)?)
    }

    fn cudaDeviceGetP2PAttribute(value: *mut c_int, asked: c_int, device: c_int, peer: c_int) {
        check(cuDeviceGetP2PAttribute(value, driver::peer_attribute(asked)?, device, peer))
    }

    fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        check(cuDeviceCanAccessPeer(can, device, peer))
    }

    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        check(cuCtxEnablePeerAccess(runtime::context(peer)?, flags))
    }

    fn cudaDeviceDisablePeerAccess(peer: c_int) {
        check(cuCtxDisablePeerAccess(runtime::context(peer)?))
    }

    fn cudaDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: c_int) {
        check(cuDeviceGetPCIBusId(id, len, device))
    }

    fn cudaDeviceGetByPCIBusId(device: *mut c_int, id: *const c_char) {
        check(cuDeviceGetByPCIBusId(device, id))
    }

    fn cudaDeviceGetLimit(value: *mut usize, limit: c_int) {
        check(cuCtxGetLimit(value, driver::limit(limit)?))
    }

    fn cudaDeviceSetLimit(limit: c_int, value: usize) {
        check(cuCtxSetLimit(driver::limit(limit)?, value))
    }

    fn cudaDeviceGetCacheConfig(config: *mut CUfunc_cache) {
        check(cuCtxGetCacheConfig(config))
    }

    fn cudaDeviceSetCacheConfig(config: c_int) {
        check(cuCtxSetCacheConfig(driver::cache(config)?))
    }

    fn cudaDriverGetVersion(version: *mut c_int) {
        check(cuDriverGetVersion(version))
    }

    fn cudaRuntimeGetVersion(version: *mut c_int) {
        put(version, VERSION)
    }

    /// There is no profiler.
    fn cudaProfilerStart() {
        Ok(())
    }

    fn cudaProfilerStop() {
        Ok(())
    }
}
