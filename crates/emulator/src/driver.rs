//! The driver API: the `cu…` functions, and what stands behind their handles.
//!
//! A call does its work before it returns, in the thread that made it, so the order of a stream holds by itself.
//! Handles are numbers that are looked up, never addresses that are followed. The codes for misuse are those that
//! the NVIDIA driver 580 gave on an H200; where that driver crashes (a handle that was destroyed), the answer is
//! `CUDA_ERROR_INVALID_HANDLE`, or `CUDA_ERROR_INVALID_CONTEXT` for a context. Those of stream capture and graphs, and of
//! several devices and their peers, are from CUDA's documentation instead; `graph.rs` says where that leaves a choice. It
//! also does not say that each end of `cuMemcpyPeer` is to be on the device of its context: the emulator asks for it.

mod context;
mod copy;
mod device;
mod error;
mod function;
mod graph;
mod launch;
mod memory;
mod module;
mod order;
mod state;
mod stream;

pub use launch::{last_counters, take_counters};
pub use module::last_load_error;
pub use state::take_faults;

use crate::memory::Memory;
use cust_raw::CUresult;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A function's answer before it becomes a code; `Err` is never `CUDA_SUCCESS`.
type Answer<T = ()> = Result<T, CUresult>;

/// Bytes of memory of each device. They are the machine's own memory, taken when a program asks for them.
const MEMORY_BYTES: u64 = 16 << 30;

/// The memory of all devices; [`State::memory_of`](state::State::memory_of) has it as a context sees it.
static MEMORY: LazyLock<Memory> = LazyLock::new(|| Memory::new(MEMORY_BYTES));

/// Read by work on memory (launches, copies), written by calls that give memory back: these wait for the device, as
/// the NVIDIA driver's do, so that no kernel or copy of another thread sees its memory go. Always taken before the
/// state.
static RUNNING: RwLock<()> = RwLock::new(());

/// Held by work on memory while it runs.
type Running = RwLockReadGuard<'static, ()>;

fn running() -> Running {
    RUNNING.read().unwrap_or_else(PoisonError::into_inner)
}

fn idle() -> RwLockWriteGuard<'static, ()> {
    RUNNING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Defines driver functions and `FUNCTIONS`, the list of them by name. A function that cust_raw declares otherwise
/// does not compile.
macro_rules! api {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            #[allow(non_snake_case, clippy::too_many_arguments)]
            unsafe extern "C" fn $name($($argument: $type),*) -> ::cust_raw::CUresult {
                const _: [unsafe extern "C" fn($($type),*) -> ::cust_raw::CUresult; 2] =
                    [::cust_raw::$name, $name];
                // SAFETY: what a pointer argument that is not null must point to is the driver API's contract with
                // the caller; each body checks for null.
                #[allow(unused_unsafe)]
                $crate::driver::answer(stringify!($name), &mut || unsafe { $body })
            }
        )*

        pub const FUNCTIONS: &[(&str, *const ::std::ffi::c_void)] =
            &[$((stringify!($name), $name as *const ::std::ffi::c_void)),*];
    };
}
use api;

thread_local! {
    static CALLS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// The driver functions that this thread has called since it asked last, and how often each: shows that a hot path
/// allocates, clears or copies nothing.
///
/// ```
/// emulator::install()?;
/// let _context = cust::quick_init()?;
/// emulator::take_calls();
/// let memory = cust::memory::DeviceBuffer::from_slice(&[1u8, 2, 3])?;
/// drop(memory);
/// let calls: Vec<_> = emulator::take_calls().into_iter().collect();
/// assert_eq!(calls, [("cuMemAlloc_v2", 1), ("cuMemFree_v2", 1), ("cuMemcpyHtoD_v2", 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn take_calls() -> BTreeMap<&'static str, u64> {
    CALLS.take()
}

/// The body of a driver function. Not a `dyn FnMut`, whose table holds a copy of each body for `FnOnce`.
trait Body {
    fn run(&mut self) -> Answer;
}

impl<F: FnMut() -> Answer> Body for F {
    fn run(&mut self) -> Answer {
        self()
    }
}

/// Counts a call and runs the function's body; a panic ends here, because the caller may not be Rust.
fn answer(name: &'static str, body: &mut dyn Body) -> CUresult {
    CALLS.with_borrow_mut(|calls| *calls.entry(name).or_default() += 1);
    match catch_unwind(AssertUnwindSafe(|| body.run())) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// The address of a driver function.
pub fn resolve(name: &str) -> Option<*const c_void> {
    let functions = [
        error::FUNCTIONS,
        device::FUNCTIONS,
        context::FUNCTIONS,
        module::FUNCTIONS,
        function::FUNCTIONS,
        memory::FUNCTIONS,
        copy::FUNCTIONS,
        stream::FUNCTIONS,
        launch::FUNCTIONS,
        graph::FUNCTIONS,
    ];
    functions.into_iter().flatten().find(|(known, _)| *known == name).map(|&(_, function)| function)
}

/// Writes a result to where the caller wants it.
///
/// # Safety
///
/// `place` is null or may be written; it need not be aligned.
unsafe fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so the caller's promise holds.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Writes a result that the caller may not want.
///
/// # Safety
///
/// As [`put`].
unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    // SAFETY: the caller's promise.
    let _ = unsafe { put(place, value) };
}

/// `INVALID_VALUE` unless the argument is as it must be.
fn require(valid: bool) -> Answer {
    if valid { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}
