//! How a block reads its input: one array, or several together.

use crate::kernels::Parameters;
use bytemuck::Zeroable;
use core::array::from_fn;
use core::mem::transmute_copy;
use core::ptr::with_exposed_provenance;
use cuda_std::{intrinsics, mem};

/// The address of items on a device: a pointer to an array, or a pair of inputs that are read together.
pub trait Input: Copy + 'static {
    /// An array's element, or a pair of items.
    type Item: Copy + 'static;

    /// WIDTH neighbouring items, as a load returns them. A leaf of two arrays is a leaf of each: 16 bytes of each are 8 words. Where they are
    /// folded, [`items`](Self::items) makes pairs of them. If loads returned pairs, these would be 32 values, each in a register.
    type Leaf<const WIDTH: usize>: Copy + 'static;

    /// Bytes of an element, in the array with the largest elements.
    const BYTES: usize;

    /// Whether items have less than 4 bytes: then [`load_anywhere`](Self::load_anywhere) reads bytes before and after them.
    const IS_NARROW: bool;

    /// Adds the pointers to a kernel's parameters.
    fn parameters(&self, parameters: &mut Parameters);

    /// Calls `each` with the address of each array and the bytes of its elements.
    #[doc(hidden)]
    fn arrays(&self, each: &mut dyn FnMut(u64, usize));

    /// Returns the input whose arrays are at the addresses that `place` returns for the bytes of an element.
    #[doc(hidden)]
    fn at(place: &mut dyn FnMut(usize) -> usize) -> Self;

    /// Returns an item for positions without one; its value is not used.
    fn zeroed() -> Self::Item;

    /// Returns the address `count` items further on.
    fn offset(self, count: usize) -> Self;

    /// Returns the items before the first 128-byte boundary, from where [`load`](Self::load) is one access; 0
    /// if it never is. `None` if the boundaries of two arrays are at different items, so that they cannot be
    /// loaded together.
    fn head(self) -> Option<u32>;

    /// Reads the item here.
    ///
    /// # Safety
    ///
    /// There is one.
    unsafe fn read(self) -> Self::Item;

    /// Returns a leaf of [zeroed](Self::zeroed) items.
    fn no_leaf<const WIDTH: usize>() -> Self::Leaf<WIDTH>;

    /// Returns the items of a leaf.
    fn items<const WIDTH: usize>(leaf: Self::Leaf<WIDTH>) -> [Self::Item; WIDTH];

    /// Loads the WIDTH items from here on.
    ///
    /// # Safety
    ///
    /// There are WIDTH items. This is a multiple of WIDTH items from the end of [`head`](Self::head), which
    /// is not `None`.
    unsafe fn load<const WIDTH: usize>(self) -> Self::Leaf<WIDTH>;

    /// Loads the WIDTH items from here on one by one.
    ///
    /// # Safety
    ///
    /// There are WIDTH items.
    unsafe fn load_each<const WIDTH: usize>(self) -> Self::Leaf<WIDTH>;

    /// Loads the first `count` of WIDTH items one by one; the others are [zeroed](Self::zeroed).
    ///
    /// # Safety
    ///
    /// There are `count` items.
    unsafe fn load_some<const WIDTH: usize>(self, count: u32) -> Self::Leaf<WIDTH>;

    /// Loads the WIDTH items from here on, which lie anywhere. Narrow items come in words of 4 bytes, so that up to 3
    /// bytes before and after are read too.
    ///
    /// # Safety
    ///
    /// There are WIDTH items, and 4 bytes before and after.
    #[inline(always)]
    unsafe fn load_anywhere<const WIDTH: usize>(self) -> Self::Leaf<WIDTH> {
        // SAFETY: as the caller promises.
        unsafe { self.load_each() }
    }

    /// As [`load_anywhere`](Self::load_anywhere), for N leaves. Leaf i begins `ahead(i)` items after this address. The bytes of `ahead(i)` items
    /// are a multiple of 4, so that all leaves begin at the same place within a word.
    ///
    /// # Safety
    ///
    /// As for [`load_anywhere`](Self::load_anywhere), for each leaf.
    #[inline(always)]
    unsafe fn load_all<const WIDTH: usize, const N: usize>(
        self,
        ahead: impl Fn(usize) -> usize,
    ) -> [Self::Leaf<WIDTH>; N] {
        // SAFETY: as the caller promises.
        from_fn(|leaf| unsafe { self.offset(ahead(leaf)).load_anywhere() })
    }
}

