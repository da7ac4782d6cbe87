//! Kernels compiled by NVIDIA's nvcc (`nvcc/kernels.cu`): CUB's algorithms, cooperative groups, early exits,
//! block counters, barriers and pipelines of libcu++, virtual functions, matrix
//! products.
//!
//! Their results must equal the host's, without faults. `.ci/check-nvcc` compiles them and passes their path.

use cust::error::{CudaError, CudaResult};
use cust::function::Function;
use cust::launch;
use cust::memory::DeviceBuffer;
use cust::module::Module;
use cust::stream::{Stream, StreamFlags};
use cust::sys;
use emulator::fault::FaultKind;

/// The variable with the path of the PTX file.
const PTX: &str = "GPU_REDUCE_NVCC_PTX";
const BLOCK: usize = 128;

/// Returns the first words of a kernel's output; words that it does not write stay `UNWRITTEN`.
type Expected = fn(&[i32]) -> Vec<i32>;
const UNWRITTEN: i32 = -7;

fn sums<const LANES: usize>(input: &[i32]) -> Vec<i32> {
    input.chunks(LANES).map(|part| part.iter().sum()).collect()
}

fn scans<const LANES: usize>(input: &[i32]) -> Vec<i32> {
    let scan = |part: &[i32]| {
        let sum = |sum: &mut i32, &value: &i32| {
            *sum += value;
            Some(*sum)
        };
        part.iter().scan(0, sum).collect::<Vec<_>>()
    };
    input.chunks(LANES).flat_map(scan).collect()
}

fn sorted(input: &[i32]) -> Vec<i32> {
    let sort = |part: &[i32]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part
    };
    input.chunks(BLOCK).flat_map(sort).collect()
}

fn by_parity(input: &[i32]) -> Vec<i32> {
    let sum = |part: &[i32], parity: i32| part.iter().filter(|&&value| value & 1 == parity).sum::<i32>();
    input.chunks(32).flat_map(|part| part.iter().map(move |&value| sum(part, value & 1))).collect()
}

fn firsts(input: &[i32]) -> Vec<i32> {
    input.chunks(BLOCK).flat_map(|part| vec![part[0]; part.len()]).collect()
}

fn doubled_firsts(input: &[i32]) -> Vec<i32> {
    let block = |part: &[i32]| {
        let added = 15 * part[0];
        let value = move |(thread, &value): (usize, &i32)| {
            if thread % 5 == 3 { UNWRITTEN } else { value + added }
        };
        part.iter().enumerate().map(value).collect::<Vec<_>>()
    };
    input.chunks(BLOCK).flat_map(block).collect()
}

fn sum_and_parts(input: &[i32]) -> Vec<i32> {
    [vec![input.iter().sum()], sums::<BLOCK>(input)].concat()
}

fn told_by_flag(input: &[i32]) -> Vec<i32> {
    let told = |part: &[i32]| {
        let value = |thread| if thread < 32 { UNWRITTEN } else { part[0] };
        (0..part.len()).map(value).collect::<Vec<_>>()
    };
    input.chunks(BLOCK).flat_map(told).collect()
}

fn added_to_next(input: &[i32]) -> Vec<i32> {
    let block = |part: &[i32]| {
        let mut values = part.to_vec();
        values.resize(BLOCK, 0);
        for _ in 0..4 {
            values = (0..BLOCK).map(|i| values[i] + values[(i + 1) % BLOCK]).collect();
        }
        values.truncate(part.len());
        values
    };
    input.chunks(BLOCK).flat_map(block).collect()
}

fn reversed_blocks(input: &[i32]) -> Vec<i32> {
    input.chunks(BLOCK).flat_map(|part| part.iter().rev().copied().collect::<Vec<_>>()).collect()
}

fn sums_of_next(input: &[i32]) -> Vec<i32> {
    let sum = |i: usize| input.chunks(BLOCK).filter_map(|part| part.get((i + 1) % BLOCK)).sum();
    let block: Vec<i32> = (0..BLOCK).map(sum).collect();
    block.repeat(input.len().div_ceil(BLOCK))
}

