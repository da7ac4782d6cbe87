//! The kernels that make the terms of sums by index. The kernels of sums ([`index`](super::index)) then add the terms
//! up.
//!
//! ```text
//! pick:      an item that passes a test stays, and any other item becomes 0. If the sums count their items, an
//!            item that does not pass gets the index `count`, of a sum that nobody needs
//! multiply:  makes the product of two items: an integer of 64 bits, or an `f64`
//! keep:      copies all sums but the last one
//! ```
//!
//! The test is one of ranks ([`Rule`]), which is an argument, so that one kernel serves all types of one size.

use super::index::THREADS;
use super::words::{Bits, Rule};
use crate::element::{Dtype, Element, Wide};
use crate::kernels::{Entry, Named, arguments};
#[cfg(not(target_arch = "nvptx64"))]
pub use crate::op::comparison::Range;
use crate::segments::unrolled;
use crate::{bf16, f16};
use core::array::from_fn;
use core::sync::atomic::Ordering;
use cuda_std::atomic::SystemAtomicU64;
use cuda_std::{intrinsics, thread};

/// Items that a thread has in flight.
const BATCH: usize = 4;

/// Items that a block reads together.
pub const TILE: usize = BATCH * THREADS as usize;

/// The kernel that picks items of as many bytes as `T`, as a type.
pub type Pick<T> = Named<Picks, Picking<T>>;

/// The kernel that multiplies, as a type.
pub type Multiply = Named<Multiplies, Factors>;

/// The kernel that copies sums, as a type.
pub type Keep = Named<Keeps, Keeping>;

/// Names [`Pick`].
pub enum Picks {}

/// Names [`Multiply`].
pub enum Multiplies {}

/// Names [`Keep`].
pub enum Keeps {}

/// Calls `each` with the places of BATCH items at a time, until the threads of all blocks have had all items. Of the
/// second argument, each is less than `len`, which is not 0; the first one may be greater.
#[inline(always)]
fn each_batch(len: u64, mut each: impl FnMut([usize; BATCH], [usize; BATCH])) {
    let mut first = u64::from(thread::block_idx_x()) * TILE as u64 + u64::from(thread::thread_idx_x());
    while first < len {
        intrinsics::no_unroll();
        let places: [u64; BATCH] = from_fn(|item| first + item as u64 * u64::from(THREADS));
        each(places.map(|place| place as usize), places.map(|place| place.min(len - 1) as usize));
        first += u64::from(thread::grid_dim_x()) * TILE as u64;
    }
}

/// The arguments of the kernel that picks; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Picking<T> {
    /// The items, as unsigned integers of their size, and aligned to it.
    pub items: *const T,
    /// The number of items, not 0.
    pub len: u64,
    /// Takes a term for each item.
    pub terms: *mut T,
    /// Items with these bits become 0, too.
    pub zero: u64,
    /// An index for each item, `index_words` words of 32 bits each.
    pub indices: *const u32,
    /// 1 or 2.
    pub index_words: u32,
    /// The number of sums that are needed.
    pub count: u32,
    /// Takes an index for each term: `count` if its item does not pass; of an index that is too large, a greater one.
    /// Null if the indices stay.
    pub picked: *mut u32,
    /// The test.
    pub rule: Rule,
}

arguments! { [T: Copy] Picking<T>: items len terms zero indices index_words count picked rule }

/// Picks items.
///
/// # Safety
///
/// The launch has blocks of [`THREADS`]. The pointers are valid as [`Picking`] says, and nothing else accesses what they
/// point to meanwhile, other than to read items and indices.
#[inline(always)]
pub unsafe fn pick<T: Element + Into<u64>>(arguments: Picking<T>) {
    if size_of::<T>() == 8 {
        // SAFETY: as the caller vouches.
        unsafe { pick_as::<T, u64>(arguments) }
    } else {
        // SAFETY: as the caller vouches.
        unsafe { pick_as::<T, u32>(arguments) }
    }
}

/// As [`pick`]; ranks are integers of type `B`.
///
/// # Safety
///
/// As for [`pick`].
#[inline(always)]
unsafe fn pick_as<T: Element + Into<u64>, B: Bits>(arguments: Picking<T>) {
    let Picking { items, len, terms, zero, indices, index_words, count, picked, ref rule } = arguments;
    each_batch(len, |places, within| {
        // SAFETY: as the caller vouches; only places of items are written to.
        unsafe {
            let batch = within.map(|place| items.add(place).read());
            let passes = batch.map(|item| rule.picks(B::of(item.into())));
            unrolled::<BATCH>(|item| {
                if (places[item] as u64) < len {
                    let stays = passes[item] && batch[item].into() != zero;
                    terms.add(places[item]).write(if stays { batch[item] } else { T::zeroed() });
                }
            });
            if picked.is_null() {
                return;
            }
            // The last word of an index is not 0 if the index is too large for one word.
            let words = within.map(|place| {
                let at = indices.add(place * index_words as usize);
                [at.read(), at.add(index_words as usize - 1).read()]
            });
            unrolled::<BATCH>(|item| {
                if (places[item] as u64) < len {
                    let [index, last] = words[item];
                    let is_wrong = index >= count || (index_words > 1 && last != 0);
                    let index = if passes[item] { index } else { count };
                    picked.add(places[item]).write(if is_wrong { u32::MAX } else { index });
                }
            });
        }
    });
}

