//! Compares the counters of five kinds of kernels with counts derived by hand from their texts.
//!
//! To compare the counts with a profiler's, run the same launches on a GPU:
//!
//! ```text
//! cargo test -p gpu_reduce_emulator --test suite -- --nocapture counters::counts
//! ncu … target/debug/deps/suite-… --ignored gpu_launches
//! ```

use crate::shipped;
use cust::error::CudaError;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use emulator::Counters;
use std::ffi::c_void;

/// A kernel, its launch and its expected counts.
struct Case {
    name: &'static str,
    body: &'static str,
    blocks: u32,
    threads: u32,
    /// Returns the first 8 bytes that it writes for these input words.
    result: fn(&[u32]) -> u64,
    /// Sets the counts that follow from the text.
    expect: fn(&mut Counters),
}

/// The number of words that all kernels read; word i holds i % 7.
const WORDS: usize = 1 << 16;

/// Returns the text of a kernel with the pointers `from` and `to` in %rd0 and %rd1, and %tid.x in %r0.
fn text(case: &Case) -> String {
    if case.body.is_empty() {
        return shipped::kernel(case.name);
    }
    format!(
        ".version 6.0\n.target sm_70\n.address_size 64\n\
         .visible .entry {}(.param .u64 from, .param .u64 to) {{\n\
         .reg .pred %p<8>;\n.reg .b32 %r<40>;\n.reg .b64 %rd<20>;\n.reg .f64 %fd<8>;\n\
         .shared .align 16 .b8 shared[4096];\n\
         ld.param.u64 %rd0, [from];\nld.param.u64 %rd1, [to];\nmov.u32 %r0, %tid.x;\n\
         {}\nret;\n}}\n",
        case.name, case.body
    )
}

/// The shipped kernel on one chunk of whole tiles of an aligned input: no head, no tail, and no other block
/// to wait for.
///
/// Each of the block's 8 warps loads 64 vectors of 16 bytes per lane, 16 sectors per load. It writes a
/// partial result to shared memory, which the first warp reads after the only barrier. The result is one
/// word.
const SUM: Case = Case {
    name: "sum_f32_256",
    body: "",
    blocks: 1,
    threads: 256,
    // The words 0 to 6 are subnormal floats, whose sum has the bits of the integer sum.
    result: |words| words.iter().map(|&word| u64::from(word)).sum::<u64>(),
    expect: |counters| {
        counters.barriers = 1;
        counters.global_load_requests = 8 * 64;
        counters.global_load_sectors = 8 * 64 * 16;
        counters.global_store_requests = 1;
        counters.global_store_sectors = 1;
        counters.shared_store_requests = 8;
        counters.shared_load_requests = 1;
    },
};

/// A tree of 256 threads in shared memory; thread i is active at stride s if i % 2s is 0, so warps diverge.
///
/// (The remainder by 65537 keeps ptxas from turning the branch into a guard, and changes no sum.)
///
/// Of 8 warps, all have active lanes at strides 1 to 16, and 4, 2 and 1 of them at 32, 64 and 128. So a warp
/// diverges 47 times; each time it loads twice and stores once. The words of one warp are in different banks.
///
/// A warp's instructions: 3 before the body, 8 up to the first level, 8 per level and 7 more if lanes are
/// active, 2 to end all threads but one, and 3 for that one.
const DIVERGENT: Case = Case {
    name: "divergent",
    body: "shl.b32 %r1, %r0, 2;
        cvt.u64.u32 %rd2, %r1;
        add.u64 %rd3, %rd0, %rd2;
        ld.global.u32 %r2, [%rd3];
        mov.u32 %r3, shared;
        add.u32 %r3, %r3, %r1;
        st.volatile.shared.u32 [%r3], %r2;
        mov.u32 %r4, 1;
        LEVEL:
        bar.sync 0;
        shl.b32 %r5, %r4, 1;
        rem.u32 %r6, %r0, %r5;
        setp.ne.u32 %p1, %r6, 0;
        @%p1 bra SKIP;
        shl.b32 %r7, %r4, 2;
        add.u32 %r7, %r7, %r3;
        ld.volatile.shared.u32 %r8, [%r7];
        ld.volatile.shared.u32 %r9, [%r3];
        add.u32 %r8, %r8, %r9;
        rem.u32 %r8, %r8, 65537;
        st.volatile.shared.u32 [%r3], %r8;
        SKIP:
        mov.u32 %r4, %r5;
        setp.lt.u32 %p2, %r4, 256;
        @%p2 bra LEVEL;
        setp.ne.u32 %p3, %r0, 0;
        @%p3 ret;
        cvt.u64.u32 %rd4, %r8;
        st.global.u64 [%rd1], %rd4;",
    blocks: 1,
    threads: 256,
    result: |words| words[..256].iter().map(|&word| u64::from(word)).sum(),
    expect: |counters| {
        counters.warp_instructions = 8 * (3 + 8 + 8 * 8 + 2) + 47 * 7 + 3;
        // A lane counts if its guard is true. Of 256 lanes, 128, 64, … 1 are active at the strides, 255 in
        // all; the others take the branch to SKIP. All branch back to LEVEL except at the last level. All
        // lanes but one end at the guarded `ret`.
        counters.lane_instructions =
            256 * (3 + 8 + 8 * 6 + 1) + (8 * 256 - 255) + 255 * 7 + 7 * 256 + 255 + 3;
        counters.branches = 8 * 8 * 2;
        counters.divergent_branches = 47;
        counters.barriers = 8;
        counters.global_load_requests = 8;
        counters.global_load_sectors = 8 * 4;
        counters.global_store_requests = 1;
        counters.global_store_sectors = 1;
        counters.shared_store_requests = 8 + 47;
        counters.shared_load_requests = 2 * 47;
    },
};

