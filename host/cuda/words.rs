//! Reductions by index to words on a GPU.

use super::Gpu;
use super::deal::{AREAS, Dealing, Dealt};
use super::pending::Launched;
use super::queue::Queue;
use super::scratch::{Area, area, area_bytes, zeros};
use super::stream::{GpuStream, Workspace};
use super::tally::parts;
use crate::Error;
use crate::request::ToWords;
use cust::sys;
use gpu_reduce_kernels::index::{Buckets, COPIES, FINISHING, THREADS};
use gpu_reduce_kernels::kernels::Parameters;
use gpu_reduce_kernels::words::{Arguments, Finish, Kind, Rule, STATE, Target};
use std::any::TypeId;
use std::ptr::null;

/// Scratch memory of reductions to words, all zeros between launches but for the greatest words.
#[derive(Default)]
pub struct WordsScratch {
    words: Vec<Area<u64>>,
    bits: Vec<Area<u64>>,
    state: Vec<Area<u64>>,
    /// Of the first pass.
    greatest: Vec<Area<u64>>,
}

/// Words of 64 bits of scratch memory, and how items are dealt.
struct Needs {
    words: usize,
    bits: usize,
    greatest: usize,
    dealt: Option<Dealing>,
}

impl Needs {
    fn of(gpu: &Gpu, to: &ToWords) -> Self {
        let mut needs = Self { words: to.count, bits: 0, greatest: 0, dealt: None };
        let mut has_places = false;
        for rule in rules(to) {
            if rule.needs_bits(to.rules.is_long) {
                needs.bits = to.count.div_ceil(64);
            }
            if rule.kind == Kind::Place {
                needs.greatest = to.count;
            }
            has_places |= matches!(rule.kind, Kind::Place | Kind::Packed);
        }
        if !has_places && to.count > slots(gpu) as usize {
            let (len, count) = (to.len as u64, to.count as u32);
            // What is too much to be dealt is combined in global memory.
            needs.dealt = Dealing::new(gpu, len, count, to.rules.item_bytes, slots(gpu)).ok();
        }
        needs
    }
}

/// Returns the words for which a table has room.
fn slots(gpu: &Gpu) -> u32 {
    gpu.most_shared / 8
}

/// The rule of each part of a result.
fn rules(to: &ToWords) -> impl Iterator<Item = Rule> {
    to.rules.parts().iter().map(|rule| rule.for_len(to.rules.is_long, to.len as u64))
}

