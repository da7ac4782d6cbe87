//! The sum of items by a block on a GPU, and of the blocks' sums.
//!
//! - A thread sums the items that it has on their way, a **tile** of four loads, in windows, all lanes of a warp in the same ones. Where they take all items of
//!   all lanes, what they were moved by is added to integers in registers. Where not, there are other windows: by the largest item of the warp, or four instead of
//!   two; and what these do not take is added bit by bit.
//! - A block's sum is in shared memory: **digits** of 32 bits, each with room for 2^31 additions before it has to be carried over, which is done in the end.
//!   Warps add to them by atomics.
//! - Blocks hand their sums over by [slots](crate::slot), and the last one adds them up, digit by digit.

use super::{Fixed, HEADROOM, NOT_MINUS_ZERO, STEP, Sum, Terms};
use crate::fold::block_dim;
use crate::input::{Input, OneByOne};
use crate::reduce::{Arguments, deliver};
use crate::segments::unrolled;
use crate::{Op, slot};
use core::array::from_fn;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::AtomicU64;
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// Loads of a tile.
const LOADS: usize = 4;

/// A thread's part of a tile.
type Tile<I, const WIDTH: usize> = [[I; WIDTH]; LOADS];

/// Windows, at most.
const WINDOWS: usize = 4;

/// Bits that larger items than the first may have more, without other windows.
const SLACK: i32 = 2;

/// Tiles after which fewer windows are tried again.
const RETRY: u32 = 16;

/// Tiles whose sums a thread's integers take before they are emptied: one moves a window by 2^50 of its last bits at most, 2^(P − 2), and a warp's are added up.
const FULL: u32 = 128;

/// The exponent of the least first window: the last one is one of a normal number.
const LEAST: i32 = STEP * (WINDOWS as i32 - 1) - 1022;

/// What the kernel does.
///
/// # Safety
///
/// As for [`reduce`](crate::reduce::reduce).
#[inline(always)]
pub(super) unsafe fn reduce<
    T: Terms<P::Item, N, W>,
    O: Op<P::Item, Accumulator = Fixed<W>>,
    P: Input,
    const BLOCK: u32,
    const WIDTH: usize,
    const N: usize,
    const W: usize,
>(
    arguments: Arguments<P, O, O::Output>,
) {
    let Arguments { input, len, chunk, slots, result, op } = arguments;
    let digits = Digits::<W>(shared_array![u32; 4 * W + 1]);
    let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
    let start = u64::from(block) * chunk;
    let items = (len - start).min(chunk) as u32;
    // SAFETY: all threads of the block are here; the chunk lies in the input; each block has a slot.
    unsafe {
        digits.clear::<BLOCK>();
        thread::sync_threads();
        let at = input.offset(start as usize);
        let sum = OfThread::<T, P::Item, N, W>::new(digits);
        match at.head() {
            Some(head) => sum.add_chunk::<P, BLOCK, WIDTH>(at, head, items),
            None => sum.add_chunk::<OneByOne<P>, BLOCK, WIDTH>(OneByOne(at), 0, items),
        }
        thread::sync_threads();
        let slot = |block: u32| slots.wrapping_add(block as usize * slot::words::<Fixed<W>>());
        if block + 1 < blocks {
            if thread::thread_idx_x() < warp::WARP_SIZE {
                digits.put(slot(block));
            }
            return;
        }
        digits.take::<BLOCK>(slots, blocks - 1);
        thread::sync_threads();
        if thread::thread_idx_x() >= warp::WARP_SIZE {
            return;
        }
        digits.carry_over(|index, digit| digits.0.write(2 * index, digit));
        warp::sync_warp(warp::ALL);
        if warp::lane_id() == 0 {
            deliver::<O, P::Item>(&op, digits.read(), len, result);
        }
    }
}

/// A sum in shared memory: for each of 2 W digits of 32 bits an integer of 64, of two words; and the flags.
#[derive(Clone, Copy)]
struct Digits<const W: usize>(Shared<u32>);

impl<const W: usize> Digits<W> {
    const COUNT: u32 = 2 * W as u32;
    const FLAGS: u32 = 2 * Self::COUNT;

    /// Sets it to zero.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, with a barrier before they use it.
    #[inline(always)]
    unsafe fn clear<const BLOCK: u32>(self) {
        let mut index = thread::thread_idx_x();
        while index <= Self::FLAGS {
            intrinsics::no_unroll();
            // SAFETY: it is in bounds.
            unsafe { self.0.write(index, 0) };
            index += block_dim::<BLOCK>();
        }
    }

