//! Times reductions of data on a GPU; prints a JSON line per case, in the same form as the peers' programs:
//!
//! ```text
//! cargo bench --bench device -- CASES.txt [--block BLOCK] [--data KIND]
//! ```
//!
//! Each line of the file is one of these:
//!
//! - `OP DTYPE N`: a reduction of all elements;
//! - `segOP DTYPE N SEGMENT`: segments of this length, by `u64` offsets;
//! - `rowOP DTYPE N SEGMENT`: rows of this length;
//! - `colOP DTYPE N SEGMENT`: this number of columns;
//! - `bykey DTYPE N SEGMENT`: sums by runs of this number of equal `i32` keys; finding the runs is part of
//!   the time;
//! - `expOP DTYPE N SEGMENT`: segments whose lengths have an exponential distribution with this mean;
//! - `segpow DTYPE N SEGMENT`: sums of segments whose lengths follow a power law, as in the peers' program.
//!
//! Unknown operators and types are named on stderr. The first line printed is the memory's peak bandwidth,
//! from the driver's figures.
//!
//! Only the launches are timed: a CUDA graph of back-to-back reductions, captured from `Reduce::reduce_into`.
//! Inputs rotate over buffers that together exceed four times the L2 cache; an input under 16 MiB has one
//! buffer, which stays in L2. Each time is the median of 15 replays after 3 to warm up. `first_ms` is the host's time of the
//! first call, in which the driver compiles the kernel, unless a case before has used it or the driver's cache has it
//! (`CUDA_CACHE_DISABLE=1`). `examples/speed.rs` makes a table and a chart of the output of this and other programs.

#[path = "common/kinds.rs"]
mod kinds;

use clap::Parser;
use cust::memory::bytemuck::Zeroable;
use cust::sys::{self, CUstream, cudaError_enum::CUDA_SUCCESS};
use gpu_reduce::{
    Both, Buffer, Comparison, Device, Element, Item, Max, Mean, Min, Op, Reduce, Runs, Stream, Sum, Var,
    bf16, default_block, f16, for_each_block, for_each_comparison, for_each_element, for_each_operator,
    for_each_pair_operator,
};
use kinds::{hash, kinds, single};
use rayon::prelude::*;
use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::error::Error;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::time::Instant;

const ROTATE_BYTES: usize = 512 << 20;
const HOT_BYTES: usize = 16 << 20;

#[derive(Parser)]
struct Arguments {
    /// Lines of OP DTYPE N [SEGMENT].
    cases: PathBuf,
    /// Threads per block. By default, as many as the one-line functions launch.
    #[arg(long)]
    block: Option<u32>,
    /// The kind of floats: `uniform`, `normal`, `sorted` normal ones, `spread` over magnitudes of 2^±60, or
    /// `all` finite ones. Any but the default is appended to the operator's name in the output.
    #[arg(long, default_value = "uniform")]
    data: String,
    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let lines = std::fs::read_to_string(&arguments.cases)?;
    let device = match Device::cuda(0) {
        Ok(device) => device,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    // The events and graphs of this program need a context.
    let _context = cust::context::Context::new(cust::device::Device::get_device(0)?)?;
    let stream = device.stream()?;
    if let Some(peak) = device.peak_bandwidth() {
        println!(r#"{{"impl":"peak","device":"{device}","gbps":{:.1}}}"#, peak / 1e9);
    }
    let mut results = Results(&device, HashMap::new());
    let mut cases = Vec::new();
    for line in lines.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (op, dtype, n, segment) = match words[..] {
            [op, dtype, n] => (op, dtype, n, None),
            [op, dtype, n, segment] => (op, dtype, n, Some(segment.parse()?)),
            _ => return Err(format!("not OP DTYPE N [SEGMENT]: {line}").into()),
        };
        cases.push(Case { op, dtype, n: n.parse()?, segment, block: arguments.block, data: &arguments.data });
    }
    // Ordered by type, so that the data are uploaded once for all cases of a type.
    let mut dtypes: Vec<&str> = Vec::new();
    for case in &cases {
        if !dtypes.contains(&case.dtype) {
            dtypes.push(case.dtype);
        }
    }
    macro_rules! for_type {
        ({ $dtype:ident } $($type:ident: $($row:ident)*;)*) => {
            match $dtype {
                $(stringify!($type) => {
                    let cases: Vec<_> = cases.iter().filter(|case| case.dtype == $dtype).collect();
                    let items = cases.iter().map(|case| case.items() * case.buffers::<$type>()).max();
                    let input = fill::<$type>(&device, items.unwrap_or(0), &arguments.data)?;
                    for case in cases {
                        let mut run = Run { case, stream: &stream, results: &mut results };
                        let found = for_each_operator! { for_op! { run input element $type } }
                            || for_each_pair_operator! { for_op! { run input pair $type } }
                            || for_each_comparison! { for_op! { run input comparison $type } };
                        match case.kernel() {
                            _ if found => {}
                            "sum_min_max" => run.on::<_, $type>(Both(Sum, Both(Min, Max)), &input)?,
                            "mean_var" => run.on::<_, $type>(Both(Mean, Var::default()), &input)?,
                            _ => eprintln!("no kernel for {} {} {}", case.op, case.dtype, case.n),
                        }
                    }
                })*
                _ => eprintln!("no kernels for {}", $dtype),
            }
        };
    }
    // Expands to whether there is such an operator.
    macro_rules! for_op {
        (
            { $run:ident $input:ident $kind:ident $type:ident }
            $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*
        ) => {
            match $run.case.kernel() {
                $(stringify!($name) => {
                    for_op! { $kind $run $input $op $type }
                    true
                })*
                _ => false,
            }
        };
        (element $run:ident $input:ident $op:ident $type:ident) => {
            $run.on::<_, $type>(gpu_reduce::$op::default(), &$input)?;
        };
        (pair $run:ident $input:ident $op:ident $type:ident) => {
            $run.on_pairs::<_, $type>(gpu_reduce::$op::default(), &$input)?;
        };
        (comparison $run:ident $input:ident $op:ident $type:ident) => {
            $run.on::<_, $type>(gpu_reduce::$op::new(Comparison::Greater($type::sample(1 << 62))), &$input)?;
        };
    }
    for dtype in dtypes {
        for_each_element! { for_type! { dtype } }
    }
    Ok(())
}

/// Random values of a type.
trait Sample: Element {
    fn sample(bits: u64) -> Self;

