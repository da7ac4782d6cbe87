//! Devices without peer access exchange data by copies. The codes are those of CUDA's documentation.

#[allow(dead_code)] // `devices.rs` uses all of it
mod side;

use cust::sys::cudaError_enum::*;
use cust::sys::*;
use side::{NON_BLOCKING, Side, fault, ok, record, wait};
use std::ptr::null_mut;

#[test]
fn memory_goes_by_copies_alone() {
    let settings = emulator::Settings { devices: 2, peer_access: false, ..emulator::settings() };
    let _alone = side::alone(settings);
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    let mut number = -1;
    use CUdevice_P2PAttribute_enum::*;
    // SAFETY: pointers are to variables of the right type; the pinned memory lives while it is used.
    unsafe {
        assert_eq!((cuDeviceCanAccessPeer(&mut number, 0, 1), number), (CUDA_SUCCESS, 0));
        for attribute in
            [CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED]
        {
            assert_eq!((cuDeviceGetP2PAttribute(&mut number, attribute, 1, 0), number), (CUDA_SUCCESS, 0));
        }
        assert_eq!(a.enable(&b), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        assert_eq!(a.disable(&b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);

        let (mine, other) = (a.memory(1, 4), b.memory(1, 0));
        ok(b.launch(c"copy", b.stream, &[mine, other]));
        assert_eq!(cuStreamSynchronize(b.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(fault().contains("in the memory of device 0, to which device 1 has no peer access"));

        ok(cuMemcpyPeerAsync(other, b.context, mine, a.context, 4, b.stream));
        assert_eq!(b.word(other), 4);
        // Through the host, with an event between the two copies.
        let mut pinned = null_mut();
        ok(cuMemAllocHost_v2(&mut pinned, 4));
        ok(a.launch(c"store", a.stream, &[mine, 9]));
        ok(cuMemcpyDtoHAsync_v2(pinned, mine, 4, a.stream));
        record(a.event, a.stream);
        wait(b.stream, a.event);
        ok(cuMemcpyHtoDAsync_v2(other, pinned, 4, b.stream));
        assert_eq!(b.word(other), 9);
        // Without the event, the second copy may come too early.
        ok(cuMemcpyDtoHAsync_v2(pinned, mine, 4, a.stream));
        ok(cuMemcpyHtoDAsync_v2(other, pinned, 4, b.stream));
        assert!(fault().contains("by a copy of device 0; and read of 4 bytes"));
    }
}
