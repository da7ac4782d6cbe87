//! Faults planted in shipped kernels, one at a time. Each must be found by the right check at the right line,
//! in any order of warps. The unchanged kernels must raise none on the same inputs.
//!
//! A plant changes one line and keeps all line numbers.

use super::Machine;
use crate::fault::{Access, Action, Fault, FaultKind, Memory};

/// In order, and at random.
const SEEDS: [Option<u64>; 5] = [None, Some(1), Some(2), Some(3), Some(4)];

/// A kernel with a launch that runs all of its code.
#[derive(Clone)]
struct Case {
    text: String,
    /// Threads per block.
    block: u32,
    /// The bytes of each element. An accumulator and the result have the same size.
    element: Vec<u8>,
    /// The bits of the correct result.
    result: u64,
    launch: fn(&Case, &Machine) -> Launched,
}

/// The outcome of a launch.
struct Launched {
    /// The result's bits, or the fault.
    ended: Result<u64, Box<Fault>>,
    /// The addresses past the input, the partial results and the result.
    ends: Vec<u64>,
}

impl Case {
    fn shipped(name: &str, block: u32, element: &[u8], result: u64) -> Case {
        let text = crate::shipped::kernel(name);
        Case { text, block, element: element.to_vec(), result, launch: launch_shipped }
    }

    fn run(&self, seed: Option<u64>) -> Launched {
        let mut machine = Machine::new(&self.text);
        machine.settings.seed = seed;
        machine.dynamic_shared = 0;
        (self.launch)(self, &machine)
    }

    /// Plants a fault in each line that contains `pattern`, one at a time, and launches it with each seed.
    /// `edit` changes the line; `check` gets its number and the fault.
    fn plant(
        &self,
        pattern: &str,
        edit: impl Fn(&str) -> String,
        check: impl Fn(&Case, u32, &Fault, &Launched),
    ) {
        let lines: Vec<&str> = self.text.lines().collect();
        let places: Vec<usize> = (0..lines.len()).filter(|&index| lines[index].contains(pattern)).collect();
        assert!(!places.is_empty(), "no line has {pattern}");
        for place in places {
            let changed = edit(lines[place]);
            assert_ne!(changed, lines[place], "nothing is planted");
            let mut text = lines.clone();
            text[place] = &changed;
            let planted = Case { text: text.join("\n"), ..self.clone() };
            for seed in SEEDS {
                let launched = planted.run(seed);
                let number = place as u32 + 1;
                let what = format!(
                    "line {number}, `{}` for `{}`, seed {seed:?}",
                    changed.trim(),
                    lines[place].trim()
                );
                let fault = launched.ended.as_ref().expect_err(&what);
                println!("{what}: {fault}");
                assert_eq!(fault.kernel, self.name());
                check(&planted, number, fault, &launched);
            }
        }
    }

    fn first_line(&self, pattern: &str) -> &str {
        self.text.lines().find(|line| line.contains(pattern)).unwrap()
    }

    fn name(&self) -> &str {
        let (_, rest) = self.text.split_once(".entry ").unwrap();
        rest.split_once('(').unwrap().0
    }

    fn line(&self, access: &Access) -> &str {
        self.text.lines().nth(access.place.line as usize - 1).unwrap()
    }

    /// Asserts that a fault is a race in shared memory between accesses before and after this line.
    fn assert_race_across(&self, line: u32, fault: &Fault) {
        let FaultKind::Race { first, second } = &fault.kind else { panic!("{fault}") };
        for access in [first, second] {
            assert_eq!(access.memory, Memory::Shared, "{fault}");
            assert!(self.line(access).contains(".shared"), "{fault}");
            assert!(access.thread[0] < self.block && access.bytes as usize <= self.element.len(), "{fault}");
            assert_eq!(access.block, fault.block, "{fault}");
        }
        assert_ne!(first.thread, second.thread, "{fault}");
        assert!(first.address.abs_diff(second.address) < 8, "{fault}");
        // (To the checks a volatile store is atomic.)
        let writes =
            |access: &Access| access.action == Action::Write || self.line(access).contains("st.volatile");
        assert!(writes(first) || writes(second), "{fault}");
        let (low, high) = (first.place.line.min(second.place.line), first.place.line.max(second.place.line));
        assert!(low < line && line < high, "{fault}");
    }
}

