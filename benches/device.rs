//! Times reductions of data on a GPU, a JSON line a case, in the same form as the peers' programs:
//!
//! ```text
//! cargo bench --bench device -- CASES.txt [--block BLOCK]
//! ```
//!
//! Each line of the file is `OP DTYPE N`; operators and types that there are not are named on stderr. The first line printed is
//! the peak of the memory, by the driver's figures. Times are those of the launches alone: a CUDA graph of back-to-back
//! reductions, captured from `Reduce::enqueue`, its inputs rotated over buffers that together exceed four times the L2 cache
//! (one buffer where the input is under 16 MiB: then it is hot in L2), 3 replays to warm up, the median of 15.
//! `examples/speed.rs` makes a table and a chart of what this and others print.

use clap::Parser;
use cust::sys::{self, CUstream, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{
    Buffer, Device, Element, Op, Reduce, Stream, bf16, default_block, f16, for_each_block, for_each_element,
    for_each_operator,
};
use std::error::Error;
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
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    // For the events and the graphs, which are this program's own.
    let _context = cust::context::Context::new(cust::device::Device::get_device(0)?)?;
    let mut stream = device.stream()?;
    if let Some(peak) = device.peak_bandwidth() {
        println!(r#"{{"impl":"peak","device":"{device}","gbps":{:.1}}}"#, peak / 1e9);
    }
    for line in cases.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [op, dtype, n] = words[..] else { return Err(format!("not OP DTYPE N: {line}").into()) };
        let case = Case { op, n: n.parse()?, block: arguments.block };
        // The plain sum has the same bits on every device, so it stands against CUB's mode that promises this.
        let op = if op == "sum_gpu_to_gpu" { "sum" } else { op };
        macro_rules! for_type {
            ({} $($type:ident: $($row:ident)*;)*) => {
                match dtype {
                    $(stringify!($type) => for_each_operator! { for_op! { $type } },)*
                    _ => eprintln!("no kernel for {line}"),
                }
            };
        }
        macro_rules! for_op {
            ({ $type:ident } $($(#[$doc:meta])* $name:ident: $op:ident;)*) => {
                match op {
                    $(stringify!($name) => case.run::<gpu_reduce::$op, $type>(&device, &mut stream)?,)*
                    _ => eprintln!("no kernel for {line}"),
                }
            };
        }
        for_each_element! { for_type! {} }
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

struct Case<'a> {
    op: &'a str,
    n: usize,
    block: Option<u32>,
}

impl Case<'_> {
    fn run<O: Op<T> + Default, T: Sample>(
        &self,
        device: &Device,
        stream: &mut Stream,
    ) -> Result<(), Box<dyn Error>> {
        let &Self { op, n, block } = self;
        let bytes = n * size_of::<T>();
        let block = block.unwrap_or(default_block(bytes as u64));
        let buffers = if bytes < HOT_BYTES { 1 } else { (ROTATE_BYTES / bytes).clamp(1, 16) };
        let calls = if bytes >= 1 << 30 { 4 } else { buffers.max(if bytes < HOT_BYTES { 40 } else { 8 }) };
        let input: Buffer<T> = fill(device, n * buffers)?;
        let mut result = device.zeros::<O::Output>(1)?;
        let raw: CUstream = stream.as_raw().ok_or("the CPU has no graphs")?.cast();
        let mut enqueue = |call: usize| {
            let start = call % buffers * n;
            let x = input.slice(start..start + n)?;
            macro_rules! for_block {
                ({} $($block:literal)*) => {
                    match block {
                        // SAFETY: the buffers outlive the graph, and only what is enqueued uses them.
                        $($block => unsafe { x.enqueue::<O, $block>(O::default(), stream, &mut result, 0) }?,)*
                        _ => return Err("BLOCK is a power of two from 32 to 1024".into()),
                    }
                };
            }
            for_each_block! { for_block! {} }
            Ok::<_, Box<dyn Error>>(())
        };
        // Loads the kernel, which a capture cannot.
        enqueue(0)?;
        let us = median_us(raw, calls, enqueue)?;
        let gbps = bytes as f64 / us / 1e3;
        println!(
            r#"{{"impl":"gpu_reduce","op":"{op}","dtype":"{}","n":{n},"segment":0,"us":{us:.3},"gbps":{gbps:.1},"block":{block}}}"#,
            T::NAME
        );
        Ok(())
    }
}

/// `n` samples on the device.
fn fill<T: Sample>(device: &Device, n: usize) -> Result<Buffer<T>, gpu_reduce::Error> {
    const PIECE: usize = 512 << 10;
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
    let mut buffer = device.zeros(n)?;
    for start in (0..n).step_by(piece.len()) {
        buffer.write(start, &piece[..piece.len().min(n - start)])?;
    }
    Ok(buffer)
}

/// The median time of a call, in microseconds, when `calls` of them run back to back in a graph.
fn median_us(
    stream: CUstream,
    calls: usize,
    enqueue: impl FnMut(usize) -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let check = |status| if status == CUDA_SUCCESS { Ok(()) } else { Err(format!("{status:?}")) };
    let (mut graph, mut executable, mut events) = (null_mut(), null_mut(), [null_mut(); 2]);
    let mut times = Vec::new();
    // SAFETY: the stream is live; what is made here is destroyed at the end, after its last use.
    unsafe {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        check(sys::cuStreamSynchronize(stream))?;
        check(sys::cuStreamBeginCapture_v2(stream, mode))?;
        (0..calls).try_for_each(enqueue)?;
        check(sys::cuStreamEndCapture(stream, &mut graph))?;
        check(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0))?;
        (0..3).try_for_each(|_| check(sys::cuGraphLaunch(executable, stream)))?;
        events.iter_mut().try_for_each(|event| check(sys::cuEventCreate(event, 0)))?;
        let [begin, end] = events;
        for _ in 0..15 {
            let mut milliseconds = 0.0;
            check(sys::cuEventRecord(begin, stream))?;
            check(sys::cuGraphLaunch(executable, stream))?;
            check(sys::cuEventRecord(end, stream))?;
            check(sys::cuEventSynchronize(end))?;
            check(sys::cuEventElapsedTime(&mut milliseconds, begin, end))?;
            times.push(f64::from(milliseconds) * 1e3 / calls as f64);
        }
        check(sys::cuGraphExecDestroy(executable))?;
        check(sys::cuGraphDestroy(graph))?;
        events.into_iter().try_for_each(|event| check(sys::cuEventDestroy_v2(event)))?;
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
