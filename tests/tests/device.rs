//! Devices and buffers as programs use them: from several threads, and many times.

use gpu_reduce::{Buffer, Device, Reduce, Sum, View, bf16, emulator};
use support::{devices, samples};

#[test]
fn devices_and_buffers_go_to_other_threads() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Device>();
    is_send::<Buffer<f32>>();
    is_send::<View<bf16>>();
    is_sync::<Device>();
    is_sync::<Buffer<f32>>();
}

/// The emulator has the H200's bandwidth: 3,201 MHz, two transfers per period, 6,144 bits.
#[test]
fn the_peak_of_the_memory() {
    for device in devices() {
        let peak = device.peak_bandwidth();
        match device.is_emulator() {
            true => assert_eq!(peak, Some(4_916_736e6)),
            false => assert_eq!(peak > Some(1e9), !device.is_cpu(), "{device}: {peak:?}"),
        }
    }
}

#[test]
fn several_threads_use_one_device() {
    for device in devices() {
        let (len, rounds) = if device.is_emulator() { (10_000, 3) } else { (200_000, 50) };
        let data = samples(len, |hash| (hash % 1000) as f32 * 0.001);
        let shared = device.upload(&data).unwrap();
        let expected = data.reduce::<Sum, 256>().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (device, shared, data) = (device.clone(), &shared, &data);
                scope.spawn(move || {
                    for round in 0..rounds {
                        assert_eq!(shared.reduce::<Sum, 256>(), Ok(expected));
                        // One thread makes a buffer, another uses and frees it.
                        let len = 1 + thread * 1000 + round;
                        let own = device.upload(&data[..len]).unwrap();
                        let sum = std::thread::spawn(move || own.reduce::<Sum, 64>()).join().unwrap();
                        assert_eq!(sum, data[..len].reduce::<Sum, 64>());
                    }
                });
            }
        });
    }
}

#[test]
#[cfg_attr(not(part = "5"), ignore = "of part 5")]
fn a_thousand_repeats_give_one_result() {
    for device in devices() {
        let (len, repeats) = if device.is_emulator() { (30_000, 20) } else { (3_000_000, 1000) };
        let data = samples(len, |hash| (hash % 100_003) as f32 * 1e-3 - 50.0);
        let x = device.upload(&data).unwrap();
        let first = x.reduce::<Sum, 256>().unwrap();
        for _ in 0..repeats {
            assert_eq!(x.reduce::<Sum, 256>().unwrap().to_bits(), first.to_bits(), "{device}");
        }
    }
}

#[test]
fn a_repeated_reduction_allocates_clears_and_copies_nothing() {
    let Some(device) = devices().into_iter().find(Device::is_emulator) else {
        return eprintln!("skipped: the emulator counts driver calls, and a GPU takes its place");
    };
    let x = device.upload(&samples(30_000, |hash| hash as i32)).unwrap();
    let first = x.reduce::<Sum, 256>().unwrap();
    emulator::take_calls();
    for _ in 0..3 {
        assert_eq!(x.reduce::<Sum, 256>(), Ok(first));
    }
    let calls: Vec<_> = emulator::take_calls().into_iter().collect();
    assert_eq!(calls, [("cuCtxPopCurrent_v2", 3), ("cuCtxPushCurrent_v2", 3), ("cuLaunchKernel", 3)]);
}

#[test]
fn buffers_hold_what_was_written() {
    for device in devices() {
        let mut x = device.zeros::<i16>(10_000).unwrap();
        assert_eq!(x.len(), 10_000);
        assert_eq!(x.device(), device);
        assert!(x.to_vec().unwrap().iter().all(|&value| value == 0));
        x.write(9_998, &[5, -7]).unwrap();
        x.write(0, &[1]).unwrap();
        assert_eq!(gpu_reduce::sum(&x), Ok(-1));
        let tail = x.slice(9_997..).unwrap();
        assert_eq!((tail.len(), tail.to_vec().unwrap()), (3, vec![0, 5, -7]));
        assert_eq!(gpu_reduce::min(&tail), Ok(-7));
        assert_eq!(gpu_reduce::max(&tail.slice(..=1).unwrap()), Ok(5));
    }
}

/// Uploads of up to a megabyte are one copy; longer ones go in pieces, whose size grows from 256 KiB to 8
/// MiB.
#[test]
#[cfg_attr(not(part = "0"), ignore = "of part 0")]
fn uploads_arrive_whole() {
    const KIB: usize = 1 << 10;
    let data = samples(150 * KIB * KIB, |hash| hash as u8);
    for device in devices() {
        let mut x = device.zeros(data.len()).unwrap();
        for len in [0, 1, 1024 * KIB - 1, 1024 * KIB, 4097 * KIB + 5, 32 * KIB * KIB + 1, 140 * KIB * KIB - 9]
        {
            let whole = device.upload(&data[..len]).unwrap().to_vec().unwrap();
            assert!(whole == data[..len], "{len} bytes uploaded to {device}");
            x.write(3, &data[7..7 + len]).unwrap();
            let part = x.slice(2..len + 4).unwrap().to_vec().unwrap();
            assert!(part[1..=len] == data[7..7 + len], "{len} bytes written to {device}");
        }
        assert_eq!(
            x.slice(140 * KIB * KIB..).unwrap().reduce::<Sum, 256>(),
            Ok(0),
            "nothing beyond was touched"
        );
    }
}

#[test]
fn threads_upload_at_once() {
    let data = samples(3_000_000, |hash| hash as i32);
    for device in devices() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (device, data) = (&device, &data[thread..]);
                scope.spawn(move || {
                    let arrived = device.upload(data).unwrap().to_vec().unwrap();
                    assert!(arrived == data, "thread {thread} on {device}");
                });
            }
        });
    }
}

#[test]
fn opening_a_device_again_gives_the_same() {
    for device in devices() {
        let again = match device.is_cpu() {
            true => Device::cpu(),
            false if device.is_emulator() => Device::emulator().unwrap(),
            false => Device::cuda(0).unwrap(),
        };
        assert_eq!(device, again);
        assert_eq!(device.to_string(), again.to_string());
    }
}

/// The debug text does not list the elements.
#[test]
fn what_debug_prints_is_short() {
    for device in devices() {
        let x = device.zeros::<f32>(1_000_000).unwrap();
        assert_eq!(format!("{x:?}"), format!("Buffer {{ len: 1000000, device: {device} }}"));
        let view = x.slice(7..9).unwrap();
        assert_eq!(format!("{view:?}"), format!("View {{ len: 2, device: {device} }}"));
    }
}

#[test]
fn items_of_no_size_are_counted() {
    for device in devices() {
        let mut zeros = device.zeros::<()>(10).unwrap();
        assert_eq!((zeros.len(), zeros.is_empty()), (10, false), "{device}");
        assert_eq!(zeros.to_vec().unwrap(), [(); 10], "{device}");
        assert_eq!(zeros.slice(2..5).unwrap().to_vec().unwrap(), [(); 3], "{device}");
        assert!(zeros.slice(2..11).is_err(), "{device}");
        zeros.write(8, &[(), ()]).unwrap();
        assert!(zeros.write(9, &[(), ()]).is_err(), "{device}");
        let uploaded = device.upload(&[[0u32; 0]; 7]).unwrap();
        assert_eq!((uploaded.len(), uploaded.view().len()), (7, 7), "{device}");
        assert_eq!(device.upload::<()>(&[]).unwrap().len(), 0, "{device}");
    }
}
