//! Shared code of the benches that use the host's clock.

pub mod kinds;

use gpu_reduce::{Element, Error};
use std::hint::black_box;
use std::time::Instant;

/// `n` values between −0.5 and 0.5.
#[allow(dead_code, reason = "not all benches use it")]
pub fn samples(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 1000) as f32 * 1e-3 - 0.5).collect()
}

/// Returns the result of a call and its time in microseconds.
pub fn timed<R>(call: impl FnOnce() -> Result<R, Error>) -> Result<(R, f64), Error> {
    let start = Instant::now();
    let result = call()?;
    Ok((result, start.elapsed().as_secs_f64() * 1e6))
}

/// Returns the median time of a call in microseconds, over `times` runs of `calls` calls each, after a tenth
/// as many runs to warm up.
pub fn median_us<R>(
    times: usize,
    calls: usize,
    mut call: impl FnMut() -> Result<R, Error>,
) -> Result<f64, Error> {
    let mut run = || (0..calls).try_for_each(|_| call().map(|result| drop(black_box(result))));
    let warm_up = times.div_ceil(10);
    let us = (0..warm_up + times).map(|_| timed(&mut run).map(|((), us)| us / calls as f64));
    let mut us = us.collect::<Result<Vec<_>, _>>()?.split_off(warm_up);
    us.sort_by(f64::total_cmp);
    Ok(us[times / 2])
}

/// Prints the JSON line of a case.
pub fn print_case<T: Element>(implementation: &str, op: &str, n: usize, us: f64) {
    let (dtype, gbps) = (T::NAME, (n * size_of::<T>()) as f64 / us / 1e3);
    println!(
        r#"{{"impl":"{implementation}","op":"{op}","dtype":"{dtype}","n":{n},"segment":0,"us":{us:.3},"gbps":{gbps:.1}}}"#
    );
}