/// A tree over 256 numbers of 8 bytes: at stride s, thread i adds element 2si + s to element 2si, so banks
/// conflict.
///
/// An 8-byte access processes half a warp at a time: 16 lanes that are 16s bytes apart. At stride 1, two of
/// them are in each bank, at 2 four, at 4 eight, at 8 all 16; after that, all of the 8, 4, 2 and 1 remaining
/// lanes. With 4 warps active, then 2, 1 and half a warp, that is 4·2·1, 2·2·3, 2·7, 15, 7, 3 and 1 extra
/// passes, 60 in all, for each of two loads and one store.
const STRIDED: Case = Case {
    name: "strided",
    body: "shl.b32 %r1, %r0, 3;
        cvt.u64.u32 %rd2, %r1;
        add.u64 %rd3, %rd0, %rd2;
        ld.global.b64 %rd4, [%rd3];
        mov.u32 %r3, shared;
        add.u32 %r2, %r3, %r1;
        st.volatile.shared.b64 [%r2], %rd4;
        mov.u32 %r4, 1;
        LEVEL:
        bar.sync 0;
        shl.b32 %r5, %r4, 1;
        mul.lo.u32 %r6, %r5, %r0;
        setp.ge.u32 %p1, %r6, 256;
        @%p1 bra SKIP;
        shl.b32 %r6, %r6, 3;
        add.u32 %r6, %r6, %r3;
        shl.b32 %r7, %r4, 3;
        add.u32 %r7, %r7, %r6;
        ld.volatile.shared.b64 %rd5, [%r6];
        ld.volatile.shared.b64 %rd6, [%r7];
        add.u64 %rd5, %rd5, %rd6;
        rem.u64 %rd5, %rd5, 1000000000000000003;
        st.volatile.shared.b64 [%r6], %rd5;
        SKIP:
        mov.u32 %r4, %r5;
        setp.lt.u32 %p2, %r4, 256;
        @%p2 bra LEVEL;
        setp.ne.u32 %p3, %r0, 0;
        @%p3 ret;
        st.global.b64 [%rd1], %rd5;",
    blocks: 1,
    threads: 256,
    result: |words| words[..512].chunks(2).map(|pair| u64::from(pair[1]) << 32 | u64::from(pair[0])).sum(),
    expect: |counters| {
        // Active warps: 4, 2, and 1 in each of the other 6 levels; in 5 of these, only some lanes are active.
        let active = 4 + 2 + 6;
        counters.warp_instructions = 8 * (3 + 8 + 8 * 8 + 2) + active * 9 + 2;
        counters.branches = 8 * 8 * 2;
        counters.divergent_branches = 5;
        counters.barriers = 8;
        counters.global_load_requests = 8;
        counters.global_load_sectors = 8 * 8;
        counters.global_store_requests = 1;
        counters.global_store_sectors = 1;
        counters.shared_store_requests = 8 + active;
        counters.shared_load_requests = 2 * active;
        counters.shared_store_conflicts = 60;
        counters.shared_load_conflicts = 2 * 60;
    },
};

