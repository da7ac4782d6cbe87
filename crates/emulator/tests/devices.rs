//! Several devices: their contexts, memory and peer access, copies between them, and races across them.
//!
//! The codes are those of CUDA's documentation; none was checked on GPUs.

mod side;

use cust::sys::cudaError_enum::*;
use cust::sys::*;
use emulator::fault::{Action, FaultKind, Work};
use side::{BLOCKING, LOAD_LINE, NON_BLOCKING, Side, fault, ok, record, synchronize, wait};
use std::collections::HashSet;
use std::ffi::{CStr, c_void};
use std::ptr::{null_mut, without_provenance_mut as handle};
use std::sync::MutexGuard;

/// Runs a test alone, with three devices.
fn alone() -> MutexGuard<'static, ()> {
    side::alone(emulator::Settings { devices: 3, ..emulator::settings() })
}

#[test]
fn devices_differ_in_what_tells_them_apart() {
    let _alone = alone();
    // Too late: the driver has already read the number of devices.
    emulator::set_settings(emulator::Settings { devices: 1, ..emulator::settings() });
    let (mut number, mut bytes) = (0, 0);
    let (mut uuids, mut buses, mut ids) = (HashSet::new(), HashSet::new(), HashSet::new());
    // SAFETY: pointers are to variables of the right type, and texts end in a zero.
    unsafe {
        assert_eq!((cuDeviceGetCount(&mut number), number), (CUDA_SUCCESS, 3));
        for device in 0..3 {
            assert_eq!((cuDeviceGet(&mut number, device), number), (CUDA_SUCCESS, device));
            let mut name = [1; 32];
            ok(cuDeviceGetName(name.as_mut_ptr(), 32, device));
            assert_eq!(CStr::from_ptr(name.as_ptr()), c"PTX emulator");
            let mut uuid = CUuuid { bytes: [0; 16] };
            ok(cuDeviceGetUuid(&mut uuid, device));
            uuids.insert(uuid.bytes);
            let attribute = CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
            ok(cuDeviceGetAttribute(&mut number, attribute, device));
            buses.insert(number);
            let mut id = [1; 16];
            ok(cuDeviceGetPCIBusId(id.as_mut_ptr(), 16, device));
            assert_eq!((cuDeviceGetByPCIBusId(&mut number, id.as_ptr()), number), (CUDA_SUCCESS, device));
            ids.insert(id);
            assert_eq!((cuDeviceTotalMem_v2(&mut bytes, device), bytes), (CUDA_SUCCESS, 16 << 30));
        }
        assert_eq!((uuids.len(), buses.len(), ids.len()), (3, 3, 3));
        for wrong in [-1, 3, i32::MAX] {
            assert_eq!(cuDeviceGet(&mut number, wrong), CUDA_ERROR_INVALID_DEVICE);
            assert_eq!(cuDeviceTotalMem_v2(&mut bytes, wrong), CUDA_ERROR_INVALID_DEVICE);
            assert_eq!(cuDeviceCanAccessPeer(&mut number, 0, wrong), CUDA_ERROR_INVALID_DEVICE);
            assert_eq!(cuDevicePrimaryCtxRetain(&mut null_mut(), wrong), CUDA_ERROR_INVALID_DEVICE);
        }
        // With or without the domain or the function.
        for (id, device) in [(c"0000:02:00.0", 1), (c"0:3:0", 2), (c"01:00.0", 0)] {
            assert_eq!((cuDeviceGetByPCIBusId(&mut number, id.as_ptr()), number), (CUDA_SUCCESS, device));
        }
        for id in [c"0000:04:00.0", c"0000:00:00.0", c"0001:01:00.0", c"0000:01:00.1", c"01:02.0"] {
            assert_eq!(cuDeviceGetByPCIBusId(&mut number, id.as_ptr()), CUDA_ERROR_INVALID_DEVICE, "{id:?}");
        }
        for id in [c"", c"1", c"01:00", c"a:b:c:d.e", c"x:01:00.0", c"0000:01:00.0.0"] {
            assert_eq!(cuDeviceGetByPCIBusId(&mut number, id.as_ptr()), CUDA_ERROR_INVALID_VALUE, "{id:?}");
        }
    }
}

#[test]
fn each_device_has_its_contexts() {
    let _alone = alone();
    let sides = [0, 1, 2].map(|device| Side::new(device, BLOCKING));
    let (mut context, mut number, mut flags) = (null_mut(), 0, 0);
    // SAFETY: pointers are to variables of the right type; handles are looked up.
    unsafe {
        let mut device = || (cuCtxGetDevice(&mut number), number);
        for side in &sides {
            side.enter();
            assert_eq!(device(), (CUDA_SUCCESS, side.device));
            assert_eq!((cuStreamGetCtx(side.stream, &mut context), context), (CUDA_SUCCESS, side.context));
            assert_eq!((cuStreamGetCtx(null_mut(), &mut context), context), (CUDA_SUCCESS, side.context));
            ok(cuCtxCreate_v2(&mut context, 0, side.device));
            assert!(sides.iter().all(|side| side.context != context));
            assert_eq!(device(), (CUDA_SUCCESS, side.device));
            // A stream keeps its own context.
            let mut of = null_mut();
            assert_eq!((cuStreamGetCtx(side.stream, &mut of), of), (CUDA_SUCCESS, side.context));
            ok(cuCtxPushCurrent_v2(sides[2].context));
            assert_eq!(device(), (CUDA_SUCCESS, 2));
            assert_eq!((cuCtxPopCurrent_v2(&mut of), of), (CUDA_SUCCESS, sides[2].context));
            assert_eq!(device(), (CUDA_SUCCESS, side.device));
            ok(cuCtxDestroy_v2(context));
        }
        ok(cuDevicePrimaryCtxSetFlags_v2(1, 4));
        for (device, expected) in [(0, 0), (1, 4), (2, 0)] {
            ok(cuDevicePrimaryCtxGetState(device, &mut flags, &mut number));
            assert_eq!((flags, number), (expected, 1));
        }
        // Resetting one context does not change the others.
        let a = sides[0].memory(1, 5);
        ok(cuDevicePrimaryCtxReset_v2(1));
        assert_eq!(sides[0].word(a), 5);
        ok(cuCtxSetCurrent(sides[1].context));
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        assert_eq!(cuStreamSynchronize(sides[1].stream), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuCtxDestroy_v2(sides[2].context), CUDA_ERROR_INVALID_CONTEXT);
    }
}