    /// Adds `value · 2^(32 index)`, where what is above 32 bits is all `sign`.
    #[inline(always)]
    fn add_digit(self, index: u32, value: u32, sign: u32) {
        if value == 0 || index >= Self::COUNT {
            return;
        }
        // SAFETY: it is in bounds, and all threads add by atomics.
        unsafe {
            let old = self.0.fetch_add(2 * index, value);
            let upper = sign.wrapping_add(u32::from(old.overflowing_add(value).1));
            if upper != 0 {
                self.0.fetch_add(2 * index + 1, upper);
            }
        }
    }

    /// Adds `value · 2^shift`, an integer, of which none of the highest 32 bits of the value's 64 is lost.
    #[inline(always)]
    fn add(self, value: i64, shift: i32) {
        let (value, shift) = match shift {
            0.. => (value, shift as u32),
            // Of an integer there is nothing below.
            _ => (value >> shift.unsigned_abs().min(63), 0),
        };
        let (index, bit) = (shift / 32, shift % 32);
        let low = (value << bit) as u64;
        let high = (value >> 1 >> (63 - bit)) as u32;
        self.add_digit(index, low as u32, 0);
        self.add_digit(index + 1, (low >> 32) as u32, 0);
        self.add_digit(index + 2, high, (high as i32 >> 31) as u32);
    }

    /// Calls `each` with the digits, in two's complement.
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together, and nobody adds to it any more.
    #[inline(always)]
    unsafe fn carry_over(self, each: impl Fn(u32, u32)) {
        let lane = warp::lane_id();
        let (mut below, mut carry, mut first) = (0, 0, 0);
        while first < Self::COUNT {
            intrinsics::no_unroll();
            let index = first + lane;
            let mut digit = 0;
            if index < Self::COUNT {
                // SAFETY: it is in bounds.
                let [lower, upper] = unsafe { [self.0.read(2 * index), self.0.read(2 * index + 1)] };
                digit = u64::from(upper) << 32 | u64::from(lower);
            }
            // So that none is negative, each is 2^63 more, and less by what that is of the next.
            let digit = digit.wrapping_add(if index == 0 { 1 << 63 } else { (1 << 63) - (1 << 31) });
            let (lower, upper) = (digit as u32, (digit >> 32) as u32);
            // SAFETY: as the caller vouches.
            unsafe {
                let (above, _) = warp::warp_shuffle_up(warp::ALL, upper, 1, 32);
                let sum = u64::from(lower) + u64::from(if lane == 0 { below } else { above });
                // What carries over, and what does where something is carried to it, as bits of two numbers, whose sum carries as they do.
                let carries = u64::from(warp::warp_vote_ballot(warp::ALL, sum >> 32 != 0));
                let passes = carries | u64::from(warp::warp_vote_ballot(warp::ALL, sum as u32 == u32::MAX));
                let all = carries + passes + carry;
                let to_lane = (all ^ carries ^ passes) >> lane & 1;
                if index < Self::COUNT {
                    each(index, (sum as u32).wrapping_add(to_lane as u32));
                }
                carry = all >> 32;
                (below, _) = warp::warp_shuffle_idx(warp::ALL, upper, 31, 32);
            }
            first += warp::WARP_SIZE;
        }
    }

    /// Puts the sum into an empty slot.
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together, and nobody adds to it any more; one calls it for the slot.
    #[inline(always)]
    unsafe fn put(self, slot: *mut u64) {
        // SAFETY: the slot has a word for each digit, and two for the flags.
        unsafe {
            let put = |index: u32, word: u32| {
                AtomicU64::from_ptr(slot.add(index as usize)).store(slot::word(&word, 0), Ordering::Relaxed);
            };
            self.carry_over(put);
            let lane = warp::lane_id();
            if lane < 2 {
                put(Self::COUNT + lane, if lane == 0 { self.0.read(Self::FLAGS) } else { 0 });
            }
        }
    }

