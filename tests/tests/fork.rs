//! Children of `fork`, which have none of their parent's threads and cannot use its GPU driver. They reduce
//! on threads of their own, and calls of devices fail at once.

#![cfg(any(target_os = "linux", target_vendor = "apple"))]

use gpu_reduce::{Device, Error, Reduce, Reducer, Sum, reduce_by_key};
use rayon::ThreadPoolBuilder;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use support::{devices, process, samples};

/// Seconds after which a child counts as hanging.
const LIMIT: u32 = 120;

/// Runs `work` in a child. Panics if the child panics or hangs.
#[track_caller]
fn in_child(work: impl FnOnce()) {
    // SAFETY: the child of a process with several threads must not wait for a lock that another thread held.
    // The allocators of glibc and of Apple's systems have no such lock. Whether the library has one is tested
    // here.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no handler is installed, so the signal ends the child.
            unsafe { libc::alarm(LIMIT) };
            // The parent does not see the test's captured output, so this writes past it.
            std::panic::set_hook(Box::new(|panic| _ = writeln!(std::io::stderr(), "in the child: {panic}")));
            let called = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(called.is_err())) }
        }
        child => {
            assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: nobody else waits for this child, and `status` receives the result.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            let hangs = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
            assert!(!hangs, "the child hangs");
            assert_eq!(status, 0, "the child's status");
        }
    }
}

/// Whether this is the process of the test's own. The emulator and other tests start threads, and Rust's
/// standard library holds a lock for a moment when a thread starts or ends: a child that is forked at that
/// moment hangs when it starts a thread.
#[track_caller]
fn is_own(test: &str) -> bool {
    process::is_own(&format!("fork::{test}"), |_| {})
}

/// Calls `work` while another thread calls `other` repeatedly.
fn meanwhile(other: impl Fn() + Sync, work: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                other();
            }
        });
        // The other thread must end after a panic too.
        let result = catch_unwind(AssertUnwindSafe(work));
        ended.store(true, Ordering::Relaxed);
        result
    });
    result.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Numbers whose sums in different orders have different bits, enough for all threads.
fn numbers() -> Vec<f32> {
    samples(1 << 20, |hash| (hash >> 40) as f32)
}

/// Each call that spreads over the CPU's threads.
fn on_all_threads(x: &[f32]) -> Vec<u32> {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let keys: Vec<u32> = (0..x.len() as u32).map(|index| index / 1000).collect();
    let (of_runs, sums) = reduce_by_key(&keys[..], x, Sum).unwrap();
    assert_eq!(of_runs.len(), sums.len());
    let segments = x.rows(1 << 10).unwrap().reduce::<Sum, 256>().unwrap();
    let columns = x.columns(1 << 10).unwrap().reduce::<Sum, 256>().unwrap();
    let mut reducer = Reducer::<_, f32, 256>::with_len(Sum, x.len() as u64);
    reducer.push(x).unwrap();
    let one = [x.reduce::<Sum, 256>().unwrap(), reducer.finish().unwrap()];
    let many = [sums, segments, columns].map(|results| results.to_vec().unwrap());
    [bits(&one), many.iter().flat_map(|many| bits(many)).collect()].concat()
}

/// The first children of a process that has used all threads, a child of a child, and then the parent.
#[test]
fn children_reduce_on_threads_of_their_own() {
    if !is_own("children_reduce_on_threads_of_their_own") {
        return;
    }
    let x = numbers();
    let (bits, cpu) = (on_all_threads(&x), Device::cpu().to_string());
    let check = || assert_eq!((on_all_threads(&x), Device::cpu().to_string()), (bits.clone(), cpu.clone()));
    in_child(check);
    in_child(|| {
        check();
        in_child(check);
        check();
    });
    // A child that has not reduced itself.
    in_child(|| in_child(check));
    check();
}

/// Several threads of a child request its pool at the same time.
#[test]
fn threads_of_a_child_share_a_pool() {
    if !is_own("threads_of_a_child_share_a_pool") {
        return;
    }
    let x = numbers();
    let bits = on_all_threads(&x);
    in_child(|| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(on_all_threads(&x), bits));
            }
        });
    });
}

/// A child forked while another thread reduces.
#[test]
fn children_of_a_process_that_reduces() {
    if !is_own("children_of_a_process_that_reduces") {
        return;
    }
    let x = numbers();
    let bits = on_all_threads(&x);
    meanwhile(
        || assert_eq!(on_all_threads(&x), bits),
        || (0..20).for_each(|_| in_child(|| assert_eq!(on_all_threads(&x), bits))),
    );
}

