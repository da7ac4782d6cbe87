//! Every operator of the table on every type, in every shape: a segment and a column have the bits of
//! reducing their items alone, on every device. `segments.rs` and `columns.rs` try more lengths and shapes
//! with a few operators.

use bytemuck::Zeroable;
use gpu_reduce::{
    Both, Buffer, Comparison, Device, Error, Item, Max, Mean, Min, Op, Reduce, Std, Sum, Var, bf16, f16,
    for_each_comparison, for_each_integer_operator, for_each_operator, for_each_pair_operator,
};
use std::fmt::Debug;
use support::{Sample, devices, for_each_element, for_each_integer, hash, samples};

/// Items on the host that can be picked out and uploaded.
trait Host: Reduce {
    type OnDevice: Reduce<Item = Self::Item>;

    fn pick(&self, indices: impl Iterator<Item = usize> + Clone) -> Self;

    fn upload(&self, device: &Device) -> Self::OnDevice;
}

impl<T: Item> Host for Vec<T> {
    type OnDevice = Buffer<T>;

    fn pick(&self, indices: impl Iterator<Item = usize> + Clone) -> Self {
        indices.map(|index| self[index]).collect()
    }

    fn upload(&self, device: &Device) -> Buffer<T> {
        device.upload(self).unwrap()
    }
}

impl<A: Host, B: Host> Host for (A, B) {
    type OnDevice = (A::OnDevice, B::OnDevice);

    fn pick(&self, indices: impl Iterator<Item = usize> + Clone) -> Self {
        (self.0.pick(indices.clone()), self.1.pick(indices))
    }

    fn upload(&self, device: &Device) -> Self::OnDevice {
        (self.0.upload(device), self.1.upload(device))
    }
}

/// Numbers of items and of columns.
const ITEMS: usize = 6_000;
const COLUMNS: usize = 7;

/// Lengths of segments: one leaf and several, a row of some types and several rows of others, one chunk and
/// more; empty ones at the start, at the end, and between.
const LENGTHS: [usize; 15] = [0, 3, 1, 0, 0, 17, 300, 64, 5, 1_100, 2, 2_600, 33, 150, 0];

/// The same items in both shapes, and the items of each segment and column alone.
struct Shapes<H> {
    items: H,
    offsets: Vec<u64>,
    segments: Vec<H>,
    of_columns: H,
    columns: Vec<H>,
}

impl<H: Host> Shapes<H> {
    fn new(items: H) -> Self {
        let mut offsets = vec![3];
        offsets.extend(LENGTHS.iter().scan(3, |end, length| {
            *end += *length as u64;
            Some(*end)
        }));
        let all = ITEMS / COLUMNS * COLUMNS;
        Self {
            segments: offsets.windows(2).map(|ends| items.pick(ends[0] as usize..ends[1] as usize)).collect(),
            columns: (0..COLUMNS).map(|column| items.pick((column..all).step_by(COLUMNS))).collect(),
            of_columns: items.pick(0..all),
            offsets,
            items,
        }
    }
}

fn compare<V: Item + Debug>(got: Result<Buffer<V>, Error>, alone: &[V], case: &str) {
    let got = got.unwrap_or_else(|error| panic!("{case}: {error}")).to_vec().unwrap();
    // Compares as text, in which NaNs are equal and zeros of different signs are not.
    assert_eq!(format!("{got:?}"), format!("{alone:?}"), "{case}");
}

fn check<H: Host, O: Op<H::Item, Output: Item + Debug>>(shapes: &Shapes<H>, op: O, of: &str) {
    let default = O::Output::zeroed();
    let alone = |items: &H| items.by(op).block::<64>().run().unwrap_or(default);
    let [segments, columns] =
        [&shapes.segments, &shapes.columns].map(|parts| parts.iter().map(alone).collect::<Vec<_>>());
    for device in devices() {
        let case = format!("{} of {of} on {device}", O::NAME);
        let [items, of_columns] = [&shapes.items, &shapes.of_columns].map(|items| items.upload(&device));
        let of_segments = items.segments(&shapes.offsets).unwrap();
        let of_columns = of_columns.columns(COLUMNS).unwrap();
        for (shape, alone) in [(of_segments, &segments), (of_columns, &columns)] {
            compare(shape.by(op).or(default).block::<64>().run(), alone, &case);
        }
    }
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
        $(check(&Shapes::new(samples(ITEMS, <$type as Sample>::factor)), gpu_reduce::Prod, stringify!($type));)*
    };
    ({ element $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $(check(&Shapes::new(samples(ITEMS, <$type as Sample>::any)), gpu_reduce::$op::default(), stringify!($type));)*
    };
    ({ comparison $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $(check(
            &Shapes::new(samples(ITEMS, <$type as Sample>::any)),
            gpu_reduce::$op::new(Comparison::Greater(<$type as Sample>::any(hash(1)))),
            stringify!($type),
        );)*
    };
    ({ pair $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $(check(
            &Shapes::new((
                samples(ITEMS, <$type as Sample>::any),
                samples(ITEMS, |hash| <$type as Sample>::any(hash.rotate_left(17))),
            )),
            gpu_reduce::$op::default(),
            stringify!($type),
        );)*
    };
    ({ together } $($type:ident: $($row:ident)*;)*) => {$(
        let host = Shapes::new(samples(ITEMS, <$type as Sample>::any));
        check(&host, Both(Sum, Both(Min, Max)), stringify!($type));
        check(&host, Both(Mean, Var::default()), stringify!($type));
        check(&host, Both(Mean, Std::default()), stringify!($type));
    )*};
}

for_each_operator! { test_operators! { element for_each_element } }
for_each_integer_operator! { test_operators! { element for_each_integer } }
for_each_pair_operator! { test_operators! { pair for_each_element } }
for_each_comparison! { test_operators! { comparison for_each_element } }

#[test]
fn several_at_once() {
    for_each_element! { check_types! { together } }
}
