//! The operator's laws and results, on the CPU and on a GPU, or the emulator without one.

use gpu_reduce::{Device, Error, Reduce, check_op};
use {{crate_name}}::Rms;

#[test]
fn laws() -> Result<(), Error> {
    check_op(&Rms, &[1.0, -2.5, 0.0, -0.0, 3.0, 1e20])
}

#[test]
fn results() -> Result<(), Error> {
    let x = Device::cuda(0).or_else(|_| Device::emulator())?.upload(&[3.0f32, 4.0, 3.0, 4.0])?;
    assert_eq!(x.reduce::<Rms, 256>()?, 12.5f64.sqrt());
    assert_eq!(x.rows(2)?.reduce::<Rms, 256>()?.to_vec()?, [12.5f64.sqrt(); 2]);
    assert_eq!([0.0f32; 0].reduce::<Rms, 256>(), Err(Error::EmptyInput { op: "rms" }));
    Ok(())
}
