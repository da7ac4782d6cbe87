//! A rank of the tests in `tests/ranks.rs`, which start it with `mpirun`. Its argument chooses the test.

use std::fmt::Debug;
use std::process::{Command, ExitCode};

use bytemuck::{Pod, Zeroable};
use gpu_reduce::{
    ArgMax, Block, Device, Error, ExactSum, Item, LogSumExp, Max, Mean, MergeRanks, Min, Op, Partial,
    PartialGroups, Reduce, ReduceRanks, Sum, Threads, Var,
};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

fn main() -> ExitCode {
    let universe = mpi::initialize().expect("MPI is not initialised yet");
    let world = universe.world();
    let rank = world.rank();
    let x = vec![rank as f32; 1000];
    let result = match std::env::args().nth(1).as_deref() {
        Some("same") => {
            same(&world);
            Ok("the same".into())
        }
        Some("groups") => {
            groups(&world);
            Ok("the same".into())
        }
        Some("keys") => {
            keys(&world);
            Ok("the same".into())
        }
        Some("keys-type") if rank == 1 => shown(world.merge_groups(&PartialGroups::<_, i64, f32>::new(Sum))),
        Some("keys-type") => shown(world.merge_groups(&PartialGroups::<_, u64, f32>::new(Sum))),
        Some("empty") => {
            let sum = world.reduce::<Sum, 256>(&x[..0]);
            assert_eq!(sum, Ok(0.0));
            shown(world.reduce::<Min, 256>(&x[..0]))
        }
        Some("operator") if rank == 1 => shown(world.reduce::<Max, 256>(&x)),
        Some("type") if rank == 1 => shown(world.reduce::<Sum, 256>(&[1.0f64])),
        Some("element") if rank == 1 => shown(world.reduce::<Digest, 256>(&[Large([1; 20])])),
        Some("block") if rank == 2 => shown(world.reduce::<Sum, 64>(&x)),
        Some("parameters") => shown(world.reduce_by::<Var, 256>(Var::new(u64::from(rank == 2)), &x)),
        Some("panic") => {
            let mut x = vec![Large([1; 20]); 10_000];
            x[5000].0[0] = u32::from(rank != 1);
            shown(world.reduce::<Digest, 256>(&x))
        }
        Some("device") if rank == 1 => {
            let device = Device::emulator().expect("this build has the emulator");
            let gone = device.upload(&x).expect("the emulator has memory");
            // SAFETY: the emulator checks accesses, and reports that this memory was freed.
            let view =
                unsafe { device.view(gone.view().as_ptr(), 1000) }.expect("the memory is still allocated");
            drop(gone);
            shown(world.reduce::<Sum, 256>(&view))
        }
        Some("memory") => {
            // A chunk of 128 MiB: rank 0 has half of it, and no memory for the other half.
            let x = vec![Page([1; 1 << 16]); 1000];
            if rank == 0 {
                limit_memory(32 << 20);
            }
            shown(world.reduce::<Count, 256>(&x))
        }
        Some("killed") if rank == 1 => {
            let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
            Ok(String::new())
        }
        _ => shown(world.reduce::<Sum, 256>(&x)),
    };
    match result {
        Ok(text) => println!("rank {rank}: {text}"),
        Err(error) => println!("rank {rank}: {error}"),
    }
    ExitCode::SUCCESS
}

fn shown<V: Debug>(result: Result<V, Error>) -> Result<String, Error> {
    result.map(|value| format!("{value:?}"))
}

/// An element larger than the ranks' first message.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Large([u32; 20]);

/// A large element, so that few of them need much memory.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct Page([u8; 1 << 16]);

/// Limits the process's memory to `more` bytes beyond its current size.
fn limit_memory(more: usize) {
    let status = std::fs::read_to_string("/proc/self/statm").expect("the system is Linux");
    let pages: usize =
        status.split(' ').next().and_then(|pages| pages.parse().ok()).expect("it begins with a number");
    let limit = format!("--as={}", pages * 4096 + more);
    let set = Command::new("prlimit").args(["--pid", &std::process::id().to_string(), &limit]).status();
    assert!(set.is_ok_and(|status| status.success()), "prlimit limits memory");
}