/// Launches several chunks, the last one short. The input starts three elements past the memory's alignment
/// and ends one element into a vector. No allocation is larger than its contents.
fn launch_shipped(case: &Case, machine: &Machine) -> Launched {
    let size = case.element.len();
    let row = case.block as usize * 16 / size;
    let (len, chunk) = (14 * row + 6, 4 * row);
    let chunks = len.div_ceil(chunk);
    let input = machine.upload(&case.element.repeat(3 + len));
    // A slot has a 64-bit word for each 32 bits of a value.
    let words = size / 4;
    let slots = machine.upload(&vec![0u64; chunks * words]);
    let result = machine.memory.allocate(8 * words as u64).unwrap();
    let start = input + 3 * size as u64;
    let pointers = [start, chunk as u64, len as u64, slots, result | crate::shipped::IN_SLOT, start];
    let ended = machine.launch(chunks as u32, case.block, &pointers).map(|_| {
        let values = machine.words(result, 2 * words);
        values.into_iter().step_by(2).rev().fold(0, |bits, value| bits << 32 | u64::from(value))
    });
    let ends = vec![
        input + ((3 + len) * size) as u64,
        slots + (chunks * words * 8) as u64,
        result + 8 * words as u64,
    ];
    Launched { ended, ends }
}

fn sum_of_f32() -> Case {
    Case::shipped("sum_f32_256", 256, &1f32.to_le_bytes(), 14_342f32.to_bits().into())
}

fn shipped() -> [Case; 3] {
    // The accumulator orders as an integer: of a negative number, the lower bits are inverted.
    let key = !0x7FFF_FFFF | (!(-5f32).to_bits() & 0x7FFF_FFFF);
    let min = Case::shipped("min_f32_1024", 1024, &(-5f32).to_le_bytes(), key.into());
    let sum_of_f64 = Case::shipped("sum_f64_64", 64, &1f64.to_le_bytes(), 1_798f64.to_bits());
    [sum_of_f32(), min, sum_of_f64]
}

/// A tree reduction by 64 threads in shared memory. One warp does the last steps with volatile accesses, and
/// a warp barrier between each lane's reads and the others' writes.
fn classic() -> Case {
    let mut text = "
        .version 6.0
        .target sm_70
        .address_size 64
        .visible .entry classic(.param .u64 from, .param .u64 to) {
        .reg .pred %p<2>;
        .reg .b32 %r<6>;
        .reg .b64 %rd<5>;
        .shared .align 4 .b8 values[256];
        ld.param.u64 %rd1, [from];
        ld.param.u64 %rd2, [to];
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd3, %r1, 4;
        add.u64 %rd3, %rd1, %rd3;
        ld.global.u32 %r2, [%rd3];
        shl.b32 %r3, %r1, 2;
        mov.u32 %r4, values;
        add.u32 %r3, %r3, %r4;
        st.shared.u32 [%r3], %r2;
        bar.sync 0;
        setp.ge.u32 %p1, %r1, 32;
        @%p1 ret;
        ld.volatile.shared.u32 %r5, [%r3+128];
        add.u32 %r2, %r2, %r5;
        st.volatile.shared.u32 [%r3], %r2;
        "
    .to_owned();
    for half in [16, 8, 4, 2, 1] {
        text += &format!(
            "bar.warp.sync 0xffffffff;
            ld.volatile.shared.u32 %r5, [%r3+{}];
            bar.warp.sync 0xffffffff;
            add.u32 %r2, %r2, %r5;
            st.volatile.shared.u32 [%r3], %r2;
            ",
            4 * half
        );
    }
    text += "setp.ne.u32 %p1, %r1, 0;
        @%p1 ret;
        st.global.u32 [%rd2], %r2;
        ret;
        }";
    Case { text, block: 64, element: vec![0; 4], result: 64 * 63 / 2, launch: launch_classic }
}