fn sums_in_reverse(input: &[i32]) -> Vec<i32> {
    let sum = |i: usize| input.chunks(BLOCK / 2).filter_map(|part| part.get(BLOCK / 2 - 1 - i)).sum();
    let block: Vec<i32> = (0..BLOCK / 2).map(sum).collect();
    block.repeat(input.len().div_ceil(BLOCK))
}

fn incremented(input: &[i32]) -> Vec<i32> {
    input.iter().map(|value| value + 1).collect()
}

/// Applies a function to each element and its index.
fn with_index(input: &[i32], f: impl Fn(i32, i32) -> i32) -> Vec<i32> {
    input.iter().zip(0..).map(|(&value, i)| f(value, i)).collect()
}

fn areas(input: &[i32]) -> Vec<i32> {
    with_index(input, |value, i| if value & 1 == 0 { value * value } else { value + i })
}

fn by_tables(input: &[i32]) -> Vec<i32> {
    with_index(input, |value, i| if i % 3 == 1 { 2 * (value - i) } else { value + i + value * i })
}

fn by_pointer(input: &[i32]) -> Vec<i32> {
    with_index(input, |value, i| match (input[0] > 3, input[1] > 4) {
        (true, _) => value + i,
        (false, true) => value * i,
        (false, false) => value - i,
    })
}

fn rounded(input: &[i32]) -> Vec<i32> {
    // To nearest, ties to even, with so many digits.
    let round = |value: i32, digits: u32| {
        let unit = 1 << (32 - value.unsigned_abs().leading_zeros()).saturating_sub(digits);
        (f64::from(value) / f64::from(unit)).round_ties_even() as i32 * unit
    };
    input.iter().map(|&value| round(value, 4) + round(value, 3) + value).collect()
}

fn reversed(input: &[i32]) -> Vec<i32> {
    let mut all = input.to_vec();
    all.resize(input.len().next_multiple_of(BLOCK), 0);
    all.reverse();
    all
}

/// A product of 16 rows and columns per block, with `K` elements in a row of the first factor.
fn products<const K: usize>(input: &[i32]) -> Vec<i32> {
    let product = |part: &[i32]| {
        let value = |place: usize| part.get(place % BLOCK).copied().unwrap_or(0);
        let element =
            |row: usize, column: usize| (0..K).map(|k| value(5 * row + k) * value(3 * k + column)).sum();
        (0..256).map(|place| element(place / 16, place % 16)).collect::<Vec<i32>>()
    };
    input.chunks(BLOCK).flat_map(product).collect()
}

fn added(input: &[i32]) -> Vec<i32> {
    vec![input.iter().sum::<i32>() + UNWRITTEN]
}

fn reversed_if_any(input: &[i32]) -> Vec<i32> {
    let block = |part: &[i32]| {
        let mut part = part.to_vec();
        part.resize(BLOCK, 0);
        if part.iter().any(|&value| value > 40) {
            part.reverse();
        }
        part
    };
    input.chunks(BLOCK).flat_map(block).collect()
}

const KERNELS: &[(&str, Expected)] = &[
    ("warp_reduce_32", sums::<32>),
    ("warp_reduce_16", sums::<16>),
    ("warp_reduce_8", sums::<8>),
    ("warp_reduce_12", sums::<12>),
    ("warp_scan_32", scans::<32>),
    ("warp_scan_16", scans::<16>),
    ("block_reduce_warps", sums::<BLOCK>),
    ("block_reduce_raking", sums::<BLOCK>),
    ("block_scan_raking", scans::<BLOCK>),
    ("block_scan_warps", scans::<BLOCK>),
    ("block_sort", sorted),
    ("block_merge_sort", sorted),
    ("tile_4", sums::<4>),
    ("tile_16", sums::<16>),
    ("tile_reduce_8", sums::<8>),
    ("tile_reduce_64", sums::<64>),
    ("tile_128", sums::<128>),
    ("partition", by_parity),
    ("early_exit", firsts),
    ("early_exit_loop", doubled_firsts),
    ("last_block", sum_and_parts),
    ("shared_flag", told_by_flag),
    ("grid_sync", reversed),
    ("block_barrier", added_to_next),
    ("barrier_copy", reversed_blocks),
    ("group_copy", reversed_blocks),
    ("block_pipeline", sums_of_next),
    ("partitioned_pipeline", sums_in_reverse),
    ("bulk_counted", incremented),
    ("bulk_expected", incremented),
    ("virtual_calls", areas),
    ("function_tables", by_tables),
    ("function_pointer", by_pointer),
    ("small_floats", rounded),
    ("wmma_half", products::<64>),
    ("wmma_bytes", products::<16>),
    ("mma_half", products::<16>),
    ("swap_loop", added),
    ("reverse_if_any", reversed_if_any),
];

