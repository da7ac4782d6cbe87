//! A thread's part of a block's sum: which windows it tries, and when it gives up and adds bit by bit.
//!
//! Level 0 is few windows, level 1 many, level 2 bit by bit. The first windows are for the largest of the
//! warp's first items. If a tile does not fit, the warp chooses windows for the tile's largest item. If these
//! are the windows that it has, it goes up a level for the next [`RETRY`] tiles. Integers add in any order,
//! so the choice does not change the result.

use super::block_dim;
use super::digits::Digits;
use super::windows::{Float, Spacing, Windows, magnitude};
use crate::input::Input;
use crate::op::exact::{NOT_MINUS_ZERO, Sum, Terms};
use crate::segments::unrolled;
use core::array::from_fn;
use core::marker::PhantomData;
use cuda_std::{intrinsics, thread, warp};

/// A thread's items of a tile.
type Tile<I, const WIDTH: usize, const LOADS: usize> = [[I; WIDTH]; LOADS];

/// Tiles after which few windows are tried again.
const RETRY: u32 = 16;

/// The most windows of level 0, and of level 1.
pub(super) const FEW: usize = 3;
pub(super) const MANY: usize = 9;

/// How a thread sums tiles of TERMS terms into the block's digits. `high`, `level` and `since` are the same
/// for all lanes of a warp.
pub(super) struct ThreadSum<I, const N: usize, const W: usize, const TERMS: usize> {
    digits: Digits<W>,
    /// The first window's exponent.
    high: i32,
    level: u32,
    /// Tiles since the windows or the level were chosen.
    since: u32,
    /// Not zero if an item is not −0.0.
    bits: u32,
    flags: u64,
    items: PhantomData<fn(I)>,
}

impl<I, const N: usize, const W: usize, const TERMS: usize> Sum for ThreadSum<I, N, W, TERMS> {
    #[inline(always)]
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool) {
        let value = magnitude as i64;
        self.digits.add::<64>(if is_negative { -value } else { value }, shift);
    }

    #[inline(always)]
    fn raise(&mut self, flags: u64) {
        self.flags |= flags;
    }
}

impl<I: Terms<N>, const N: usize, const W: usize, const TERMS: usize> ThreadSum<I, N, W, TERMS> {
    #[inline(always)]
    pub(super) fn new(digits: Digits<W>) -> Self {
        let high = Spacing::<I::OnGpu, TERMS>::NONE;
        Self { digits, high, level: 0, since: 0, bits: 0, flags: 0, items: PhantomData }
    }