    /// Adds the sums that come to so many slots, and leaves them empty.
    ///
    /// # Safety
    ///
    /// All threads of one block call it; there are so many slots, to each of which something comes.
    #[inline(always)]
    unsafe fn take<const BLOCK: u32>(self, slots: *mut u64, count: u32) {
        const BATCH: usize = 4;
        let of_slot = slot::words::<Fixed<W>>() as u32;
        let (words, stride) = (count * of_slot, block_dim::<BLOCK>());
        let mut first = thread::thread_idx_x();
        while first < words {
            intrinsics::no_unroll();
            let index = |place: usize| first + place as u32 * stride;
            // SAFETY: called for words that there are.
            let word = |index: u32| unsafe { AtomicU64::from_ptr(slots.add(index as usize)) };
            let mut values =
                from_fn::<_, BATCH, _>(|place| if index(place) < words { slot::EMPTY } else { !slot::EMPTY });
            let mut is_full = false;
            while !is_full {
                values = from_fn(|place| match values[place] {
                    slot::EMPTY => word(index(place)).load(Ordering::Relaxed),
                    value => value,
                });
                is_full = values.iter().fold(true, |is_full, &value| is_full & (value != slot::EMPTY));
            }
            for (place, value) in values.into_iter().enumerate() {
                if index(place) < words {
                    word(index(place)).store(slot::EMPTY, Ordering::Relaxed);
                    let digit = index(place) % of_slot;
                    if digit < Self::COUNT {
                        self.add_digit(digit, value as u32, 0);
                    } else if value as u32 != 0 {
                        // SAFETY: it is in bounds, and others do as well.
                        unsafe { self.0.fetch_or(Self::FLAGS, value as u32) };
                    }
                }
            }
            first += BATCH as u32 * stride;
        }
    }

    /// The sum, of what was [carried over](Self::carry_over).
    ///
    /// # Safety
    ///
    /// Nobody writes it any more.
    #[inline(always)]
    unsafe fn read(self) -> Fixed<W> {
        let mut sum = Fixed::ZERO;
        // SAFETY: in bounds.
        unsafe {
            super::each_word::<W>(|index| {
                let word = |digit: u32| u64::from(self.0.read(2 * digit));
                sum.words[index] = word(2 * index as u32) | word(2 * index as u32 + 1) << 32;
            });
            sum.flags = self.0.read(Self::FLAGS).into();
        }
        sum
    }
}

/// What a thread has to itself of a sum.
struct OfThread<T, I, const N: usize, const W: usize> {
    digits: Digits<W>,
    /// The first window's exponent, the same for all lanes of a warp; and by how many windows: two, four; or bit by bit.
    high: i32,
    level: u32,
    /// What windows were moved by, in so many tiles.
    moved: [i64; WINDOWS],
    tiles: u32,
    /// Bits of items that -0.0 has not.
    bits: u32,
    flags: u64,
    terms: PhantomData<fn(I) -> T>,
}

impl<T, I, const N: usize, const W: usize> Sum for OfThread<T, I, N, W> {
    #[inline(always)]
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool) {
        let value = magnitude as i64;
        self.digits.add(if is_negative { -value } else { value }, shift);
    }

    #[inline(always)]
    fn raise(&mut self, flags: u64) {
        self.flags |= flags;
    }
}

