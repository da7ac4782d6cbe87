//! More than 2^32 elements, on a GPU that has the memory: indices and counts reach past 32 bits.

use gpu_reduce::{
    ArgMax, ArgMin, ArgMinMax, CountNonzero, Max, Mean, MinMax, NanArgMax, Reduce, Sum, SumOfSquares, Var,
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
    // A few that are not 1, the largest and the smallest behind 2^32.
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
    assert_eq!(x.reduce::<SumOfSquares, 512>(), Ok(squares));
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
    // From a place of its own, with indices from there.
    let tail = x.slice(LEN - 3..).unwrap();
    assert_eq!(tail.reduce::<ArgMax, 256>(), Ok(0));
    assert_eq!(tail.reduce::<ArgMin, 256>(), Ok(2));
}
