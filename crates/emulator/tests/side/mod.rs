//! One device of a test with several devices.

use cust::sys::cudaError_enum::*;
use cust::sys::*;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PTX: &CStr = c"
.version 6.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 variable = 7;

// *to = *from
.visible .entry copy(.param .u64 from, .param .u64 to) {
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [to];
    ld.global.u32 %r1, [%rd1];
    st.global.u32 [%rd2], %r1;
    ret;
}
// *to = value
.visible .entry store(.param .u64 to, .param .u64 value) {
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [value];
    st.global.u32 [%rd1], %rd2;
    ret;
}
// The same, visible to a host that polls the memory.
.visible .entry store_volatile(.param .u64 to, .param .u64 value) {
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [value];
    st.volatile.global.u32 [%rd1], %rd2;
    ret;
}
.visible .entry add_device(.param .u64 to) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    red.relaxed.gpu.global.add.u32 [%rd1], 1;
    ret;
}
.visible .entry add_system(.param .u64 to) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [to];
    red.relaxed.sys.global.add.u32 [%rd1], 1;
    ret;
}
// *to = 1, then *flag = 1 with a release
.visible .entry release(.param .u64 to, .param .u64 flag) {
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [flag];
    st.global.u32 [%rd1], 1;
    st.release.sys.global.u32 [%rd2], 1;
    ret;
}
// Reads *flag with an acquire, then *to = *from
.visible .entry acquire(.param .u64 from, .param .u64 flag, .param .u64 to) {
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [flag];
    ld.param.u64 %rd3, [to];
    ld.acquire.sys.global.u32 %r1, [%rd2];
    ld.global.u32 %r2, [%rd1];
    st.global.u32 [%rd3], %r2;
    ret;
}
// 64 threads: each stores to its own word
.visible .entry fill(.param .u64 to) {
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
";
/// The line of the load in `copy`; the text's first line is empty.
pub const LOAD_LINE: u32 = 13;

pub const BLOCKING: u32 = 0;
pub const NON_BLOCKING: u32 = 1;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[track_caller]
pub fn ok(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS);
}

pub fn record(event: CUevent, stream: CUstream) {
    // SAFETY: handles are looked up.
    ok(unsafe { cuEventRecord(event, stream) });
}

/// Makes a stream wait for an event.
pub fn wait(stream: CUstream, event: CUevent) {
    // SAFETY: handles are looked up.
    ok(unsafe { cuStreamWaitEvent(stream, event, 0) });
}

/// Waits for a stream.
pub fn synchronize(stream: CUstream) {
    // SAFETY: handles are looked up.
    ok(unsafe { cuStreamSynchronize(stream) });
}

/// Starts a test that runs alone: the tests of a program share the devices' contexts, which faults stop.
pub fn alone(settings: emulator::Settings) -> MutexGuard<'static, ()> {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    emulator::set_settings(settings);
    emulator::install().unwrap();
    // SAFETY: no pointer is passed.
    ok(unsafe { cuInit(0) });
    emulator::take_faults();
    alone
}

/// A device with its primary context, two streams, an event and the kernels.
pub struct Side {
    pub device: CUdevice,
    pub context: CUcontext,
    pub stream: CUstream,
    pub other: CUstream,
    pub event: CUevent,
    pub module: CUmodule,
}

impl Side {
    /// Also makes the context current in this thread.
    pub fn new(device: CUdevice, flags: u32) -> Side {
        let (mut context, mut module) = (null_mut(), null_mut());
        let (mut stream, mut other, mut event) = (null_mut(), null_mut(), null_mut());
        // SAFETY: pointers are to variables of the right type; the text ends in a zero.
        unsafe {
            ok(cuDevicePrimaryCtxRetain(&mut context, device));
            ok(cuCtxSetCurrent(context));
            ok(cuStreamCreate(&mut stream, flags));
            ok(cuStreamCreate(&mut other, flags));
            ok(cuEventCreate(&mut event, 0));
            ok(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        }
        Side { device, context, stream, other, event, module }
    }

    pub fn enter(&self) {
        // SAFETY: handles are looked up.
        ok(unsafe { cuCtxSetCurrent(self.context) });
    }

    /// Waits for all work of the context.
    pub fn synchronize(&self) {
        self.enter();
        // SAFETY: no pointer is passed.
        ok(unsafe { cuCtxSynchronize() });
    }

    /// Allocates memory of `words` words, all of this value.
    pub fn memory(&self, words: usize, value: u32) -> CUdeviceptr {
        self.enter();
        let mut address = 0;
        // SAFETY: the pointer is to a variable of the right type.
        unsafe {
            ok(cuMemAlloc_v2(&mut address, 4 * words));
            ok(cuMemsetD32_v2(address, value, words));
        }
        self.synchronize();
        address
    }

    pub fn function(&self, name: &CStr) -> CUfunction {
        let mut function = null_mut();
        // SAFETY: the pointer is to a variable of the right type; the name ends in a zero.
        ok(unsafe { cuModuleGetFunction(&mut function, self.module, name.as_ptr()) });
        function
    }

    /// Launches a kernel with one thread in a stream.
    pub fn launch(&self, name: &CStr, stream: CUstream, arguments: &[u64]) -> CUresult {
        self.launch_threads(name, stream, arguments, 1)
    }

    pub fn launch_threads(&self, name: &CStr, stream: CUstream, arguments: &[u64], threads: u32) -> CUresult {
        let mut arguments = arguments.to_vec();
        let mut each: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| (&raw mut *argument).cast()).collect();
        let each = each.as_mut_ptr();
        // SAFETY: each test passes as many 8-byte arguments as its kernel takes.
        unsafe { cuLaunchKernel(self.function(name), 1, 1, 1, threads, 1, 1, 0, stream, each, null_mut()) }
    }

    /// Waits for all work of the device, and returns the word at an address.
    pub fn word(&self, address: CUdeviceptr) -> u32 {
        self.synchronize();
        let mut word = 0u32;
        // SAFETY: the variable has four bytes.
        ok(unsafe { cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4) });
        word
    }

    pub fn enable(&self, peer: &Side) -> CUresult {
        self.enter();
        // SAFETY: handles are looked up.
        unsafe { cuCtxEnablePeerAccess(peer.context, 0) }
    }

    pub fn disable(&self, peer: &Side) -> CUresult {
        self.enter();
        // SAFETY: handles are looked up.
        unsafe { cuCtxDisablePeerAccess(peer.context) }
    }
}

/// Returns the text of the only fault since the last call.
#[track_caller]
pub fn fault() -> String {
    let faults = emulator::take_faults();
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults[0].to_string()
}

impl Drop for Side {
    fn drop(&mut self) {
        // Everything that a test left enabled, allocated or stopped ends with the context.
        emulator::take_faults();
        // SAFETY: the test is over, and no memory of the context is used any more.
        unsafe { cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
