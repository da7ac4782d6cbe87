//! Merges sorted lists on a device.

use crate::cuda::ladder::merge;
use crate::place::Place::{Cpu, Gpu};
use crate::{Device, Element, Error, Min, Op};

/// The result of [`merge_sorted`].
#[derive(Clone, Debug, PartialEq)]
pub struct Merged<T> {
    /// The elements of all lists, sorted.
    pub values: Vec<T>,
    /// For each value, the number of its list, counted from 0.
    pub lists: Vec<u32>,
}

/// Merges sorted lists into one.
///
/// A GPU does so by repeated min reductions over the heads of the lists. The merge is stable: of equal
/// elements, those of an earlier list come first, and the elements of one list stay in order.
///
/// There are fewer than 2^32 lists, of any lengths, including 0. They are sorted in the order of [`Min`]:
/// NaNs first, with their bits kept, and −0.0 before +0.0.
///
/// ```
/// use gpu_reduce::{Device, merge_sorted};
///
/// let merged = merge_sorted(&Device::cpu(), &[&[1, 4, 4][..], &[], &[0, 4]])?;
/// assert_eq!(merged.values, [0, 1, 4, 4, 4]);
/// assert_eq!(merged.lists, [2, 0, 0, 0, 2]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::NotSorted`]; on a GPU also [`Error::Launch`], [`Error::OutOfMemory`] and [`Error::Driver`].
pub fn merge_sorted<T: Element>(device: &Device, lists: &[&[T]]) -> Result<Merged<T>, Error> {
    let key = |&element: &T| Min.lift(element, 0);
    for (list, elements) in lists.iter().enumerate() {
        if let Some(before) = elements.windows(2).position(|pair| key(&pair[0]) > key(&pair[1])) {
            return Err(Error::NotSorted { list, index: before + 1 });
        }
    }
    match &device.0 {
        Cpu(()) => {
            let numbered =
                (0..).zip(lists).flat_map(|(list, elements)| elements.iter().map(move |&x| (x, list)));
            let mut merged: Vec<(T, u32)> = numbered.collect();
            merged.sort_by_key(|(element, _)| key(element));
            let (values, lists) = merged.into_iter().unzip();
            Ok(Merged { values, lists })
        }
        Gpu(gpu) => merge(gpu, lists),
    }
}
