//! Tests random operators, items, lengths and memory offsets. The CPU, and the GPU or the emulator, must give
//! the bits of the plan, which plain recursion computes here.

use bytemuck::{Pod, Zeroable, bytes_of, pod_read_unaligned};
use gpu_reduce::{Buffer, Device, Error, Item, Op, Plan, Reduce, View, width};
#[allow(unused_imports, reason = "a part of the tests has none")]
use gpu_reduce::{bf16, f16};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
#[allow(unused_imports, reason = "a part of the tests has not every operator")]
use random_ops::{
    Colour, Exact, Functions, Ordered, Place, Point, SPECIAL, Sums, Triple, Value, for_each_row, special_item,
};
use random_ops::{from_end, from_part_0, from_part_1, from_part_2, from_part_3, from_part_4, from_part_5};
use std::io::{self, Write};
use std::sync::LazyLock;
use support::for_each_block;

/// The devices under test; only the CPU if the kernels were not compiled.
static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| match option_env!("WITHOUT_KERNELS") {
    Some(why) => {
        // `eprintln!` would be captured in a test that passes.
        #[allow(clippy::explicit_write)]
        writeln!(io::stderr(), "skipped on GPUs and on the emulator: {why}").unwrap();
        vec![Device::cpu()]
    }
    None => support::devices(),
});

/// The items to reduce: elements of one array, or pairs of elements of two.
trait Items: Value {
    /// The size of an element in bytes; of two arrays, the larger size.
    const BYTES: usize;
    type Buffers;
    type Views<'a>: Reduce<Item = Self>;

    fn from_hash(hash: u64) -> Self;

    /// Uploads `items`, with `before` other elements in front of them in each array.
    fn upload(items: &[Self], before: [usize; 2], device: &Device) -> Self::Buffers;

    fn views(buffers: &Self::Buffers, before: [usize; 2]) -> Self::Views<'_>;
}

macro_rules! elements {
    ($($type:ty: $from:expr;)*) => {$(
        impl Items for $type {
            const BYTES: usize = size_of::<$type>();
            type Buffers = Buffer<$type>;
            type Views<'a> = View<'a, $type>;

            fn from_hash(hash: u64) -> Self {
                $from(hash)
            }

            fn upload(items: &[Self], [before, _]: [usize; 2], device: &Device) -> Buffer<$type> {
                let mut data = vec![<$type>::zeroed(); before];
                data.extend(items);
                device.upload(&data).unwrap()
            }

            fn views(buffer: &Buffer<$type>, [before, _]: [usize; 2]) -> View<'_, $type> {
                buffer.slice(before..).unwrap()
            }
        }
    )*};
}

elements! {
    u8: |hash| hash as u8;
    u16: |hash| hash as u16;
    u32: |hash| hash as u32;
    u64: |hash| hash;
    f32: |hash| hash as i32 as f32;
    f64: |hash| hash as i64 as f64;
    Colour: |hash| Colour([0, 8, 16].map(|bits| (hash >> bits) as u8));
    Point: |hash| Point([0, 8].map(|bits| f32::from_hash(hash >> bits)));
    Place: |hash| Place([0, 8, 16].map(|bits| f32::from_hash(hash >> bits)));
    Triple: |hash| Triple([0, 8, 16].map(|bits| hash >> bits));
}

impl<A: Items, B: Items> Items for (A, B) {
    const BYTES: usize = if A::BYTES > B::BYTES { A::BYTES } else { B::BYTES };
    type Buffers = (A::Buffers, B::Buffers);
    type Views<'a> = (A::Views<'a>, B::Views<'a>);

    fn from_hash(hash: u64) -> Self {
        (A::from_hash(hash), B::from_hash(support::hash(hash)))
    }

    fn upload(items: &[Self], [first, second]: [usize; 2], device: &Device) -> Self::Buffers {
        let (a, b): (Vec<_>, Vec<_>) = items.iter().copied().unzip();
        (A::upload(&a, [first; 2], device), B::upload(&b, [second; 2], device))
    }

    fn views((a, b): &Self::Buffers, [first, second]: [usize; 2]) -> Self::Views<'_> {
        (A::views(a, [first; 2]), B::views(b, [second; 2]))
    }
}