    /// Adds a chunk of `len` items; clears the digits before if `is_first`. The first `head` of the items precede the first
    /// aligned load. If `may_be_short`, a chunk of one tile at most is loaded at once, wherever it lies.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, with the same chunk.
    #[inline(always)]
    pub unsafe fn add_chunk<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize, const LOADS: usize>(
        mut self,
        chunk: P,
        head: u32,
        len: u32,
        (is_first, may_be_short): (bool, bool),
    ) {
        if len == 0 {
            if is_first {
                // SAFETY: as the caller vouches.
                unsafe { self.digits.clear::<BLOCK>() };
            }
            return;
        }
        let row = block_dim::<BLOCK>() * WIDTH as u32;
        let tile = LOADS as u32 * row;
        let first = thread::thread_idx_x() * WIDTH as u32;
        let mut head = if WIDTH == 1 { 0 } else { (head & (row - 1)).min(len) };
        let is_anywhere = may_be_short && head > 0 && len <= tile;
        if is_anywhere {
            head = 0;
        }
        let mut at = chunk.offset(head as usize);
        let mut left = len - head;
        // SAFETY: the items are in the chunk; all lanes are here, in every turn.
        unsafe {
            loop {
                intrinsics::no_unroll();
                let load = |at: P| -> Tile<I, WIDTH, LOADS> {
                    from_fn(|load| P::items(at.offset((load as u32 * row + first) as usize).load()))
                };
                let mut turns = left >> tile.trailing_zeros();
                if turns == 0 || self.high == Spacing::<I::OnGpu, TERMS>::NONE {
                    // The first tile, the incomplete last one, and then the items before the first aligned
                    // load.
                    let is_head = left == 0;
                    let (from, count) = if is_head { (chunk, head) } else { (at, left.min(tile)) };
                    if count == 0 {
                        break;
                    }
                    let (row, first) = (intrinsics::opaque(row), intrinsics::opaque(first));
                    let items: Tile<I, WIDTH, LOADS> = from_fn(|load| {
                        Self::load_some(from, load as u32 * row + first, count, is_head || is_anywhere)
                    });
                    if self.high == Spacing::<I::OnGpu, TERMS>::NONE && is_first {
                        // While the loads are in flight. All warps are here in the first turn.
                        self.digits.clear::<BLOCK>();
                        thread::sync_threads();
                    }
                    self.choose_windows(&items[0]);
                    let mut moved = [I::OnGpu::UNMOVED; FEW];
                    if self.take(&items, I::OnGpu::FEW, &mut moved).is_some() {
                        self.add_one_by_one::<P, WIDTH>(from, row, first, count, is_head || is_anywhere);
                    }
                    self.add_moved(moved);
                    if is_head {
                        head = 0;
                    } else {
                        at = at.offset(count as usize);
                        left -= count;
                    }
                    continue;
                }
                if self.since >= RETRY {
                    self.level = 0;
                }
                let mut failed = None;
                if self.level == 0 {
                    turns = turns.min(I::OnGpu::FULL);
                    let mut more = turns;
                    let mut moved = [I::OnGpu::UNMOVED; FEW];
                    while more > 0 {
                        intrinsics::no_unroll();
                        failed = self.take(&load(at), I::OnGpu::FEW, &mut moved);
                        if failed.is_some() {
                            break;
                        }
                        at = at.offset(tile as usize);
                        more -= 1;
                    }
                    turns -= more;
                    self.add_moved(moved);
                } else if self.level == 1 {
                    turns = turns.min(RETRY - self.since);
                    let mut more = turns;
                    let mut moved = [I::OnGpu::UNMOVED; MANY];
                    while more > 0 {
                        intrinsics::no_unroll();
                        failed = self.take(&load(at), I::OnGpu::MANY, &mut moved);
                        if failed.is_some() {
                            break;
                        }
                        at = at.offset(tile as usize);
                        more -= 1;
                    }
                    turns -= more;
                    self.add_moved(moved);
                } else {
                    turns = turns.min(RETRY - self.since);
                    self.add_one_by_one::<P, WIDTH>(at, row, first, turns << tile.trailing_zeros(), false);
                    at = at.offset((turns << tile.trailing_zeros()) as usize);
                }
                left -= turns << tile.trailing_zeros();
                self.since += turns;
                if let Some(most) = failed {
                    self.change_windows(most_of_warp(most));
                }
            }
            if self.bits != 0 {
                self.flags |= NOT_MINUS_ZERO;
            }
            if self.flags != 0 {
                self.digits.0.fetch_or(Digits::<W>::FLAGS, self.flags as u32);
            }
        }
    }

