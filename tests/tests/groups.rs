//! Inputs of so many chunks that their partial results fold by groups.

use crate::sharded::several;
use gpu_reduce::emulator::{self, Settings};
use gpu_reduce::{
    Block, Buffer, Device, Devices, Element, Item, LogSumExp, Moments, Op, Partial, Reduce, Sharded, Sum,
    Threads, Var, f16, width,
};
use std::fmt::Debug;
use std::ops::Range;
use support::{gpu, hash, process, takes_all};

/// Cuts a range into uneven ranges.
fn uneven(len: u64, parts: u64) -> Vec<Range<u64>> {
    let mut cuts: Vec<u64> = (1..parts).map(|part| hash(part * len) % (len + 1)).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    cuts.windows(2).map(|ends| ends[0]..ends[1]).collect()
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
    some: &[T],
    len: usize,
    devices: &Devices,
) where
    Threads<BLOCK>: Block,
{
    let items = &repeated(some, len)[..];
    let expected = items.reduce::<O, BLOCK>().unwrap();
    assert!(Partial::<O, T, BLOCK>::plan(items.len() as u64).groups() > 0);
    let x = device.upload(items).unwrap();
    assert_eq!(x.reduce::<O, BLOCK>().unwrap(), expected, "whole");
    // The emulator takes some seconds for each.
    let takes_all = !device.is_emulator() || takes_all();
    let stream = devices.stream().unwrap();
    for parts in [1, 2, 3, 64, 1000].into_iter().filter(|&parts| parts == 64 || takes_all) {
        let shards = shards(devices, items, parts);
        if takes_all {
            assert_eq!(shards.reduce::<O, BLOCK>().unwrap(), expected, "{parts} shards");
        }
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
    if takes_all {
        let row = x.slice(short..).unwrap();
        let row = row.rows(len - short).unwrap().reduce::<O, BLOCK>().unwrap();
        assert_eq!(row.to_vec().unwrap(), expected[1..], "a row");
    }
    // Two columns.
    let interleaved: Vec<T> =
        (0..some.len()).flat_map(|index| [some[index], some[(index + 5) % some.len()]]).collect();
    let interleaved = repeated(&interleaved, 2 * len);
    let mut second = some.to_vec();
    second.rotate_left(5);
    let columns = [items, &repeated(&second, len)].map(|column| column.reduce::<O, BLOCK>().unwrap());
    let on_device = device.upload(&interleaved).unwrap();
    let on_device = on_device.columns(2).unwrap().reduce::<O, BLOCK>().unwrap();
    assert_eq!(on_device.to_vec().unwrap(), columns, "columns");
    let on_cpu = interleaved.columns(2).unwrap().reduce::<O, BLOCK>().unwrap();
    assert_eq!(on_cpu.to_vec().unwrap(), columns, "columns on the CPU");
}

/// The items again and again, `len` in all.
fn repeated<T: Copy>(some: &[T], len: usize) -> Vec<T> {
    let mut all = some.repeat(len.div_ceil(some.len()));
    all.truncate(len);
    all
}

/// Some bytes. Their number is odd, so that chunks differ.
fn bytes() -> Vec<u8> {
    (0..(1 << 20) + 7).map(|index| (hash(index) >> 40) as u8).collect()
}

#[test]
#[cfg_attr(not(part = "4"), ignore = "of part 4")]
fn devices_have_the_bits_of_the_cpu() {
    // Other tests of this program need the checks of the emulator, with which this one would take minutes.
    if !process::is_own("groups::devices_have_the_bits_of_the_cpu", |_| {}) {
        return;
    }
    let Some(devices) = several() else { return };
    emulator::set_settings(Settings { checks: false, threads: 2, ..emulator::settings() });
    let len = (width::<Moments, u8>(1) << 25) + 12_345;
    check::<Moments, u8, 32>(&devices.as_slice()[0], &bytes(), len, &devices);
}

/// Segments and rows that are long, but have no groups. (For a BLOCK of 256 or less, all long ones have
/// groups.)
#[test]
#[cfg_attr(not(part = "5"), ignore = "of part 5")]
fn long_segments_without_groups_have_the_bits_of_their_slices() {
    // As above: the emulator checks nothing here.
    if !process::is_own("groups::long_segments_without_groups_have_the_bits_of_their_slices", |_| {}) {
        return;
    }
    let Some(devices) = several() else { return };
    let device = &devices.as_slice()[0];
    emulator::set_settings(Settings { checks: false, threads: 2, ..emulator::settings() });
    let floats: Vec<f32> = (0..(1 << 20) + 7).map(|index| (hash(index) >> 40) as f32 * 0.37 - 20.0).collect();
    let len = (1 << 28) + 4_321;
    let items = repeated(&floats, len);
    let plan = Partial::<Sum, f32, 512>::plan(len as u64);
    assert!(plan.groups() == 0 && plan.chunks > 512, "{plan:?}");
    let expected = [items[..77].reduce::<Sum, 512>().unwrap(), items[77..].reduce::<Sum, 512>().unwrap()];
    let x = device.upload(&items).unwrap();
    let segments = x.segments(&[0u64, 77, len as u64]).unwrap().reduce::<Sum, 512>().unwrap();
    assert_eq!(segments.to_vec().unwrap(), expected, "segments");
    let row = x.slice(77..).unwrap().rows(len - 77).unwrap().reduce::<Sum, 512>().unwrap();
    assert_eq!(row.to_vec().unwrap(), expected[1..], "a row");
}

/// Every BLOCK, and rows of full width: gigabytes, for a GPU.
#[test]
fn long_inputs_have_the_bits_of_the_cpu() {
    if gpu().is_none() {
        return;
    }
    let Some(devices) = several() else { return };
    let device = &devices.as_slice()[0];
    let bytes = bytes();
    let floats: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte) * 0.37 - 20.0).collect();
    let halves: Vec<f16> = floats.iter().map(|&x| f16::from_f32(x)).collect();
    check::<Sum, f32, 32>(device, &floats, (1 << 27) + 4321, &devices);
    check::<Sum, f32, 256>(device, &floats, (1 << 28) + 4321, &devices);
    check::<Sum, f32, 1024>(device, &floats, (1 << 30) + 77_777, &devices);
    check::<Var, f32, 512>(device, &floats, (1 << 29) + 4321, &devices);
    check::<LogSumExp, f32, 128>(device, &floats, (1 << 28) + 4321, &devices);
    check::<Moments, u8, 1024>(device, &bytes, (1 << 30) + 4321, &devices);
    check::<Sum, f16, 64>(device, &halves, (1 << 29) + 4321, &devices);
}
