//! Times reductions of data on a GPU, a JSON line a case, in the same form as the peers' programs:
//!
//! ```text
//! cargo bench --bench device -- CASES.txt [--block BLOCK]
//! ```
//!
//! Each line of the file is `OP DTYPE N`; operators and types that have no kernel are named on stderr. The first line
//! printed is the peak of the memory, by the driver's figures. Times are those of the launches alone: a CUDA graph of
//! back-to-back reductions, its inputs rotated over buffers that together exceed four times the L2 cache (one buffer
//! where the input is under 16 MiB: then it is hot in L2), 3 replays to warm up, the median of 15. Kernels are read from
//! `ptx/` in the folder it runs in. `examples/speed.rs` makes a table and a chart of what this and others print.

use bytemuck::cast_slice;
use clap::Parser;
use cust::error::CudaError;
use cust::event::{Event, EventFlags};
use cust::function::Function;
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::module::{Module, ModuleJitOption};
use cust::stream::{Stream, StreamFlags};
use cust::sys::{self, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{Device, Element, Plan, bf16, default_block, f16, for_each_element};
use std::error::Error;
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr::null_mut;

const ROTATE_BYTES: usize = 512 << 20;
const HOT_BYTES: usize = 16 << 20;

#[derive(Parser)]
struct Arguments {
    /// Lines of OP DTYPE N.
    cases: PathBuf,
    /// Threads a block, instead of those of the one-line functions.
    #[arg(long)]
    block: Option<u32>,
    /// What `cargo bench` passes.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let cases = std::fs::read_to_string(&arguments.cases)?;
    // Opening it makes its context the thread's.
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    if let Some(peak) = device.peak_bandwidth() {
        println!(r#"{{"impl":"peak","device":"{device}","gbps":{:.1}}}"#, peak / 1e9);
    }
    for line in cases.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [op, dtype, n] = words[..] else { return Err(format!("not OP DTYPE N: {line}").into()) };
        let n = n.parse()?;
        macro_rules! dispatch {
            ({} $($type:ident: $($row:ident)*;)*) => {
                match dtype {
                    $(stringify!($type) => run::<$type>(op, n, arguments.block)?,)*
                    _ => eprintln!("no kernel for {line}"),
                }
            };
        }
        for_each_element! { dispatch! {} }
    }
    Ok(())
}

/// Values of a type, from random bits.
trait Sample: Element {
    fn sample(bits: u64) -> Self;
}

macro_rules! samples {
    ($($type:ident: |$bits:ident| $value:expr;)*) => {
        $(impl Sample for $type { fn sample($bits: u64) -> Self { $value } })*
    };
}

samples! {
    i8: |bits| bits as i8;
    i16: |bits| bits as i16;
    i32: |bits| bits as i32;
    i64: |bits| bits as i64;
    u8: |bits| bits as u8;
    u16: |bits| bits as u16;
    u32: |bits| bits as u32;
    u64: |bits| bits;
    f16: |bits| f16::from_f64(f64::sample(bits));
    bf16: |bits| bf16::from_f64(f64::sample(bits));
    f32: |bits| f64::sample(bits) as f32;
    f64: |bits| (bits >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
}

fn plan<T: Element>(n: u64, block: u32) -> Option<Plan> {
    Some(match block {
        32 => Plan::new::<T, 32>(n),
        64 => Plan::new::<T, 64>(n),
        128 => Plan::new::<T, 128>(n),
        256 => Plan::new::<T, 256>(n),
        512 => Plan::new::<T, 512>(n),
        1024 => Plan::new::<T, 1024>(n),
        _ => return None,
    })
}

fn run<T: Sample>(op: &str, n: usize, block: Option<u32>) -> Result<(), Box<dyn Error>> {
    let block = block.unwrap_or(default_block((n * size_of::<T>()) as u64));
    // The plain sum has the same bits on every device, so it stands against CUB's mode that promises this.
    let kernel = if op == "sum_gpu_to_gpu" { "sum" } else { op };
    let name = format!("{kernel}_{}_{block}", T::NAME);
    let plan = plan::<T>(n as u64, block).ok_or("BLOCK is a power of two from 32 to 1024")?;
    let Ok(ptx) = std::fs::read_to_string(format!("ptx/{name}.ptx")) else {
        eprintln!("no kernel ptx/{name}.ptx for {op} {} {n}", T::NAME);
        return Ok(());
    };
    // As the library compiles it.
    let module = Module::from_ptx(ptx, &[ModuleJitOption::MaxRegisters((65536 / block).min(255))])?;
    let function = module.get_function(&name)?;

    let bytes = n * size_of::<T>();
    let buffers = if bytes < HOT_BYTES { 1 } else { (ROTATE_BYTES / bytes).clamp(1, 16) };
    let calls = if bytes >= 1 << 30 { 4 } else { buffers.max(if bytes < HOT_BYTES { 40 } else { 8 }) };
    let input = fill::<T>(bytes * buffers)?;
    // A slot for the result, and one for each block.
    let [result, slots] = [2, 2 * 2048].map(DeviceBuffer::<u64>::zeroed);
    let (result, slots) = (result?, slots?);
    let [result, slots] = [&result, &slots].map(|buffer| buffer.as_device_ptr().as_raw());
    let us = median_us(calls, |stream, call| {
        let input = input.as_device_ptr().as_raw() + (call % buffers * bytes) as u64;
        launch(&function, stream, &plan, block, [input, plan.len, plan.chunk, slots, result])
    })?;
    let gbps = bytes as f64 / us / 1e3;
    println!(
        r#"{{"impl":"gpu_reduce","op":"{op}","dtype":"{}","n":{n},"segment":0,"us":{us:.3},"gbps":{gbps:.1},"block":{block}}}"#,
        T::NAME
    );
    Ok(())
}

/// `bytes` of samples on the device.
fn fill<T: Sample>(bytes: usize) -> Result<DeviceBuffer<u8>, CudaError> {
    const PIECE: usize = 16 << 20;
    let mut state = 1u64;
    let piece: Vec<T> = (0..PIECE / size_of::<T>())
        .map(|_| {
            // xorshift64 (G. Marsaglia, 2003)
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            T::sample(state)
        })
        .collect();
    // SAFETY: every byte is written below.
    let buffer = unsafe { DeviceBuffer::uninitialized(bytes.max(1)) }?;
    for start in (0..bytes).step_by(PIECE) {
        let len = PIECE.min(bytes - start);
        buffer.index(start..start + len).copy_from(&cast_slice(&piece)[..len])?;
    }
    Ok(buffer)
}

/// Enqueues the kernel with its five arguments, in the order of `gpu_reduce_kernels::reduce::Arguments`.
fn launch(
    function: &Function,
    stream: &Stream,
    plan: &Plan,
    block: u32,
    arguments: [u64; 5],
) -> Result<(), CudaError> {
    let pointers = arguments.each_ref().map(|argument| std::ptr::from_ref(argument) as *mut c_void);
    // SAFETY: the caller passes what the kernel takes, on buffers that outlive the graph.
    unsafe { stream.launch(function, plan.chunks, block, 0, &pointers) }
}

/// The median time of a call, in microseconds, when `calls` of them run back to back in a graph.
fn median_us(
    calls: usize,
    enqueue: impl Fn(&Stream, usize) -> Result<(), CudaError>,
) -> Result<f64, Box<dyn Error>> {
    let check = |status| if status == CUDA_SUCCESS { Ok(()) } else { Err(format!("{status:?}")) };
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
    let (mut graph, mut executable) = (null_mut(), null_mut());
    // SAFETY: the stream is live; the graph and its executable are made here and destroyed below, after their last use.
    unsafe {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        check(sys::cuStreamBeginCapture_v2(stream.as_inner(), mode))?;
        (0..calls).try_for_each(|call| enqueue(&stream, call))?;
        check(sys::cuStreamEndCapture(stream.as_inner(), &mut graph))?;
        check(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
    }
    // SAFETY: as above.
    let replay = || check(unsafe { sys::cuGraphLaunch(executable, stream.as_inner()) });
    (0..3).try_for_each(|_| replay())?;
    let (begin, end) = (Event::new(EventFlags::DEFAULT)?, Event::new(EventFlags::DEFAULT)?);
    let mut times = Vec::new();
    for _ in 0..15 {
        begin.record(&stream)?;
        replay()?;
        end.record(&stream)?;
        end.synchronize()?;
        times.push(f64::from(end.elapsed_time_f32(&begin)?) * 1e3 / calls as f64);
    }
    // SAFETY: as above; the stream was waited for.
    unsafe {
        check(sys::cuGraphExecDestroy(executable))?;
        check(sys::cuGraphDestroy(graph))?;
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
