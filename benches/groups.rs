//! Times reductions by index of data on a GPU or the CPU; prints a JSON line per case:
//!
//! ```text
//! cargo bench --bench groups -- [--log2 26] [--groups 1,10,100] [--of sum_f32,mean_f64] [--data KIND]
//! cargo bench --bench groups -- --keys i64
//! RAYON_NUM_THREADS=1 cargo bench --bench groups -- --device cpu
//! ```
//!
//! Indices are `i32` or, with `--wide`, `i64`: uniform, or most in few groups (skew 1: `⌊G·u⁴⌋`), sorted (2),
//! or all the same (3). Each time is the median of five runs after one to warm up: of a GPU by its events, of
//! the CPU by the clock. Compare `peers/groups.py`.

#[path = "common/kinds.rs"]
mod kinds;

use clap::Parser;
use cust::event::{Event, EventFlags};
use cust::stream::Stream as CustStream;
use gpu_reduce::shapes::Indices;
use gpu_reduce::{
    Any, ArgMax, BitOr, BitXor, CountNonzero, Device, Element, Item, Max, Mean, Min, MinMax, NanMean, NanSum,
    NanVar, Op, Prod, Reduce, Stream, Sum, SumSq, Var,
};
use kinds::{hash, kinds, single};
use rayon::prelude::*;
use std::error::Error;
use std::mem::ManuallyDrop;
use std::time::Instant;

#[derive(Parser)]
struct Arguments {
    /// `cuda` or `cpu`.
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Whether indices are `i64`.
    #[arg(long)]
    wide: bool,
    /// The logarithm of the number of items.
    #[arg(long, default_value_t = 26)]
    log2: u32,
    /// Numbers of groups.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,10,100,1000,10000,100000,1000000,10000000,100000000"
    )]
    groups: Vec<usize>,
    /// Operators and types.
    #[arg(long, value_delimiter = ',', default_value = "sum_f32")]
    of: Vec<String>,
    /// The distributions of indices.
    #[arg(long, value_delimiter = ',', default_value = "0,1")]
    skew: Vec<u32>,
    /// Groups by keys of any value, of type `i32` or `i64`, in place of indices. Times the whole call.
    #[arg(long)]
    keys: Option<String>,
    /// The kind of floats, as of the benchmark `device`.
    #[arg(long, default_value = "uniform")]
    data: String,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let is_cpu = arguments.device == "cpu";
    let device = if is_cpu { Device::cpu() } else { Device::cuda(0)? };
    // For the events.
    let _context = if is_cpu { None } else { Some(cust::quick_init()?) };
    eprintln!("{device}");
    let n = 1usize << arguments.log2;
    for &count in &arguments.groups {
        for &skew in &arguments.skew {
            let part = |place: usize| (hash(place as u64 + 77) >> 11) as f64 / (1u64 << 53) as f64;
            let index = |place: usize| match skew {
                0 => (part(place) * count as f64) as i32,
                1 => (part(place).powi(4) * count as f64) as i32,
                2 => (place as u128 * count as u128 / n as u128) as i32,
                _ => count as i32 / 2,
            };
            let indices: Vec<i32> = (0..n).into_par_iter().map(index).collect();
            if let Some(keys) = &arguments.keys {
                let key = |&index: &i32| hash(index as u64 ^ 0x6b65) as i64;
                let time = match &keys[..] {
                    "i32" => {
                        time_keys(&device, &indices.par_iter().map(|at| key(at) as i32).collect::<Vec<_>>())?
                    }
                    "i64" => time_keys(&device, &indices.par_iter().map(key).collect::<Vec<_>>())?,
                    _ => return Err(format!("no keys of type {keys}").into()),
                };
                println!(
                    "{{\"impl\":\"gpu_reduce sum_f32 by {keys}\",\"skew\":{skew},\"groups\":{count},\"n\":{n},\"us\":{time:.1},\"Gitems\":{:.1}}}",
                    n as f64 / time / 1e3
                );
                continue;
            }
            let wide = arguments.wide.then(|| indices.par_iter().map(|&index| i64::from(index)).collect());
            let (narrow, wide) =
                (device.upload(&indices)?, device.upload::<i64>(&wide.unwrap_or(Vec::new()))?);
            let indices = if arguments.wide { Indices::from(&wide) } else { Indices::from(&narrow) };
            for name in &arguments.of {
                let time = match &name[..] {
                    "sum_f32" => time::<f32, Sum>(&device, &arguments, indices, count)?,
                    "mean_f32" => time::<f32, Mean>(&device, &arguments, indices, count)?,
                    "max_f32" => time::<f32, Max>(&device, &arguments, indices, count)?,
                    "min_f32" => time::<f32, Min>(&device, &arguments, indices, count)?,
                    "nansum_f32" => time::<f32, NanSum>(&device, &arguments, indices, count)?,
                    "nanmean_f32" => time::<f32, NanMean>(&device, &arguments, indices, count)?,
                    "sumsq_i32" => time::<i32, SumSq>(&device, &arguments, indices, count)?,
                    "prod_f32" => time::<f32, Prod>(&device, &arguments, indices, count)?,
                    "var_f32" => time::<f32, Var>(&device, &arguments, indices, count)?,
                    "nanvar_f32" => time::<f32, NanVar>(&device, &arguments, indices, count)?,
                    "var_f64" => time::<f64, Var>(&device, &arguments, indices, count)?,
                    "sum_f64" => time::<f64, Sum>(&device, &arguments, indices, count)?,
                    "mean_f64" => time::<f64, Mean>(&device, &arguments, indices, count)?,
                    "sum_i32" => time::<i32, Sum>(&device, &arguments, indices, count)?,
                    "sum_i64" => time::<i64, Sum>(&device, &arguments, indices, count)?,
                    "sum_u8" => time::<u8, Sum>(&device, &arguments, indices, count)?,
                    "max_f64" => time::<f64, Max>(&device, &arguments, indices, count)?,
                    "minmax_f32" => time::<f32, MinMax>(&device, &arguments, indices, count)?,
                    "argmax_f32" => time::<f32, ArgMax>(&device, &arguments, indices, count)?,
                    "argmax_f64" => time::<f64, ArgMax>(&device, &arguments, indices, count)?,
                    "any_f32" => time::<f32, Any>(&device, &arguments, indices, count)?,
                    "count_nonzero_f32" => time::<f32, CountNonzero>(&device, &arguments, indices, count)?,
                    "bit_or_u32" => time::<u32, BitOr>(&device, &arguments, indices, count)?,
                    "bit_xor_u32" => time::<u32, BitXor>(&device, &arguments, indices, count)?,
                    "bit_xor_u64" => time::<u64, BitXor>(&device, &arguments, indices, count)?,
                    _ => return Err(format!("no case {name}").into()),
                };
                println!(
                    "{{\"impl\":\"gpu_reduce {name}\",\"data\":\"{}\",\"skew\":{skew},\"groups\":{count},\"n\":{n},\"us\":{:.1},\"Gitems\":{:.2}}}",
                    arguments.data,
                    time,
                    n as f64 / time / 1e3
                );
            }
        }
    }
    Ok(())
}

