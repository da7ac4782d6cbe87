//! Matrix instructions: lanes that are missing, addresses, races, undefined values. (Their results are
//! compared in `tests/instructions`.)

use super::Machine;
use crate::fault::{Action, Fault, FaultKind, Memory};

const MMA: &str = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
    {%r10, %r11, %r12, %r13}, {%r2, %r3}, {%r4}, {%r5, %r6, %r7, %r8};";
/// Sets the sources of [`MMA`]: all factors are 1, and c is 0.
const ONES: &str = "mov.u32 %r2, 0x3c003c00; mov.u32 %r3, %r2; mov.u32 %r4, %r2;
    mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0; mov.u32 %r8, 0;";
/// Fills 512 bytes of shared memory, and sets `%r21` to the address of the lane's row of 16 bytes.
const ROWS: &str = "shl.b32 %r20, %r0, 4; mov.u32 %r21, shared; add.u32 %r21, %r21, %r20;
    st.shared.v4.u32 [%r21], {%r0, %r0, %r0, %r0};";

/// Runs a body with a warp, which finds 1,024 words at `%rd0`.
fn run(body: &str) -> Result<Vec<u32>, Box<Fault>> {
    let mut results = Vec::new();
    for seed in [None, Some(1), Some(2)] {
        let mut machine = Machine::new(body);
        machine.settings.seed = seed;
        let words = machine.upload(&[0u32; 1024]);
        machine.launch(1, 32, &[words])?;
        results.push(machine.words(words, 1024));
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{body}");
    Ok(results.remove(0))
}

/// Stores `%r10` to the lane's word.
const STORE: &str = "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0; st.global.u32 [%rd3], %r10;";

#[test]
fn all_lanes_must_run_a_matrix_instruction_together() {
    let aligned = |body: &str, threads: u32| match Machine::new(body).launch(1, threads, &[]) {
        Err(fault) => match &fault.kind {
            FaultKind::Aligned(text) => text.clone(),
            kind => panic!("{kind}"),
        },
        Ok(_) => panic!("no fault: {body}"),
    };
    let part = "setp.lt.u32 %p1, %r0, 16;";
    let text = aligned(&format!("{ONES} {part} @%p1 bra SKIP; {MMA} SKIP: mov.u32 %r2, 1;"), 32);
    assert_eq!(
        text,
        "lanes 16-31 of the warp are here, lanes 0-15 are not; lanes 0-15 have ended or are not in the block"
    );
    let text = aligned(&format!("{ONES} {part} @%p1 bra SKIP; {MMA} SKIP: bar.warp.sync -1;"), 32);
    assert!(
        text.starts_with("lanes 16-31 of the warp are here, lanes 0-15 are not; lanes 0-15 are at PTX line"),
        "{text}"
    );
    let text = aligned(&format!("{ONES} {part} @!%p1 {MMA}"), 32);
    assert_eq!(text, "lanes 16-31 of the warp are here, lanes 0-15 are not");
    aligned(&format!("{ONES} {part} @%p1 exit; {MMA}"), 32);
    aligned(&format!("{ONES} {MMA}"), 48);
    aligned(&format!("{ONES} {part} @%p1 bra A; {MMA} bra B; A: {MMA} B: mov.u32 %r2, 1;"), 32);
    let load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r21];";
    aligned(&format!("{ROWS} {part} @%p1 {load}"), 32);
}

#[test]
fn a_guard_that_no_lane_passes_skips_a_matrix_instruction() {
    let words = run(&format!("{ONES} mov.u32 %r10, 7; setp.lt.u32 %p1, %r0, 0; @%p1 {MMA} {STORE}")).unwrap();
    assert_eq!(words[..32], [7; 32]);
}

#[test]
fn lanes_that_left_a_join_early_wait_for_the_others() {
    // Lane 0 waits for what lane 1 writes behind the place where they meet.
    let words = run(&format!(
        "{ONES} mov.u32 %r21, shared; mov.u32 %r22, 1; mov.u32 %r24, 0;
        setp.ne.u32 %p1, %r0, 0; setp.ne.u32 %p2, %r0, 1;
        @!%p1 st.shared.u32 [%r21], %r24; bar.warp.sync -1;
        @%p1 bra MEET;
        WAIT: ld.volatile.shared.u32 %r23, [%r21]; setp.ne.u32 %p3, %r23, 1; @%p3 bra WAIT;
        MEET:
        @!%p2 st.volatile.shared.u32 [%r21], %r22;
        {MMA} {STORE}"
    ))
    .unwrap();
    assert_eq!(words[..32], [8f32.to_bits(); 32]);
}

