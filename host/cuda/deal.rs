//! Items dealt to buckets by their index, where a table has no room for all results.

use super::Gpu;
use super::queue::Queue;
use super::scratch::{Area, area};
use super::tally::parts;
use crate::Error;
use crate::request::MOST_ORDERED;
use gpu_reduce_kernels::deal::{ALIGNED, Arguments, Count, MOVING, Scan, WARPS, sorting_bytes};
use gpu_reduce_kernels::index::{Buckets, TABLE_COST, THREADS};
use gpu_reduce_kernels::kernels::Parameters;
use std::any::TypeId;
use std::ffi::c_void;
use std::ptr::null_mut;

/// Areas of scratch memory for items that are dealt: counts, the buckets' table, the items and their indices,
/// and these after the first of two steps.
pub(super) const AREAS: usize = 6;

/// The areas.
pub(super) type DealScratch = [Vec<Area<u64>>; AREAS];

/// The most buckets to which items are dealt in one step: of more, a tile has too few items for each.
const BUCKETS: u32 = 256;

/// How items are dealt to buckets, and then to blocks.
pub(super) struct Dealing {
    len: u64,
    count: u32,
    /// Bytes of an item.
    bytes: usize,
    /// The logarithm of a bucket's number of indices.
    pub log2: u32,
    /// If items are dealt in two steps, the logarithm of the buckets that are one bucket at first.
    window: Option<u32>,
    /// Blocks that deal, and items of each.
    dealers: u32,
    share: u32,
    /// Blocks that take the dealt items, the items of each, and the tables of all.
    pub blocks: u32,
    pub part: u64,
    pub tables: u32,
    /// Words of each area of scratch memory.
    pub areas: [usize; AREAS],
}

/// Items and their indices; if they have been dealt, by bucket.
#[derive(Clone, Copy)]
pub(super) struct Dealt {
    pub items: *const c_void,
    pub indices: *const u32,
    /// Words of 32 bits of an index.
    pub index_words: u32,
    pub buckets: Buckets,
}

impl Dealing {
    /// How `len` items of `bytes` bytes, with `count` indices, are dealt if a table has `slots` results.
    pub fn new(gpu: &Gpu, len: u64, count: u32, bytes: usize, slots: u32) -> Result<Self, Error> {
        let log2 = slots.ilog2();
        let buckets = ((count - 1) >> log2) + 1;
        if len > MOST_ORDERED as u64 || buckets * 4 > gpu.most_shared {
            return Err(Error::TooManyGroups { count: count as usize });
        }
        let multiprocessors = u64::from(gpu.multiprocessors);
        let places = len as usize + buckets as usize * ALIGNED as usize;
        let (part, blocks) = parts(places as u64 + u64::from(buckets) * TABLE_COST, multiprocessors);
        let bits = u32::BITS - (buckets - 1).leading_zeros();
        let window = (buckets > BUCKETS).then_some(bits / 2);
        let (share, dealers) = parts(len, 2 * multiprocessors);
        let of_first = if window.is_some() { len as usize } else { 0 };
        let words = |places: usize, bytes: usize| (places * bytes).div_ceil(8);
        let areas = [
            words(buckets as usize * dealers as usize, 4),
            2 * buckets as usize,
            words(places, bytes),
            words(places, 4),
            words(of_first, bytes),
            words(of_first, 4),
        ];
        let (share, tables) = (share as u32, blocks + buckets);
        Ok(Self { len, count, bytes, log2, window, dealers, share, blocks, part, tables, areas })
    }
}

impl Queue {
    /// Enqueues what deals items. `moving` is the kernel that moves items of their size. `state` is three
    /// words of zeros or more, of which the first takes the complement of the place of the first wrong index.
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the items and their indices stay, and nothing else writes to
    /// them. The context is entered.
    pub(super) unsafe fn enqueue_deal(
        &mut self,
        gpu: &Gpu,
        dealing: &Dealing,
        moving: TypeId,
        mut input: Dealt,
        state: *mut u64,
    ) -> Result<Dealt, Error> {
        let &Dealing { len, count, bytes, log2, window, dealers: blocks, share: part, ref areas, .. } =
            dealing;
        let (is_capturing, source) = (self.is_capturing, &mut self.scratch.source);
        let mut places = [null_mut::<u64>(); AREAS];
        for (place, (areas, &words)) in places.iter_mut().zip(self.scratch.dealt.iter_mut().zip(areas)) {
            *place = area(areas, is_capturing, gpu, source, words)?;
        }
        let [counts, table, last, last_indices, first, first_indices] = places;
        let of_first = window.map(|window| (window, first, first_indices));
        for (larger, dealt, dealt_indices) in [of_first, Some((0, last, last_indices))].into_iter().flatten()
        {
            let is_last = dealt == last;
            let buckets = Buckets { table, log2: (log2 + larger).into() };
            let mut arguments = Arguments {
                items: input.items.cast::<u8>(),
                indices: input.indices,
                index_words: input.index_words,
                count,
                len,
                blocks,
                part,
                counts: counts.cast(),
                buckets,
                dealt: dealt.cast(),
                dealt_indices: dealt_indices.cast(),
                state,
                sorts: 1,
                mask: u32::MAX,
                aligned: if is_last { ALIGNED } else { 1 },
                kept: if is_last { (1 << log2) - 1 } else { u32::MAX },
                window: window.filter(|_| is_last).unwrap_or(u32::BITS),
            };
            let number = arguments.number();
            let mut shared = sorting_bytes(number, bytes);
            if shared > gpu.most_shared {
                (arguments.sorts, shared) = (0, number * 4);
            }
            let parameters = Parameters::of(&arguments);
            // SAFETY: as the caller vouches; the scratch memory suffices.
            unsafe {
                let counting = TypeId::of::<Count>();
                self.launch_one(gpu, counting, (blocks, THREADS), number * 4, &parameters)?;
                let scanning = (number.div_ceil(WARPS), THREADS);
                self.launch_one(gpu, TypeId::of::<Scan>(), scanning, 0, &parameters)?;
                self.launch_one(gpu, moving, (blocks, MOVING), shared, &parameters)?;
            }
            input = Dealt {
                items: dealt.cast_const().cast(),
                indices: dealt_indices.cast(),
                index_words: 1,
                buckets,
            };
        }
        Ok(input)
    }
}