/// The arguments of the kernel that multiplies; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Factors {
    /// The first factors, aligned to their type.
    pub a: *const u8,
    /// The second factors, which may be the first ones.
    pub b: *const u8,
    /// The [`Dtype`] of all factors.
    pub dtype: u32,
    /// The number of products, not 0.
    pub len: u64,
    /// Takes the bits of each product.
    pub products: *mut u64,
}

arguments! { [] Factors: a b dtype len products }

/// Multiplies.
///
/// # Safety
///
/// As for [`pick`], with [`Factors`].
#[inline(always)]
pub unsafe fn multiply(arguments: Factors) {
    macro_rules! of_type {
        ({} $($type:ident: $dtype:ident $($row:ident)*;)*) => {
            match arguments.dtype {
                // SAFETY: as the caller vouches.
                $(dtype if dtype == Dtype::$dtype as u32 => unsafe { multiply_all::<$type>(arguments) },)*
                _ => {}
            }
        };
    }
    crate::for_each_element! { of_type! {} }
}

/// Multiplies factors of one type.
///
/// # Safety
///
/// As for [`multiply`]; the factors are of this type.
#[inline(always)]
unsafe fn multiply_all<T: Element>(arguments: Factors) {
    let Factors { a, b, len, products, .. } = arguments;
    each_batch(len, |places, within| {
        // SAFETY: as the caller vouches; only places of products are written to.
        unsafe {
            let pairs =
                within.map(|place| (a.cast::<T>().add(place).read(), b.cast::<T>().add(place).read()));
            unrolled::<BATCH>(|item| {
                if (places[item] as u64) < len {
                    products.add(places[item]).write(product_bits(pairs[item].0, pairs[item].1));
                }
            });
        }
    });
}

/// Returns the bits of a product: of two integers, it is an integer that wraps at 64 bits; of two floats, it is rounded to
/// the nearest `f64`.
#[inline(always)]
fn product_bits<T: Element>(a: T, b: T) -> u64 {
    match T::DTYPE {
        Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64 => (a.as_f64() * b.as_f64()).to_bits(),
        // SAFETY: both types have 8 bytes without padding.
        _ => unsafe { core::mem::transmute_copy::<T::Wide, u64>(&a.widen().times(b.widen())) },
    }
}

/// The arguments of the kernel that copies sums; the parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// The sums.
    pub sums: *const u32,
    /// Their words of 32 bits, not counting those that are not needed.
    pub words: u64,
    /// The place of the first index that is too large, or [`Cut::NOTHING`](crate::segments::Cut::NOTHING). If there is
    /// one, there are no sums, and nothing is copied.
    pub wrong: *const u64,
    /// Takes the sums.
    pub results: *mut u32,
    /// Memory of the host that takes what `wrong` has; or null.
    pub to_host: *mut u64,
}

arguments! { [] Keeping: sums words wrong results to_host }

/// Copies sums.
///
/// # Safety
///
/// As for [`pick`], with [`Keeping`].
#[inline(always)]
pub unsafe fn keep(arguments: Keeping) {
    let Keeping { sums, words, wrong, results, to_host } = arguments;
    // SAFETY: as the caller vouches.
    unsafe {
        let wrong = wrong.read();
        if wrong == crate::segments::Cut::NOTHING {
            super::indices::each_item(words, |word| {
                results.add(word as usize).write(sums.add(word as usize).read());
            });
        }
        if !to_host.is_null() && thread::block_idx_x() == 0 && thread::thread_idx_x() == 0 {
            SystemAtomicU64::from_ptr(to_host).store(wrong, Ordering::Relaxed);
        }
    }
}

/// The entry points.
#[cfg(feature = "index")]
mod entry_points {
    use super::*;

    macro_rules! picking {
        ($($type:ident)*) => {$(
            const _: () = {
                #[cuda_std::kernel(name = concat!("terms_", stringify!($type), "_pick_1024"))]
                #[allow(clippy::too_many_arguments)]
                pub unsafe fn entry(
                    items: *const $type,
                    len: u64,
                    terms: *mut $type,
                    zero: u64,
                    indices: *const u32,
                    index_words: u32,
                    count: u32,
                    picked: *mut u32,
                    rule: Rule,
                ) {
                    let arguments =
                        Picking { items, len, terms, zero, indices, index_words, count, picked, rule };
                    // SAFETY: the host launches it as the function asks.
                    unsafe { pick(arguments) }
                }
            };
        )*};
    }

    picking! { u8 u16 u32 u64 }

    #[cuda_std::kernel(name = "terms_u8_multiply_1024")]
    pub unsafe fn multiply_1024(a: *const u8, b: *const u8, dtype: u32, len: u64, products: *mut u64) {
        // SAFETY: the host launches it as the function asks.
        unsafe { multiply(Factors { a, b, dtype, len, products }) }
    }

    #[cuda_std::kernel(name = "terms_u32_keep_1024")]
    pub unsafe fn keep_1024(
        sums: *const u32,
        words: u64,
        wrong: *const u64,
        results: *mut u32,
        to_host: *mut u64,
    ) {
        // SAFETY: the host launches it as the function asks.
        unsafe { keep(Keeping { sums, words, wrong, results, to_host }) }
    }
}

/// The entry points' names.
pub const ENTRIES: &[&[Entry]] = &[&[
    Entry::new::<Pick<u8>>("terms_u8_pick"),
    Entry::new::<Pick<u16>>("terms_u16_pick"),
    Entry::new::<Pick<u32>>("terms_u32_pick"),
    Entry::new::<Pick<u64>>("terms_u64_pick"),
    Entry::new::<Multiply>("terms_u8_multiply"),
    Entry::new::<Keep>("terms_u32_keep"),
]];
