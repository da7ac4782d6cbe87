//! Operators that are not compiled for GPUs reduce on the CPU; elsewhere the error says what to do.

use bytemuck::{Pod, Zeroable};
use gpu_reduce::{Block, Error, Item, Kernels, Op, Reduce, Threads};
use gpu_reduce_kernels::kernels::{Entry, Ptx};
use gpu_reduce_kernels::reduce::Kernel;
use random_ops::{Exact, Value};
use std::marker::PhantomData;
use support::devices;

/// Operators that count items, each with its own table.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident: $kernels:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, Pod, Zeroable)]
        #[repr(C)]
        struct $name;

        impl<I: Value> Op<I> for $name {
            const NAME: &'static str = "exact";
            type Accumulator = u64;
            type Output = u64;
            const EXACT: bool = true;
            const KERNELS: Kernels = $kernels;

            fn identity(&self) -> u64 {
                0
            }
            fn lift(&self, _: I, _: u64) -> u64 {
                1
            }
            fn combine(&self, a: u64, b: u64) -> u64 {
                a + b
            }
            fn finish(&self, all: u64, _: u64) -> Option<u64> {
                Some(all)
            }
        }
    )*};
}

counts! {
    /// No table.
    Without: Kernels::NONE;
    /// The table of other operators.
    OfOthers: random_ops::KERNELS;
    /// The library's table, which has items that its own operators take.
    OfLibrary: <gpu_reduce::Sum as Op<u32>>::KERNELS;
    /// A table that has the operator, but without PTX.
    NotCompiled: table(&[]);
    /// A table that has the operator, compiled for one BLOCK.
    OneBlock: table(&[&Ptx { version: (6, 0), capability: (7, 0), kernels: &[("one_block", &[(256, 0)])], packed: &[] }]);
}

/// A table with these PTX, which contain no code.
const fn table(ptx: &'static [&'static Ptx]) -> Kernels {
    // SAFETY: there is no code that could belong to another kernel.
    unsafe { Kernels::new(ENTRIES, ptx) }
}

const ENTRIES: &[&[Entry]] = &[&[
    Entry::new::<Kernel<NotCompiled, *const u32>>("not_compiled"),
    Entry::new::<Kernel<OneBlock, *const u32>>("one_block"),
]];

/// Reduces 1,000 items on each device: the CPU gives `expected`; others give an error that names all of
/// `what` and says what to do.
fn refused<O: Op<I, Output: Item>, I: Value + Pod + Send + Sync, const BLOCK: u32>(
    op: O,
    expected: O::Output,
    what: &[&str],
) where
    Threads<BLOCK>: Block,
{
    let items = [I::zeroed(); 1000];
    for device in devices() {
        let x = device.upload(&items).unwrap();
        let reduced = x.by(op).block::<BLOCK>().run();
        if device.is_cpu() {
            assert_eq!(reduced, Ok(expected));
            continue;
        }
        let stream = device.stream().unwrap();
        let mut results = device.zeros(1).unwrap();
        // SAFETY: the buffers stay until the stream has been waited for.
        let enqueued = unsafe { x.by(op).block::<BLOCK>().run_into(&stream, &mut results) };
        stream.synchronize().unwrap();
        let error = reduced.unwrap_err();
        assert_eq!(enqueued, Err(error.clone()));
        assert!(matches!(error, Error::NoKernel { .. }), "{error:?}");
        let text = error.to_string();
        let advice = ["Device::cpu()", "gpu_reduce_kernels::kernels!", "Op::KERNELS"];
        for part in what.iter().chain(&advice) {
            assert!(text.contains(part), "no {part} in: {text}");
        }
        // The device still works.
        assert_eq!(gpu_reduce::sum(&device.upload(&[5u32; 1000]).unwrap()), Ok(5000));
    }
}

#[test]
fn an_operator_without_kernels() {
    refused::<_, u32, 256>(Without, 1000, &["Without", "u32", "BLOCK 256"]);
}

#[test]
fn an_operator_with_the_table_of_others() {
    refused::<_, u32, 64>(OfOthers, 1000, &["OfOthers", "u32", "BLOCK 64"]);
    refused::<_, u32, 1024>(OfLibrary, 1000, &["OfLibrary", "u32", "BLOCK 1024"]);
}

#[test]
fn an_operator_in_a_table_that_nothing_compiled() {
    refused::<_, u32, 256>(NotCompiled, 1000, &["NotCompiled", "u32", "BLOCK 256"]);
}

#[test]
fn a_block_that_was_not_compiled() {
    refused::<_, u32, 128>(OneBlock, 1000, &["OneBlock", "u32", "BLOCK 128"]);
}

#[test]
fn an_item_that_was_not_compiled() {
    // The operator is compiled for `u8`; zeros of `u64` have the same result.
    let op = Exact::<u8, 1>(Zeroable::zeroed(), PhantomData);
    let expected = [0u8; 1000].by(op).block::<32>().run().unwrap();
    refused::<_, u64, 32>(op, expected, &["Exact", "u64", "BLOCK 32"]);
}
