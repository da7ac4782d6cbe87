//! Inputs of so many chunks that their partial results fold by groups.

use crate::sharded::several;
use gpu_reduce::{
    Buffer, Device, Devices, Element, Item, Kernels, LogSumExp, Moments, Op, Partial, Plan, Reduce, Sharded,
    Sum, Var, f16, width,
};
use std::fmt::Debug;
use std::ops::Range;
use support::{gpu, hash, longest};

/// The least BLOCK, by which an input of a byte each has groups soonest.
const BLOCK: u32 = 32;

/// Elements of 17 groups, the last of which is not whole.
const LEN: usize = (1 << 25) + 12_345;

/// Cuts a range into uneven ranges.
fn uneven(len: u64, parts: u64) -> Vec<Range<u64>> {
    let mut cuts: Vec<u64> = (1..parts).map(|part| hash(part * len) % (len + 1)).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// Its accumulator is a hash of the whole tree that made it. It is so large that a thread folds one item at a
/// time.
#[derive(Clone, Copy, Default)]
struct Tree;

impl Tree {
    const NONE: [u64; 8] = [0; 8];
}

impl Op<u8> for Tree {
    type Accumulator = [u64; 8];
    type Output = u64;
    const NAME: &'static str = "tree";
    const EXACT: bool = false;
    const KERNELS: Kernels = Kernels::NONE;

    fn identity(&self) -> [u64; 8] {
        Self::NONE
    }

    fn lift(&self, item: u8, index: u64) -> [u64; 8] {
        let mut leaf = Self::NONE;
        leaf[0] = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(item);
        leaf
    }

    fn combine(&self, a: [u64; 8], b: [u64; 8]) -> [u64; 8] {
        match (a[0], b[0]) {
            (0, _) => b,
            (_, 0) => a,
            (left, right) => {
                let mut tree = Self::NONE;
                tree[0] = left.wrapping_mul(31).rotate_left(7) ^ right | 1;
                tree
            }
        }
    }

    fn finish(&self, all: [u64; 8], _: u64) -> Option<u64> {
        Some(all[0])
    }
}

/// The tree of the plan's description.
fn described(items: &[u8]) -> u64 {
    let plan = Plan::new(items.len() as u64, 1, BLOCK);
    let leaf = |index: usize| Tree.lift(items[index], index as u64);
    fn pairwise(values: &mut [[u64; 8]]) -> [u64; 8] {
        let mut stride = 1;
        while stride < values.len() {
            for left in (0..values.len() - stride).step_by(2 * stride) {
                values[left] = Tree.combine(values[left], values[left + stride]);
            }
            stride *= 2;
        }
        values[0]
    }
    let chunk = |chunk: u32| {
        let range = plan.range(chunk);
        let mut row = [Tree::NONE; BLOCK as usize];
        for index in range.start as usize..range.end as usize {
            let place = (index - range.start as usize) % BLOCK as usize;
            row[place] = Tree.combine(row[place], leaf(index));
        }
        pairwise(&mut row)
    };
    let chunks: Vec<_> = (0..plan.chunks).map(chunk).collect();
    let mut row = [Tree::NONE; 32];
    for (index, group) in chunks.chunks(1024).enumerate() {
        row[index % 32] = Tree.combine(row[index % 32], pairwise(&mut group.to_vec()));
    }
    pairwise(&mut row)[0]
}

#[test]
fn cpus_follow_the_plan() {
    assert_eq!(width::<Tree, u8>(1), 1);
    let items: Vec<u8> = (0..LEN).map(|index| (index * 7 + index / 1000) as u8).collect();
    let expected = described(&items);
    assert_eq!(items.by(Tree).block::<BLOCK>().run(), Ok(expected));
    // The same in parts, which come in any order.
    let plan = Partial::<Tree, u8, BLOCK>::plan(LEN as u64);
    assert_eq!(plan.groups(), 17);
    for parts in [2, 3, 64, 1000] {
        let mut all = Partial::<_, _, BLOCK>::new(Tree, LEN as u64, items[0]);
        for chunks in uneven(plan.chunks.into(), parts).iter().rev() {
            let range = plan.elements(chunks.start as u32..chunks.end as u32);
            all.add(range.start, &items[range.start as usize..range.end as usize]).unwrap();
        }
        assert_eq!(all.finish(), Ok(expected), "{parts} parts");
    }
}

/// Shards that begin anywhere, on one device after another.
fn shards<T: Element>(devices: &Devices, items: &[T], parts: u64) -> Sharded<Buffer<T>> {
    let places = devices.as_slice().iter().cycle();
    let parts = uneven(items.len() as u64, parts).into_iter().zip(places);
    let upload = |(range, device): (Range<u64>, &Device)| {
        device.upload(&items[range.start as usize..range.end as usize]).unwrap()
    };
    Sharded::from(parts.map(upload).collect::<Vec<_>>())
}

/// Compares a device with the CPU: whole, in shards, as segments, rows and columns.
fn check<O: Op<T, Output: PartialEq + Debug + Item> + Default, T: Element, const BLOCK: u32>(
    device: &Device,
    items: &[T],
    devices: &Devices,
) {
    let expected = items.reduce::<O, BLOCK>().unwrap();
    assert!(Partial::<O, T, BLOCK>::plan(items.len() as u64).groups() > 0);
    let x = device.upload(items).unwrap();
    let t = std::time::Instant::now();
    assert_eq!(x.reduce::<O, BLOCK>().unwrap(), expected, "whole");
    eprintln!("whole {:?}", t.elapsed());
    let stream = device.stream().unwrap();
    assert_eq!(x.reduce_async::<O, BLOCK>(&stream).wait().unwrap(), expected, "started");
    let stream = devices.stream().unwrap();
    for parts in [1, 2, 3, 64, 1000] {
        let shards = shards(devices, items, parts);
        assert_eq!(shards.reduce::<O, BLOCK>().unwrap(), expected, "{parts} shards");
        let mut result = device.zeros::<O::Output>(1).unwrap();
        // SAFETY: all stay until the stream has been waited for.
        unsafe { shards.reduce_into::<O, BLOCK>(&stream, &mut result).unwrap() };
        stream.synchronize().unwrap();
        assert_eq!(result.to_vec().unwrap(), [expected], "{parts} shards, enqueued");
    }
    // A segment that begins unaligned.
    let short = 1001;
    let offsets = [0, short as u64, items.len() as u64];
    let expected =
        [items[..short].reduce::<O, BLOCK>().unwrap(), items[short..].reduce::<O, BLOCK>().unwrap()];
    assert!(Partial::<O, T, BLOCK>::plan((items.len() - short) as u64).groups() > 0);
    let segments = x.segments(&offsets).unwrap().reduce::<O, BLOCK>().unwrap();
    assert_eq!(segments.to_vec().unwrap(), expected, "segments");
    // Two columns, from interleaved items.
    let column = |column| items.iter().copied().skip(column).chain(items[..column].iter().copied());
    let interleaved: Vec<T> = column(0).zip(column(5)).flat_map(|(a, b)| [a, b]).collect();
    let expected = [0, 5].map(|first| column(first).collect::<Vec<_>>().reduce::<O, BLOCK>().unwrap());
    let columns = device.upload(&interleaved).unwrap();
    let columns = columns.columns(2).unwrap().reduce::<O, BLOCK>().unwrap();
    assert_eq!(columns.to_vec().unwrap(), expected, "columns");
    let on_cpu = interleaved.columns(2).unwrap().reduce::<O, BLOCK>().unwrap();
    assert_eq!(on_cpu.to_vec().unwrap(), expected, "columns on the CPU");
}

#[test]
fn devices_have_the_bits_of_the_cpu() {
    let len = longest(width::<Moments, u8>(1) * LEN);
    let items: Vec<u8> = (0..len).map(|index| (index * 7 + index / 1000) as u8).collect();
    let Some(devices) = several() else { return };
    check::<Moments, u8, BLOCK>(&devices.as_slice()[0], &items, &devices);
}

/// Every BLOCK, and rows of full width: gigabytes, for a GPU.
#[test]
fn long_inputs_have_the_bits_of_the_cpu() {
    if gpu().is_none() {
        return;
    }
    let Some(devices) = several() else { return };
    let device = &devices.as_slice()[0];
    let bytes: Vec<u8> =
        (0..(1usize << 29) + 77_777).map(|index| (hash(index as u64 / 8) >> (index % 8)) as u8).collect();
    let floats: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte) * 0.37 - 20.0).collect();
    check::<Sum, f32, 32>(device, &floats[..(1 << 27) + 4321], &devices);
    check::<Sum, f32, 256>(device, &floats[..(1 << 28) + 4321], &devices);
    check::<Sum, f32, 1024>(device, &floats, &devices);
    check::<Var, f32, 512>(device, &floats[..(1 << 28) + 1], &devices);
    check::<LogSumExp, f32, 128>(device, &floats[..(1 << 28) + 1], &devices);
    check::<Moments, u8, 1024>(device, &bytes[..(1 << 27) + 99], &devices);
    check::<Sum, f16, 64>(
        device,
        &floats[..(1 << 29) + 99].iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>(),
        &devices,
    );
}
