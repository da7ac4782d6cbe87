//! Device and host allocations, and queries about addresses.

use super::state::{State, state};
use super::{Answer, MEMORY, api, idle, put, put_if_wanted, require};
use cust_raw::{CUcontext, CUdevice, CUdeviceptr, CUmem_advise, CUpointer_attribute, CUresult, CUstream};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// `cuMemAllocPitch` rounds rows up to a multiple of this many bytes.
const PITCH: usize = 512;
/// `CU_DEVICE_CPU`, the host in place of a device.
const HOST: CUdevice = -1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`, which every pinned allocation has because addresses are unified.
const DEVICE_MAP: c_uint = 2;

pub struct Allocation {
    pub context: usize,
    kind: Kind,
    /// The flags of `cuMemHostAlloc`.
    flags: c_uint,
    /// A number unique among this program's allocations.
    id: u64,
    /// The pool that it is from, if it is from one.
    pub pool: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Device,
    Managed,
    Pinned,
    Registered,
}

impl Allocation {
    /// Frees or unregisters the memory at `address`.
    pub fn release(&self, address: u64) {
        match self.kind {
            Kind::Registered => MEMORY.unregister_host(address),
            _ => MEMORY.free(address),
        };
    }
}

impl State {
    fn allocate(&mut self, context: usize, bytes: usize, kind: Kind, flags: c_uint) -> Answer<u64> {
        let (bytes, memory) = (bytes as u64, self.memory_of(context)?);
        let address = match kind {
            Kind::Device => memory.allocate(bytes),
            // The host may write managed and pinned memory at any time.
            _ => memory.allocate_host(bytes),
        };
        let address = address.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.own(context, address, kind, flags);
        Ok(address)
    }

    fn own(&mut self, context: usize, address: u64, kind: Kind, flags: c_uint) {
        let id = self.new_handle() as u64;
        self.allocations.insert(address, Allocation { context, kind, flags, id, pool: None });
    }

    /// Allocates device memory that belongs to a pool.
    pub fn allocate_in(&mut self, context: usize, bytes: usize, pool: usize) -> Answer<u64> {
        let address = self.allocate(context, bytes, Kind::Device, 0)?;
        if let Some(allocation) = self.allocations.get_mut(&address) {
            allocation.pool = Some(pool);
        }
        Ok(address)
    }

    /// Frees the allocation that starts at `address`; fails unless it is of one of these kinds. The device
    /// must be idle.
    fn free(&mut self, address: u64, kinds: &[Kind]) -> Answer {
        self.not_stopped()?;
        let allocation = self.allocations.get(&address).filter(|allocation| kinds.contains(&allocation.kind));
        let allocation = allocation.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.usable(allocation.context)?;
        allocation.release(address);
        self.allocations.remove(&address);
        Ok(())
    }

    /// Fails unless this is the number of a device, or [`HOST`].
    fn device_or_host(&self, device: CUdevice) -> Answer {
        if device == HOST { Ok(()) } else { self.device(device).map(drop) }
    }

    /// Returns the pinned or registered allocation that holds this address.
    fn pinned(&self, address: u64) -> Answer<&Allocation> {
        let (base, _) = MEMORY.range(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let allocation = self.allocations.get(&base);
        let pinned = allocation.filter(|a| matches!(a.kind, Kind::Pinned | Kind::Registered));
        pinned.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

fn address<T>(pointer: *mut T) -> u64 {
    pointer.addr() as u64
}

/// Fails unless these bytes lie in one allocation.
pub fn check_range(address: u64, bytes: usize) -> Answer {
    let (base, size) = MEMORY.range(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(bytes as u64 <= size - (address - base))
}

/// Writes an attribute of the allocation that holds an address.
///
/// # Safety
///
/// `data` is null, or valid for writes of the attribute's type.
unsafe fn pointer_attribute(
    state: &State,
    data: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
) -> Answer {
    use CUpointer_attribute::*;
    let (base, bytes) = MEMORY.range(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // A module's variables have no entry in `allocations`.
    let allocation = state.allocations.get(&base);
    let kind = allocation.map_or(Kind::Device, |allocation| allocation.kind);
    let owner = MEMORY.owner_of(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let on_host = matches!(kind, Kind::Pinned | Kind::Registered);
    // SAFETY: the caller's promise.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT => {
                put(data.cast::<CUcontext>(), ptr::without_provenance_mut(owner.context))
            }
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => put(data.cast::<c_uint>(), if on_host { 1 } else { 2 }),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => {
                // The address at which kernels of the current context access it, if they can.
                let current = state.current().and_then(|context| state.memory_of(context));
                require(current.map_or(true, |memory| memory.reaches(address)))?;
                put(data.cast(), address)
            }
            CU_POINTER_ATTRIBUTE_HOST_POINTER => {
                require(kind != Kind::Device)?;
                put(data.cast(), address)
            }
            CU_POINTER_ATTRIBUTE_BUFFER_ID => put(data.cast(), allocation.map_or(base, |a| a.id)),
            CU_POINTER_ATTRIBUTE_IS_MANAGED => put(data.cast::<c_uint>(), (kind == Kind::Managed).into()),
            CU_POINTER_ATTRIBUTE_MAPPED => put(data.cast::<c_uint>(), 1),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(data.cast::<c_int>(), owner.device as c_int),
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => put(data.cast(), base),
            CU_POINTER_ATTRIBUTE_RANGE_SIZE => put(data.cast(), bytes as usize),
            _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        }
    }
}

api! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let state = state()?;
        let memory = state.memory_of(state.current()?)?;
        put_if_wanted(free, (memory.limit() - memory.used()) as usize);
        put_if_wanted(total, memory.limit() as usize);
        Ok(())
    }

    fn cuMemAlloc_v2(device: *mut CUdeviceptr, bytes: usize) {
        let mut state = state()?;
        let context = state.current_for_unsafe()?;
        require(!device.is_null() && bytes > 0)?;
        put(device, state.allocate(context, bytes, Kind::Device, 0)?)
    }

    fn cuMemAllocPitch_v2(
        device: *mut CUdeviceptr,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: c_uint,
    ) {
        let mut state = state()?;
        let context = state.current_for_unsafe()?;
        require(!device.is_null() && !pitch.is_null() && width > 0 && height > 0)?;
        require(matches!(element, 4 | 8 | 16))?;
        let row = width.checked_next_multiple_of(PITCH).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        put(device, state.allocate(context, bytes, Kind::Device, 0)?)?;
        put(pitch, row)
    }

    fn cuMemAllocManaged(device: *mut CUdeviceptr, bytes: usize, flags: c_uint) {
        let mut state = state()?;
        let context = state.current_for_unsafe()?;
        require(!device.is_null() && bytes > 0 && matches!(flags, 1 | 2))?;
        put(device, state.allocate(context, bytes, Kind::Managed, 0)?)
    }

    fn cuMemFree_v2(device: CUdeviceptr) {
        let _idle = idle();
        let mut state = state()?;
        state.outside_captures()?;
        if device == 0 { Ok(()) } else { state.free(device, &[Kind::Device, Kind::Managed]) }
    }

    fn cuMemFreeAsync(device: CUdeviceptr, stream: CUstream) {
        let _idle = idle();
        let mut state = state()?;
        state.not_modelled_in_captures(stream)?;
        if device == 0 { Ok(()) } else { state.free(device, &[Kind::Device]) }
    }

    fn cuMemAllocHost_v2(host: *mut *mut c_void, bytes: usize) {
        let mut state = state()?;
        let context = state.current_for_unsafe()?;
        require(!host.is_null())?;
        let address = if bytes == 0 { 0 } else { state.allocate(context, bytes, Kind::Pinned, DEVICE_MAP)? };
        put(host, ptr::with_exposed_provenance_mut(address as usize))
    }

    fn cuMemHostAlloc(host: *mut *mut c_void, bytes: usize, flags: c_uint) {
        let mut state = state()?;
        let context = state.current_for_unsafe()?;
        require(!host.is_null() && flags <= 7)?;
        let flags = flags | DEVICE_MAP;
        let address = if bytes == 0 { 0 } else { state.allocate(context, bytes, Kind::Pinned, flags)? };
        put(host, ptr::with_exposed_provenance_mut(address as usize))
    }

    fn cuMemFreeHost(host: *mut c_void) {
        let _idle = idle();
        let mut state = state()?;
        state.outside_captures()?;
        if host.is_null() { Ok(()) } else { state.free(address(host), &[Kind::Pinned]) }
    }

    fn cuMemHostRegister_v2(host: *mut c_void, bytes: usize, flags: c_uint) {
        let mut state = state()?;
        let context = state.current_for_unsafe()?;
        require(!host.is_null() && bytes > 0 && flags <= 0xf)?;
        let known = MEMORY.range(address(host)).and_then(|(base, _)| state.allocations.get(&base));
        require(known.is_none_or(|known| known.kind == Kind::Registered))?;
        if !state.memory_of(context)?.register_host(address(host), bytes as u64) {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        state.own(context, address(host), Kind::Registered, flags | DEVICE_MAP);
        Ok(())
    }

    fn cuMemHostUnregister(host: *mut c_void) {
        let _idle = idle();
        let mut state = state()?;
        state.outside_captures()?;
        if MEMORY.range(address(host)).is_none() {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        }
        state.free(address(host), &[Kind::Registered])
    }

    fn cuMemHostGetDevicePointer_v2(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint) {
        let state = state()?;
        state.current()?;
        require(flags == 0)?;
        state.pinned(address(host))?;
        put(device, address(host))
    }

    fn cuMemHostGetFlags(flags: *mut c_uint, host: *mut c_void) {
        let state = state()?;
        state.current()?;
        put(flags, state.pinned(address(host))?.flags)
    }

    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, device: CUdeviceptr) {
        state()?.current()?;
        let range = MEMORY.range(device).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        put_if_wanted(base, range.0);
        put_if_wanted(bytes, range.1 as usize);
        Ok(())
    }

    fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, device: CUdeviceptr) {
        pointer_attribute(&*state()?, data, attribute, device)
    }

    /// Unknown attributes are zero instead of an error; an unknown device number is -2.
    fn cuPointerGetAttributes(
        count: c_uint,
        attributes: *mut CUpointer_attribute,
        data: *mut *mut c_void,
        device: CUdeviceptr,
    ) {
        use CUpointer_attribute::*;
        let state = state()?;
        require(count > 0 && !attributes.is_null() && !data.is_null())?;
        for index in 0..count as usize {
            let (attribute, data) = (attributes.add(index).read(), data.add(index).read());
            require(!data.is_null())?;
            if pointer_attribute(&state, data, attribute, device).is_err() {
                match attribute {
                    CU_POINTER_ATTRIBUTE_CONTEXT
                    | CU_POINTER_ATTRIBUTE_DEVICE_POINTER
                    | CU_POINTER_ATTRIBUTE_HOST_POINTER
                    | CU_POINTER_ATTRIBUTE_BUFFER_ID
                    | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
                    | CU_POINTER_ATTRIBUTE_RANGE_SIZE => put(data.cast::<u64>(), 0)?,
                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(data.cast::<c_int>(), -2)?,
                    _ => put(data.cast::<c_uint>(), 0)?,
                }
            }
        }
        Ok(())
    }

    /// Only checks its arguments: host and device already share managed memory.
    fn cuMemPrefetchAsync(device: CUdeviceptr, bytes: usize, to: CUdevice, stream: CUstream) {
        let mut state = state()?;
        state.not_capturing(stream)?;
        state.device_or_host(to)?;
        check_range(device, bytes)
    }

    fn cuMemAdvise(device: CUdeviceptr, bytes: usize, _advice: CUmem_advise, advised: CUdevice) {
        let state = state()?;
        state.current()?;
        state.device_or_host(advised)?;
        check_range(device, bytes)
    }
}
