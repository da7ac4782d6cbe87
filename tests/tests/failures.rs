//! Launches that fail in the middle of a queue.

use cust::memory::DeviceBuffer;
use gpu_reduce::{Device, Error, Max, Op, Reduce, Sum, View};
use support::{devices, process, samples};

/// An operator without compiled kernels.
#[derive(Clone, Copy, Default)]
struct Uncompiled;

impl Op<i32> for Uncompiled {
    const NAME: &'static str = "uncompiled";
    type Accumulator = i32;
    type Output = i32;
    const EXACT: bool = true;

    fn identity(&self) -> i32 {
        0
    }
    fn lift(&self, item: i32, _: u64) -> i32 {
        item
    }
    fn combine(&self, a: i32, b: i32) -> i32 {
        a ^ b
    }
    fn finish(&self, all: i32, _: u64) -> Option<i32> {
        Some(all)
    }
}

#[test]
fn a_launch_that_is_refused_is_nobody_elses_matter() {
    for device in devices().into_iter().filter(|device| !device.is_cpu()) {
        let data = samples(10_000, |hash| hash as i32);
        let x = device.upload(&data).unwrap();
        let stream = device.stream().unwrap();
        let before = x.reduce_async::<Sum, 256>(&stream);
        let refused = x.reduce_async::<Uncompiled, 256>(&stream);
        let of_rows = x.rows(100).unwrap().reduce_async::<Uncompiled, 256>(&stream);
        let after = x.reduce_async::<Max, 256>(&stream);
        assert!(matches!(refused.wait(), Err(Error::NoKernel { .. })), "{device}");
        assert!(matches!(of_rows.wait().map(drop), Err(Error::NoKernel { .. })), "{device}");
        assert_eq!(before.wait(), data.reduce::<Sum, 256>());
        assert_eq!(after.wait(), data.reduce::<Max, 256>());
        assert_eq!(x.reduce::<Sum, 256>(), data.reduce::<Sum, 256>());
    }
}

/// A fault on a GPU ends the context of its process, so the fault happens in a process of its own.
#[test]
fn a_fault_is_told_by_all_that_come_after() {
    let Some(device) = devices().pop().filter(|device| !device.is_cpu()) else { return };
    let data = samples(1 << 20, |hash| hash as i32);
    let x = device.upload(&data).unwrap();
    if process::is_own("failures::a_fault_is_told_by_all_that_come_after", |_| {}) {
        return have_a_fault(&device, &data);
    }
    // The device still works in this process.
    assert_eq!(x.reduce::<Sum, 256>(), data.reduce::<Sum, 256>());
}

/// Reduces memory that has been freed, between two other reductions.
fn have_a_fault(device: &Device, data: &[i32]) {
    let x = device.upload(data).unwrap();
    let stream = device.stream().unwrap();
    let _context = cust::context::Context::new(cust::device::Device::get_device(0).unwrap()).unwrap();
    let gone: View<i32> = {
        // So large that the driver unmaps it when it is freed.
        // SAFETY: nothing reads the memory.
        let buffer = unsafe { DeviceBuffer::<i32>::uninitialized(1 << 26) }.unwrap();
        let first = std::ptr::without_provenance(buffer.as_device_ptr().as_raw() as usize);
        // SAFETY: the memory is freed too early: this is the fault under test, in a process of its own.
        unsafe { device.view(first, 1 << 20) }.unwrap()
    };
    let expected = data.reduce::<Sum, 256>().unwrap();
    assert_eq!(x.reduce_async::<Sum, 256>(&stream).wait(), Ok(expected));
    let (before, fault, after) = (
        x.reduce_async::<Sum, 256>(&stream),
        gone.reduce_async::<Sum, 256>(&stream),
        x.reduce_async::<Max, 256>(&stream),
    );
    let is_launch = |error: &Error| matches!(error, Error::Launch { .. } | Error::Driver { .. });
    let why = fault.wait().unwrap_err();
    println!("{why}");
    assert!(is_launch(&why), "{why}");
    // Either it had its result before the fault, or it is told of the fault, as all later calls are.
    match before.wait() {
        Ok(sum) => assert_eq!(sum, expected),
        Err(why) => assert!(is_launch(&why), "{why}"),
    }
    match (after.wait(), device.is_emulator()) {
        // A fault on the emulator ends only its launch.
        (Ok(largest), true) => assert_eq!(Ok(largest), data.reduce::<Max, 256>()),
        (Ok(largest), false) => panic!("{largest} after a fault"),
        (Err(why), _) => assert!(is_launch(&why), "{why}"),
    }
    if !device.is_emulator() {
        for why in [
            x.reduce_async::<Sum, 256>(&stream).wait().unwrap_err(),
            x.reduce::<Sum, 256>().unwrap_err(),
            device.upload(data).unwrap_err(),
            stream.synchronize().unwrap_err(),
        ] {
            println!("{why}");
            assert!(is_launch(&why), "{why}");
        }
    }
    // Dropping them all neither panics nor waits.
}
