//! What the lecture and the reports say of each kernel, compared with the emulator's counters of one block of
//! each kernel, over as many elements as the block covers.

use gpu_reduce::emulator::{self, Counters};
use gpu_reduce::{Block, Device, LadderElement, LadderOp, Sum, Threads, Variant, variant::*};
use support::{for_each_block, process};

/// Whether this is the process of a test of this module: a process that has found a GPU's driver can have no
/// emulator, and the counters are those of a process's last launch.
fn is_own(test: &str) -> bool {
    process::is_own(&format!("counters::{test}"), |_| {})
}

/// The counters of a sum by one block.
fn count<V: Variant, T: LadderElement, const BLOCK: u32>(len: u32) -> Counters
where
    Threads<BLOCK>: Block,
    Sum: LadderOp<T>,
{
    let x = Device::emulator().unwrap().zeros::<T>(len as usize).unwrap();
    x.reduce_with::<V, Sum, BLOCK>().unwrap();
    let (kernel, counters) = emulator::last_counters().unwrap();
    assert_eq!(kernel, format!("{}_sum_{}_{BLOCK}", V::NAME, T::NAME));
    assert_eq!(counters.blocks, 1, "{kernel}");
    counters
}

/// As [`count`] with `f32`, for a kernel that loads one element per thread.
fn one<V: Variant, const BLOCK: u32>() -> Counters
where
    Threads<BLOCK>: Block,
{
    count::<V, f32, BLOCK>(BLOCK)
}

/// As [`count`] with `f32`, for a kernel that loads two elements per thread.
fn two<V: Variant, const BLOCK: u32>() -> Counters
where
    Threads<BLOCK>: Block,
{
    count::<V, f32, BLOCK>(2 * BLOCK)
}

fn conflicts(counters: Counters) -> u64 {
    counters.shared_load_conflicts + counters.shared_store_conflicts
}

/// Report 000 and the lecture: floor(log2 BLOCK) + 1 barriers. One fewer if the load adds and barriers stand
/// before the steps, and none for the last six steps once the last warp is unrolled.
#[test]
fn barriers() {
    if !is_own("barriers") {
        return;
    }
    for_each_block!(|BLOCK| {
        let steps = u64::from(BLOCK.ilog2());
        assert_eq!(one::<InterleavedModulo, BLOCK>().barriers, steps + 1);
        assert_eq!(one::<InterleavedStrided, BLOCK>().barriers, steps + 1);
        assert_eq!(one::<Sequential, BLOCK>().barriers, steps + 1);
        assert_eq!(two::<PairsInterleaved, BLOCK>().barriers, steps + 1);
        assert_eq!(two::<PairsReversed, BLOCK>().barriers, steps + 1);
        assert_eq!(two::<BlockAtomic, BLOCK>().barriers, steps + 1);
        assert_eq!(two::<FirstAdd, BLOCK>().barriers, steps);
        let unrolled = 1 + steps.saturating_sub(6);
        assert_eq!(two::<UnrolledLastWarp, BLOCK>().barriers, unrolled);
        assert_eq!(two::<Unrolled, BLOCK>().barriers, unrolled);
        assert_eq!(two::<Cascaded, BLOCK>().barriers, unrolled);
        assert_eq!(two::<Shuffle, BLOCK>().barriers, u64::from(BLOCK > 32));
        assert_eq!(one::<Atomic, BLOCK>().barriers, 0);
    });
}

/// The accesses of report 000: after a write for each element that a thread keeps, a step reads two slots and
/// writes one in each warp with a working thread. Thread 0 reads the result. In a block of one warp they are
/// those of thread 0.
#[test]
fn shared_accesses() {
    if !is_own("shared_accesses") {
        return;
    }
    let expected = |warps_at_work: u64, kept: u64| [2 * warps_at_work + 1, warps_at_work + kept];
    let counted = |c: Counters| [c.shared_load_requests, c.shared_store_requests];
    for_each_block!(|BLOCK| {
        let (block, warps) = (u64::from(BLOCK), u64::from(BLOCK / 32));
        let strides = || (0..=block.ilog2()).map(|step| 1 << step);
        let scattered: u64 = strides().map(|stride: u64| warps.min(block / stride)).sum();
        assert_eq!(counted(two::<PairsInterleaved, BLOCK>()), expected(scattered, 2 * warps));
        let packed = |stride: u64| stride.div_ceil(32);
        assert_eq!(counted(two::<PairsReversed, BLOCK>()), expected(strides().map(packed).sum(), 2 * warps));
        let packed = strides().filter(|&stride| stride < block).map(packed).sum();
        assert_eq!(counted(two::<FirstAdd, BLOCK>()), expected(packed, warps));
    });
}

