//! Races that are notes, faults next to them, and what the settings allow.

use super::{Machine, kernel};
use crate::{
    Allow,
    fault::{Action, Fault, FaultKind, Level, Memory},
};

/// The words that a launch left, or its fault; and its notes.
type Ran = (Result<Vec<u32>, Box<Fault>>, Vec<Fault>);

const SEEDS: [Option<u64>; 4] = [None, Some(1), Some(2), Some(3)];

/// Runs a kernel on one and on three CPU threads, and with seeds. Returns the words at `%rd0` and the notes
/// of each.
fn run(body: &str, [blocks, threads]: [u32; 2], words: &[u32]) -> Vec<Ran> {
    let runs = [(1, None), (3, None)].into_iter().chain(SEEDS.map(|seed| (1, seed)));
    runs.map(|(cores, seed)| {
        let mut machine = Machine::new(body);
        (machine.settings.threads, machine.settings.seed) = (cores, seed);
        let at = machine.upload(words);
        let (ended, notes) = machine.launch_with_notes(blocks, threads, &[at]);
        (ended.map(|_| machine.words(at, words.len())), notes)
    })
    .collect()
}

/// Asserts that a kernel has exactly one note, of two stores, in any order.
fn assert_same_value(body: &str, shape: [u32; 2], words: &[u32], expected: &[u32], memory: Memory) {
    for (ended, notes) in run(body, shape, words) {
        assert_eq!(ended.as_deref(), Ok(expected), "{body}");
        let [note] = &notes[..] else { panic!("{notes:?}: {body}") };
        let FaultKind::SameValue { first, second } = &note.kind else { panic!("{note}") };
        assert_eq!([first.action, second.action], [Action::Write; 2], "{note}");
        assert_eq!((first.memory, first.address), (memory, second.address), "{note}");
        assert_ne!((first.block, first.thread), (second.block, second.thread), "{note}");
        assert_eq!((note.level(), note.code()), (Level::Note, 0));
        assert!(note.to_string().starts_with("note: kernel k, "), "{note}");
    }
}

/// Asserts that a kernel is at fault in any order, by a race.
fn assert_race(body: &str, shape: [u32; 2], words: &[u32]) {
    for (ended, _) in run(body, shape, words) {
        let fault = ended.expect_err(body);
        assert!(matches!(fault.kind, FaultKind::Race { .. }), "{fault}: {body}");
        assert_eq!(fault.level(), Level::Fault);
    }
}

#[test]
fn warps_that_store_one_value_in_shared_memory_have_a_note() {
    let flag = |value: &str, rest: &str| format!("st.shared.u32 [shared], {value}; {rest}");
    let read = "bar.sync 0; ld.shared.u32 %r1, [shared]; st.global.u32 [%rd0], %r1;";
    let body =
        format!("setp.ne.u32 %p1, %r0, 0; {}", flag("7", read).replace("st.global", "@!%p1 st.global"));
    assert_same_value(&body, [1, 128], &[0], &[7], Memory::Shared);
    // Of two words, each is judged for itself.
    let body = format!(
        "{{ .reg .b32 %v<2>; mov.u32 %v0, 5; mov.u32 %v1, 6; st.shared.v2.u32 [shared], {{%v0, %v1}}; }}
        st.shared.u32 [shared+4], 6; {}",
        "bar.sync 0;"
    );
    for (ended, notes) in run(&body, [1, 64], &[0]) {
        assert_eq!((ended, notes.is_empty()), (Ok(vec![0]), false));
    }
    // The warps store different values; a store of another value comes later; without the barrier, a thread
    // reads.
    let used = "bar.sync 0; ld.shared.u32 %r1, [shared]; st.global.u32 [%rd0], %r1;";
    assert_race(&flag("%r9", used).replacen("st.", "shr.u32 %r9, %r0, 5; st.", 1), [1, 64], &[0]);
    let later = "bar.warp.sync 0xffffffff; setp.ne.u32 %p1, %r0, 32; @!%p1 st.shared.u32 [shared], 8;";
    assert_race(&flag("7", &format!("{later} {used}")), [1, 96], &[0]);
    assert_race(&flag("7", &read["bar.sync 0;".len()..]), [1, 64], &[0]);
}

