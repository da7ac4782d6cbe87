//! Exact sums compared with sums of big integers.

use gpu_reduce::{
    Block, Device, ExactDot, ExactElement, ExactMean, ExactSum, ExactSumTwofold, Item, Op, Reduce, Reducer,
    Sharded, Threads, View, bf16, exact_dot, exact_mean, exact_sum, f16,
};
use num_bigint::BigInt;
use proptest::prelude::*;
use std::fmt::Debug;
use std::sync::LazyLock;
use support::{devices, hash, is_of_part, is_taken};

/// A number is held as an integer that is divided by two to this power.
const SCALE: u32 = 1074 + 64;

/// A float format of results.
trait Format: Copy + Debug + PartialEq + Into<f64> {
    /// Magnitudes from here on round to infinity.
    fn limit() -> BigInt;
    fn neighbours(self) -> [f64; 2];
    /// Whether the last bit is zero.
    fn is_even(self) -> bool;
}

macro_rules! formats {
    ($($type:ident: $largest:literal $half:literal;)*) => {$(
        impl Format for $type {
            fn limit() -> BigInt {
                (BigInt::from(1) << ($largest + SCALE)) - (BigInt::from(1) << ($half + SCALE))
            }
            fn neighbours(self) -> [f64; 2] {
                [self.next_down().into(), self.next_up().into()]
            }
            fn is_even(self) -> bool {
                self.to_bits() % 2 == 0
            }
        }
    )*};
}

formats! {
    f32: 128 103;
    f64: 1024 970;
}

/// A finite number times 2^SCALE.
fn big(value: f64) -> BigInt {
    let bits = value.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as u32;
    let fraction = bits & ((1 << 52) - 1);
    let magnitude = if exponent > 0 { fraction | 1 << 52 } else { fraction };
    let big = BigInt::from(magnitude) << (exponent.max(1) - 1 + SCALE - 1074);
    if value.is_sign_negative() { -big } else { big }
}

/// Panics unless a number is the one nearest to an integer divided by 2^SCALE, or the even one of the two
/// nearest.
fn assert_nearest<R: Format>(got: R, exact: &BigInt, context: &str) {
    assert_nearest_at(got, exact, SCALE, context);
}

/// As [`assert_nearest`], for an integer divided by another power of two.
fn assert_nearest_at<R: Format>(got: R, exact: &BigInt, scale: u32, context: &str) {
    let big = |value: f64| big(value) << (scale - SCALE);
    let value: f64 = got.into();
    let magnitude = exact.magnitude();
    let is_negative = *exact < BigInt::ZERO;
    if value.is_infinite() || BigInt::from(magnitude.clone()) >= R::limit() << (scale - SCALE) {
        let infinity = if is_negative { f64::NEG_INFINITY } else { f64::INFINITY };
        assert!(
            BigInt::from(magnitude.clone()) >= R::limit() << (scale - SCALE) && value == infinity,
            "{context}: {got:?}"
        );
        return;
    }
    let distance = |other: f64| BigInt::from((exact - big(other)).magnitude().clone());
    let own = distance(value);
    for other in got.neighbours().into_iter().filter(|other| other.is_finite()) {
        let other = distance(other);
        assert!(own < other || (own == other && got.is_even()), "{context}: {got:?} of {exact}");
    }
    if *exact == BigInt::ZERO {
        assert_eq!(value.abs(), 0.0);
    } else if value == 0.0 {
        assert_eq!(value.is_sign_negative(), is_negative, "{context}");
    }
}

/// Uploads the items to every device but the CPU, not at an aligned address.
fn on_devices<T: Item>(items: &[T], mut check: impl FnMut(&Device, View<T>)) {
    static DEVICES: LazyLock<Vec<Device>> =
        LazyLock::new(|| devices().into_iter().filter(|device| !device.is_cpu()).collect());
    for device in DEVICES.iter() {
        if !device.is_emulator() || items.len() <= 30_000 {
            let before = items.len() % 5;
            let mut moved = vec![T::zeroed(); before];
            moved.extend(items);
            let buffer = device.upload(&moved).unwrap();
            check(device, buffer.slice(before..).unwrap());
        }
    }
}

/// The result that an operator leaves on the device.
fn left_there<O: Op<T, Output: Item> + Default, T: Item, const BLOCK: u32>(
    device: &Device,
    x: &View<T>,
) -> O::Output
where
    Threads<BLOCK>: Block,
{
    let mut place = device.zeros(1).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: both outlive what is enqueued, and nothing else uses them.
    unsafe { x.reduce_into::<O, BLOCK>(&stream, &mut place).unwrap() };
    stream.synchronize().unwrap();
    place.to_vec().unwrap()[0]
}

