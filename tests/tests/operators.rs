//! Every operator of the tables on every element type with every BLOCK, and several at once. Each device has
//! the bits of the plan, which is followed here in plain code. (`table.rs` and `numpy.rs` check the values.)

use core::ops::Range;
use gpu_reduce::{
    ArgMax, Comparison, CountWhere, Dot, Max, Mean, Min, MinMax, NanMean, NormL2, Op, Plan, Reduce, Std, Sum,
    Var, bf16, f16, for_each_comparison, for_each_integer_operator, for_each_operator,
    for_each_pair_operator, width,
};
use support::{Sample, devices, for_each_block, for_each_element, for_each_integer, is_taken, samples};

/// The result of reducing `items` by the plan.
fn planned<O: Op<I>, I: Copy + 'static>(
    op: &O,
    items: &[I],
    element: usize,
    block: u32,
) -> Option<O::Output> {
    let plan = Plan::new(items.len() as u64, width::<O, I>(element), block);
    let row = plan.row as usize;
    let op = &items.first().map_or(*op, |&first| op.begin(first));
    let mut partials = vec![op.identity(); 32];
    for (chunk, items) in (0..).zip(items.chunks(plan.chunk as usize)) {
        let mut accumulators = vec![op.identity(); row];
        for (index, &item) in items.iter().enumerate() {
            let lifted = op.lift(item, chunk as u64 * plan.chunk + index as u64);
            accumulators[index % row] = op.combine(accumulators[index % row], lifted);
        }
        partials[chunk % 32] = op.combine(partials[chunk % 32], tree(op, &accumulators));
    }
    let (all, count) = (tree(op, &partials), items.len() as u64);
    op.finish(if count == 0 { all } else { op.end(all, count) }, count)
}

/// Combines neighbours first.
fn tree<O: Op<I>, I: Copy + 'static>(op: &O, accumulators: &[O::Accumulator]) -> O::Accumulator {
    match accumulators {
        [one] => *one,
        _ => {
            let (left, right) = accumulators.split_at(accumulators.len() / 2);
            op.combine(tree(op, left), tree(op, right))
        }
    }
}

const LENGTHS: [usize; 6] = [1, 2, 31, 1_000, 9_999, 40_000];

/// Compares the reduction of `$view`, the elements of `buffers` from some place on, with that of `items`.
macro_rules! check {
    ($op:expr, $name:expr, $bytes:expr, |$range:ident, $place:ident, $buffers:ident| $view:expr, $items:expr, $upload:expr) => {
        for device in devices() {
            let $buffers = $upload(&device);
            let turn = $name.len();
            for ($place, len) in LENGTHS.into_iter().enumerate() {
                let $range = $place % 4..$place % 4 + len;
                let (view, items) = ($view, $items);
                let mut results = Vec::new();
                for_each_block!(|BLOCK| {
                    if is_taken($place + BLOCK.ilog2() as usize + turn) {
                        results.push((BLOCK, view.by($op).block::<BLOCK>().run().ok()));
                    }
                });
                for (block, got) in results {
                    let expected = planned(&$op, items.as_ref(), $bytes, block);
                    // Debug shows all bits of a float, except those of a NaN.
                    let case = format!("{} of {len} with BLOCK {block} on {device}", $name);
                    assert_eq!(format!("{got:?}"), format!("{expected:?}"), "{case}");
                }
            }
            #[allow(unused_variables)]
            let ($range, $place) = (0..0, 0);
            let none = $view.by($op).block::<32>().run().ok();
            assert_eq!(
                format!("{none:?}"),
                format!("{:?}", planned(&$op, $items.as_ref(), $bytes, 32)),
                "{}",
                $name
            );
        }
    };
}

fn check<O: Op<T>, T: Sample>(op: O) {
    let host = samples(40_003, T::any);
    check!(
        op,
        format!("{} of {}", O::NAME, T::NAME),
        size_of::<T>(),
        |range, place, buffer| buffer.slice(range.clone()).unwrap(),
        &host[range.clone()],
        |device: &gpu_reduce::Device| device.upload(&host).unwrap()
    );
}