/// Counts pages.
#[derive(Clone, Copy, Default)]
struct Count;

impl Op<Page> for Count {
    const NAME: &'static str = "count";
    type Accumulator = u64;
    type Output = u64;
    const EXACT: bool = true;

    fn identity(&self) -> u64 {
        0
    }
    fn lift(&self, item: Page, _: u64) -> u64 {
        u64::from(item.0[0] == 1)
    }
    fn combine(&self, a: u64, b: u64) -> u64 {
        a + b
    }
    fn finish(&self, all: u64, _: u64) -> Option<u64> {
        Some(all)
    }
}

/// A digest of all elements; panics at an element that begins with 0.
#[derive(Clone, Copy, Default)]
struct Digest;

impl Op<Large> for Digest {
    const NAME: &'static str = "digest";
    type Accumulator = u64;
    type Output = u64;
    const EXACT: bool = true;

    fn identity(&self) -> u64 {
        0
    }
    fn lift(&self, item: Large, index: u64) -> u64 {
        assert!(item.0[0] != 0, "an element that begins with 0");
        index ^ u64::from(item.0[19])
    }
    fn combine(&self, a: u64, b: u64) -> u64 {
        a.wrapping_add(b)
    }
    fn finish(&self, all: u64, _: u64) -> Option<u64> {
        Some(all)
    }
}

/// A sum with so large an accumulator that a thread folds one element at a time, and arrays have groups of
/// chunks soonest.
#[derive(Clone, Copy, Default)]
struct Wide;

impl Op<f32> for Wide {
    const NAME: &'static str = "wide";
    type Accumulator = [f32; 16];
    type Output = f32;
    const EXACT: bool = false;

    fn identity(&self) -> [f32; 16] {
        [-0.0; 16]
    }
    fn lift(&self, item: f32, _: u64) -> [f32; 16] {
        [item; 16]
    }
    fn combine(&self, mut a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        a[0] += b[0];
        a
    }
    fn finish(&self, all: [f32; 16], _: u64) -> Option<f32> {
        Some(all[0])
    }
}