fn check<T: ExactElement + Item + Into<f64>>(items: &[T], context: &str)
where
    T::Rounded: Format + Item + Debug,
    T::Real: Format + Item,
{
    let exact: BigInt = items.iter().map(|&item| big(item.into())).sum();
    let sum = items.reduce::<ExactSum, 64>().unwrap();
    assert_nearest(sum, &exact, context);
    let shown = format!("{sum:?}");
    for got in [
        items.reduce::<ExactSum, 1024>().unwrap(),
        exact_sum(items).unwrap(),
        // Few items at a time take other instructions.
        pieces(items, 7),
        pieces(items, 1000),
    ] {
        assert_eq!(format!("{got:?}"), shown, "{context}");
    }
    let [nearest, rest] = items.reduce::<ExactSumTwofold, 64>().unwrap();
    assert_nearest(nearest, &exact, context);
    if nearest.is_finite() {
        assert_nearest(rest, &(exact.clone() - big(nearest)), context);
    }
    on_devices(items, |device, x| {
        let context = format!("{context} on {device}");
        assert_eq!(format!("{:?}", x.reduce::<ExactSum, 32>().unwrap()), shown, "{context}");
        assert_eq!(format!("{:?}", x.reduce::<ExactSum, 512>().unwrap()), shown, "{context}");
        assert_eq!(format!("{:?}", left_there::<ExactSum, T, 64>(device, &x)), shown, "{context}");
        assert_eq!(
            left_there::<ExactSumTwofold, T, 64>(device, &x).map(f64::to_bits),
            [nearest, rest].map(f64::to_bits),
            "{context}"
        );
        let mean = format!("{:?}", items.reduce::<ExactMean, 64>().unwrap());
        assert_eq!(format!("{:?}", left_there::<ExactMean, T, 128>(device, &x)), mean, "{context}");
    });
    if !items.is_empty() {
        // Compares the neighbours of the mean, all multiplied by the number of items.
        let mean = items.reduce::<ExactMean, 64>().unwrap();
        let count = BigInt::from(items.len());
        let value: f64 = mean.into();
        assert!(value.is_finite(), "{context}: {mean:?}");
        let distance = |other: f64| BigInt::from((exact.clone() - big(other) * &count).magnitude().clone());
        for other in mean.neighbours().into_iter().filter(|other| other.is_finite()) {
            let (own, other) = (distance(value), distance(other));
            assert!(own < other || (own == other && mean.is_even()), "{context}: mean {mean:?}");
        }
    }
}

fn pieces<T: ExactElement + Item>(items: &[T], len: usize) -> T::Rounded {
    let mut sum = Reducer::<_, T, 256>::new(ExactSum);
    items.chunks(len).for_each(|piece| sum.push(piece).unwrap());
    sum.finish().unwrap()
}

