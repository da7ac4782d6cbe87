//! Times the interpreter on one core: `cargo bench -p gpu_reduce_emulator --bench interpreter`.
//!
//! Prints one JSON line per case. `lane_instructions` and `warp_instructions` are those of one launch; `us`
//! is the median of 5 launches after one warm-up launch; `rate` is in millions of lane instructions per
//! second.

#[path = "../tests/shipped/mod.rs"]
mod shipped;

use cust::error::CudaError;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use emulator::Settings;
use std::error::Error;
use std::ffi::c_void;
use std::time::Instant;

/// Fused multiply-adds and integer hashing, with almost no memory accesses.
const ARITHMETIC: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry arithmetic(.param .u64 to) {
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.rn.f32.u32 %f1, %r4;
    mov.u32 %r5, 0;
LOOP:
    fma.rn.f32 %f1, %f1, 0f3F7FBE77, 0f3F800000;
    mul.rn.f32 %f2, %f1, 0f3F000000;
    max.f32 %f1, %f1, %f2;
    mad.lo.u32 %r4, %r4, 1664525, 1013904223;
    shr.u32 %r6, %r4, 15;
    xor.b32 %r4, %r4, %r6;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p1, %r5, 1000;
    @%p1 bra LOOP;
    cvt.rzi.u32.f32 %r6, %f1;
    add.u32 %r4, %r4, %r6;
    mul.wide.u32 %rd2, %r3, 4;
    add.u64 %rd2, %rd1, %rd2;
    red.global.add.u32 [%rd2], %r4;
    ret;
}";

/// A tree sum in shared memory, repeated 100 times.
const SHARED: &str = "
.version 6.0
.target sm_70
.address_size 64
.visible .entry shared(.param .u64 to) {
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b8 values[1024];
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, values;
    add.u32 %r2, %r2, %r3;
    mov.u32 %r4, 0;
ROUND:
    st.shared.u32 [%r2], %r1;
    mov.u32 %r5, 128;
LEVEL:
    bar.sync 0;
    setp.ge.u32 %p1, %r1, %r5;
    @%p1 bra SKIP;
    shl.b32 %r6, %r5, 2;
    add.u32 %r6, %r6, %r2;
    ld.shared.u32 %r6, [%r6];
    ld.shared.u32 %r7, [%r2];
    add.u32 %r7, %r7, %r6;
    st.shared.u32 [%r2], %r7;
SKIP:
    shr.u32 %r5, %r5, 1;
    setp.ne.u32 %p2, %r5, 0;
    @%p2 bra LEVEL;
    bar.sync 0;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p2, %r4, 100;
    @%p2 bra ROUND;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 ret;
    red.global.add.u32 [%rd1], %r7;
    ret;
}";

fn main() -> Result<(), Box<dyn Error>> {
    emulator::install()?;
    let _context = cust::quick_init()?;
    let sum = shipped::kernel("sum_f32_256");
    const LEN: u64 = 1 << 22;
    // 1,024 blocks with one tile each.
    const CHUNK: u64 = 4096;
    const BEFORE: u64 = 0;
    let blocks = (LEN / CHUNK) as u32;
    let input = DeviceBuffer::from_slice(&vec![1f32; LEN as usize])?;
    let scratch = DeviceBuffer::from_slice(&vec![0u64; blocks as usize + 1])?;
    let [input, scratch] = [input.as_device_ptr().as_raw(), scratch.as_device_ptr().as_raw()];
    let result = scratch + 8 * u64::from(blocks);

    for checks in [true, false] {
        emulator::set_settings(Settings { checks, threads: 1, ..Settings::default() });
        case("sum_f32_256", &sum, blocks, &[input, CHUNK, BEFORE, LEN, scratch, result, input, 0])?;
        case("arithmetic", ARITHMETIC, 64, &[scratch])?;
        case("shared", SHARED, 64, &[scratch])?;
    }
    Ok(())
}

/// Times a kernel in blocks of 256 threads and prints its line.
fn case(name: &str, ptx: &str, blocks: u32, arguments: &[u64]) -> Result<(), Box<dyn Error>> {
    let module = Module::from_ptx(ptx, &[])?;
    let function = module.get_function(name)?;
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let pointers: Vec<_> =
        arguments.iter().map(|argument| std::ptr::from_ref(argument) as *mut c_void).collect();
    let mut times = Vec::new();
    for _ in 0..6 {
        let start = Instant::now();
        // SAFETY: the arguments match the kernel, and the emulator checks each access.
        unsafe { stream.launch(&function, blocks, 256, 0, &pointers)? };
        stream.synchronize()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.remove(0);
    times.sort_by(f64::total_cmp);
    let us = times[times.len() / 2];
    let (_, counters) = emulator::last_counters().ok_or(CudaError::UnknownError)?;
    let (lanes, warps) = (counters.lane_instructions, counters.warp_instructions);
    let (checks, rate) = (emulator::settings().checks, lanes as f64 / us);
    println!(
        r#"{{"kernel":"{name}","checks":{checks},"warp_instructions":{warps},"lane_instructions":{lanes},"us":{us:.0},"rate":{rate:.0}}}"#
    );
    Ok(())
}
