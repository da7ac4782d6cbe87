//! Orders of blocks: with and without a seed, on one CPU thread and several.

use super::{Machine, Settings};
use crate::fault::{Fault, FaultKind};
use std::collections::BTreeSet;

/// Each block takes the next place and writes its number there.
const APPEND: &str = "
    atom.global.add.u32 %r1, [%rd0], 1;
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    st.global.u32 [%rd4], %r2;";

/// Block i > 0 waits for the flag of block i - 1, and notes whether it had to wait; then it sets its own
/// flag.
const CHAIN: &str = "
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd0, %rd3;
    add.s64 %rd5, %rd1, %rd3;
    mov.u32 %r3, 0;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra SET;
POLL:
    ld.acquire.gpu.global.u32 %r2, [%rd4+-4];
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra SET;
    mov.u32 %r3, 1;
    bra POLL;
SET:
    st.global.u32 [%rd5], %r3;
    mov.u32 %r2, 1;
    st.release.gpu.global.u32 [%rd4], %r2;";

/// A barrier of all blocks.
const GRID_BARRIER: &str = "
    mov.u32 %r1, %nctaid.x;
    atom.acq_rel.gpu.global.add.u32 %r2, [%rd0], 1;
POLL:
    ld.acquire.gpu.global.u32 %r2, [%rd0];
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra POLL;";

/// What a kernel writes to its second array under a seed, with one CPU thread or more.
fn written(kernel: &str, seed: Option<u64>, threads: usize, blocks: u32) -> Vec<u32> {
    let mut machine = Machine::new(kernel);
    machine.settings = Settings { seed, threads, ..Settings::default() };
    let zeros = vec![0u32; blocks as usize];
    let (first, second) = (machine.upload(&zeros), machine.upload(&zeros));
    machine.launch(blocks, 1, &[first, second]).unwrap_or_else(|fault| panic!("seed {seed:?}: {fault}"));
    machine.words(second, blocks as usize)
}

#[test]
fn blocks_run_in_the_order_of_a_seed() {
    let in_order: Vec<u32> = (0..40).collect();
    assert_eq!(written(APPEND, None, 1, 40), in_order);
    let orders: BTreeSet<_> = (0..8).map(|seed| written(APPEND, Some(seed), 1, 40)).collect();
    assert_eq!(orders.len(), 8);
    assert!(!orders.contains(&in_order));
    for mut order in orders {
        order.sort_unstable();
        assert_eq!(order, in_order);
    }
}

#[test]
fn a_seed_gives_the_same_order_each_time() {
    for seed in 0..8 {
        let first = written(APPEND, Some(seed), 1, 100);
        for threads in [1, 4] {
            assert_eq!(written(APPEND, Some(seed), threads, 100), first);
        }
    }
}

#[test]
fn blocks_wait_for_the_one_before() {
    assert_eq!(written(CHAIN, None, 1, 300), [0; 300]);
    for seed in 0..8 {
        let waited: u32 = written(CHAIN, Some(seed), 1, 300).iter().sum();
        assert!((1..300).contains(&waited), "seed {seed}: {waited} blocks have waited");
    }
}

fn at_a_grid_barrier(seed: Option<u64>, threads: usize, blocks: u32) -> Result<(), Box<Fault>> {
    let mut machine = Machine::new(GRID_BARRIER);
    machine.settings = Settings { seed, threads, ..Settings::default() };
    machine.resident = 150;
    let counter = machine.upload(&[0u32]);
    machine.launch(blocks, 1, &[counter]).map(drop)
}

#[test]
fn a_grid_barrier_is_for_resident_blocks() {
    for (seed, threads) in [(None, 1), (None, 4), (Some(1), 1), (Some(2), 1)] {
        assert_eq!(at_a_grid_barrier(seed, threads, 150), Ok(()), "{seed:?}, {threads} threads");
        let fault = at_a_grid_barrier(seed, threads, 151).unwrap_err();
        let FaultKind::Resident { resident: 150, blocks: 151, .. } = fault.kind else { panic!("{fault}") };
        assert_eq!(fault.seed, seed);
    }
}

#[test]
fn a_fault_names_its_seed() {
    let mut machine = Machine::new("st.global.u32 [%rd0], %r0;");
    machine.settings.seed = Some(42);
    let fault = machine.launch(1, 1, &[0]).unwrap_err().to_string();
    assert!(fault.contains("in the order of seed 42: out of bounds"), "{fault}");
}
