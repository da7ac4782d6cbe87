//! The library as nvcc's code uses it: loaded into the process, and called through its C functions.
//!
//! `.ci/check-cuda-programs` does the same with programs that nvcc compiles.

use libloading::Library;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::{LazyLock, Mutex, PoisonError};

/// What nvcc would compile these to:
///
/// ```c
/// __device__ unsigned counter;
/// __managed__ unsigned total = 5;
/// __global__ void add(unsigned *values, unsigned added) {
///     values[threadIdx.x] += added;
///     atomicAdd(&counter, 1);
///     total = 6;
/// }
/// __global__ void all_threads_write_one_place(unsigned *values) { *values = threadIdx.x; }
/// ```
const PTX: &CStr = c"
    .version 9.0
    .target sm_90
    .address_size 64
    .global .align 4 .u32 counter;
    .global .attribute(.managed) .align 4 .u32 total = 5;

    .visible .entry add(.param .u64 values, .param .u32 added) {
        .reg .b32 %r<6>;
        .reg .b64 %rd<3>;
        ld.param.u64 %rd1, [values];
        ld.param.u32 %r1, [added];
        mov.u32 %r2, %tid.x;
        mad.wide.u32 %rd2, %r2, 4, %rd1;
        ld.global.u32 %r3, [%rd2];
        add.u32 %r3, %r3, %r1;
        st.global.u32 [%rd2], %r3;
        red.global.add.u32 [counter], 1;
        mov.u32 %r4, 6;
        st.global.u32 [total], %r4;
        ret;
    }

    .visible .entry all_threads_write_one_place(.param .u64 values) {
        .reg .b32 %r<2>;
        .reg .b64 %rd<2>;
        ld.param.u64 %rd1, [values];
        mov.u32 %r1, %tid.x;
        st.global.u32 [%rd1], %r1;
        ret;
    }";

const CHILD: &str = "GPU_REDUCE_TEST_CUDART";

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Dim3(c_uint, c_uint, c_uint);

#[repr(C)]
struct Wrapper(u32, u32, *const u8, *const c_void);

/// Returns a function of the library, with the signature that CUDA's header gives it.
macro_rules! function {
    ($name:ident($($type:ty),*) $(-> $result:ty)?) => {
        *LIBRARY
            .get::<unsafe extern "C" fn($($type),*) $(-> $result)?>(stringify!($name))
            .unwrap_or_else(|error| panic!("{error}"))
    };
}

static LIBRARY: LazyLock<Library> = LazyLock::new(load);

/// Held by a test while it uses the device: another test's `cudaDeviceReset` would free its memory.
static DEVICE: Mutex<()> = Mutex::new(());

/// Loads the library, which Cargo has built beside this program.
fn load() -> Library {
    let mut path: PathBuf = std::env::current_exe().unwrap();
    path.set_file_name("libgpu_reduce_cudart.so");
    // SAFETY: its initialisation registers a function for the end of the process, and does nothing else.
    unsafe { Library::new(path) }.unwrap()
}