#[test]
fn each_device_has_its_own_memory() {
    let _alone = alone();
    let sides = [Side::new(0, BLOCKING), Side::new(1, BLOCKING)];
    const PART: usize = 1 << 20;
    let (mut free, mut total, mut address) = (0, 0, 0);
    // SAFETY: pointers are to variables of the right type; the memory is not used.
    unsafe {
        let mut information = |side: &Side| {
            side.enter();
            ok(cuMemGetInfo_v2(&mut free, &mut total));
            assert_eq!(total, 16 << 30);
            free
        };
        let before = [0, 1].map(|device| information(&sides[device]));
        sides[0].enter();
        ok(cuMemAlloc_v2(&mut address, PART));
        assert_eq!([0, 1].map(|device| information(&sides[device])), [before[0] - PART, before[1]]);
        // One byte too many; the other device's free memory does not help.
        let mut much = 0;
        assert_eq!(cuMemAlloc_v2(&mut much, before[1] + 1), CUDA_ERROR_OUT_OF_MEMORY);
        sides[0].enter();
        assert_eq!(cuMemAlloc_v2(&mut much, before[0] - PART + 1), CUDA_ERROR_OUT_OF_MEMORY);
        // Freed memory returns to its own device, whichever context is current.
        sides[1].enter();
        ok(cuMemFree_v2(address));
        assert_eq!([0, 1].map(|device| information(&sides[device])), before);
    }
}

