//! What the host sees of a fault: the launch succeeds, then every call fails.
//!
//! Only one test, because a fault stops the context for the whole program.

use cust::error::CudaError;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::{context::Context, device::Device, launch};
use cust_raw::{CUresult, cuLaunchKernel};
use std::ptr::{null_mut, without_provenance_mut};

const STORE: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry store(.param .u64 to) {
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
/// The line of the store in the text above.
const LINE: u32 = 12;

#[test]
fn a_fault_stops_the_context_until_it_is_taken() {
    emulator::install().unwrap();
    let _context = cust::quick_init().unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let module = Module::from_ptx(STORE, &[]).unwrap();
    let store = module.get_function("store").unwrap();
    let values = DeviceBuffer::from_slice(&[9u32; 4]).unwrap();
    let pointer = values.as_device_ptr().as_raw();
    let launch = |threads: u32, pointer: u64| {
        // SAFETY: the emulator checks each access.
        unsafe { launch!(store<<<1, threads, 0, stream>>>(pointer)) }
    };

    assert_eq!(launch(4, pointer), Ok(()));
    assert_eq!(emulator::last_counters().unwrap().0, "store");
    assert_eq!(emulator::take_faults(), []);

    for (threads, pointer, error, message) in [
        (5, pointer, CudaError::IllegalAddress, "out of bounds"),
        (1, 16, CudaError::IllegalAddress, "out of bounds"),
        (1, pointer + 2, CudaError::MisalignedAddress, "misaligned"),
    ] {
        assert_eq!(launch(threads, pointer), Ok(()));
        assert_eq!(emulator::last_counters(), None);
        assert_eq!(stream.synchronize(), Err(error));
        assert_eq!(launch(1, pointer), Err(error));
        assert_eq!(values.as_host_vec(), Err(error));
        assert_eq!(DeviceBuffer::from_slice(&[1u8]).map(|_| ()), Err(error));
        assert_eq!(Module::from_ptx(STORE, &[]).map(|_| ()), Err(error));
        assert_eq!(module.get_function("store").map(|_| ()), Err(error));
        // The context is stopped in every thread; the device still works.
        let other = std::thread::spawn(move || {
            let _context = cust::quick_init().unwrap();
            cust::memory::mem_get_info()
        });
        assert_eq!(other.join().unwrap(), Err(error));
        assert!(Device::get_device(0).is_ok());

        let faults = emulator::take_faults();
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert_eq!((fault.kernel.as_str(), fault.code()), ("store", error as u32));
        assert_eq!(fault.place.as_ref().unwrap().line, LINE);
        assert!(fault.to_string().contains(message), "{fault}");
        assert_eq!(stream.synchronize(), Ok(()));
        assert_eq!(values.as_host_vec().unwrap(), [0, 1, 2, 3]);
    }

    // An argument buffer that is too short. The launch succeeds, as with the driver on an H200; the kernel
    // that reads past the buffer is at fault.
    let (mut given, mut size) = (pointer, 4usize);
    let mut extra = [
        without_provenance_mut(1),
        (&raw mut given).cast(),
        without_provenance_mut(2),
        (&raw mut size).cast(),
        null_mut(),
    ];
    let (function, stream_raw) = (store.to_raw(), stream.as_inner());
    let launched =
        // SAFETY: the list has the driver's format, and the emulator checks each access.
        unsafe { cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_raw, null_mut(), extra.as_mut_ptr()) };
    assert_eq!(launched, CUresult::CUDA_SUCCESS);
    assert_eq!(stream.synchronize(), Err(CudaError::IllegalAddress));
    let faults = emulator::take_faults();
    assert_eq!(faults.len(), 1);
    let text = faults[0].to_string();
    assert!(text.contains("the launch gave 4 of the 8 bytes of the kernel's parameters"), "{text}");
    assert!(text.contains("read of 8 bytes at parameter address 0x0"), "{text}");

    // A reset also ends the stop, and destroys everything in the context.
    assert_eq!(launch(1, 16), Ok(()));
    let device = Device::get_device(0).unwrap();
    // SAFETY: no memory of the context is used afterwards.
    unsafe { Context::reset(&device) }.unwrap();
    assert_eq!(stream.synchronize(), Err(CudaError::InvalidHandle));
    let _context = Context::new(device).unwrap();
    assert_eq!(cust::context::CurrentContext::synchronize(), Ok(()));
    assert_eq!(values.as_host_vec(), Err(CudaError::InvalidValue));
    assert_eq!(emulator::take_faults().len(), 1);
}
