//! Exact sums on a CPU: blocks of 2,048 items in SIMD registers.
//!
//! A block is summed by windows (see [`op::exact`](crate::op::exact)): each of 64 lanes has its own, of 32
//! items. What the lanes' windows were moved by is added up, and comes to the sum in one addition a window.
//!
//! ```text
//! windows = as many, and as high, as for the block before
//! repeat:
//!     sum the block by these windows
//!     if all items fit and no remainder is left: add what windows were moved by; done
//!     if the first window is not the one for the largest item: make it so
//!     else: take more windows, five, then seven
//! add the block bit by bit, if seven windows are too few, or for NaN, infinities and items above 2^1000
//! ```

use super::Source;
use crate::op::exact::{Fixed, Integer, NOT_MINUS_ZERO, Sum, Terms};
use core::mem::MaybeUninit;

/// A window 1.5 · 2^P takes items below 2^(P − HEADROOM).
const HEADROOM: i32 = 7;
/// The exponent of a window minus that of the next.
const STEP: i32 = 45;

/// The largest biased exponent of items that windows take.
const MOST_EXPONENT: i64 = 1023 + 1000;

/// Words of the longest sum, that of `f64` products.
const MOST_WORDS: usize = 67;

/// Lanes of a block.
const LANES: usize = 64;
/// Items that a lane takes while its windows are in registers.
const ROWS: usize = 4;
/// Items of a block.
const BLOCK: usize = 2048;

/// A sum in carry-save form: digits of 32 bits, each in a word of 64 that holds the carries of [`LOOSE`]
/// items.
struct CarrySave {
    digits: [i64; 2 * MOST_WORDS + 2],
    flags: u64,
}

/// Items between two times that carries are propagated.
const LOOSE: usize = 1024;

impl Sum for CarrySave {
    #[inline(always)]
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool) {
        let (magnitude, shift) = if shift < 0 {
            (magnitude.unbounded_shr(shift.unsigned_abs()), 0)
        } else {
            (magnitude, shift as u32)
        };
        let value = if is_negative { -(magnitude as i64) } else { magnitude as i64 };
        let (digit, bit) = (shift as usize / 32, shift % 32);
        // Less than 2^32 comes to the lower digit, and less than 2^52 to the upper; 2^10 times that is less
        // than 2^63. (The two parts of a product have no digit in common.) There is a digit for every shift.
        if let Some([low, high]) = self.digits.get_mut(digit..digit + 2) {
            *low += value << bit & 0xffff_ffff;
            *high += value >> (32 - bit);
        }
    }

    #[inline(always)]
    fn raise(&mut self, flags: u64) {
        self.flags |= flags;
    }
}

/// By which windows a block is summed: those that did for the block before.
#[derive(Clone, Copy)]
struct Guess {
    /// The first window's exponent.
    high: i32,
    /// Which number of windows: 0 for the fewest, 1 for five, 2 for seven; 3 for bit by bit.
    level: u32,
}

/// Blocks after which the fewest windows are tried again.
const RETRY: usize = 16;

/// The sum of items of N terms; FEW is the number of windows that are tried first.
#[inline(always)]
pub(crate) fn sum_of<S: Source<Item: Terms<N>>, const N: usize, const W: usize, const FEW: usize>(
    items: S,
) -> Fixed<W> {
    let mut sum = Fixed::ZERO;
    let mut guess = Guess { high: i32::MIN, level: 0 };
    let mut start = 0;
    while start < items.len() {
        let end = items.len().min(start + BLOCK);
        // SAFETY: it lies within the items.
        let block = unsafe { items.part(start..end) };
        // The items that are read a block later.
        let prefetch = |first: usize| {
            let first = end + first;
            if first < items.len() {
                items.prefetch(first..first + ROWS * LANES);
            }
        };
        if start % (RETRY * BLOCK) == 0 {
            guess.level = 0;
        }
        if block.len() == BLOCK {
            // SAFETY: it is below the block's length.
            let terms = |index| unsafe { block.get(index) }.terms();
            add_block::<S, N, W, FEW>(&mut sum, block, BLOCK, terms, prefetch, &mut guess);
        } else {
            let mut terms = [const { MaybeUninit::<[f64; N]>::uninit() }; BLOCK];
            let len = block.len().next_multiple_of(ROWS * LANES);
            for (index, place) in terms[..len].iter_mut().enumerate() {
                // SAFETY: as above.
                let of_item = || unsafe { block.get(index) }.terms();
                place.write(if index < block.len() { of_item() } else { [0.0; N] });
            }
            // SAFETY: written above.
            let terms = |index: usize| unsafe { terms[index].assume_init() };
            add_block::<S, N, W, FEW>(&mut sum, block, len, terms, prefetch, &mut guess);
        }
        start = end;
    }
    sum
}

