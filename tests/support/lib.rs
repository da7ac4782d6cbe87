//! Shared by the test programs: the devices under test, input data, lengths, and the independent reference.

pub mod example;
pub mod process;
pub mod reference;

use gpu_reduce::{Device, Element, Plan, bf16, f16};
use proptest::test_runner::Config as ProptestConfig;
use rayon::prelude::*;

/// Every device under test: first the CPU, then the first GPU, or the emulator if there is none.
pub fn devices() -> Vec<Device> {
    let emulator = || Device::emulator().inspect_err(|why| eprintln!("skipped on the emulator: {why}")).ok();
    [Some(Device::cpu()), gpu().or_else(emulator)].into_iter().flatten().collect()
}

/// The first GPU, or `None` with a printed reason.
pub fn gpu() -> Option<Device> {
    match Device::cuda(0) {
        Ok(device) if device.is_emulator() => {
            eprintln!("skipped on a GPU: the emulator takes its place");
            None
        }
        Ok(device) => Some(device),
        Err(why) => {
            eprintln!("skipped on a GPU: {why}");
            None
        }
    }
}

/// The longest input of a test: the value of `GPU_REDUCE_TEST_LEN`, or `len` if that is not set.
pub fn longest(len: usize) -> usize {
    match std::env::var("GPU_REDUCE_TEST_LEN") {
        Ok(text) => text.parse().expect("GPU_REDUCE_TEST_LEN is a number of elements"),
        Err(_) => len,
    }
}

/// Whether a test takes this case of many alike: every fifth, with `GPU_REDUCE_TEST_PART` a third of these, or all if
/// `GPU_REDUCE_TEST_ALL` is set. Tests count their cases on from another number for each operator, type or BLOCK, so that
/// together they take all.
pub fn is_taken(case: usize) -> bool {
    takes_all() || case.is_multiple_of(5) && is_of_part(case / 5)
}

/// Whether a test takes this case: all of them, or with `GPU_REDUCE_TEST_PART` a third.
pub fn is_of_part(case: usize) -> bool {
    PART.is_none_or(|part| case % 3 == part)
}

/// The part of the tests that `GPU_REDUCE_TEST_PART` has picked.
const PART: Option<usize> = if cfg!(part = "0") {
    Some(0)
} else if cfg!(part = "1") {
    Some(1)
} else if cfg!(part = "2") {
    Some(2)
} else {
    None
};

/// Whether `GPU_REDUCE_TEST_ALL` is set.
pub fn takes_all() -> bool {
    std::env::var_os("GPU_REDUCE_TEST_ALL").is_some()
}

/// The configuration of a property test: `cases` random cases, or `PROPTEST_CASES` if that is set.
pub fn cases(cases: u32) -> ProptestConfig {
    let set = std::env::var_os("PROPTEST_CASES").is_some();
    let of_environment = ProptestConfig::default();
    let cases = if set { of_environment.cases } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..of_environment }
}

/// A hash of an index, from which all test data are made (a multiply-xorshift mixer, as in SplitMix64).
pub fn hash(index: u64) -> u64 {
    let mut h = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// Input data of each type.
pub trait Sample: Element {
    /// For sums, minima and maxima: integers of the whole range, floats uniformly in ±0.5.
    fn any(hash: u64) -> Self;

    /// For products: odd integers, and floats of which all but one in 4,096 are ±1, so that neither a product
    /// of 2^30 of them nor a part of it vanishes.
    fn factor(hash: u64) -> Self;
}

macro_rules! integer_samples {
    ($($type:ident)*) => {$(
        impl Sample for $type {
            fn any(hash: u64) -> Self {
                hash as $type
            }
            fn factor(hash: u64) -> Self {
                hash as $type | 1
            }
        }
    )*};
}

macro_rules! float_samples {
    ($($type:ident: $from:expr;)*) => {$(
        impl Sample for $type {
            fn any(hash: u64) -> Self {
                $from((hash >> 11) as f64 / (1u64 << 53) as f64 - 0.5)
            }
            fn factor(hash: u64) -> Self {
                let size = if hash % 4096 == 0 { 0.75 + ((hash >> 12) % 65) as f64 / 128.0 } else { 1.0 };
                $from(if hash >> 63 == 0 { size } else { -size })
            }
        }
    )*};
}

integer_samples! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }
float_samples! { f16: f16::from_f64; bf16: bf16::from_f64; f32: |value| value as f32; f64: |value| value; }

/// `len` samples.
pub fn samples<T: Element>(len: usize, sample: impl Fn(u64) -> T + Sync) -> Vec<T> {
    // Not generic over `sample`: what rayon makes of each function takes long to compile.
    fn fill<T: Element>(len: usize, sample: &(dyn Fn(u64) -> T + Sync)) -> Vec<T> {
        (0..len as u64).into_par_iter().map(|index| sample(hash(index))).collect()
    }
    fill(len, &sample)
}

/// The numbers below `len` in a mixed order.
pub fn mixed(len: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..len).collect();
    order.sort_by_key(|&place| hash(place as u64));
    order
}