/// Returns the PTX in a fat binary, which lives as long as the process.
fn fat_binary() -> *const Wrapper {
    let text = PTX.to_bytes_with_nul();
    let mut entry = vec![0; 0x50];
    entry[0] = 1;
    entry[4] = 0x50;
    entry[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
    entry[28] = 90;
    entry.extend_from_slice(text);
    let size = (entry.len() as u64).to_le_bytes();
    let bytes = [&0xba55_ed50_u32.to_le_bytes()[..], &[1, 0, 16, 0], &size, &entry].concat().leak();
    Box::leak(Box::new(Wrapper(0x4662_43b1, 1, bytes.as_ptr(), null())))
}

/// Registers the fat binary, and an address on the host for each of its kernels and variables.
fn register() -> (*mut *mut c_void, HashMap<&'static CStr, *mut *mut c_void>) {
    type Handle = *mut *mut c_void;
    type Text = *const c_char;
    let addresses = [c"add", c"all_threads_write_one_place", c"counter", c"total"];
    let hosts = addresses.map(|name| (name, Box::leak(Box::new(null_mut())) as Handle)).into();
    // SAFETY: as nvcc's code calls them.
    unsafe {
        let handle = function!(__cudaRegisterFatBinary(*const Wrapper) -> Handle)(fat_binary());
        let hosts: &HashMap<&CStr, Handle> = &hosts;
        for kernel in [c"add", c"all_threads_write_one_place"] {
            type Unused = *mut c_void;
            function!(__cudaRegisterFunction(
                Handle, Handle, Text, Text, c_int, Unused, Unused, Unused, Unused, Unused
            ))(
                handle,
                hosts[kernel],
                kernel.as_ptr(),
                kernel.as_ptr(),
                -1,
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
                null_mut(),
            );
        }
        let name = c"counter".as_ptr();
        function!(__cudaRegisterVar(Handle, Handle, Text, Text, c_int, usize, c_int, c_int))(
            handle,
            hosts[c"counter"],
            name,
            name,
            0,
            4,
            0,
            0,
        );
        let name = c"total".as_ptr();
        function!(__cudaRegisterManagedVar(Handle, Handle, Text, Text, c_int, usize, c_int, c_int))(
            handle,
            hosts[c"total"],
            name,
            name,
            0,
            4,
            0,
            0,
        );
        function!(__cudaRegisterFatBinaryEnd(Handle))(handle);
        (handle, hosts.clone())
    }
}

/// Launches a kernel as `kernel<<<grid, block>>>(…)` does.
fn launch(kernel: *mut *mut c_void, [grid, block]: [Dim3; 2], arguments: &mut [*mut c_void]) -> c_uint {
    let (mut popped, mut shared, mut stream) = ([Dim3(0, 0, 0); 2], 9, null_mut());
    let mut handle: *mut *mut c_void = null_mut();
    // SAFETY: as nvcc's code calls them.
    unsafe {
        let push = function!(__cudaPushCallConfiguration(Dim3, Dim3, usize, *mut c_void) -> c_uint);
        assert_eq!(push(grid, block, 0, null_mut()), 0);
        let pop = function!(
            __cudaPopCallConfiguration(*mut Dim3, *mut Dim3, *mut usize, *mut *mut c_void) -> c_uint
        );
        let [first, second] = &mut popped;
        assert_eq!(pop(first, second, &mut shared, &mut stream), 0);
        assert_eq!((popped, shared, stream), ([grid, block], 0, null_mut()));
        let get = function!(__cudaGetKernel(*mut *mut *mut c_void, *mut *mut c_void) -> c_uint);
        assert_eq!(get(&mut handle, kernel), 0);
        let launch = function!(
            __cudaLaunchKernel(*mut *mut c_void, Dim3, Dim3, *mut *mut c_void, usize, *mut c_void) -> c_uint
        );
        launch(handle, popped[0], popped[1], arguments.as_mut_ptr(), shared, stream)
    }
}

fn name(code: c_uint) -> &'static str {
    // SAFETY: the names are constants.
    let name = unsafe { CStr::from_ptr(function!(cudaGetErrorName(c_uint) -> *const c_char)(code)) };
    name.to_str().unwrap()
}

fn text(code: c_uint) -> &'static str {
    // SAFETY: the texts are constants.
    let text = unsafe { CStr::from_ptr(function!(cudaGetErrorString(c_uint) -> *const c_char)(code)) };
    text.to_str().unwrap()
}

const ONE: Dim3 = Dim3(1, 1, 1);

/// A file may have default streams of its threads. Unlike the default stream of all, they can be captured.
#[test]
fn a_null_stream_may_be_the_threads_own() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut device, mut graph, mut word): (*mut c_void, *mut c_void, _) = (null_mut(), null_mut(), 0u32);
    let stream: *mut c_void = null_mut();
    // SAFETY: pointers are to variables of the right type and size.
    unsafe {
        assert_eq!(function!(cudaMalloc(*mut *mut c_void, usize) -> c_uint)(&mut device, 4), 0);
        let begin = function!(cudaStreamBeginCapture(*mut c_void, c_int) -> c_uint)(stream, 2);
        assert_eq!(name(begin), "cudaErrorStreamCaptureUnsupported");
        assert_eq!(function!(cudaStreamBeginCapture_ptsz(*mut c_void, c_int) -> c_uint)(stream, 2), 0);
        let set = function!(cudaMemsetAsync_ptsz(*mut c_void, c_int, usize, *mut c_void) -> c_uint);
        assert_eq!(set(device, 7, 4, stream), 0);
        let end = function!(cudaStreamEndCapture_ptsz(*mut c_void, *mut *mut c_void) -> c_uint);
        assert_eq!(end(stream, &mut graph), 0);
        assert_eq!(function!(cudaGraphDestroy(*mut c_void) -> c_uint)(graph), 0);
        assert_eq!(set(device, 5, 4, stream), 0);
        let copy = function!(cudaMemcpy_ptds(*mut c_void, *const c_void, usize, c_int) -> c_uint);
        assert_eq!(copy((&raw mut word).cast(), device, 4, 2), 0);
        assert_eq!(word, 0x0505_0505);
        assert_eq!(function!(cudaFree(*mut c_void) -> c_uint)(device), 0);
    }
}

