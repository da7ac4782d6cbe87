//! The driver API: the `cu…` functions and the objects behind their handles.
//!
//! A call does its work before it returns, in the calling thread, so the order within a stream holds by
//! itself. Handles are numbers that are looked up, never addresses that are followed.
//!
//! The codes for misuse are those that the NVIDIA driver 580 returned on an H200. If that driver crashes (on
//! a destroyed handle), the emulator returns `CUDA_ERROR_INVALID_HANDLE`, or `CUDA_ERROR_INVALID_CONTEXT` for
//! a context. The codes of stream capture, graphs, several devices and peer access come from CUDA's
//! documentation instead; `graph.rs` lists the cases that it leaves open. The documentation does not require
//! that each end of `cuMemcpyPeer` is on the device of its context; the emulator does.

mod context;
mod copy;
mod device;
mod error;
mod fatbinary;
mod function;
mod graph;
mod launch;
mod launch_ex;
mod memory;
mod module;
mod order;
mod pool;
mod state;
mod stream;

pub use launch::{last_counters, take_counters};
pub use module::last_load_error;
pub use state::{take_faults, take_notes};

use crate::memory::Memory;
use cust_raw::CUresult;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The result of a driver function; `Err` is never `CUDA_SUCCESS`.
type Answer<T = ()> = Result<T, CUresult>;

/// Bytes of memory of each device, allocated from the host on demand.
const MEMORY_BYTES: u64 = 16 << 30;

/// The memory of all devices; [`State::memory_of`](state::State::memory_of) returns a context's view of it.
static MEMORY: LazyLock<Memory> = LazyLock::new(|| Memory::new(MEMORY_BYTES));

/// Keeps memory alive while work (launches, copies) of another thread uses it.
///
/// Work holds the read lock. Calls that free memory take the write lock, so they wait for the device, as
/// those of the NVIDIA driver do. Always lock this before the state.
static RUNNING: RwLock<()> = RwLock::new(());

/// The lock that work holds while it runs.
type Running = RwLockReadGuard<'static, ()>;

fn running() -> Running {
    RUNNING.read().unwrap_or_else(PoisonError::into_inner)
}

fn idle() -> RwLockWriteGuard<'static, ()> {
    RUNNING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Defines driver functions, and `FUNCTIONS`, their list by name.
///
/// A function whose signature differs from cust_raw's declaration does not compile.
macro_rules! api {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            #[allow(non_snake_case, clippy::too_many_arguments)]
            unsafe extern "C" fn $name($($argument: $type),*) -> ::cust_raw::CUresult {
                const _: [unsafe extern "C" fn($($type),*) -> ::cust_raw::CUresult; 2] =
                    [::cust_raw::$name, $name];
                // SAFETY: by the contract of the driver API, the caller passes pointers that are null or
                // valid; each body checks for null.
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

/// Returns how often this thread has called each driver function since it last asked.
///
/// Shows, for example, that a hot path allocates, clears and copies nothing.
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

/// The body of a driver function.
///
/// Not a `dyn FnMut`: its vtable would hold a second copy of each body, for `FnOnce`.
trait Body {
    fn run(&mut self) -> Answer;
}

impl<F: FnMut() -> Answer> Body for F {
    fn run(&mut self) -> Answer {
        self()
    }
}

/// Counts a call and runs the function's body. Catches panics, because the caller may not be Rust.
fn answer(name: &'static str, body: &mut dyn Body) -> CUresult {
    // Calls of a program's static destructors come after the end of the thread's locals, and are not counted.
    let _ = CALLS.try_with(|calls| *calls.borrow_mut().entry(name).or_default() += 1);
    match catch_unwind(AssertUnwindSafe(|| body.run())) {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// Returns the address of a driver function.
pub fn resolve(name: &str) -> Option<*const c_void> {
    let functions = [
        error::FUNCTIONS,
        device::FUNCTIONS,
        context::FUNCTIONS,
        module::FUNCTIONS,
        function::FUNCTIONS,
        memory::FUNCTIONS,
        pool::FUNCTIONS,
        copy::FUNCTIONS,
        stream::FUNCTIONS,
        launch::FUNCTIONS,
        launch_ex::FUNCTIONS,
        graph::FUNCTIONS,
    ];
    functions.into_iter().flatten().find(|(known, _)| *known == name).map(|&(_, function)| function)
}

/// Writes a result to the caller's pointer; fails if it is null.
///
/// # Safety
///
/// `place` is null or valid for writes; it need not be aligned.
unsafe fn put<T>(place: *mut T, value: T) -> Answer {
    if place.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so valid for writes by the caller's promise.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Writes a result unless the caller's pointer is null.
///
/// # Safety
///
/// As [`put`].
unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    // SAFETY: the caller's promise.
    let _ = unsafe { put(place, value) };
}

/// Fails with `CUDA_ERROR_INVALID_VALUE` unless `valid`.
fn require(valid: bool) -> Answer {
    if valid { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}
