//! Times reductions of data in host memory; prints a JSON line per case: `cargo bench --bench host`.
//!
//! | impl | what runs |
//! | --- | --- |
//! | `iter` | `x.iter().sum()`, one addition after another |
//! | `registers` | a loop over 32 accumulators in registers; one thread |
//! | `rayon` | `x.par_iter().sum()` |
//! | `lanes` | a loop over 64 lanes of accumulators, with AVX-512 if the processor has it; one thread |
//! | `gpu_reduce-1-thread` | the CPU backend in a rayon pool of one thread |
//! | `gpu_reduce-cpu` | the CPU backend, `x.reduce_on(&Device::cpu())` |
//! | `gpu_reduce` | the one-line function |
//! | `gpu_reduce-gpu` | `x.reduce_on(&gpu)` |
//! | `gpu_reduce-upload` | `gpu.upload(&x)`, then the one-line function on the buffer |
//!
//! Times are medians of 15 runs after 2 to warm up. A run of a short input has as many calls as read 2^20
//! elements. BLOCK is as in the one-line functions. If there is a GPU, it is open from the start. Compare
//! `peers/host.py`.

mod common;

use common::{median_us, print_case, samples};
use gpu_reduce::{
    Device, Element, Error, ExactElement, Max, Op, Reduce, Sum, default_block, f16, for_each_operator,
};
use rayon::prelude::*;
use std::hint::black_box;

/// The size of the longest inputs in bytes.
const LONGEST: usize = 1 << 30;

fn main() -> Result<(), Error> {
    let cpu = Device::cpu();
    let gpu = Device::cuda(0);
    match &gpu {
        Ok(gpu) => eprintln!("{cpu}, {gpu}"),
        Err(why) => eprintln!("{cpu}; no GPU: {why}"),
    }
    for n in [1000, 1 << 16, 1 << 20, LONGEST / size_of::<f32>()] {
        let x = &samples(n)[..];
        let op = "host_sum";
        case("iter", op, x, |x| Ok(x.iter().sum::<f32>()))?;
        case("registers", op, x, |x| Ok(sum_in_registers(x)))?;
        case("rayon", op, x, |x| Ok(x.par_iter().sum::<f32>()))?;
        one_thread(|| case("gpu_reduce-1-thread", op, x, |x| reduce_on::<Sum, _>(x, &cpu)))?;
        case("gpu_reduce-cpu", op, x, |x| reduce_on::<Sum, _>(x, &cpu))?;
        case("gpu_reduce", op, x, gpu_reduce::sum)?;
        if let Ok(gpu) = &gpu {
            case("gpu_reduce-gpu", op, x, |x| reduce_on::<Sum, _>(x, gpu))?;
            case("gpu_reduce-upload", op, x, |x| gpu_reduce::sum(&gpu.upload(x)?))?;
        }
    }
    one_thread(|| {
        in_cache::<f32>(|i| ((i % 1000) as f32 - 499.5) * 1e-6 + 1.0)?;
        in_cache::<f64>(|i| ((i % 1000) as f64 - 499.5) * 1e-6 + 1.0)
    })?;
    types_on_one_thread::<i8>(|i| i as i8)?;
    types_on_one_thread::<i32>(|i| i as i32)?;
    types_on_one_thread::<f16>(|i| f16::from_f32((i % 1000) as f32 * 1e-3 - 0.5))?;
    types_on_one_thread::<f64>(|i| (i % 1000) as f64 * 1e-3 - 0.5)
}

/// Times every operator on inputs that fit in caches and on one that does not, beside a loop over 64 lanes.
/// The values are near 1: products of others become subnormal numbers, which are many times slower and would
/// dominate the times.
fn in_cache<T: ExactElement>(sample: impl Fn(usize) -> T) -> Result<(), Error> {
    let x: Vec<T> = (0..10_000_000).map(sample).collect();
    for n in [10, 100, 1_000, 10_000, 100_000, x.len()] {
        let x = &x[..n];
        macro_rules! operators {
            ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
                let op = concat!("host_", stringify!($name));
                case("lanes", op, x, |x| Ok(lanes::<gpu_reduce::$op, T>(x)))?;
                case("gpu_reduce-1-thread", op, x, gpu_reduce::$name)?;
            )*};
        }
        for_each_operator! { operators! {} }
    }
    Ok(())
}

/// Reduces by 64 lanes of accumulators; item i goes to lane i modulo 64.
fn lanes<O: Op<T> + Default, T: Element>(x: &[T]) -> Option<O::Output> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512<O: Op<T> + Default, T: Element>(x: &[T]) -> Option<O::Output> {
            lanes_anywhere::<O, T>(x)
        }
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the processor has the features that the function needs.
            return unsafe { avx512::<O, T>(x) };
        }
    }
    lanes_anywhere::<O, T>(x)
}

#[inline(always)]
fn lanes_anywhere<O: Op<T> + Default, T: Element>(x: &[T]) -> Option<O::Output> {
    let op = x.first().map_or(O::default(), |&first| O::default().begin(first));
    let mut lanes = [op.identity(); 64];
    let (rows, rest) = x.as_chunks::<64>();
    for row in rows {
        for (lane, &item) in lanes.iter_mut().zip(row) {
            *lane = op.combine(*lane, op.lift(item, 0));
        }
    }
    for (lane, &item) in lanes.iter_mut().zip(rest) {
        *lane = op.combine(*lane, op.lift(item, 0));
    }
    let all = lanes.into_iter().reduce(|a, b| op.combine(a, b));
    op.finish(op.end(all.unwrap_or(op.identity()), x.len() as u64), x.len() as u64)
}

fn types_on_one_thread<T: Element>(sample: impl Fn(usize) -> T) -> Result<(), Error> {
    let x: Vec<T> = (0..LONGEST / size_of::<T>()).map(sample).collect();
    let cpu = Device::cpu();
    one_thread(|| {
        case("gpu_reduce-1-thread", "host_sum", &x, |x| reduce_on::<Sum, _>(x, &cpu))?;
        case("gpu_reduce-1-thread", "host_max", &x, |x| reduce_on::<Max, _>(x, &cpu))
    })
}

fn case<T: Element, R>(
    implementation: &str,
    op: &str,
    data: &[T],
    call: impl Fn(&[T]) -> Result<R, Error>,
) -> Result<(), Error> {
    let calls = ((1 << 20) / data.len()).max(1);
    let us = median_us(15, calls, || call(black_box(data)))?;
    print_case::<T>(implementation, op, data.len(), us);
    Ok(())
}

fn reduce_on<O: Op<T> + Default, T: Element>(x: &[T], device: &Device) -> Result<O::Output, Error> {
    match default_block::<O, T>(size_of_val(x) as u64) {
        128 => x.reduce_on::<O, 128>(device),
        256 => x.reduce_on::<O, 256>(device),
        512 => x.reduce_on::<O, 512>(device),
        _ => x.reduce_on::<O, 1024>(device),
    }
}

/// Runs `call` in a rayon pool of one thread.
fn one_thread<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread").install(call)
}

fn sum_in_registers(x: &[f32]) -> f32 {
    let mut accumulators = [0.0; 32];
    let (chunks, rest) = x.as_chunks::<32>();
    for chunk in chunks {
        for (accumulator, value) in accumulators.iter_mut().zip(chunk) {
            *accumulator += value;
        }
    }
    accumulators.iter().chain(rest).sum()
}
