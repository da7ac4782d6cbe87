//! cust through this crate, on machines with and without the NVIDIA driver.
//!
//! Only one test, because the table of functions belongs to the whole program.

use cust::{CudaApiVersion, CudaFlags, error::CudaError};
use libcuda::LoadError;

#[test]
fn cust_finds_no_device_until_the_driver_is_loaded() {
    assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::NoDevice));
    assert_eq!(CudaError::NoDevice.to_string(), r#""no CUDA driver is loaded""#);

    let answer = libcuda::load();
    let again = std::thread::spawn(libcuda::load).join().unwrap();
    assert_eq!(answer, again);
    match answer {
        Ok(()) => {
            println!("skipped: what cust does without a driver; this machine has one");
            // Works even if the driver finds no device.
            assert!(CudaApiVersion::get().unwrap().major() >= 11);
            assert_ne!(CudaError::NoDevice.to_string(), r#""no CUDA driver is loaded""#);
            // SAFETY: the call is refused, so no function is resolved.
            let refused = unsafe { libcuda::install("an emulator", &|_| unreachable!()) };
            let installed = "libcuda.so.1";
            assert_eq!(refused, Err(LoadError::AlreadyInstalled { installed, refused: "an emulator" }));
        }
        Err(LoadError::NoDriver { message }) => {
            println!("skipped: what cust does with a driver; this machine has none ({message})");
            assert!(message.contains("libcuda.so.1"), "{message}");
            assert_eq!(cust::init(CudaFlags::empty()), Err(CudaError::NoDevice));
        }
        Err(other) => panic!("{other}"),
    }
}
