//! The kernels of variances by index: one squares the distances of items from the means of their indices, and one
//! makes variances of the sums of these. The kernels of sums by index find means and sums ([`index`](super::index)).

use super::indices::each_item;
use crate::element::{Dtype, Element};
use crate::kernels::{Entry, Named, arguments};
use crate::op::center::Center;
use crate::segments::Cut;
use crate::{bf16, f16};

/// The kernel that squares distances, as a type.
pub type Square = Named<Squares, Distances>;

/// The kernel that divides sums of squares, as a type.
pub type Divide = Named<Divides, Spreads>;

/// Names [`Square`].
pub enum Squares {}

/// Names [`Divide`].
pub enum Divides {}

/// The arguments of the kernel that squares distances; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Distances {
    /// The items, aligned to their type.
    pub items: *const u8,
    /// The [`Dtype`] of the items.
    pub dtype: u32,
    /// An index for each item, `index_words` words of 32 bits each.
    pub indices: *const u32,
    /// 1 or 2.
    pub index_words: u32,
    /// The number of items.
    pub len: u64,
    /// The mean of each index.
    pub centers: *const Center,
    /// The place of the first index that is too large, or [`Cut::NOTHING`]. If there is one, there are no means.
    pub wrong: *const u64,
    /// Takes the square of each item; without means, zeros.
    pub squares: *mut f64,
}

arguments! { [] Distances: items dtype indices index_words len centers wrong squares }

/// Squares the distances of items from the means of their indices.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`](super::indices::THREADS). The pointers are valid as [`Distances`] says.
#[inline(always)]
pub unsafe fn square(arguments: Distances) {
    let Distances { items, dtype, indices, index_words, len, centers, wrong, squares } = arguments;
    // SAFETY: as the caller vouches.
    let has_means = unsafe { wrong.read() } == Cut::NOTHING;
    each_item(len, |item| {
        let item = item as usize;
        // SAFETY: as the caller vouches; if there are means, each index has one.
        unsafe {
            let square = if has_means {
                let index = indices.add(item * index_words as usize).read();
                square_of(items, dtype, item, &*centers.add(index as usize))
            } else {
                0.0
            };
            squares.add(item).write(square);
        }
    });
}

/// The square of one item's distance.
///
/// # Safety
///
/// There is such an item of that type.
#[inline(always)]
unsafe fn square_of(items: *const u8, dtype: u32, item: usize, center: &Center) -> f64 {
    macro_rules! of_type {
        ({} $($type:ident: $dtype:ident $($row:ident)*;)*) => {
            match dtype {
                // SAFETY: as the caller vouches.
                $(dtype if dtype == Dtype::$dtype as u32 => unsafe {
                    center.square(items.cast::<$type>().add(item).read())
                },)*
                _ => 0.0,
            }
        };
    }
    crate::for_each_element! { of_type! {} }
}

/// The arguments of the kernel that divides; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Spreads {
    /// The mean of each index.
    pub centers: *const Center,
    /// The sum of the squares of each index.
    pub squares: *const f64,
    /// The number of both.
    pub count: u64,
    /// The place of the first index that is too large, or [`Cut::NOTHING`]. If there is one, no result is written.
    pub wrong: *const u64,
    /// What is subtracted from the numbers of items.
    pub ddof: u64,
    /// 1 for standard deviations, 0 for variances.
    pub is_root: u32,
    /// 1 if results are `f32`, 0 if they are `f64`.
    pub is_short: u32,
    /// A place for each result.
    pub results: *mut u8,
}

arguments! { [] Spreads: centers squares count wrong ddof is_root is_short results }

/// Makes variances of sums of squares.
///
/// # Safety
///
/// As for [`square`], with [`Spreads`].
#[inline(always)]
pub unsafe fn divide(arguments: Spreads) {
    let Spreads { centers, squares, count, wrong, ddof, is_root, is_short, results } = arguments;
    // SAFETY: as the caller vouches.
    unsafe {
        if wrong.read() != Cut::NOTHING {
            return;
        }
        each_item(count, |index| {
            let index = index as usize;
            let spread = (*centers.add(index)).spread(squares.add(index).read(), ddof, is_root != 0);
            if is_short != 0 {
                results.cast::<f32>().add(index).write(<f32 as Element>::real(spread));
            } else {
                results.cast::<f64>().add(index).write(<f64 as Element>::real(spread));
            }
        });
    }
}

/// The entry points.
#[cfg(feature = "index")]
mod entry_points {
    use super::*;

    #[cuda_std::kernel(name = "center_u8_square_1024")]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn square_1024(
        items: *const u8,
        dtype: u32,
        indices: *const u32,
        index_words: u32,
        len: u64,
        centers: *const Center,
        wrong: *const u64,
        squares: *mut f64,
    ) {
        // SAFETY: the host launches it as the function asks.
        unsafe { square(Distances { items, dtype, indices, index_words, len, centers, wrong, squares }) }
    }

    #[cuda_std::kernel(name = "center_u8_divide_1024")]
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn divide_1024(
        centers: *const Center,
        squares: *const f64,
        count: u64,
        wrong: *const u64,
        ddof: u64,
        is_root: u32,
        is_short: u32,
        results: *mut u8,
    ) {
        // SAFETY: the host launches it as the function asks.
        unsafe { divide(Spreads { centers, squares, count, wrong, ddof, is_root, is_short, results }) }
    }
}

/// The entry points' names.
pub const ENTRIES: &[&[Entry]] =
    &[&[Entry::new::<Square>("center_u8_square"), Entry::new::<Divide>("center_u8_divide")]];