impl<T: Terms<I, N, W>, I: Copy + 'static, const N: usize, const W: usize> OfThread<T, I, N, W> {
    #[inline(always)]
    fn new(digits: Digits<W>) -> Self {
        let terms = PhantomData;
        Self { digits, high: LEAST, level: 0, moved: [0; WINDOWS], tiles: 0, bits: 0, flags: 0, terms }
    }

    /// Adds a chunk of so many items, of which the first `head` precede a boundary of loads.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, with the same chunk.
    #[inline(always)]
    unsafe fn add_chunk<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize>(
        mut self,
        chunk: P,
        head: u32,
        len: u32,
    ) {
        let row = block_dim::<BLOCK>() * WIDTH as u32;
        let tile = LOADS as u32 * row;
        let first = thread::thread_idx_x() * WIDTH as u32;
        let mut head = if WIDTH == 1 { 0 } else { (head & (row - 1)).min(len) };
        let mut at = chunk.offset(head as usize);
        let mut left = len - head;
        // Tiles since the windows were changed.
        let mut since = 0;
        // Items that two windows do not take, or that are at an end. In memory, as loops over them need, so that there are registers for the others.
        let mut stored = [[T::NOTHING; WIDTH]; LOADS];
        // SAFETY: the items are in the chunk; all lanes are here, in every turn.
        unsafe {
            loop {
                intrinsics::no_unroll();
                let mut is_stored = false;
                while self.level == 0 && left >= tile && self.tiles < FULL && !is_stored {
                    intrinsics::no_unroll();
                    let items: Tile<I, WIDTH> =
                        from_fn(|load| at.offset((load as u32 * row + first) as usize).load());
                    at = at.offset(tile as usize);
                    left -= tile;
                    since += 1;
                    if self.high == LEAST {
                        // By some of them; opaque, or what is made of them here takes registers below.
                        let mut most = 0;
                        unrolled::<WIDTH>(|item| {
                            most = most.max(magnitude(T::terms(opaque(items[0][item]))[0]))
                        });
                        self.high = high_for(most_of_warp(most));
                    }
                    let mut windows = Windows::<2>::new(self.high);
                    unrolled::<LOADS>(|load| {
                        unrolled::<WIDTH>(|item| windows.add::<T, I, N, W>(items[load][item]))
                    });
                    is_stored = !self.take(windows);
                    if is_stored {
                        unrolled::<LOADS>(|load| {
                            unrolled::<WIDTH>(|item| stored[load][item] = items[load][item])
                        });
                    }
                }
                if self.tiles == FULL {
                    self.empty();
                }
                if !is_stored {
                    // What precedes the boundary, a tile, or the end.
                    let (is_head, from) = (head > 0, if head > 0 { chunk } else { at });
                    let count = if is_head { head } else { left };
                    if count == 0 {
                        break;
                    }
                    if is_head || self.level > 0 || left < tile {
                        let items: Tile<I, WIDTH> = from_fn(|load| {
                            let item = load as u32 * row + first;
                            if !is_head && item + WIDTH as u32 <= count {
                                return from.offset(item as usize).load();
                            }
                            from_fn(|next| {
                                let item = item + next as u32;
                                if item < count { from.offset(item as usize).read() } else { T::NOTHING }
                            })
                        });
                        stored = items;
                        if is_head {
                            head = 0;
                        } else {
                            at = at.offset(tile as usize);
                            left = left.saturating_sub(tile);
                        }
                        since += 1;
                        is_stored = true;
                    }
                }
                if is_stored {
                    if since >= RETRY {
                        self.level = 0;
                    }
                    self.add_stored(&stored, &mut since);
                }
            }
            self.empty();
            if self.bits != 0 {
                self.flags |= NOT_MINUS_ZERO;
            }
            if self.flags != 0 {
                self.digits.0.fetch_or(Digits::<W>::FLAGS, self.flags as u32);
            }
        }
    }

    /// Adds what windows were moved by, if they took all items of all lanes.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn take<const COUNT: usize>(&mut self, windows: Windows<COUNT>) -> bool {
        // SAFETY: as the caller vouches.
        let is_all = unsafe { warp::warp_vote_all(warp::ALL, windows.is_all(self.high)) };
        if is_all {
            for window in 0..COUNT {
                self.moved[window] = self.moved[window].wrapping_add(windows.moved(window, self.high));
            }
            self.bits |= windows.bits;
            self.tiles += 1;
        }
        is_all
    }

    /// Adds a tile, whatever its items are.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn add_stored<const WIDTH: usize>(&mut self, stored: &Tile<I, WIDTH>, since: &mut u32) {
        // SAFETY: as the caller vouches.
        unsafe {
            while self.level < 2 {
                intrinsics::no_unroll();
                let most;
                if self.level == 0 {
                    let mut windows = Windows::<2>::new(self.high);
                    each_load(stored, |items| {
                        unrolled::<WIDTH>(|item| windows.add::<T, I, N, W>(items[item]))
                    });
                    most = windows.most;
                    if self.take(windows) {
                        return;
                    }
                } else {
                    let mut windows = Windows::<WINDOWS>::new(self.high);
                    each_load(stored, |items| {
                        unrolled::<WIDTH>(|item| windows.add::<T, I, N, W>(items[item]))
                    });
                    most = windows.most;
                    if self.take(windows) {
                        return;
                    }
                }
                self.change_windows(most_of_warp(most), *since);
                *since = 0;
            }
        }
        each_load(stored, |items| {
            let mut item = 0;
            while item < WIDTH {
                intrinsics::no_unroll();
                if let Some(&item) = items.get(item) {
                    T::add(self, item);
                }
                item += 1;
            }
        });
    }

    /// Other windows, where these have not taken all of a tile, of which the warp's largest magnitude has this upper word.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn change_windows(&mut self, most: u32, since: u32) {
        let high = high_for(most);
        if most >= INFINITY {
            self.level = 2;
        } else if high > self.high || high < self.high && (self.level > 0 || since > RETRY) {
            // (Smaller items have windows of their own unless those were changed just now.)
            // SAFETY: as the caller vouches.
            unsafe { self.empty() };
            self.high = high;
        } else {
            self.level += 1;
        }
    }

    /// Adds what the windows were moved by to the block's sum.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn empty(&mut self) {
        let mut stride = warp::WARP_SIZE / 2;
        while stride > 0 {
            intrinsics::no_unroll();
            self.moved = self.moved.map(|moved| {
                // SAFETY: as the caller vouches.
                let (other, _) = unsafe { warp::warp_shuffle_xor(warp::ALL, moved, stride, 32) };
                moved.wrapping_add(other)
            });
            stride /= 2;
        }
        // A lane for each window.
        let lane = warp::lane_id();
        let mut of_lane = 0;
        for (window, &moved) in self.moved.iter().enumerate() {
            of_lane = if lane == window as u32 { moved } else { of_lane };
        }
        if of_lane != 0 {
            self.digits.add(of_lane, self.high - STEP * lane as i32 - 52 - T::LOW);
        }
        self.moved = [0; WINDOWS];
        self.tiles = 0;
    }
}

