//! Properties that hold for any data, on every device, with random inputs.

use gpu_reduce::{ArgMax, Block, Item, Max, Min, Op, Parameterless, Prod, Reduce, Sum, Threads, Var, f16};
use proptest::prelude::*;
use std::sync::LazyLock;
use support::devices;

static DEVICES: LazyLock<Vec<gpu_reduce::Device>> = LazyLock::new(devices);

/// Returns the result, which must be the same on all devices and for all containers of the data.
fn everywhere<O: Op<T> + Default, T: gpu_reduce::Element, const BLOCK: u32>(data: &[T]) -> O::Output
where
    Threads<BLOCK>: Block,
{
    let host = data.reduce::<O, BLOCK>().unwrap();
    for device in &*DEVICES {
        // With other data beside it, and not aligned.
        let mut padded = vec![T::zeroed(); 3];
        padded.extend_from_slice(data);
        padded.extend_from_slice(&[T::zeroed(); 5]);
        let buffer = device.upload(&padded).unwrap();
        let view = buffer.slice(3..3 + data.len()).unwrap();
        assert_eq!(bytes_of(&view.to_vec().unwrap()), bytes_of(data));
        assert_eq!(format!("{:?}", view.reduce::<O, BLOCK>().unwrap()), format!("{host:?}"), "{device}");
    }
    host
}

fn bytes_of<T: gpu_reduce::Element>(data: &[T]) -> &[u8] {
    bytemuck::cast_slice(data)
}

/// Checks the rows of `len` items from item `first` on, and as many segments with gaps between them: on every
/// device they have the bits of their slices.
fn rows_and_segments<O: Op<T, Output: Item> + Parameterless, T: gpu_reduce::Element>(
    first: usize,
    [rows, len]: [usize; 2],
    make: impl Fn(u64) -> T,
) {
    let data: Vec<T> = (0..(first + rows * len) as u64).map(|index| make(support::hash(index))).collect();
    let starts = (0..rows as u64).map(|row| first as u64 + row * len as u64);
    let offsets: Vec<u64> =
        starts.flat_map(|start| [start, start + support::hash(start) % len as u64]).collect();
    let alone = |range: std::ops::Range<usize>| {
        let value = data[range].by(O::default()).block::<256>().run();
        format!("{:?}", value.unwrap_or(bytemuck::Zeroable::zeroed()))
    };
    let of_rows: Vec<_> = (0..rows).map(|row| alone(first + row * len..first + (row + 1) * len)).collect();
    let of_segments: Vec<_> =
        offsets.windows(2).map(|ends| alone(ends[0] as usize..ends[1] as usize)).collect();
    for device in &*DEVICES {
        let x = device.upload(&data).unwrap();
        let got = x.slice(first..).unwrap().rows(len).unwrap().reduce::<O, 256>().unwrap().to_vec().unwrap();
        let got: Vec<_> = got.iter().map(|value| format!("{value:?}")).collect();
        assert_eq!(got, of_rows, "{} of {rows} rows of {len} from {first} on, {device}", O::NAME);
        let got =
            x.segments(&offsets).unwrap().by(O::default()).or(bytemuck::Zeroable::zeroed()).run().unwrap();
        let got: Vec<_> = got.to_vec().unwrap().iter().map(|value| format!("{value:?}")).collect();
        assert_eq!(got, of_segments, "{} of segments {offsets:?}, {device}", O::NAME);
    }
}

/// Numbers of rows and their lengths, half of which are multiples of a load.
fn any_rows() -> impl Strategy<Value = [usize; 2]> {
    let lengths = prop_oneof![1..700usize, (1..50usize).prop_map(|loads| 16 * loads)];
    (1..300usize, lengths).prop_map(|(rows, len)| [rows.min(20_000 / len).max(1), len])
}

/// Floats of all kinds: every bit pattern, with or without NaNs.
fn any_bits() -> impl Strategy<Value = Vec<f32>> {
    let bits = proptest::collection::vec(any::<u32>().prop_map(f32::from_bits), 1..5000);
    (bits, any::<bool>()).prop_map(|(floats, nan)| {
        floats.into_iter().map(|x| if x.is_nan() && !nan { f32::MIN_POSITIVE } else { x }).collect()
    })
}

proptest! {
    #![proptest_config(support::cases(64))]

    #[test]
    fn integer_sums_are_those_of_128_bits(data in proptest::collection::vec(any::<i32>(), 1..9000)) {
        let expected = data.iter().map(|&x| i128::from(x)).sum::<i128>() as i64;
        prop_assert_eq!(everywhere::<Sum, i32, 128>(&data), expected);
    }

    #[test]
    fn products_wrap(data in proptest::collection::vec(any::<u16>(), 1..9000)) {
        let expected = data.iter().fold(1u64, |product, &x| product.wrapping_mul(x.into()));
        prop_assert_eq!(everywhere::<Prod, u16, 64>(&data), expected);
    }

    #[test]
    fn extremes_are_elements_that_bound_all(data in any_bits()) {
        let (least, greatest) = (everywhere::<Min, f32, 256>(&data), everywhere::<Max, f32, 512>(&data));
        if data.iter().any(|x| x.is_nan()) {
            prop_assert!(least.is_nan() && greatest.is_nan());
        } else {
            prop_assert!(data.iter().all(|x| least.total_cmp(x).is_le() && greatest.total_cmp(x).is_ge()));
            prop_assert!(data.iter().any(|x| x.to_bits() == least.to_bits()));
            prop_assert!(data.iter().any(|x| x.to_bits() == greatest.to_bits()));
        }
    }

    #[test]
    fn sums_of_any_floats_have_the_same_bits_everywhere(data in any_bits()) {
        everywhere::<Sum, f32, 32>(&data);
        everywhere::<Prod, f32, 1024>(&data);
    }

    /// Integers up to 2^24 sum exactly in any order.
    #[test]
    fn exact_sums_are_exact(data in proptest::collection::vec(-1000i16..1000, 1..9000)) {
        let floats: Vec<f32> = data.iter().map(|&x| x.into()).collect();
        let expected: i32 = data.iter().map(|&x| i32::from(x)).sum();
        prop_assert_eq!(everywhere::<Sum, f32, 512>(&floats), expected as f32);
    }

    /// Rows that begin at a multiple of a load, and others, which are loaded in other ways.
    #[test]
    fn rows_and_segments_have_the_bits_of_their_slices(first in 0..4usize, shape in any_rows()) {
        rows_and_segments::<Sum, u8>(first, shape, |hash| hash as u8);
        rows_and_segments::<Max, f16>(first, shape, |hash| f16::from_bits(hash as u16));
        rows_and_segments::<ArgMax, f32>(first, shape, |hash| (hash % 100) as f32);
        rows_and_segments::<Var, f32>(first, shape, |hash| (hash % 100_000) as f32);
    }
}