    /// The value of this index, of the kind of this name, if the type has it.
    fn of_kind(_: &str, _: u64) -> Option<Self> {
        None
    }
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
}

macro_rules! floats {
    ($($type:ident: |$bits:ident| $value:expr, |$kind:ident, $sample:ident| $of_kind:expr;)*) => {$(
        impl Sample for $type {
            fn sample($bits: u64) -> Self {
                $value
            }

            fn of_kind($kind: &str, index: u64) -> Option<Self> {
                let $kind = if $kind == "sorted" { "normal" } else { $kind };
                let $sample = kinds().into_iter().find(|(name, _)| *name == $kind)?.1(hash(index));
                Some($of_kind)
            }
        }
    )*};
}

floats! {
    f32: |bits| f64::sample(bits) as f32, |kind, sample| single(kind, sample);
    f64: |bits| (bits >> 11) as f64 / (1u64 << 53) as f64 - 0.5, |kind, sample| sample;
}

/// A buffer for one result of each type.
struct Results<'a>(&'a Device, HashMap<TypeId, Box<dyn Any>>);

impl Results<'_> {
    fn place<V: Item>(&mut self) -> Result<&mut Buffer<V>, Box<dyn Error>> {
        let place = match self.1.entry(TypeId::of::<V>()) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(none) => none.insert(Box::new(self.0.upload(&[V::zeroed()])?)),
        };
        Ok(place.downcast_mut().expect("it is kept under its type"))
    }
}

struct Case<'a> {
    op: &'a str,
    dtype: &'a str,
    n: usize,
    segment: Option<usize>,
    block: Option<u32>,
    data: &'a str,
}

/// The division of an input.
enum Shape {
    All,
    Rows(usize),
    Columns(usize),
    Segments(Buffer<u64>),
    Keys(Buffer<i32>, Box<RefCell<Runs<i32>>>),
}