impl Queue {
    /// Enqueues a reduction by index to words. Returns the words of the device that take the complements of
    /// the place of the first wrong index, and of the first index without a result; or 0.
    ///
    /// # Safety
    ///
    /// Until the stream has been synchronized, the items, the indices and the places of results stay, and
    /// nothing else writes to them. The rules are those of the items and the results. The context is entered.
    unsafe fn enqueue_to_words(&mut self, gpu: &Gpu, to: &ToWords) -> Result<*mut u64, Error> {
        let &ToWords { ref rules, items, indices, index_words, len, count, results, bytes, default } = to;
        let needs = Needs::of(gpu, to);
        let is_capturing = self.is_capturing;
        let (scratch, source, stream) = (&mut self.scratch.words, &mut self.scratch.source, &self.stream);
        let words = zeros(&mut scratch.words, is_capturing, gpu, (source, stream), needs.words)?;
        let bits = zeros(&mut scratch.bits, is_capturing, gpu, (source, stream), needs.bits)?;
        // The kernels that deal have a word more.
        let state = zeros(&mut scratch.state, is_capturing, gpu, (source, stream), STATE + 1)?;
        let greatest = area(&mut scratch.greatest, is_capturing, gpu, source, needs.greatest)?;
        // A word of a table has room for what 2^30 items add.
        let (mut part, mut blocks) =
            parts(len as u64, u64::from(2 * gpu.multiprocessors).max(len as u64 >> 30));
        let slots = slots(gpu) as usize;
        let has_table = count <= slots || needs.dealt.is_some();
        let mut of_table = count;
        let stride = (bytes * rules.parts().len()) as u32;
        // SAFETY: as the caller vouches; the parameters are those of the kernels.
        unsafe {
            self.clear(gpu, state, STATE)?;
            let mut input = Dealt { items, indices, index_words, buckets: Buckets::NONE };
            if let Some(dealing) = &needs.dealt {
                input = self.enqueue_deal(gpu, dealing, rules.moving, input, state)?;
                (part, blocks, of_table) = (dealing.part, dealing.blocks, 1 << dealing.log2);
            }
            let Dealt { items, indices, index_words, buckets } = input;
            for (number, rule) in self::rules(to).enumerate() {
                let copies = if has_table && rule.adds_up() {
                    // No more copies than are worth being cleared.
                    (slots / of_table.max(1)).min(part as usize / of_table.max(1)).clamp(1, COPIES as usize)
                } else {
                    1
                };
                let log2_copies = copies.ilog2();
                let mut arguments = Arguments::<u8> {
                    items: items.cast(),
                    indices,
                    index_words,
                    count: count as u32,
                    len: len as u64,
                    part,
                    words,
                    bits: bits.cast(),
                    state,
                    greatest: null(),
                    has_table: has_table.into(),
                    log2_copies,
                    buckets,
                    rule,
                };
                let shared = if has_table { 8 << log2_copies } else { 0 } * of_table as u32;
                if rule.kind == Kind::Place {
                    self.clear(gpu, greatest, count)?;
                    let first = Arguments { words: greatest, ..arguments };
                    self.launch_one(gpu, rules.offer, (blocks, THREADS), shared, &Parameters::of(&first))?;
                    arguments.greatest = greatest;
                }
                self.launch_one(gpu, rules.offer, (blocks, THREADS), shared, &Parameters::of(&arguments))?;
                let target = Target {
                    words,
                    bits: bits.cast(),
                    state,
                    results: results.cast::<u8>().wrapping_add(number * bytes),
                    default: default.map_or(0, |default| default[number]),
                    count: count as u32,
                    stride,
                    bytes: bytes as u32,
                    has_default: default.is_some().into(),
                    is_long: rules.is_long.into(),
                    rule,
                };
                let blocks = count.div_ceil(FINISHING as usize).min(64 * gpu.multiprocessors as usize) as u32;
                let finish = TypeId::of::<Finish>();
                self.launch_one(gpu, finish, (blocks, FINISHING), 0, &Parameters::of(&target))?;
            }
        }
        Ok(state)
    }
}

impl Gpu {
    /// Reduces by index to words, and waits. Returns the words of [`Queue::enqueue_to_words`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_to_words`], until the call returns; but the context need not be entered.
    pub unsafe fn reduce_to_words(&self, to: &ToWords) -> Result<[u64; STATE], Error> {
        self.with_workspace(|Workspace { queue, .. }| {
            // SAFETY: as the caller vouches; the words are the queue's.
            unsafe {
                let state = queue.enqueue_to_words(self, to)?;
                queue.take_words(self, state)
            }
        })
    }

    /// The bytes of lent memory that [`Queue::enqueue_to_words`] takes.
    pub fn bytes_to_words(&self, to: &ToWords) -> usize {
        let Needs { words, bits, greatest, dealt } = Needs::of(self, to);
        let of_dealt = dealt.map_or([0; AREAS], |dealt| dealt.areas);
        let areas = [words, bits, STATE + 1, greatest].into_iter().chain(of_dealt);
        areas.filter(|&words| words > 0).map(area_bytes::<u64>).sum()
    }
}

impl GpuStream {
    /// Enqueues a reduction by index to words, whose results stay on the device.
    ///
    /// # Safety
    ///
    /// As for [`Queue::enqueue_to_words`]; but the context need not be entered.
    pub unsafe fn enqueue_to_words(&self, to: &ToWords) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        self.enter(|gpu, queue| unsafe { queue.enqueue_to_words(gpu, to).map(drop) })
    }

    /// As [`enqueue_to_words`](Self::enqueue_to_words). The first words tell the host what
    /// [`Gpu::reduce_to_words`] returns.
    ///
    /// # Safety
    ///
    /// As for [`enqueue_to_words`](Self::enqueue_to_words), until the work has ended.
    pub unsafe fn launch_to_words(&self, to: &ToWords) -> Result<Launched, Error> {
        let part = self.launched((STATE, 0), |gpu, queue, words| {
            // SAFETY: as the caller vouches; the pinned words stay until the work has ended.
            let copied = unsafe {
                let state = queue.enqueue_to_words(gpu, to)?;
                sys::cuMemcpyDtoHAsync_v2(words.cast(), state as u64, 8 * STATE, queue.stream.as_inner())
            };
            gpu.done("copying to the host", copied).map(|()| None)
        })?;
        Ok(part.into())
    }
}