/// A random reduction.
#[derive(Clone, Debug)]
struct Case {
    operator: [u8; 16],
    items: u64,
    /// Chooses a boundary of the plan; the length is `beside` elements from it.
    boundary: Index,
    beside: isize,
    /// Elements in front of the items, in each array.
    before: [usize; 2],
    /// For columns, the lengths of the axes that stay.
    stay: [usize; 2],
}

fn cases() -> impl Strategy<Value = Case> {
    let parameters = (any::<[u8; 16]>(), any::<u64>(), any::<Index>(), -2..=2isize);
    (parameters, [0..130usize, 0..130usize], [1..4usize, 1..40usize]).prop_map(
        |((operator, items, boundary, beside), before, stay)| Case {
            operator,
            items,
            boundary,
            beside,
            before,
            stay,
        },
    )
}

impl Case {
    /// The operator, made from random bytes: any bits are valid.
    fn operator<O: Op<I, Output: Item> + Pod, I: Items>(&self) -> O {
        pod_read_unaligned(&self.operator[..size_of::<O>()])
    }

    /// Up to `limit` items, for this operator and BLOCK.
    fn items<O: Op<I, Output: Item> + Pod, I: Items>(&self, block: u32, limit: usize) -> Vec<I> {
        self.some(self.len::<O, I>(block, limit))
    }

    /// `len` random items.
    fn some<I: Items>(&self, len: usize) -> Vec<I> {
        (0..len as u64).map(|index| I::from_hash(support::hash(self.items.wrapping_add(index)))).collect()
    }

    /// Whether shapes are tested with this BLOCK: two of six a case, because one kernel serves all of them.
    fn has(&self, block: u32) -> bool {
        let index = u64::from(block.ilog2() - 5);
        [self.items % 6, self.items / 6 % 6].contains(&index)
    }

    /// A length at or beside one of the plan's boundaries.
    fn len<O: Op<I, Output: Item> + Pod, I: Items>(&self, block: u32, limit: usize) -> usize {
        let row = Plan::new(0, width::<O, I>(I::BYTES), block).row as usize;
        let most = row * gpu_reduce::max_chunks(block) as usize;
        let rows = [1, 2, 3, 4, 7, 8, 9, 12, 31, 32, 33, 64, 127, 128, 129, 512].map(|rows| rows * row);
        let mut boundaries = [&[0, row / block as usize, 32, limit, 8 * most, 12 * most], &rows[..]].concat();
        boundaries.retain(|&boundary| boundary <= limit);
        boundaries[self.boundary.index(boundaries.len())].saturating_add_signed(self.beside)
    }
}

/// The longest input if `GPU_REDUCE_TEST_LEN` is not set: short enough for the emulator and a debug build.
const LEN: usize = 1 << 16;

/// The result of the [plan](gpu_reduce::Plan), computed from its description.
fn planned<O: Op<I, Output: Item> + Pod, I: Items>(op: &O, items: &[I], block: u32) -> Option<O::Output> {
    let len = items.len() as u64;
    let Some(&first) = items.first() else { return op.finish(op.identity(), 0) };
    let op = &op.begin(first);
    let plan = Plan::new(len, width::<O, I>(I::BYTES), block);
    let chunk = |chunk: usize| {
        let range = plan.range(chunk as u32);
        tree(op, 0..plan.row as usize, &|column| {
            let column = (range.start as usize + column..range.end as usize).step_by(plan.row as usize);
            fold(op, column.map(|index| op.lift(items[index], index as u64)))
        })
    };
    let chunks = plan.chunks as usize;
    // Neighbours of a group; chunks that are missing are the identity.
    let group = |group: usize| {
        tree(op, 1024 * group..1024 * (group + 1), &|index| {
            if index < chunks { chunk(index) } else { op.identity() }
        })
    };
    let rows = |count: usize, of: &dyn Fn(usize) -> O::Accumulator| {
        tree(op, 0..32, &|lane| fold(op, (lane..count).step_by(32).map(of)))
    };
    let all = match chunks {
        1 => chunk(0),
        2..=2048 => rows(chunks, &chunk),
        _ => rows(chunks.div_ceil(1024), &group),
    };
    op.finish(op.end(all, len), len)
}

/// Folds a range, a power of two long, as a tree: the results of its two halves are combined last.
fn tree<O: Op<I, Output: Item> + Pod, I: Items>(
    op: &O,
    range: std::ops::Range<usize>,
    at: &dyn Fn(usize) -> O::Accumulator,
) -> O::Accumulator {
    if range.len() == 1 {
        return at(range.start);
    }
    let middle = range.start + range.len() / 2;
    op.combine(tree(op, range.start..middle, at), tree(op, middle..range.end, at))
}