/// What an [`Input`] has whose leaves are arrays of items.
macro_rules! leaves_of_items {
    () => {
        type Leaf<const WIDTH: usize> = [Self::Item; WIDTH];

        #[inline(always)]
        fn no_leaf<const WIDTH: usize>() -> [Self::Item; WIDTH] {
            [<Self as Input>::zeroed(); WIDTH]
        }

        #[inline(always)]
        fn items<const WIDTH: usize>(leaf: [Self::Item; WIDTH]) -> [Self::Item; WIDTH] {
            $crate::input::by_words(leaf)
        }

        #[inline(always)]
        unsafe fn load_each<const WIDTH: usize>(self) -> [Self::Item; WIDTH] {
            // SAFETY: as the caller promises.
            $crate::input::in_words(from_fn(|index| unsafe { Input::read(Input::offset(self, index)) }))
        }

        #[inline(always)]
        unsafe fn load_some<const WIDTH: usize>(self, count: u32) -> [Self::Item; WIDTH] {
            from_fn(|index| match index as u32 {
                // SAFETY: as the caller promises.
                item if item < count => unsafe { Input::read(Input::offset(self, index)) },
                _ => <Self as Input>::zeroed(),
            })
        }
    };
}
pub(crate) use leaves_of_items;

/// Returns whether WIDTH elements, from a boundary on, lie at a multiple of their size.
const fn is_aligned<T>() -> bool {
    size_of::<T>().is_power_of_two() && align_of::<T>() == size_of::<T>()
}

impl<T: Zeroable + Copy + 'static> Input for *const T {
    type Item = T;
    leaves_of_items! {}

    const BYTES: usize = size_of::<T>();
    const IS_NARROW: bool = size_of::<T>() < 4;

    fn parameters(&self, parameters: &mut Parameters) {
        parameters.push(self);
    }

    fn arrays(&self, each: &mut dyn FnMut(u64, usize)) {
        each(self.addr() as u64, size_of::<T>());
    }

    fn at(place: &mut dyn FnMut(usize) -> usize) -> Self {
        with_exposed_provenance(place(size_of::<T>()))
    }

    #[inline(always)]
    fn zeroed() -> T {
        T::zeroed()
    }

    #[inline(always)]
    fn offset(self, count: usize) -> Self {
        self.wrapping_add(count)
    }

    #[inline(always)]
    fn head(self) -> Option<u32> {
        Some(if is_aligned::<T>() {
            (self.addr().wrapping_neg() as u32 % 128) / size_of::<T>() as u32
        } else {
            0
        })
    }

    #[inline(always)]
    unsafe fn read(self) -> T {
        // SAFETY: as the caller promises.
        unsafe { *self }
    }

    #[inline(always)]
    unsafe fn load<const WIDTH: usize>(self) -> [T; WIDTH] {
        // SAFETY: as the caller promises; `is_aligned` says that loads from a boundary lie at multiples of
        // their size.
        unsafe {
            match size_of::<[T; WIDTH]>() {
                16 if is_aligned::<T>() => mem::load_16_bytes(self.cast()),
                8 if is_aligned::<T>() => mem::load_8_bytes(self.cast()),
                4 if is_aligned::<T>() => mem::load_4_bytes(self.cast()),
                _ => from_fn(|index| self.add(index).read()),
            }
        }
    }

    #[inline(always)]
    unsafe fn load_anywhere<const WIDTH: usize>(self) -> [T; WIDTH] {
        // SAFETY: as the caller promises.
        let [leaf] = unsafe { self.load_all(|_| 0) };
        leaf
    }

    #[inline(always)]
    unsafe fn load_all<const WIDTH: usize, const N: usize>(
        self,
        ahead: impl Fn(usize) -> usize,
    ) -> [[T; WIDTH]; N] {
        let within = self.addr() % 4;
        let (first, bits) = (self.wrapping_byte_sub(within), 8 * within as u32);
        // SAFETY: as the caller promises. The last word has a byte of the items, or is the one before again.
        from_fn(|leaf| unsafe {
            let words = first.wrapping_add(ahead(leaf)).cast();
            match size_of::<[T; WIDTH]>() {
                16 if size_of::<T>() < 4 => of_words::<T, WIDTH, 4>(words, bits),
                8 if size_of::<T>() < 4 => of_words::<T, WIDTH, 2>(words, bits),
                4 if size_of::<T>() < 4 => of_words::<T, WIDTH, 1>(words, bits),
                _ => from_fn(|index| self.add(ahead(leaf)).add(index).read()),
            }
        })
    }
}