#[test]
fn rows_must_be_aligned_and_in_bounds() {
    let load = |offset: u32, count: u32| {
        format!(
            "{ROWS} bar.warp.sync -1; add.u32 %r21, %r21, {offset};
            ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{}}}, [%r21]; {STORE}",
            ["%r10", "%r10, %r11", "", "%r10, %r11, %r12, %r13"][count as usize - 1]
        )
    };
    let words = run(&load(0, 4)).unwrap();
    assert_eq!(words[..32], std::array::from_fn::<u32, 32, _>(|lane| lane as u32 / 4));
    match run(&load(8, 1)).unwrap_err().kind {
        FaultKind::Misaligned(access) => assert_eq!((access.bytes, access.thread), (16, [0; 3])),
        kind => panic!("{kind}"),
    }
    match run(&load(8192, 2)).unwrap_err().kind {
        FaultKind::OutOfBounds { access, .. } => assert_eq!(access.name, Some("matrix load")),
        kind => panic!("{kind}"),
    }
    // The addresses of the other lanes do not count.
    let garbage = "setp.ge.u32 %p1, %r0, 8; @%p1 mov.u32 %r21, 0x7ffffff3;";
    run(&load(0, 1).replace("ldmatrix", &format!("{garbage} ldmatrix"))).unwrap();
    assert!(run(&load(0, 2).replace("ldmatrix", &format!("{garbage} ldmatrix"))).is_err());
}

#[test]
fn a_row_that_another_warp_writes_is_a_race() {
    // Warp 1 loads what warp 0 stores, or stores what warp 0 loads.
    let body = |barrier: &str, first: &str, second: &str| {
        format!(
            "and.b32 %r1, %r0, 31; shl.b32 %r20, %r1, 4; mov.u32 %r21, shared; add.u32 %r21, %r21, %r20;
            mov.u32 %r2, 1; mov.u32 %r3, 1; mov.u32 %r4, 1; mov.u32 %r5, 1; setp.ge.u32 %p1, %r0, 32;
            st.shared.v4.u32 [%r21+{}], {{%r2, %r3, %r4, %r5}}; bar.sync 0;
            @%p1 bra SECOND; {first} SECOND: {barrier} @!%p1 bra END; {second} END: mov.u32 %r2, 1;",
            0
        )
        .replace("st.shared.v4.u32 [%r21+0]", "@%p1 st.shared.v4.u32 [%r21]")
    };
    let store = "st.shared.v4.u32 [%r21], {%r2, %r3, %r4, %r5};";
    let load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r21];";
    let store_matrix = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r21], {%r2, %r3, %r4, %r5};";
    let tile = "mov.u32 %r21, shared;
        wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%r2, %r3, %r4, %r5}, [%r21];";
    for (first, second) in
        [(store, load), (load, store), (store_matrix, load), (load, store_matrix), (store, tile)]
    {
        Machine::new(&body("bar.sync 0;", first, second)).launch(1, 64, &[]).unwrap();
        match Machine::new(&body("", first, second)).launch(1, 64, &[]).unwrap_err().kind {
            FaultKind::Race { first, second } => {
                assert_eq!((first.memory, second.memory), (Memory::Shared, Memory::Shared));
                assert!(first.action == Action::Write || second.action == Action::Write);
                // The lane that gave the address of the row, in the other warp.
                assert_eq!(first.thread[0] % 32, second.thread[0] % 32);
            }
            kind => panic!("{kind}"),
        }
    }
    // A warp barrier orders the lanes of one warp.
    let own = |barrier: &str| format!("{ROWS} {barrier} xor.b32 %r21, %r21, 16; {load}");
    run(&own("bar.warp.sync -1;")).unwrap();
    assert!(matches!(run(&own("")).unwrap_err().kind, FaultKind::Race { .. }));
}

