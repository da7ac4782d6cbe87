//! Runs the same work in several orders of execution.

use crate::{Settings, set_settings, settings};
use std::fmt;

/// Runs `work` without a seed, then under each of the [seeds](Settings::seed) 1 to `count`, and compares what
/// it returns. Afterwards the settings are as before.
///
/// `work` returns what must not depend on the order: what a kernel has computed, or the faults of its
/// launches ([`take_faults`](crate::take_faults)). All threads of a program share the emulator's settings, so
/// no other thread should launch kernels while this runs.
///
/// # Errors
///
/// The seeds whose results differ from the one without a seed.
///
/// # Examples
///
/// ```
/// use cust::launch;
/// use cust::memory::{CopyDestination, DeviceBuffer};
///
/// // Block i of 8 takes the next place and writes i there: in the order of the blocks only if they run one after another.
/// const APPEND: &str = "
///     .version 6.0
///     .target sm_70
///     .address_size 64
///     .visible .entry append(.param .u64 count, .param .u64 places) {
///         .reg .b32 %r<3>;
///         .reg .b64 %rd<5>;
///         ld.param.u64 %rd1, [count];
///         ld.param.u64 %rd2, [places];
///         atom.global.add.u32 %r1, [%rd1], 1;
///         mov.u32 %r2, %ctaid.x;
///         mul.wide.u32 %rd3, %r1, 4;
///         add.s64 %rd4, %rd2, %rd3;
///         st.global.u32 [%rd4], %r2;
///         ret;
///     }";
///
/// emulator::install()?;
/// emulator::set_settings(emulator::Settings { threads: 1, ..emulator::settings() });
/// let _context = cust::quick_init()?;
/// let module = cust::module::Module::from_ptx(APPEND, &[])?;
/// let stream = cust::stream::Stream::new(cust::stream::StreamFlags::NON_BLOCKING, None)?;
/// let append = || -> cust::error::CudaResult<Vec<u32>> {
///     let (count, places) = (DeviceBuffer::from_slice(&[0u32])?, DeviceBuffer::from_slice(&[0u32; 8])?);
///     // SAFETY: the kernel takes a counter, and a place for each of the 8 blocks.
///     unsafe { launch!(module.append<<<8, 1, 0, stream>>>(count.as_device_ptr(), places.as_device_ptr()))? };
///     stream.synchronize()?;
///     places.as_host_vec()
/// };
/// let differ = emulator::compare_seeds(8, append).unwrap_err();
/// assert_eq!(differ.without_seed, Ok(vec![0, 1, 2, 3, 4, 5, 6, 7]));
/// assert!(!differ.seeds.is_empty(), "{differ}");
///
/// // Sorted, they are the same in any order.
/// let sorted = || append().map(|mut places| { places.sort(); places });
/// assert!(emulator::compare_seeds(8, sorted).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compare_seeds<R: PartialEq>(count: u64, mut work: impl FnMut() -> R) -> Result<R, SeedsDiffer<R>> {
    let _before = Restored(settings());
    let mut under = |seed| {
        set_settings(Settings { seed, ..settings() });
        work()
    };
    let without_seed = under(None);
    let mut seeds = Vec::new();
    for seed in 1..=count {
        let result = under(Some(seed));
        if result != without_seed {
            seeds.push((seed, result));
        }
    }
    if seeds.is_empty() { Ok(without_seed) } else { Err(SeedsDiffer { without_seed, seeds }) }
}

/// Settings that come back when this is dropped, also by a panic.
struct Restored(Settings);

impl Drop for Restored {
    fn drop(&mut self) {
        set_settings(self.0.clone());
    }
}

/// The results of [`compare_seeds`], where some differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedsDiffer<R> {
    /// The result without a seed.
    pub without_seed: R,
    /// The seeds whose results differ from it, with these results.
    pub seeds: Vec<(u64, R)>,
}

impl<R: fmt::Debug> fmt::Display for SeedsDiffer<R> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { without_seed, seeds } = self;
        write!(f, "the result without a seed is {without_seed:?}")?;
        seeds.iter().try_for_each(|(seed, result)| write!(f, "; with seed {seed}, {result:?}"))
    }
}

impl<R: fmt::Debug> std::error::Error for SeedsDiffer<R> {}