/// Windows that a thread's items of a tile move.
struct Windows<const COUNT: usize> {
    sums: [f64; COUNT],
    /// Whether they have taken all so far but for what is too large.
    is_all: bool,
    /// The upper word of the largest magnitude, and bits of items that -0.0 has not.
    most: u32,
    bits: u32,
}

impl<const COUNT: usize> Windows<COUNT> {
    #[inline(always)]
    fn window(high: i32, window: usize) -> f64 {
        f64::from_bits(((1023 + high - STEP * window as i32) as u64) << 52 | 1 << 51)
    }

    #[inline(always)]
    fn new(high: i32) -> Self {
        Self { sums: from_fn(|window| Self::window(high, window)), is_all: true, most: 0, bits: 0 }
    }

    #[inline(always)]
    fn add<T: Terms<I, N, W>, I: Copy, const N: usize, const W: usize>(&mut self, item: I) {
        let terms = T::terms(item);
        self.is_all &= T::is_exact(item, terms);
        self.most = self.most.max(magnitude(terms[0]));
        self.bits |= upper_word(terms[0]) ^ 1 << 31;
        for (term, mut rest) in terms.into_iter().enumerate() {
            // Of what is so much less, there is nothing in the first window.
            for sum in &mut self.sums[term..COUNT - 1] {
                let next = *sum + rest;
                rest -= next - *sum;
                *sum = next;
            }
            let sum = &mut self.sums[COUNT - 1];
            let next = *sum + rest;
            self.is_all &= next - *sum == rest;
            *sum = next;
        }
    }

    #[inline(always)]
    fn is_all(&self, high: i32) -> bool {
        self.is_all & (self.most < ((1023 + high - HEADROOM) as u32) << 20)
    }

    /// What one was moved by, in units of its last bit: in one binade, numbers are as far apart as their bits.
    #[inline(always)]
    fn moved(&self, window: usize, high: i32) -> i64 {
        self.sums[window].to_bits().wrapping_sub(Self::window(high, window).to_bits()) as i64
    }
}

/// Calls `each` with a tile's loads, one after another.
#[inline(always)]
fn each_load<I: Copy, const WIDTH: usize>(tile: &Tile<I, WIDTH>, mut each: impl FnMut(&[I; WIDTH])) {
    let mut load = 0;
    let count = intrinsics::opaque(LOADS as u32) as usize;
    while load < count {
        intrinsics::no_unroll();
        if let Some(items) = tile.get(load) {
            each(items);
        }
        load += 1;
    }
}

/// The upper word of infinity.
const INFINITY: u32 = 0x7ff << 20;

/// The first window's exponent where the largest magnitude has this upper word.
#[inline(always)]
fn high_for(most: u32) -> i32 {
    ((most >> 20) as i32 - 1023 + 1 + HEADROOM + SLACK).clamp(LEAST, 1023)
}

/// The largest of a warp's.
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

/// The value, of which the compiler knows no more.
#[inline(always)]
fn opaque<V: Copy>(value: V) -> V {
    let mut value = value;
    let words = size_of::<V>() / 4;
    // SAFETY: any bits are a value that were those of one.
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

/// The sign, the exponent and the first bits of a fraction.
#[inline(always)]
fn upper_word(value: f64) -> u32 {
    (value.to_bits() >> 32) as u32
}

/// As [`upper_word`], without the sign.
#[inline(always)]
fn magnitude(value: f64) -> u32 {
    upper_word(value) & (u32::MAX >> 1)
}
