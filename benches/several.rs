//! Times reductions over all GPUs and over one, by the host's clock; prints a JSON line per case.
//!
//! `cargo bench --bench several`
//!
//! A single GPU gets two shards, which shows what shards cost but not the speed of two GPUs. Without a GPU
//! the bench says why it is skipped.
//!
//! - `sum`, `exact_sum`: all elements on one device, split evenly between the devices, and split unevenly;
//!   medians of blocking calls.
//! - `sum` of few elements on each device: blocking; `enqueued` with the result on the first device, and
//!   waited for; `launched`, and waited for.
//! - `part_sum`: the part of one GPU among many, a `Partial` of 2^30 elements that are `chunks` chunks of a
//!   whole.
//! - `fold_sum`: the last step, which folds the partial results of a whole on the CPU.
//!
//! Compare `peers/nccl.py`. `docs/scale.md` simulates more GPUs than exist from these times.

mod common;

use clap::Parser;
use common::{median_us, print_case, samples};
use gpu_reduce::{Buffer, Device, Devices, ExactSum, Partial, Reduce, Sharded, Sum, View};
use std::error::Error;

#[derive(Parser)]
struct Arguments {
    /// The number of elements of the large cases, in all.
    #[arg(long, default_value_t = 1 << 32)]
    len: usize,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { len, .. } = Arguments::parse();
    let devices = match Device::all() {
        Ok(devices) => devices,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    println!(r#"{{"impl":"devices","count":{}}}"#, devices.as_slice().len());
    large(&devices, len)?;
    for per_device in [1 << 10, 1 << 20, 1 << 24] {
        small(&devices, per_device)?;
    }
    let device = &devices.as_slice()[0];
    let part = filled(device, &samples(1 << 20), PART)?;
    parts::<64>(&part)?;
    parts::<256>(&part)?;
    parts::<1024>(&part)
}

/// The number of elements in a part.
const PART: usize = 1 << 30;

/// Times a part that has all chunks of a whole, half of them, a quarter and so on; and the fold of all
/// chunks.
fn parts<const BLOCK: u32>(part: &Buffer<f32>) -> Result<(), Box<dyn Error>> {
    let chunks = Partial::<Sum, f32, BLOCK>::plan(PART as u64).chunks;
    for parts in (0..).map(|power| 1 << power).take_while(|&parts| parts <= chunks) {
        let len = PART as u64 * u64::from(parts);
        let start = PART as u64 * u64::from(parts / 2);
        let partial = Partial::<_, _, BLOCK>::new(Sum, len, -0.5f32);
        let us = median_us(10, 1, || partial.clone().add(start, part))?;
        let chunks = chunks / parts;
        println!(
            r#"{{"impl":"gpu_reduce","op":"part_sum","dtype":"f32","n":{PART},"block":{BLOCK},"chunks":{chunks},"us":{us:.2}}}"#
        );
    }
    let elements = samples(1 << 23);
    let mut all = Partial::<_, _, BLOCK>::new(Sum, elements.len() as u64, elements[0]);
    all.add(0, &elements[..])?;
    let chunks = Partial::<Sum, f32, BLOCK>::plan(elements.len() as u64).chunks;
    let us = median_us(1000, 1, || all.finish())?;
    println!(
        r#"{{"impl":"gpu_reduce","op":"fold_sum","dtype":"f32","n":{chunks},"block":{BLOCK},"chunks":{chunks},"us":{us:.2}}}"#
    );
    Ok(())
}

/// A device for each shard; at least two.
fn places(devices: &Devices) -> Vec<&Device> {
    let count = devices.as_slice().len();
    devices.as_slice().iter().cycle().take(count.max(2)).collect()
}

/// A buffer filled by repeating `pattern`, so that the host does not have to hold all elements.
fn filled(device: &Device, pattern: &[f32], len: usize) -> Result<Buffer<f32>, gpu_reduce::Error> {
    let mut buffer = device.zeros::<f32>(len)?;
    for start in (0..len).step_by(pattern.len()) {
        buffer.write(start, &pattern[..pattern.len().min(len - start)])?;
    }
    Ok(buffer)
}

fn large(devices: &Devices, len: usize) -> Result<(), Box<dyn Error>> {
    let pattern = samples(1 << 26);
    let places = places(devices);
    let count = places.len();
    let one = filled(&devices.as_slice()[0], &pattern, len)?;
    let sums = timed_alike(&one, "one", len)?;
    // Equal parts; and a first part that is a third of a percent smaller, so that it ends within a chunk.
    let parts = |first: usize| {
        (0..count).map(move |index| if index == 0 { first } else { (len - first) / (count - 1) })
    };
    for (cut, first) in [("even", len / count), ("uneven", len / count / 300 * 299 + 7)] {
        let (mut start, mut shards) = (0, Vec::new());
        for (device, part) in places.iter().zip(parts(first)) {
            let part = if shards.len() + 1 == count { len - start } else { part };
            let rotated: Vec<_> =
                pattern.iter().cycle().skip(start % pattern.len()).take(pattern.len()).copied().collect();
            shards.push(filled(device, &rotated, part)?);
            start += part;
        }
        let of_shards = timed_alike(&Sharded::from(shards), cut, len)?;
        assert_eq!(of_shards, sums, "the bits differ, {cut}");
    }
    Ok(())
}

/// Times a sum and an exact sum; returns their bits.
fn timed_alike<D: Reduce<Item = f32>>(data: &D, cut: &str, len: usize) -> Result<[u32; 2], Box<dyn Error>> {
    let plain = median_us(20, 1, || data.reduce::<Sum, 1024>())?;
    print_case::<f32>("gpu_reduce", &format!("sum_{cut}"), len, plain);
    let exact = median_us(20, 1, || data.reduce::<ExactSum, 1024>())?;
    print_case::<f32>("gpu_reduce", &format!("exact_sum_{cut}"), len, exact);
    Ok([data.reduce::<Sum, 1024>()?.to_bits(), data.reduce::<ExactSum, 1024>()?.to_bits()])
}

fn small(devices: &Devices, per_device: usize) -> Result<(), Box<dyn Error>> {
    let places = places(devices);
    let count = places.len();
    let data = samples(per_device * count);
    let parts: Vec<Buffer<f32>> = places
        .iter()
        .zip(data.chunks(per_device))
        .map(|(device, part)| device.upload(part))
        .collect::<Result<_, _>>()?;
    let views: Vec<View<f32>> = parts.iter().map(Buffer::view).collect();
    let x = Sharded::from(views);
    let stream = devices.stream()?;
    let mut result = devices.as_slice()[0].zeros::<f32>(1)?;
    let expected = data.reduce::<Sum, 512>()?;
    assert_eq!(x.reduce::<Sum, 512>()?, expected);
    let n = per_device * count;
    let print = |op, us| print_case::<f32>("gpu_reduce", op, n, us);
    print("blocking_sum", median_us(1000, 1, || x.reduce::<Sum, 512>())?);
    print("launched_sum", median_us(1000, 1, || x.reduce_async::<Sum, 512>(&stream).wait())?);
    let enqueued = median_us(1000, 1, || {
        // SAFETY: all stay until the stream has been waited for.
        unsafe { x.reduce_into::<Sum, 512>(&stream, &mut result)? };
        stream.synchronize()
    })?;
    print("enqueued_sum", enqueued);
    assert_eq!(result.to_vec()?, [expected]);
    let one = devices.as_slice()[0].upload(&data)?;
    print("blocking_sum_one", median_us(1000, 1, || one.reduce::<Sum, 512>())?);
    Ok(())
}
