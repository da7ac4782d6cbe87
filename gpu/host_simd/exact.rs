//! The sum of items side by side on a CPU: blocks of them, in SIMD registers.
//!
//! A block is summed by as many windows as did for the one before; where they leave something, by five, then by seven, and where these are too few, and for
//! infinities, NaN and what has no window above it, items are added bit by bit, into words with room for what they carry over.

use super::Source;
use crate::op::exact::{Fixed, NOT_MINUS_ZERO, Sum, Terms};
use core::mem::MaybeUninit;

/// Bits between the largest item and a window's first, and between one window's and the next.
const HEADROOM: i32 = 7;
const STEP: i32 = 45;

/// Words of the longest sum.
const MOST_WORDS: usize = 67;

/// Lanes of a block, rows of them that are summed at a time, and items.
const LANES: usize = 64;
const ROWS: usize = 4;
pub(crate) const BLOCK: usize = 2048;

/// Words of 32 bits that carry nothing over, of up to so many items.
struct Loose {
    words: [i64; 2 * MOST_WORDS + 2],
    flags: u64,
}

impl Sum for Loose {
    #[inline(always)]
    fn add_scaled(&mut self, magnitude: u64, shift: i32, is_negative: bool) {
        let (magnitude, shift) = if shift < 0 {
            (magnitude.unbounded_shr(shift.unsigned_abs()), 0)
        } else {
            (magnitude, shift as u32)
        };
        let value = if is_negative { -(magnitude as i64) } else { magnitude as i64 };
        let (word, bit) = (shift as usize / 32, shift % 32);
        // Less than 2^32, and than 2^52; of a product's two parts, no two of these to a word. 2^10 times it is less than 2^63. (There are words for all shifts.)
        if let Some([low, high]) = self.words.get_mut(word..word + 2) {
            *low += value << bit & 0xffff_ffff;
            *high += value >> (32 - bit);
        }
    }

    #[inline(always)]
    fn raise(&mut self, flags: u64) {
        self.flags |= flags;
    }
}

impl Loose {
    fn add_to<const W: usize>(&self, sum: &mut Fixed<W>) {
        sum.flags |= self.flags;
        for (word, &value) in self.words.iter().enumerate().filter(|&(_, &value)| value != 0) {
            sum.add(value.unsigned_abs(), 32 * word as u32, value < 0);
        }
    }
}

const LOOSE: usize = 1024;

/// By which windows a block is summed: those that did for the one before.
#[derive(Clone, Copy)]
struct Guess {
    /// The first one's exponent.
    high: i32,
    /// How many of them: the least, five, seven; or bit by bit.
    level: u32,
}

/// A block after which fewer windows are tried again.
const RETRY: usize = 16;

/// Adds up items.
#[inline(always)]
pub(crate) fn sum_of<
    T: Terms<S::Item, N, W>,
    S: Source,
    const N: usize,
    const W: usize,
    const WINDOWS: usize,
>(
    items: S,
) -> Fixed<W> {
    let mut sum = Fixed::ZERO;
    let mut guess = Guess { high: i32::MIN, level: 0 };
    let mut start = 0;
    while start < items.len() {
        let end = items.len().min(start + BLOCK);
        // SAFETY: it lies within the items.
        let block = unsafe { items.part(start..end) };
        // What is read a block later.
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
            let terms = |index| T::terms(unsafe { block.get(index) });
            add_block::<T, S, N, W, WINDOWS>(&mut sum, block, BLOCK, terms, prefetch, &mut guess);
        } else {
            let mut terms = [const { MaybeUninit::<[f64; N]>::uninit() }; BLOCK];
            let len = block.len().next_multiple_of(ROWS * LANES);
            for (index, place) in terms[..len].iter_mut().enumerate() {
                // SAFETY: as above.
                let of_item = || T::terms(unsafe { block.get(index) });
                place.write(if index < block.len() { of_item() } else { [0.0; N] });
            }
            // SAFETY: written above.
            let terms = |index: usize| unsafe { terms[index].assume_init() };
            add_block::<T, S, N, W, WINDOWS>(&mut sum, block, len, terms, prefetch, &mut guess);
        }
        start = end;
    }
    sum
}