/// The second array is misaligned like the first, or differently.
fn check_pairs<O: Op<(T, T)>, T: Sample>(op: O) {
    let (a, b) = (samples(40_010, T::any), samples(40_010, |hash| T::any(hash.rotate_left(17))));
    let other = |range: &Range<usize>, place: usize| {
        let shift = if place.is_multiple_of(2) { 0 } else { 1 + place };
        range.start + shift..range.end + shift
    };
    check!(
        op,
        format!("{} of {}", O::NAME, T::NAME),
        size_of::<T>(),
        |range, place, buffers| (
            buffers.0.slice(range.clone()).unwrap(),
            buffers.1.slice(other(&range, place)).unwrap()
        ),
        {
            let pairs = a[range.clone()].iter().zip(&b[other(&range, place)]);
            pairs.map(|(&a, &b)| (a, b)).collect::<Vec<_>>()
        },
        |device: &gpu_reduce::Device| (device.upload(&a).unwrap(), device.upload(&b).unwrap())
    );
}

/// Several operators at once have the results that each has alone.
fn check_together<O: Op<T>, T: Sample>(op: O, alone: impl Fn(&gpu_reduce::View<T>) -> O::Output) {
    let host = samples(300_003, T::any);
    for device in devices() {
        let buffer = device.upload(&host).unwrap();
        for (index, len) in [1, 31, 1_000, 9_999, 300_000].into_iter().enumerate() {
            let view = buffer.slice(index % 4..index % 4 + len).unwrap();
            let case = format!("{} of {len} on {device}", T::NAME);
            let together = view.by(op).block::<128>().run().unwrap();
            assert_eq!(format!("{together:?}"), format!("{:?}", alone(&view)), "{case}");
        }
        let none = buffer.slice(..0).unwrap().by(op).block::<128>().run();
        assert_eq!(none.is_err(), op.finish(op.identity(), 0).is_none());
    }
}

macro_rules! alone {
    ($($op:ty),+) => {
        |view| ($(view.reduce::<$op, 128>().unwrap()),+)
    };
}

macro_rules! check_types {
    ({ element $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $( check::<gpu_reduce::$op, $type>(Default::default()); )*
    };
    ({ pair $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $( check_pairs::<gpu_reduce::$op, $type>(Default::default()); )*
    };
    ({ comparison $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $( check::<_, $type>(gpu_reduce::$op::new(Comparison::Greater(<$type as Sample>::any(1)))); )*
    };
    ({ together } $($type:ident: $($row:ident)*;)*) => {$(
        check_together::<_, $type>((Sum, Min, Max), alone!(Sum, Min, Max));
        check_together::<_, $type>((Mean, Var::default()), alone!(Mean, Var));
        check_together::<_, $type>((Mean, Std::default()), alone!(Mean, Std));
    )*};
}

macro_rules! operators {
    ({ $kind:ident $for_each_type:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn has_the_bits_of_the_plan() {
                $for_each_type! { check_types! { $kind $op } }
            }
        }
    )*};
}

for_each_operator! { operators! { element for_each_element } }
for_each_integer_operator! { operators! { element for_each_integer } }
for_each_pair_operator! { operators! { pair for_each_element } }
for_each_comparison! { operators! { comparison for_each_element } }

#[test]
fn several_at_once_have_the_bits_that_each_has_alone() {
    for_each_element! { check_types! { together } }
    // Tuples that no kernel is compiled for, and whose operators differ in width.
    check_together::<_, f32>((Max, Sum), alone!(Max, Sum));
    check_together::<_, f16>((Sum, NormL2, ArgMax), alone!(Sum, NormL2, ArgMax));
    check_together::<_, u8>((Sum, NanMean, MinMax, Mean), alone!(Sum, NanMean, MinMax, Mean));
    let some = CountWhere::new(Comparison::Less(0.25f64));
    check_together::<_, f64>((some, Sum, Min, Max, Mean, Std::new(1)), |view| {
        let [sum, mean] = [view.reduce::<Sum, 128>(), view.reduce::<Mean, 128>()].map(Result::unwrap);
        let [min, max] = [view.reduce::<Min, 128>(), view.reduce::<Max, 128>()].map(Result::unwrap);
        let std = view.by(Std::new(1)).block::<128>().run().unwrap();
        (view.by(some).block::<128>().run().unwrap(), sum, min, max, mean, std)
    });
    let (x, y) = ([1i32, 2, 3], [4i32, 5, 6]);
    assert_eq!((&x, &y).reduce::<(Dot, gpu_reduce::DistanceSquared), 64>(), Ok((32, 27)));
}
