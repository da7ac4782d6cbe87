//! The driver functions that a call makes.

use gpu_reduce::{CudaArray, Device, Reduce, Sum};
use support::process;

/// Only the launch, after the first call of its kind.
#[test]
fn enqueueing_does_nothing_else() {
    // Other tests would take from the device's pools.
    if !process::is_own("calls::enqueueing_does_nothing_else", |_| {}) {
        return;
    }
    // Only the emulator says which of its functions were called.
    let device = match Device::emulator() {
        Ok(device) => device,
        Err(why) => return eprintln!("skipped on the emulator: {why}"),
    };
    let x = device.zeros::<f32>(1 << 16).unwrap();
    let mut sums = device.zeros::<f32>(1).unwrap();
    let mut of_rows = device.zeros::<f32>(1 << 6).unwrap();
    let stream = device.stream().unwrap();
    let mut enqueue = || {
        // SAFETY: the buffers outlive the stream's work.
        unsafe {
            x.reduce_into::<Sum, 256>(&stream, &mut sums).unwrap();
            x.rows(1 << 10).unwrap().reduce_into::<Sum, 256>(&stream, &mut of_rows).unwrap();
            x.columns(1 << 6).unwrap().reduce_into::<Sum, 256>(&stream, &mut of_rows).unwrap();
        }
    };
    let of_launches = || assert_eq!(x.reduce_async::<Sum, 256>(&stream).wait(), Ok(0.0));
    enqueue();
    of_launches();
    gpu_reduce::emulator::take_calls();
    enqueue();
    let calls: Vec<_> = gpu_reduce::emulator::take_calls().into_keys().collect();
    assert_eq!(calls, ["cuCtxPopCurrent_v2", "cuCtxPushCurrent_v2", "cuLaunchKernel", "cuStreamIsCapturing"]);
    of_launches();
    let calls: Vec<_> = gpu_reduce::emulator::take_calls().into_keys().collect();
    let events = ["cuEventRecord", "cuEventSynchronize"];
    let expected = [
        &["cuCtxPopCurrent_v2", "cuCtxPushCurrent_v2"][..],
        &events,
        &["cuLaunchKernel", "cuStreamIsCapturing"],
    ];
    assert_eq!(calls, expected.concat());
    // A stream that is made anew for each call does not allocate either.
    let anew = || {
        // SAFETY: the stream outlives the borrow.
        let stream = unsafe { device.stream_from_raw(stream.as_raw().unwrap()) }.unwrap();
        assert_eq!(x.reduce_async::<Sum, 256>(&stream).wait(), Ok(0.0));
    };
    anew();
    gpu_reduce::emulator::take_calls();
    anew();
    let calls = gpu_reduce::emulator::take_calls();
    assert!(!calls.keys().any(|call| call.starts_with("cuMem")), "{calls:?}");
    // Our stream waits for an array's stream, if it is another one. The host never waits.
    let of_stream = |own| {
        let data = (x.view().as_ptr().addr(), true);
        let array = CudaArray { shape: &[x.len()], typestr: "<f4", data, strides: None, stream: own };
        gpu_reduce::emulator::take_calls();
        // SAFETY: the buffer outlives the view, and nothing writes to it.
        unsafe { array.view::<f32>(&stream) }.unwrap();
        let calls = gpu_reduce::emulator::take_calls().into_keys();
        calls.filter(|call| call.starts_with("cuEvent") || call.starts_with("cuStream")).collect::<Vec<_>>()
    };
    assert_eq!(of_stream(None), [""; 0]);
    assert_eq!(of_stream(Some(stream.as_raw().unwrap().addr())), [""; 0]);
    assert_eq!(
        of_stream(Some(1)),
        ["cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuStreamWaitEvent"]
    );
}
