//! Contexts, and each thread's current context.

use super::state::{State, state};
use super::{Answer, MEMORY, api, idle, put, put_if_wanted, require};
use crate::memory::{Memory, Owner};
use cust_raw::{CUcontext, CUdevice, CUfunc_cache, CUlimit, CUresult, CUsharedconfig};
use std::cell::RefCell;
use std::ffi::{c_int, c_uint};
use std::ptr;

/// The result of `cuCtxGetApiVersion`, that of the `_v2` functions.
const API_VERSION: c_uint = 3020;
const FLAGS: c_uint = 0x1f;
const MAP_HOST: c_uint = 8;
/// The least and the greatest stream priority; a lower number is more urgent.
pub const PRIORITIES: (c_int, c_int) = (0, -5);

thread_local! {
    /// The stack of contexts, the current one last. It may contain destroyed contexts.
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

pub struct Context {
    pub device: usize,
    flags: c_uint,
    cache: CUfunc_cache,
    /// Indexed by `CUlimit`. Only stored and returned; nothing else uses them.
    limits: [usize; CUlimit::CU_LIMIT_MAX as usize],
    /// The contexts of other devices whose memory its kernels can access.
    pub peers: Vec<usize>,
    /// The code that every call returns after a kernel has failed.
    pub fault: Option<CUresult>,
}

impl Context {
    fn new(device: usize, flags: c_uint) -> Self {
        let cache = CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE;
        let limits = [1 << 10, 1 << 20, 8 << 20, 0, 2048, 64, 0];
        Self { device, flags, cache, limits, peers: Vec::new(), fault: None }
    }
}

fn with_stack<R>(work: impl FnOnce(&mut Vec<usize>) -> R) -> Answer<R> {
    // A thread that is ending has already dropped its stack.
    STACK.try_with(|stack| work(&mut stack.borrow_mut())).map_err(|_| CUresult::CUDA_ERROR_DEINITIALIZED)
}

fn top() -> Answer<Option<usize>> {
    with_stack(|stack| stack.last().copied())
}

/// Returns the current context, even if it is destroyed or a kernel of it failed.
fn current() -> Answer<usize> {
    top()?.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

impl State {
    /// Returns the current context; fails if it is not usable.
    pub fn current(&self) -> Answer<usize> {
        let context = current()?;
        self.usable(context)?;
        Ok(context)
    }

    /// Fails if there is a current context and it is not usable.
    pub fn not_stopped(&self) -> Answer {
        top()?.map_or(Ok(()), |context| self.usable(context))
    }

    /// Returns the current context's data, even if a kernel of it failed.
    fn current_mut(&mut self) -> Answer<&mut Context> {
        self.contexts.get_mut(&current()?).ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Whether this is the handle of a device's primary context.
    fn is_primary(&self, context: usize) -> bool {
        self.primaries.iter().any(|primary| primary.handle == context)
    }

    /// Fails unless this is the handle of a context.
    fn known(&self, context: usize) -> Answer {
        let known = self.is_primary(context) || self.contexts.contains_key(&context);
        if known { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) }
    }

    /// Returns a context's view of global memory.
    pub fn memory_of(&self, context: usize) -> Answer<Memory> {
        let known = self.contexts.get(&context).ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
        Ok(MEMORY.of(Owner { device: known.device as u32, context }, &known.peers))
    }

    /// Returns the device of a context that a caller names; fails if the context is not usable.
    pub fn device_of(&self, context: CUcontext) -> Answer<usize> {
        self.known(context.addr())?;
        self.usable(context.addr())?;
        let known = self.contexts.get(&context.addr());
        known.map(|known| known.device).ok_or(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Returns the devices of the current context and of a peer; fails if they are the same context.
    fn with_peer(&self, peer: CUcontext) -> Answer<(usize, usize)> {
        let (context, other) = (handle(self.current()?), self.device_of(peer)?);
        if context == peer {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        Ok((self.device_of(context)?, other))
    }
}

fn limit(limit: CUlimit) -> Answer<usize> {
    match limit {
        CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH => Err(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT),
        CUlimit::CU_LIMIT_MAX => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        limit => Ok(limit as usize),
    }
}

fn handle(context: usize) -> CUcontext {
    ptr::without_provenance_mut(context)
}

api! {
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) {
        let mut state = state()?;
        let device = state.device(device)?;
        let primary = &mut state.primaries[device];
        put(context, handle(primary.handle))?;
        primary.retained += 1;
        let (primary, flags) = (primary.handle, primary.flags | MAP_HOST);
        state.contexts.entry(primary).or_insert_with(|| Context::new(device, flags));
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        let _idle = idle();
        let mut state = state()?;
        let device = state.device(device)?;
        let primary = &mut state.primaries[device];
        let left = primary.retained.checked_sub(1);
        primary.retained = left.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        if primary.retained == 0 {
            let primary = primary.handle;
            state.destroy(primary);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) {
        let _idle = idle();
        let mut state = state()?;
        let device = state.device(device)?;
        let primary = &mut state.primaries[device];
        primary.flags = 0;
        let primary = primary.handle;
        state.destroy(primary);
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) {
        let mut state = state()?;
        let device = state.device(device)?;
        require(flags & !FLAGS == 0)?;
        let primary = &mut state.primaries[device];
        primary.flags = flags;
        let primary = primary.handle;
        if let Some(context) = state.contexts.get_mut(&primary) {
            context.flags = flags | MAP_HOST;
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) {
        let state = state()?;
        let primary = &state.primaries[state.device(device)?];
        require(!flags.is_null() && !active.is_null())?;
        put(flags, primary.flags)?;
        put(active, state.contexts.contains_key(&primary.handle).into())
    }

    fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) {
        let mut state = state()?;
        require(!context.is_null() && flags & !FLAGS == 0)?;
        let device = state.device(device)?;
        let new = state.new_handle();
        with_stack(|stack| stack.push(new))?;
        state.contexts.insert(new, Context::new(device, flags));
        put(context, handle(new))
    }

    fn cuCtxDestroy_v2(context: CUcontext) {
        let _idle = idle();
        let mut state = state()?;
        let context = context.addr();
        require(context != 0)?;
        state.known(context)?;
        if state.is_primary(context) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        with_stack(|stack| stack.pop_if(|top| *top == context))?;
        state.destroy(context);
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: CUcontext) {
        let state = state()?;
        let context = context.addr();
        require(context != 0)?;
        state.known(context)?;
        with_stack(|stack| stack.push(context))
    }

    fn cuCtxPopCurrent_v2(context: *mut CUcontext) {
        let _state = state()?;
        let popped = with_stack(Vec::pop)?.ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        put_if_wanted(context, handle(popped));
        Ok(())
    }

    fn cuCtxSetCurrent(context: CUcontext) {
        let state = state()?;
        let context = context.addr();
        if context != 0 {
            state.known(context)?;
        }
        with_stack(|stack| {
            stack.pop();
            stack.extend((context != 0).then_some(context));
        })
    }

    fn cuCtxGetCurrent(context: *mut CUcontext) {
        let _state = state()?;
        put(context, handle(top()?.unwrap_or(0)))
    }

    fn cuCtxGetDevice(device: *mut CUdevice) {
        let mut state = state()?;
        put(device, state.current_mut()?.device as CUdevice)
    }

    fn cuCtxGetFlags(flags: *mut c_uint) {
        let mut state = state()?;
        put(flags, state.current_mut()?.flags)
    }

    fn cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) {
        let state = state()?;
        let context = if context.is_null() { current()? } else { context.addr() };
        if !state.contexts.contains_key(&context) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        put(version, API_VERSION)
    }

    /// Nothing to wait for: work has ended when the call that enqueued it returned.
    fn cuCtxSynchronize() {
        let mut state = state()?;
        let context = state.current()?;
        state.no_capture_in(context)?;
        state.host_waits_for_all(context);
        Ok(())
    }

    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) {
        let mut state = state()?;
        let (device, other) = state.with_peer(peer)?;
        require(flags == 0)?;
        if !state.can_access_peer(device, other) {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        let peers = &mut state.current_mut()?.peers;
        if peers.contains(&peer.addr()) {
            return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        }
        peers.push(peer.addr());
        Ok(())
    }

    /// Waits for running kernels, which may be using the access.
    fn cuCtxDisablePeerAccess(peer: CUcontext) {
        let _idle = idle();
        let mut state = state()?;
        state.with_peer(peer)?;
        let peers = &mut state.current_mut()?.peers;
        let enabled = peers.iter().position(|&known| known == peer.addr());
        peers.swap_remove(enabled.ok_or(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)?);
        Ok(())
    }

    fn cuCtxGetLimit(value: *mut usize, asked: CUlimit) {
        let mut state = state()?;
        state.current()?;
        put(value, state.current_mut()?.limits[limit(asked)?])
    }

    fn cuCtxSetLimit(asked: CUlimit, value: usize) {
        let mut state = state()?;
        state.current()?;
        require(asked != CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY || value <= 128)?;
        state.current_mut()?.limits[limit(asked)?] = value;
        Ok(())
    }

    fn cuCtxGetCacheConfig(config: *mut CUfunc_cache) {
        let mut state = state()?;
        state.current()?;
        put(config, state.current_mut()?.cache)
    }

    fn cuCtxSetCacheConfig(config: CUfunc_cache) {
        let mut state = state()?;
        state.current()?;
        state.current_mut()?.cache = config;
        Ok(())
    }

    /// Banks are four bytes wide on every device since compute capability 5.0, whatever the caller sets.
    fn cuCtxGetSharedMemConfig(config: *mut CUsharedconfig) {
        state()?.current()?;
        put(config, CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE)
    }

    fn cuCtxSetSharedMemConfig(_config: CUsharedconfig) {
        state()?.current()?;
        Ok(())
    }

    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        state()?.current()?;
        put_if_wanted(least, PRIORITIES.0);
        put_if_wanted(greatest, PRIORITIES.1);
        Ok(())
    }
}