/// A child that is forked by a worker of a pool, without the other workers. The closure owns the data,
/// because the stack of the thread that calls `install` is not in the child.
#[test]
fn children_of_a_worker() {
    if !is_own("children_of_a_worker") {
        return;
    }
    let x = numbers();
    let bits = on_all_threads(&x);
    let fork = move || {
        let check = || assert_eq!(on_all_threads(&x), bits);
        in_child(|| {
            check();
            in_child(check);
        });
    };
    ThreadPoolBuilder::new().num_threads(2).build().unwrap().install(fork.clone());
    // The same with a child's pool.
    in_child(|| ThreadPoolBuilder::new().num_threads(2).build().unwrap().install(fork));
}

/// A pool that the caller makes in the child does the reductions.
#[test]
fn a_pool_that_a_child_makes_is_used() {
    if !is_own("a_pool_that_a_child_makes_is_used") {
        return;
    }
    let x = numbers();
    let bits = on_all_threads(&x);
    in_child(|| {
        ThreadPoolBuilder::new().num_threads(3).build().unwrap().install(|| {
            assert!(Device::cpu().to_string().starts_with("cpu (3 threads"));
            assert_eq!(on_all_threads(&x), bits);
        });
    });
}

/// No driver may have been started before in this process.
#[test]
fn a_device_is_of_the_process_that_opened_it() {
    if !is_own("a_device_is_of_the_process_that_opened_it") {
        return;
    }
    let x: Vec<u32> = samples(1 << 12, |hash| hash as u32 >> 8);
    let total = x.reduce::<Sum, 256>().unwrap();
    let opened = || devices().into_iter().find(|device| !device.is_cpu());
    // No driver was started before, so a child may start one. Its own child may not.
    in_child(|| {
        let Some(device) = opened() else { return };
        assert_eq!(device.upload(&x).unwrap().reduce::<Sum, 256>(), Ok(total));
        in_child(|| assert!(matches!(device.upload(&x), Err(Error::Forked { .. }))));
        assert_eq!(device.upload(&x).unwrap().reduce::<Sum, 256>(), Ok(total));
    });

    let Some(device) = opened() else { return eprintln!("skipped: neither a GPU nor the emulator") };
    let forked = Error::Forked { device: device.to_string() };
    assert_eq!(
        forked.to_string(),
        format!(
            "{device} cannot be used in this process: the driver was started before the process was forked; \
             open devices only in the child, or start the child with exec (Python: \
             multiprocessing's `spawn`)"
        )
    );
    let buffer = device.upload(&x).unwrap();
    assert_eq!(buffer.reduce::<Sum, 256>(), Ok(total));
    let stream = device.stream().unwrap();
    let (dropped, pinned, other) =
        (device.upload(&x).unwrap(), device.pinned::<u32>(100).unwrap(), device.stream().unwrap());
    let (pending, left) =
        (buffer.reduce_async::<Sum, 256>(&stream), buffer.reduce_async::<Sum, 256>(&stream));
    in_child(|| {
        assert_eq!(buffer.reduce::<Sum, 256>(), Err(forked.clone()));
        assert_eq!(buffer.to_vec(), Err(forked.clone()));
        assert_eq!(buffer.slice(1..).unwrap().reduce::<Sum, 32>(), Err(forked.clone()));
        assert_eq!(device.upload(&x).err(), Some(forked.clone()));
        assert_eq!(device.upload(&vec![1u8; 4 << 20]).err(), Some(forked.clone()));
        assert_eq!(device.pinned::<u8>(1).err(), Some(forked.clone()));
        assert_eq!(device.stream().err(), Some(forked.clone()));
        assert_eq!(stream.synchronize(), Err(forked.clone()));
        let again = Error::Forked { device: "cuda:0".to_owned() };
        assert_eq!(Device::cuda(0), Err(again.clone()));
        if device.is_emulator() {
            assert_eq!(Device::emulator(), Err(again));
        }
        assert!(pending.is_done());
        assert_eq!(pending.wait(), Err(forked.clone()));
        drop((left, dropped, pinned, other));
        assert_eq!(x.reduce::<Sum, 256>(), Ok(total));
        assert!(Device::default_device().is_cpu());
    });
    assert_eq!(buffer.reduce::<Sum, 256>(), Ok(total));
    assert_eq!(buffer.reduce_async::<Sum, 256>(&stream).wait(), Ok(total));

    // While another thread is in the driver.
    meanwhile(
        || {
            assert_eq!(buffer.reduce::<Sum, 256>(), Ok(total));
            assert_eq!(device.upload(&x).unwrap().to_vec(), Ok(x.clone()));
        },
        || {
            for _ in 0..20 {
                let buffer = device.upload(&x).unwrap();
                in_child(|| {
                    assert_eq!(buffer.reduce::<Sum, 256>(), Err(forked.clone()));
                    assert!(Device::cuda(0).is_err());
                    drop(buffer);
                });
            }
        },
    );
}
