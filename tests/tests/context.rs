//! The library leaves the caller's CUDA context current. It is one test, because an open device belongs to
//! the whole program.

use cust::context::ContextHandle as _;
use cust::context::legacy::{Context, ContextFlags, CurrentContext};
use gpu_reduce::{Device, Error, Reduce, Sum, emulator};
use support::samples;

/// Makes every call that enters a context, and checks the current context after each.
fn calls(device: &Device, check: impl Fn(&str)) {
    let data = samples(600_000, |hash| hash as i32);
    let mut x = device.upload(&data).unwrap();
    check("upload");
    x.write(5, &data[5..100]).unwrap();
    check("write");
    assert_eq!(x.reduce::<Sum, 256>(), data.reduce::<Sum, 256>());
    check("reduce");
    assert_eq!(x.slice(..100).unwrap().to_vec().unwrap(), data[..100]);
    check("to_vec");
    drop(x);
    check("drop");
    assert_eq!(gpu_reduce::sum(&device.zeros::<u8>(9).unwrap()), Ok(0));
    check("zeros");
    assert!(matches!(device.zeros::<u64>(1 << 50), Err(Error::OutOfMemory { .. })));
    check("zeros, refused");
}

#[test]
fn a_call_leaves_the_callers_context_current() {
    // Starts the machine's driver, if there is one, and opens no device.
    let open = match Device::cuda(4096) {
        Err(Error::NoSuchDevice { .. }) => || Device::cuda(0),
        Err(why) => {
            eprintln!("skipped on a GPU: {why}");
            emulator::install().unwrap();
            cust::init(cust::CudaFlags::empty()).unwrap();
            Device::emulator
        }
        Ok(device) => panic!("there is no {device}"),
    };
    let current = || CurrentContext::get_current().unwrap().get_inner();
    assert!(current().is_null(), "a thread begins with no context");
    let raw = cust::device::Device::get_device(0).unwrap();
    let context = Context::create_and_push(ContextFlags::SCHED_AUTO, raw).unwrap();
    let own = context.get_inner();
    let device = open().unwrap();
    assert_eq!(current(), own, "opening the device");
    calls(&device, |call| assert_eq!(current(), own, "{call}"));
    std::thread::scope(|scope| {
        scope.spawn(|| calls(&device, |call| assert!(current().is_null(), "{call}, with no context before")));
    });
}
