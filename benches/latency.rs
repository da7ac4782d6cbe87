//! Times how long a caller waits for a GPU, by the host's clock; prints a JSON line per case.
//!
//! `cargo bench --bench latency`
//!
//! - `first_sum` and the steps around it time a program that starts. It opens the device (`open`: the
//!   driver and the context), uploads 2^10 `f32` (`upload`), sums them for the first time (`first_sum`: the
//!   driver compiles the kernel) and again (`second_sum`), and takes the maximum of 2^10 `i32` for the first
//!   time (`first_max`). The bench starts itself as that program three times: with an `empty` compile cache
//!   of the driver, as on a new machine; with the cache `filled` by the run before; and with the cache
//!   `disabled`. Each figure is the time of one call.
//! - `blocking_sum` is a call on a buffer, up to the result on the host: the median of 1,000 calls after 100
//!   to warm up, or of 100 after 10 for the longest input. Compare `peers/blocking.cu` and
//!   `peers/blocking.py`.
//! - `enqueued_sum` and `launched_sum` are the host's time of a call that enqueues and returns, in a row of a
//!   hundred calls that is waited for outside the measured time: the median of 100 such rows.

mod common;

use clap::Parser;
use common::{median_us, print_case, samples, timed};
use gpu_reduce::{Device, Element, Reduce, Sum};
use std::error::Error;
use std::process::Command;

/// The number of elements in the first calls.
const FIRST_LEN: usize = 1 << 10;

#[derive(Parser)]
struct Arguments {
    /// Run as the program whose first calls are timed, with this name of the cache.
    #[arg(long, hide = true, value_name = "CACHE")]
    first_calls: Option<String>,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(cache) = Arguments::parse().first_calls {
        return first_calls(&cache);
    }
    // Must precede opening the device in this process, which would leave the driver less to start.
    let folder = std::env::temp_dir().join(format!("gpu_reduce_latency_{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    for (cache, disable) in [("empty", "0"), ("filled", "0"), ("disabled", "1")] {
        let status = Command::new(std::env::current_exe()?)
            .args(["--first-calls", cache])
            .env("CUDA_CACHE_PATH", &folder)
            .env("CUDA_CACHE_DISABLE", disable)
            .status()?;
        if !status.success() {
            return Err(format!("the program of first calls failed: {status}").into());
        }
    }
    std::fs::remove_dir_all(folder)?;
    blocking_calls()
}

fn first_calls(cache: &str) -> Result<(), Box<dyn Error>> {
    let Ok((gpu, open)) = timed(|| Device::cuda(0)) else {
        return Ok(()); // the parent process says why
    };
    let data = samples(FIRST_LEN);
    let (floats, upload) = timed(|| gpu.upload(&data))?;
    let (_, first_sum) = timed(|| gpu_reduce::sum(&floats))?;
    let (_, second_sum) = timed(|| gpu_reduce::sum(&floats))?;
    let integers = gpu.upload(&[1i32; FIRST_LEN])?;
    let (_, first_max) = timed(|| gpu_reduce::max(&integers))?;
    for (op, dtype, us) in [
        ("open", f32::NAME, open),
        ("upload", f32::NAME, upload),
        ("first_sum", f32::NAME, first_sum),
        ("second_sum", f32::NAME, second_sum),
        ("first_max", i32::NAME, first_max),
    ] {
        println!(
            r#"{{"impl":"gpu_reduce","op":"{op}","dtype":"{dtype}","n":{FIRST_LEN},"cache":"{cache}","us":{us:.1}}}"#
        );
    }
    Ok(())
}

fn blocking_calls() -> Result<(), Box<dyn Error>> {
    let gpu = match Device::cuda(0) {
        Ok(gpu) => gpu,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    for (n, times) in [(1, 1000), (1 << 10, 1000), (1 << 14, 1000), (1 << 20, 1000), (1 << 24, 100)] {
        let buffer = gpu.upload(&samples(n))?;
        let us = median_us(times, 1, || gpu_reduce::sum(&buffer))?;
        print_case::<f32>("gpu_reduce", "blocking_sum", n, us);
    }
    enqueued_calls(&gpu)
}

/// Calls in a row before waiting for their results.
const IN_A_ROW: usize = 100;

fn enqueued_calls(gpu: &Device) -> Result<(), Box<dyn Error>> {
    let stream = gpu.stream()?;
    let mut result = gpu.zeros::<f32>(1)?;
    for n in [1 << 10, 1 << 20] {
        let x = gpu.upload(&samples(n))?;
        let (mut enqueued, mut launched) = (Vec::new(), Vec::new());
        for _ in 0..110 {
            // SAFETY: both buffers stay, and nothing else uses them.
            let enqueue = || unsafe { x.reduce_into::<Sum, 256>(&stream, &mut result) };
            let ((), us) =
                timed(|| std::iter::repeat_with(enqueue).take(IN_A_ROW).collect::<Result<(), _>>())?;
            stream.synchronize()?;
            enqueued.push(us / IN_A_ROW as f64);
            let launch = || x.reduce_async::<Sum, 256>(&stream);
            let (pending, us) =
                timed(|| Ok(std::iter::repeat_with(launch).take(IN_A_ROW).collect::<Vec<_>>()))?;
            pending.into_iter().try_for_each(|pending| pending.wait().map(drop))?;
            launched.push(us / IN_A_ROW as f64);
        }
        for (op, us) in [("enqueued_sum", &mut enqueued), ("launched_sum", &mut launched)] {
            let us = &mut us[10..];
            us.sort_by(f64::total_cmp);
            print_case::<f32>("gpu_reduce", op, n, us[us.len() / 2]);
        }
    }
    Ok(())
}