#[test]
fn a_program_launches_its_kernels_and_uses_its_variables() {
    let _device = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let (handle, hosts) = register();
    // SAFETY: pointers are to variables of the right type and size.
    unsafe {
        let init = function!(__cudaInitModule(*mut *mut c_void) -> c_char);
        assert_eq!(init(handle), 1);
        let total: *mut u32 = hosts[c"total"].read().cast();
        assert_eq!(total.read(), 5);

        let (mut device, mut values, mut added): (*mut c_void, _, u32) = (null_mut(), [1u32, 2, 3, 4], 10);
        let malloc = function!(cudaMalloc(*mut *mut c_void, usize) -> c_uint);
        let copy = function!(cudaMemcpy(*mut c_void, *const c_void, usize, c_int) -> c_uint);
        assert_eq!(malloc(&mut device, 16), 0);
        assert_eq!(copy(device, values.as_ptr().cast(), 16, 1), 0);
        let mut arguments = [(&raw mut device).cast(), (&raw mut added).cast()];
        assert_eq!(launch(hosts[c"add"], [ONE, Dim3(4, 1, 1)], &mut arguments), 0);
        assert_eq!(copy(values.as_mut_ptr().cast(), device, 16, 2), 0);
        assert_eq!((values, total.read()), ([11, 12, 13, 14], 6));

        let (mut counter, host) = (0u32, hosts[c"counter"]);
        let from =
            function!(cudaMemcpyFromSymbol(*mut c_void, *mut *mut c_void, usize, usize, c_int) -> c_uint);
        let to =
            function!(cudaMemcpyToSymbol(*mut *mut c_void, *const c_void, usize, usize, c_int) -> c_uint);
        assert_eq!(from((&raw mut counter).cast(), host, 4, 0, 2), 0);
        assert_eq!(counter, 4);
        assert_eq!(to(host, (&raw const added).cast(), 2, 2, 1), 0);
        assert_eq!(from((&raw mut counter).cast(), host, 4, 0, 4), 0);
        assert_eq!(counter, 4 + (10 << 16));
        // A managed variable goes by its address.
        assert_eq!(from((&raw mut counter).cast(), total.cast(), 4, 0, 2), 0);
        assert_eq!(counter, 6);

        let (too_many, mut none) = ([ONE, Dim3(1025, 1, 1)], null_mut());
        for (code, expected) in [
            (to(host, (&raw const added).cast(), 4, 1, 1), "cudaErrorInvalidValue"),
            (to(host, (&raw const added).cast(), 4, 0, 2), "cudaErrorInvalidMemcpyDirection"),
            (to(&mut none, (&raw const added).cast(), 4, 0, 1), "cudaErrorInvalidSymbol"),
            (copy(device, null(), 4, 1), "cudaErrorInvalidValue"),
            (copy(device, device, 4, 5), "cudaErrorInvalidMemcpyDirection"),
            (launch(hosts[c"add"], too_many, &mut arguments), "cudaErrorInvalidConfiguration"),
            (launch(&mut none, [ONE; 2], &mut arguments), "cudaErrorInvalidDeviceFunction"),
            (function!(cudaSetDevice(c_int) -> c_uint)(1), "cudaErrorInvalidDevice"),
            (function!(cudaCreateTextureObject() -> c_uint)(), "cudaErrorNotSupported"),
        ] {
            assert_eq!(name(code), expected);
        }
        // The thread keeps the last one until it is asked for.
        assert_eq!(function!(cudaPeekAtLastError() -> c_uint)(), 801);
        assert_eq!(function!(cudaGetLastError() -> c_uint)(), 801);
        assert_eq!(function!(cudaGetLastError() -> c_uint)(), 0);
        assert_eq!(
            [text(0), text(1), text(9)],
            ["no error", "invalid argument", "invalid configuration argument"]
        );
        assert_eq!(
            [name(0), name(4321), text(4321)],
            ["cudaSuccess", "unrecognized error code", "unrecognized error code"]
        );

        // A reset frees all; the next launch loads the kernels again.
        assert_eq!(function!(cudaDeviceReset() -> c_uint)(), 0);
        assert_eq!(malloc(&mut device, 16), 0);
        assert_eq!(function!(cudaMemset(*mut c_void, c_int, usize) -> c_uint)(device, 1, 16), 0);
        assert_eq!(launch(hosts[c"add"], [ONE, Dim3(4, 1, 1)], &mut arguments), 0);
        assert_eq!(copy(values.as_mut_ptr().cast(), device, 16, 2), 0);
        assert_eq!(values, [0x0101_010b; 4]);

        function!(__cudaUnregisterFatBinary(*mut *mut c_void))(handle);
        assert_eq!(name(launch(hosts[c"add"], [ONE; 2], &mut arguments)), "cudaErrorInvalidDeviceFunction");
    }
}

/// The test starts itself as a child process, whose kernel has a fault.
#[test]
fn a_program_with_a_fault_fails() {
    if std::env::var_os(CHILD).is_some() {
        let (_, hosts) = register();
        let mut device: *mut c_void = null_mut();
        // SAFETY: pointers are to variables of the right type.
        unsafe {
            assert_eq!(function!(cudaMalloc(*mut *mut c_void, usize) -> c_uint)(&mut device, 16), 0);
            let kernel = hosts[c"all_threads_write_one_place"];
            assert_eq!(launch(kernel, [ONE, Dim3(4, 1, 1)], &mut [(&raw mut device).cast()]), 0);
            let code = function!(cudaDeviceSynchronize() -> c_uint)();
            assert_eq!(name(code), "cudaErrorLaunchFailure");
        }
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_program_with_a_fault_fails", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let [output, errors] = [child.stdout, child.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.contains("1 passed"), "{output}{errors}");
    assert_eq!(child.status.code(), Some(1));
    assert_eq!(errors.matches("data race").count(), 1, "{errors}");
    assert!(errors.ends_with("the emulator found 1 fault\n"), "{errors}");
}
