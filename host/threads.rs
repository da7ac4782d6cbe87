//! The threads that reduce on the CPU: rayon's, or a pool of its own in a child of `fork`, which has none of
//! its parent's threads.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32};
use std::sync::{Mutex, PoisonError};

/// The number of forks between the process that loaded the library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The last pool made in a forked child: by this process or by an ancestor.
///
/// It has no lock: a lock that another thread holds during a fork stays locked in the child for ever.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(null_mut());

thread_local! {
    /// Whether this thread was a worker of a rayon pool when it forked. rayon still treats it as a worker,
    /// but the pool's other workers are not in this process.
    static LOST_POOL: Cell<bool> = const { Cell::new(false) };
}

/// A pool made in a forked child.
struct Pool {
    /// The value of [`FORKS`] when the pool was made.
    forks: u32,
    threads: ThreadPool,
}

/// Registers [`forked`] to be called in each child.
///
/// It runs when the library is loaded, not at its first use: a program may use rayon before it forks, and
/// this library only in the child.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
#[used]
// SAFETY: the section holds functions without results that run when the program or shared library is loaded.
// This function calls nothing that is loaded or initialised later.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // SAFETY: the handler may run in a child of any program: it does not allocate or wait.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
    at_load
};

/// Called in a child by its only thread, the one that forked.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
    LOST_POOL.set(rayon::current_thread_index().is_some());
}

/// The number of forks between the process that loaded the library and this one. It differs from the
/// parent's.
pub fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// Calls `work` with usable rayon threads: in a child of `fork` on the child's own pool, unless the caller
/// already runs on a pool of this process.
pub fn install<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let forks = forks();
    // Only the thread that forked existed before the fork, so the pool of any other thread was made in the
    // child.
    if forks == 0 || rayon::current_thread_index().is_some() && !LOST_POOL.get() {
        return work();
    }
    let (mut work, mut result) = (Some(work), None);
    on_own_pool(forks, &mut || result = work.take().map(|work| work()));
    result.expect("the pool has called it")
}

/// Calls `work` with each number below `count`, on several threads. It is not generic: what rayon makes of
/// work of a type of its own is some 10 KB of code.
pub fn each(count: usize, work: &(dyn Fn(usize) + Sync)) {
    install(|| (0..count).into_par_iter().with_max_len(1).for_each(work));
}

/// Calls `work` with each number below `count`, on several threads. Returns the results in the order of the
/// numbers.
pub fn map<R: Send>(count: usize, work: &(dyn Fn(usize) -> R + Sync)) -> Vec<R> {
    let mut results: Vec<_> = (0..count).map(|_| None).collect();
    each_part(&mut results, 1, &|number, result| result[0] = Some(work(number)));
    results.into_iter().flatten().collect()
}

/// Cuts `places` into parts of `size` places, of which the last may be shorter. Calls `work` with the number
/// of each part and the part, on several threads.
pub fn each_part<T: Send>(places: &mut [T], size: usize, work: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let parts: Vec<_> = places.chunks_mut(size).map(Mutex::new).collect();
    each(parts.len(), &|number| {
        // No other thread has this number.
        let mut part = parts[number].lock().unwrap_or_else(PoisonError::into_inner);
        work(number, &mut part);
    });
}

/// As [`map`], with each part of `size` places.
pub fn map_parts<T: Send, R: Send>(
    places: &mut [T],
    size: usize,
    work: &(dyn Fn(usize, &mut [T]) -> R + Sync),
) -> Vec<R> {
    let mut parts: Vec<_> = places.chunks_mut(size).map(|part| (part, None)).collect();
    each_part(&mut parts, 1, &|number, part| {
        let (places, result) = &mut part[0];
        *result = Some(work(number, places));
    });
    parts.into_iter().filter_map(|(_, result)| result).collect()
}

/// Merges values in pairs of neighbours, then the results, and so on, on several threads. `None` if there are
/// no values.
pub fn merged<V: Send>(values: Vec<V>, merge: &(dyn Fn(&mut V, V) + Sync)) -> Option<V> {
    let mut values: Vec<_> = values.into_iter().map(Some).collect();
    while values.len() > 1 {
        each_part(&mut values, 2, &|_, pair| {
            if let [Some(value), other] = pair
                && let Some(other) = other.take()
            {
                merge(value, other);
            }
        });
        values.retain(Option::is_some);
    }
    values.pop().flatten()
}

/// The number of threads that work given to [`install`] runs on.
pub fn count() -> usize {
    install(rayon::current_num_threads)
}

/// Calls `work` once on the child's own pool. It is not generic, so it is compiled once.
#[cold]
fn on_own_pool(forks: u32, work: &mut (dyn FnMut() + Send)) {
    let pool = own_pool(forks);
    if !LOST_POOL.get() {
        return pool.install(work);
    }
    // rayon treats this thread as a worker of its former pool: while it waits it may run that pool's work,
    // which may wait for lost workers. So another thread waits in its place.
    let called = std::thread::scope(|scope| scope.spawn(|| pool.install(work)).join());
    called.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The child's own pool, made at the first use and kept for the child's life.
///
/// A pool of the parent (itself a child) is leaked: dropping it would wait for its threads.
///
/// # Panics
///
/// If the system cannot start the threads, as rayon does for its global pool.
fn own_pool(forks: u32) -> &'static ThreadPool {
    let last = POOL.load(Acquire);
    // SAFETY: stored pools are never freed.
    if let Some(pool) = unsafe { last.as_ref() }
        && pool.forks == forks
    {
        return &pool.threads;
    }
    let threads = ThreadPoolBuilder::new().build().expect("threads for a forked process");
    let pool = Box::into_raw(Box::new(Pool { forks, threads }));
    match POOL.compare_exchange(last, pool, AcqRel, Acquire) {
        // SAFETY: the pool was leaked above.
        Ok(_) => unsafe { &(*pool).threads },
        // Another thread of this process was faster.
        Err(other) => {
            // SAFETY: only this thread has `pool`; stored pools are never freed.
            unsafe {
                drop(Box::from_raw(pool));
                &(*other).threads
            }
        }
    }
}