#[test]
fn blocks_that_store_one_value_in_global_memory_have_a_note() {
    let leader = "setp.ne.u32 %p1, %r0, 0; mov.u32 %r1, %ctaid.x;";
    let store = format!("{leader} @!%p1 st.global.u32 [%rd0], 7;");
    assert_same_value(&store, [10, 32], &[0], &[7], Memory::Global);
    // It was there before the launch.
    assert_same_value(&store, [10, 32], &[7], &[7], Memory::Global);
    // Each block stores all words.
    let all = "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0; st.global.u32 [%rd3], %r0;";
    let expected: Vec<u32> = (0..64).collect();
    assert_same_value(all, [5, 64], &[9; 64], &expected, Memory::Global);
    // One thread clears it before.
    let cleared =
        "setp.ne.u32 %p1, %r0, 0; @!%p1 st.global.u32 [%rd0], 0; bar.sync 0; st.global.u32 [%rd0], 7;";
    assert_same_value(cleared, [1, 96], &[7], &[7], Memory::Global);
    // One block stores another value: 7 was there, or not.
    for (other, word) in [(0, 7), (9, 7), (5, 7), (5, 0), (5, 9)] {
        let differs = format!(
            "{leader} mov.u32 %r2, 7; setp.eq.u32 %p2, %r1, {other};
            @%p2 mov.u32 %r2, 9; @!%p1 st.global.u32 [%rd0], %r2;"
        );
        assert_race(&differs, [10, 32], &[word]);
    }
    // A store that comes after one of them only.
    let after = format!("{store} setp.eq.u32 %p2, %r1, 3; @!%p1 @%p2 st.global.u32 [%rd0], 8;")
        .replace("@!%p1 @%p2 st", "not.pred %p1, %p1; and.pred %p2, %p1, %p2; @%p2 st");
    assert_race(&after, [10, 32], &[0]);
}

/// Adds each thread's index to a word by a compare-and-swap loop with a plain first read.
fn swap_loop(space: &str, place: &str) -> String {
    format!(
        "ld.{space}.u32 %r1, [{place}];
        LOOP: mov.u32 %r2, %r1; add.u32 %r3, %r2, %r0;
        atom.{space}.cas.b32 %r1, [{place}], %r2, %r3;
        setp.ne.u32 %p2, %r1, %r2; @%p2 bra LOOP;"
    )
}

#[test]
fn the_first_read_of_a_swap_loop_is_a_note() {
    let global = format!("add.u64 %rd3, %rd0, 0; {}", swap_loop("global", "%rd3"));
    let shared = format!(
        "setp.ne.u32 %p1, %r0, 0; @!%p1 st.shared.u32 [shared], 0; bar.sync 0; {}
        bar.sync 0; ld.shared.u32 %r4, [shared]; @!%p1 red.global.add.u32 [%rd0], %r4;",
        swap_loop("shared", "shared")
    );
    for (body, memory) in [(&global, Memory::Global), (&shared, Memory::Shared)] {
        for (ended, notes) in run(body, [4, 64], &[0]) {
            assert_eq!(ended, Ok(vec![4 * 63 * 32]), "{body}");
            assert!(!notes.is_empty(), "{body}");
            for note in notes {
                let FaultKind::SwapRead { first, second } = &note.kind else { panic!("{note}") };
                assert_eq!([first.memory, second.memory], [memory; 2], "{note}");
                assert!([first.action, second.action].contains(&Action::Read), "{note}");
            }
        }
        // Two conversions of the address, and a copy of the value.
        let copied = body.replace(
            "LOOP: mov.u32 %r2, %r1;",
            "mov.u32 %r5, %r1; LOOP: mov.u32 %r1, %r5; mov.u32 %r2, %r1;",
        );
        let copied = copied
            .replace("cas.b32 %r1", "cas.b32 %r5")
            .replace("setp.ne.u32 %p2, %r1", "setp.ne.u32 %p2, %r5");
        run(&copied, [4, 64], &[0])
            .into_iter()
            .for_each(|(ended, _)| assert_eq!(ended, Ok(vec![4 * 63 * 32])));
        // The value is not compared; another thread stores plainly.
        assert_race(
            &body.replacen("u32 %r1, [", "u32 %r6, [", 1).replace("LOOP:", "mov.u32 %r1, 0; LOOP:"),
            [4, 64],
            &[0],
        );
        let place = if memory == Memory::Global { "%rd3" } else { "shared" };
        let stored = body.replace(
            "LOOP:",
            &format!("setp.eq.u32 %p3, %r0, 40; @%p3 st.{}.u32 [{place}], 3; LOOP:", memory),
        );
        assert_race(&stored, [4, 64], &[0]);
    }
}