/// One warp's accesses to global memory, with various numbers of sectors.
///
/// - Loads: words 32 bytes apart (32 sectors); consecutive words that start 4 bytes past a sector's start
///   (5); consecutive 16-byte vectors (16); 16-byte vectors 64 bytes apart (32); 8-byte pairs from the middle
///   of a sector (9); the same word in all lanes (1); consecutive bytes (1).
/// - Stores: words 64 bytes apart (32); consecutive 16-byte vectors (16); bytes from the middle of a sector
///   (2).
const SECTORS: Case = Case {
    name: "sectors",
    body: "cvt.u64.u32 %rd2, %r0;
        shl.b64 %rd3, %rd2, 2;
        add.u64 %rd4, %rd0, %rd3;
        shl.b64 %rd3, %rd2, 5;
        add.u64 %rd5, %rd0, %rd3;
        shl.b64 %rd3, %rd2, 4;
        add.u64 %rd6, %rd0, %rd3;
        shl.b64 %rd3, %rd2, 6;
        add.u64 %rd7, %rd0, %rd3;
        shl.b64 %rd3, %rd2, 3;
        add.u64 %rd8, %rd0, %rd3;
        add.u64 %rd9, %rd0, %rd2;
        ld.global.u32 %r1, [%rd5];
        ld.global.u32 %r2, [%rd4+4100];
        ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd6+8192];
        ld.global.v4.u32 {%r7, %r8, %r9, %r10}, [%rd7+16384];
        ld.global.v2.u32 {%r11, %r12}, [%rd8+32784];
        ld.global.u32 %r13, [%rd0+65536];
        ld.global.u8 %r14, [%rd9+98304];
        xor.b32 %r1, %r1, %r2;
        xor.b32 %r3, %r3, %r4;
        xor.b32 %r5, %r5, %r6;
        xor.b32 %r7, %r7, %r8;
        xor.b32 %r9, %r9, %r10;
        xor.b32 %r11, %r11, %r12;
        xor.b32 %r13, %r13, %r14;
        xor.b32 %r1, %r1, %r3;
        xor.b32 %r5, %r5, %r7;
        xor.b32 %r9, %r9, %r11;
        xor.b32 %r1, %r1, %r5;
        xor.b32 %r9, %r9, %r13;
        xor.b32 %r1, %r1, %r9;
        sub.u64 %rd3, %rd1, %rd0;
        add.u64 %rd7, %rd7, %rd3;
        add.u64 %rd6, %rd6, %rd3;
        add.u64 %rd9, %rd9, %rd3;
        st.global.u32 [%rd7+4096], %r1;
        st.global.v4.u32 [%rd6], {%r1, %r2, %r3, %r4};
        st.global.u8 [%rd9+8208], %r1;",
    blocks: 1,
    threads: 32,
    // Of lane 0: the XOR of all loaded words, and the second loaded word.
    result: |words| {
        let loaded =
            [&words[..1], &words[1025..1026], &words[2048..2052], &words[4096..4100], &words[8196..8198]];
        let all =
            loaded.concat().into_iter().fold(words[16384] ^ words[24576] & 0xff, |all, word| all ^ word);
        u64::from(words[1025]) << 32 | u64::from(all)
    },
    expect: |counters| {
        counters.warp_instructions = 3 + 12 + 7 + 13 + 4 + 3 + 1;
        counters.lane_instructions = 32 * counters.warp_instructions;
        counters.global_load_requests = 7;
        counters.global_load_sectors = 32 + 5 + 16 + 32 + 9 + 1 + 1;
        counters.global_store_requests = 3;
        counters.global_store_sectors = 32 + 16 + 2;
    },
};

