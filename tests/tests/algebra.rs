//! The algebra of every operator on every element type, with random items and cuts. The identity leaves an
//! accumulator's bits. Accumulators combine in any order and grouping to one result: bit for bit if the
//! operator is exact, else up to rounding.

use bytemuck::bytes_of;
use gpu_reduce::{
    Comparison, Op, bf16, f16, for_each_comparison, for_each_integer_operator, for_each_operator,
    for_each_pair_operator,
};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use support::{Sample, for_each_element, for_each_integer, hash};

/// A result that can be compared up to rounding.
trait Near {
    fn is_near(&self, other: &Self) -> bool;
}

macro_rules! near {
    ($($type:ty: $to_f64:expr;)*) => {$(
        impl Near for $type {
            #[allow(clippy::redundant_closure_call, clippy::unnecessary_cast)]
            fn is_near(&self, other: &Self) -> bool {
                let [a, b]: [f64; 2] = [$to_f64(*self), $to_f64(*other)];
                // Sums of a few hundred floats within ±0.5, which may cancel; other results are larger.
                (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= 1e-4 + 1e-5 * (a.abs() + b.abs())
            }
        }
    )*};
}

near! {
    i8: |x| x as f64; i16: |x| x as f64; i32: |x| x as f64; i64: |x| x as f64;
    u8: |x| x as f64; u16: |x| x as f64; u32: |x| x as f64; u64: |x| x as f64;
    f16: f16::to_f64; bf16: bf16::to_f64; f32: f64::from; f64: |x| x;
    bool: |x| f64::from(u8::from(x)); i128: |x| x as f64;
}

impl<V: Near, const N: usize> Near for [V; N] {
    fn is_near(&self, other: &Self) -> bool {
        self.iter().zip(other).all(|(a, b)| a.is_near(b))
    }
}

impl<A: Near, B: Near, C: Near> Near for (A, B, C) {
    fn is_near(&self, other: &Self) -> bool {
        self.0.is_near(&other.0) && self.1.is_near(&other.1) && self.2.is_near(&other.2)
    }
}

/// One input: a seed for each item, the cuts as parts of the length, and the order in which the parts
/// combine.
type Drawn = (Vec<u64>, Vec<f64>, Vec<usize>);

fn drawn() -> impl Strategy<Value = Drawn> {
    let seeds = prop::collection::vec(proptest::num::u64::ANY, 1..200);
    (seeds, prop::collection::vec(0.0..1.0, 0..9), prop::collection::vec(proptest::num::usize::ANY, 10))
}

fn check<O: Op<I, Output: Near>, I: Copy + 'static>(op: O, of: &str, sample: impl Fn(u64) -> I) {
    let run = |(seeds, cuts, order): Drawn| {
        // One item in eight equals the one before, so that there are ties.
        let draw = |(index, &seed): (usize, &u64)| {
            let before = if seed % 8 == 0 { index.saturating_sub(1) } else { index };
            sample(hash(seeds[before]))
        };
        let items: Vec<I> = seeds.iter().enumerate().map(draw).collect();
        let op = op.begin(items[0]);
        let lift = |index: usize| op.lift(items[index], index as u64);
        let fold = |range: std::ops::Range<usize>| {
            range.fold(op.identity(), |all, index| op.combine(all, lift(index)))
        };
        let same = |a: O::Accumulator, b: O::Accumulator| {
            let count = items.len() as u64;
            match (op.finish(op.end(a, count), count), op.finish(op.end(b, count), count)) {
                (Some(a), Some(b)) if !O::EXACT => a.is_near(&b),
                (a, b) => format!("{a:?}") == format!("{b:?}"), // −0.0 is not 0.0, and NaN is NaN
            }
        };
        let all = fold(0..items.len());

        for a in [lift(0), all] {
            let (left, right) = (op.combine(op.identity(), a), op.combine(a, op.identity()));
            prop_assert_eq!(bytes_of(&left), bytes_of(&a), "identity on the left");
            prop_assert_eq!(bytes_of(&right), bytes_of(&a), "identity on the right");
        }

        let mut ends: Vec<usize> = cuts.iter().map(|cut| (cut * items.len() as f64) as usize).collect();
        ends.extend([0, items.len()]);
        ends.sort();
        let mut parts: Vec<O::Accumulator> = ends.windows(2).map(|ends| fold(ends[0]..ends[1])).collect();
        if parts.len() > 1 {
            let (ab, ba) = (op.combine(parts[0], parts[1]), op.combine(parts[1], parts[0]));
            let rest = parts[2..].iter().fold(op.identity(), |all, &part| op.combine(all, part));
            prop_assert!(same(op.combine(ab, rest), op.combine(ba, rest)), "commutativity");
        }
        // Combines any two neighbours until one is left.
        for &draw in order.iter().cycle().take(parts.len() - 1) {
            let a = parts.swap_remove(draw % parts.len());
            let at = draw / 7 % parts.len();
            parts[at] = op.combine(a, parts[at]);
        }
        prop_assert!(same(parts[0], all), "any split");
        Ok(())
    };
    on_drawn(&run).unwrap_or_else(|why| panic!("{} of {of}: {why}", O::NAME));
}

/// Runs a test on random inputs. Compiled once for all operators and types.
fn on_drawn(run: &dyn Fn(Drawn) -> Result<(), TestCaseError>) -> Result<(), TestError<Drawn>> {
    let mut runner = TestRunner::new(support::cases(40));
    runner.run(&drawn(), run)
}

macro_rules! test_operators {
    ({ $kind:ident $for_each_type:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
        #[test]
        fn $name() {
            $for_each_type! { check_types! { $kind $op } }
        }
    )*};
}

macro_rules! check_types {
    ({ element Prod } $($type:ident: $($row:ident)*;)*) => {
        // Products of other numbers overflow.
        $(check(gpu_reduce::Prod, stringify!($type), <$type as Sample>::factor);)*
    };
    ({ element $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $(check(gpu_reduce::$op::default(), stringify!($type), <$type as Sample>::any);)*
    };
    ({ comparison $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $(check(
            gpu_reduce::$op::new(Comparison::Greater(<$type as Sample>::any(1))),
            stringify!($type),
            <$type as Sample>::any,
        );)*
    };
    ({ pair $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $(check(gpu_reduce::$op::default(), stringify!($type), |hash| {
            (<$type as Sample>::any(hash), <$type as Sample>::any(hash.rotate_left(17)))
        });)*
    };
}

for_each_operator! { test_operators! { element for_each_element } }
for_each_integer_operator! { test_operators! { element for_each_integer } }
for_each_pair_operator! { test_operators! { pair for_each_element } }
for_each_comparison! { test_operators! { comparison for_each_element } }

#[test]
fn several_at_once() {
    let op = (gpu_reduce::Sum, gpu_reduce::Min, gpu_reduce::ArgMax);
    check(op, "f32", <f32 as Sample>::any);
    check(op, "u8", <u8 as Sample>::any);
}
