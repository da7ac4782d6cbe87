//! The sum of items by a block on a GPU, and of the blocks' sums.
//!
//! - A thread sums the items that it has on their way, a **tile** of up to four loads, in windows, all lanes of a warp in the same ones: of `f32` where the items are
//!   no longer than that. Where they take all items of all lanes, what they were moved by is added to integers in registers. Where not, there are other windows: by
//!   the largest item of the warp, or more of them; and what these do not take is added bit by bit.
//! - A block's sum is in shared memory: **digits** of 32 bits, each with room for 2^31 additions before it has to be carried over, which is done in the end.
//!   Warps add to them by atomics.
//! - Blocks hand their sums over by [slots](crate::slot), and the last one adds them up, digit by digit.

use crate::fold::block_dim;
use crate::input::{Input, OneByOne};
use crate::op::exact::{
    Exact, Fixed, INFINITE, Leading, MINUS_INFINITE, NAN, NOT_MINUS_ZERO, OfExactSum, Sum, Terms,
};
use crate::reduce::Arguments;
use crate::segments::unrolled;
use crate::slot;
use core::array::from_fn;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU64, SystemAtomicU64};
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, shared_array, thread, warp};

/// A thread's part of a tile.
type Tile<I, const WIDTH: usize, const LOADS: usize> = [[I; WIDTH]; LOADS];

/// Bits that larger items than the first may have more, without other windows.
const SLACK: i32 = 2;

/// Tiles after which fewer windows are tried again.
const RETRY: u32 = 16;

/// Windows that are tried first, and where they do not do.
const FEW: usize = 3;
const MANY: usize = 9;

/// What windows are.
pub trait Float: Copy + PartialEq {
    /// Bits of a fraction with its first one, and the least exponent of a normal number.
    const DIGITS: i32;
    const LEAST: i32;

    /// Windows that are tried first, and where they do not do: up to [`FEW`] and [`MANY`].
    const FEW: usize;
    const MANY: usize;

    /// Tiles whose sums integers take before they are emptied: one moves a window by half of its last bits' number at most, and 2^31 is where an `i32` ends, 2^63 where
    /// a warp's `i64` do.
    const FULL: u32;

    /// What windows are moved by in several tiles.
    type Moved: Copy + Into<i64>;
    const UNMOVED: Self::Moved;

    /// 1.5 · 2^exponent.
    fn window(exponent: i32) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;

    /// Bits in which they differ; that of their signs may be missing.
    fn differs(self, other: Self) -> u32;

    /// What was moved so far, and what a window is from where it was, in units of its last bit: in one binade, numbers are as far apart as their bits.
    fn moved(self, from: Self, before: Self::Moved) -> Self::Moved;

    /// The sign, the exponent and the first bits of a fraction, which are those of 2^exponent.
    fn upper_word(self) -> u32;
    fn upper_word_of(exponent: i32) -> u32;

    /// The exponent of a number's first bit, by that word.
    fn exponent(upper_word: u32) -> i32;

    /// The number as an integer, and what its last bit is worth, 2 to some power; or the flags of what is no number.
    fn integer(self) -> Result<(i64, i32), u64>;
}