/// Microseconds of a reduction.
fn time<T: Element + Item, O: Op<T, Output: Item> + Default>(
    device: &Device,
    arguments: &Arguments,
    indices: Indices<'_>,
    count: usize,
) -> Result<f64, Box<dyn Error>> {
    let kinds = kinds();
    let kind = kinds.iter().find(|(name, _)| *name == arguments.data).ok_or("no such kind of floats")?;
    let value = |place: usize| {
        let hash = hash(place as u64);
        let value = kind.1(hash);
        let value = if T::NAME == "f64" { value } else { single(kind.0, value).into() };
        // Integers do not have 0.5.
        let is_float = T::from(0.5).is_some_and(|half| half != T::zero());
        if is_float { T::from(value) } else { T::from(hash as u8 >> 1) }.unwrap_or(T::zero())
    };
    let items: Vec<T> = (0..indices.len()).into_par_iter().map(value).collect();
    let items = device.upload(&items)?;
    let mut results = device.zeros::<O::Output>(count)?;
    let stream = device.stream()?;
    let groups = items.by_index(indices, count)?;
    let mut times = Vec::new();
    for turn in 0..6 {
        // SAFETY: all stays until the stream has been synchronized.
        let mut run = || unsafe { groups.reduce_into::<O, 256>(&stream, &mut results) };
        let time = if arguments.device == "cpu" {
            let start = Instant::now();
            run()?;
            start.elapsed().as_secs_f64() * 1e6
        } else {
            let [start, end] = [Event::new(EventFlags::DEFAULT)?, Event::new(EventFlags::DEFAULT)?];
            record(&start, &stream)?;
            run()?;
            record(&end, &stream)?;
            stream.synchronize()?;
            f64::from(end.elapsed_time_f32(&start)?) * 1e3
        };
        if turn > 0 {
            times.push(time);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Microseconds of a sum by keys of any value: the median of five calls after one to warm up.
fn time_keys<K: Element + Item>(device: &Device, keys: &[K]) -> Result<f64, Box<dyn Error>> {
    let keys = device.upload(keys)?;
    let items: Vec<f32> =
        (0..keys.len()).into_par_iter().map(|place| hash(place as u64) as u8 as f32).collect();
    let items = device.upload(&items)?;
    let mut times = Vec::new();
    for turn in 0..6 {
        let start = Instant::now();
        let sums = items.group_by(&keys)?.reduce::<Sum, 256>()?;
        if turn > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        drop(sums);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Records an event on a stream of ours.
fn record(event: &Event, stream: &Stream) -> Result<(), Box<dyn Error>> {
    let raw = stream.as_raw().ok_or("not on a GPU")?;
    // SAFETY: the stream is live, and is not dropped here.
    let stream = ManuallyDrop::new(unsafe { std::mem::transmute::<*mut std::ffi::c_void, CustStream>(raw) });
    Ok(event.record(&stream)?)
}
