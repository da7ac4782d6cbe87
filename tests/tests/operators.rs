//! Every operator of the table on every element type with every BLOCK: each device has the bits of the plan, which is followed
//! here in plain words. (That sums, products and extremes are right is `table.rs`'s; a new operator's algebra is its file's.)

use gpu_reduce::{Element, Op, Plan, Reduce, bf16, f16, for_each_element, for_each_operator, width};
use support::{Sample, devices, for_each_block, samples};

/// What reducing `items` by the plan gives.
fn planned<O: Op<T>, T: Element>(op: &O, items: &[T], block: u32) -> Option<O::Output> {
    let plan = Plan::new(items.len() as u64, width::<O, T>(size_of::<T>()), block);
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
    op.finish(tree(op, &partials), items.len() as u64)
}

/// Neighbours first.
fn tree<O: Op<T>, T: Element>(op: &O, accumulators: &[O::Accumulator]) -> O::Accumulator {
    match accumulators {
        [one] => *one,
        _ => {
            let (left, right) = accumulators.split_at(accumulators.len() / 2);
            op.combine(tree(op, left), tree(op, right))
        }
    }
}

fn check<O: Op<T> + Default, T: Sample>() {
    let host = samples(40_003, T::any);
    for device in devices() {
        let buffer = device.upload(&host).unwrap();
        for (index, len) in [1, 2, 31, 1_000, 9_999, 40_000].into_iter().enumerate() {
            let items = &host[index % 4..][..len];
            let view = buffer.slice(index % 4..index % 4 + len).unwrap();
            for_each_block!(|BLOCK| {
                let got = view.reduce::<O, BLOCK>().ok();
                let expected = planned(&O::default(), items, BLOCK);
                // Debug tells all bits of a float apart but those of a NaN.
                let case = format!("{} of {len} {} with BLOCK {BLOCK} on {device}", O::NAME, T::NAME);
                assert_eq!(format!("{got:?}"), format!("{expected:?}"), "{case}");
            });
        }
        let none = buffer.slice(..0).unwrap().reduce::<O, 32>().ok();
        assert_eq!(format!("{none:?}"), format!("{:?}", planned::<O, T>(&O::default(), &[], 32)));
    }
}

macro_rules! check_types {
    ({ $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $( check::<gpu_reduce::$op, $type>(); )*
    };
}

macro_rules! operators {
    ({} $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn has_the_bits_of_the_plan() {
                for_each_element! { check_types! { $op } }
            }
        }
    )*};
}

for_each_operator! { operators! {} }