/// Sums 0 to 63.
fn launch_classic(_: &Case, machine: &Machine) -> Launched {
    let input = machine.upload(&std::array::from_fn::<u32, 64, _>(|index| index as u32));
    let result = machine.memory.allocate(4).unwrap();
    let ended = machine.launch(1, 64, &[input, result]).map(|_| u64::from(machine.words(result, 1)[0]));
    Launched { ended, ends: vec![input + 256, result + 4] }
}

/// One line that branches: threads whose x passes `test`, such as `lt.u32 16`, run `these`, the others run
/// `those`.
fn branch(test: &str, these: &str, those: &str) -> String {
    let (compare, limit) = test.split_once(' ').unwrap();
    format!(
        "{{ .reg .pred %planted; .reg .b32 %thread; mov.u32 %thread, %tid.x; \
         setp.{compare} %planted, %thread, {limit}; @!%planted bra $L__those; \
         {} bra $L__met; $L__those: {} $L__met: }}",
        these.trim(),
        those.trim()
    )
}

#[test]
fn shipped_kernels_raise_no_fault() {
    for case in shipped().into_iter().chain([classic()]) {
        for seed in SEEDS {
            assert_eq!(case.run(seed).ended, Ok(case.result), "{}", case.name());
        }
    }
}

#[test]
fn each_removed_block_barrier_is_a_race() {
    for case in shipped().into_iter().chain([classic()]) {
        case.plant(
            "bar.sync",
            |_| String::new(),
            |case, line, fault, _| case.assert_race_across(line, fault),
        );
    }
}

#[test]
fn each_removed_warp_barrier_is_a_race() {
    classic().plant(
        "bar.warp.sync",
        |_| String::new(),
        |case, line, fault, _| {
            case.assert_race_across(line, fault);
            let FaultKind::Race { first, second } = &fault.kind else { panic!("{fault}") };
            assert!(first.thread[0] < 32 && second.thread[0] < 32, "{fault}");
        },
    );
}

#[test]
fn a_barrier_that_warps_go_around_is_a_race() {
    for case in shipped() {
        // For the first warp, the barrier is as good as removed.
        case.plant(
            "bar.sync",
            |line| branch("ge.u32 32", line, ""),
            |case, line, fault, _| case.assert_race_across(line, fault),
        );
    }
}

#[test]
fn a_barrier_for_a_part_of_a_warp_is_found() {
    for case in shipped().into_iter().chain([classic()]) {
        case.plant(
            "bar.sync",
            |line| branch("ne.u32 5", line, ""),
            |_, line, fault, _| {
                let FaultKind::Barrier(text) = &fault.kind else { panic!("{fault}") };
                let here = "lanes 0-4,6-31 of the warp are here, lanes 5 are not; lanes 5 are at PTX line ";
                assert!(text.starts_with(here), "{text}");
                assert_eq!(fault.place.as_ref().unwrap().line, line);
                assert_eq!(fault.threads.len(), 31);
                assert!(fault.threads.iter().all(|thread| thread[0] < 32 && thread[0] != 5));
            },
        );
    }
}

#[test]
fn warps_at_different_barriers_wait_without_an_end() {
    for case in shipped() {
        case.plant(
            "bar.sync",
            |line| branch("lt.u32 32", "bar.sync 7;", line),
            |case, line, fault, _| {
                let FaultKind::Barrier(text) = &fault.kind else { panic!("{fault}") };
                assert!(
                    text.contains(&format!("32 threads wait for barrier 7 at PTX line {line}")),
                    "{text}"
                );
                assert!(
                    text.contains(&format!(
                        "{} threads wait for barrier 0 at PTX line {line}",
                        case.block - 32
                    )),
                    "{text}"
                );
            },
        );
    }
}