macro_rules! floats {
    ($($type:ident: $bits:ident $signed:ident, $digits:literal digits of $exponents:literal exponents, $few:literal or $many:literal, $full:literal full;)*) => {$(
        impl Float for $type {
            const DIGITS: i32 = $digits;
            const LEAST: i32 = 2 - $exponents / 2;
            const FEW: usize = $few;
            const MANY: usize = $many;
            const FULL: u32 = $full;
            type Moved = $signed;
            const UNMOVED: $signed = 0;

            #[inline(always)]
            fn window(exponent: i32) -> $type {
                $type::from_bits(((exponent - Self::LEAST + 1) as $bits) << ($digits - 1) | 1 << ($digits - 2))
            }

            #[inline(always)]
            fn plus(self, other: $type) -> $type {
                self + other
            }

            #[inline(always)]
            fn minus(self, other: $type) -> $type {
                self - other
            }

            #[inline(always)]
            fn differs(self, other: $type) -> u32 {
                let bits = self.to_bits() ^ other.to_bits();
                (bits as u64 >> 32) as u32 & (u32::MAX >> 1) | bits as u32 & if $bits::BITS == 32 { u32::MAX >> 1 } else { u32::MAX }
            }

            #[inline(always)]
            fn moved(self, from: $type, before: $signed) -> $signed {
                before.wrapping_add(self.to_bits().wrapping_sub(from.to_bits()) as $signed)
            }

            #[inline(always)]
            fn upper_word(self) -> u32 {
                (self.to_bits() >> ($bits::BITS - 32)) as u32
            }

            #[inline(always)]
            fn upper_word_of(exponent: i32) -> u32 {
                ((exponent - Self::LEAST + 1) as u32) << ($digits - 1 + 32 - $bits::BITS)
            }

            #[inline(always)]
            fn exponent(upper_word: u32) -> i32 {
                (upper_word >> ($digits - 1 + 32 - $bits::BITS)) as i32 + Self::LEAST - 1
            }

            #[inline(always)]
            fn integer(self) -> Result<(i64, i32), u64> {
                let bits = self.to_bits();
                let exponent = (bits >> ($digits - 1)) as i32 & ($exponents - 1);
                let fraction = bits & ((1 << ($digits - 1)) - 1);
                let is_negative = bits >> ($bits::BITS - 1) != 0;
                if exponent == $exponents - 1 {
                    return Err(match (fraction, is_negative) {
                        (0, false) => INFINITE,
                        (0, true) => MINUS_INFINITE,
                        _ => NAN,
                    });
                }
                let whole = (fraction | if exponent > 0 { 1 << ($digits - 1) } else { 0 }) as i64;
                Ok((if is_negative { -whole } else { whole }, exponent.max(1) + Self::LEAST - $digits))
            }
        }
    )*};
}

floats! {
    f32: u32 i32, 24 digits of 256 exponents, 3 or 9, 128 full;
    f64: u64 i64, 53 digits of 2048 exponents, 2 or 4, 32 full;
}

/// Windows for tiles of so many terms a thread.
struct Steps<F, const TERMS: usize>(PhantomData<F>);

impl<F: Float, const TERMS: usize> Steps<F, TERMS> {
    /// Bits between the largest term and a window's first: each is less than 2^(P − HEADROOM), and moves the window by no more than that; all by no more than
    /// 2^(P − 1), which is where its binade ends.
    const HEADROOM: i32 = 1 + TERMS.next_power_of_two().ilog2() as i32;

    /// Bits between one window's first and the next: a rest is no more than 2^(P − DIGITS), which is less than 2^(P − STEP − HEADROOM).
    const STEP: i32 = F::DIGITS - 1 - Self::HEADROOM;

    /// That of a first window which is still to be chosen.
    const NONE: i32 = F::LEAST;

    /// The first window's exponent where the largest magnitude has this upper word: below the largest that there is, so that where its binade ends is a number.
    #[inline(always)]
    fn high_for(most: u32) -> i32 {
        (F::exponent(most) + 1 + Self::HEADROOM + SLACK).min(-F::LEAST)
    }

    /// The exponent of a window: no less than that of a normal number, whose last bit is the last that there is.
    #[inline(always)]
    fn exponent(high: i32, window: usize) -> i32 {
        (high - Self::STEP * window as i32).max(F::LEAST)
    }

    /// From where on the upper word of a magnitude is too large.
    #[inline(always)]
    fn limit(high: i32) -> u32 {
        F::upper_word_of(high - Self::HEADROOM)
    }
}

/// What the kernel does, with tiles of so many loads and terms a thread.
///
/// # Safety
///
/// As for [`reduce`](crate::reduce::reduce).
#[inline(always)]
pub(crate) unsafe fn reduce<
    T: Terms<P::Item, N, W>,
    O: OfExactSum<P::Item, Accumulator = Fixed<W>>,
    P: Input,
    const BLOCK: u32,
    const WIDTH: usize,
    const N: usize,
    const W: usize,
    const LOADS: usize,
    const TERMS: usize,