/// Asserts that a kernel ends with these words under each seed, and has notes of this kind only, at least one
/// in some order.
fn assert_notes(
    body: &str,
    shape: [u32; 2],
    words: &[u32],
    expected: &[u32],
    is_kind: impl Fn(&FaultKind) -> bool,
) {
    let mut count = 0;
    for (ended, notes) in run(body, shape, words) {
        assert_eq!(ended.as_deref(), Ok(expected), "{body}");
        for note in notes {
            assert!(is_kind(&note.kind), "{note}");
            assert_eq!((note.level(), note.code()), (Level::Note, 0));
            count += 1;
        }
    }
    assert_ne!(count, 0, "{body}");
}

/// Each block reads its word, waits for the flag of the block before it, sets its own, and stores the word
/// one or two places further left, over a word that an earlier block has read. Relaxed flags argue by
/// dependencies.
#[test]
fn compaction_in_place_is_a_note_unless_it_releases() {
    let text = |store: &str, load: &str, place: i32| {
        format!(
            "mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd0, %rd3;
            ld.global.u32 %r2, [%rd3+32]; and.b32 %r3, %r2, 1; or.b32 %r3, %r3, 1;
            setp.eq.u32 %p1, %r1, 0; @%p1 bra FIRST;
            WAIT: {load} %r4, [%rd3+-4]; setp.eq.u32 %p2, %r4, 0; @%p2 bra WAIT;
            FIRST: {store} [%rd3], %r3;
            setp.lt.u32 %p1, %r1, 2; @%p1 bra DONE;
            st.global.u32 [%rd3+{place}], %r2;
            DONE:"
        )
    };
    let (relaxed, released) = (
        ["st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32"],
        ["st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"],
    );
    let words = [0, 0, 0, 0, 0, 0, 0, 0, 10, 11, 12, 13, 14, 15, 16, 17];
    for (place, moved) in [
        (28, [1, 1, 1, 1, 1, 1, 1, 1, 10, 12, 13, 14, 15, 16, 17, 17]),
        (24, [1, 1, 1, 1, 1, 1, 1, 1, 12, 13, 14, 15, 16, 17, 16, 17]),
    ] {
        let [store, load] = relaxed;
        let body = text(store, load, place);
        assert_notes(&body, [8, 1], &words, &moved, |kind| match kind {
            FaultKind::Overwrite { first, second } => {
                (first.action, second.action) == (Action::Read, Action::Write) && first.block < second.block
            }
            _ => false,
        });
        // The flag does not come after the read; the write does not wait.
        let read = "ld.global.u32 %r2, [%rd3+32]; and.b32 %r3, %r2, 1; or.b32 %r3, %r3, 1;";
        let late = body
            .replace(read, "mov.u32 %r3, 1;")
            .replace("setp.lt.u32 %p1, %r1, 2;", "ld.global.u32 %r2, [%rd3+32]; setp.lt.u32 %p1, %r1, 2;");
        assert_race(&late, [8, 1], &words);
        assert_race(&body.replace("@%p1 bra FIRST;", "bra FIRST;"), [8, 1], &words);
        let [store, load] = released;
        for (ended, notes) in run(&text(store, load, place), [8, 1], &words) {
            assert_eq!((ended.as_deref(), notes), (Ok(&moved[..]), Vec::new()));
        }
    }
    // A block reads what another has stored before its relaxed flag: no dependency orders that.
    let message = "mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT;
        st.global.u32 [%rd0+4], 7; st.relaxed.gpu.global.u32 [%rd0], 1; bra DONE;
        WAIT: ld.relaxed.gpu.global.u32 %r4, [%rd0]; setp.eq.u32 %p2, %r4, 0; @%p2 bra WAIT;
        ld.global.u32 %r2, [%rd0+4];
        DONE:";
    assert_race(message, [2, 1], &[0, 0]);
}

