//! Counters against values computed by hand.

use super::Machine;

#[test]
fn a_small_kernel_counts_as_expected() {
    let machine = Machine::new(
        "setp.lt.u32 %p1, %r0, 16;
        @%p1 bra SKIP;
        mov.u32 %r1, 1;
        SKIP:
        shl.b32 %r2, %r0, 3;
        mov.u32 %r3, shared;
        add.u32 %r3, %r3, %r2;
        st.shared.u32 [%r3], %r0;
        bar.sync 0;
        ld.shared.u32 %r4, [%r3];
        mul.wide.u32 %rd3, %r0, 4;
        add.u64 %rd3, %rd0, %rd3;
        ld.global.u32 %r5, [%rd3+4];
        bar.sync 0;
        st.global.u32 [%rd3], %r5;
        red.global.add.u32 [%rd1], 1;",
    );
    let (data, sum) = (machine.upload(&[1u32; 80]), machine.upload(&[0u32]));
    let counters = machine.launch(1, 64, &[data, sum]).unwrap();
    // 4 instructions before the body, 15 in it, and `ret`. Half of warp 0 and none of warp 1 branch past the
    // `mov`.
    assert_eq!(counters.warp_instructions, 2 * (4 + 15 + 1));
    // The branch's guard selects 16 lanes.
    assert_eq!(counters.lane_instructions, 64 * (4 + 15 + 1) - 16 - 48);
    assert_eq!((counters.branches, counters.divergent_branches), (2, 1));
    assert_eq!((counters.blocks, counters.warps, counters.barriers), (1, 2, 2));
    // A stride of two words takes two passes.
    assert_eq!((counters.shared_store_requests, counters.shared_store_conflicts), (2, 2));
    assert_eq!((counters.shared_load_requests, counters.shared_load_conflicts), (2, 2));
    assert_eq!((counters.global_load_requests, counters.global_load_sectors), (2, 10));
    assert_eq!((counters.global_store_requests, counters.global_store_sectors), (2, 8));
    assert_eq!((counters.global_atomic_requests, counters.atomic_operations), (2, 64));
    assert_eq!(machine.words(sum, 1), [64]);
}

#[test]
fn counts_do_not_depend_on_how_a_launch_runs() {
    let counts = |threads, seed, checks| {
        let mut machine = Machine::new(
            "mov.u32 %r1, %ctaid.x;
            setp.lt.u32 %p1, %r0, %r1;
            @%p1 bra SKIP;
            red.global.add.u32 [%rd0], %r0;
            SKIP: bar.sync 0;",
        );
        machine.settings.threads = threads;
        machine.settings.seed = seed;
        machine.settings.checks = checks;
        let sum = machine.upload(&[0u32]);
        machine.launch(50, 96, &[sum]).unwrap()
    };
    let all =
        [counts(1, None, true), counts(2, None, true), counts(1, Some(1), true), counts(3, Some(9), false)];
    assert!(all.iter().all(|counters| *counters == all[0]), "{all:#?}");
}

#[test]
fn an_asynchronous_copy_counts_as_one_request() {
    // Half of the lanes copy 16 bytes, the others 4 bytes and 12 zeros.
    let partial = Machine::new(
        "setp.lt.u32 %p1, %r0, 16; selp.u32 %r10, 16, 4, %p1;
        mul.wide.u32 %rd3, %r0, 16; add.u64 %rd3, %rd0, %rd3;
        shl.b32 %r3, %r0, 4; mov.u32 %r4, shared; add.u32 %r3, %r3, %r4;
        cp.async.ca.shared.global [%r3], [%rd3], 16, %r10; cp.async.wait_all;",
    );
    let counters = partial.launch(1, 32, &[partial.upload(&[1u32; 128])]).unwrap();
    assert_eq!((counters.global_load_requests, counters.global_load_sectors), (1, 16));
    assert_eq!((counters.shared_store_requests, counters.shared_load_requests), (1, 0));

    // One thread copies 256 bytes in, and out again.
    let bulk = Machine::new(
        "setp.eq.u32 %p1, %r0, 0;
        @%p1 mbarrier.init.shared.b64 [shared+1024], 1;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [shared+1024], 256;
        @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [shared], [%rd0], 256, [shared+1024];
        bar.sync 0;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [shared+1024], 0; @!%p2 bra WAIT;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [shared], 256;
        @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;",
    );
    let pointers = [bulk.upload(&[1u32; 64]), bulk.upload(&[0u32; 64])];
    let counters = bulk.launch(1, 32, &pointers).unwrap();
    assert_eq!((counters.global_load_requests, counters.global_load_sectors), (1, 8));
    assert_eq!((counters.global_store_requests, counters.global_store_sectors), (1, 8));
    assert_eq!((counters.shared_store_requests, counters.shared_load_requests), (1, 1));
}
