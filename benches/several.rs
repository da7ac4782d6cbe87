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
//! - `sum_shards`: all elements in 64 shards on one device; `sum_partials`: in 64 `Partial`s, one after
//!   another.
//! - `part_sum`: the part of one GPU among many, a `Partial` of `chunks` chunks of a whole of `parts` times
//!   2^30 elements. `part_max`: 2^30 elements by an operator without order.
//! - `fold_sum`: the last step, which folds `chunks` partial results on the CPU.
//!
//! Compare `peers/nccl.py`. `docs/scale.md` simulates more GPUs than exist from these times.

mod common;

use clap::Parser;
use common::{median_us, print_case, samples};
use gpu_reduce::{
    Block, Buffer, Device, Devices, ExactSum, Max, Partial, Reduce, Sharded, Sum, Threads, View,
};
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
    many(&devices.as_slice()[0], len)?;
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

/// Times parts of 1, 2, 4 … chunks of a whole; a part that is a whole, half of a whole, a quarter and so on;
/// and the fold of a whole's partial results.
fn parts<const BLOCK: u32>(part: &Buffer<f32>) -> Result<(), Box<dyn Error>>
where
    Threads<BLOCK>: Block,
{
    let print = |op, n, parts, chunks, us| {
        println!(
            r#"{{"impl":"gpu_reduce","op":"{op}","dtype":"f32","n":{n},"block":{BLOCK},"parts":{parts},"chunks":{chunks},"us":{us:.2}}}"#
        );
    };
    let powers = (0..).map(|power| 1 << power);
    let plan_of = |parts| Partial::<Sum, f32, BLOCK>::plan(PART as u64 * u64::from(parts));
    let few = powers.clone().map(|chunks| (4, chunks, chunks as usize * plan_of(4).chunk as usize));
    let many = powers.take(11).map(|parts| (parts, plan_of(parts).chunks / parts, PART));
    for (parts, chunks, n) in few.take_while(|&(_, _, n)| n <= PART).chain(many) {
        let plan = plan_of(parts);
        let start = if parts > 1 { PART as u64 } else { 0 };
        let partial = Partial::<_, _, BLOCK>::new(Sum, plan.len, part.slice(..1)?.to_vec()?[0]);
        let elements = part.slice(..n)?;
        let us = median_us(30, 1, || partial.clone().add(start, &elements))?;
        print("part_sum", n, parts, chunks, us);
    }
    let us = median_us(30, 1, || part.reduce::<Max, BLOCK>())?;
    print("part_max", PART, 1, 0, us);
    for len in [1 << 23, PART] {
        let first = part.slice(..1)?.to_vec()?[0];
        let mut all = Partial::<_, _, BLOCK>::new(Sum, len as u64, first);
        all.add(0, &part.slice(..len)?)?;
        let chunks = Partial::<Sum, f32, BLOCK>::plan(len as u64).chunks;
        let us = median_us(1000, 1, || all.finish())?;
        print("fold_sum", chunks as usize, 1, chunks, us);
    }
    Ok(())
}

/// Times all elements in 64 parts on one device.
fn many(device: &Device, len: usize) -> Result<(), Box<dyn Error>> {
    const PARTS: u32 = 64;
    let all = filled(device, &samples(1 << 26), len)?;
    let expected = all.reduce::<Sum, 1024>()?;
    let plan = Partial::<Sum, f32, 1024>::plan(len as u64);
    let of = |part| {
        let range = plan.part(part, PARTS);
        (range.start, all.slice(range.start as usize..range.end as usize))
    };
    let views: Vec<View<f32>> = (0..PARTS).map(|part| of(part).1).collect::<Result<_, _>>()?;
    let shards = Sharded::from(views);
    assert_eq!(shards.reduce::<Sum, 1024>()?.to_bits(), expected.to_bits(), "the bits differ");
    let us = median_us(20, 1, || shards.reduce::<Sum, 1024>())?;
    print_case::<f32>("gpu_reduce", "sum_shards", len, us);
    let first = all.slice(..1)?.to_vec()?[0];
    let us = median_us(20, 1, || {
        let mut whole = Partial::<_, _, 1024>::new(Sum, len as u64, first);
        for part in 0..PARTS {
            let (start, elements) = of(part);
            whole.add(start, &elements?)?;
        }
        whole.finish()
    })?;
    print_case::<f32>("gpu_reduce", "sum_partials", len, us);
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
