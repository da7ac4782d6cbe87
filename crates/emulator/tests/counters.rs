//! What launches of kernels of five kinds count, against what follows from their texts by hand.
//!
//! The same launches on a GPU, to compare the counts with a profiler's:
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

/// A kernel, how it is launched, and what follows from its text.
struct Case {
    name: &'static str,
    body: &'static str,
    blocks: u32,
    threads: u32,
    /// The first 8 bytes that it writes, from the words it is given.
    result: fn(&[u32]) -> u64,
    /// Sets what follows from the text.
    expect: fn(&mut Counters),
}

/// 64 Ki words that all kernels read: word i holds i % 7.
const WORDS: usize = 1 << 16;

/// A kernel of pointers `from` and `to`, in %rd0 and %rd1, with %tid.x in %r0.
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

/// The kernel that ships, on one chunk of whole tiles of an aligned input: no head, no tail, and no other block to wait for.
///
/// The block's 8 warps load 64 vectors of 16 bytes a lane each, so 16 sectors a warp, and leave a partial result a warp in
/// shared memory, which the first warp reads behind the only barrier. The result is one word.
const SUM: Case = Case {
    name: "sum_f32_256",
    body: "",
    blocks: 1,
    threads: 256,
    // Words of up to 6 are subnormal numbers, which add up as integers do.
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

/// A tree of 256 threads in shared memory, thread i active at stride s where i % 2s is 0: lanes of one warp go different
/// ways. (The division there keeps ptxas from making the branch a guard, and changes no sum.)
///
/// Of 8 warps, all have active lanes at strides 1 to 16; 4, 2 and 1 of them at 32, 64 and 128: 47 times a warp goes two
/// ways, loads twice and stores once. Words of one warp are in different banks.
///
/// A warp's instructions: 3 before the body, 8 up to the first level, 8 a level and 7 more where lanes are active, 2 to end
/// all threads but one, and 3 for that one.
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
        // A lane counts where its guard lets it through. Of 256 lanes, 128, 64, … 1 are active at a stride, 255 in all:
        // the others branch around. All branch back but the last time, and all but one end at the guarded `ret`.
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

/// A tree over 256 numbers of 8 bytes, thread i at stride s adding element 2si + s to element 2si: lanes of one warp are in
/// few banks.
///
/// An access of 8 bytes takes a half of the warp at a time, 16 lanes that are 16s bytes apart. At stride 1 two of them
/// are in each bank, at 2 four, at 4 eight, at 8 all 16 that are active; and then all of the 8, 4, 2, 1 that are left.
/// So with 4 warps, 2, 1 and then a half of one: 4·2·1, 2·2·3, 2·7, 15, 7, 3, 1 extra passes, 60 in all, for each of two
/// loads and a store.
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
        // Active warps: 4, 2, and 1 in each of the other 6 levels; in 5 of those not all lanes.
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

/// One warp's accesses to global memory, and their sectors: one word 32 bytes from the next (32 sectors); words that
/// follow each other, 4 bytes past a sector's start (5); vectors of 16 bytes that follow each other (16), and that are 64
/// bytes apart (32); pairs of 8 bytes from the middle of a sector (9); all the same word (1); bytes (1). Stores: words
/// 64 bytes apart (32), vectors of 16 bytes (16), bytes from the middle of a sector (2).
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
    // Lane 0's: all that it has loaded, and the second word of it.
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

/// Atomics, each lane on a word of its own so that no compiler can join them, and barriers: one before the atomics, 10 in a
/// loop, and one that counts. Two blocks of two warps.
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
    // Each block's thread i adds i, and the number of its block's threads that met a sum under 77: of both blocks together,
    // 64 which met 0 and 16 which met up to 75, five times their index.
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
    /// Launches it once, and looks at its result.
    fn launch(&self, words: &[u32]) -> Result<(), CudaError> {
        let module = Module::from_ptx(text(self), &[])?;
        let function = module.get_function(self.name)?;
        let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
        let (from, to) = (DeviceBuffer::from_slice(words)?, DeviceBuffer::from_slice(&[0u64; 2048])?);
        let [from, to_start] = [from.as_device_ptr().as_raw(), to.as_device_ptr().as_raw()];
        let count = words.len() as u64;
        let arguments: &[u64] = match self.name {
            "sum_f32_256" => &[from, count, 0, count, to_start + 64, to_start, from],
            _ => &[from, to_start],
        };
        let pointers: Vec<_> =
            arguments.iter().map(|argument| std::ptr::from_ref(argument) as *mut c_void).collect();
        // SAFETY: the arguments are the kernel's, and the buffers are as large as it needs.
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
        // Where the text is a compiler's, or the count a long one.
        let copy = |expected: &mut u64, counted| *expected = if *expected == 0 { counted } else { *expected };
        copy(&mut expected.warp_instructions, counted.warp_instructions);
        copy(&mut expected.lane_instructions, counted.lane_instructions);
        if case.name == "sum_f32_256" {
            (expected.branches, expected.divergent_branches) = (counted.branches, counted.divergent_branches);
        }
        assert_eq!(counted, expected, "{}", case.name);
    }
}

/// For a profiler: each kernel once, on the GPU.
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
