//! A check of operators, for the tests of those who write one.

use crate::{Device, Error, Item, Op, Reduce};
use bytemuck::bytes_of;
use std::fmt::Debug;

/// Samples of which all triples are tried, at most.
const TRIED: usize = 20;

/// Lengths of the inputs that are reduced on every device.
const LENGTHS: [usize; 8] = [0, 1, 2, 3, 32, 33, 1000, 5001];

/// How far two results of three items may lie apart, in shares of the largest number that these items give:
/// 16 times the rounding error of `f16`.
const NEAR: f64 = 1.0 / 64.0;

/// Checks an operator: its laws, by three samples at a time, and its results on every device, by inputs that
/// repeat the samples. For tests.
///
/// - The identity leaves the bits of an accumulator.
/// - `combine` is commutative and associative: exactly if the operator is [`EXACT`](Op::EXACT), else up to
///   rounding.
/// - The CPU and the GPU, or the emulator if there is no GPU, give the same bits for every BLOCK, for no
///   items too. An operator without [`KERNELS`](Op::KERNELS) is checked on the CPU only.
///
/// Results are compared as [`Debug`] shows them. Up to rounding means that numbers may differ by a 64th of
/// the largest number that the three items give; the rest must be equal. Pass samples of every kind: zeros of
/// both signs, extremes, NaN, equal items.
///
/// ```
/// use gpu_reduce::{Op, Sum, check_op};
///
/// check_op(&Sum, &[1.5f32, -2.0, 0.0, -0.0, f32::MAX])?;
///
/// #[derive(Clone, Copy)]
/// struct Difference;
///
/// impl Op<f64> for Difference {
///     const NAME: &'static str = "difference";
///     type Accumulator = f64;
///     type Output = f64;
///     const EXACT: bool = false;
///
///     fn identity(&self) -> f64 {
///         0.0
///     }
///     fn lift(&self, item: f64, _: u64) -> f64 {
///         item
///     }
///     fn combine(&self, a: f64, b: f64) -> f64 {
///         a - b
///     }
///     fn finish(&self, all: f64, _: u64) -> Option<f64> {
///         Some(all)
///     }
/// }
///
/// let error = check_op(&Difference, &[1.0, 2.0, 4.0]).unwrap_err().to_string();
/// assert!(error.contains("difference") && error.contains("identity"), "{error}");
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::BrokenLaw`] names the law and the items that break it. The errors of [`Reduce::reduce`], for
/// example [`Error::NoKernel`] if the operator has kernels, but none for these items.
pub fn check_op<O: Op<T>, T: Item + Debug>(op: &O, samples: &[T]) -> Result<(), Error> {
    check(op, samples, |device, items| device.upload(items))
}

/// Checks an operator of pairs, as [`check_op`].
///
/// ```
/// use gpu_reduce::{Dot, check_pair_op};
///
/// check_pair_op(&Dot, &[(1.5f32, 2.0), (-0.25, 4.0), (0.0, -1.0)])?;
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// As [`check_op`].
pub fn check_pair_op<O: Op<(A, B)>, A: Item + Debug, B: Item + Debug>(
    op: &O,
    samples: &[(A, B)],
) -> Result<(), Error> {
    check(op, samples, |device, items| {
        let (first, second): (Vec<A>, Vec<B>) = items.iter().copied().unzip();
        Ok((device.upload(&first)?, device.upload(&second)?))
    })
}

fn check<O: Op<T>, T: Copy + Debug + 'static, R: Reduce<Item = T>>(
    op: &O,
    samples: &[T],
    upload: impl Fn(&Device, &[T]) -> Result<R, Error>,
) -> Result<(), Error> {
    let step = samples.len().div_ceil(TRIED).max(1);
    let tried: Vec<T> = samples.iter().step_by(step).copied().collect();
    for &a in &tried {
        for &b in &tried {
            for &c in &tried {
                check_laws(op, [a, b, c])?;
            }
        }
    }
    check_devices(op, samples, upload)
}