/// Folds the values in order.
fn fold<O: Op<I, Output: Item> + Pod, I: Items>(
    op: &O,
    all: impl Iterator<Item = O::Accumulator>,
) -> O::Accumulator {
    all.fold(op.identity(), |a, b| op.combine(a, b))
}

/// The bytes of a result; `None` if the operator has no value.
fn bits<O: Op<I, Output: Item> + Pod, I: Items>(result: Result<O::Output, Error>) -> Option<Vec<u8>> {
    match result {
        Ok(output) => Some(bytes_of(&output).to_vec()),
        Err(Error::EmptyInput { op }) if op == O::NAME => None,
        Err(error) => panic!("{error}"),
    }
}

/// Calls `check` with random cases and the greatest number of items. There is one case unless
/// `PROPTEST_CASES` is set.
fn for_cases(check: impl Fn(Case, usize) -> Result<(), TestCaseError>) {
    let limit = support::longest(LEN);
    TestRunner::new(support::cases(1)).run(&cases(), |case| check(case, limit)).unwrap();
}

/// Checks the results bit by bit.
fn check_all<V: Item>(
    got: Result<Buffer<V>, Error>,
    expected: &[V],
    context: &str,
) -> Result<(), TestCaseError> {
    let got =
        got.and_then(|results| results.to_vec()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(bytes_of_all(&got), bytes_of_all(expected), "{}", context);
    Ok(())
}

/// Tests the reduction of whole arrays, for a row of the table.
fn property<O: Op<I, Output: Item> + Pod, I: Items>() {
    for_cases(|case, limit| {
        let op: O = case.operator();
        for_each_block!(|BLOCK| {
            let items = case.items::<O, I>(BLOCK, limit);
            let expected = planned(&op, &items, BLOCK).map(|output| bytes_of(&output).to_vec());
            if O::EXACT {
                let lifted = (0..).zip(&items).map(|(index, &item)| op.lift(item, index));
                let folded = op.finish(fold(&op, lifted), items.len() as u64);
                prop_assert_eq!(&expected, &folded.map(|output| bytes_of(&output).to_vec()));
            }
            for device in &*DEVICES {
                let buffers = I::upload(&items, case.before, device);
                let result = I::views(&buffers, case.before).by(op).block::<BLOCK>().run();
                let context = format!("{} items on {device}, BLOCK {BLOCK}", items.len());
                prop_assert_eq!(bits::<O, I>(result), expected.clone(), "{}", context);
            }
        });
        Ok(())
    });
}

/// Tests columns, for a row of the table: each must have the result of its items.
fn property_of_columns<O: Op<I, Output: Item> + Pod, I: Items>() {
    for_cases(|case, limit| {
        let op: O = case.operator();
        let [outer, inner] = case.stay;
        for_each_block!(|BLOCK| {
            if case.has(BLOCK) {
                let reduced = case.len::<O, I>(BLOCK, limit / (outer * inner));
                let items = case.some::<I>(outer * reduced * inner);
                let expected: Vec<_> = (0..outer * inner)
                    .map(|column| {
                        let first = column / inner * reduced * inner + column % inner;
                        let column: Vec<_> = (0..reduced).map(|index| items[first + index * inner]).collect();
                        planned(&op, &column, BLOCK).unwrap_or(O::Output::zeroed())
                    })
                    .collect();
                for device in &*DEVICES {
                    let buffers = I::upload(&items, case.before, device);
                    let views = I::views(&buffers, case.before);
                    let shaped = views.reshape(&[outer, reduced, inner]).unwrap();
                    let results =
                        shaped.axis(1).unwrap().by(op).or(O::Output::zeroed()).block::<BLOCK>().run();
                    let context = format!("{outer} of {reduced} by {inner} on {device}, BLOCK {BLOCK}");
                    check_all(results, &expected, &context)?;
                }
            }
        });
        Ok(())
    });
}

/// Tests segments and rows, for a row of the table: each must have the result of its items.
fn property_of_segments<O: Op<I, Output: Item> + Pod, I: Items>() {
    for_cases(|case, limit| {
        let op: O = case.operator();
        for_each_block!(|BLOCK| {
            if case.has(BLOCK) {
                // One long segment among short ones.
                let mut offsets = vec![case.stay[0] as u32];
                for index in 0..case.stay[1] as u64 * 8 {
                    let random = support::hash(case.items ^ index);
                    let most = [2, 3, 5, 9, 40, 700][(random >> 32) as usize % 6];
                    let len =
                        if index == 20 { case.len::<O, I>(BLOCK, limit) } else { random as usize % most };
                    offsets.push(offsets[offsets.len() - 1] + len as u32);
                }
                let items = case.some::<I>(offsets[offsets.len() - 1] as usize);
                let expected: Vec<_> = offsets
                    .windows(2)
                    .map(|ends| {
                        let segment = &items[ends[0] as usize..ends[1] as usize];
                        planned(&op, segment, BLOCK).unwrap_or(O::Output::zeroed())
                    })
                    .collect();
                let columns = [1, 3, 8, 40, 130, 300, 700, 3_000][support::hash(case.items) as usize % 8];
                let of_rows = &items[..items.len() / columns * columns];
                let expected_rows: Vec<_> = of_rows
                    .chunks(columns)
                    .map(|row| planned(&op, row, BLOCK).unwrap_or(O::Output::zeroed()))
                    .collect();
                for device in &*DEVICES {
                    let [buffers, of_rows] =
                        [&items[..], of_rows].map(|items| I::upload(items, case.before, device));
                    let [views, of_rows] = [&buffers, &of_rows].map(|buffers| I::views(buffers, case.before));
                    let segments = views.segments(&offsets).unwrap();
                    let rows = of_rows.rows(columns).unwrap();
                    for (segments, expected, what) in
                        [(segments, &expected, "segments"), (rows, &expected_rows, "rows")]
                    {
                        let results = segments.by(op).or(O::Output::zeroed()).block::<BLOCK>().run();
                        let context = format!("{} {what} on {device}, BLOCK {BLOCK}", segments.len());
                        check_all(results, expected, &context)?;
                    }
                }
            }
        });
        Ok(())
    });
}

/// The bytes of each value.
fn bytes_of_all<V: bytemuck::NoUninit>(values: &[V]) -> Vec<Vec<u8>> {
    values.iter().map(|value| bytes_of(value).to_vec()).collect()
}

macro_rules! tests {
    ($($name:ident: $op:ty, $($item:ty),+;)*) => {$(
        #[test]
        fn $name() {
            property::<$op, items!($($item),+)>();
            property_of_columns::<$op, items!($($item),+)>();
            property_of_segments::<$op, items!($($item),+)>();
        }
    )*};
}

macro_rules! items {
    ($item:ty) => {
        $item
    };
    ($first:ty, $second:ty) => {
        ($first, $second)
    };
}

for_each_row! { tests }

/// Enqueues reductions by several operators of a family on one stream; the results stay on the device.
#[cfg(part = "0")]
fn enqueued<O: Op<I, Output: Item> + Pod, I: Items>() {
    for device in &*DEVICES {
        let items: Vec<I> = (0..3000).map(|index| I::from_hash(support::hash(index))).collect();
        let before = [3, 5];
        let buffers = I::upload(&items, before, device);
        let views = I::views(&buffers, before);
        let ops: Vec<O> =
            (0..20u8).map(|op| pod_read_unaligned(&[op.wrapping_mul(37); 16][..size_of::<O>()])).collect();
        let mut results = device.zeros(ops.len()).unwrap();
        let stream = device.stream().unwrap();
        for (index, &op) in ops.iter().enumerate() {
            // SAFETY: the buffers stay, and are not used otherwise, until the stream has been waited for.
            unsafe {
                views.by(op).block::<64>().run_into(&stream, results.slice_mut(index..).unwrap()).unwrap()
            };
        }
        stream.synchronize().unwrap();
        for (op, result) in ops.iter().zip(results.to_vec().unwrap()) {
            let expected = planned(op, &items, 64).unwrap_or(O::Output::zeroed());
            assert_eq!(result, expected, "{device}, {:?}", bytes_of(op));
        }
    }
}

#[cfg(part = "0")]
#[test]
fn results_stay_on_the_device() {
    enqueued::<Exact<u8, 1>, u8>();
    enqueued::<Ordered<u64, 5>, u32>();
    enqueued::<Ordered<u32, 3>, (u8, f64)>();
    enqueued::<Sums<f32, 3>, Place>();
}

/// Reduces by index on a stream, by `run_into` and by `run_async`, and compares each result with the
/// reduction of that index's items as a slice.
#[cfg(part = "0")]
fn by_index<O: Op<I, Output: Item> + Pod, I: Items>() {
    let count = 20;
    let items: Vec<I> = (0..900).map(|index| I::from_hash(support::hash(index))).collect();
    let indices: Vec<u32> = (0..900).map(|index| (support::hash(index + 7) % count) as u32).collect();
    let op: O = pod_read_unaligned(&[0x93; 16][..size_of::<O>()]);
    let of_index = |index: u64| {
        let of_index = items.iter().zip(&indices).filter(|&(_, &at)| u64::from(at) == index);
        let items: Vec<I> = of_index.map(|(&item, _)| item).collect();
        planned(&op, &items, 64).unwrap_or(O::Output::zeroed())
    };
    let expected: Vec<_> = (0..count).map(of_index).collect();
    for device in &*DEVICES {
        let buffers = I::upload(&items, [3, 5], device);
        let views = I::views(&buffers, [3, 5]);
        let at = device.upload(&indices).unwrap();
        let groups = views.by_index(&at, count as usize).unwrap();
        let reduction = || groups.by(op).or(O::Output::zeroed()).block::<64>();
        let mut scratch = device.zeros::<u64>(reduction().scratch_bytes().div_ceil(8).max(1)).unwrap();
        let mut results = device.zeros(expected.len()).unwrap();
        // SAFETY: the buffers stay, and are not used otherwise, until the stream has been waited for.
        let pending = unsafe {
            let stream = device.stream().unwrap().with_scratch(scratch.view_mut()).unwrap();
            reduction().run_into(&stream, &mut results).unwrap();
            stream.synchronize().unwrap();
            reduction().run_async(&device.stream().unwrap())
        };
        for results in [&results, &pending.wait().unwrap(), &reduction().run().unwrap()] {
            assert_eq!(bytes_of_all(&results.to_vec().unwrap()), bytes_of_all(&expected), "{device}");
        }
    }
}

/// Items of 1 byte, 3, 8 (aligned to 4), 12 and 24, and pairs.
#[cfg(part = "0")]
#[test]
fn items_of_any_size_by_index() {
    by_index::<Exact<u8, 1>, u8>();
    by_index::<Ordered<u32, 1>, Colour>();
    by_index::<Ordered<u32, 1>, Point>();
    by_index::<Sums<f32, 3>, Place>();
    by_index::<Exact<u64, 1>, Triple>();
    by_index::<Ordered<u32, 3>, (u8, f64)>();
    by_index::<Sums<f64, 5>, (Colour, u16)>();
}

/// More partial results than a stream's scratch memory holds at the start.
#[cfg(part = "0")]
#[test]
fn slots_grow() {
    let op = Ordered::<u64, 5>(bytemuck::Zeroable::zeroed(), std::marker::PhantomData);
    let items: Vec<u32> = (0..110_000).map(|index| support::hash(index) as u32).collect();
    let expected = planned(&op, &items, 32);
    for device in &*DEVICES {
        assert_eq!(device.upload(&items).unwrap().by(op).block::<32>().run().ok(), expected, "{device}");
    }
}

/// Every function of `gpu_reduce::math` has the bits of the CPU on all devices: of special arguments in
/// pairs, and of random ones.
#[cfg(part = "1")]
fn functions<F: random_ops::FloatOfFunctions>() {
    let special = (0..SPECIAL).flat_map(|x| (0..SPECIAL).map(move |y| special_item(x, y)));
    let items: Vec<u64> = special.chain((0..400).map(support::hash)).collect();
    for (index, name) in (0..).zip(Functions::<F>::NAMES) {
        let op = Functions::<F>(index, std::marker::PhantomData);
        let expected: Vec<_> = items.iter().map(|&item| op.finish(item, 1).unwrap()).collect();
        for device in &*DEVICES {
            let items = device.upload(&items).unwrap();
            // Rows of one item: each result is one value.
            let values = items.rows(1).unwrap().by(op).block::<64>().run().unwrap().to_vec().unwrap();
            assert_eq!(values, expected, "{name} of {} on {device}", std::any::type_name::<F>());
        }
    }
}

#[cfg(part = "1")]
#[test]
fn functions_of_floats() {
    functions::<f16>();
    functions::<bf16>();
    functions::<f32>();
    functions::<f64>();
}