#[test]
fn a_read_only_load_before_the_write_is_a_note() {
    let read = "ld.global.nc.u32 %r1, [%rd3];";
    let body = |first: &str, second: &str| {
        format!("mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0; {first} bar.sync 0; {second}")
    };
    let write = "st.global.u32 [%rd3], %r0;";
    let expected: Vec<u32> = (0..64).collect();
    assert_notes(
        &body(read, write),
        [1, 64],
        &[5; 64],
        &expected,
        |kind| matches!(kind, FaultKind::ConstantFirst { first, .. } if first.action == Action::Read),
    );
    // After the write, or without an order.
    let other = "xor.b32 %r2, %r0, 32; mul.wide.u32 %rd4, %r2, 4; add.u64 %rd4, %rd4, %rd0;
        ld.global.nc.u32 %r1, [%rd4];";
    for (body, is_race) in [(body(write, read), false), (body("", &format!("{other} {write}")), true)] {
        for (ended, _) in run(&body, [1, 64], &[5; 64]) {
            let fault = ended.expect_err(&body);
            let is_kind = match fault.kind {
                FaultKind::Constant { .. } => !is_race,
                FaultKind::Race { .. } => is_race,
                _ => false,
            };
            assert!(is_kind, "{fault}");
        }
    }
}

/// Lanes store values that nobody needs in one spare slot, as exchanges of warps do: by one store instruction,
/// and by two.
#[test]
fn stores_that_race_are_a_note_until_what_they_leave_is_used() {
    let body = |rest: &str| {
        format!(
            "shl.b32 %r3, %r0, 2; mov.u32 %r4, shared; add.u32 %r3, %r3, %r4; setp.lt.u32 %p1, %r0, 20;
            add.u32 %r5, %r4, 512; selp.b32 %r6, %r3, %r5, %p1; st.shared.u32 [%r6], %r0;
            @!%p1 st.shared.u32 [%r5], %r0; bar.sync 0; mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0;
            {rest}"
        )
    };
    let expected: Vec<u32> = (0..64).map(|thread| if thread < 20 { thread } else { 9 }).collect();
    for rest in [
        "@%p1 ld.shared.u32 %r7, [%r3]; @%p1 st.global.u32 [%rd3], %r7;",
        // It is read and dropped; it is written again.
        "ld.shared.u32 %r7, [%r6]; @%p1 st.global.u32 [%rd3], %r7;",
        "setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.u32 [%r5], 9; bar.sync 0; ld.shared.u32 %r7, [%r6];
        st.global.u32 [%rd3], %r7;",
    ] {
        let is_note = |kind: &FaultKind| matches!(kind, FaultKind::Clash { .. });
        assert_notes(&body(rest), [1, 64], &[9; 64], &expected, is_note);
    }
    for rest in [
        "ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd3], %r7;",
        "setp.eq.u32 %p2, %r0, 0; ld.shared.u32 %r7, [%r5]; @%p2 st.global.v2.u32 [%rd0], {%r0, %r7};",
        "ld.shared.u32 %r7, [%r5]; setp.eq.u32 %p2, %r7, 20; @%p2 bra OUT; mov.u32 %r7, 0; OUT:",
    ] {
        assert_race(&body(rest), [1, 64], &[9; 64]);
    }
    // The last store may store what is there already.
    let thrice = "mov.u32 %r4, shared; and.b32 %r7, %r0, 31; setp.eq.u32 %p3, %r7, 0; shr.u32 %r7, %r0, 5;
        min.u32 %r7, %r7, 1; @%p3 st.shared.u32 [%r4], %r7; bar.sync 0; ld.shared.u32 %r7, [%r4];
        setp.eq.u32 %p2, %r0, 0; @%p2 st.global.u32 [%rd0], %r7;";
    assert_race(thrice, [1, 96], &[9]);
}

