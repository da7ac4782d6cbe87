//! Times exact sums in host memory beside the plain sum and other crates' exact sums, a JSON line a case: `cargo bench --bench exact`.
//!
//! | impl | what runs |
//! | --- | --- |
//! | `plain-1-thread`, `plain` | [`Sum`], where rayon has one thread, and where it has all |
//! | `exact-1-thread`, `exact` | [`ExactSum`] in the same way |
//! | `xsum` | the crate `xsum`, [`xsum::XsumAuto`], one thread |
//! | `accurate` | the crate `accurate`, `OnlineExactSum`, one thread |
//!
//! The inputs are `uniform` in ±1, `normal` deviates, `spread` over magnitudes of 2^±60, and `all`: any bits of a finite float. Medians of 15 after 2 to warm
//! up. Compare `peers/fsum.py`.

mod common;

use accurate::sum::OnlineExactSum;
use accurate::traits::*;
use common::{median_us, print_case};
use gpu_reduce::{Element, Error, ExactElement, ExactSum, Op, Reduce, Sum};
use std::hint::black_box;
use xsum::Xsum;

/// Elements of the inputs: 10^7 are in memory.
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

/// A kind of input, and what makes an element of a hash.
type Kind = (&'static str, fn(u64) -> f64);

fn kinds() -> [Kind; 4] {
    let uniform = |hash: u64| (hash >> 11) as f64 * 2f64.powi(-52) - 1.0;
    [
        ("uniform", uniform),
        ("normal", |hash| {
            // G. E. P. Box and M. E. Muller, 1958
            let (a, b) = ((hash >> 32) as f64 + 1.0, (hash as u32) as f64);
            (-2.0 * (a * 2f64.powi(-32)).ln()).sqrt() * (b * 2f64.powi(-32) * std::f64::consts::TAU).cos()
        }),
        ("spread", |hash| {
            let exponent = 1023 - 60 + (hash >> 52) % 121;
            f64::from_bits(hash & (1 << 63 | ((1 << 52) - 1)) | exponent << 52)
        }),
        ("all", |hash| f64::from_bits(if hash >> 52 & 0x7ff == 0x7ff { hash ^ 1 << 62 } else { hash })),
    ]
}

/// The nearest `f32`; of any bits, any.
fn single(kind: &str, x: f64) -> f32 {
    match kind {
        "all" => {
            let bits = (x.to_bits() >> 20) as u32;
            f32::from_bits(if bits >> 23 & 0xff == 0xff { bits ^ 1 << 30 } else { bits })
        }
        _ => x as f32,
    }
}

/// A hash of an index, as SplitMix64 has it.
fn hash(index: u64) -> u64 {
    let mut h = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
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
