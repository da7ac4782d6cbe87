use super::{LadderElement, Sequential, first_element};
use crate::Element;
use crate::element::Key;
use crate::kernels::{self, Parameters};
use cuda_std::shared::Shared;
use cuda_std::{shared_array, thread};
use num_traits::Bounded;

/// The least element and its index, by halving: the value and where it came from move together.
///
/// ```text
/// keys[t], indices[t] = key and index of element t of the block
/// for half in half of the block's size, a quarter, … 1:
///     barrier
///     if t < half and (keys[t + half], indices[t + half]) is less: it takes place t
/// thread 0 stores keys[0] and indices[0], which are the next launch's input
/// ```
///
/// - From 004, `merge_array5`, whose loop finds the list with the least head.
/// - Wrong with it: what is wrong with sequential addressing, whose loop it is.
/// - Not copied: 004's braces put the barrier outside the loop, where each halving needs one. It keeps the lower place of two
///   equal values, which is not the lower index once places have moved; here indices are compared.
///
/// What a launch is given; the kernel's arguments in this order.
#[derive(Clone, Copy, Debug)]
pub struct ArgMin<T: Element> {
    /// `len` elements, or keys of elements in a later launch.
    pub input: *const T,
    /// The index of each; null in the first launch, where element i has index i.
    pub indices: *const u64,
    /// Elements in the input.
    pub len: u64,
    /// Room for a key from each block.
    pub keys_out: *mut T::Key,
    /// Room for an index from each block.
    pub indices_out: *mut u64,
}

impl<T: Element> kernels::Kernel for ArgMin<T> {
    type Arguments = Self;
}

impl<T: Element> kernels::Arguments for ArgMin<T> {
    fn parameters(&self, parameters: &mut Parameters) {
        let Self { input, indices, len, keys_out, indices_out } = self;
        parameters.push(input);
        parameters.push(indices);
        parameters.push(len);
        parameters.push(keys_out);
        parameters.push(indices_out);
    }
}

impl<T: LadderElement> ArgMin<T> {
    /// The kernel's name before that of the type.
    pub const NAME: &'static str = "argmin_halving";

    /// The kernel.
    ///
    /// # Safety
    ///
    /// The launch has BLOCK threads a block and a block for every BLOCK elements; the pointers are valid as the fields say,
    /// and nothing else uses what they point to meanwhile.
    #[inline(always)]
    pub unsafe fn run<const BLOCK: u32>(self) {
        let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
        let keys = shared_array![T::Key; BLOCK as usize];
        let indices = shared_array![u64; BLOCK as usize];
        // SAFETY: a barrier begins each step, and in a step no two threads have a place in common.
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

    /// The key and the index at a place of the input. Past its end, the greatest of both: an element may have that key, but
    /// none has that index, so that it never is the least.
    ///
    /// # Safety
    ///
    /// The input is as the fields say.
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
/// Both are in bounds and written, and no other thread writes either, or reads `into`, without a barrier between.
#[inline(always)]
unsafe fn keep_less<K: Key>(keys: Shared<K>, indices: Shared<u64>, into: u32, from: u32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (key, index) = (keys.read(from), indices.read(from));
        if (key, index) < (keys.read(into), indices.read(into)) {
            keys.write(into, key);
            indices.write(into, index);
        }
    }
}