/// `%r1` is a word of shared memory past the last one that is written: 32 for thread 31, and the next
/// thread's for the others.
const NEXT: &str =
    "shl.b32 %r3, %r0, 2; mov.u32 %r4, shared; add.u32 %r3, %r3, %r4; st.shared.u32 [%r3], %r0;
    bar.warp.sync 0xffffffff; ld.shared.u32 %r1, [%r3+4]; setp.gt.u32 %p1, %r1, %r0;";

#[test]
fn a_branch_on_an_unwritten_value_is_a_note_if_its_ways_only_compute() {
    let is_note = |kind: &FaultKind| match kind {
        FaultKind::UnwrittenBranch { access, .. } => access.memory == Memory::Shared,
        _ => false,
    };
    let store = "mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0; setp.lt.u32 %p2, %r0, 31;
        @%p2 st.global.u32 [%rd3], %r5;";
    let expected: Vec<u32> = (0..32).map(|thread| if thread < 31 { thread + 1 } else { 9 }).collect();
    for way in [
        "mov.u32 %r5, %r0; @!%p1 bra MEET; add.u32 %r5, %r5, 1; MEET:",
        "@%p1 bra A; mov.u32 %r5, 7; bra MEET; A: ld.shared.u32 %r5, [%r3+4]; MEET:",
        "mov.u32 %r5, %r1; @!%p1 bra MEET; @%p1 bra B; mov.u32 %r5, 7; B: nop; MEET:",
    ] {
        let way = way.replace("nop;", "mov.u32 %r6, 0;");
        assert_notes(&format!("{NEXT} {way} {store}"), [1, 32], &[9; 32], &expected, is_note);
    }
    // A way stores, is an atomic operation, ends the thread, or loops; and what is stored is the value.
    for way in [
        "@!%p1 bra MEET; st.shared.u32 [%r3+2048], 1; MEET:",
        "@!%p1 bra MEET; red.global.add.u32 [%rd0], 0; MEET:",
        "@%p1 exit;",
        "and.b32 %r1, %r1, 3; mov.u32 %r5, 0;
        LOOP: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r1; @%p1 bra LOOP;",
        "@!%p1 bra MEET; mov.u32 %r5, 1; MEET: setp.ne.u32 %p2, %r0, 31; @!%p2 st.global.u32 [%rd0], %r1;",
    ] {
        for (ended, _) in run(&format!("{NEXT} {way}"), [1, 32], &[9; 32]) {
            let fault = ended.expect_err(way);
            assert!(matches!(fault.kind, FaultKind::Unwritten(_)), "{fault}: {way}");
        }
    }
}

/// Shared memory that nothing wrote holds other bytes under each seed, so that what depends on them differs.
#[test]
fn seeds_put_other_bytes_in_shared_memory() {
    let body = format!(
        "{NEXT} mov.u32 %r5, 0; and.b32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra MEET; mov.u32 %r5, 1;
        MEET: setp.ne.u32 %p2, %r0, 31; @!%p2 st.global.u32 [%rd0], %r5;"
    );
    let mut seen = [false; 2];
    for seed in 0..16 {
        let mut machine = Machine::new(&body);
        machine.settings.seed = Some(seed);
        let at = machine.upload(&[9u32]);
        machine.launch(1, 32, &[at]).unwrap();
        seen[machine.words(at, 1)[0] as usize] = true;
    }
    assert_eq!(seen, [true; 2]);
}