>(
    arguments: Arguments<P, O, O::Output>,
) {
    const { assert!(LOADS * WIDTH * N == TERMS, "terms of a tile") };
    let Arguments { input, chunk, before, len, slots, result, .. } = arguments;
    let digits = Digits::<W>(shared_array![u32; 4 * W + 1]);
    let (block, blocks) = (thread::block_idx_x(), thread::grid_dim_x());
    let start = u64::from(block) * u64::from(chunk);
    let items = (len - start).min(chunk.into()) as u32;
    // SAFETY: all threads of the block are here; the chunk lies in the input; each block has a slot.
    unsafe {
        let at = input.offset(start as usize);
        let sum = OfThread::<T, P::Item, N, W, TERMS>::new(digits);
        match at.head() {
            Some(head) => sum.add_chunk::<P, BLOCK, WIDTH, LOADS>(at, head, items),
            None => sum.add_chunk::<OneByOne<P>, BLOCK, WIDTH, LOADS>(OneByOne(at), 0, items),
        }
        thread::sync_threads();
        let words = slot::words::<Fixed<W>>();
        if block + 1 < blocks || result.is_none() {
            if thread::thread_idx_x() < warp::WARP_SIZE {
                digits.carry_over();
                digits.put(slots.wrapping_add(block as usize * words));
            }
            return;
        }
        if before + block > 0 {
            digits.take::<BLOCK>(slots.sub(before as usize * words), before + block);
            thread::sync_threads();
        }
        if thread::thread_idx_x() >= warp::WARP_SIZE {
            return;
        }
        digits.carry_over();
        match result.place() {
            Ok(place) => {
                let output = O::of_sum(digits, len);
                if warp::lane_id() == 0 {
                    slot::store(place, output);
                }
            }
            Err(slot) => digits.each_word(|index, word| {
                SystemAtomicU64::from_ptr(slot.add(index)).store(slot::word(&word, 0), Ordering::Relaxed);
            }),
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

    /// Adds to some digits at once: to each a value, above whose 32 bits is all `sign`. (The upper halves after all lower ones, for which nobody waits.)
    #[inline(always)]
    fn add_digits<const COUNT: usize>(self, digits: [(u32, u32, u32); COUNT]) {
        // SAFETY: they are in bounds, and all threads add by atomics.
        unsafe {
            let mut uppers = [0; COUNT];
            unrolled::<COUNT>(|place| {
                let (index, value, sign) = digits[place];
                if value != 0 && index < Self::COUNT {
                    let old = self.0.fetch_add(2 * index, value);
                    uppers[place] = sign.wrapping_add(u32::from(old.overflowing_add(value).1));
                }
            });
            unrolled::<COUNT>(|place| {
                if uppers[place] != 0 {
                    self.0.fetch_add(2 * digits[place].0 + 1, uppers[place]);
                }
            });
        }
    }

    /// Adds `value · 2^shift`, an integer; the value has less than so many bits.
    #[inline(always)]
    fn add<const BITS: i32>(self, value: i64, shift: i32) {
        let (value, shift) = match shift {
            0.. => (value, shift as u32),
            // Of an integer there is nothing below.
            _ => (value >> shift.unsigned_abs().min(63), 0),
        };
        let (index, bit) = (shift / 32, shift % 32);
        let low = (value << bit) as u64;
        let upper = (low >> 32) as u32;
        let sign = |upper: u32| (upper as i32 >> 31) as u32;
        if BITS <= 32 {
            return self.add_digits([(index, low as u32, 0), (index + 1, upper, sign(upper))]);
        }
        let high = (value >> 1 >> (63 - bit)) as u32;
        self.add_digits([(index, low as u32, 0), (index + 1, upper, 0), (index + 2, high, sign(high))]);
    }

    /// Makes the digits those of two's complement, and no more.
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together, and nobody else adds to it any more.
    #[inline(always)]
    unsafe fn carry_over(self) {
        let lane = warp::lane_id();
        let (mut below, mut carry, mut first) = (0, 0, 0);
        while first < Self::COUNT {
            intrinsics::no_unroll();
            let index = first + lane;
            // SAFETY: in bounds, and the lane's; all lanes are here.
            unsafe {
                let mut digit = 0;
                if index < Self::COUNT {
                    digit = u64::from(self.0.read(2 * index + 1)) << 32 | u64::from(self.0.read(2 * index));
                }
                // So that none is negative, each is 2^63 more, and less by what that is of the next.
                let digit = digit.wrapping_add(if index == 0 { 1 << 63 } else { (1 << 63) - (1 << 31) });
                let (lower, upper) = (digit as u32, (digit >> 32) as u32);
                let (above, _) = warp::warp_shuffle_up(warp::ALL, upper, 1, 32);
                let sum = u64::from(lower) + u64::from(if lane == 0 { below } else { above });
                // What carries over, and what does where something is carried to it, as bits of two numbers, whose sum carries as they do.
                let carries = u64::from(warp::warp_vote_ballot(warp::ALL, sum >> 32 != 0));
                let passes = carries | u64::from(warp::warp_vote_ballot(warp::ALL, sum as u32 == u32::MAX));
                let all = carries + passes + carry;
                let to_lane = (all ^ carries ^ passes) >> lane & 1;
                if index < Self::COUNT {
                    self.0.write(2 * index, (sum as u32).wrapping_add(to_lane as u32));
                    self.0.write(2 * index + 1, 0);
                }
                carry = all >> 32;
                (below, _) = warp::warp_shuffle_idx(warp::ALL, upper, 31, 32);
            }
            first += warp::WARP_SIZE;
        }
        // SAFETY: all lanes are here.
        unsafe { warp::sync_warp(warp::ALL) };
    }

    /// Calls `each` with the words of a [`Fixed`] that has the sum, which was [carried over](Self::carry_over).
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together.
    #[inline(always)]
    unsafe fn each_word(self, each: impl Fn(usize, u32)) {
        let mut index = warp::lane_id();
        while index < Self::COUNT + 2 {
            intrinsics::no_unroll();
            // The flags have two words, too.
            let place = if index <= Self::COUNT { 2 * index } else { 1 };
            // SAFETY: in bounds; where there is no digit, there is a zero above one.
            each(index as usize, unsafe { self.0.read(place) });
            index += warp::WARP_SIZE;
        }
    }

    /// The digits of a sum that was [carried over](Self::carry_over): the sign of all above the last that is unlike it, and from where on and how many there are.
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together, and nobody writes it.
    #[inline(always)]
    unsafe fn extent(self) -> (u32, u32, u32) {
        let lane = warp::lane_id();
        // SAFETY: in bounds; all lanes are here.
        unsafe {
            let sign = (self.0.read(2 * (Self::COUNT - 1)) as i32 >> 31) as u32;
            let (mut start, mut end, mut first) = (Self::COUNT, 0, 0);
            while first < Self::COUNT {
                intrinsics::no_unroll();
                let index = first + lane;
                let digit = if index < Self::COUNT { self.0.read(2 * index) } else { sign };
                let some = warp::warp_vote_ballot(warp::ALL, index < Self::COUNT && digit != 0);
                let others = warp::warp_vote_ballot(warp::ALL, digit != sign);
                if some != 0 {
                    start = start.min(first + some.trailing_zeros());
                }
                if others != 0 {
                    end = first + 1 + others.ilog2();
                }
                first += warp::WARP_SIZE;
            }
            (sign, start.min(end), end)
        }
    }

    /// Words of a slot that are always written: a header, and digits.
    const FIRST: u32 = 16;

    /// Whether these have room for all digits.
    const IS_SHORT: bool = Self::COUNT < Self::FIRST;

    /// Puts the sum, which was [carried over](Self::carry_over), into an empty slot: a header, which has the flags, the sign, and from where on there are how many
    /// digits; and these.
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together, and one for the slot; nobody writes the digits.
    #[inline(always)]
    unsafe fn put(self, slot: *mut u64) {
        // SAFETY: the slot has two words more than there are digits; all lanes are here.
        unsafe {
            let (sign, start, end) = if Self::IS_SHORT { (0, 0, Self::COUNT) } else { self.extent() };
            let header = self.0.read(Self::FLAGS) | sign & 1 << 8 | start << 16 | (end - start) << 24;
            let last = if Self::IS_SHORT { Self::COUNT } else { (end - start).max(Self::FIRST - 1) };
            let mut index = warp::lane_id();
            while index <= last {
                intrinsics::no_unroll();
                let digit = start + index.wrapping_sub(1);
                let word = match index {
                    0 => header,
                    _ if digit < end => self.0.read(2 * digit),
                    _ => 0,
                };
                let place = SystemAtomicU64::from_ptr(slot.add(index as usize));
                place.store(slot::word(&word, 0), Ordering::Relaxed);
                index += warp::WARP_SIZE;
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
        let of_slot = slot::words::<Fixed<W>>();
        // So many threads take a slot.
        let (group, lane) = (thread::thread_idx_x() / Self::FIRST, thread::thread_idx_x() % Self::FIRST);
        let groups = block_dim::<BLOCK>() / Self::FIRST;
        let is_used = !Self::IS_SHORT || lane <= Self::COUNT;
        let mut first = 0;
        while first < count {
            intrinsics::no_unroll();
            let index = |place: usize| first + group + place as u32 * groups;
            // SAFETY: called for words that there are.
            let word = |place: usize, word: u32| unsafe {
                AtomicU64::from_ptr(slots.add(index(place) as usize * of_slot + word as usize))
            };
            let mut values = from_fn::<_, BATCH, _>(|place| {
                if is_used && index(place) < count { slot::EMPTY } else { !slot::EMPTY }
            });
            let mut is_full = false;
            while !is_full {
                values = from_fn(|place| match values[place] {
                    slot::EMPTY => word(place, lane).load(Ordering::Relaxed),
                    value => value,
                });
                is_full = values.iter().fold(true, |is_full, &value| is_full & (value != slot::EMPTY));
            }
            let there: [bool; BATCH] = from_fn(|place| is_used && index(place) < count);
            unrolled::<BATCH>(|place| {
                if there[place] {
                    word(place, lane).store(slot::EMPTY, Ordering::Relaxed);
                }
            });
            // SAFETY: all lanes of the warp are here, in every turn.
            let headers = values
                .map(|value| unsafe { warp::warp_shuffle_idx(warp::ALL, value as u32, 0, Self::FIRST).0 });
            self.add_digits::<BATCH>(from_fn(|place| {
                let (start, digits) = (headers[place] >> 16 & 0xff, headers[place] >> 24);
                match lane {
                    _ if !there[place] => (0, 0, 0),
                    // What is above the digits.
                    0 if headers[place] >> 8 & 1 != 0 => (start + digits, u32::MAX, u32::MAX),
                    0 => (0, 0, 0),
                    _ => (start + lane - 1, values[place] as u32, 0),
                }
            }));
            unrolled::<BATCH>(|place| {
                if there[place] && lane == 0 && headers[place] & 0xff != 0 {
                    // SAFETY: it is in bounds, and others do as well.
                    unsafe { self.0.fetch_or(Self::FLAGS, headers[place] & 0xff) };
                }
                let (start, digits) = (headers[place] >> 16 & 0xff, headers[place] >> 24);
                let mut more = lane + Self::FIRST;
                while !Self::IS_SHORT && there[place] && more <= digits {
                    intrinsics::no_unroll();
                    let word = word(place, more);
                    let mut value = slot::EMPTY;
                    while value == slot::EMPTY {
                        value = word.load(Ordering::Relaxed);
                    }
                    word.store(slot::EMPTY, Ordering::Relaxed);
                    self.add_digits([(start + more - 1, value as u32, 0)]);
                    more += Self::FIRST;
                }
            });
            first += BATCH as u32 * groups;
        }
    }
}

impl<const W: usize> Fixed<W> {
    /// The sum that was [put](Digits::put) into a slot; none while that is not full.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn of_slot(word: impl Fn(usize) -> u64) -> Option<Self> {
        let header = word(0);
        let [flags, sign, start, count] = (header as u32).to_le_bytes().map(usize::from);
        let written = if Digits::<W>::IS_SHORT { count } else { count.max(Digits::<W>::FIRST as usize - 1) };
        if (0..=written).any(|index| word(index) == slot::EMPTY) {
            return None;
        }
        let digit = |index: usize| match index {
            _ if index < start => 0,
            _ if index < start + count => word(1 + index - start) as u32,
            _ => (sign as u32 & 1).wrapping_neg(),
        };
        let words = from_fn(|index| u64::from(digit(2 * index)) | u64::from(digit(2 * index + 1)) << 32);
        Some(Self { words, flags: flags as u64 })
    }
}

/// That of digits which were [carried over](Digits::carry_over), for all lanes of a warp together.
impl<const W: usize> Exact for Digits<W> {
    #[inline(always)]
    fn leading(&self) -> Leading {
        // SAFETY: in bounds, and nobody writes it; all lanes are here.
        unsafe {
            let (sign, start, end) = self.extent();
            // The first digit of the word that has the first one which is not the sign; and whether what is before these is zero.
            let top = end.saturating_sub(1) & !1;
            let below = start + 4 < top;
            let digit = |index: u32| if index < Self::COUNT { self.0.read(2 * index) } else { 0 };
            let word = |before: u32| {
                let index = top.wrapping_sub(before);
                let word = u64::from(digit(index)) | u64::from(digit(index.wrapping_add(1))) << 32;
                word ^ (u64::from(sign) << 32 | u64::from(sign))
            };
            let flags = self.0.read(Self::FLAGS).into();
            Leading::of([word(4), word(2), word(0)], 32 * top as i32, below, sign != 0, flags)
        }
    }

    #[inline(always)]
    fn take_away(&mut self, value: f64, low: i32) {
        // SAFETY: all lanes are here.
        unsafe {
            warp::sync_warp(warp::ALL);
            if let (0, Ok((value, place))) = (warp::lane_id(), value.integer()) {
                self.add::<64>(-value, place - low);
            }
            warp::sync_warp(warp::ALL);
            self.carry_over();
        }
    }

    #[inline(always)]
    fn lowest(&self) -> i128 {
        // SAFETY: in bounds, and nobody writes it.
        let digit = |index: u32| i128::from(unsafe { self.0.read(2 * index) });
        digit(0) | digit(1) << 32 | digit(2) << 64 | digit(3) << 96
    }
}

/// What a thread has to itself of a sum, of which it adds so many terms at a time.
struct OfThread<T, I, const N: usize, const W: usize, const TERMS: usize> {
    digits: Digits<W>,
    /// The first window's exponent, the same for all lanes of a warp; and by how many windows: few, many; or bit by bit.
    high: i32,
    level: u32,
    /// Tiles since these were chosen.
    since: u32,
    /// Bits of items that -0.0 has not.
    bits: u32,
    flags: u64,
    terms: PhantomData<fn(I) -> T>,
}

impl<T, I, const N: usize, const W: usize, const TERMS: usize> Sum for OfThread<T, I, N, W, TERMS> {
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

impl<T: Terms<I, N, W>, I: Copy + 'static, const N: usize, const W: usize, const TERMS: usize>
    OfThread<T, I, N, W, TERMS>
{
    #[inline(always)]
    fn new(digits: Digits<W>) -> Self {
        let high = Steps::<T::OnGpu, TERMS>::NONE;
        Self { digits, high, level: 0, since: 0, bits: 0, flags: 0, terms: PhantomData }
    }

    /// Adds a chunk of so many items, of which the first `head` precede a boundary of loads, to digits that it clears.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, with the same chunk.
    #[inline(always)]
    unsafe fn add_chunk<P: Input<Item = I>, const BLOCK: u32, const WIDTH: usize, const LOADS: usize>(
        mut self,
        chunk: P,
        head: u32,
        len: u32,
    ) {
        if len == 0 {
            // SAFETY: as the caller vouches.
            return unsafe { self.digits.clear::<BLOCK>() };
        }
        let row = block_dim::<BLOCK>() * WIDTH as u32;
        let tile = LOADS as u32 * row;
        let first = thread::thread_idx_x() * WIDTH as u32;
        let mut head = if WIDTH == 1 { 0 } else { (head & (row - 1)).min(len) };
        let mut at = chunk.offset(head as usize);
        let mut left = len - head;
        // SAFETY: the items are in the chunk; all lanes are here, in every turn.
        unsafe {
            loop {
                intrinsics::no_unroll();
                let load = |at: P| -> Tile<I, WIDTH, LOADS> {
                    from_fn(|load| at.offset((load as u32 * row + first) as usize).load())
                };
                let mut turns = left >> tile.trailing_zeros();
                if turns == 0 || self.high == Steps::<T::OnGpu, TERMS>::NONE {
                    // The first tile, the end, or what precedes the boundary.
                    let is_head = left == 0;
                    let (from, count) = if is_head { (chunk, head) } else { (at, left.min(tile)) };
                    if count == 0 {
                        break;
                    }
                    let (row, first) = (intrinsics::opaque(row), intrinsics::opaque(first));
                    let items: Tile<I, WIDTH, LOADS> =
                        from_fn(|load| Self::load_some(from, load as u32 * row + first, count, is_head));
                    if self.high == Steps::<T::OnGpu, TERMS>::NONE {
                        // While these are on their way; all warps are here in the first turn.
                        self.digits.clear::<BLOCK>();
                        thread::sync_threads();
                    }
                    self.choose_windows(&items[0]);
                    let mut moved = [T::OnGpu::UNMOVED; FEW];
                    if self.take(&items, T::OnGpu::FEW, &mut moved).is_some() {
                        self.add_one_by_one::<P, WIDTH>(from, row, first, count, is_head);
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
                    turns = turns.min(T::OnGpu::FULL);
                    let mut more = turns;
                    let mut moved = [T::OnGpu::UNMOVED; FEW];
                    while more > 0 {
                        intrinsics::no_unroll();
                        failed = self.take(&load(at), T::OnGpu::FEW, &mut moved);
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
                    let mut moved = [T::OnGpu::UNMOVED; MANY];
                    while more > 0 {
                        intrinsics::no_unroll();
                        failed = self.take(&load(at), T::OnGpu::MANY, &mut moved);
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

    /// The first windows, by some of the items.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn choose_windows<const WIDTH: usize>(&mut self, items: &[I; WIDTH]) {
        let mut most = 0;
        // Opaque, or what is made of them here takes registers below.
        unrolled::<WIDTH>(|item| most = most.max(magnitude(T::terms_on_gpu(opaque(items[item]))[0])));
        // SAFETY: as the caller vouches.
        self.high = Steps::<T::OnGpu, TERMS>::high_for(unsafe { most_of_warp(most) });
    }

    /// Adds what a tile moves the first `count` windows by, if they take all items of all lanes; if not, it returns the upper word of the lane's largest magnitude.
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
        moved: &mut [<T::OnGpu as Float>::Moved; COUNT],
    ) -> Option<u32> {
        let mut windows = Windows::<T::OnGpu, COUNT, TERMS>::new(self.high);
        unrolled::<LOADS>(|load| {
            unrolled::<WIDTH>(|item| windows.add::<T, I, N, W>(items[load][item], count));
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

    /// The items of a load, of which there are `count` in all; which lie anywhere, or at boundaries of loads.
    ///
    /// # Safety
    ///
    /// There are so many.
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
                return at.offset(item as usize).load();
            }
            from_fn(|next| {
                let item = item + next as u32;
                if item < count { at.offset(item as usize).read() } else { T::NOTHING }
            })
        }
    }

    /// Adds the thread's items of so many bit by bit: of each row, those from `first` on.
    ///
    /// # Safety
    ///
    /// There are so many.
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
        if !T::is_exact(item, T::terms(item)) {
            return T::add(self, item);
        }
        for term in T::terms_on_gpu(item) {
            self.bits |= term.upper_word() ^ 1 << 31;
            match term.integer() {
                Ok((value, place)) if T::OnGpu::DIGITS < 32 => self.digits.add::<32>(value, place - T::LOW),
                Ok((value, place)) => self.digits.add::<64>(value, place - T::LOW),
                Err(flags) => self.flags |= flags,
            }
        }
    }

    /// Other windows, where these have not taken all of a tile, of which the warp's largest magnitude has this upper word.
    #[inline(always)]
    fn change_windows(&mut self, most: u32) {
        let high = Steps::<T::OnGpu, TERMS>::high_for(most);
        if T::OnGpu::exponent(most) > 1 - T::OnGpu::LEAST {
            self.level = 2;
        } else if high > self.high || high < self.high && (self.level > 0 || self.since >= RETRY) {
            // (Smaller items have windows of their own unless those were changed just now.)
            self.high = high;
        } else {
            self.level += 1;
        }
        self.since = 0;
    }

    /// Adds what windows were moved by to the block's sum.
    ///
    /// # Safety
    ///
    /// All lanes of the warp call it together.
    #[inline(always)]
    unsafe fn add_moved<const COUNT: usize>(&self, moved: [<T::OnGpu as Float>::Moved; COUNT]) {
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
        // A lane for each window.
        let mut of_lane = 0;
        for (window, &moved) in moved.iter().enumerate() {
            of_lane = if lane == window as u32 { moved } else { of_lane };
        }
        if of_lane != 0 {
            let exponent = Steps::<T::OnGpu, TERMS>::exponent(self.high, lane as usize);
            self.digits.add::<64>(of_lane, exponent - T::OnGpu::DIGITS + 1 - T::LOW);
        }
    }
}

/// Windows that a thread's items of a tile move.
struct Windows<F, const COUNT: usize, const TERMS: usize> {
    sums: [F; COUNT],
    /// Bits that are left of items.
    rest: u32,
    /// Whether terms are all of their items.
    is_exact: bool,
    /// The upper word of the largest magnitude, and bits of items that -0.0 has not.
    most: u32,
    bits: u32,
}

impl<F: Float, const COUNT: usize, const TERMS: usize> Windows<F, COUNT, TERMS> {
    #[inline(always)]
    fn window(high: i32, window: usize) -> F {
        F::window(Steps::<F, TERMS>::exponent(high, window))
    }

    #[inline(always)]
    fn new(high: i32) -> Self {
        Self { sums: from_fn(|window| Self::window(high, window)), rest: 0, is_exact: true, most: 0, bits: 0 }
    }

    /// Adds an item by the first `count`.
    #[inline(always)]
    fn add<T: Terms<I, N, W, OnGpu = F>, I: Copy, const N: usize, const W: usize>(
        &mut self,
        item: I,
        count: usize,
    ) {
        if N > 1 {
            self.is_exact &= T::is_exact(item, T::terms(item));
        }
        let terms = T::terms_on_gpu(item);
        self.most = self.most.max(magnitude(terms[0]));
        self.bits |= terms[0].upper_word() ^ 1 << 31;
        for (term, mut rest) in terms.into_iter().enumerate() {
            // Of what is so much less, there is nothing in the first window.
            for window in term..count - 1 {
                let next = self.sums[window].plus(rest);
                rest = rest.minus(next.minus(self.sums[window]));
                self.sums[window] = next;
            }
            let last = self.sums[count - 1];
            let next = last.plus(rest);
            self.rest |= next.minus(last).differs(rest);
            self.sums[count - 1] = next;
        }
    }

    /// Whether they have taken all.
    #[inline(always)]
    fn is_all(&self, high: i32) -> bool {
        self.is_exact & (self.rest == 0) & (self.most < Steps::<F, TERMS>::limit(high))
    }

    /// What one was moved by, and before.
    #[inline(always)]
    fn moved(&self, window: usize, high: i32, before: F::Moved) -> F::Moved {
        self.sums[window].moved(Self::window(high, window), before)
    }
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

/// The upper word without the sign.
#[inline(always)]
fn magnitude(value: impl Float) -> u32 {
    value.upper_word() & (u32::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::exact::Alone;
    use core::fmt::Debug;

    /// The most items of the most that they may be, of one sign, between two emptyings: no window leaves its binade, and no integer its range.
    fn check<T: Float + Debug, const COUNT: usize, const W: usize, const TERMS: usize>(
        most: impl Fn(i32) -> T,
        sign: i64,
    ) where
        Alone: Terms<T, 1, W, OnGpu = T>,
    {
        for high in [T::LEAST + 20, -3, 0, 40, -T::LEAST] {
            // The largest magnitude below the limit.
            let exponent = high - Steps::<T, TERMS>::HEADROOM;
            let item = most(exponent);
            assert!(
                magnitude(item) < Steps::<T, TERMS>::limit(high)
                    && magnitude(item) > Steps::<T, TERMS>::limit(high - 1)
            );
            let mut moved = [T::UNMOVED; COUNT];
            for _ in 0..T::FULL {
                let mut windows = Windows::<T, COUNT, TERMS>::new(high);
                for _ in 0..TERMS {
                    windows.add::<Alone, T, 1, W>(item, COUNT);
                }
                assert!(windows.is_all(high), "{item:?}");
                for (window, moved) in moved.iter_mut().enumerate() {
                    let exponent = Steps::<T, TERMS>::exponent(high, window);
                    // Or where it ends, by the last item.
                    let sum = windows.sums[window].upper_word();
                    let is_end = sum == T::upper_word_of(exponent + 1);
                    assert!(T::exponent(sum) == exponent || is_end, "{item:?} in window {window}");
                    *moved = windows.moved(window, high, *moved);
                }
            }
            // In units of an item's last bit; the windows' are no longer.
            let (value, place) = item.integer().unwrap();
            let mut sum = 0i128;
            for (window, moved) in moved.into_iter().enumerate() {
                let last = Steps::<T, TERMS>::exponent(high, window) - T::DIGITS + 1;
                let of_warp: i64 =
                    (0..32).fold(0i64, |all, _| all.checked_add(moved.into()).expect("a warp's integers"));
                let of_warp = i128::from(of_warp);
                sum += if last >= place {
                    of_warp << (last - place)
                } else {
                    of_warp.checked_shr((place - last) as u32).unwrap_or(0)
                };
            }
            assert_eq!(value.signum(), sign);
            assert_eq!(sum, i128::from(value) * 32 * i128::from(T::FULL) * TERMS as i128, "{item:?}");
        }
    }

    #[test]
    fn the_most_additions_between_two_emptyings() {
        let single = |exponent: i32| f32::from_bits((((exponent + 127) as u32) << 23) - 1);
        check::<f32, { <f32 as Float>::FEW }, 6, 16>(single, 1);
        check::<f32, { <f32 as Float>::MANY }, 6, 16>(|exponent| -single(exponent), -1);
        let double = |exponent: i32| f64::from_bits((((exponent + 1023) as u64) << 52) - 1);
        check::<f64, { <f64 as Float>::FEW }, 34, 8>(double, 1);
        check::<f64, { <f64 as Float>::MANY }, 34, 8>(|exponent| -double(exponent), -1);
        // Of a product's terms there are as many again.
        check::<f64, { <f64 as Float>::FEW }, 34, 16>(double, 1);
    }
}
