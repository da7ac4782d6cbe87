use super::{LadderElement, Sequential, first_element};
use crate::Element;
use crate::element::Key;
use crate::kernels::{self, arguments};
use cuda_std::shared::Shared;
use cuda_std::{shared_array, thread};
use num_traits::Bounded;

/// The least element and its index, by halving: a value and its index move together.
///
/// ```text
/// keys[t], indices[t] = key and index of element t of the block
/// for half in half of the block's size, a quarter, … 1:
///     barrier
///     if t < half and (keys[t + half], indices[t + half]) is less: it replaces element t
/// thread 0 stores keys[0] and indices[0], which are the next launch's input
/// ```
///
/// - From 004, `merge_array5`, whose loop finds the list with the least head.
/// - Wrong with it: the same as with sequential addressing, whose loop it is.
/// - Not copied: 004's braces put the barrier outside the loop, but each halving needs one. Of two equal
///   values, 004 keeps the one at the lower address, which need not have the lower index after some moves;
///   here indices are compared.
///
/// The fields are the arguments of a launch, the kernel's parameters in this order.
#[derive(Clone, Copy, Debug)]
pub struct ArgMin<T: Element> {
    /// `len` elements, or keys of elements in a later launch.
    pub input: *const T,
    /// The index of each element; null in the first launch, where element i has index i.
    pub indices: *const u64,
    /// Elements in the input.
    pub len: u64,
    /// A key for each block.
    pub keys_out: *mut T::Key,
    /// An index for each block.
    pub indices_out: *mut u64,
}

impl<T: Element> kernels::Kernel for ArgMin<T> {
    type Arguments = Self;
}

arguments! { [T: Element] ArgMin<T>: input indices len keys_out indices_out }

impl<T: LadderElement> ArgMin<T> {
    /// The kernel's name without the type.
    pub const NAME: &'static str = "argmin_halving";

    /// Runs the kernel.
    ///
    /// # Safety
    ///
    /// The launch has BLOCK threads a block, and a block for every BLOCK elements. The pointers are valid as
    /// the fields say, and nothing else accesses what they point to meanwhile.
    #[inline(always)]
    pub unsafe fn run<const BLOCK: u32>(self) {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let keys = shared_array![T::Key; BLOCK as usize];
        let indices = shared_array![u64; BLOCK as usize];
        // SAFETY: a barrier begins each step, and in a step no two threads access the same element.
        unsafe {
            let (key, index) = self.load(first_element::<Sequential>(threads));
            keys.write(thread, key);
            indices.write(thread, index);
            let mut half = threads / 2;
            while half > 0 {
                thread::sync_threads();
                if thread < half {
                    keep_less(keys, indices, thread, thread + half);
                }
                half /= 2;
            }
            if thread == 0 {
                let block = thread::block_idx_x() as usize;
                self.keys_out.add(block).write(keys.read(0));
                self.indices_out.add(block).write(indices.read(0));
            }
        }
    }

    /// Returns the key and the index of element `place` of the input. Past the end, both are the greatest
    /// value: an element may have that key, but none has that index, so it is never the least.
    ///
    /// # Safety
    ///
    /// The input is valid as the fields say.
    #[inline(always)]
    unsafe fn load(self, place: u64) -> (T::Key, u64) {
        if place >= self.len {
            return (T::Key::max_value(), u64::MAX);
        }
        // SAFETY: in bounds.
        unsafe {
            let key = self.input.add(place as usize).read().key(T::Key::min_value());
            let index = if self.indices.is_null() { place } else { self.indices.add(place as usize).read() };
            (key, index)
        }
    }
}

/// Moves the key and index at `from` to `into` if they are less.
///
/// # Safety
///
/// Both are in bounds and written. No other thread writes either, or reads `into`, without a barrier between.
#[inline(always)]
unsafe fn keep_less<K: Key>(keys: Shared<K>, indices: Shared<u64>, into: u32, from: u32) {
    // SAFETY: as the caller promises.
    unsafe {
        let (key, index) = (keys.read(from), indices.read(from));
        if (key, index) < (keys.read(into), indices.read(into)) {
            keys.write(into, key);
            indices.write(into, index);
        }
    }
}