#[test]
fn undefined_elements_spread_to_their_rows_and_columns() {
    let unwritten = |fault: Box<Fault>| match fault.kind {
        FaultKind::Register { what, .. } => assert_eq!(what, "what is stored"),
        kind => panic!("{kind}"),
    };
    // Lanes 0 to 3 hold row 0 of a.
    let row = "setp.lt.u32 %p1, %r0, 4; @!%p1 mov.u32 %r2, 0x3c003c00;";
    let rest = ONES.replace(
        "mov.u32 %r2, 0x3c003c00; mov.u32 %r3, %r2; mov.u32 %r4, %r2;",
        "mov.u32 %r3, 0x3c003c00; mov.u32 %r4, %r3;",
    );
    unwritten(run(&format!("{row} {rest} {MMA} {STORE}")).unwrap_err());
    let words =
        run(&format!("{row} {rest} {MMA} {}", STORE.replace("st.global", "@!%p1 st.global"))).unwrap();
    assert_eq!(words[4..32], [8f32.to_bits(); 28]);
    // A column of b is in all rows: lanes 0 to 3 hold column 0, which lanes with a multiple of 4 have of d.
    let column = "setp.lt.u32 %p1, %r0, 4; @!%p1 mov.u32 %r4, 0x3c003c00;
        and.b32 %r1, %r0, 3; setp.eq.u32 %p2, %r1, 0;";
    let rest = ONES.replace("mov.u32 %r4, %r2;", "");
    let select = |guard: &str| STORE.replace("st.global", &format!("{guard} st.global"));
    unwritten(run(&format!("{rest} {column} {MMA} {}", select("@%p2"))).unwrap_err());
    run(&format!("{rest} {column} {MMA} {}", select("@!%p2"))).unwrap();
    // Through `movmatrix`, rows become columns: lanes whose number is 0 modulo 4 get row 0 and 1.
    let turned = "mov.u32 %r6, %r2; movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r6; add.u32 %r10, %r10, 1;";
    let move_of = |guard: &str| {
        format!("{row} {turned} and.b32 %r1, %r0, 3; setp.eq.u32 %p2, %r1, 0; {}", select(guard))
    };
    run(&move_of("")).unwrap();
    let rows = row.replace("%r0, 4", "%r0, 8");
    let both = |guard: &str| move_of(guard).replace(row, &rows);
    unwritten(run(&both("@%p2")).unwrap_err());
    run(&both("@!%p2")).unwrap();
}

#[test]
fn unwritten_rows_may_be_loaded_but_not_used() {
    // Only the first 4 of 8 rows are written.
    let load =
        "mov.u32 %r21, shared; shl.b32 %r20, %r0, 4; add.u32 %r21, %r21, %r20; setp.lt.u32 %p1, %r0, 4;
        @%p1 st.shared.v4.u32 [%r21], {%r0, %r0, %r0, %r0}; bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r21];";
    let first = "setp.lt.u32 %p2, %r0, 16; @%p2";
    let store = |guard: &str| STORE.replace("st.global", &format!("{guard} st.global"));
    run(&format!("{load} {}", store(first))).unwrap();
    match run(&format!("{load} {}", store(""))).unwrap_err().kind {
        FaultKind::Unwritten(access) => {
            assert_eq!(
                (access.memory, access.name, access.address),
                (Memory::Shared, Some("matrix load"), 64)
            );
        }
        kind => panic!("{kind}"),
    }
    // The same through a product, a tile in shared memory and a copy of its defined rows.
    let product =
        "mov.u32 %r2, %r10; mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;
        mov.u32 %r8, 0;";
    let tile = |guard: &str| {
        format!(
            "{load} {product} {MMA}
            mov.u32 %r22, shared; add.u32 %r22, %r22, 1024;
            wmma.store.d.sync.aligned.row.m8n32k16.shared.f32 [%r22],
                {{%r10, %r10, %r10, %r10, %r10, %r10, %r10, %r10}}, 32;
            bar.warp.sync -1; shl.b32 %r1, %r0, 2; add.u32 %r22, %r22, %r1; setp.lt.u32 %p3, %r0, 4;
            ld.shared.u32 %r10, [%r22]; {}",
            store(guard)
        )
    };
    // Lane 4·r + c of the fragment holds columns r of rows 2·c and 2·c + 1, so the first 4 columns are
    // defined.
    run(&tile("@%p3")).unwrap();
    assert!(matches!(run(&tile("")).unwrap_err().kind, FaultKind::Unwritten(_)));
    // In global memory, all stored elements must be defined.
    let global = format!(
        "{load} wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd0], {{%r10, %r10, %r10, %r10}}, 16;"
    );
    assert!(matches!(run(&global).unwrap_err().kind, FaultKind::Unwritten(_)));
}

#[test]
fn a_matrix_access_counts_as_one_request() {
    let machine = Machine::new(&format!(
        "{ROWS} bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r2, %r3, %r4, %r5}}, [%r21];
        wmma.load.c.sync.aligned.row.m16n16k16.global.f32
            {{%r2, %r3, %r4, %r5, %r6, %r7, %r8, %r9}}, [%rd0], 16;
        wmma.store.d.sync.aligned.row.m16n16k16.global.f32
            [%rd0], {{%r2, %r3, %r4, %r5, %r6, %r7, %r8, %r9}}, 16;"
    ));
    let words = machine.upload(&[0u32; 256]);
    let counters = machine.launch(1, 32, &[words]).unwrap();
    assert_eq!((counters.shared_load_requests, counters.shared_load_conflicts), (1, 0));
    assert_eq!((counters.global_load_requests, counters.global_load_sectors), (1, 32));
    assert_eq!((counters.global_store_requests, counters.global_store_sectors), (1, 32));
}
