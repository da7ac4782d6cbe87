//! The driver of a program: the one that it installs, or the one that `GPU_REDUCE_DRIVER` names. Each test
//! runs in a process of its own, because a process has one driver.

use gpu_reduce::{Device, Error, Reduce, Sum, emulator};
use support::process;

/// Whether this is the process of the test's own, in which `GPU_REDUCE_DRIVER` is set to `driver`.
#[track_caller]
fn is_own(test: &str, driver: Option<&str>) -> bool {
    process::is_own(&format!("driver::{test}"), |program| {
        match driver {
            Some(driver) => program.env("GPU_REDUCE_DRIVER", driver),
            None => program.env_remove("GPU_REDUCE_DRIVER"),
        };
    })
}

#[test]
fn a_driver_that_there_is_not_is_refused() {
    if is_own("a_driver_that_there_is_not_is_refused", Some("foo")) {
        let error = Device::cuda(0).unwrap_err();
        assert_eq!(error, Error::UnknownDriver("foo".to_owned()));
        assert_eq!(
            error.to_string(),
            "GPU_REDUCE_DRIVER is `foo`: set it to `emulator` or `cuda`, or unset it"
        );
        assert_eq!([1.5f32, 2.0].reduce::<Sum, 32>(), Ok(3.5));
    }
}

#[test]
fn no_name_is_the_machines_driver() {
    if is_own("no_name_is_the_machines_driver", Some("")) {
        assert!(!matches!(Device::cuda(0), Err(Error::UnknownDriver(_))));
    }
}

#[test]
fn the_driver_may_be_named() {
    if is_own("the_driver_may_be_named", Some("emulator")) {
        assert!(Device::cuda(0).unwrap().is_emulator());
    }
}

#[test]
fn a_device_is_of_the_driver_that_the_program_installed() {
    if is_own("a_device_is_of_the_driver_that_the_program_installed", None) {
        emulator::install().unwrap();
        let device = Device::cuda(0).unwrap();
        assert!(device.is_emulator() && !device.is_cpu(), "{device}");
        assert_eq!(device, Device::emulator().unwrap());
        assert_eq!(device.upload(&[1u8, 2]).unwrap().reduce::<Sum, 32>(), Ok(3));
    }
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    if is_own("a_device_that_is_not_there_is_refused", None) {
        let error = Device::cuda(4096).unwrap_err();
        match Device::cuda(0) {
            Ok(_) => assert!(matches!(error, Error::NoSuchDevice { index: 4096, count: 1.. }), "{error:?}"),
            Err(none) => {
                assert_eq!(error, none);
                assert!(matches!(error, Error::NoDriver(_) | Error::NoDevice | Error::NoCuda), "{error:?}");
                assert!(
                    error.to_string().contains("CPU") || error.to_string().contains("Device::cpu()"),
                    "{error}"
                );
            }
        }
        assert_eq!(Device::cpu().upload(&[2.0f64]).unwrap().reduce::<Sum, 32>(), Ok(2.0));
    }
}
