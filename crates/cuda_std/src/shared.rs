//! Shared memory: arrays that all threads of a block use.

use crate::on_device;
use bytemuck::Pod;
#[cfg(target_arch = "nvptx64")]
use bytemuck::{bytes_of, bytes_of_mut, cast};
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
use core::marker::PhantomData;

/// An array of plain values in the block's shared memory, made by [`shared_array!`](crate::shared_array).
///
/// The value is the array's 32-bit address in the shared window, and accesses are `ld.shared` and
/// `st.shared`. Through a generic pointer, each access would also check the address, and a volatile access
/// would become a strong access at system scope, which is several times slower.
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

/// Allocates `[T; N]` in the block's shared memory, uninitialised and 16-byte aligned; returns it as
/// [`Shared`](crate::shared::Shared).
///
/// The length may depend on generic parameters of the surrounding function. As in CUDA C++, each use in the
/// compiled kernel is one allocation for the whole launch, so put it before any loop or branch. `ptxas`
/// refuses arrays larger than 48 KiB.
#[macro_export]
macro_rules! shared_array {
    ($element:ty; $length:expr) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            let address: u32;
            // SAFETY: declares an array in a scope of its own and takes its address. A shared variable lives
            // as long as the block, wherever it is declared (PTX ISA, "Shared State Space").
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

/// Declares the block's dynamic shared memory, for [`dynamic_shared`](crate::shared::dynamic_shared): once in a crate
/// of kernels that use it, outside of functions.
#[macro_export]
macro_rules! declare_dynamic_shared {
    () => {
        #[cfg(target_arch = "nvptx64")]
        ::core::arch::global_asm!(".extern .shared .align 16 .b8 dynamic_shared[];");
    };
}

/// Returns the block's dynamic shared memory as an array: its bytes are an argument of the launch. It is
/// 16-byte aligned, and uninitialised. The crate of kernels
/// [declares](crate::declare_dynamic_shared) it; else the driver refuses the kernel.
#[inline(always)]
pub fn dynamic_shared<T: Pod>() -> Shared<T> {
    on_device! {
        let address: u32;
        // SAFETY: takes the address of a variable of the module.
        unsafe {
            asm!("mov.u32 {}, dynamic_shared;", out(reg32) address, options(pure, nomem, nostack, preserves_flags));
            Shared::at(address)
        }
    }
}

/// As [`dynamic_shared`], without its first `bytes` bytes, a multiple of 16.
#[inline(always)]
pub fn dynamic_shared_from<T: Pod>(bytes: u32) -> Shared<T> {
    let Shared { address, element } = dynamic_shared();
    Shared { address: address + bytes, element }
}

/// Loads and stores of plain values: a value of 1, 2, 4 or 8 bytes in one access, others word by word, or
/// byte by byte if their size is not a multiple of 4.
macro_rules! accesses {
    ($name:ident, $load:literal, $store:literal; $($word:ident $class:ident $load_word:ident $store_word:ident;)*) => {
        #[cfg(target_arch = "nvptx64")]
        mod $name {
            use super::*;

            $(
                #[inline(always)]
                unsafe fn $load_word(address: u32) -> $word {
                    let word;
                    // SAFETY: as the caller of `read` vouches.
                    unsafe {
                        asm!(concat!($load, ".", stringify!($word), " {}, [{}];"), out($class) word, in(reg32) address, options(nostack))
                    };
                    word
                }

                #[inline(always)]
                unsafe fn $store_word(address: u32, word: $word) {
                    // SAFETY: as the caller of `write` vouches.
                    unsafe {
                        asm!(concat!($store, ".", stringify!($word), " [{}], {};"), in(reg32) address, in($class) word, options(nostack))
                    };
                }
            )*

            /// # Safety
            ///
            /// A value of type `T` is at the address, aligned to its size, or to the largest power of two
            /// that divides its size.
            #[inline(always)]
            pub unsafe fn read<T: Pod>(address: u32) -> T {
                // SAFETY: as the caller vouches.
                unsafe {
                    match size_of::<T>() {
                        1 => cast(load_u8(address)),
                        2 => cast(load_u16(address)),
                        4 => cast(load_u32(address)),
                        8 => cast(load_u64(address)),
                        size => {
                            let mut value = T::zeroed();
                            let unit = if size.is_multiple_of(4) { 4 } else { 1 };
                            for (part, at) in bytes_of_mut(&mut value).chunks_exact_mut(unit).zip((address..).step_by(unit)) {
                                match part {
                                    [byte] => *byte = load_u8(at),
                                    word => word.copy_from_slice(&load_u32(at).to_le_bytes()),
                                }
                            }
                            value
                        }
                    }
                }
            }

            /// # Safety
            ///
            /// As for [`read`].
            #[inline(always)]
            pub unsafe fn write<T: Pod>(address: u32, value: T) {
                // SAFETY: as the caller vouches.
                unsafe {
                    match size_of::<T>() {
                        1 => store_u8(address, cast(value)),
                        2 => store_u16(address, cast(value)),
                        4 => store_u32(address, cast(value)),
                        8 => store_u64(address, cast(value)),
                        size => {
                            let unit = if size.is_multiple_of(4) { 4 } else { 1 };
                            for (part, at) in bytes_of(&value).chunks_exact(unit).zip((address..).step_by(unit)) {
                                match *part {
                                    [byte] => store_u8(at, byte),
                                    [a, b, c, d] => store_u32(at, u32::from_le_bytes([a, b, c, d])),
                                    _ => {}
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    ($name:ident, $load:literal, $store:literal) => {
        accesses! {
            $name, $load, $store;
            u8 reg16 load_u8 store_u8;
            u16 reg16 load_u16 store_u16;
            u32 reg32 load_u32 store_u32;
            u64 reg64 load_u64 store_u64;
        }
    };
}

accesses! { plain, "ld.shared", "st.shared" }
accesses! { volatile, "ld.volatile.shared", "st.volatile.shared" }

impl<T: Pod> Shared<T> {
    /// The array at an address in the shared window.
    ///
    /// # Safety
    ///
    /// An array of `T` is at the address, aligned to 16 bytes.
    #[doc(hidden)]
    #[inline(always)]
    pub const unsafe fn at(address: u32) -> Self {
        Self { address, element: PhantomData }
    }

    /// [`shared_array!`](crate::shared_array) on the host, which has no shared memory: panics.
    #[doc(hidden)]
    pub fn on_host(_length: usize) -> Self {
        on_device!(unreachable!())
    }

    /// Returns the array from element `index` on.
    #[inline(always)]
    pub fn from(self, index: u32) -> Self {
        Self { address: self.address + index * size_of::<T>() as u32, element: PhantomData }
    }

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn address_of(self, index: u32) -> u32 {
        self.address + index * size_of::<T>() as u32
    }

    /// Reads element `index`.
    ///
    /// # Safety
    ///
    /// `index` is in bounds, the element was written, and a barrier separates the read from other threads'
    /// writes to it.
    #[inline(always)]
    pub unsafe fn read(self, index: u32) -> T {
        // SAFETY: as the caller vouches.
        on_device!(unsafe { plain::read(self.address_of(index)) })
    }

    /// Writes element `index`.
    ///
    /// # Safety
    ///
    /// `index` is in bounds, and a barrier separates the write from other threads' reads and writes of the
    /// element.
    #[inline(always)]
    pub unsafe fn write(self, index: u32, value: T) {
        // SAFETY: as the caller vouches.
        on_device!(unsafe { plain::write(self.address_of(index), value) })
    }

    /// Reads as [`read`](Self::read), but `volatile`: neither removed nor moved across other volatile
    /// accesses.
    ///
    /// # Safety
    ///
    /// As for [`read`](Self::read).
    #[inline(always)]
    pub unsafe fn read_volatile(self, index: u32) -> T {
        // SAFETY: as the caller vouches.
        on_device!(unsafe { volatile::read(self.address_of(index)) })
    }

    /// Writes as [`write`](Self::write), but `volatile`.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    #[inline(always)]
    pub unsafe fn write_volatile(self, index: u32, value: T) {
        // SAFETY: as the caller vouches.
        on_device!(unsafe { volatile::write(self.address_of(index), value) })
    }

    /// Returns a generic pointer to element 0, as rust-cuda's `shared_array!` does.
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

macro_rules! fetch {
    ($($(#[$doc:meta])* $method:ident = $instruction:literal;)*) => {
        impl Shared<u32> {
            $(
                $(#[$doc])*
                ///
                /// # Safety
                ///
                /// `index` is in bounds, the element was written, and a barrier separates this from other
                /// threads' accesses to the element that are not atomic.
                #[inline(always)]
                pub unsafe fn $method(self, index: u32, value: u32) -> u32 {
                    on_device! {
                        let old;
                        // SAFETY: as the caller vouches.
                        unsafe {
                            asm!(
                                concat!("atom.relaxed.cta.shared.", $instruction, " {}, [{}], {};"),
                                out(reg32) old, in(reg32) self.address_of(index), in(reg32) value, options(nostack)
                            )
                        };
                        old
                    }
                }
            )*
        }
    };
}

fetch! {
    /// Adds `value` to element `index`, wrapping; returns the old value. (PTX ISA, "atom".)
    fetch_add = "add.u32";
    /// Takes the bitwise or with element `index`; returns the old value.
    fetch_or = "or.b32";
}