/// From the first kernel to the second, the inner loop's branch stops diverging in warps that work as a
/// whole. With `%`, each warp diverges in five steps, and one warp in each later step. With a strided index,
/// only the first warp diverges, in the last five steps. Once the last warp is unrolled, no step diverges.
/// The store by thread 0 diverges once in each kernel.
#[test]
fn divergence() {
    if !is_own("divergence") {
        return;
    }
    for_each_block!(|BLOCK| {
        let warps = u64::from(BLOCK / 32);
        assert_eq!(one::<InterleavedModulo, BLOCK>().divergent_branches, 5 * warps + (warps - 1) + 1);
        assert_eq!(one::<InterleavedStrided, BLOCK>().divergent_branches, 5 + 1);
        assert_eq!(one::<Sequential, BLOCK>().divergent_branches, 5 + 1);
        assert_eq!(two::<FirstAdd, BLOCK>().divergent_branches, 5 + 1);
        assert_eq!(two::<UnrolledLastWarp, BLOCK>().divergent_branches, 1);
        assert_eq!(two::<Unrolled, BLOCK>().divergent_branches, 1);
        assert_eq!(one::<Atomic, BLOCK>().divergent_branches, 0);
    });
}

/// Extra passes of one access by all threads of a block in the strided kernel's steps: for each warp, the
/// slots in the fullest of the 32 banks of 4 bytes, less one.
fn strided_passes(block: u32) -> u64 {
    let strides = (0..block.ilog2()).map(|step| 1 << step);
    strides
        .flat_map(|stride| (0..block).step_by(32).map(move |warp| (stride, warp)))
        .map(|(stride, warp)| {
            let mut banks = [0u64; 32];
            let places = (warp..warp + 32).map(|thread| 2 * stride * thread).filter(|&place| place < block);
            places.for_each(|place| banks[place as usize % 32] += 1);
            banks.into_iter().max().unwrap_or(0).saturating_sub(1)
        })
        .sum()
}

/// A strided index has bank conflicts, in two loads and a store a step. Sequential addressing has none, for
/// elements of 4 and of 8 bytes.
#[test]
fn bank_conflicts() {
    if !is_own("bank_conflicts") {
        return;
    }
    for_each_block!(|BLOCK| {
        assert_eq!(conflicts(one::<InterleavedModulo, BLOCK>()), 0);
        assert_eq!(conflicts(one::<InterleavedStrided, BLOCK>()), 3 * strided_passes(BLOCK));
        assert!(strided_passes(BLOCK) > 0 || BLOCK == 32);
        assert_eq!(conflicts(one::<Sequential, BLOCK>()), 0);
        assert_eq!(conflicts(count::<Sequential, i32, BLOCK>(BLOCK)), 0);
        assert_eq!(conflicts(count::<Sequential, f64, BLOCK>(BLOCK)), 0);
        assert_eq!(conflicts(two::<UnrolledLastWarp, BLOCK>()), 0);
    });
}

/// Each unrolling saves instructions and branches for the same elements, and shuffles save shared memory.
#[test]
fn unrolling() {
    if !is_own("unrolling") {
        return;
    }
    for_each_block!(|BLOCK| {
        let (first_add, last_warp) = (two::<FirstAdd, BLOCK>(), two::<UnrolledLastWarp, BLOCK>());
        let (unrolled, shuffle) = (two::<Unrolled, BLOCK>(), two::<Shuffle, BLOCK>());
        assert!(last_warp.branches < first_add.branches);
        assert!(unrolled.branches < last_warp.branches);
        assert!(last_warp.warp_instructions < first_add.warp_instructions);
        assert!(unrolled.warp_instructions < last_warp.warp_instructions);
        assert_eq!(shuffle.shared_load_requests, u64::from(BLOCK > 32));
    });
}

/// One atomic operation for each element, or one for each block of two elements a thread.
#[test]
fn atomics() {
    if !is_own("atomics") {
        return;
    }
    for_each_block!(|BLOCK| {
        assert_eq!(one::<Atomic, BLOCK>().atomic_operations, u64::from(BLOCK));
        assert_eq!(two::<BlockAtomic, BLOCK>().atomic_operations, 1);
    });
}
