//! `check_op`: the library's operators keep the laws, and of others it names the law that they break.

use gpu_reduce::{
    Error, ExactElement, Item, Op, Sum, check_op, check_pair_op, for_each_operator, for_each_pair_operator,
};
use support::Sample;

/// Operators of the library on these items.
fn all_keep_the_laws<T: Sample + ExactElement + Item>(items: &[T]) {
    macro_rules! check {
        ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
            check_op(&gpu_reduce::$op::default(), items).unwrap_or_else(|error| panic!("{error}"));
        )*};
    }
    for_each_operator! { check! {} }
}

#[test]
#[cfg_attr(not(part = "0"), ignore = "of part 0")]
fn operators_of_the_library() {
    all_keep_the_laws(&[1.0f32, -2.5, 0.0, -0.0, 3.0, 3.0, 0.125, 7.0]);
    check_op(&Sum, &[3i16, -7, 0, 1, i16::MAX, i16::MIN, 3]).unwrap();
}

#[test]
fn operators_of_pairs() {
    let pairs = [(1.0f32, 2.0f32), (-2.5, 0.5), (0.0, -0.0), (3.0, 3.0), (0.125, -7.0)];
    macro_rules! check {
        ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
            check_pair_op(&gpu_reduce::$op::default(), &pairs).unwrap_or_else(|error| panic!("{error}"));
        )*};
    }
    for_each_pair_operator! { check! {} }
}

/// The difference of each pair's elements, kept from the last pair: no law holds.
#[derive(Clone, Copy)]
struct LastDifference;

impl Op<(f64, u32)> for LastDifference {
    const NAME: &'static str = "last_difference";
    type Accumulator = f64;
    type Output = f64;
    const EXACT: bool = false;

    fn identity(&self) -> f64 {
        0.0
    }
    fn lift(&self, (a, b): (f64, u32), _: u64) -> f64 {
        a - f64::from(b)
    }
    fn combine(&self, a: f64, b: f64) -> f64 {
        if b == 0.0 { a } else { b }
    }
    fn finish(&self, all: f64, _: u64) -> Option<f64> {
        Some(all)
    }
}

#[test]
fn an_operator_of_pairs_that_breaks_a_law() {
    let error = check_pair_op(&LastDifference, &[(1.5, 1), (7.0, 2)]).unwrap_err();
    let Error::BrokenLaw { op, law, items, .. } = error else { panic!("{error}") };
    assert_eq!((op, law), ("last_difference", "combine(b, c) is combine(c, b)"));
    assert_eq!(items, "[(1.5, 1), (1.5, 1), (7.0, 2)]");
}

/// The operators that break a law.
#[derive(Clone, Copy)]
struct Wrong<const WHAT: u32>;

const DIFFERENCE: u32 = 0;
const FROM_ONE: u32 = 1;
const NOT_EXACT: u32 = 2;
const LAST: u32 = 3;
const MEAN_OF_TWO: u32 = 4;

impl<const WHAT: u32> Op<f64> for Wrong<WHAT> {
    const NAME: &'static str = "wrong";
    type Accumulator = f64;
    type Output = f64;
    const EXACT: bool = WHAT == NOT_EXACT;

    fn identity(&self) -> f64 {
        if WHAT == FROM_ONE { 1.0 } else { -0.0 }
    }

    fn lift(&self, item: f64, _: u64) -> f64 {
        item
    }

    fn combine(&self, a: f64, b: f64) -> f64 {
        match WHAT {
            DIFFERENCE => a - b,
            LAST if b.to_bits() == (-0.0f64).to_bits() => a,
            LAST => b,
            MEAN_OF_TWO if a == 0.0 || b == 0.0 => a + b,
            MEAN_OF_TWO => (a + b) / 2.0,
            _ => a + b,
        }
    }

    fn finish(&self, all: f64, _: u64) -> Option<f64> {
        Some(all)
    }
}

#[test]
fn laws_that_are_broken() {
    fn broken<const WHAT: u32>(items: &[f64]) -> (&'static str, String) {
        let error = check_op(&Wrong::<WHAT>, items).unwrap_err();
        let shown = error.to_string();
        let Error::BrokenLaw { op: "wrong", law, items, .. } = error else { panic!("{error:?}") };
        assert!(shown.contains(law) && shown.contains(&items), "{shown}");
        (law, items)
    }
    let identity = "the identity leaves the bits of an accumulator";
    assert_eq!(broken::<DIFFERENCE>(&[4.0, 2.5]), (identity, "[4.0, 4.0, 4.0]".into()));
    assert_eq!(broken::<FROM_ONE>(&[4.0]).0, identity);
    assert_eq!(broken::<LAST>(&[4.0, 2.5]), ("combine(b, c) is combine(c, b)", "[4.0, 4.0, 2.5]".into()));
    let (law, items) = broken::<MEAN_OF_TWO>(&[4.0, 2.5]);
    assert!(law.starts_with("combine(a, combine(b, c))") && items == "[4.0, 4.0, 2.5]", "{law} {items}");
    let (law, items) = broken::<NOT_EXACT>(&[1e16, 1.0, -1e16]);
    assert!(law.starts_with("combine(a, combine(b, c))") && items == "[1e16, 1.0, 1.0]", "{law} {items}");
}

#[test]
fn operators_that_round_or_overflow_are_not_broken() {
    check_op(&Sum, &[1e30f32, -1e30, 1.0, f32::MAX, -f32::MAX, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE])
        .unwrap();
    check_op::<_, f32>(&Sum, &[]).unwrap();
}