/// Returns the items of WORDS words of 4 bytes that begin `bits` bits after the first word here.
///
/// # Safety
///
/// As for [`Input::load_anywhere`]; WORDS words are WIDTH items.
#[inline(always)]
unsafe fn of_words<T: Copy, const WIDTH: usize, const WORDS: usize>(
    first: *const u32,
    bits: u32,
) -> [T; WIDTH] {
    // SAFETY: as the caller promises; any bits of memory are a word, and the words' bytes are the items'.
    unsafe {
        let words: [u32; WORDS] = from_fn(|index| first.add(index).read());
        let last = first.add(WORDS).read();
        let shifted: [u32; WORDS] = from_fn(|index| {
            let above = if index + 1 < WORDS { words[index + 1] } else { last };
            // In a register, because the compiler would shift 64 bits, and once more for each item.
            intrinsics::in_register(((u64::from(above) << 32 | u64::from(words[index])) >> bits) as u32)
        });
        (&raw const shifted).cast::<[T; WIDTH]>().read_unaligned()
    }
}

/// Returns the same items, each computed from a word of 4 bytes if they are narrow. Otherwise the compiler may compute all items where they
/// are loaded, and keep a register for each until it is folded.
#[inline(always)]
pub(crate) fn by_words<T: Copy, const WIDTH: usize>(items: [T; WIDTH]) -> [T; WIDTH] {
    match (size_of::<T>(), size_of::<[T; WIDTH]>()) {
        (1 | 2, 16) => from_words::<T, WIDTH, 4>(words_of(items)),
        (1 | 2, 8) => from_words::<T, WIDTH, 2>(words_of(items)),
        (1 | 2, 4) => from_words::<T, WIDTH, 1>(words_of(items)),
        _ => items,
    }
}

/// Returns the same items, which the compiler puts together to words of 4 bytes here if they are narrow. Otherwise it may keep a register for
/// each item that was loaded alone.
#[inline(always)]
pub(crate) fn in_words<T: Copy, const WIDTH: usize>(items: [T; WIDTH]) -> [T; WIDTH] {
    match (size_of::<T>(), size_of::<[T; WIDTH]>()) {
        (1 | 2, 16) => items_of::<T, WIDTH, 4>(words_of(items).map(intrinsics::in_register)),
        (1 | 2, 8) => items_of::<T, WIDTH, 2>(words_of(items).map(intrinsics::in_register)),
        (1 | 2, 4) => items_of::<T, WIDTH, 1>(words_of(items).map(intrinsics::in_register)),
        _ => items,
    }
}

/// Returns the words of items that have as many bytes.
#[inline(always)]
fn words_of<T: Copy, const WIDTH: usize, const WORDS: usize>(items: [T; WIDTH]) -> [u32; WORDS] {
    // SAFETY: items have no bytes without a value, and any bits are words. (If the items had fewer bytes, this would panic.)
    unsafe { transmute_copy(&items) }
}

/// Returns the items whose [words](words_of) these are.
#[inline(always)]
fn items_of<T: Copy, const WIDTH: usize, const WORDS: usize>(words: [u32; WORDS]) -> [T; WIDTH] {
    // SAFETY: the words have the bytes of the items.
    unsafe { transmute_copy(&words) }
}

/// As [`items_of`], item by item.
#[inline(always)]
fn from_words<T: Copy, const WIDTH: usize, const WORDS: usize>(words: [u32; WORDS]) -> [T; WIDTH] {
    from_fn(|item| {
        let byte = item * size_of::<T>();
        let word = words[byte / 4] >> (8 * (byte % 4));
        // SAFETY: the lowest bytes of a word are its first ones, and these are the item's.
        unsafe { transmute_copy(&word) }
    })
}

impl<A: Input, B: Input> Input for (A, B) {
    type Item = (A::Item, B::Item);
    type Leaf<const WIDTH: usize> = (A::Leaf<WIDTH>, B::Leaf<WIDTH>);

    const BYTES: usize = if A::BYTES > B::BYTES { A::BYTES } else { B::BYTES };
    const IS_NARROW: bool = A::IS_NARROW || B::IS_NARROW;