/// All lanes store a sum that each has added in another order.
#[test]
fn stores_that_differ_by_rounding_are_a_note() {
    let store = |value: u32, space: &str, place: &str| {
        format!(
            "and.b32 %r1, %r0, 1; add.u32 %r1, %r1, {value}; st.{space}.b32 [{place}], %r1; bar.sync 0;
            ld.{space}.b32 %r2, [{place}]; setp.ne.u32 %p1, %r0, 0; @!%p1 st.global.b32 [%rd0+4], %r2;"
        )
    };
    let one = 1f32.to_bits();
    for (space, place) in [("shared", "shared"), ("global", "%rd0")] {
        for (ended, notes) in run(&store(one, space, place), [1, 32], &[9; 2]) {
            assert!(ended.is_ok_and(|words| words[1] - one < 2));
            assert!(
                matches!(&notes[..], [note] if matches!(note.kind, FaultKind::Rounding { .. })),
                "{notes:?}"
            );
        }
        // Not floats that are near.
        assert_race(&store(4, space, place), [1, 32], &[9; 2]);
        let far = store(one, space, place).replace("add.u32 %r1,", "shl.b32 %r1, %r1, 5; add.u32 %r1,");
        assert_race(&far, [1, 32], &[9; 2]);
    }
}

#[test]
fn allowed_lines_and_kernels_have_no_report() {
    let race = "mov.u32 %r1, %ctaid.x;
        .loc 1 41 0
        setp.ne.u32 %p1, %r0, 0;
        .loc 1 42 0
        @!%p1 st.global.u32 [%rd0], %r1;";
    let unwritten = ".loc 1 42 0\n ld.shared.u32 %r1, [shared+8];
        .loc 1 43 0\n setp.eq.u32 %p1, %r1, 0;\n @%p1 red.global.add.u32 [%rd0], 1;";
    let register = ".loc 1 42 0\n setp.eq.u32 %p1, %r9, 0; @%p1 red.global.add.u32 [%rd0], 1;";
    let note = race.replace("], %r1", "], 3");
    let shared = race
        .replace("global", "shared")
        .replace("[%rd0], %r1", "[shared], %r0")
        .replace("setp.ne.u32 %p1, %r0, 0;", "and.b32 %r2, %r0, 31; setp.ne.u32 %p1, %r2, 0;");
    let clash = ".loc 1 42 0\n st.shared.u32 [shared], %r0;";
    for body in [race, unwritten, register, &note, &shared, clash] {
        let text = format!("{}.file 1 \"src/scan.cu\"\n", kernel(body));
        let report = |allow: &[Allow]| {
            let mut machine = Machine::new(&text);
            machine.settings.allow = allow.to_vec();
            let word = machine.upload(&[0u32]);
            let (ended, notes) = machine.launch_with_notes(8, 64, &[word]);
            notes
                .into_iter()
                .chain(ended.err().map(|fault| *fault))
                .map(|fault| fault.to_string())
                .collect::<Vec<_>>()
        };
        let is_reported = |allow: &[Allow]| !report(allow).is_empty();
        assert!(
            is_reported(&[]) && is_reported(&[Allow::line("scan.cu", 41), Allow::kernel("other")]),
            "{body}"
        );
        for allow in [Allow::line("scan.cu", 42), Allow::line("src/scan.cu", 42), Allow::kernel("k")] {
            assert_eq!(report(&[Allow::kernel("other"), allow]), [""; 0], "{body}");
        }
    }
    // An access out of bounds cannot go on.
    let mut machine = Machine::new("st.global.u32 [%rd0+4], 1;");
    machine.settings.allow = vec![Allow::kernel("k")];
    let word = machine.upload(&[0u32]);
    let fault = machine.launch(1, 1, &[word]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
}
