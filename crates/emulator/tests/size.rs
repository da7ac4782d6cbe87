//! Memory use of large launches. Only one test, because it measures the whole process.

use emulator::Settings;
use emulator::exec::{self, Launch, Loaded};
use emulator::memory::Memory;
use emulator::program::Program;
use emulator::ptx;

/// In each round, each thread loads a word at a pseudorandom address and increments a counter.
const SCATTER: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry scatter(.param .u64 from, .param .u32 rounds) {
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [from];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r2, 1024, %r3;
LOOP:
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    mad.lo.u32 %r4, %r4, 1664525, 1013904223;
    shr.u32 %r5, %r4, 12;
    mul.wide.u32 %rd2, %r5, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r6, [%rd3+4];
    sub.u32 %r1, %r1, 1;
    red.global.add.u32 [%rd1], 1;
    bra LOOP;
DONE:
    ret;
}";

/// Returns the process's peak resident memory in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn a_launch_takes_no_more_memory_than_its_notes_may() {
    const COUNT: u64 = (1 << 20) + 1;
    let program = Program::decode(&ptx::parse(SCATTER).unwrap()).unwrap();
    let memory = Memory::new(1 << 30);
    let loaded = Loaded::new(&program, &memory).unwrap();
    let data = memory.allocate(4 * COUNT).unwrap();
    memory.fill(data, &[0; 4], COUNT).unwrap();
    let settings = Settings { race_log_bytes: 32 << 20, ..Settings::default() };
    let run = |blocks: u32, threads: u32, rounds: u32| {
        let params = [&data.to_ne_bytes()[..], &rounds.to_ne_bytes()].concat();
        let launch = Launch {
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared: 0,
            resident: exec::MOST_RESIDENT,
            workspace: 0,
            params: &params,
        };
        let counters =
            exec::launch(&program, &loaded, &program.kernels()[0], &launch, &memory, &settings).unwrap();
        assert_eq!(counters.atomic_operations, u64::from(blocks) * u64::from(threads) * u64::from(rounds));
    };
    run(1, 32, 1);
    let before = peak();
    // Many blocks with no rounds, many with one round, and one block with many rounds.
    run(1 << 20, 1, 0);
    run(1 << 18, 1, 1);
    run(1, 1024, 10_000);
    assert!(peak() - before < 100, "{} MiB, from {before}", peak());
}