/// A cooperative launch, which cust does not have.
///
/// # Safety
///
/// The kernel takes these arguments.
unsafe fn launch_together(
    kernel: &Function,
    blocks: u32,
    stream: &Stream,
    (from, to, mut count): (&DeviceBuffer<i32>, &DeviceBuffer<i32>, i32),
) -> CudaResult<()> {
    let mut pointers = [from.as_device_ptr().as_raw(), to.as_device_ptr().as_raw()];
    let [from, to] = &mut pointers;
    let mut arguments = [(&raw mut *from).cast(), (&raw mut *to).cast(), (&raw mut count).cast()];
    // SAFETY: as the caller promises.
    let launched = unsafe {
        sys::cuLaunchCooperativeKernel(
            kernel.to_raw(),
            blocks,
            1,
            1,
            BLOCK as u32,
            1,
            1,
            0,
            stream.as_inner(),
            arguments.as_mut_ptr(),
        )
    };
    if launched == sys::cudaError_enum::CUDA_SUCCESS { Ok(()) } else { Err(CudaError::LaunchFailed) }
}

#[test]
fn kernels_of_nvcc_run_as_on_a_gpu() {
    let Some(path) = std::env::var_os(PTX) else {
        return println!(
            "skipped: {PTX} does not say where the PTX of kernels.cu is; .ci/check-nvcc compiles it"
        );
    };
    let text = std::fs::read_to_string(path).unwrap();
    emulator::install().unwrap();
    let _context = cust::quick_init().unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    let module = Module::from_ptx(&text, &[])
        .unwrap_or_else(|error| panic!("{error}: {:?}", emulator::last_load_error()));
    for &(name, expected) in KERNELS {
        let kernel = module.get_function(name).unwrap();
        for count in [1000, 1024, 300, 33] {
            let input: Vec<i32> = (0..count).map(|i: i32| (i * 7919 + 13) % 101 - 50).collect();
            let expected = expected(&input);
            let elements = if name == "warp_reduce_12" { BLOCK / 32 * 12 } else { BLOCK };
            let blocks = input.len().div_ceil(elements) as u32;
            let from = DeviceBuffer::from_slice(&input).unwrap();
            for seed in [None, Some(1), Some(2), Some(3)] {
                emulator::set_settings(emulator::Settings { seed, ..emulator::settings() });
                let to = DeviceBuffer::from_slice(&[UNWRITTEN; 2048]).unwrap();
                // SAFETY: the emulator checks each access.
                let launched = unsafe {
                    if name == "grid_sync" {
                        launch_together(&kernel, blocks, &stream, (&from, &to, count))
                    } else {
                        launch!(kernel<<<blocks, BLOCK as u32, 0, stream>>>(
                            from.as_device_ptr(), to.as_device_ptr(), count))
                    }
                };
                let ended = launched.and_then(|()| stream.synchronize());
                assert_eq!((ended, emulator::take_faults()), (Ok(()), vec![]), "{name} of {count}, {seed:?}");
                assert_eq!(
                    to.as_host_vec().unwrap()[..expected.len()],
                    expected,
                    "{name} of {count}, {seed:?}"
                );
            }
        }
        let notes = emulator::take_notes().into_iter().filter(|note| note.kernel == name);
        let notes: Vec<_> = notes.map(|note| note.kind).collect();
        match name {
            "swap_loop" => {
                assert!(notes.iter().all(|note| matches!(note, FaultKind::SwapRead { .. })), "{notes:?}");
                assert!(!notes.is_empty());
            }
            "reverse_if_any" => assert!(matches!(notes[..], [FaultKind::SameValue { .. }]), "{notes:?}"),
            _ => assert!(notes.is_empty(), "{name}: {notes:?}"),
        }
    }
}
