//! The kernels that make indices: of the elements of rows, and of the bins of a histogram.

use crate::Element;
use crate::kernels::{Entry, Named, arguments};
#[allow(unused_imports)]
use crate::{bf16, f16};
use core::sync::atomic::Ordering;
use cuda_std::atomic::AtomicU64;
use cuda_std::{intrinsics, thread};

/// Threads in a block of these kernels.
pub const THREADS: u32 = 1024;

/// The kernel that makes indices of elements of those of rows, as a type.
pub type Expand = Named<Expands, Rows>;

/// The kernel that finds bins, as a type.
pub type FindBins<T> = Named<FindsBins, Binning<T>>;

/// Names [`Expand`].
pub enum Expands {}

/// Names [`FindBins`].
pub enum FindsBins {}

/// The arguments of the kernel that expands; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// An index for each row, `index_words` words of 32 bits each.
    pub indices: *const u32,
    /// 1 or 2.
    pub index_words: u32,
    /// The number of rows that indices may name.
    pub count: u32,
    /// The elements of all rows, fewer than 2^31, and those of a row.
    pub len: u32,
    /// See above.
    pub columns: u32,
    /// Takes the index of each element.
    pub elements: *mut u32,
    /// Takes the complement of the least place of an index that is too large.
    pub wrong: *mut u64,
}

arguments! { [] Rows: indices index_words count len columns elements wrong }

/// Calls `each` with the thread's items of `len`.
#[inline(always)]
pub(super) fn each_item(len: u64, mut each: impl FnMut(u64)) {
    let mut item = u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x());
    while item < len {
        intrinsics::no_unroll();
        each(item);
        item += u64::from(thread::grid_dim_x()) * u64::from(THREADS);
    }
}

/// Makes the indices of elements.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`]. The pointers are valid as [`Rows`] says.
#[inline(always)]
pub unsafe fn expand(arguments: Rows) {
    let Rows { indices, index_words, count, len, columns, elements, wrong } = arguments;
    each_item(len.into(), |element| {
        let (row, column) = (element as u32 / columns, element as u32 % columns);
        // SAFETY: as the caller vouches; all threads use atomics.
        unsafe {
            let at = indices.add(row as usize * index_words as usize);
            let is_short = index_words == 1 || at.add(1).read() == 0;
            let mut index = at.read();
            if !is_short || index >= count {
                AtomicU64::from_ptr(wrong).fetch_max(!u64::from(row), Ordering::Relaxed);
                index = 0;
            }
            elements.add(element as usize).write(index * columns + column);
        }
    });
}

/// The bins of a histogram, without their edges.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bins {
    /// The number of bins, at least 1.
    pub count: u64,
    /// Bins for each unit from the first edge on, if all are equal; else 0.
    pub scale: f64,
}

impl Bins {
    /// Returns the bin of a value: that of the last edge that is not greater, or the last bin for the last edge. For
    /// what lies outside, and NaN, returns the number of bins.
    #[inline(always)]
    pub fn find(self, value: f64, edge: impl Fn(usize) -> f64) -> u32 {
        let count = self.count as usize;
        if !(value >= edge(0) && value <= edge(count)) {
            return count as u32;
        }
        if self.scale > 0.0 {
            // Rounding may miss the bin by little.
            let mut bin = (((value - edge(0)) * self.scale) as usize).min(count - 1);
            while value < edge(bin) {
                bin -= 1;
            }
            while bin + 1 < count && value >= edge(bin + 1) {
                bin += 1;
            }
            return bin as u32;
        }
        let (mut low, mut high) = (0, count);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if edge(middle) <= value { low = middle } else { high = middle }
        }
        low as u32
    }
}

/// The arguments of the kernel that finds bins; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Binning<T> {
    /// The items.
    pub items: *const T,
    /// Their number.
    pub len: u64,
    /// The bins.
    pub bins: Bins,
    /// One more than there are bins.
    pub edges: *const f64,
    /// Takes the bin of each item.
    pub indices: *mut u32,
}

arguments! { [T: Copy] Binning<T>: items len bins edges indices }

/// Finds the bin of each item.
///
/// # Safety
///
/// As for [`expand`], with [`Binning`].
#[inline(always)]
pub unsafe fn find_bins<T: Element>(arguments: Binning<T>) {
    let Binning { items, len, bins, edges, indices } = arguments;
    each_item(len, |item| {
        // SAFETY: as the caller vouches.
        unsafe {
            let value = items.add(item as usize).read().as_f64();
            indices.add(item as usize).write(bins.find(value, |edge| edges.add(edge).read()));
        }
    });
}

/// The entry points.
#[cfg(feature = "index")]
mod entry_points {
    use super::*;

    #[cuda_std::kernel(name = "indices_u8_expand_1024")]
    pub unsafe fn expand_1024(
        indices: *const u32,
        index_words: u32,
        count: u32,
        len: u32,
        columns: u32,
        elements: *mut u32,
        wrong: *mut u64,
    ) {
        // SAFETY: the host launches it as the function asks.
        unsafe { expand(Rows { indices, index_words, count, len, columns, elements, wrong }) }
    }

    macro_rules! binning {
        ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {$(
            const _: () = {
                #[cuda_std::kernel(name = concat!("indices_", stringify!($type), "_bin_1024"))]
                pub unsafe fn entry(
                    items: *const $type,
                    len: u64,
                    bins: Bins,
                    edges: *const f64,
                    indices: *mut u32,
                ) {
                    // SAFETY: the host launches it as the function asks.
                    unsafe { find_bins(Binning { items, len, bins, edges, indices }) }
                }
            };
        )*};
    }
    crate::for_each_element! { binning! {} }
}

macro_rules! entries {
    ({} $($type:ident: $dtype:ident $kind:ident $($row:ident)*;)*) => {
        /// The entry points' names.
        pub const ENTRIES: &[&[Entry]] = &[
            &[Entry::new::<Expand>("indices_u8_expand")],
            &[$(Entry::new::<FindBins<$type>>(concat!("indices_", stringify!($type), "_bin"))),*],
        ];
    };
    ({ alias } $($type:ident: $other:ident;)*) => {
        /// The entries for types that are aliases of others, whose kernels they use.
        pub const ALIASES: &[&[Entry]] =
            &[&[$(Entry::new::<FindBins<$type>>(concat!("indices_", stringify!($other), "_bin"))),*]];
    };
}

crate::for_each_element! { entries! {} }
#[cfg(not(target_arch = "nvptx64"))]
crate::for_each_alias! { entries! { alias } }
