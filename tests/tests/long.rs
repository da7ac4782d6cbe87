//! More than 2^32 elements, on a GPU with enough memory: indices and counts exceed 32 bits.

use gpu_reduce::{
    ArgMax, ArgMin, ArgMinMax, CountNonzero, Max, Mean, MinMax, NanArgMax, Reduce, Sum, SumSq, Var,
};
use support::gpu;

const LEN: usize = (1 << 32) + 5;

#[test]
fn indices_and_counts_reach_past_32_bits() {
    let Some(device) = gpu() else { return };
    let mut x = match device.zeros::<u8>(LEN) {
        Ok(x) => x,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    // A few elements that are not 1. The largest and the smallest lie behind 2^32.
    const MEGABYTE: usize = 1 << 20;
    let ones = vec![1u8; 64 * MEGABYTE];
    for start in (0..LEN).step_by(ones.len()) {
        x.write(start, &ones[..ones.len().min(LEN - start)]).unwrap();
    }
    for (index, value) in [(7, 200), ((1 << 32) - 1, 3), ((1 << 32) + 2, 255), ((1 << 32) + 4, 0)] {
        x.write(index, &[value]).unwrap();
    }
    let sum = LEN as u64 - 4 + 200 + 3 + 255;
    let squares = LEN as u64 - 4 + 200 * 200 + 3 * 3 + 255 * 255;
    assert_eq!(x.reduce::<Sum, 1024>(), Ok(sum));
    assert_eq!(x.reduce::<Sum, 32>(), Ok(sum));
    assert_eq!(x.reduce::<SumSq, 512>(), Ok(squares));
    assert_eq!(x.reduce::<Max, 256>(), Ok(255));
    assert_eq!(x.reduce::<MinMax, 1024>(), Ok([0, 255]));
    let (least, greatest) = ((1 << 32) + 4, (1 << 32) + 2);
    assert_eq!(x.reduce::<ArgMin, 1024>(), Ok(least));
    assert_eq!(x.reduce::<ArgMax, 32>(), Ok(greatest));
    assert_eq!(x.reduce::<NanArgMax, 512>(), Ok(greatest));
    assert_eq!(x.reduce::<ArgMinMax, 64>(), Ok([least, greatest]));
    assert_eq!(x.reduce::<CountNonzero, 1024>(), Ok(LEN as u64 - 1));
    let mean = sum as f64 / LEN as f64;
    assert_eq!(x.reduce::<Mean, 1024>(), Ok(mean));
    let (len, sum, squares) = (LEN as u128, u128::from(sum), u128::from(squares));
    let variance = (len * squares - sum * sum) as f64 / (LEN as f64 * LEN as f64);
    let got = x.reduce::<Var, 1024>().unwrap();
    assert!((got - variance).abs() <= 1e-12 * variance, "{got} {variance}");
    // A view from there on counts its indices from there.
    let tail = x.slice(LEN - 3..).unwrap();
    assert_eq!(tail.reduce::<ArgMax, 256>(), Ok(0));
    assert_eq!(tail.reduce::<ArgMin, 256>(), Ok(2));
}

#[test]
fn segments_reach_past_33_bits() {
    const LEN: usize = (1 << 33) + (1 << 20);
    let Some(device) = gpu() else { return };
    let mut x = match device.zeros::<u8>(LEN) {
        Ok(x) => x,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let (middle, last) = ((1 << 33) + 7, LEN - 1);
    for (index, value) in [(3, 9), (6, 2), (middle, 5), (last, 200)] {
        x.write(index, &[value]).unwrap();
    }
    let offsets = [0, 5, (1 << 33) + 9, (1 << 33) + 9, LEN as u64];
    let segments = x.segments(&offsets).unwrap();
    assert_eq!(segments.reduce::<Sum, 256>().unwrap().to_vec().unwrap(), [9, 7, 0, 200]);
    let places = segments.by(ArgMax).or(u64::MAX).block::<64>().run().unwrap().to_vec().unwrap();
    assert_eq!(places, [3, middle as u64 - 5, u64::MAX, (last - (1 << 33) - 9) as u64]);

    // More than 2^31 rows, and two rows.
    let rows = x.rows(4).unwrap().reduce::<Sum, 256>().unwrap();
    assert_eq!(rows.len(), LEN / 4);
    assert_eq!(rows.reduce::<Sum, 256>(), Ok(9 + 2 + 5 + 200));
    assert_eq!(rows.reduce::<ArgMax, 256>(), Ok(LEN as u64 / 4 - 1));
    assert_eq!(rows.slice(middle / 4..middle / 4 + 1).unwrap().to_vec().unwrap(), [5]);
    drop(rows);
    let halves = x.rows(LEN / 2).unwrap();
    assert_eq!(halves.reduce::<Sum, 512>().unwrap().to_vec().unwrap(), [9 + 2, 5 + 200]);

    // Columns of more than 2^32 items, and more than 2^32 columns.
    let columns = x.columns(2).unwrap();
    assert_eq!(columns.reduce::<Sum, 256>().unwrap().to_vec().unwrap(), [2, 9 + 5 + 200]);
    let columns = x.columns(LEN / 2).unwrap().reduce::<Sum, 256>().unwrap();
    assert_eq!(columns.reduce::<Sum, 256>(), Ok(9 + 2 + 5 + 200));
    assert_eq!(columns.slice(LEN / 2 - 1..).unwrap().to_vec().unwrap(), [200]);
}

#[test]
fn segments_are_more_than_31_bits_count() {
    const COUNT: usize = (1 << 31) + 3;
    let Some(device) = gpu() else { return };
    let offsets: Vec<u32> = (0..=COUNT as u32).collect();
    let on_device = device.zeros::<u8>(COUNT).and_then(|x| Ok((x, device.upload(&offsets)?)));
    let (mut x, on_device) = match on_device {
        Ok(both) => both,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    drop(offsets);
    for (index, value) in [(0, 4), (1 << 30, 7), (COUNT - 1, 8)] {
        x.write(index, &[value]).unwrap();
    }
    let sums = x.segments(&on_device).unwrap().reduce::<Sum, 256>().unwrap();
    assert_eq!(sums.len(), COUNT);
    assert_eq!(sums.reduce::<Sum, 256>(), Ok(4 + 7 + 8));
    assert_eq!(sums.reduce::<ArgMax, 256>(), Ok(COUNT as u64 - 1));
    assert_eq!(sums.slice(1 << 30..(1 << 30) + 1).unwrap().to_vec().unwrap(), [7]);
}
