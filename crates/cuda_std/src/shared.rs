//! Shared memory: one array for all threads of a block.

use crate::on_device;
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
use core::marker::PhantomData;
#[cfg(target_arch = "nvptx64")]
use core::mem::transmute_copy;

/// An array in the block's shared memory, made by [`shared_array!`](crate::shared_array).
///
/// It holds the array's 32-bit address in the shared window, and its accesses are `ld.shared` and `st.shared`: through
/// a generic pointer they would cost an address check each, and a volatile one would become a strong access at system
/// scope, several times slower.
pub struct Shared<T> {
    address: u32,
    element: PhantomData<*mut T>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

/// Allocates `[T; N]` in the block's shared memory, 16-byte aligned and uninitialised, and gives its
/// [`Shared`](crate::shared::Shared).
///
/// The length may depend on the generic parameters of the function around it. As in CUDA C++, each place in the compiled
/// kernel is one allocation for the whole launch: put it before any loop and branch. An array larger than 48 KiB is
/// refused by `ptxas`.
#[macro_export]
macro_rules! shared_array {
    ($element:ty; $length:expr) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            let address: u32;
            // SAFETY: declares an array in a scope of its own and takes its address. (PTX ISA, "Shared State Space": the
            // lifetime of a shared variable is the block's, wherever it is declared.)
            unsafe {
                ::core::arch::asm!(
                    "{{ .shared .align 16 .b8 shared_array[{size}]; mov.u32 {address}, shared_array; }}",
                    size = const $length * ::core::mem::size_of::<$element>(),
                    address = out(reg32) address,
                    options(nomem, nostack),
                );
                $crate::shared::Shared::<$element>::at(address)
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        $crate::shared::Shared::<$element>::on_host($length)
    }};
}

/// One load of the element's size: `$instruction` without its type.
#[cfg(target_arch = "nvptx64")]
macro_rules! load {
    ($array:expr, $index:expr, $instruction:literal) => {
        load!($array, $index, $instruction, 1 => u8 reg16 "u8", 2 => u16 reg16 "u16", 4 => u32 reg32 "u32", 8 => u64 reg64 "u64")
    };
    ($array:expr, $index:expr, $instruction:literal, $($size:literal => $word:ident $class:ident $suffix:literal),*) => {{
        let address = $array.address_of($index);
        match size_of::<T>() {
            $($size => {
                let word: $word;
                asm!(concat!($instruction, ".", $suffix, " {}, [{}];"), out($class) word, in(reg32) address, options(nostack));
                transmute_copy(&word)
            })*
            _ => unreachable!(),
        }
    }};
}

/// One store of the element's size: `$instruction` without its type.
#[cfg(target_arch = "nvptx64")]
macro_rules! store {
    ($array:expr, $index:expr, $value:expr, $instruction:literal) => {
        store!($array, $index, $value, $instruction, 1 => u8 reg16 "u8", 2 => u16 reg16 "u16", 4 => u32 reg32 "u32", 8 => u64 reg64 "u64")
    };
    ($array:expr, $index:expr, $value:expr, $instruction:literal, $($size:literal => $word:ident $class:ident $suffix:literal),*) => {{
        let address = $array.address_of($index);
        match size_of::<T>() {
            $($size => {
                let word: $word = transmute_copy(&$value);
                asm!(concat!($instruction, ".", $suffix, " [{}], {};"), in(reg32) address, in($class) word, options(nostack));
            })*
            _ => unreachable!(),
        }
    }};
}

impl<T: Copy> Shared<T> {
    /// The array at an address of the shared window.
    ///
    /// # Safety
    ///
    /// An array of `T` lies there, aligned to 16 bytes.
    #[doc(hidden)]
    #[inline(always)]
    pub const unsafe fn at(address: u32) -> Self {
        Self { address, element: PhantomData }
    }

    /// What [`shared_array!`](crate::shared_array) is where there is no shared memory: a panic.
    #[doc(hidden)]
    pub fn on_host(_length: usize) -> Self {
        on_device!(unreachable!())
    }

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn address_of(self, index: u32) -> u32 {
        const { assert!(matches!(size_of::<T>(), 1 | 2 | 4 | 8), "an element has 1, 2, 4 or 8 bytes") };
        self.address + index * size_of::<T>() as u32
    }

    /// Element `index`.
    ///
    /// # Safety
    ///
    /// `index` is in bounds, the element was written, and no other thread writes it without a barrier between.
    #[inline(always)]
    pub unsafe fn read(self, index: u32) -> T {
        // SAFETY: as the caller vouches.
        on_device!(unsafe { load!(self, index, "ld.shared") })
    }

    /// Sets element `index`.
    ///
    /// # Safety
    ///
    /// `index` is in bounds, and no other thread reads or writes the element without a barrier between.
    #[inline(always)]
    pub unsafe fn write(self, index: u32, value: T) {
        // SAFETY: as the caller vouches.
        on_device!(unsafe { store!(self, index, value, "st.shared") })
    }

    /// As [`read`](Self::read), `volatile`: neither skipped nor moved across other volatile accesses.
    ///
    /// # Safety
    ///
    /// As for [`read`](Self::read).
    #[inline(always)]
    pub unsafe fn read_volatile(self, index: u32) -> T {
        // SAFETY: as the caller vouches.
        on_device!(unsafe { load!(self, index, "ld.volatile.shared") })
    }

    /// As [`write`](Self::write), `volatile`.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    #[inline(always)]
    pub unsafe fn write_volatile(self, index: u32, value: T) {
        // SAFETY: as the caller vouches.
        on_device!(unsafe { store!(self, index, value, "st.volatile.shared") })
    }

    /// A generic pointer to element 0, which is what rust-cuda's `shared_array!` gives.
    #[inline(always)]
    pub fn as_mut_ptr(self) -> *mut T {
        on_device! {
            let pointer: *mut T;
            // SAFETY: converts an address.
            unsafe {
                asm!(
                    "cvta.shared.u64 {}, {};", out(reg64) pointer, in(reg64) u64::from(self.address),
                    options(pure, nomem, nostack),
                )
            };
            pointer
        }
    }
}