impl Case<'_> {
    /// The library's operator. A plain sum has the same bits on every device, so it is compared with CUB's
    /// mode that promises this.
    fn kernel(&self) -> &str {
        match self.op {
            "sum_gpu_to_gpu" | "segpow" | "bykey" => "sum",
            op if self.segment.is_some() => ["seg", "exp", "row", "col"]
                .into_iter()
                .find_map(|shape| op.strip_prefix(shape))
                .unwrap_or(op),
            op => op,
        }
    }

    fn shape(&self, device: &Device) -> Result<Shape, gpu_reduce::Error> {
        let Some(segment) = self.segment else { return Ok(Shape::All) };
        if self.op.starts_with("row") {
            return Ok(Shape::Rows(segment));
        }
        if self.op.starts_with("col") {
            return Ok(Shape::Columns(segment));
        }
        if self.op == "bykey" {
            let keys: Vec<i32> = (0..self.n).map(|index| (index / segment) as i32).collect();
            let runs = Runs::with_capacity(device, self.n, self.n.div_ceil(segment))?;
            return Ok(Shape::Keys(device.upload(&keys)?, Box::new(RefCell::new(runs))));
        }
        let mut offsets = vec![0u64];
        let mut index = 0u32;
        while offsets[offsets.len() - 1] < self.n as u64 {
            let uniform = || (f64::from(hash32(index)) + 1.0) / 4294967296.0;
            let (length, is_random) = match self.op {
                "segpow" => (uniform().powf(-1.0 / 1.1).floor().min(1048576.0) as u64, true),
                op if op.starts_with("exp") => ((-uniform().ln() * segment as f64) as u64, true),
                _ => (segment as u64, false),
            };
            let last = offsets[offsets.len() - 1];
            if !is_random && last + length > self.n as u64 {
                break;
            }
            offsets.push((last + length).min(self.n as u64));
            index += 1;
        }
        Ok(Shape::Segments(device.upload(&offsets)?))
    }

    /// The number of elements in an input. The second of two arrays follows the first, at a boundary.
    fn items(&self) -> usize {
        macro_rules! is_pair {
            ({} $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
                matches!(self.kernel(), $(stringify!($name))|*)
            };
        }
        if for_each_pair_operator! { is_pair! {} } { self.n.next_multiple_of(64) + self.n } else { self.n }
    }

    /// The number of input buffers to rotate over, adjacent in memory.
    fn buffers<T>(&self) -> usize {
        let bytes = self.n * size_of::<T>();
        if bytes < HOT_BYTES { 1 } else { (ROTATE_BYTES / bytes).clamp(1, 16) }
    }
}

/// The hash of the peers' program.
fn hash32(index: u32) -> u32 {
    let mut hash = index.wrapping_mul(2654435761);
    hash = (hash ^ hash >> 15).wrapping_mul(2246822519);
    hash = (hash ^ hash >> 13).wrapping_mul(3266489917);
    hash ^ hash >> 16
}

/// A case, and what it needs to run.
struct Run<'a, 'b> {
    case: &'a Case<'a>,
    stream: &'a Stream<'static>,
    results: &'a mut Results<'b>,
}

impl Run<'_, '_> {
    fn on<O: Op<T, Output: Item>, T: Sample>(
        &mut self,
        op: O,
        input: &Buffer<T>,
    ) -> Result<(), Box<dyn Error>> {
        let n = self.case.n;
        let is_matrix = self.case.op.starts_with("row") || self.case.op.starts_with("col");
        let n = if is_matrix { n - n % self.case.segment.unwrap_or(1) } else { n };
        self.time::<_, _, T>(op, |start| input.slice(start..start + n))
    }

    fn on_pairs<O: Op<(T, T), Output: Item>, T: Sample>(
        &mut self,
        op: O,
        input: &Buffer<T>,
    ) -> Result<(), Box<dyn Error>> {
        let n = self.case.n;
        let stride = n.next_multiple_of(64);
        self.time::<_, _, T>(op, |start| {
            Ok((input.slice(start..start + n)?, input.slice(start + stride..start + stride + n)?))
        })
    }

