//! The table: every operator, type and BLOCK, at lengths around every boundary, aligned and not, on every
//! device, against the reference. The devices must agree bit for bit.
//!
//! `GPU_REDUCE_TEST_LEN` sets the longest input, [`len`] elements if it is not set; the emulator reduces
//! inputs up to [`EMULATED`].

use gpu_reduce::{Block, Buffer, Element, Max, Min, Op, Plan, Prod, Reduce, Sum, Threads, View, width};
use std::sync::Mutex;
use support::reference::Reference;
use support::{Sample, devices, for_each_block, for_each_element, lengths, samples};

/// Locked by each test if `GPU_REDUCE_TEST_LEN` is set: such inputs may take gigabytes.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The longest input that the emulator reduces.
const EMULATED: usize = 70_000;

/// The longest input if `GPU_REDUCE_TEST_LEN` is not set. With elements of 8 bytes it passes every boundary
/// of the plan with every BLOCK. Inputs of smaller elements would have to be longer for that, and are
/// shorter.
const fn len<T>() -> usize {
    if size_of::<T>() == 8 { 7 << 20 } else { 1 << 20 }
}

macro_rules! test_types {
    ({} $($type:ident: $($row:ident)*;)*) => {$(
        mod $type {
            #[allow(unused_imports)]
            use gpu_reduce::{bf16, f16};

            #[test]
            fn table() {
                super::test_type::<$type>();
            }
        }
    )*};
}

for_each_element! { test_types! {} }

fn test_type<T>()
where
    T: Sample + Reference<Sum> + Reference<Prod> + Reference<Min> + Reference<Max>,
{
    let is_long = support::longest(0) > 0;
    let _guard = is_long.then(|| ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    let any = Inputs::new(T::any);
    any.test::<Sum>();
    any.test::<Min>();
    any.test::<Max>();
    drop(any);
    Inputs::new(T::factor).test::<Prod>();
}

/// Where the inputs start in their buffer: aligned, one and three elements on, a load on, a cache line less
/// one on.
fn offsets<T: Element>() -> [usize; 5] {
    [0, 1, 3, 16 / size_of::<T>(), 128 / size_of::<T>() - 1]
}

/// The same data on every device.
struct Inputs<T: Element> {
    host: Vec<T>,
    buffers: Vec<Buffer<T>>,
    longest: usize,
}

impl<T: Sample> Inputs<T> {
    fn new(sample: impl Fn(u64) -> T + Sync) -> Self {
        let longest = support::longest(len::<T>());
        let host = samples(longest + 128, sample);
        let buffers = devices().iter().map(|device| device.upload(&host).unwrap()).collect();
        Self { host, buffers, longest }
    }

    fn test<O>(&self)
    where
        O: Op<T> + Default,
        T: Reference<O>,
    {
        // Tries each length with all BLOCKs, so that the reference is computed once.
        let mut all: Vec<usize> = Vec::new();
        for_each_block!(|BLOCK| all.extend(lengths::<T, BLOCK>(self.longest)));
        all.sort();
        all.dedup();
        for (index, &len) in all.iter().enumerate().skip(1) {
            // The longest are tried at two offsets, the others at alternating ones.
            let offsets = offsets::<T>();
            let tried =
                if len == self.longest { &offsets[..2] } else { &offsets[index % offsets.len()..][..1] };
            for &offset in tried {
                let range = offset..offset + len;
                let expected = T::expected(&self.host[range.clone()]);
                let takes_part = |buffer: &&Buffer<T>| len <= EMULATED || !buffer.device().is_emulator();
                let buffers = self.buffers.iter().filter(takes_part);
                let views: Vec<View<T>> =
                    buffers.map(|buffer| buffer.slice(range.clone()).unwrap()).collect();
                for_each_block!(|BLOCK| test_case::<O, T, BLOCK>(&views, offset, &expected));
            }
        }
    }
}

fn test_case<O: Op<T> + Default, T: Reference<O>, const BLOCK: u32>(
    views: &[View<T>],
    offset: usize,
    expected: &T::Expected,
) where
    Threads<BLOCK>: Block,
{
    let plan = Plan::new(views[0].len() as u64, width::<O, T>(size_of::<T>()), BLOCK);
    let mut first = None;
    for view in views {
        let context =
            format!("{}_{}_{BLOCK} of {} from {offset} on {}", O::NAME, T::NAME, view.len(), view.device());
        let got = view.reduce::<O, BLOCK>().unwrap_or_else(|error| panic!("{context}: {error}"));
        T::check(got, expected, plan.depth(), &context);
        // Debug shows all bits of a float, except those of a NaN, and there is none here.
        let shown = format!("{got:?}");
        assert_eq!(*first.get_or_insert_with(|| shown.clone()), shown, "{context}: not what the CPU gives");
    }
}
