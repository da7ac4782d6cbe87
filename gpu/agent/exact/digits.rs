//! A block's sum in shared memory.

use super::{block_dim, windows::Float as _};
use crate::op::exact::{Exact, Fixed, Leading};
use crate::segments::unrolled;
use crate::slot;
use core::array::from_fn;
use core::sync::atomic::Ordering;
use cuda_std::atomic::{AtomicU64, SystemAtomicU64};
use cuda_std::shared::Shared;
use cuda_std::{intrinsics, thread, warp};

/// A sum in shared memory: 2 W digits, each worth 2^32 times the one before, and the flags.
///
/// A digit is an integer of 64 bits, in two words of 32, the lower one first. So carries need not be
/// propagated at each addition: an addition changes a digit by less than 2^32, and 2^31 additions fit.
#[derive(Clone, Copy)]
pub(super) struct Digits<const W: usize>(pub(super) Shared<u32>);

impl<const W: usize> Digits<W> {
    const COUNT: u32 = 2 * W as u32;
    /// The index of the flags.
    pub(super) const FLAGS: u32 = 2 * Self::COUNT;

    /// Sets the sum to zero.
    ///
    /// # Safety
    ///
    /// All threads of the block call it, with a barrier before they use it.
    #[inline(always)]
    pub(super) unsafe fn clear<const BLOCK: u32>(self) {
        let mut index = thread::thread_idx_x();
        while index <= Self::FLAGS {
            intrinsics::no_unroll();
            // SAFETY: it is in bounds.
            unsafe { self.0.write(index, 0) };
            index += block_dim::<BLOCK>();
        }
    }

    /// Adds `(index, value, upper)` to digits: to each the 64-bit integer of the words `value` and `upper`,
    /// of which `upper` is the sign. All lower words go first: nobody waits for the upper ones.
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

    /// Adds `value · 2^shift`; the value has fewer than BITS bits. Bits below 2^0 are dropped.
    #[inline(always)]
    pub(super) fn add<const BITS: i32>(self, value: i64, shift: i32) {
        let (value, shift) = match shift {
            0.. => (value, shift as u32),
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

    /// Propagates carries: each digit becomes one of 32 bits, and all are the sum in two's complement.
    ///
    /// The lanes do so for 32 digits at a time. Each adds the upper word of the digit below to its own lower
    /// word. That may carry once more, through any number of digits: a carry-lookahead adder, made of two
    /// votes and an addition.
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together, and nobody else adds to it any more.
    #[inline(always)]
    pub(super) unsafe fn carry_over(self) {
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
                // Digits may be negative. So 2^63 is added to each, and 2^31, its worth there, is taken from
                // the next.
                let digit = digit.wrapping_add(if index == 0 { 1 << 63 } else { (1 << 63) - (1 << 31) });
                let (lower, upper) = (digit as u32, (digit >> 32) as u32);
                let (above, _) = warp::warp_shuffle_up(warp::ALL, upper, 1, 32);
                let sum = u64::from(lower) + u64::from(if lane == 0 { below } else { above });
                // Digits that carry, and digits that would if 1 were added: as bits of two numbers, whose sum
                // carries from bit to bit as the digits do.
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

    /// Calls `each` with the words of the sum as a [`Fixed`], after [`carry_over`](Self::carry_over).
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together.
    #[inline(always)]
    pub(super) unsafe fn each_word(self, each: impl Fn(usize, u32)) {
        let mut index = warp::lane_id();
        while index < Self::COUNT + 2 {
            intrinsics::no_unroll();
            // The flags are two words, the upper one 0, as every digit's upper word is.
            let place = if index <= Self::COUNT { 2 * index } else { 1 };
            // SAFETY: in bounds.
            each(index as usize, unsafe { self.0.read(place) });
            index += warp::WARP_SIZE;
        }
    }

    /// The sign as a digit, the index of the first digit that is not zero, and the index after the last digit
    /// that is not a copy of the sign; after [`carry_over`](Self::carry_over).
    ///
    /// # Safety
    ///
    /// All lanes of a warp call it together, and nobody writes the digits.
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

    /// Whether these words have room for all digits.
    const IS_SHORT: bool = Self::COUNT < Self::FIRST;

    /// Puts the sum into an empty slot, after [`carry_over`](Self::carry_over).
    ///
    /// Only digits that are neither zeros at the lower end nor copies of the sign at the upper end are
    /// stored. The header says which: bits 0 to 7 are the flags, bit 8 is the sign, bits 16 to 23 are the
    /// index of the first stored digit, bits 24 to 31 the number of stored digits.
    ///
    /// # Safety
    ///
    /// All lanes of one warp call it together; nobody else writes the slot or the digits.
    #[inline(always)]
    pub(super) unsafe fn put(self, slot: *mut u64) {
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

    /// Adds the sums of `count` slots, waiting for each, and leaves the slots empty.
    ///
    /// # Safety
    ///
    /// All threads of one block call it; a sum comes to each of the slots.
    #[inline(always)]
    pub(super) unsafe fn take<const BLOCK: u32>(self, slots: *mut u64, count: u32) {
        const BATCH: usize = 4;
        let of_slot = slot::words::<Fixed<W>>();
        // Groups of FIRST threads take BATCH slots each, a word a thread.
        let (group, lane) = (thread::thread_idx_x() / Self::FIRST, thread::thread_idx_x() % Self::FIRST);
        let groups = block_dim::<BLOCK>() / Self::FIRST;
        let is_used = !Self::IS_SHORT || lane <= Self::COUNT;
        let mut first = 0;
        while first < count {
            intrinsics::no_unroll();
            let index = |place: usize| first + group + place as u32 * groups;
            // SAFETY: called for slots and words that exist.
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
                    // The copies of the sign above the stored digits: all ones, which is −1 at the digit
                    // after them.
                    0 if headers[place] >> 8 & 1 != 0 => (start + digits, u32::MAX, u32::MAX),
                    0 => (0, 0, 0),
                    _ => (start + lane - 1, values[place] as u32, 0),
                }
            }));
            unrolled::<BATCH>(|place| {
                if there[place] && lane == 0 && headers[place] & 0xff != 0 {
                    // SAFETY: it is in bounds, and others use atomics as well.
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
    /// The sum that a block has [put](Digits::put) into a slot; `None` while the slot is not full.
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

/// After [`carry_over`](Digits::carry_over), and called by all lanes of a warp together.
impl<const W: usize> Exact for Digits<W> {
    #[inline(always)]
    fn leading(&self) -> Leading {
        // SAFETY: in bounds, and nobody writes it; all lanes are here.
        unsafe {
            let (sign, start, end) = self.extent();
            // The lower digit of the highest word that is not a copy of the sign, and whether a bit below the
            // three words from there on is set.
            let top = end.saturating_sub(1) & !1;
            let sticky = start + 4 < top;
            let digit = |index: u32| if index < Self::COUNT { self.0.read(2 * index) } else { 0 };
            let word = |before: u32| {
                let index = top.wrapping_sub(before);
                let word = u64::from(digit(index)) | u64::from(digit(index.wrapping_add(1))) << 32;
                word ^ (u64::from(sign) << 32 | u64::from(sign))
            };
            let flags = self.0.read(Self::FLAGS).into();
            Leading::of([word(4), word(2), word(0)], 32 * top as i32, sticky, sign != 0, flags)
        }
    }

    #[inline(always)]
    fn subtract(&mut self, value: f64, low: i32) {
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
