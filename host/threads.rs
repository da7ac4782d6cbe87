//! The threads that reduce on the CPU: rayon's, and in a child of `fork`, which has none of its parent's
//! threads, a pool of the child's own.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// How often this process and those that it descends from were forked since the library was loaded.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The last pool that was made in a child, by this process or by one that it descends from. No lock guards
/// it: one that another thread holds while its process is forked stays locked in the child for ever.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(null_mut());

thread_local! {
    /// Whether this thread was a worker of a rayon pool when it forked. rayon still takes it for one, but the
    /// pool's other workers are not in this process.
    static LOST_POOL: Cell<bool> = const { Cell::new(false) };
}

/// A pool that was made in a child.
struct Pool {
    /// What [`FORKS`] was then.
    forks: u32,
    threads: ThreadPool,
}

/// Has [`forked`] called in each child. This happens when the library is loaded, not when it is first used: a
/// program may have used rayon before it forks, and the library only in the child.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
#[used]
// SAFETY: the section is that of functions without results that are called when the program, or the shared
// library, is loaded. This one calls nothing that has to be loaded or initialised later.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        // SAFETY: the handler may be called in a child of any program: it allocates nothing and waits for
        // nothing.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
    at_load
};

/// Called in a child by the thread that forked, the only one that the child has.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
    LOST_POOL.set(rayon::current_thread_index().is_some());
}

/// How often this process and those that it descends from were forked: another number than in the parent.
pub fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// Calls `work` where rayon's threads are there to take part: in a child of `fork`, on the child's own pool,
/// unless the caller is on one already.
pub fn install<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let forks = forks();
    // A thread that forked is the only one of its process that was there before; so the pool of any other is
    // one of the child's.
    if forks == 0 || rayon::current_thread_index().is_some() && !LOST_POOL.get() {
        return work();
    }
    let (mut work, mut result) = (Some(work), None);
    on_own_pool(forks, &mut || result = work.take().map(|work| work()));
    result.expect("the pool has called it")
}

/// The number of threads that work given to [`install`] is spread over.
pub fn count() -> usize {
    install(rayon::current_num_threads)
}

/// Calls `work`, once, on the child's own pool. For all types the same code.
#[cold]
fn on_own_pool(forks: u32, work: &mut (dyn FnMut() + Send)) {
    let pool = own_pool(forks);
    if !LOST_POOL.get() {
        return pool.install(work);
    }
    // rayon would have this thread look for work of its former pool meanwhile, where what a lost worker had
    // begun may be waited for.
    let called = std::thread::scope(|scope| scope.spawn(|| pool.install(work)).join());
    called.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The child's own pool, made when it is first asked for, and kept for the child's life. A pool of its
/// parent's, a child too, is left as it is: to end it would be to wait for its threads.
///
/// # Panics
///
/// Where the system has no threads for it, as rayon does for its global pool.
fn own_pool(forks: u32) -> &'static ThreadPool {
    let last = POOL.load(Acquire);
    // SAFETY: pools that are stored are leaked.
    if let Some(pool) = unsafe { last.as_ref() }
        && pool.forks == forks
    {
        return &pool.threads;
    }
    let threads = ThreadPoolBuilder::new().build().expect("threads for a forked process");
    let pool = Box::into_raw(Box::new(Pool { forks, threads }));
    match POOL.compare_exchange(last, pool, AcqRel, Acquire) {
        // SAFETY: it was leaked above.
        Ok(_) => unsafe { &(*pool).threads },
        // Another thread of this process was faster.
        Err(other) => {
            // SAFETY: nobody else has this one; what is stored is leaked.
            unsafe {
                drop(Box::from_raw(pool));
                &(*other).threads
            }
        }
    }
}