    fn parameters(&self, parameters: &mut Parameters) {
        self.0.parameters(parameters);
        self.1.parameters(parameters);
    }

    fn arrays(&self, each: &mut dyn FnMut(u64, usize)) {
        self.0.arrays(each);
        self.1.arrays(each);
    }

    fn at(place: &mut dyn FnMut(usize) -> usize) -> Self {
        (A::at(place), B::at(place))
    }

    #[inline(always)]
    fn zeroed() -> Self::Item {
        (A::zeroed(), B::zeroed())
    }

    #[inline(always)]
    fn offset(self, count: usize) -> Self {
        (self.0.offset(count), self.1.offset(count))
    }

    #[inline(always)]
    fn head(self) -> Option<u32> {
        let (first, second) = (self.0.head()?, self.1.head()?);
        (first == second).then_some(first)
    }

    #[inline(always)]
    unsafe fn read(self) -> Self::Item {
        // SAFETY: as the caller promises.
        unsafe { (self.0.read(), self.1.read()) }
    }

    #[inline(always)]
    fn no_leaf<const WIDTH: usize>() -> Self::Leaf<WIDTH> {
        (A::no_leaf(), B::no_leaf())
    }

    #[inline(always)]
    fn items<const WIDTH: usize>((first, second): Self::Leaf<WIDTH>) -> [Self::Item; WIDTH] {
        let (first, second) = (by_words(A::items(first)), by_words(B::items(second)));
        from_fn(|index| (first[index], second[index]))
    }

    #[inline(always)]
    unsafe fn load<const WIDTH: usize>(self) -> Self::Leaf<WIDTH> {
        // SAFETY: as the caller promises.
        unsafe { (self.0.load(), self.1.load()) }
    }

    #[inline(always)]
    unsafe fn load_each<const WIDTH: usize>(self) -> Self::Leaf<WIDTH> {
        // SAFETY: as the caller promises.
        unsafe { (self.0.load_each(), self.1.load_each()) }
    }

    #[inline(always)]
    unsafe fn load_some<const WIDTH: usize>(self, count: u32) -> Self::Leaf<WIDTH> {
        // SAFETY: as the caller promises.
        unsafe { (self.0.load_some(count), self.1.load_some(count)) }
    }

    #[inline(always)]
    unsafe fn load_anywhere<const WIDTH: usize>(self) -> Self::Leaf<WIDTH> {
        // SAFETY: as the caller promises.
        unsafe { (self.0.load_anywhere(), self.1.load_anywhere()) }
    }

    #[inline(always)]
    unsafe fn load_all<const WIDTH: usize, const N: usize>(
        self,
        ahead: impl Fn(usize) -> usize,
    ) -> [Self::Leaf<WIDTH>; N] {
        // SAFETY: as the caller promises.
        let (first, second): ([_; N], [_; N]) = unsafe { (self.0.load_all(&ahead), self.1.load_all(&ahead)) };
        from_fn(|leaf| (first[leaf], second[leaf]))
    }
}

/// An input that is loaded item by item, at any address.
#[derive(Clone, Copy)]
pub(crate) struct OneByOne<P>(pub P);

impl<P: Input> Input for OneByOne<P> {
    type Item = P::Item;
    leaves_of_items! {}

    const BYTES: usize = P::BYTES;
    const IS_NARROW: bool = false;

    fn parameters(&self, parameters: &mut Parameters) {
        self.0.parameters(parameters);
    }

    fn arrays(&self, each: &mut dyn FnMut(u64, usize)) {
        self.0.arrays(each);
    }

    fn at(place: &mut dyn FnMut(usize) -> usize) -> Self {
        Self(P::at(place))
    }

    #[inline(always)]
    fn zeroed() -> P::Item {
        P::zeroed()
    }

    #[inline(always)]
    fn offset(self, count: usize) -> Self {
        Self(self.0.offset(count))
    }

    #[inline(always)]
    fn head(self) -> Option<u32> {
        Some(0)
    }

    #[inline(always)]
    unsafe fn read(self) -> P::Item {
        // SAFETY: as the caller promises.
        unsafe { self.0.read() }
    }

    #[inline(always)]
    unsafe fn load<const WIDTH: usize>(self) -> [P::Item; WIDTH] {
        // SAFETY: as the caller promises.
        unsafe { self.load_each() }
    }
}
