//! Memory pools.

use crate::driver;
use crate::error::{Answer, INVALID_VALUE, NOT_SUPPORTED, api, check, require};
use crate::memory::Location;
use cust_raw::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPoolProps, CUmemoryPool, CUstream, cuDeviceGetDefaultMemPool,
    cuDeviceGetMemPool, cuDeviceSetMemPool, cuMemAllocFromPoolAsync, cuMemPoolCreate, cuMemPoolDestroy,
    cuMemPoolGetAccess, cuMemPoolGetAttribute, cuMemPoolSetAccess, cuMemPoolSetAttribute, cuMemPoolTrimTo,
};
use std::ffi::{c_int, c_uint, c_void};

/// `cudaMemPoolProps`
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    security: *mut c_void,
    reserved: [u8; 64],
}

/// `cudaMemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    location: Location,
    flags: c_int,
}

/// `cudaMemAllocationTypePinned`
const PINNED: c_int = 1;
/// `cudaMemLocationTypeDevice`
const DEVICE: c_uint = 1;

/// Returns the driver's location; fails unless it is a device.
fn of_device(location: Location) -> Answer<CUmemLocation> {
    require(location.kind == DEVICE)?;
    Ok(CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: location.id })
}

api! {
    fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: c_int) {
        check(cuDeviceGetDefaultMemPool(pool, device))
    }

    fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, device: c_int) {
        check(cuDeviceGetMemPool(pool, device))
    }

    fn cudaDeviceSetMemPool(device: c_int, pool: CUmemoryPool) {
        check(cuDeviceSetMemPool(device, pool))
    }

    fn cudaMemPoolCreate(pool: *mut CUmemoryPool, properties: *const Properties) {
        require(!properties.is_null())?;
        let Properties { kind, handles, location, .. } = *properties;
        require(kind == PINNED)?;
        if handles != 0 {
            return Err(NOT_SUPPORTED);
        }
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: of_device(location)?,
            ..CUmemPoolProps::default()
        };
        check(cuMemPoolCreate(pool, &properties))
    }

    fn cudaMemPoolDestroy(pool: CUmemoryPool) {
        check(cuMemPoolDestroy(pool))
    }

    fn cudaMemPoolTrimTo(pool: CUmemoryPool, keep: usize) {
        check(cuMemPoolTrimTo(pool, keep))
    }

    fn cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void) {
        check(cuMemPoolSetAttribute(pool, driver::pool_attribute(attribute)?, value))
    }

    fn cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void) {
        check(cuMemPoolGetAttribute(pool, driver::pool_attribute(attribute)?, value))
    }

    fn cudaMemPoolSetAccess(pool: CUmemoryPool, access: *const Access, count: usize) {
        require(!access.is_null() || count == 0)?;
        let mut all = Vec::new();
        for index in 0..count {
            let Access { location, flags } = *access.add(index);
            let flags = match flags {
                0 => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
                3 => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                _ => return Err(INVALID_VALUE),
            };
            all.push(CUmemAccessDesc { location: of_device(location)?, flags });
        }
        check(cuMemPoolSetAccess(pool, all.as_ptr(), count))
    }

    fn cudaMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut Location) {
        require(!location.is_null())?;
        check(cuMemPoolGetAccess(flags, pool, &mut of_device(*location)?))
    }

    fn cudaMallocFromPoolAsync(
        address: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) as cudaMallocFromPoolAsync_ptsz(stream) {
        check(cuMemAllocFromPoolAsync(address, bytes, pool, stream))
    }
}
