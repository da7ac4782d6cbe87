//! Memory pools, from which streams allocate.
//!
//! A pool keeps no memory that was freed: it reserves what is in use. All memory of a device is alike, so a
//! pool is only a name for some allocations, and its settings.

use super::state::{State, state};
use super::{Answer, MEMORY, api, idle, put, require};
use cust_raw::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    CUresult, CUstream,
};
use std::ffi::{c_int, c_void};
use std::ptr;

pub struct Pool {
    device: usize,
    /// Whether memory may be reused in the three ways that attributes name. There is no reuse to permit.
    reuses: [c_int; 3],
    /// The bytes to keep for later allocations. None are kept.
    threshold: u64,
    /// The most bytes in use, and reserved, since the program set each to zero.
    high: [u64; 2],
}

impl Pool {
    pub fn new(device: usize) -> Pool {
        Pool { device, reuses: [1; 3], threshold: 0, high: [0; 2] }
    }
}

impl State {
    fn pool(&mut self, pool: CUmemoryPool) -> Answer<&mut Pool> {
        self.pools.get_mut(&pool.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The bytes in use of a pool.
    fn used(&self, pool: usize) -> u64 {
        let own = self.allocations.iter().filter(|(_, allocation)| allocation.pool == Some(pool));
        own.filter_map(|(&address, _)| MEMORY.range(address)).map(|(_, bytes)| bytes).sum()
    }

    /// Allocates from a pool of the stream's device; from the device's current pool if none is named.
    pub fn allocate_from_pool(
        &mut self,
        bytes: usize,
        pool: Option<CUmemoryPool>,
        stream: CUstream,
    ) -> Answer<u64> {
        let context = self.not_modelled_in_captures(stream)?;
        let device = self.memory_of(context)?.owner().device as usize;
        let pool = match pool {
            Some(pool) if self.pool(pool)?.device != device => {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            Some(pool) => pool.addr(),
            None => self.primaries[device].pool,
        };
        if bytes == 0 {
            return Ok(0);
        }
        let address = self.allocate_in(context, bytes, pool)?;
        let used = self.used(pool);
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.high = pool.high.map(|high| high.max(used));
        }
        Ok(address)
    }
}

/// Fails unless a location is a device's memory. Returns the device.
fn device_of(state: &State, location: &CUmemLocation) -> Answer<usize> {
    require(location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE)?;
    state.device(location.id)
}

api! {
    fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) {
        let state = state()?;
        let device = state.device(device)?;
        put(pool, ptr::without_provenance_mut(state.primaries[device].default_pool))
    }

    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) {
        let state = state()?;
        let device = state.device(device)?;
        put(pool, ptr::without_provenance_mut(state.primaries[device].pool))
    }

    fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) {
        let mut state = state()?;
        let device = state.device(device)?;
        require(state.pool(pool)?.device == device)?;
        state.primaries[device].pool = pool.addr();
        Ok(())
    }

    fn cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) {
        let mut state = state()?;
        require(!pool.is_null() && !properties.is_null())?;
        let CUmemPoolProps { allocType, handleTypes, ref location, .. } = *properties;
        require(allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
        let device = device_of(&state, location)?;
        if handleTypes != CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let handle = state.add_pool(device);
        put(pool, ptr::without_provenance_mut(handle))
    }

    /// Allocations of the pool stay until they are freed.
    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        let mut state = state()?;
        let device = state.pool(pool)?.device;
        let primary = &mut state.primaries[device];
        require(pool.addr() != primary.default_pool)?;
        if primary.pool == pool.addr() {
            primary.pool = primary.default_pool;
        }
        state.pools.remove(&pool.addr());
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: CUmemoryPool, _keep: usize) {
        let _idle = idle();
        state()?.pool(pool).map(drop)
    }

    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) {
        use CUmemPool_attribute::*;
        let mut state = state()?;
        require(!value.is_null())?;
        let pool = state.pool(pool)?;
        match attribute {
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.threshold = value.cast::<u64>().read_unaligned(),
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
                require(value.cast::<u64>().read_unaligned() == 0)?;
                pool.high[usize::from(attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)] = 0;
            }
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT | CU_MEMPOOL_ATTR_USED_MEM_CURRENT => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                pool.reuses[attribute as usize - 1] = value.cast::<c_int>().read_unaligned();
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) {
        use CUmemPool_attribute::*;
        let mut state = state()?;
        let &mut Pool { reuses, threshold, high, .. } = state.pool(pool)?;
        match attribute {
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => put(value.cast(), threshold),
            CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT | CU_MEMPOOL_ATTR_USED_MEM_CURRENT => {
                put(value.cast(), state.used(pool.addr()))
            }
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => put(value.cast(), high[0]),
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => put(value.cast(), high[1]),
            CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
            | CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                put(value.cast(), reuses[attribute as usize - 1])
            }
        }
    }

    /// Other devices have no access to a pool's memory.
    fn cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) {
        let mut state = state()?;
        let own = state.pool(pool)?.device;
        require(!access.is_null() || count == 0)?;
        for index in 0..count {
            let CUmemAccessDesc { ref location, flags } = *access.add(index);
            let device = device_of(&state, location)?;
            let has_all = flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            // A pool's own device cannot lose its access.
            require(device != own || has_all)?;
            if device != own && flags != CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(
        flags: *mut CUmemAccess_flags,
        pool: CUmemoryPool,
        location: *mut CUmemLocation,
    ) {
        let mut state = state()?;
        let own = state.pool(pool)?.device;
        require(!location.is_null())?;
        let has_all = device_of(&state, &*location)? == own;
        put(flags, match has_all {
            true => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            false => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        })
    }

    fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) {
        let mut state = state()?;
        require(!address.is_null())?;
        put(address, state.allocate_from_pool(bytes, None, stream)?)
    }

    fn cuMemAllocFromPoolAsync(
        address: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) {
        let mut state = state()?;
        require(!address.is_null())?;
        put(address, state.allocate_from_pool(bytes, Some(pool), stream)?)
    }
}