/// Lengths around every boundary of the plan, up to `limit`, ascending: 0, 1, a load, a warp, a block, a row,
/// a tile, the longest single chunk; where chunks grow by a row or a tile, and where their number is largest;
/// each ± 1; then `limit` itself.
pub fn lengths<T: Element, const BLOCK: u32>(limit: usize) -> Vec<usize> {
    let width = 16 / size_of::<T>();
    let plan = |len| Plan::new(len, width, BLOCK);
    let row = plan(0).row as usize;
    let single = plan(0).chunk as usize;
    let chunk = plan(single as u64 + 1).chunk as usize;
    let most = row * gpu_reduce::max_chunks(BLOCK) as usize;
    let boundaries = [
        1,
        width,
        32,
        BLOCK as usize,
        row,
        4 * row,
        single,
        single + chunk,
        32 * row,
        128 * row,
        512 * row,
        8 * most,
        12 * most,
    ];
    let mut lengths: Vec<usize> =
        boundaries.iter().flat_map(|&length| [length - 1, length, length + 1]).collect();
    lengths.push(limit);
    lengths.retain(|&length| length <= limit);
    lengths.sort();
    lengths.dedup();
    lengths
}

#[cfg(not(any(part = "0", part = "1", part = "2")))]
pub use gpu_reduce::{for_each_block as of_part, for_each_element, for_each_integer};

/// The element types of a third of the tests, in the form of `gpu_reduce::for_each_element!`.
#[cfg(any(part = "0", part = "1", part = "2"))]
#[macro_export]
macro_rules! for_each_element {
    ($callback:ident! { $($arguments:tt)* }) => {
        gpu_reduce::for_each_element! { $crate::types_of_part! { $callback { $($arguments)* } } }
    };
}

/// The integer types of a third of the tests, in the form of `gpu_reduce::for_each_integer!`.
#[cfg(any(part = "0", part = "1", part = "2"))]
#[macro_export]
macro_rules! for_each_integer {
    ($callback:ident! { $($arguments:tt)* }) => {
        gpu_reduce::for_each_integer! { $crate::types_of_part! { $callback { $($arguments)* } } }
    };
}

/// Keeps a part's rows of a table of types: rows 0, 3, 6 and so on, or 1, 4, 7, or 2, 5, 8.
#[cfg(part = "0")]
#[macro_export]
macro_rules! types_of_part {
    ($callback:tt $($rows:tt)*) => { $crate::every_third! { keep $callback [] $($rows)* } };
}

/// As for part 0, from the second row on.
#[cfg(part = "1")]
#[macro_export]
macro_rules! types_of_part {
    ($callback:tt $($rows:tt)*) => { $crate::every_third! { skip_one $callback [] $($rows)* } };
}

/// As for part 0, from the third row on.
#[cfg(part = "2")]
#[macro_export]
macro_rules! types_of_part {
    ($callback:tt $($rows:tt)*) => { $crate::every_third! { skip_two $callback [] $($rows)* } };
}

/// Calls `$callback! { { ARGUMENTS } ROW ROW … }` with every third row, `every_third! { STATE { CALLBACK { ARGUMENTS } } [KEPT]
/// ROW ROW … }`.
#[cfg(any(part = "0", part = "1", part = "2"))]
#[macro_export]
macro_rules! every_third {
    (keep $callback:tt [$($kept:tt)*] $type:ident: $($row:ident)*; $($rest:tt)*) => {
        $crate::every_third! { skip_two $callback [$($kept)* $type: $($row)*;] $($rest)* }
    };
    (skip_two $callback:tt $kept:tt $type:ident: $($row:ident)*; $($rest:tt)*) => {
        $crate::every_third! { skip_one $callback $kept $($rest)* }
    };
    (skip_one $callback:tt $kept:tt $type:ident: $($row:ident)*; $($rest:tt)*) => {
        $crate::every_third! { keep $callback $kept $($rest)* }
    };
    ($state:ident { $callback:ident $arguments:tt } [$($kept:tt)*]) => {
        $callback! { $arguments $($kept)* }
    };
}

macro_rules! parts {
    ($d:tt $($part:literal: $($block:literal)*;)*) => {$(
        /// The BLOCKs of a third of the tests, in the form of `gpu_reduce::for_each_block!`.
        #[cfg(part = $part)]
        #[macro_export]
        macro_rules! of_part {
            ($d callback:ident! { $d ($d arguments:tt)* }) => {
                $d callback! { { $d ($d arguments)* } $($block)* }
            };
        }
    )*};
}

parts! {
    $
    "0": 32 256;
    "1": 64 512;
    "2": 128 1024;
}

/// Runs `$body` with each BLOCK as `$block` in turn; with `GPU_REDUCE_TEST_PART`, with two of them.
#[macro_export]
macro_rules! for_each_block {
    (|$block:ident| $body:expr) => {
        $crate::of_part! { for_each_block! { |$block| $body } }
    };
    ({ |$block:ident| $body:expr } $($value:literal)*) => {
        $({
            const $block: u32 = $value;
            $body;
        })*
    };
}

/// A test for each row, `NAME: OPERATOR, TYPES;`, which calls `$check::<OPERATOR, TYPE>` with the operator's
/// default.
#[macro_export]
macro_rules! checks {
    ($check:ident $($name:ident: $op:ty, $($type:ident)*;)*) => {$(
        #[test]
        fn $name() {
            $( $check::<$op, $type>(<$op>::default()); )*
        }
    )*};
}