#[test]
fn lanes_that_wait_at_different_shuffles_are_a_deadlock() {
    for case in shipped() {
        case.plant(
            "shfl.sync",
            |line| branch("lt.u32 16", line, line),
            |_, line, fault, _| {
                let FaultKind::Deadlock(text) = &fault.kind else { panic!("{fault}") };
                assert!(
                    text.contains(&format!(
                        "16 threads wait for the lanes of mask 0xffffffff at PTX line {line}"
                    )),
                    "{text}"
                );
            },
        );
    }
}

#[test]
fn each_removed_shared_store_is_an_unwritten_read() {
    for case in shipped() {
        case.plant(
            "st.shared",
            |_| String::new(),
            |case, line, fault, _| {
                let FaultKind::Unwritten(access) = &fault.kind else { panic!("{fault}") };
                assert_eq!(
                    (access.memory, access.bytes as usize <= case.element.len()),
                    (Memory::Shared, true),
                    "{fault}"
                );
                assert!(case.line(access).contains("ld.shared"), "{fault}");
                // The reads come after the next barrier.
                let between = case.text.lines().take(access.place.line as usize).skip(line as usize);
                assert_eq!(between.filter(|line| line.contains("bar.sync")).count(), 1, "{fault}");
            },
        );
    }
}

/// Asserts that a fault is one thread's access in this line, just past the end of its allocation.
fn assert_past(fault: &Fault, line: u32, memory: Memory, action: Action, ends: &[u64]) {
    let FaultKind::OutOfBounds { access, near } = &fault.kind else { panic!("{fault}") };
    assert_eq!((access.memory, access.action, access.place.line), (memory, action, line), "{fault}");
    assert!(ends.contains(&access.address) && !near.is_empty(), "{fault}");
    assert_eq!(fault.threads, [access.thread], "{fault}");
}

#[test]
fn an_index_one_too_far_is_out_of_bounds() {
    let [read, write] = [Action::Read, Action::Write];
    // The last thread's store.
    classic().plant(
        "st.shared",
        |line| line.replace("]", "+4]"),
        |_, line, fault, _| {
            assert_past(fault, line, Memory::Shared, write, &[256]);
            assert_eq!(fault.threads, [[63, 0, 0]]);
        },
    );
    for case in shipped() {
        let size = case.element.len();
        // The load of the elements after the last whole vector. In kernels that may reorder, it comes first.
        let (before, tail) = case.text.rsplit_once("ld.global.v").unwrap();
        let of_one = |line: &&str| line.contains("ld.global") && !line.contains("ld.global.v");
        case.plant(
            tail.lines().find(of_one).or(before.lines().rfind(of_one)).unwrap(),
            |line| line.replace("]", &format!("+{size}]")),
            |_, line, fault, launched| assert_past(fault, line, Memory::Global, read, &launched.ends),
        );
        // The first word of the last block's slot, and that of the result, which is stored after the partial
        // results are read.
        let (_, taken) = case.text.rsplit_once("ld.relaxed.gpu").unwrap();
        let results: Vec<_> = taken.lines().filter(|line| line.contains("st.relaxed.sys")).collect();
        let result = results[results.len() - size / 4];
        for store in [case.first_line("st.relaxed.sys"), result] {
            case.plant(
                store,
                |line| line.replace("]", &format!("+{}]", 2 * size)),
                |_, line, fault, launched| {
                    assert_past(fault, line, Memory::Global, Action::Atomic, &launched.ends);
                    assert_eq!(fault.threads, [[0, 0, 0]]);
                },
            );
        }
    }
}