/// A float of a random sign and fraction, with an exponent from a range.
fn float64(hash: u64, exponents: std::ops::Range<i32>) -> f64 {
    let span = (exponents.end - exponents.start) as u64;
    let exponent = exponents.start
        + (hash.rotate_left(20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i32 % span as i32;
    let bits = hash & (1 << 63 | ((1 << 52) - 1));
    match exponent + 1023 {
        ..=0 => f64::from_bits(bits & (1 << 63 | ((1 << (52 + exponent + 1022).max(0)) - 1))),
        exponent => f64::from_bits(bits | (exponent as u64) << 52),
    }
}

const LENGTHS: [usize; 12] = [0, 1, 2, 15, 17, 31, 33, 100, 4095, 4097, 9000, 20_001];

#[test]
#[cfg_attr(not(part = "4"), ignore = "of part 4")]
fn magnitudes_of_every_spread() {
    for (turn, len) in LENGTHS.into_iter().enumerate() {
        let spreads = [(-1, 1), (-10, 10), (-30, 0), (-60, 60), (-126, 127), (-149, -120), (100, 127)];
        for (_, (low, high)) in spreads.into_iter().enumerate().filter(|(index, _)| is_taken(index + turn)) {
            let seed = 1_000_000 * turn as u64;
            let items: Vec<f64> = (0..len as u64).map(|i| float64(hash(seed + i), low..high)).collect();
            check(&items, &format!("{len} f64, {low}..{high}"));
            let singles: Vec<f32> = items.iter().map(|&item| item as f32).collect();
            check(&singles, &format!("{len} f32, {low}..{high}"));
            let halves: Vec<f16> = items.iter().map(|&item| f16::from_f64(item * 2f64.powi(-low))).collect();
            if halves.iter().all(|half| half.is_finite()) {
                check(&halves, &format!("{len} f16, {low}..{high}"));
            }
            let brains: Vec<bf16> = items.iter().map(|&item| bf16::from_f64(item)).collect();
            if brains.iter().all(|item| item.is_finite()) {
                check(&brains, &format!("{len} bf16, {low}..{high}"));
            }
        }
        let spreads = [(-1074, 1023), (-1074, -1000), (1000, 1023), (-500, 500), (990, 1020)];
        for (_, (low, high)) in spreads.into_iter().enumerate().filter(|(index, _)| is_taken(index + turn)) {
            let items: Vec<f64> = (0..len as u64).map(|i| float64(hash(77 + i), low..high)).collect();
            check(&items, &format!("{len} f64, {low}..{high}"));
        }
    }
}

#[test]
fn long_inputs_of_all_threads() {
    let items: Vec<f64> = (0..1_000_000).map(|i| float64(hash(i), -60..60)).collect();
    check(&items, "f64");
    let items: Vec<f32> = (0..1_000_000).map(|i| float64(hash(i), -3..0) as f32).collect();
    check(&items, "f32");
}

/// Sums that cancel almost completely.
#[test]
fn ill_conditioned_sums() {
    for condition in [10, 50, 200, 600, 1900] {
        let spread = (-condition / 2).max(-1000)..(condition / 2).min(1000);
        let mut items: Vec<f64> = (0..5000).map(|i| float64(hash(i), spread.clone())).collect();
        items.extend(items.clone().into_iter().map(|item| -item));
        items.push(2f64.powi(spread.start - 20));
        // In another order.
        items.sort_by_key(|item| hash(item.to_bits()));
        check(&items, &format!("condition 2^{condition}"));
        assert_eq!(exact_sum(&items), Ok(2f64.powi(spread.start - 20)));
    }
}

#[test]
fn ties_and_what_is_beside_them() {
    let half = f64::EPSILON / 2.0;
    let least = f64::from_bits(1);
    for (items, expected) in [
        (vec![1.0, half], 1.0),
        (vec![1.0, half, least], 1.0 + f64::EPSILON),
        (vec![1.0, half, -least], 1.0),
        (vec![1.0 + f64::EPSILON, half], 1.0 + 2.0 * f64::EPSILON),
        (vec![1.0 + f64::EPSILON, half, -least], 1.0 + f64::EPSILON),
        (vec![-1.0, -half], -1.0),
        (vec![-1.0, -half, -least], -1.0 - f64::EPSILON),
        (vec![1.0, -half / 2.0], 1.0),
        (vec![1.0, -half / 2.0, -least], 1.0 - half),
        (vec![least, least], 2.0 * least),
        (vec![f64::MIN_POSITIVE, -least], f64::MIN_POSITIVE - least),
        (vec![f64::MAX, f64::MAX, -f64::MAX], f64::MAX),
        (vec![f64::MAX, 2f64.powi(969)], f64::MAX),
        (vec![f64::MAX, 2f64.powi(970)], f64::INFINITY),
        (vec![f64::MAX, 2f64.powi(970), -least], f64::MAX),
        (vec![-f64::MAX, -(2f64.powi(970))], f64::NEG_INFINITY),
    ] {
        // With other items that cancel, so that every kind of instruction runs.
        for others in [0, 20, 5000] {
            let mut items = items.clone();
            items.extend((0..others).flat_map(|i| {
                let item = float64(hash(i), -300..300);
                [item, -item]
            }));
            for turn in 0..4 {
                let by = turn * items.len() / 5;
                items.rotate_left(by);
                assert_eq!(exact_sum(&items), Ok(expected), "{expected:e} among {others}");
            }
            if expected.is_finite() {
                check(&items, "ties");
            }
        }
    }
    let single = f32::EPSILON / 2.0;
    assert_eq!(exact_sum(&[1.0f32, single]), Ok(1.0));
    assert_eq!(exact_sum(&[1.0f32, single, f32::from_bits(1)]), Ok(1.0 + f32::EPSILON));
    assert_eq!(exact_sum(&[f32::MAX, f32::MAX, -f32::MAX]), Ok(f32::MAX));
    assert_eq!(exact_sum(&[f32::MAX, 2f32.powi(103)]), Ok(f32::INFINITY));
}

#[test]
fn what_is_no_number_and_zeros() {
    let of = |items: &[f64]| {
        let (few, mut many) = (exact_sum(items).unwrap(), items.to_vec());
        many.resize(10_000, items.last().copied().unwrap_or(0.0) * 0.0);
        let many = exact_sum(&many).unwrap();
        assert!(few.to_bits() == many.to_bits() || few.is_nan() && many.is_nan(), "{items:?}: {few} {many}");
        few
    };
    let infinity = f64::INFINITY;
    assert_eq!(exact_sum(&[1.0, infinity, 1e300]), Ok(infinity));
    assert_eq!(exact_sum(&[1.0, -infinity]), Ok(-infinity));
    assert!(exact_sum(&[infinity, -infinity]).unwrap().is_nan());
    assert!(of(&[f64::NAN, 1.0]).is_nan());
    assert!(of(&[infinity, f64::NAN]).is_nan());
    assert_eq!(of(&[-0.0, -0.0]).to_bits(), (-0.0f64).to_bits());
    assert_eq!(of(&[-0.0, 0.0]).to_bits(), 0);
    assert_eq!(of(&[1.5, -1.5, -0.0]).to_bits(), 0);
    assert_eq!(exact_sum::<[f64]>(&[]).unwrap().to_bits(), 0);
    assert_eq!(
        [f32::NAN].reduce::<ExactSumTwofold, 32>().map(|[sum, rest]| (sum.is_nan(), rest)),
        Ok((true, 0.0))
    );
    assert_eq!([infinity].reduce::<ExactSumTwofold, 32>(), Ok([infinity, 0.0]));
    assert!(exact_mean::<[f64]>(&[]).unwrap().is_nan());
    assert_eq!(exact_mean(&[-0.0f32, -0.0]).unwrap().to_bits(), (-0.0f32).to_bits());
    assert_eq!(exact_mean(&[f64::MAX; 100]), Ok(f64::MAX));
    assert_eq!(exact_mean(&[f64::from_bits(1), 0.0, 0.0]), Ok(0.0));
    assert_eq!(exact_mean(&[f64::from_bits(1), f64::from_bits(1), 0.0]), Ok(f64::from_bits(1)));
}

#[test]
fn integers() {
    macro_rules! types {
        ($($type:ident)*) => {$(
            for len in [0u64, 1, 33, 4097, 100_000] {
                let items: Vec<$type> = (0..len).map(|i| match hash(i) % 3 {
                    0 => $type::MAX,
                    1 => $type::MIN,
                    _ => hash(i) as $type,
                }).collect();
                let exact: i128 = items.iter().map(|&item| i128::from(item)).sum();
                assert_eq!(exact_sum(&items), Ok(exact));
                assert_eq!(items.reduce::<ExactSum, 32>(), Ok(exact));
                if len > 0 {
                    let mean = exact_mean(&items).unwrap();
                    let distance = |other: f64| {
                        BigInt::from(((BigInt::from(exact) << SCALE) - big(other) * len).magnitude().clone())
                    };
                    assert!([mean.next_down(), mean.next_up()].iter().all(|&other| distance(mean) <= distance(other)));
                }
            }
            let most = vec![$type::MAX; 5000];
            assert_eq!(exact_sum(&most), Ok(5000 * i128::from($type::MAX)));
        )*};
    }
    types! { i8 i16 i32 i64 u8 u16 u32 u64 }
    assert_eq!([u64::MAX; 3].reduce::<ExactSumTwofold, 32>(), Ok([3.0 * 2f64.powi(64), -3.0]));
}

/// Products of exact sums, in the scale of a product.
fn check_dot<T: gpu_reduce::ExactFactor + Item + Into<f64>>(a: &[T], b: &[T], context: &str)
where
    T::Rounded: Format,
{
    let product = |(&a, &b): (&T, &T)| big(a.into()) * big(b.into());
    let exact: BigInt = a.iter().zip(b).map(product).sum();
    // Keeps a bit that says whether anything was cut off.
    let places = BigInt::from(1) << SCALE;
    let (whole, rest) = (&exact / &places, &exact % &places);
    let got = exact_dot(a, b).unwrap();
    let few = (a, b).reduce::<ExactDot, 32>().unwrap();
    assert_eq!(format!("{got:?}"), format!("{few:?}"), "{context}");
    let doubled: BigInt =
        whole * 4 + if rest == BigInt::ZERO { BigInt::ZERO } else { BigInt::from(rest.sign() as i8 - 1) };
    assert_nearest_at(got, &doubled, SCALE + 2, context);
}

#[test]
fn dot_products() {
    for (turn, len) in LENGTHS.into_iter().enumerate() {
        for spread in [1, 10, 60, 120, 500] {
            let at =
                |i: usize, which: u64| float64(hash(2 * (1000 * turn + i) as u64 + which), -spread..spread);
            let (a, b): (Vec<f64>, Vec<f64>) = (0..len).map(|i| (at(i, 0), at(i, 1))).unzip();
            check_dot(&a, &b, &format!("{len} f64, {spread}"));
            if spread <= 120 {
                let single = |items: &[f64]| items.iter().map(|&item| item as f32).collect::<Vec<_>>();
                check_dot(&single(&a), &single(&b), &format!("{len} f32, {spread}"));
                let brain =
                    |items: &[f64]| items.iter().map(|&item| bf16::from_f64(item)).collect::<Vec<_>>();
                check_dot(&brain(&a), &brain(&b), &format!("{len} bf16, {spread}"));
            }
            if spread <= 10 {
                let half = |items: &[f64]| items.iter().map(|&item| f16::from_f64(item)).collect::<Vec<_>>();
                check_dot(&half(&a), &half(&b), &format!("{len} f16, {spread}"));
            }
        }
        // Products that no float represents.
        let at = |i: usize, which: u64| float64(hash(2 * i as u64 + which), -700..-300);
        let (a, b): (Vec<f64>, Vec<f64>) = (0..len).map(|i| (at(i, 0), at(i, 1))).unzip();
        check_dot(&a, &b, "small products");
        let (mut twice, mut against) = (a.clone(), b.clone());
        twice.extend(&a);
        against.extend(b.iter().map(|item| -item));
        check_dot(&twice, &against, "products that cancel");
    }
    let least = f64::from_bits(1);
    assert_eq!(exact_dot(&[least, 1.0], &[least, 1.0]), Ok(1.0));
    assert_eq!(exact_dot(&[1.0, f64::EPSILON / 2.0, least], &[1.0, 1.0, least]), Ok(1.0 + f64::EPSILON));
    assert_eq!(exact_dot(&[f64::MAX, f64::MAX, 1.0], &[2.0, -2.0, 3.0]), Ok(3.0));
    assert!(exact_dot(&[f64::INFINITY], &[0.0]).unwrap().is_nan());
    assert_eq!(exact_dot(&[f64::INFINITY, 1.0], &[-1.0, 2.0]), Ok(f64::NEG_INFINITY));
    assert_eq!(exact_dot(&[-0.0f32], &[1.0f32]).unwrap().to_bits(), (-0.0f32).to_bits());
    let (a, b): (Vec<i32>, Vec<i32>) = (0..5000).map(|i| (hash(i) as i32, hash(i + 5000) as i32)).unzip();
    let exact = a.iter().zip(&b).map(|(&a, &b)| i128::from(a) * i128::from(b)).sum();
    assert_eq!(exact_dot(&a, &b), Ok(exact));
}

/// The exact dot product by integers, for any factors.
fn expected_dot(a: &[f64], b: &[f64]) -> f64 {
    let products = || a.iter().zip(b).map(|(&a, &b)| (a, b, a * b));
    let is_infinite = |a: f64, b: f64| a.is_infinite() || b.is_infinite();
    // A product of finite factors is finite, though `a * b` may be infinite.
    let infinities: f64 =
        products().filter(|&(a, b, _)| is_infinite(a, b)).map(|(.., product)| product).sum();
    if infinities != 0.0 || products().any(|(a, b, _)| a.is_nan() || b.is_nan()) {
        return infinities
            + if products().any(|(a, b, _)| a.is_nan() || b.is_nan()) { f64::NAN } else { 0.0 };
    }
    let exact: BigInt = products().map(|(a, b, _)| big(a) * big(b)).sum();
    if exact == BigInt::ZERO {
        let is_minus_zero = !a.is_empty() && products().all(|(.., product)| product.to_bits() == 1 << 63);
        return if is_minus_zero { -0.0 } else { 0.0 };
    }
    // The nearest of all floats, by bisection of their bits: bits and magnitudes have the same order.
    let magnitude = BigInt::from(exact.magnitude().clone()) * 4;
    let big = |bits: u64| big(f64::from_bits(bits)) << SCALE;
    let (mut low, mut high) = (0, f64::MAX.to_bits());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if big(middle) * 4 <= magnitude { low = middle } else { high = middle - 1 }
    }
    let next = if low == f64::MAX.to_bits() { BigInt::from(1) << (1024 + 2 * SCALE) } else { big(low + 1) };
    let half = (big(low) + next) * 2;
    let is_up = magnitude > half || magnitude == half && low % 2 != 0;
    let nearest = f64::from_bits(low + u64::from(is_up));
    if exact < BigInt::ZERO { -nearest } else { nearest }
}

/// The items as two shards, cut at an index.
fn halves(x: View<'_, f64>, at: usize) -> Sharded<View<'_, f64>> {
    Sharded::from(vec![x.slice(..at).unwrap(), x.slice(at..).unwrap()])
}

/// Products that overflow or underflow an `f64`, and factors that are not finite, in every shape.
#[test]
#[cfg_attr(not(part = "2"), ignore = "of part 2")]
fn dot_products_of_any_magnitude() {
    let same =
        |got: f64, expected: f64| got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
    let infinity = f64::INFINITY;
    let least = f64::from_bits(1);
    let special = [1e200, -1e200, 1e-200, f64::MAX, -f64::MAX, f64::MIN_POSITIVE, least, 1.5, -0.0, 0.0];
    let odd = [infinity, -infinity, f64::NAN];
    let mut cases: Vec<(Vec<f64>, Vec<f64>)> = vec![
        (vec![1e200], vec![1e200]),
        (vec![1e200], vec![-1e200]),
        (vec![1e200, 1e200], vec![1e200, -1e200]),
        (vec![1e200, 1e200, 3.0], vec![1e200, -1e200, 0.5]),
        (vec![f64::MAX, f64::MAX, least], vec![f64::MAX, -f64::MAX, least]),
        (vec![1e308, 1e308], vec![10.0, -9.5]),
        (vec![infinity, 1e200], vec![1.0, -1e200]),
        (vec![infinity], vec![0.0]),
        (vec![least, least], vec![0.5, 0.5]),
        (vec![least], vec![0.5]),
    ];
    for len in [1, 2, 5, 33, 200, 1_500] {
        for seed in 0..6 {
            let of = |index: u64| {
                let hash = hash(1_000 * seed + index);
                match seed {
                    0 => special[hash as usize % special.len()],
                    1 if hash.is_multiple_of(97) => odd[hash as usize / 97 % odd.len()],
                    1 | 2 => float64(hash, 500..540),
                    3 => float64(hash, -560..-500),
                    4 => float64(hash, -1074..1024),
                    _ if hash.is_multiple_of(50) => float64(hash, 500..520),
                    _ => float64(hash, -2..2),
                }
            };
            let a: Vec<f64> = (0..len).map(|index| of(2 * index)).collect();
            let b: Vec<f64> = (0..len).map(|index| of(2 * index + 1)).collect();
            // Again with every product twice, once of each sign.
            let (mut twice, mut against) = (a.clone(), b.clone());
            twice.extend(&a);
            against.extend(b.iter().map(|factor| -factor));
            cases.extend([(a, b), (twice, against)]);
        }
    }
    for (index, (a, b)) in cases.iter().enumerate().filter(|&(index, _)| is_of_part(index)) {
        let (context, len) = (format!("case {index} of {}", a.len()), a.len());
        let expected = expected_dot(a, b);
        let of = |range: std::ops::Range<usize>| expected_dot(&a[range.clone()], &b[range]);
        let third = len / 3;
        let offsets = [0, third as u32, third as u32, len as u32];
        let of_segments = [of(0..third), 0.0, of(third..len)];
        let count = [7, 5, 4, 3, 2, 1].into_iter().find(|&count| len.is_multiple_of(count)).unwrap_or(1);
        let length = len / count;
        let of_rows: Vec<f64> = (0..count).map(|row| of(row * length..(row + 1) * length)).collect();
        let of_columns: Vec<f64> = (0..count)
            .map(|column| {
                let pick =
                    |items: &[f64]| items.iter().skip(column).step_by(count).copied().collect::<Vec<_>>();
                expected_dot(&pick(a), &pick(b))
            })
            .collect();
        for device in devices() {
            let context = format!("{context} on {device}");
            let check = |got: f64, expected: f64, how: &str| {
                assert!(same(got, expected), "{how}, {context}: {got:e} instead of {expected:e}");
            };
            let (x, y) = (device.upload(a).unwrap(), device.upload(b).unwrap());
            let pair = (&x, &y);
            check(pair.reduce::<ExactDot, 32>().unwrap(), expected, "block 32");
            check(exact_dot(&x, &y).unwrap(), expected, "default block");
            let all = |got: gpu_reduce::Buffer<f64>, expected: &[f64], how: &str| {
                let got = got.to_vec().unwrap();
                assert_eq!(got.len(), expected.len());
                got.iter().zip(expected).for_each(|(&got, &expected)| check(got, expected, how));
            };
            all(pair.segments(&offsets).unwrap().reduce::<ExactDot, 64>().unwrap(), &of_segments, "segments");
            all(pair.rows(length).unwrap().reduce::<ExactDot, 64>().unwrap(), &of_rows, "rows");
            all(pair.columns(count).unwrap().reduce::<ExactDot, 64>().unwrap(), &of_columns, "columns");
            if !device.is_cpu() {
                let (x, y) = (halves(x.view(), third), halves(y.view(), third));
                check((&x, &y).reduce::<ExactDot, 32>().unwrap(), expected, "shards");
            }
        }
    }
}

/// Segments, rows, columns and runs of keys: each has the sum of its items.
#[test]
#[cfg_attr(not(part = "3"), ignore = "of part 3")]
fn shapes() {
    fn of<T: ExactElement<Rounded: Item> + Item>(items: Vec<T>) {
        let alone = |items: &[T]| exact_sum(items).unwrap();
        let column = |column| items.iter().skip(column).step_by(60).copied().collect::<Vec<_>>();
        let offsets = [0u32, 1, 1, 700, 5999];
        let keys: Vec<i32> = (0..6000).map(|i| i / 7).collect();
        for device in devices() {
            let x = device.upload(&items).unwrap();
            let rows = x.rows(60).unwrap().reduce::<ExactSum, 64>().unwrap().to_vec().unwrap();
            assert_eq!(rows, items.chunks(60).map(alone).collect::<Vec<_>>(), "{device}");
            let columns = x.columns(60).unwrap().reduce::<ExactSum, 64>().unwrap().to_vec().unwrap();
            assert_eq!(columns, (0..60).map(|index| alone(&column(index))).collect::<Vec<_>>(), "{device}");
            let segments = x.segments(&offsets).unwrap().reduce::<ExactSum, 64>().unwrap().to_vec().unwrap();
            let of_segment = |pair: &[u32]| alone(&items[pair[0] as usize..pair[1] as usize]);
            assert_eq!(segments, offsets.windows(2).map(of_segment).collect::<Vec<_>>(), "{device}");
            let runs = device.upload(&keys).unwrap().runs().unwrap();
            let of_keys = x.segments(&runs).unwrap().reduce::<ExactSum, 64>().unwrap().to_vec().unwrap();
            assert_eq!(of_keys, items.chunks(7).map(alone).collect::<Vec<_>>(), "{device}");
        }
    }
    let items: Vec<f64> = (0..6000).map(|i| float64(hash(i), -40..40)).collect();
    of(items.iter().map(|&item| item as f32).collect());
    of(items.iter().map(|&item| bf16::from_f64(item)).collect());
    of(items);
    of((0..6000).map(|i| float64(hash(i), -1074..1020)).collect::<Vec<f64>>());
    of((0..6000).map(|i| hash(i) as i64).collect::<Vec<i64>>());
}

/// Rows and segments of lengths at which blocks begin to sum them, have more threads, or share one; from any item on.
#[test]
fn rows_and_segments_of_any_length() {
    fn check<O: Op<T, Output: Item> + Default, T: ExactElement + Item>(items: &[T], lengths: &[usize]) {
        let alone = |items: &[T]| format!("{:?}", items.reduce::<O, 64>().unwrap());
        for device in devices() {
            let x = device.upload(items).unwrap();
            for (index, &length) in lengths.iter().enumerate() {
                let start = [0, 1, 2, 3, 5][index % 5];
                let count = (3 * 300 / length).clamp(1, 300).min((items.len() - start) / length);
                let part = &items[start..start + count * length];
                let context = format!(
                    "{count} of {length} from {start}, {} on {device}",
                    std::any::type_name::<(O, T)>()
                );
                let slice = x.slice(start..start + count * length).unwrap();
                let rows = slice.rows(length).unwrap();
                let rows = rows.reduce::<O, 64>().unwrap().to_vec().unwrap();
                for (row, items) in rows.iter().zip(part.chunks(length)) {
                    assert_eq!(format!("{row:?}"), alone(items), "rows, {context}");
                }
                // The same, each with an empty segment and one of a single item beside it.
                let ends = (0..count).flat_map(|row| [row * length, row * length, row * length + 1]);
                let offsets: Vec<u64> =
                    ends.chain([count * length]).map(|end| (start + end) as u64).collect();
                let segments = x.segments(&offsets).unwrap().reduce::<O, 64>().unwrap().to_vec().unwrap();
                for (segment, pair) in segments.iter().zip(offsets.windows(2)) {
                    let expected = alone(&items[pair[0] as usize..pair[1] as usize]);
                    assert_eq!(format!("{segment:?}"), expected, "{pair:?}, segments, {context}");
                }
            }
        }
    }
    let items: Vec<f64> = (0..70_010)
        .map(|index| match hash(index) {
            hash if hash % 5000 == 0 => {
                [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][hash as usize / 5000 % 3]
            }
            hash if index < 3000 => float64(hash, -1074..1020),
            hash if index < 6000 && hash % 2 == 0 => -0.0,
            hash => float64(hash, -40..40),
        })
        .collect();
    let lengths = [1, 2, 33, 95, 96, 97, 128, 257, 511, 512, 513, 1025, 2049, 4097, 8191, 20_003, 70_001];
    check::<ExactSum, f64>(&items, &lengths);
    check::<ExactSumTwofold, f64>(&items, &lengths[10..15]);
    check::<ExactMean, f64>(&items, &lengths[3..6]);
    let narrow: Vec<f32> = items.iter().map(|&item| item as f32).collect();
    check::<ExactMean, f32>(&narrow, &lengths);
    check::<ExactSumTwofold, f32>(&narrow, &lengths[4..12]);
    let narrow: Vec<bf16> = items.iter().map(|&item| bf16::from_f64(item)).collect();
    check::<ExactSum, bf16>(&narrow, &lengths[..15]);
}

/// Rows and segments of pairs whose arrays begin at different bytes of a load.
#[test]
fn rows_and_segments_of_pairs() {
    fn check<T: gpu_reduce::ExactFactor + Item>(items: &[T])
    where
        T::Rounded: Item,
    {
        for device in devices() {
            let x = device.upload(items).unwrap();
            for (start, length) in [(0, 300), (1, 300), (3, 6), (1, 1500)] {
                let (a, b) = (&items[start..start + 3000], &items[3000..6000]);
                let alone = |range: std::ops::Range<usize>| {
                    format!("{:?}", (&a[range.clone()], &b[range]).reduce::<ExactDot, 64>().unwrap())
                };
                let pair = (x.slice(start..start + 3000).unwrap(), x.slice(3000..6000).unwrap());
                let rows = pair.rows(length).unwrap().reduce::<ExactDot, 64>().unwrap().to_vec().unwrap();
                for (row, got) in rows.iter().enumerate() {
                    let range = row * length..(row + 1) * length;
                    assert_eq!(
                        format!("{got:?}"),
                        alone(range),
                        "row {row} of {length} from {start} on {device}"
                    );
                }
                let offsets = [0u64, 1, 1, length as u64, 3000];
                let segments = pair.segments(&offsets).unwrap().reduce::<ExactDot, 64>().unwrap();
                for (got, pair) in segments.to_vec().unwrap().iter().zip(offsets.windows(2)) {
                    let range = pair[0] as usize..pair[1] as usize;
                    assert_eq!(format!("{got:?}"), alone(range), "segment {pair:?} from {start} on {device}");
                }
            }
        }
    }
    let items: Vec<f64> = (0..6000).map(|index| float64(hash(index), -500..500)).collect();
    check(&items);
    check(&items.iter().map(|&item| item as f32).collect::<Vec<_>>());
    check(&items.iter().map(|&item| bf16::from_f64(item)).collect::<Vec<_>>());
}

/// A run of more items than a block adds between two propagations of carries, whose number is on the device alone.
#[test]
fn a_run_of_many_items() {
    for device in devices() {
        let len = if device.is_cpu() || device.is_emulator() { 1 << 17 } else { (1 << 25) + 1000 };
        let items: Vec<f64> = (0..len as u64).map(|index| float64(hash(index), -300..300)).collect();
        let keys = vec![7u8; len];
        let runs = device.upload(&keys).unwrap().runs().unwrap();
        let x = device.upload(&items).unwrap();
        let sums = x.segments(&runs).unwrap().reduce::<ExactSum, 64>().unwrap().to_vec().unwrap();
        assert_eq!(sums, [exact_sum(&items).unwrap()], "{device}");
    }
}

/// As many items as make a warp empty its integers, with the largest items that its windows take.
#[test]
fn many_of_the_largest_items() {
    for device in devices() {
        // On a GPU enough tiles for each warp, elsewhere enough for the CPU's blocks.
        let len = if device.is_cpu() || device.is_emulator() { 1 << 21 } else { 1 << 27 };
        for sign in [1.0f32, -1.0] {
            let item = sign * (8.0f32).next_down();
            let mut items = vec![item; len];
            items[0] = 1.0;
            let x = device.upload(&items).unwrap();
            let exact = big(item.into()) * (len - 1) + big(1.0);
            assert_nearest(x.reduce::<ExactSum, 32>().unwrap(), &exact, &format!("f32 on {device}"));
            assert_nearest(
                x.reduce::<ExactSumTwofold, 32>().unwrap()[0],
                &exact,
                &format!("f32 on {device}"),
            );
            let item = f64::from(sign) * (8.0f64).next_down();
            let mut items = vec![item; len / 4];
            items[0] = 1.0;
            let x = device.upload(&items).unwrap();
            let exact = big(item) * (len / 4 - 1) + big(1.0);
            assert_nearest(x.reduce::<ExactSum, 32>().unwrap(), &exact, &format!("f64 on {device}"));
        }
        // The largest items of all, for which the first window has no room above.
        let item = f32::from_bits(((122 + 127) << 23) - 1);
        let items = vec![item; 100_000];
        let sum = device.upload(&items).unwrap().reduce::<ExactSumTwofold, 64>().unwrap();
        assert_nearest(sum[0], &(big(item.into()) * 100_000), &format!("f32 on {device}"));
    }
}

proptest! {
    #![proptest_config(support::cases(100))]

    #[test]
    fn any_bits(bits in proptest::collection::vec(any::<u64>(), 0..300), spread in 1..2098i32, start in 0..2098i32) {
        let low = (start - 1074).min(1023 - spread).max(-1074);
        let items: Vec<f64> = bits.iter().map(|&bits| float64(bits, low..(low + spread).min(1024))).collect();
        check(&items, "f64");
        let items: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits as u32)).filter(|item| item.is_finite()).collect();
        check(&items, "f32");
    }

    /// Partial sums add in any order and grouping.
    #[test]
    fn partial_sums_add_in_any_order(bits in proptest::collection::vec(any::<u32>(), 1..100), seed in any::<u64>()) {
        let items: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits)).collect();
        let mut sums: Vec<_> = items.iter().map(|&item| ExactSum.lift(item, 0)).collect();
        let mut turn = seed;
        while sums.len() > 1 {
            turn = hash(turn);
            let one = sums.swap_remove(turn as usize % sums.len());
            let place = turn.rotate_left(32) as usize % sums.len();
            sums[place] = <ExactSum as Op<f32>>::combine(&ExactSum, one, sums[place]);
        }
        let got = <ExactSum as Op<f32>>::finish(&ExactSum, sums[0], items.len() as u64).unwrap();
        let expected = exact_sum(&items).unwrap();
        prop_assert!(got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan());
    }
}

#[test]
fn the_mean_of_a_sum_of_no_items_is_nan() {
    let of = |value: f64| <f64 as ExactElement>::mean(Op::<f64>::lift(&ExactMean, value, 0), 0);
    for value in [0.0, -0.0, 1.0, -3.5e300, f64::INFINITY, f64::NAN, 5e-324] {
        assert!(of(value).is_nan(), "{value}");
    }
    assert!(<f32 as ExactElement>::mean(Op::<f32>::lift(&ExactMean, 2.0, 0), 0).is_nan());
    assert!(<i64 as ExactElement>::mean(Op::<i64>::lift(&ExactMean, 2, 0), 0).is_nan());
}
