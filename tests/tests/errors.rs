//! Bad input: the error says what was wrong, and the device still works.

use gpu_reduce::{Device, Error, Min, Reduce, Sum};
use support::devices;

#[test]
fn a_range_out_of_bounds_is_refused() {
    for device in devices() {
        let mut x = device.upload(&[1i32, 2, 3]).unwrap();
        let error = x.slice(1..4).unwrap_err();
        assert_eq!(error, Error::OutOfBounds { start: 1, end: 4, len: 3 });
        assert_eq!(error.to_string(), "elements 1..4 are not in a buffer of 3 elements");
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = x.slice(3..1).unwrap_err();
        assert_eq!(reversed, Error::OutOfBounds { start: 3, end: 1, len: 3 });
        assert!(x.slice(..=usize::MAX).is_err());
        assert!(x.slice(1..).unwrap().slice(..3).is_err(), "a view's range is its own");
        assert_eq!(x.write(2, &[7, 8]), Err(Error::OutOfBounds { start: 2, end: 4, len: 3 }));
        assert!(x.write(usize::MAX, &[7]).is_err());
        assert_eq!(x.to_vec().unwrap(), [1, 2, 3], "a refused write writes nothing");
        assert_eq!(x.reduce::<Sum, 32>(), Ok(6));
    }
}

#[test]
fn an_empty_minimum_is_refused() {
    let error = <[f32]>::reduce::<Min, 32>(&[]).unwrap_err();
    assert_eq!(error.to_string(), "min of an empty input has no value: check the length first");
}

#[test]
fn a_buffer_of_another_device_is_refused() {
    let [cpu, gpu] = &devices()[..] else { return eprintln!("skipped: neither a GPU nor the emulator") };
    let (here, there) = (cpu.upload(&[1u8, 2]).unwrap(), gpu.upload(&[3u8, 4]).unwrap());
    assert!(matches!(here.reduce_on::<Sum, 32>(gpu), Err(Error::DeviceMismatch { .. })));
    assert!(matches!(there.reduce_on::<Sum, 32>(cpu), Err(Error::DeviceMismatch { .. })));
    assert_eq!(here.reduce_on::<Sum, 32>(cpu), Ok(3));
    assert_eq!(there.reduce_on::<Sum, 32>(gpu), Ok(7));
}

#[test]
fn a_program_has_one_driver() {
    for device in devices().into_iter().filter(|device| !device.is_cpu()) {
        let x = device.upload(&[1u8, 2]).unwrap();
        if device.is_emulator() {
            assert_eq!(Device::cuda(0), Ok(device), "the device of the driver that the program has");
        } else {
            let error = Device::emulator().unwrap_err();
            assert!(matches!(error, Error::OtherDriver(_)), "{error:?}");
            assert!(error.to_string().contains("already serves the CUDA driver API"), "{error}");
        }
        assert_eq!(x.reduce::<Sum, 32>(), Ok(3));
    }
}

#[test]
fn out_of_memory_names_the_bytes() {
    for device in devices().into_iter().filter(|device| !device.is_cpu()) {
        let before = device.upload(&[1.0f32; 100]).unwrap();
        let error = device.zeros::<u64>(1 << 50).unwrap_err();
        assert!(
            matches!(error, Error::OutOfMemory { requested, free: Some(1..), .. } if requested == 8 << 50),
            "{error:?}"
        );
        assert!(matches!(device.zeros::<u64>(usize::MAX), Err(Error::OutOfMemory { .. })));
        assert_eq!(before.reduce::<Sum, 256>(), Ok(100.0));
    }
}

#[test]
fn out_of_memory_on_the_cpu_names_the_bytes() {
    let cpu = Device::cpu();
    for (len, bytes) in [(usize::MAX, usize::MAX), (usize::MAX / 16, usize::MAX / 16 * 8)] {
        let error = cpu.zeros::<f64>(len).unwrap_err();
        assert_eq!(error, Error::OutOfMemory { device: cpu.to_string(), requested: bytes, free: None });
        assert!(error.to_string().contains(&format!("asked for {bytes} bytes; reduce in pieces")), "{error}");
    }
    assert_eq!(cpu.zeros::<f64>(3).unwrap().reduce::<Sum, 32>(), Ok(0.0));
}