#[test]
fn a_slot_accessed_without_atomics_races_between_blocks() {
    for case in shipped() {
        for (access, weak) in [("st.relaxed.sys", Action::Write), ("ld.relaxed.gpu", Action::Read)] {
            case.plant(
                case.first_line(access),
                |line| line.replace(".relaxed.sys", "").replace(".relaxed.gpu", ""),
                |case, line, fault, _| {
                    let FaultKind::Race { first, second } = &fault.kind else { panic!("{fault}") };
                    assert!(first.place.line == line || second.place.line == line, "{fault}");
                    for access in [first, second] {
                        let expected = if access.place.line == line { weak } else { Action::Atomic };
                        assert_eq!((access.memory, access.action), (Memory::Global, expected), "{fault}");
                        assert!(case.line(access).contains(".b64"), "{fault}");
                    }
                    assert_eq!(first.address, second.address, "{fault}");
                    assert_ne!(first.block, second.block, "{fault}");
                },
            );
        }
    }
}

#[test]
fn debug_information_names_the_source() {
    let mut case = sum_of_f32();
    let located = |(index, line): (usize, &str)| match line.contains(".shared.u32") {
        true => format!(".loc 1 {} 9 {line}", 1001 + index),
        false => line.replace(".address_size 64", ".address_size 64 .file 1 \"gpu/reduce.rs\""),
    };
    case.text = case.text.lines().enumerate().map(located).collect::<Vec<_>>().join("\n");
    case.plant(
        "bar.sync",
        |_| String::new(),
        |case, line, fault, _| {
            case.assert_race_across(line, fault);
            let FaultKind::Race { first, second } = &fault.kind else { panic!("{fault}") };
            for access in [first, second] {
                assert_eq!(access.place.source, Some(("gpu/reduce.rs".to_owned(), 1000 + access.place.line)));
            }
            assert!(fault.to_string().contains("(gpu/reduce.rs:1"), "{fault}");
        },
    );
}

/// Each warp reads what the warp before it wrote. Without the barrier this works by luck if warps run in
/// order.
const NEIGHBOUR: &str = "
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, shared;
    add.u32 %r2, %r2, %r1;
    add.u32 %r3, %r0, 1;
    st.shared.u32 [%r2+128], %r3;
    bar.sync 0;
    setp.lt.u32 %p1, %r0, 32;
    @%p1 ret;
    ld.shared.u32 %r4, [%r2];
    mul.wide.u32 %rd3, %r0, 4;
    add.u64 %rd3, %rd0, %rd3;
    st.global.u32 [%rd3], %r4;";

#[test]
fn random_orders_expose_a_missing_barrier_and_repeat_by_seed() {
    const THREADS: u32 = 256;
    let run = |body: &str, checks, seed| {
        let mut machine = Machine::new(body);
        (machine.settings.checks, machine.settings.seed) = (checks, seed);
        let to = machine.upload(&[0u32; THREADS as usize]);
        let ended = machine.launch(1, THREADS, &[to]);
        (machine.words(to, THREADS as usize), ended.map_err(|fault| fault.kind))
    };
    let right: Vec<u32> = (0..THREADS).map(|thread| if thread < 32 { 0 } else { thread - 31 }).collect();
    let spoilt = NEIGHBOUR.replace("bar.sync 0;", "");
    assert_eq!(run(&spoilt, false, None).0, right, "in order, luck");
    let mut wrong = 0;
    for seed in 0..20 {
        let once = run(&spoilt, false, Some(seed));
        assert_eq!(once, run(&spoilt, false, Some(seed)), "seed {seed}");
        assert!(once.1.is_ok(), "no check is on");
        wrong += u32::from(once.0 != right);
        let with_barrier = run(NEIGHBOUR, true, Some(seed));
        assert_eq!(with_barrier.0, right, "seed {seed}");
        with_barrier.1.unwrap();
        // The checks find it in any order.
        assert!(matches!(run(&spoilt, true, Some(seed)).1, Err(FaultKind::Race { .. })), "seed {seed}");
    }
    assert!(wrong >= 15, "{wrong} of 20 seeds");
}
