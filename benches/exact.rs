//! Times exact sums in host memory, the plain sum and other crates' exact sums; prints a JSON line per case.
//!
//! `cargo bench --bench exact`
//!
//! | impl | what runs |
//! | --- | --- |
//! | `plain-1-thread`, `plain` | [`Sum`], in a rayon pool of one thread, and of all |
//! | `exact-1-thread`, `exact` | [`ExactSum`], likewise |
//! | `xsum` | the crate `xsum`, [`xsum::XsumAuto`], one thread |
//! | `accurate` | the crate `accurate`, `OnlineExactSum`, one thread |
//!
//! The inputs are `uniform` in ±1, `normal` deviates, `spread` over magnitudes of 2^±60, and `all`: any bits
//! of a finite float. Times are medians of 15 runs after 2 to warm up. Compare `peers/fsum.py`.

mod common;

use accurate::sum::OnlineExactSum;
use accurate::traits::*;
use common::kinds::{hash, kinds, single};
use common::{median_us, print_case};
use gpu_reduce::{Element, Error, ExactElement, ExactSum, Op, Reduce, Sum};
use std::hint::black_box;
use xsum::Xsum;

/// Lengths of the inputs; 10^7 elements do not fit in the caches.
const LENGTHS: [usize; 4] = [100, 10_000, 1 << 20, 10_000_000];

fn main() -> Result<(), Error> {
    eprintln!("{}", gpu_reduce::Device::cpu());
    for (kind, make) in kinds() {
        let doubles: Vec<f64> = (0..LENGTHS[3] as u64).map(|i| make(hash(i))).collect();
        let singles: Vec<f32> = doubles.iter().map(|&x| single(kind, x)).collect();
        for n in LENGTHS {
            all::<f32>(kind, &singles[..n], |x| {
                let mut sum = xsum::XsumAuto::new();
                x.iter().for_each(|&x| sum.add(f64::from(x)));
                sum.sum()
            })?;
            all::<f64>(kind, &doubles[..n], |x| {
                let mut sum = xsum::XsumAuto::new();
                sum.add_list(x);
                sum.sum()
            })?;
            case("accurate", kind, &doubles[..n], |x| {
                Ok((x.iter().copied().fold(OnlineExactSum::zero(), |sum, x| sum + x)).sum())
            })?;
        }
    }
    Ok(())
}

fn all<T: ExactElement>(kind: &str, x: &[T], xsum: impl Fn(&[T]) -> f64) -> Result<(), Error> {
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    one_thread.install(|| {
        case("plain-1-thread", kind, x, reduce::<Sum, T>)?;
        case("exact-1-thread", kind, x, reduce::<ExactSum, T>)
    })?;
    case("plain", kind, x, reduce::<Sum, T>)?;
    case("exact", kind, x, reduce::<ExactSum, T>)?;
    case("xsum", kind, x, |x| Ok(xsum(x)))
}

fn reduce<O: Op<T> + Default, T: Element>(x: &[T]) -> Result<O::Output, Error> {
    x.reduce::<O, 512>()
}

fn case<T: Element, R>(
    implementation: &str,
    kind: &str,
    x: &[T],
    call: impl Fn(&[T]) -> Result<R, Error>,
) -> Result<(), Error> {
    let calls = ((1 << 18) / x.len()).max(1);
    let us = median_us(15, calls, || call(black_box(x)))?;
    print_case::<T>(implementation, &format!("host_exact_{kind}"), x.len(), us);
    Ok(())
}