/// Adds a block's items, of which these are the terms, zeros after the last.
#[inline(always)]
fn add_block<T: Terms<S::Item, N, W>, S: Source, const N: usize, const W: usize, const WINDOWS: usize>(
    sum: &mut Fixed<W>,
    block: S,
    len: usize,
    terms: impl Fn(usize) -> [f64; N] + Copy,
    prefetch: impl Fn(usize) + Copy,
    guess: &mut Guess,
) {
    // SAFETY: whoever calls it has an index below the block's length.
    let item = |index: usize| unsafe { block.get(index) };
    // (Of most items it is known when this is compiled, and there is no such loop.)
    let mut is_exact = true;
    for index in 0..block.len() {
        is_exact &= T::is_exact(item(index), T::terms(item(index)));
    }
    if is_exact && guess.level < 3 {
        let mut most = 0;
        if guess.high == i32::MIN {
            for index in 0..len {
                most = most.max(terms(index)[0].to_bits() as i64 & i64::MAX);
            }
            guess.high = high_for(most);
        }
        let first = guess.level;
        let mut turn = first;
        while turn < 3 {
            let (of_block, is_all) = match turn {
                0 => try_windows::<WINDOWS, W, N>(sum, len, terms, prefetch, guess.high, T::LOW),
                1 => try_windows::<5, W, N>(sum, len, terms, prefetch, guess.high, T::LOW),
                _ => try_windows::<7, W, N>(sum, len, terms, prefetch, guess.high, T::LOW),
            };
            if is_all {
                guess.level = turn;
                return;
            }
            most = of_block;
            if most == 0 {
                // Zeros alone.
                let plus = (0..block.len()).any(|index| T::terms(item(index))[0].to_bits() == 0);
                sum.flags |= if plus { NOT_MINUS_ZERO } else { 0 };
                return;
            }
            if most >> 52 > 1023 + 1000 {
                break;
            }
            // The same number of windows, where the largest item would have them; or more.
            let high = high_for(most);
            turn += u32::from(guess.high == high);
            guess.high = high;
        }
        // What is infinite, or NaN, or so large, is an exception; the rest is not.
        if turn == 3 {
            guess.level = 3;
        }
    }
    for first in (0..block.len()).step_by(LOOSE) {
        let mut loose = Loose { words: [0; 2 * MOST_WORDS + 2], flags: 0 };
        for index in first..block.len().min(first + LOOSE) {
            T::add(&mut loose, item(index));
        }
        loose.add_to(sum);
    }
}

/// The first window's exponent where this is the largest magnitude, as an integer.
#[inline(always)]
fn high_for(most: i64) -> i32 {
    ((most >> 52) as i32 - 1023 + 1 + HEADROOM).min(1023)
}

/// Adds a block's terms if so many windows take all of them. Returns the largest magnitude, as an integer, and whether they have.
#[inline(always)]
fn try_windows<const WINDOWS: usize, const W: usize, const N: usize>(
    sum: &mut Fixed<W>,
    len: usize,
    terms: impl Fn(usize) -> [f64; N] + Copy,
    prefetch: impl Fn(usize),
    high: i32,
    low: i32,
) -> (i64, bool) {
    let moved = Moved::<WINDOWS>::of(len, terms, prefetch, high);
    let is_all = moved.is_all();
    if is_all {
        moved.add_to(sum, low);
    }
    (moved.most, is_all)
}

/// What the items of a block have moved windows by.
struct Moved<const WINDOWS: usize> {
    /// The first window's exponent.
    high: i32,
    by: [i64; WINDOWS],
    /// The largest magnitude, as an integer, and whether items had bits below the windows.
    most: i64,
    has_rest: bool,
}

impl<const WINDOWS: usize> Moved<WINDOWS> {
    /// That of terms, of which there is a multiple of [`ROWS`] · [`LANES`].
    #[inline(always)]
    fn of<const N: usize>(
        len: usize,
        terms: impl Fn(usize) -> [f64; N],
        prefetch: impl Fn(usize),
        high: i32,
    ) -> Self {
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
                        // Of what is so much less, there is nothing in the first window.
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
        let mut by = [0; WINDOWS];
        for window in 0..WINDOWS {
            // In one binade, numbers are as far apart as their bits.
            let apart = |all: &f64| all.to_bits().wrapping_sub(windows[window].to_bits()) as i64;
            by[window] = all[window].iter().map(apart).fold(0, i64::wrapping_add);
        }
        let most = most.into_iter().fold(0, i64::max);
        Self { high, by, most, has_rest: rest.into_iter().fold(0, |all, rest| all | rest) != 0 }
    }

    /// Whether the windows have taken all, and some are no zeros.
    #[inline(always)]
    fn is_all(&self) -> bool {
        !self.has_rest && self.most > 0 && self.most >> 52 <= 1023 + 1000 && high_for(self.most) <= self.high
    }

    #[inline(always)]
    fn add_to<const W: usize>(&self, sum: &mut Fixed<W>, low: i32) {
        sum.flags |= NOT_MINUS_ZERO;
        for (window, &by) in self.by.iter().enumerate() {
            let shift = self.high - STEP * window as i32 - 52 - low;
            sum.add_scaled(by.unsigned_abs(), shift, by < 0);
        }
    }
}
