//! The choice of a program's driver: one that it installs, or one that `GPU_REDUCE_DRIVER` names. Each test
//! starts this program again, because a driver belongs to the whole program.

use gpu_reduce::{Device, Error, Reduce, Sum, emulator};
use std::process::Command;

/// Runs the named test in a new process with `GPU_REDUCE_DRIVER` set. Returns whether this is that process.
fn in_a_program_of_its_own(test: &str, driver: Option<&str>) -> bool {
    const CHILD: &str = "GPU_REDUCE_TESTS_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args([test, "--exact", "--nocapture"]).env(CHILD, "1").env_remove("GPU_REDUCE_DRIVER");
    if let Some(driver) = driver {
        program.env("GPU_REDUCE_DRIVER", driver);
    }
    let output = program.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    false
}

#[test]
fn a_driver_that_there_is_not_is_refused() {
    if in_a_program_of_its_own("a_driver_that_there_is_not_is_refused", Some("foo")) {
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
    if in_a_program_of_its_own("no_name_is_the_machines_driver", Some("")) {
        assert!(!matches!(Device::cuda(0), Err(Error::UnknownDriver(_))));
    }
}

#[test]
fn the_driver_may_be_named() {
    if in_a_program_of_its_own("the_driver_may_be_named", Some("emulator")) {
        assert!(Device::cuda(0).unwrap().is_emulator());
    }
}

#[test]
fn a_device_is_of_the_driver_that_the_program_installed() {
    if in_a_program_of_its_own("a_device_is_of_the_driver_that_the_program_installed", None) {
        emulator::install().unwrap();
        let device = Device::cuda(0).unwrap();
        assert!(device.is_emulator() && !device.is_cpu(), "{device}");
        assert_eq!(device, Device::emulator().unwrap());
        assert_eq!(device.upload(&[1u8, 2]).unwrap().reduce::<Sum, 32>(), Ok(3));
    }
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    if in_a_program_of_its_own("a_device_that_is_not_there_is_refused", None) {
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