    /// Times the reduction of the data that `view` returns for a start index.
    fn time<O: Op<V::Item, Output: Item>, V: Reduce, T: Sample>(
        &mut self,
        op: O,
        view: impl Fn(usize) -> Result<V, gpu_reduce::Error>,
    ) -> Result<(), Box<dyn Error>> {
        let &Case { op: name, n, block, .. } = self.case;
        let items = self.case.items();
        let bytes = n * size_of::<T>();
        // For many results, the BLOCK that the documents use.
        let default = match self.case.segment {
            Some(_) => 256,
            None => default_block::<O, V::Item>(n as u64 * size_of::<T>() as u64),
        };
        let block = block.unwrap_or(default);
        let buffers = self.case.buffers::<T>();
        let calls = if bytes >= 1 << 30 { 4 } else { buffers.max(if bytes < HOT_BYTES { 40 } else { 8 }) };
        let shape = self.case.shape(self.results.0)?;
        let places = match &shape {
            Shape::All => 1,
            Shape::Rows(columns) => n / columns,
            Shape::Columns(columns) => *columns,
            Shape::Segments(offsets) => offsets.len() - 1,
            Shape::Keys(_, runs) => runs.borrow().keys().len(),
        };
        let mut of_segments;
        let result = if places == 1 {
            self.results.place::<O::Output>()?
        } else {
            // Uploaded, for the reason given at `fill`.
            of_segments = self.results.0.upload(&vec![O::Output::zeroed(); places])?;
            &mut of_segments
        };
        let none = O::Output::zeroed();
        let raw: CUstream = self.stream.as_raw().ok_or("the CPU has no graphs")?.cast();
        let mut enqueue = |call: usize| {
            let x = view(call % buffers * items)?;
            macro_rules! for_block {
                ({} $($block:literal)*) => {
                    match block {
                        // SAFETY: the buffers outlive the graph, and only enqueued work uses them.
                        $($block => unsafe {
                            match &shape {
                                Shape::All => x.by(op).block::<$block>().run_into(self.stream, &mut *result)?,
                                Shape::Rows(columns) => {
                                    x.rows(*columns)?
                                        .by(op).or(none).block::<$block>().run_into(self.stream, &mut *result)?
                                }
                                Shape::Columns(columns) => {
                                    x.columns(*columns)?
                                        .by(op).or(none).block::<$block>().run_into(self.stream, &mut *result)?
                                }
                                Shape::Keys(keys, runs) => {
                                    runs.borrow_mut().find(keys, self.stream)?;
                                    let runs = runs.borrow();
                                    x.segments(&*runs)?
                                        .by(op).or(none).block::<$block>().run_into(self.stream, &mut *result)?
                                }
                                Shape::Segments(offsets) => {
                                    x.segments(offsets)?
                                        .by(op).or(none).block::<$block>().run_into(self.stream, &mut *result)?
                                }
                            }
                        },)*
                        _ => return Err("BLOCK is a power of two from 32 to 1024".into()),
                    }
                };
            }
            for_each_block! { for_block! {} }
            Ok::<_, Box<dyn Error>>(())
        };
        // Loads the kernel, which is not possible during a capture.
        let start = Instant::now();
        enqueue(0)?;
        self.stream.synchronize()?;
        let first_ms = start.elapsed().as_secs_f64() * 1e3;
        let us = median_us(raw, calls, enqueue)?;
        let gbps = (items * size_of::<T>()) as f64 / us / 1e3;
        let kind = if self.case.data == "uniform" { String::new() } else { format!("_{}", self.case.data) };
        println!(
            r#"{{"impl":"gpu_reduce","op":"{name}{kind}","dtype":"{}","n":{n},"segment":{},"us":{us:.3},"gbps":{gbps:.1},"block":{block},"first_ms":{first_ms:.3}}}"#,
            T::NAME,
            self.case.segment.unwrap_or(0)
        );
        Ok(())
    }
}

/// Uploads `n` samples of a kind to the device.
fn fill<T: Sample>(device: &Device, n: usize, kind: &str) -> Result<Buffer<T>, Box<dyn Error>> {
    if kind != "uniform" {
        let item = |index| T::of_kind(kind, index).ok_or_else(|| format!("no {} is {kind}", T::NAME));
        let mut items = (0..n as u64).into_par_iter().map(item).collect::<Result<Vec<T>, _>>()?;
        if kind == "sorted" {
            items.par_sort_unstable_by(|a, b| a.partial_cmp(b).expect("no NaN"));
        }
        return Ok(device.upload(&items)?);
    }
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
    // Uploaded at once, not cleared and then written: clearing is a kernel on another stream, and with a
    // second stream kernels take 0.2 µs longer.
    let items: Vec<T> = piece.into_iter().cycle().take(n).collect();
    Ok(device.upload(&items)?)
}

/// Returns the median time of a call in microseconds, with `calls` of them back to back in a graph.
fn median_us(
    stream: CUstream,
    calls: usize,
    enqueue: impl FnMut(usize) -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let check = |status| if status == CUDA_SUCCESS { Ok(()) } else { Err(format!("{status:?}")) };
    let (mut graph, mut executable, mut events) = (null_mut(), null_mut(), [null_mut(); 2]);
    let mut times = Vec::new();
    // SAFETY: the stream is live; what is created here is destroyed at the end, after its last use.
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