fn hash(index: u64) -> u64 {
    let mut h = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// Compares the ranks' results with those of one slice, for many lengths and splits, on the CPU and on the
/// emulator.
fn same(world: &SimpleCommunicator) {
    let near = |hash: u64| (hash >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
    let any = |index| hash(index);
    for len in [1, 5, 1000, 2049, 33_000, 200_001] {
        check::<_, f32, 32>(world, Sum, len, |index| near(any(index)) as f32);
        check::<_, f64, 64>(world, LogSumExp::default(), len, |index| near(any(index)));
        check::<_, i16, 32>(world, ArgMax, len, |index| any(index) as i16);
        check::<_, f32, 32>(world, (Sum, Min, Max), len, |index| near(any(index)) as f32);
        check::<_, Large, 32>(world, Digest, len, |index| Large([1 | any(index) as u32; 20]));
        for device in [Device::cpu(), Device::emulator().expect("this build has the emulator")] {
            check_on::<_, f64, 32>(world, &device, Var::new(1), len, |index| near(any(index)));
            check_on::<_, f32, 32>(world, &device, ExactSum, len, |index| near(any(index)) as f32);
        }
    }
}

/// Groups by key of items that the ranks have in pieces.
fn keys(world: &SimpleCommunicator) {
    let (me, ranks) = (world.rank() as usize, world.size() as usize);
    for len in [0, 1, 1000, 30_000] {
        let keys: Vec<i32> = (0..len).map(|index| hash(hash(index) % 500) as i32).collect();
        let x: Vec<f64> =
            (0..len).map(|index| f64::from_bits(hash(index) >> 12) - hash(index) as f64).collect();
        let mut part = PartialGroups::new(Sum);
        let mut means = PartialGroups::new(Mean);
        let mut maxima = PartialGroups::new(Max);
        for (place, (keys, x)) in keys.chunks(777).zip(x.chunks(777)).enumerate() {
            if hash(place as u64) as usize % ranks == me {
                part.add(keys, x).expect("keys and items are as many");
                means.add(keys, x).expect("keys and items are as many");
                maxima.add(keys, x).expect("keys and items are as many");
            }
        }
        let groups = x.group_by(&keys).expect("keys and items are as many");
        let bits = |sums: &[f64]| -> Vec<u64> { sums.iter().map(|sum| sum.to_bits()).collect() };
        let merged = |part: Result<(gpu_reduce::Buffer<i32>, gpu_reduce::Buffer<f64>), Error>| {
            let (found, results) = part.expect("ranks agree");
            assert_eq!(found.to_vec(), groups.keys().to_vec());
            bits(&results.to_vec().expect("results are on the CPU"))
        };
        let whole = |results: Result<gpu_reduce::Buffer<f64>, Error>| {
            bits(&results.and_then(|results| results.to_vec()).expect("results are on the CPU"))
        };
        let sums = merged(world.merge_groups(&part).and_then(|all| all.finish()));
        assert_eq!(sums, whole(groups.reduce::<Sum, 256>()));
        let of_means = merged(world.merge_groups(&means).and_then(|all| all.finish()));
        assert_eq!(of_means, whole(groups.reduce::<Mean, 256>()));
        let greatest = merged(world.merge_groups(&maxima).and_then(|all| all.finish()));
        assert_eq!(greatest, whole(groups.reduce::<Max, 256>()));
    }
}

/// An array with groups of chunks, of which each rank has some whole and some in part.
fn groups(world: &SimpleCommunicator) {
    let len = (1 << 25) + (1 << 23) + 12_345;
    assert_eq!(Partial::<Wide, f32, 32>::plan(len as u64).groups(), 3);
    let data: Vec<f32> = (0..len).map(|index| (index % 1009) as f32 * 0.37).collect();
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    let cut = |rank| if rank == ranks { len } else { len / 7 * rank + 1000 * rank };
    let sum = world.reduce::<Wide, 32>(&data[cut(rank)..cut(rank + 1)]).map(f32::to_bits);
    assert_eq!(sum, data.reduce::<Wide, 32>().map(f32::to_bits));
}

fn check<O: Op<T>, T: Item, const BLOCK: u32>(
    world: &SimpleCommunicator,
    op: O,
    len: usize,
    from: impl Fn(u64) -> T,
) where
    Threads<BLOCK>: Block,
{
    check_on::<O, T, BLOCK>(world, &Device::cpu(), op, len, from);
}

/// Every other rank uses the device, the others the CPU.
fn check_on<O: Op<T>, T: Item, const BLOCK: u32>(
    world: &SimpleCommunicator,
    device: &Device,
    op: O,
    len: usize,
    from: impl Fn(u64) -> T,
) where
    Threads<BLOCK>: Block,
{
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    let data: Vec<T> = (0..len as u64).map(from).collect();
    let expected = format!("{:?}", data.by(op).block::<BLOCK>().run());
    // Equal parts; some ranks with none and one with nearly all; all on the last rank; all on rank 0; and
    // random splits, more of them for short arrays.
    let drawn = |seed: u64, rank: usize| hash(seed << 32 | rank as u64) as usize;
    let draws = if len > 10_000 { 2 } else { 12 };
    for split in 0..4 + draws {
        let weight = |rank: usize| match split {
            0 => 1,
            1 => [5, 0, 1, 1000][rank % 4],
            2 => usize::from(rank + 1 == ranks),
            3 => usize::from(rank == 0),
            seed => drawn(seed, rank) % [2, 10, 1000][drawn(seed, ranks) % 3],
        };
        let sum = |ranks_before| (0..ranks_before).map(weight).sum::<usize>();
        let total = sum(ranks);
        if total == 0 {
            continue;
        }
        let local = &data[len * sum(rank) / total..len * sum(rank + 1) / total];
        let result = if rank % 2 == 0 && !device.is_cpu() {
            let local = device.upload(local).expect("the emulator has memory");
            world.reduce_by::<O, BLOCK>(op, &local)
        } else {
            world.reduce_by::<O, BLOCK>(op, local)
        };
        let result = format!("{result:?}");
        if result != expected {
            println!(
                "{} of {len}, {} of them on rank {rank}: {result}, not {expected}",
                O::NAME,
                local.len()
            );
            world.abort(1);
        }
    }
}
