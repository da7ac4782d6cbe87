use crate::Element;
use crate::element::Key;
use crate::kernels::{self, arguments};
use cuda_std::shared::Shared;
use cuda_std::{shared_array, thread};
use num_traits::Bounded;

/// Threads a block, which is also the number of lists that a block merges.
pub const MERGE_BLOCK: u32 = 32;

/// The rank of a list with no elements left.
const NONE: u32 = u32::MAX;

/// Merges sorted lists by repeated min reduction: the least of the lists' heads is the next element.
///
/// ```text
/// block b merges lists b · BLOCK .., a thread a list
/// repeat:
///     heads[t] = key of the first element of list t that is not taken; ranks[t] = t, or NONE if all are
///     barrier
///     for half in half of the block's size, a quarter, … 1:
///         if t < half and (heads[t + half], ranks[t + half]) is less: it replaces element t
///         barrier
///     if ranks[0] is NONE: end
///     thread ranks[0] stores its list's head and goes on to the next
///     barrier
/// the blocks' lists are the next launch's, until one is left
/// ```
///
/// - From 004, `merge_array5`. A block merges 32 lists: it is one warp, so that no barrier waits for another
///   warp, and 1,024 lists take two launches.
/// - Wrong with it: it is serial in the output. A block stores one element at a time, with log2 BLOCK + 2
///   barriers for each.
/// - Not copied: 004 marks an empty list by the value 0xFFFFFFFF, which an element may have: the value would
///   be right, but not the origin that it carries. Here an empty list has no rank. 004's lists all have one
///   length and are interleaved in memory; here each has its own length, one after another. 004's barrier
///   stands outside the halving loop.
///
/// The fields are the arguments of a launch, the kernel's parameters in this order. A launch merges groups of
/// `width` lists, each merged before, into groups of `width` · BLOCK. The lists lie one after another, and so
/// do the groups, at the same addresses.
#[derive(Clone, Copy, Debug)]
pub struct Merge<T> {
    /// All elements.
    pub input: *const T,
    /// The number of each element's list; null in the first launch, where a group is a list.
    pub origins: *const u32,
    /// The start of each list, and the end of the last.
    pub bounds: *const u64,
    /// The number of lists.
    pub lists: u64,
    /// Lists in a group of the input.
    pub width: u64,
    /// Takes the elements.
    pub output: *mut T,
    /// Takes the numbers of their lists.
    pub origins_out: *mut u32,
}

impl<T: Element> kernels::Kernel for Merge<T> {
    type Arguments = Self;
}

arguments! { [T: Element] Merge<T>: input origins bounds lists width output origins_out }

impl<T: Element> Merge<T> {
    /// The kernel's name without the type.
    pub const NAME: &'static str = "merge";

    /// Runs the kernel.
    ///
    /// # Safety
    ///
    /// The launch has BLOCK threads a block, and a block for every `width` · BLOCK lists. The pointers are
    /// valid as the fields say, and nothing else accesses what they point to meanwhile.
    #[inline(always)]
    pub unsafe fn run<const BLOCK: u32>(self) {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let heads = shared_array![T::Key; BLOCK as usize];
        let ranks = shared_array![u32; BLOCK as usize];
        let first = u64::from(thread::block_idx_x()) * u64::from(threads);
        let group = first + u64::from(thread);
        // SAFETY: every access is in bounds, and a barrier stands between accesses to an element by different
        // threads.
        unsafe {
            let (mut next, end) = (self.bound(group), self.bound(group + 1));
            let mut place = self.bound(first);
            loop {
                let mut head = None;
                if next < end {
                    let element = self.input.add(next as usize).read();
                    heads.write(thread, element.key(T::Key::min_value()));
                    head = Some(element);
                }
                ranks.write(thread, if head.is_some() { thread } else { NONE });
                thread::sync_threads();
                let mut half = threads / 2;
                while half > 0 {
                    if thread < half {
                        keep_less(heads, ranks, thread, thread + half);
                    }
                    thread::sync_threads();
                    half /= 2;
                }
                let least = ranks.read(0);
                if least == NONE {
                    return;
                }
                if let Some(element) = head
                    && least == thread
                {
                    self.output.add(place as usize).write(element);
                    let origin = if self.origins.is_null() {
                        group as u32
                    } else {
                        self.origins.add(next as usize).read()
                    };
                    self.origins_out.add(place as usize).write(origin);
                    next += 1;
                }
                place += 1;
                thread::sync_threads();
            }
        }
    }

    /// Returns the start of group `group` of the input, or the end of the last.
    ///
    /// # Safety
    ///
    /// The bounds are valid as the field says.
    #[inline(always)]
    unsafe fn bound(self, group: u64) -> u64 {
        // SAFETY: in bounds.
        unsafe { self.bounds.add((group * self.width).min(self.lists) as usize).read() }
    }
}

/// Moves the head and rank at `from` to `into` if they are less, or if `into` has none.
///
/// # Safety
///
/// Both are in bounds and written. No other thread writes either, or reads `into`, without a barrier between.
#[inline(always)]
unsafe fn keep_less<K: Key>(heads: Shared<K>, ranks: Shared<u32>, into: u32, from: u32) {
    // SAFETY: as the caller promises; the head of a list with a rank is written.
    unsafe {
        let (rank, own) = (ranks.read(from), ranks.read(into));
        if rank != NONE && (own == NONE || (heads.read(from), rank) < (heads.read(into), own)) {
            heads.write(into, heads.read(from));
            ranks.write(into, rank);
        }
    }
}
