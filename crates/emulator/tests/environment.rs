//! Settings from the environment. Only one test, because the environment is read once per program.

use cust::sys::cudaError_enum::*;
use cust::sys::*;
use emulator::Allow;
use std::collections::HashSet;

#[test]
fn the_environment_says_how_many_devices_there_are() {
    // More devices than there can be.
    for (name, value) in [
        ("GPU_REDUCE_EMULATOR_DEVICES", "1000"),
        ("GPU_REDUCE_EMULATOR_PEER_ACCESS", "0"),
        ("GPU_REDUCE_EMULATOR_ALLOW", " src/scan.cu:42; kernels::compact;"),
    ] {
        // SAFETY: no other thread of this program uses the environment.
        unsafe { std::env::set_var(name, value) };
    }
    emulator::install().unwrap();
    let settings = emulator::settings();
    assert_eq!((settings.devices, settings.peer_access), (1000, false));
    assert_eq!(settings.allow, [Allow::line("src/scan.cu", 42), Allow::kernel("kernels::compact")]);
    let mut number = -1;
    // SAFETY: pointers are to variables of the right type.
    unsafe {
        assert_eq!(cuInit(0), CUDA_SUCCESS);
        assert_eq!((cuDeviceGetCount(&mut number), number), (CUDA_SUCCESS, 64));
        assert_eq!((cuDeviceCanAccessPeer(&mut number, 0, 63), number), (CUDA_SUCCESS, 0));
        let uuids: HashSet<_> = (0..64)
            .map(|device| {
                let mut uuid = CUuuid { bytes: [0; 16] };
                assert_eq!(cuDeviceGetUuid_v2(&mut uuid, device), CUDA_SUCCESS);
                uuid.bytes
            })
            .collect();
        assert_eq!(uuids.len(), 64);
        assert_eq!(cuDeviceGet(&mut number, 64), CUDA_ERROR_INVALID_DEVICE);
    }
}