/// Checks the laws by three items, which are the first of a reduction.
fn check_laws<O: Op<T>, T: Copy + Debug + 'static>(op: &O, items: [T; 3]) -> Result<(), Error> {
    let broken = |law: &'static str, results: [String; 2]| {
        let [got, expected] = results;
        let items = format!("{items:?}");
        Err(Error::BrokenLaw { op: O::NAME, law, items, got, expected })
    };
    let op = &op.begin(items[0]);
    let shown = |all, count| match op.finish(op.end(all, count), count) {
        Some(result) => format!("{result:?}"),
        None => "no result".to_owned(),
    };
    let [a, b, c] = [0, 1, 2].map(|index| op.lift(items[index], index as u64));
    for of_item in [a, b, c] {
        for all in [op.combine(op.identity(), of_item), op.combine(of_item, op.identity())] {
            if bytes_of(&all) != bytes_of(&of_item) {
                let law = "the identity leaves the bits of an accumulator";
                let accumulator = |all| format!("{} ({:02x?})", shown(all, 1), bytes_of(&all));
                return broken(law, [all, of_item].map(accumulator));
            }
        }
    }
    let [ab, bc] = [op.combine(a, b), op.combine(b, c)];
    let all = op.combine(ab, c);
    let mut largest = 0.0f64;
    for (all, count) in [(a, 1), (b, 1), (c, 1), (ab, 2), (bc, 2), (op.combine(a, c), 2), (all, 3)] {
        for number in numbers(&shown(all, count)).1 {
            largest = largest.max(number.abs());
        }
    }
    let agree = |results: &[String; 2]| {
        let [(text, found), (other_text, others)] = results.each_ref().map(|shown| numbers(shown));
        results[0] == results[1]
            || !O::EXACT
                // Of what overflows nothing is asked.
                && (!largest.is_finite()
                    || text == other_text
                        && found.iter().zip(&others).all(|(a, b)| (a - b).abs() <= NEAR * largest))
    };
    for (law, results) in [
        ("combine(a, b) is combine(b, a)", [(op.combine(b, a), 2), (ab, 2)]),
        ("combine(b, c) is combine(c, b)", [(op.combine(c, b), 2), (bc, 2)]),
        ("combine(a, combine(b, c)) is combine(combine(a, b), c)", [(op.combine(a, bc), 3), (all, 3)]),
        (
            "combine(combine(a, c), b) is combine(combine(a, b), c)",
            [(op.combine(op.combine(a, c), b), 3), (all, 3)],
        ),
    ] {
        let results = results.map(|(all, count)| shown(all, count));
        if !agree(&results) {
            return broken(law, results);
        }
    }
    Ok(())
}

/// Returns a text without its numbers, and the numbers.
fn numbers(text: &str) -> (String, Vec<f64>) {
    let separates = |c: char| !(c.is_alphanumeric() || "+-.".contains(c));
    let (mut rest, mut numbers) = (String::new(), Vec::new());
    for word in text.split_inclusive(separates) {
        let number = word.trim_end_matches(separates);
        match number.parse::<f64>() {
            Ok(value) if !value.is_nan() => {
                numbers.push(value);
                rest.push_str(&word[number.len()..]);
            }
            _ => rest.push_str(word),
        }
    }
    (rest, numbers)
}

/// Checks that devices agree, for every BLOCK.
fn check_devices<O: Op<T>, T: Copy + Debug + 'static, R: Reduce<Item = T>>(
    op: &O,
    samples: &[T],
    upload: impl Fn(&Device, &[T]) -> Result<R, Error>,
) -> Result<(), Error> {
    let other = Device::cuda(0).or_else(|_| Device::emulator()).ok();
    for len in LENGTHS {
        let items: Vec<T> = samples.iter().cycle().take(len).copied().collect();
        let mut of_first_block = None;
        macro_rules! blocks {
            ($($block:literal)*) => {$({
                let shown = |device: &Device| {
                    let result = upload(device, &items)?.by(*op).block::<$block>().run();
                    match result {
                        Ok(_) | Err(Error::EmptyInput { .. }) => Ok(format!("{result:?}")),
                        Err(error) => Err(error),
                    }
                };
                let broken = |law: &'static str, got: String, expected: String| {
                    let items = format!("{} that repeat the samples", items.len());
                    Err(Error::BrokenLaw { op: O::NAME, law, items, got, expected })
                };
                let on_cpu = shown(&Device::cpu())?;
                match other.as_ref().map(shown) {
                    Some(Err(Error::NoKernel { .. })) if O::KERNELS.is_none() => {}
                    Some(Ok(got)) if got == on_cpu => {}
                    Some(Ok(got)) => {
                        return broken(concat!("a GPU gives what the CPU gives, with BLOCK ", $block), got, on_cpu);
                    }
                    Some(Err(error)) => return Err(error),
                    None => {}
                }
                let expected = of_first_block.get_or_insert_with(|| on_cpu.clone());
                if O::EXACT && on_cpu != *expected {
                    return broken("EXACT: every BLOCK gives the same bits", on_cpu, expected.clone());
                }
            })*};
        }
        blocks! { 32 64 128 256 512 1024 }
    }
    Ok(())
}
