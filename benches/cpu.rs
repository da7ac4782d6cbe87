//! Times the CPU backend against plain loops in the same run: `cargo bench --bench cpu`.
//!
//! Medians of 15 after 2 to warm up. `iter().sum()` is Rust's own, one addition after another; `32 accumulators` is a loop
//! whose accumulators stay in registers.

use gpu_reduce::{Device, Element, f16};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    println!("{}; `one` is one thread of it\n", Device::cpu());
    println!("{:<28}{:>12}{:>12}{:>10}{:>12}", "f32 sum", "elements", "us", "GB/s", "to iter()");
    for n in [1000, 1 << 16, 1 << 20, 1 << 28] {
        let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32 * 1e-3 - 0.5).collect();
        let loop_us = row("iter().sum()", &x, None, || x.iter().sum::<f32>());
        row("32 accumulators", &x, Some(loop_us), || accumulators_in_registers(&x));
        one_thread(|| row("gpu_reduce, one", &x, Some(loop_us), || gpu_reduce::sum(&x)));
        row("gpu_reduce, all", &x, Some(loop_us), || gpu_reduce::sum(&x));
        println!();
    }
    println!("other types, one thread");
    others::<i8>(|i| i as i8);
    others::<i32>(|i| i as i32);
    others::<f16>(|i| f16::from_f32((i % 1000) as f32 * 1e-3 - 0.5));
    others::<f64>(|i| (i % 1000) as f64 * 1e-3 - 0.5);
}

fn others<T: Element>(sample: impl Fn(usize) -> T) {
    let x: Vec<T> = (0..(1 << 29) / size_of::<T>()).map(sample).collect();
    one_thread(|| row(&format!("sum of {}", T::NAME), &x, None, || gpu_reduce::sum(&x).is_ok()));
    one_thread(|| row(&format!("max of {}", T::NAME), &x, None, || gpu_reduce::max(&x).is_ok()));
}

/// Prints a row of the table and returns its time in microseconds.
fn row<T, R>(name: &str, data: &[T], baseline: Option<f64>, mut call: impl FnMut() -> R) -> f64 {
    let mut times: Vec<f64> = (0..17)
        .map(|_| {
            let start = Instant::now();
            black_box(call());
            start.elapsed().as_secs_f64() * 1e6
        })
        .skip(2)
        .collect();
    times.sort_by(f64::total_cmp);
    let us = times[times.len() / 2];
    let gbps = size_of_val(data) as f64 / us / 1e3;
    let ratio = baseline.map_or(String::new(), |baseline| format!("{:.2}x", baseline / us));
    println!("{name:<28}{:>12}{us:>12.2}{gbps:>10.2}{ratio:>12}", data.len());
    us
}

/// Runs `call` where rayon has one thread, this one.
fn one_thread<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread").install(call)
}

fn accumulators_in_registers(x: &[f32]) -> f32 {
    let mut accumulators = [0.0; 32];
    for chunk in x.chunks_exact(32) {
        for (accumulator, value) in accumulators.iter_mut().zip(chunk) {
            *accumulator += value;
        }
    }
    accumulators.iter().sum()
}