#[test]
fn peer_access_has_its_codes() {
    let _alone = alone();
    let (a, b) = (Side::new(0, BLOCKING), Side::new(1, BLOCKING));
    let mut number = -1;
    use CUdevice_P2PAttribute_enum::*;
    // SAFETY: pointers are to variables of the right type; handles are looked up.
    unsafe {
        for (peer, can) in [(0, 0), (1, 1), (2, 1)] {
            assert_eq!((cuDeviceCanAccessPeer(&mut number, 0, peer), number), (CUDA_SUCCESS, can));
        }
        assert_eq!(cuDeviceCanAccessPeer(null_mut(), 0, 1), CUDA_ERROR_INVALID_VALUE);
        for (attribute, value) in [
            (CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1),
            (CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 1),
            (CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0),
        ] {
            let mut get =
                |device, peer| (cuDeviceGetP2PAttribute(&mut number, attribute, device, peer), number);
            assert_eq!(get(0, 2), (CUDA_SUCCESS, value));
            assert_eq!(get(2, 2).0, CUDA_ERROR_INVALID_DEVICE);
            assert_eq!(get(3, 0).0, CUDA_ERROR_INVALID_DEVICE);
        }

        assert_eq!(a.disable(&b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        assert_eq!(a.enable(&b), CUDA_SUCCESS);
        assert_eq!(a.enable(&b), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        // Access is enabled in one direction only.
        assert_eq!(b.disable(&a), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        assert_eq!(a.disable(&b), CUDA_SUCCESS);
        assert_eq!(a.disable(&b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);

        assert_eq!(a.enable(&a), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxEnablePeerAccess(null_mut(), 0), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxEnablePeerAccess(handle(0x5000), 0), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxEnablePeerAccess(b.context, 1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuCtxDisablePeerAccess(handle(0x5000)), CUDA_ERROR_INVALID_CONTEXT);
        // A context of the same device cannot be a peer.
        let mut own = null_mut();
        ok(cuCtxCreate_v2(&mut own, 0, 0));
        ok(cuCtxPopCurrent_v2(null_mut()));
        assert_eq!(cuCtxEnablePeerAccess(own, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        ok(cuCtxDestroy_v2(own));
        ok(cuCtxSetCurrent(null_mut()));
        assert_eq!(cuCtxEnablePeerAccess(b.context, 0), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cuCtxDisablePeerAccess(b.context), CUDA_ERROR_INVALID_CONTEXT);

        // Access ends with the peer's context.
        assert_eq!(a.enable(&b), CUDA_SUCCESS);
        ok(cuDevicePrimaryCtxReset_v2(1));
        assert_eq!(a.disable(&b), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        let b = Side::new(1, BLOCKING);
        assert_eq!(a.disable(&b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        ok(cuDevicePrimaryCtxRelease_v2(1));
    }
}

#[test]
fn kernels_reach_a_peers_memory_where_access_is_enabled() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    let (mine, other) = (a.memory(1, 1), b.memory(4, 2));

    ok(a.launch(c"copy", a.stream, &[other + 8, mine]));
    // SAFETY: handles are looked up.
    assert_eq!(unsafe { cuStreamSynchronize(a.stream) }, CUDA_ERROR_ILLEGAL_ADDRESS);
    // The other device's context is not stopped.
    assert_eq!(b.word(other), 2);
    let faults = emulator::take_faults();
    let FaultKind::PeerAccess { access, device: 0, owner: 1 } = &faults[0].kind else { panic!("{faults:?}") };
    assert_eq!((access.action, access.address, access.place.line), (Action::Read, other + 8, LOAD_LINE));
    let text = faults[0].to_string();
    assert!(text.contains("in the memory of device 1, to which device 0 has no peer access"), "{text}");
    assert_eq!(a.word(mine), 1);

    // In the other direction: to a module's variable, and to memory allocated after access was enabled.
    assert_eq!(b.enable(&a), CUDA_SUCCESS);
    let (mut variable, later) = (0, a.memory(1, 9));
    // SAFETY: pointers are to variables of the right type.
    unsafe { ok(cuModuleGetGlobal_v2(&mut variable, null_mut(), a.module, c"variable".as_ptr())) };
    ok(b.launch(c"copy", b.stream, &[variable, later]));
    assert_eq!(b.word(later), 7);
    ok(a.launch(c"store", a.stream, &[other, 3]));
    assert!(fault().contains("write of 4 bytes"));

    assert_eq!(a.enable(&b), CUDA_SUCCESS);
    ok(a.launch(c"copy", a.stream, &[other, mine]));
    assert_eq!(a.word(mine), 2);
    ok(a.launch(c"add_system", a.stream, &[other]));
    assert_eq!(a.word(other), 3);
    assert_eq!(a.disable(&b), CUDA_SUCCESS);
    ok(a.launch(c"add_system", a.stream, &[other]));
    assert!(fault().contains("no peer access"));
    // Past the end of a peer's allocation.
    assert_eq!(a.enable(&b), CUDA_SUCCESS);
    ok(a.launch(c"copy", a.stream, &[other + 16, mine]));
    assert!(fault().contains("out of bounds"));
}

#[test]
fn pinned_and_managed_memory_is_reached_by_all() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    let mut own = vec![0u32; 4];
    let own: *mut c_void = own.as_mut_ptr().cast();
    let (mut pinned, mut portable, mut managed) = (null_mut(), null_mut(), 0);
    // SAFETY: pointers are to variables of the right type; `own` lives while it is registered.
    unsafe {
        ok(cuMemAllocHost_v2(&mut pinned, 4));
        ok(cuMemHostAlloc(&mut portable, 4, 1));
        ok(cuMemAllocManaged(&mut managed, 4, 1));
        ok(cuMemHostRegister_v2(own, 16, 1));
        for address in [pinned.addr() as u64, portable.addr() as u64, managed, own.addr() as u64] {
            ok(a.launch(c"store", a.stream, &[address, 5]));
            synchronize(a.stream);
            ok(b.launch(c"add_device", b.stream, &[address]));
            assert_eq!(b.word(address), 6);
        }
        ok(cuMemHostUnregister(own));
    }
    assert_eq!(emulator::take_faults(), []);
}

#[test]
fn copies_between_devices_need_no_peer_access() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    let (from, to) = (a.memory(4, 1), b.memory(4, 0));
    let check = |value: u32| {
        assert_eq!((b.word(to), b.word(to + 12)), (value, value));
        b.enter();
        // SAFETY: no host memory is used.
        unsafe {
            ok(cuMemsetD32_v2(to, 0, 4));
            ok(cuMemsetD32_v2(from, value + 1, 4));
            ok(cuCtxSynchronize());
        }
    };
    let mut pinned = null_mut();
    // SAFETY: pointers are to variables of the right type; no other host memory is used.
    unsafe {
        ok(cuMemcpy(to, from, 16));
        check(1);
        ok(cuMemcpyDtoD_v2(to, from, 16));
        check(2);
        ok(cuMemcpyAsync(to, from, 16, b.stream));
        check(3);
        a.enter();
        ok(cuMemcpyDtoDAsync_v2(to, from, 16, a.stream));
        synchronize(a.stream);
        check(4);
        ok(cuMemcpyPeer(to, b.context, from, a.context, 16));
        check(5);
        ok(cuMemcpyPeerAsync(to, b.context, from, a.context, 16, b.stream));
        check(6);
        ok(cuMemcpyPeerAsync(to, b.context, from, a.context, 16, a.stream));
        synchronize(a.stream);
        check(7);
        // Within one device, and to pinned memory.
        ok(cuMemcpyPeer(to, b.context, to + 8, b.context, 8));
        ok(cuMemAllocHost_v2(&mut pinned, 16));
        ok(cuMemcpyPeer(pinned.addr() as u64, b.context, from, a.context, 16));
        ok(cuCtxSynchronize());
        assert_eq!(pinned.cast::<u32>().read(), 8);

        let copy = |to: (u64, CUcontext), from: (u64, CUcontext), bytes| {
            let code = cuMemcpyPeer(to.0, to.1, from.0, from.1, bytes);
            assert_eq!(cuMemcpyPeerAsync(to.0, to.1, from.0, from.1, bytes, b.stream), code);
            code
        };
        let (here, there) = ((from, a.context), (to, b.context));
        assert_eq!(copy(there, here, 17), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(copy((0, b.context), here, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(copy(there, (0, a.context), 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(copy((to, a.context), here, 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(copy(there, (from, b.context), 4), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(copy((to, null_mut()), here, 4), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(copy(there, (from, handle(0x5000)), 4), CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(copy(there, here, 0), CUDA_SUCCESS);
        let wrong = cuMemcpyPeerAsync(to, b.context, from, a.context, 4, handle(0x5000));
        assert_eq!(wrong, CUDA_ERROR_INVALID_HANDLE);
        ok(cuCtxSetCurrent(null_mut()));
        assert_eq!(cuMemcpyPeer(to, b.context, from, a.context, 4), CUDA_ERROR_INVALID_CONTEXT);
        // No context is current; the stream has its own.
        ok(cuMemcpyPeerAsync(to, b.context, from, a.context, 4, b.stream));
    }
    assert_eq!(emulator::take_faults(), []);
}

#[test]
fn an_address_tells_its_device_and_context() {
    let _alone = alone();
    let (a, b) = (Side::new(0, BLOCKING), Side::new(1, BLOCKING));
    use CUpointer_attribute_enum::*;
    let (mut own, mut managed, mut variable, mut pinned) = (null_mut(), 0, 0, null_mut());
    // SAFETY: pointers are to variables of the right type.
    unsafe {
        let (first, second) = (a.memory(4, 0), b.memory(4, 0));
        ok(cuMemAllocHost_v2(&mut pinned, 16));
        ok(cuMemAllocManaged(&mut managed, 16, 1));
        ok(cuModuleGetGlobal_v2(&mut variable, null_mut(), b.module, c"variable".as_ptr()));
        ok(cuCtxCreate_v2(&mut own, 0, 1));
        let mut of_own = 0;
        ok(cuMemAlloc_v2(&mut of_own, 16));
        a.enter();
        for (address, context, device) in [
            (first, a.context, 0),
            (second + 15, b.context, 1),
            (pinned.addr() as u64, b.context, 1),
            (managed, b.context, 1),
            (variable, b.context, 1),
            (of_own, own, 1),
        ] {
            let (mut found, mut number) = (null_mut::<c_void>(), -1i32);
            ok(cuPointerGetAttribute((&raw mut found).cast(), CU_POINTER_ATTRIBUTE_CONTEXT, address));
            ok(cuPointerGetAttribute((&raw mut number).cast(), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
            assert_eq!((found, number), (context.cast(), device));
            let (mut found, mut number) = (null_mut::<c_void>(), -1i32);
            let mut attributes = [CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL];
            let mut data = [(&raw mut found).cast(), (&raw mut number).cast()];
            ok(cuPointerGetAttributes(2, attributes.as_mut_ptr(), data.as_mut_ptr(), address));
            assert_eq!((found, number), (context.cast(), device));
        }
        // Kernels of the current context have no address for the memory without peer access.
        let mut pointer = 0u64;
        let mut device_pointer = |address| {
            let attribute = CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
            (cuPointerGetAttribute((&raw mut pointer).cast(), attribute, address), pointer)
        };
        assert_eq!(device_pointer(first), (CUDA_SUCCESS, first));
        assert_eq!(device_pointer(second).0, CUDA_ERROR_INVALID_VALUE);
        assert_eq!(device_pointer(managed), (CUDA_SUCCESS, managed));
        ok(a.enable(&b));
        assert_eq!(device_pointer(second), (CUDA_SUCCESS, second));
        assert_eq!(device_pointer(of_own).0, CUDA_ERROR_INVALID_VALUE);
        ok(cuCtxDestroy_v2(own));
        assert_eq!(cuMemPrefetchAsync(managed, 16, 2, null_mut()), CUDA_SUCCESS);
        assert_eq!(cuMemPrefetchAsync(managed, 16, -1, null_mut()), CUDA_SUCCESS);
        assert_eq!(cuMemPrefetchAsync(managed, 16, 3, null_mut()), CUDA_ERROR_INVALID_DEVICE);
    }
}

#[test]
fn streams_events_and_functions_keep_to_their_context() {
    let _alone = alone();
    let (a, b) = (Side::new(0, BLOCKING), Side::new(1, BLOCKING));
    let (mine, other) = (a.memory(1, 1), b.memory(1, 1));
    let mut time = 0.0;
    // SAFETY: pointers are to variables of the right type; handles are looked up.
    unsafe {
        assert_eq!(a.launch(c"store", b.stream, &[mine, 2]), CUDA_ERROR_INVALID_HANDLE);
        b.enter();
        assert_eq!(a.launch(c"store", null_mut(), &[mine, 2]), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuEventRecord(a.event, b.stream), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuEventRecord(a.event, null_mut()), CUDA_ERROR_INVALID_HANDLE);
        // Streams and events work whichever context is current.
        ok(a.launch(c"store", a.stream, &[mine, 3]));
        record(a.event, a.stream);
        wait(b.stream, a.event);
        record(b.event, b.stream);
        ok(cuEventSynchronize(a.event));
        assert_eq!(cuEventElapsedTime(&mut time, a.event, b.event), CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(cuEventElapsedTime(&mut time, b.event, b.event), CUDA_SUCCESS);
        assert_eq!((a.word(mine), b.word(other)), (3, 1));
    }
}

#[test]
fn threads_use_a_device_each() {
    let _alone = alone();
    std::thread::scope(|scope| {
        for device in 0..3 {
            scope.spawn(move || {
                let side = Side::new(device, NON_BLOCKING);
                let (from, to) = (side.memory(64, 0), side.memory(64, 0));
                for round in 0..50 {
                    ok(side.launch(c"store", side.stream, &[from, round]));
                    ok(side.launch(c"copy", side.stream, &[from, to]));
                    let mut number = -1;
                    // SAFETY: the pointer is to a variable of the right type.
                    assert_eq!((unsafe { cuCtxGetDevice(&mut number) }, number), (CUDA_SUCCESS, device));
                    assert_eq!(u64::from(side.word(to)), round);
                }
            });
        }
    });
    assert_eq!(emulator::take_faults(), []);
}

/// What the host does between the work of two devices.
type Between = fn(&Side, &Side);

/// Launches `first` on one device, calls `order`, launches `second` on the other; returns the fault, if there
/// is one.
fn between(
    [a, b]: [&Side; 2],
    first: (&CStr, &[u64]),
    second: (&CStr, &[u64]),
    order: Between,
) -> Option<emulator::Fault> {
    ok(a.launch(first.0, a.stream, first.1));
    order(a, b);
    ok(b.launch(second.0, b.stream, second.1));
    let faults = emulator::take_faults();
    assert!(faults.len() < 2, "{faults:?}");
    a.synchronize();
    b.synchronize();
    faults.into_iter().next()
}

fn nothing(_: &Side, _: &Side) {}

#[test]
fn a_race_across_devices_is_found_and_names_both() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    ok(a.enable(&b));
    let (mine, other) = (a.memory(64, 1), b.memory(64, 2));
    let race =
        between([&a, &b], (c"copy", &[other + 4, mine]), (c"store", &[other + 4, 3]), nothing).unwrap();
    assert_eq!((race.kernel.as_str(), race.code()), ("store", 719));
    let FaultKind::DeviceRace { first, second } = &race.kind else { panic!("{race}") };
    assert_eq!((&first.work, first.device), (&Work::Kernel("copy".into()), 0));
    assert_eq!((first.action, first.address, first.bytes), (Action::Read, other + 4, 4));
    assert_eq!(first.place.as_ref().unwrap().line, LOAD_LINE);
    assert_eq!((&second.work, second.device), (&Work::Kernel("store".into()), 1));
    assert_eq!((second.action, second.address, second.bytes), (Action::Write, other + 4, 4));
    let text = race.to_string();
    assert!(text.starts_with("data race across devices: read of 4 bytes at address 0x"), "{text}");
    assert!(text.contains("by kernel copy of device 0, PTX line 13; and write of 4 bytes"), "{text}");

    // No race: different bytes, or only reads.
    assert_eq!(between([&a, &b], (c"copy", &[other, mine]), (c"store", &[other + 4, 3]), nothing), None);
    assert_eq!(between([&a, &b], (c"copy", &[other, mine]), (c"copy", &[other, other + 8]), nothing), None);

    // A race stops the second kernel's context only.
    ok(a.launch(c"store", a.stream, &[other, 3]));
    ok(b.launch(c"store", b.stream, &[other, 3]));
    assert_eq!(emulator::last_counters(), None);
    // SAFETY: handles are looked up.
    unsafe {
        synchronize(a.stream);
        assert_eq!(cuStreamSynchronize(b.stream), CUDA_ERROR_LAUNCH_FAILED);
    }
    assert!(fault().contains("write of 4 bytes"));
    assert_eq!(b.word(other), 3);

    // The accesses of many threads count as one range; the fault names the bytes that both kernels used.
    ok(a.launch_threads(c"fill", a.stream, &[other], 64));
    ok(b.launch(c"copy", b.stream, &[other + 128, other + 252]));
    let faults = emulator::take_faults();
    let FaultKind::DeviceRace { first, .. } = &faults[0].kind else { panic!("{faults:?}") };
    assert_eq!((first.address, first.bytes), (other + 128, 4));
}

#[test]
fn what_orders_two_devices_leaves_no_race() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    ok(a.enable(&b));
    let other = b.memory(4, 2);
    let ordered: [(&str, Between); 9] = [
        ("an event", |a, b| {
            record(a.event, a.stream);
            wait(b.stream, a.event);
        }),
        ("an event over another stream", |a, b| {
            record(a.event, a.stream);
            wait(b.other, a.event);
            record(b.event, b.other);
            wait(b.stream, b.event);
        }),
        ("a stream waited for", |a, _| synchronize(a.stream)),
        // SAFETY: handles are looked up.
        ("a stream asked", |a, _| ok(unsafe { cuStreamQuery(a.stream) })),
        ("a context waited for", |a, _| a.synchronize()),
        ("an event waited for", |a, _| {
            record(a.event, a.stream);
            // SAFETY: handles are looked up.
            ok(unsafe { cuEventSynchronize(a.event) });
        }),
        ("an event asked in another thread", |a, _| {
            record(a.event, a.stream);
            let event = a.event.addr();
            // SAFETY: handles are looked up.
            std::thread::spawn(move || ok(unsafe { cuEventQuery(handle(event)) })).join().unwrap();
        }),
        ("a host function", |a, _| {
            extern "C" fn nothing(_: *mut c_void) {}
            // SAFETY: the function takes anything.
            ok(unsafe { cuLaunchHostFunc(a.stream, Some(nothing), null_mut()) });
        }),
        ("a callback", |a, _| {
            unsafe extern "C" fn nothing(_: CUstream, _: CUresult, _: *mut c_void) {}
            // SAFETY: the function takes anything.
            ok(unsafe { cuStreamAddCallback(a.stream, Some(nothing), null_mut(), 0) });
        }),
    ];
    let unordered: [(&str, Between); 7] = [
        ("nothing", nothing),
        ("an event of another stream", |a, b| {
            record(a.event, a.other);
            wait(b.stream, a.event);
        }),
        ("an event in another stream", |a, b| {
            record(a.event, a.stream);
            wait(b.other, a.event);
        }),
        ("an event recorded again", |a, b| {
            record(a.event, a.stream);
            record(a.event, a.other);
            wait(b.stream, a.event);
        }),
        ("another stream waited for", |a, _| synchronize(a.other)),
        ("the other context waited for", |_, b| b.synchronize()),
        ("the legacy stream, which such streams do not wait for", |a, _| {
            a.enter();
            synchronize(null_mut());
        }),
    ];
    let ordered = ordered.map(|(what, order)| (what, order, true));
    let unordered = unordered.map(|(what, order)| (what, order, false));
    for (what, order, ordered) in ordered.into_iter().chain(unordered) {
        for (first, second) in [(c"store", c"store"), (c"store", c"copy"), (c"copy", c"store")] {
            let arguments =
                |name: &CStr, spare: u64| if name == c"copy" { [other, spare] } else { [other, 1] };
            let (one, two) = (arguments(first, other + 4), arguments(second, other + 8));
            let race = between([&a, &b], (first, &one), (second, &two), order);
            assert_eq!(race.is_none(), ordered, "{what}: {first:?}, {second:?}: {race:?}");
        }
    }
}

#[test]
fn the_legacy_stream_orders_blocking_streams() {
    let _alone = alone();
    let (a, b) = (Side::new(0, BLOCKING), Side::new(1, BLOCKING));
    ok(a.enable(&b));
    let (mine, other) = (a.memory(1, 0), b.memory(4, 2));
    // SAFETY: handles are looked up; no host memory is used.
    unsafe {
        // a's legacy stream waits for `a.stream` and records the event; `b.stream` waits for b's legacy
        // stream.
        ok(a.launch(c"store", a.stream, &[other, 1]));
        a.enter();
        record(a.event, null_mut());
        b.enter();
        wait(null_mut(), a.event);
        ok(b.launch(c"store", b.stream, &[other, 2]));
        assert_eq!(emulator::take_faults(), []);

        // The host waits for a copy to the host, and so for all that the legacy stream has waited for.
        ok(a.launch(c"store", a.stream, &[other, 1]));
        assert!(fault().contains("race across devices"));
        synchronize(b.stream);
        ok(a.launch(c"store", a.stream, &[other, 1]));
        a.enter();
        let mut word = 0u32;
        ok(cuMemcpyDtoH_v2((&raw mut word).cast(), mine, 4));
        ok(b.launch(c"store", b.stream, &[other, 2]));
        assert_eq!(emulator::take_faults(), []);

        // The host waits neither for a copy between devices nor for a memset.
        synchronize(b.stream);
        ok(a.launch(c"store", a.stream, &[other, 1]));
        ok(cuMemcpyDtoD_v2(mine, other + 4, 4));
        ok(cuMemsetD32_v2(mine, 0, 1));
        ok(b.launch(c"store", b.stream, &[other, 2]));
        assert!(fault().contains("race across devices"));

        // A copy between contexts waits for all work of both; their later work waits for it.
        synchronize(b.stream);
        ok(a.launch(c"store", a.stream, &[other, 1]));
        ok(cuMemcpyPeer(mine, a.context, other + 4, b.context, 4));
        ok(b.launch(c"store", b.other, &[other, 2]));
        assert_eq!(emulator::take_faults(), []);
    }
}

#[test]
fn copies_and_memsets_race_too() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    let (mine, other) = (a.memory(4, 1), b.memory(4, 2));
    let mut pinned = null_mut();
    // SAFETY: pointers are to variables of the right type; no other host memory is used.
    unsafe {
        ok(b.launch(c"store", b.stream, &[other, 3]));
        ok(cuMemcpyPeerAsync(mine, a.context, other, b.context, 16, a.stream));
        assert_eq!(cuStreamSynchronize(a.stream), CUDA_ERROR_LAUNCH_FAILED);
        let faults = emulator::take_faults();
        let FaultKind::DeviceRace { first, second } = &faults[0].kind else { panic!("{faults:?}") };
        assert_eq!(
            (&first.work, first.action, first.bytes),
            (&Work::Kernel("store".into()), Action::Write, 4)
        );
        assert_eq!((&second.work, second.action, second.place.clone()), (&Work::Copy, Action::Read, None));
        assert_eq!(faults[0].kernel, "");

        synchronize(a.stream);
        synchronize(b.stream);
        ok(cuMemsetD32Async(other, 5, 4, a.stream));
        ok(b.launch(c"copy", b.stream, &[other, other + 4]));
        assert!(fault().contains("write of 4 bytes at address"));
        synchronize(a.stream);
        synchronize(b.stream);

        // Both devices copy to the same host memory; then each to its own.
        ok(cuMemAllocHost_v2(&mut pinned, 8));
        ok(cuMemcpyDtoHAsync_v2(pinned, mine, 4, a.stream));
        ok(cuMemcpyDtoHAsync_v2(pinned, other, 4, b.stream));
        assert!(fault().contains("by a copy of device 0; and write of 4 bytes"));
        synchronize(a.stream);
        synchronize(b.stream);
        ok(cuMemcpyDtoHAsync_v2(pinned, mine, 4, a.stream));
        ok(cuMemcpyDtoHAsync_v2(pinned.byte_add(4), other, 4, b.stream));
        assert_eq!(emulator::take_faults(), []);
        // The host waits for a copy to memory that is not pinned.
        let mut word = 0u32;
        ok(a.launch(c"store", a.stream, &[mine, 3]));
        ok(cuMemcpyDtoHAsync_v2((&raw mut word).cast(), mine + 4, 4, a.stream));
        ok(cuMemcpyPeerAsync(other, b.context, mine, a.context, 4, b.stream));
        assert_eq!(emulator::take_faults(), []);

        // With the checks off, races are not looked for.
        let settings = emulator::settings();
        emulator::set_settings(emulator::Settings { checks: false, ..settings.clone() });
        ok(cuMemsetD32Async(other, 5, 4, a.stream));
        ok(cuMemsetD32Async(other, 6, 4, b.stream));
        assert_eq!(emulator::take_faults(), []);
        emulator::set_settings(settings);
    }
}

/// Launches a kernel in each of two streams of a device, with `order` between them. Returns the fault.
fn in_two_streams(
    side: &Side,
    first: (&CStr, &[u64]),
    second: (&CStr, &[u64]),
    order: fn(&Side),
) -> Option<emulator::Fault> {
    ok(side.launch(first.0, side.stream, first.1));
    order(side);
    ok(side.launch(second.0, side.other, second.1));
    let faults = emulator::take_faults();
    assert!(faults.len() < 2, "{faults:?}");
    side.synchronize();
    faults.into_iter().next()
}

#[test]
fn streams_of_one_device_race_too() {
    let _alone = alone();
    let side = Side::new(0, NON_BLOCKING);
    let at = side.memory(8, 1);
    let store: (&CStr, &[u64]) = (c"store", &[at, 3]);
    let race = in_two_streams(&side, (c"copy", &[at, at + 16]), store, |_| {}).unwrap();
    assert_eq!((race.kernel.as_str(), race.code()), ("store", 719));
    let FaultKind::StreamRace { first, second } = &race.kind else { panic!("{race}") };
    assert_eq!((&first.work, first.device, first.action), (&Work::Kernel("copy".into()), 0, Action::Read));
    assert_eq!(
        (&second.work, second.device, second.action),
        (&Work::Kernel("store".into()), 0, Action::Write)
    );
    assert_eq!((first.address, first.place.as_ref().unwrap().line), (at, LOAD_LINE));
    assert!(race.to_string().starts_with("data race between streams: read of 4 bytes"), "{race}");

    let waits = |side: &Side| {
        record(side.event, side.stream);
        wait(side.other, side.event);
    };
    assert_eq!(in_two_streams(&side, store, store, waits), None);
    assert_eq!(in_two_streams(&side, store, store, |side| synchronize(side.stream)), None);
    assert!(in_two_streams(&side, store, store, |side| synchronize(side.other)).is_some());
    // Other bytes, reads only, and atomic operations of the device's scope.
    assert_eq!(in_two_streams(&side, store, (c"store", &[at + 4, 3]), |_| {}), None);
    let copy = |to: u64| [at, at + to];
    assert_eq!(in_two_streams(&side, (c"copy", &copy(4)), (c"copy", &copy(8)), |_| {}), None);
    assert_eq!(in_two_streams(&side, (c"add_device", &[at]), (c"add_device", &[at]), |_| {}), None);
    assert_eq!(in_two_streams(&side, (c"add_device", &[at]), (c"add_system", &[at]), |_| {}), None);
    assert!(in_two_streams(&side, (c"add_device", &[at]), store, |_| {}).is_some());
    // A release that an acquire sees.
    let (release, acquire) = ([at, at + 4], [at, at + 4, at + 8]);
    assert_eq!(in_two_streams(&side, (c"release", &release), (c"acquire", &acquire), |_| {}), None);

    // The author allows the kernel.
    let settings = emulator::settings();
    let allow = vec![emulator::Allow::kernel("store")];
    emulator::set_settings(emulator::Settings { allow, ..settings.clone() });
    assert_eq!(in_two_streams(&side, store, store, |_| {}), None);
    emulator::set_settings(settings);
}

#[test]
fn copies_and_memsets_of_two_streams_race() {
    let _alone = alone();
    let found = || {
        let faults = emulator::take_faults();
        assert!(faults.len() < 2, "{faults:?}");
        faults.first().is_some_and(|fault| matches!(fault.kind, FaultKind::StreamRace { .. }))
    };
    for (flags, races) in [(NON_BLOCKING, true), (BLOCKING, false)] {
        let side = Side::new(0, flags);
        let at = side.memory(8, 1);
        let (mut word, mut pinned) = (0u32, null_mut());
        // SAFETY: pointers are to variables of the right type; no other host memory is used.
        unsafe {
            ok(cuMemAllocHost_v2(&mut pinned, 8));
            let pinned_address = pinned.addr() as u64;
            // The legacy stream waits for blocking streams only.
            ok(side.launch(c"store", side.stream, &[at, 2]));
            ok(cuMemsetD32_v2(at, 0, 1));
            assert_eq!(found(), races);
            side.synchronize();
            ok(side.launch(c"store", side.stream, &[at, 2]));
            let copied = cuMemcpyDtoH_v2((&raw mut word).cast(), at, 4);
            assert_eq!((copied, found()), (CUDA_SUCCESS, races));
            side.synchronize();
            ok(cuMemsetD32_v2(at, 0, 1));
            ok(side.launch(c"store", side.stream, &[at, 2]));
            assert_eq!(found(), races);
            side.synchronize();
            // The host waits for a copy from its memory.
            ok(cuMemcpyHtoD_v2(at, (&raw const word).cast(), 4));
            ok(side.launch(c"store", side.stream, &[at, 2]));
            assert!(!found());
            side.synchronize();

            // Two other streams, whatever they are.
            ok(side.launch(c"store", side.stream, &[at, 2]));
            ok(cuMemcpyDtoDAsync_v2(at + 8, at, 4, side.other));
            assert!(found());
            side.synchronize();
            ok(cuMemcpyDtoHAsync_v2(pinned, at, 4, side.stream));
            ok(side.launch(c"copy", side.other, &[pinned_address, at + 8]));
            assert!(found());
            side.synchronize();
            ok(cuMemcpyDtoHAsync_v2(pinned, at, 4, side.stream));
            record(side.event, side.stream);
            wait(side.other, side.event);
            ok(side.launch(c"copy", side.other, &[pinned_address, at + 8]));
            ok(cuMemcpyDtoDAsync_v2(at + 12, at, 4, side.stream));
            assert!(!found());
            side.synchronize();

            // A stream may be destroyed before its work is over.
            let mut stream = null_mut();
            for waits in [false, true] {
                ok(cuStreamCreate(&mut stream, NON_BLOCKING));
                ok(cuMemsetD32Async(at, 0, 1, stream));
                if waits {
                    synchronize(stream);
                }
                ok(cuStreamDestroy_v2(stream));
                ok(cuStreamCreate(&mut stream, NON_BLOCKING));
                ok(cuMemsetD32Async(at, 0, 1, stream));
                assert_eq!(found(), !waits);
                ok(cuStreamDestroy_v2(stream));
                side.synchronize();
            }
        }
    }
}

#[test]
fn a_copy_to_the_host_of_what_nothing_wrote_is_found() {
    let _alone = alone();
    let side = Side::new(0, NON_BLOCKING);
    let (mut words, mut pinned) = ([0u32; 4], null_mut());
    let mut at = [0; 2];
    side.enter();
    // SAFETY: pointers are to variables of the right type; no other host memory is used.
    unsafe {
        ok(cuMemAllocHost_v2(&mut pinned, 16));
        at.iter_mut().for_each(|at| ok(cuMemAlloc_v2(at, 16)));
        let to: *mut c_void = (&raw mut words).cast();
        let copy = |from: u64| cuMemcpyDtoH_v2(to, from, 8);
        let found = |copied: CUresult| {
            ok(copied);
            let faults = emulator::take_faults();
            assert!(faults.len() < 2, "{faults:?}");
            faults.first().is_some_and(|fault| {
                let is_unwritten = matches!(fault.kind, FaultKind::UnwrittenCopy { bytes: 8, .. });
                assert!(
                    is_unwritten && fault.to_string().starts_with("a copy to the host of memory"),
                    "{fault}"
                );
                true
            })
        };
        let [one, other] = at;
        assert!(found(copy(one)));
        assert!(found(cuMemcpyDtoHAsync_v2(pinned, one, 8, side.stream)));
        // A copy on the device stays unwritten.
        assert!(!found(cuMemcpyDtoD_v2(other, one, 16)));
        assert!(found(copy(other + 8)));
        // Of a part that is written.
        assert!(!found(cuMemsetD8_v2(one + 5, 1, 1)));
        assert!(!found(copy(one)) && found(copy(one + 8)));
        let settings = emulator::settings();
        emulator::set_settings(emulator::Settings { checks: false, ..settings.clone() });
        assert!(!found(copy(other)));
        emulator::set_settings(settings);
        // Pinned memory may have been written by the host.
        assert!(!found(copy(pinned.addr() as u64)));
    }
}

#[test]
fn atomics_of_the_systems_scope_do_not_race() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    let mut pinned = null_mut();
    // SAFETY: the pointer is to a variable of the right type.
    unsafe { ok(cuMemAllocHost_v2(&mut pinned, 16)) };
    let [data, flag, to] = [0, 4, 8].map(|offset| pinned.addr() as u64 + offset);
    let sides = [&a, &b];
    let race = |first, second| between(sides, (first, &[data, 1]), (second, &[data, 1]), nothing).is_some();
    assert!(!race(c"add_system", c"add_system"));
    assert!(race(c"add_device", c"add_device"));
    assert!(race(c"add_device", c"add_system"));
    assert!(race(c"store", c"store_volatile"));
    assert!(race(c"store", c"add_system"));
    // The host may have watched the memory, and so may have waited.
    assert!(!race(c"store_volatile", c"store"));

    // A release that an acquire sees orders the two launches.
    let release: (&CStr, &[u64]) = (c"release", &[data, flag]);
    assert_eq!(between(sides, release, (c"acquire", &[data, flag, to]), nothing), None);
    let device = b.memory(4, 0);
    ok(a.enable(&b));
    let [data, flag, to] = [0, 4, 8].map(|offset| device + offset);
    let release: (&CStr, &[u64]) = (c"release", &[data, flag]);
    assert_eq!(between(sides, release, (c"acquire", &[data, flag, to]), nothing), None);
    assert!(between(sides, release, (c"acquire", &[data, to, to]), nothing).is_some());
    assert!(between(sides, release, (c"copy", &[flag, to]), nothing).is_some());
}

#[test]
fn freed_memory_leaves_nothing_behind() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    ok(a.enable(&b));
    // The allocator usually returns the same address again.
    for _ in 0..4 {
        let mut other = 0;
        b.enter();
        // SAFETY: the pointer is to a variable of the right type; nothing uses the memory any more.
        unsafe {
            ok(cuMemAlloc_v2(&mut other, 4));
            ok(a.launch(c"store", a.stream, &[other, 1]));
            ok(cuMemFree_v2(other));
            ok(cuMemAlloc_v2(&mut other, 4));
            ok(b.launch(c"store", b.stream, &[other, 1]));
            ok(cuMemFree_v2(other));
        }
    }
    assert_eq!(emulator::take_faults(), []);
}

#[test]
fn graphs_run_on_their_device() {
    let _alone = alone();
    let (a, b) = (Side::new(0, NON_BLOCKING), Side::new(1, NON_BLOCKING));
    ok(a.enable(&b));
    let (mine, other) = (a.memory(4, 1), b.memory(4, 2));
    let (mut graph, mut executable) = (null_mut(), null_mut());
    // SAFETY: pointers are to variables of the right type; no host memory is used.
    unsafe {
        ok(cuStreamBeginCapture_v2(a.stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        ok(a.launch(c"copy", a.stream, &[other, mine]));
        ok(cuMemcpyPeerAsync(other + 4, b.context, mine, a.context, 4, a.stream));
        // Another device's stream joins the capture, and the origin waits for it.
        record(a.event, a.stream);
        wait(b.stream, a.event);
        ok(b.launch(c"copy", b.stream, &[other + 4, other + 8]));
        record(b.event, b.stream);
        wait(a.stream, b.event);
        ok(cuStreamEndCapture(a.stream, &mut graph));
        ok(cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        // Events outside the capture order the replay with other work.
        for (value, waits) in [(5, true), (6, false)] {
            ok(b.launch(c"store", b.stream, &[other, value]));
            if waits {
                record(b.event, b.stream);
                wait(a.stream, b.event);
            }
            ok(cuGraphLaunch(executable, a.stream));
            assert_eq!(emulator::take_faults().len(), usize::from(!waits));
            synchronize(a.stream);
            synchronize(b.stream);
        }
        ok(cuGraphLaunch(executable, a.stream));
        ok(cuGraphExecDestroy(executable));
        ok(cuGraphDestroy(graph));
    }
    assert_eq!([a.word(mine), a.word(other + 4), a.word(other + 8)], [6; 3]);
}