/// Atomics and barriers, in two blocks of two warps.
///
/// Each lane has a word of its own, so that no compiler can merge the atomics. There is one barrier before
/// the atomics, 10 in a loop, and one that counts lanes.
const ATOMICS: Case = Case {
    name: "atomics",
    body: "shl.b32 %r1, %r0, 2;
        cvt.u64.u32 %rd2, %r1;
        add.u64 %rd3, %rd1, %rd2;
        mov.u32 %r3, shared;
        add.u32 %r2, %r3, %r1;
        st.volatile.shared.u32 [%r2], %r0;
        bar.sync 0;
        red.shared.add.u32 [%r2], %r1;
        atom.shared.max.u32 %r4, [%r2], 100;
        red.global.add.u32 [%rd3], %r0;
        atom.global.add.u32 %r5, [%rd3+256], %r4;
        mov.u32 %r6, 0;
        LOOP:
        bar.sync 0;
        add.u32 %r6, %r6, 1;
        setp.lt.u32 %p1, %r6, 10;
        @%p1 bra LOOP;
        setp.lt.u32 %p2, %r5, 77;
        bar.red.popc.u32 %r7, 0, %p2;
        red.global.add.u32 [%rd3], %r7;",
    blocks: 2,
    threads: 64,
    // Thread i of each block adds i, then the number of threads of its block whose atomic returned less than
    // 77. That number is 64 in the first block, whose atomics return 0, and 16 in the second, where five
    // times the thread's index is up to 75.
    result: |_| 82 << 32 | 80,
    expect: |counters| {
        counters.warp_instructions = 4 * (3 + 12 + 10 * 4 + 3 + 1);
        counters.branches = 4 * 10;
        counters.barriers = 2 * (1 + 10 + 1);
        counters.shared_store_requests = 4;
        counters.shared_atomic_requests = 4 * 2;
        counters.global_atomic_requests = 4 * 3;
        counters.atomic_operations = 4 * 32 * 5;
    },
};

const CASES: [Case; 5] = [SUM, DIVERGENT, STRIDED, SECTORS, ATOMICS];

impl Case {
    /// Launches it once and checks its result.
    fn launch(&self, words: &[u32]) -> Result<(), CudaError> {
        let module = Module::from_ptx(text(self), &[])?;
        let function = module.get_function(self.name)?;
        let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
        let (from, to) = (DeviceBuffer::from_slice(words)?, DeviceBuffer::from_slice(&[0u64; 2048])?);
        let [from, to_start] = [from.as_device_ptr().as_raw(), to.as_device_ptr().as_raw()];
        let count = words.len() as u64;
        let arguments: &[u64] = match self.name {
            "sum_f32_256" => &[from, count, 0, count, to_start + 64, to_start, from, 0],
            _ => &[from, to_start],
        };
        let pointers: Vec<_> =
            arguments.iter().map(|argument| std::ptr::from_ref(argument) as *mut c_void).collect();
        // SAFETY: the arguments match the kernel, and the buffers are as large as it needs.
        unsafe { stream.launch(&function, self.blocks, self.threads, 0, &pointers)? };
        stream.synchronize()?;
        assert_eq!(to.as_host_vec()?[0], (self.result)(words), "{}", self.name);
        Ok(())
    }
}

fn words() -> Vec<u32> {
    (0..WORDS as u32).map(|word| word % 7).collect()
}

#[test]
fn counts_follow_from_the_text() {
    emulator::install().unwrap();
    let _context = cust::quick_init().unwrap();
    for case in CASES {
        case.launch(&words())
            .unwrap_or_else(|error| panic!("{}: {error}, {:?}", case.name, emulator::take_faults()));
        let (_, counted) = emulator::last_counters().unwrap();
        println!("{}: {counted:#?}", case.name);
        let mut expected = Counters::default();
        expected.blocks = case.blocks.into();
        expected.warps = u64::from(case.blocks * case.threads.div_ceil(32));
        (case.expect)(&mut expected);
        // Counts that a case leaves out, because they depend on a compiler or take long to derive.
        let copy = |expected: &mut u64, counted| *expected = if *expected == 0 { counted } else { *expected };
        copy(&mut expected.warp_instructions, counted.warp_instructions);
        copy(&mut expected.lane_instructions, counted.lane_instructions);
        if case.name == "sum_f32_256" {
            (expected.branches, expected.divergent_branches) = (counted.branches, counted.divergent_branches);
        }
        assert_eq!(counted, expected, "{}", case.name);
    }
}

/// Launches each kernel once on the GPU, for a profiler.
#[test]
#[ignore = "for a profiler, on a machine with a GPU"]
fn gpu_launches() {
    if let Err(why) = libcuda::load() {
        println!("skipped: {why}");
        return;
    }
    let _context = cust::quick_init().unwrap();
    CASES.iter().for_each(|case| case.launch(&words()).unwrap());
}