    /// Chooses the windows for the largest of some items of the warp.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn choose_windows<const WIDTH: usize>(&mut self, items: &[I; WIDTH]) {
        let mut most = 0;
        // Opaque, so that the compiler does not keep the terms in registers for later.
        unrolled::<WIDTH>(|item| most = most.max(magnitude(opaque(items[item]).terms_on_gpu()[0])));
        // SAFETY: as the caller vouches.
        self.high = Spacing::<I::OnGpu, TERMS>::high_for(unsafe { most_of_warp(most) });
    }

    /// Adds to `moved` how far a tile moves the first `count` windows. If they do not take all items of all
    /// lanes, adds nothing and returns the upper word of the lane's largest magnitude.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    unsafe fn take<const COUNT: usize, const WIDTH: usize, const LOADS: usize>(
        &mut self,
        items: &Tile<I, WIDTH, LOADS>,
        count: usize,
        moved: &mut [<I::OnGpu as Float>::Moved; COUNT],
    ) -> Option<u32> {
        let mut windows = Windows::<I::OnGpu, COUNT, TERMS>::new(self.high);
        unrolled::<LOADS>(|load| {
            unrolled::<WIDTH>(|item| windows.add(items[load][item], count));
        });
        // SAFETY: as the caller vouches.
        if unsafe { !warp::warp_vote_all(warp::ALL, windows.is_all(self.high)) } {
            return Some(windows.most);
        }
        for window in 0..count {
            moved[window] = windows.moved(window, self.high, moved[window]);
        }
        self.bits |= windows.bits;
        None
    }

    /// Loads the items from index `item` on, and [`NOTHING`](Terms::NOTHING) from `count` on. They are
    /// aligned for loads unless `anywhere`.
    ///
    /// # Safety
    ///
    /// There are `count` items at `at`.
    #[inline(always)]
    unsafe fn load_some<P: Input<Item = I>, const WIDTH: usize>(
        at: P,
        item: u32,
        count: u32,
        anywhere: bool,
    ) -> [I; WIDTH] {
        // SAFETY: as the caller vouches.
        unsafe {
            if !anywhere && item + WIDTH as u32 <= count {
                return P::items(at.offset(item as usize).load());
            }
            from_fn(|next| {
                let item = item + next as u32;
                if item < count { at.offset(item as usize).read() } else { I::NOTHING }
            })
        }
    }

    /// Adds the thread's items of `count` bit by bit: of each row of `row` items, WIDTH from `first` on. They
    /// are aligned for loads unless `anywhere`.
    ///
    /// # Safety
    ///
    /// There are `count` items at `at`.
    #[inline(always)]
    unsafe fn add_one_by_one<P: Input<Item = I>, const WIDTH: usize>(
        &mut self,
        at: P,
        row: u32,
        first: u32,
        count: u32,
        anywhere: bool,
    ) {
        let mut item = first;
        while item < count {
            intrinsics::no_unroll();
            // SAFETY: as the caller vouches.
            let mut items: [I; WIDTH] = unsafe { Self::load_some(at, item, count, anywhere) };
            let mut next = 0;
            while next < WIDTH {
                intrinsics::no_unroll();
                self.add_item(items[0]);
                items = from_fn(|index| items[(index + 1) % WIDTH]);
                next += 1;
            }
            item += row;
        }
    }

    /// Adds an item bit by bit.
    #[inline(always)]
    fn add_item(&mut self, item: I) {
        if !item.is_exact(item.terms()) {
            return item.add_to(self);
        }
        for term in item.terms_on_gpu() {
            self.bits |= term.upper_word() ^ 1 << 31;
            match term.integer() {
                Ok((value, place)) if I::OnGpu::DIGITS < 32 => self.digits.add::<32>(value, place - I::LOW),
                Ok((value, place)) => self.digits.add::<64>(value, place - I::LOW),
                Err(flags) => self.flags |= flags,
            }
        }
    }

    /// Chooses other windows, or another level, after a tile did not fit whose largest magnitude in the warp
    /// has this upper word.
    #[inline(always)]
    fn change_windows(&mut self, most: u32) {
        let high = Spacing::<I::OnGpu, TERMS>::high_for(most);
        if I::OnGpu::exponent(most) > 1 - I::OnGpu::LEAST {
            // NaN or an infinity.
            self.level = 2;
        } else if high > self.high || high < self.high && (self.level > 0 || self.since >= RETRY) {
            // Larger items need higher windows; smaller items get lower ones unless windows were changed just
            // now.
            self.high = high;
        } else {
            self.level += 1;
        }
        self.since = 0;
    }

    /// Adds how far the windows of all lanes were moved to the block's sum.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn add_moved<const COUNT: usize>(&self, moved: [<I::OnGpu as Float>::Moved; COUNT]) {
        let lane = warp::lane_id();
        let mut moved: [i64; COUNT] = moved.map(Into::into);
        let mut stride = warp::WARP_SIZE / 2;
        while stride > 0 {
            intrinsics::no_unroll();
            moved = moved.map(|moved| {
                // SAFETY: as the caller vouches.
                let (other, _) = unsafe { warp::warp_shuffle_xor(warp::ALL, moved, stride, 32) };
                moved.wrapping_add(other)
            });
            stride /= 2;
        }
        // Each of the first lanes adds one window's.
        let mut of_lane = 0;
        for (window, &moved) in moved.iter().enumerate() {
            of_lane = if lane == window as u32 { moved } else { of_lane };
        }
        if of_lane != 0 {
            let exponent = Spacing::<I::OnGpu, TERMS>::exponent(self.high, lane as usize);
            self.digits.add::<64>(of_lane, exponent - I::OnGpu::DIGITS + 1 - I::LOW);
        }
    }
}

/// The largest value of a warp's lanes.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
unsafe fn most_of_warp(mut most: u32) -> u32 {
    let mut stride = warp::WARP_SIZE / 2;
    while stride > 0 {
        intrinsics::no_unroll();
        // SAFETY: as the caller vouches.
        let (other, _) = unsafe { warp::warp_shuffle_xor(warp::ALL, most, stride, 32) };
        most = most.max(other);
        stride /= 2;
    }
    most
}

/// The value, hidden from the compiler.
#[inline(always)]
fn opaque<V: Copy>(value: V) -> V {
    let mut value = value;
    let words = size_of::<V>() / 4;
    // SAFETY: the bits are those of a value again.
    unsafe {
        for word in 0..words {
            let place = (&raw mut value).cast::<u32>().add(word);
            place.write_unaligned(intrinsics::opaque(place.read_unaligned()));
        }
        if size_of::<V>() == 2 {
            let place = (&raw mut value).cast::<u16>();
            place.write_unaligned(intrinsics::opaque(place.read_unaligned().into()) as u16);
        }
    }
    value
}