/// Adds a block, whose items have these terms; zeros follow the last item, up to `len`.
#[inline(always)]
fn add_block<S: Source<Item: Terms<N>>, const N: usize, const W: usize, const FEW: usize>(
    sum: &mut Fixed<W>,
    block: S,
    len: usize,
    terms: impl Fn(usize) -> [f64; N] + Copy,
    prefetch: impl Fn(usize) + Copy,
    guess: &mut Guess,
) {
    // SAFETY: called with indices below the block's length.
    let item = |index: usize| unsafe { block.get(index) };
    // For most item types the answer is a constant, and this loop is not compiled.
    let mut is_exact = true;
    for index in 0..block.len() {
        is_exact &= item(index).is_exact(item(index).terms());
    }
    if is_exact && guess.level < 3 {
        let mut most = 0;
        if guess.high == i32::MIN {
            for index in 0..len {
                most = most.max(terms(index)[0].to_bits() as i64 & i64::MAX);
            }
            guess.high = high_for(most);
        }
        let mut level = guess.level;
        while level < 3 {
            let (of_block, is_all) = match level {
                0 => try_windows::<FEW, W, N>(sum, len, terms, prefetch, guess.high, S::Item::LOW),
                1 => try_windows::<5, W, N>(sum, len, terms, prefetch, guess.high, S::Item::LOW),
                _ => try_windows::<7, W, N>(sum, len, terms, prefetch, guess.high, S::Item::LOW),
            };
            if is_all {
                guess.level = level;
                return;
            }
            most = of_block;
            if most == 0 {
                // All items are zeros.
                let plus = (0..block.len()).any(|index| item(index).terms()[0].to_bits() == 0);
                sum.flags |= if plus { NOT_MINUS_ZERO } else { 0 };
                return;
            }
            if most >> 52 > MOST_EXPONENT {
                break;
            }
            // More windows, if the first one was that of the largest item already.
            let high = high_for(most);
            level += u32::from(guess.high == high);
            guess.high = high;
        }
        // Later blocks try windows again after NaN, infinities or items above 2^1000, which are rare.
        if level == 3 {
            guess.level = 3;
        }
    }
    for first in (0..block.len()).step_by(LOOSE) {
        let mut loose = CarrySave { digits: [0; 2 * MOST_WORDS + 2], flags: 0 };
        for index in first..block.len().min(first + LOOSE) {
            item(index).add_to(&mut loose);
        }
        sum.flags |= loose.flags;
        for (digit, &value) in loose.digits.iter().enumerate().filter(|&(_, &value)| value != 0) {
            sum.add(value.unsigned_abs(), 32 * digit as u32, value < 0);
        }
    }
}

/// The first window's exponent if the largest magnitude has these bits.
#[inline(always)]
fn high_for(most: i64) -> i32 {
    ((most >> 52) as i32 - 1023 + 1 + HEADROOM).min(1023)
}

/// Adds a block's terms if WINDOWS windows take all of them; `len` is a multiple of [`ROWS`] · [`LANES`].
/// Returns the bits of the largest magnitude, and whether the terms were added. Zeros alone are not.
#[inline(always)]
fn try_windows<const WINDOWS: usize, const W: usize, const N: usize>(
    sum: &mut Fixed<W>,
    len: usize,
    terms: impl Fn(usize) -> [f64; N] + Copy,
    prefetch: impl Fn(usize),
    high: i32,
    low: i32,
) -> (i64, bool) {
    let high = high.max(STEP * (WINDOWS as i32 - 1) - 1022);
    let windows: [f64; WINDOWS] = core::array::from_fn(|window| {
        f64::from_bits(((1023 + high - STEP * window as i32) as u64) << 52 | 1 << 51)
    });
    let mut all = windows.map(|window| [window; LANES]);
    let mut most = [0i64; LANES];
    let mut rest = [0u64; LANES];
    for first in (0..len).step_by(ROWS * LANES) {
        prefetch(first);
        for lane in 0..LANES {
            let mut held: [f64; WINDOWS] = core::array::from_fn(|window| all[window][lane]);
            let (mut most_of_lane, mut rest_of_lane) = (most[lane], rest[lane]);
            for row in 0..ROWS {
                let terms = terms(first + row * LANES + lane);
                most_of_lane = most_of_lane.max(terms[0].to_bits() as i64 & i64::MAX);
                for (term, mut x) in terms.into_iter().enumerate() {
                    // A second term is too small for the first window.
                    for held in &mut held[term..] {
                        let next = *held + x;
                        x -= next - *held;
                        *held = next;
                    }
                    rest_of_lane |= x.to_bits() << 1;
                }
            }
            for window in 0..WINDOWS {
                all[window][lane] = held[window];
            }
            (most[lane], rest[lane]) = (most_of_lane, rest_of_lane);
        }
    }
    // How far the lanes' windows were moved, in units of the last bit: within a binade, numbers are as far
    // apart as their bits.
    let mut moved = [0; WINDOWS];
    for window in 0..WINDOWS {
        let apart = |all: &f64| all.to_bits().wrapping_sub(windows[window].to_bits()) as i64;
        moved[window] = all[window].iter().map(apart).fold(0, i64::wrapping_add);
    }
    let most = most.into_iter().fold(0, i64::max);
    let has_rest = rest.into_iter().fold(0, |all, rest| all | rest) != 0;
    if has_rest || most == 0 || most >> 52 > MOST_EXPONENT || high_for(most) > high {
        return (most, false);
    }
    sum.flags |= NOT_MINUS_ZERO;
    for (window, &moved) in moved.iter().enumerate() {
        sum.add_scaled(moved.unsigned_abs(), high - STEP * window as i32 - 52 - low, moved < 0);
    }
    (most, true)
}

/// The sum of integers, modulo 2^128.
#[inline(always)]
pub(crate) fn sum_of_integers<S: Source<Item: Integer>>(items: S) -> i128 {
    // SAFETY: called with indices in bounds.
    let value = |index| unsafe { items.get(index) }.value();
    if size_of::<S::Item>() > 8 {
        return (0..items.len()).map(value).fold(0, i128::wrapping_add);
    }
    let mut sum = 0;
    let mut start = 0;
    while start < items.len() {
        let end = items.len().min(start + BLOCK);
        // 64 bits hold a block's sum of lower halves, and of upper ones; they become SIMD.
        let (mut low, mut high) = (0u64, 0i64);
        for index in start..end {
            let item = value(index);
            low += u64::from(item as u32);
            high += (item >> 32) as i64;
        }
        sum += (i128::from(high) << 32) + i128::from(low);
        start = end;
    }
    sum
}
