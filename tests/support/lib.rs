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

/// Whether a test takes this case of many alike: every fifth, with `GPU_REDUCE_TEST_PART` a sixth of these,
/// or all if `GPU_REDUCE_TEST_ALL` is set. Tests count their cases on from another number for each operator,
/// type or BLOCK, so that together they take all.
pub fn is_taken(case: usize) -> bool {
    takes_all() || case.is_multiple_of(5) && is_of_part(case / 5)
}

/// Whether a test takes this case: all of them, or with `GPU_REDUCE_TEST_PART` a sixth.
pub fn is_of_part(case: usize) -> bool {
    cfg!(whole)
        || [
            cfg!(part = "0"),
            cfg!(part = "1"),
            cfg!(part = "2"),
            cfg!(part = "3"),
            cfg!(part = "4"),
            cfg!(part = "5"),
        ][case % 6]
}

/// As [`is_of_part`], for cases that take the emulator long: with a GPU, a test takes them all.
pub fn has_turn(case: usize) -> bool {
    gpu().is_some() || is_of_part(case)
}

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

#[cfg(whole)]
pub use gpu_reduce::{for_each_block as of_part, for_each_element, for_each_integer};

/// The element types of a sixth of the tests, in the form of `gpu_reduce::for_each_element!`.
#[cfg(not(whole))]
#[macro_export]
macro_rules! for_each_element {
    ($callback:ident! { $($arguments:tt)* }) => {
        gpu_reduce::for_each_element! { $crate::types_of_part! { $callback { $($arguments)* } } }
    };
}

/// The integer types of a sixth of the tests, in the form of `gpu_reduce::for_each_integer!`.
#[cfg(not(whole))]
#[macro_export]
macro_rules! for_each_integer {
    ($callback:ident! { $($arguments:tt)* }) => {
        gpu_reduce::for_each_integer! { $crate::types_of_part! { $callback { $($arguments)* } } }
    };
}

/// Calls `$callback! { { ARGUMENTS } ROW ROW … }` with every sixth row: `every_sixth! { [SKIP] CALLBACK {
/// ARGUMENTS } [KEPT] ROW ROW … }`. SKIP has a star for each row before the next one that is kept.
#[cfg(not(whole))]
#[macro_export]
macro_rules! every_sixth {
    ([] $callback:ident $arguments:tt [$($kept:tt)*] $type:ident: $($row:ident)*; $($rest:tt)*) => {
        $crate::every_sixth! { [* * * * *] $callback $arguments [$($kept)* $type: $($row)*;] $($rest)* }
    };
    ([* $($skip:tt)*] $callback:ident $arguments:tt $kept:tt $type:ident: $($row:ident)*; $($rest:tt)*) => {
        $crate::every_sixth! { [$($skip)*] $callback $arguments $kept $($rest)* }
    };
    ($skip:tt $callback:ident $arguments:tt [$($kept:tt)*]) => {
        $callback! { $arguments $($kept)* }
    };
}

macro_rules! parts {
    ($d:tt $($part:literal: $block:literal $skip:tt;)*) => {$(
        /// The BLOCK of a sixth of the tests, in the form of `gpu_reduce::for_each_block!`.
        #[cfg(all(part = $part, not(whole)))]
        #[macro_export]
        macro_rules! of_part {
            ($d callback:ident! { $d ($d arguments:tt)* }) => {
                $d callback! { { $d ($d arguments)* } $block }
            };
        }

        /// Keeps a part's rows of a table of types: every sixth.
        #[cfg(all(part = $part, not(whole)))]
        #[macro_export]
        macro_rules! types_of_part {
            ({ $d callback:ident $d arguments:tt } $d ($d rows:tt)*) => {
                $crate::every_sixth! { $skip $d callback $d arguments [] $d ($d rows)* }
            };
        }
    )*};
}

parts! {
    $
    "0": 32 [];
    "1": 64 [*];
    "2": 128 [* *];
    "3": 256 [* * *];
    "4": 512 [* * * *];
    "5": 1024 [* * * * *];
}

/// Runs `$body` with each BLOCK as `$block` in turn; with `GPU_REDUCE_TEST_PART`, with one of them.
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
