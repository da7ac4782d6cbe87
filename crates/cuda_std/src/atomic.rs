//! Atomics with a memory order and a scope, as CUDA has them.
//!
//! `core`'s atomics have no scope: on a GPU each is at system scope. Here `Atomic…` is at device scope,
//! `BlockAtomic…` at block scope, and `SystemAtomic…` at system scope, which spans the host and all devices.
//! Each operation is one of the PTX ISA's `ld`, `st` and `atom` ("Parallel Synchronization and Communication
//! Instructions") and needs sm_70. A sequentially consistent access is a fence (`fence.sc`) followed by an
//! acquire-release access, as the PTX memory model defines it.

use crate::on_device;
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

/// Emits `$instruction.ORDER.$rest` for the given order. Orders are constants after inlining, so one arm
/// remains.
#[cfg(target_arch = "nvptx64")]
macro_rules! ordered {
    ($order:expr, $scope:literal, $instruction:literal, $rest:expr, $($operand:tt)*) => {
        match $order {
            Ordering::Relaxed => asm!(concat!($instruction, ".relaxed.", $scope, $rest), $($operand)*),
            Ordering::Acquire => asm!(concat!($instruction, ".acquire.", $scope, $rest), $($operand)*),
            Ordering::Release => asm!(concat!($instruction, ".release.", $scope, $rest), $($operand)*),
            Ordering::AcqRel => asm!(concat!($instruction, ".acq_rel.", $scope, $rest), $($operand)*),
            _ => {
                asm!(concat!("fence.sc.", $scope, ";"), options(nostack));
                asm!(concat!($instruction, ".acq_rel.", $scope, $rest), $($operand)*)
            }
        }
    };
}

macro_rules! fetch {
    ($value:ident $class:ident $scope:literal; $($(#[$doc:meta])* $method:ident = $instruction:literal;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $method(&self, value: $value, order: Ordering) -> $value {
            on_device! {
                let old;
                // SAFETY: the address is that of a live atomic of this width.
                unsafe {
                    ordered!(
                        order, $scope, "atom", concat!(".", $instruction, " {}, [{}], {};"),
                        out($class) old, in(reg64) self.value.get(), in($class) value, options(nostack)
                    )
                };
                old
            }
        }
    )*};
}

macro_rules! atomic {
    ($name:ident, $value:ident, $class:ident, $bits:literal, $scope:literal, $span:literal; $($fetch:tt)*) => {
        #[doc = concat!("An `", stringify!($value), "` that threads of ", $span, " share.")]
        #[repr(transparent)]
        pub struct $name {
            value: UnsafeCell<$value>,
        }

        // SAFETY: every access is atomic.
        unsafe impl Sync for $name {}

        impl $name {
            /// An atomic that holds `value`.
            pub const fn new(value: $value) -> Self {
                Self { value: UnsafeCell::new(value) }
            }

            /// The memory at `pointer`, as an atomic.
            ///
            /// # Safety
            ///
            /// `pointer` is valid and aligned for `'a`. During `'a`, every access to the memory is atomic, at
            /// this scope or a wider one.
            #[inline(always)]
            pub const unsafe fn from_ptr<'a>(pointer: *mut $value) -> &'a Self {
                // SAFETY: the type is transparent; the caller vouches for the rest.
                unsafe { &*pointer.cast() }
            }

            /// The value. `order` is `Relaxed`, `Acquire` or `SeqCst`.
            ///
            /// # Panics
            ///
            /// If `order` is another one, as in `core`.
            #[inline(always)]
            pub fn load(&self, order: Ordering) -> $value {
                on_device! {
                    let value;
                    // SAFETY: the address is that of a live atomic of this width.
                    unsafe {
                        match order {
                            Ordering::Relaxed => asm!(
                                concat!("ld.relaxed.", $scope, ".", $bits, " {}, [{}];"),
                                out($class) value, in(reg64) self.value.get(), options(nostack)
                            ),
                            Ordering::Acquire | Ordering::SeqCst => {
                                if order == Ordering::SeqCst {
                                    asm!(concat!("fence.sc.", $scope, ";"), options(nostack));
                                }
                                asm!(
                                    concat!("ld.acquire.", $scope, ".", $bits, " {}, [{}];"),
                                    out($class) value, in(reg64) self.value.get(), options(nostack)
                                )
                            }
                            _ => panic!("a load cannot release"),
                        }
                    };
                    value
                }
            }

            /// Sets the value. `order` is `Relaxed`, `Release` or `SeqCst`.
            ///
            /// # Panics
            ///
            /// If `order` is another one, as in `core`.
            #[inline(always)]
            pub fn store(&self, value: $value, order: Ordering) {
                on_device! {
                    // SAFETY: the address is that of a live atomic of this width.
                    unsafe {
                        match order {
                            Ordering::Relaxed => asm!(
                                concat!("st.relaxed.", $scope, ".", $bits, " [{}], {};"),
                                in(reg64) self.value.get(), in($class) value, options(nostack)
                            ),
                            Ordering::Release | Ordering::SeqCst => {
                                if order == Ordering::SeqCst {
                                    asm!(concat!("fence.sc.", $scope, ";"), options(nostack));
                                }
                                asm!(
                                    concat!("st.release.", $scope, ".", $bits, " [{}], {};"),
                                    in(reg64) self.value.get(), in($class) value, options(nostack)
                                )
                            }
                            _ => panic!("a store cannot acquire"),
                        }
                    }
                }
            }

            /// Sets the value to `new` if it equals `current` bit by bit; returns the old value.
            #[inline(always)]
            pub fn compare_and_swap(&self, current: $value, new: $value, order: Ordering) -> $value {
                on_device! {
                    let old;
                    // SAFETY: the address is that of a live atomic of this width.
                    unsafe {
                        ordered!(
                            order, $scope, "atom", concat!(".cas.", $bits, " {}, [{}], {}, {};"),
                            out($class) old, in(reg64) self.value.get(), in($class) current, in($class) new,
                            options(nostack)
                        )
                    };
                    old
                }
            }

            fetch! { $value $class $scope; $($fetch)* }
        }
    };
}

macro_rules! atomics {
    ($($name:ident $block:ident $system:ident: $value:ident $class:ident $bits:literal {$($fetch:tt)*})*) => {$(
        atomic! { $name, $value, $class, $bits, "gpu", "one device"; $($fetch)* }
        atomic! { $block, $value, $class, $bits, "cta", "one block"; $($fetch)* }
        atomic! { $system, $value, $class, $bits, "sys", "the host and all devices"; $($fetch)* }
    )*};
}

atomics! {
    AtomicU32 BlockAtomicU32 SystemAtomicU32: u32 reg32 "b32" {
        /// Sets the value; returns the old one.
        swap = "exch.b32";
        /// Adds `value`, wrapping; returns the old value.
        fetch_add = "add.u32";
        /// Takes the bitwise and; returns the old value.
        fetch_and = "and.b32";
        /// Takes the bitwise or; returns the old value.
        fetch_or = "or.b32";
        /// Takes the bitwise exclusive or; returns the old value.
        fetch_xor = "xor.b32";
        /// Takes the smaller value; returns the old one.
        fetch_min = "min.u32";
        /// Takes the larger value; returns the old one.
        fetch_max = "max.u32";
        /// Adds 1, or sets 0 if the value is the argument or larger; returns the old value (CUDA's
        /// `atomicInc`).
        fetch_inc = "inc.u32";
        /// Subtracts 1, or sets the argument if the value is 0 or larger than the argument; returns the old
        /// value (CUDA's `atomicDec`).
        fetch_dec = "dec.u32";
    }
    AtomicI32 BlockAtomicI32 SystemAtomicI32: i32 reg32 "b32" {
        /// Sets the value; returns the old one.
        swap = "exch.b32";
        /// Adds `value`, wrapping; returns the old value.
        fetch_add = "add.s32";
        /// Takes the smaller value; returns the old one.
        fetch_min = "min.s32";
        /// Takes the larger value; returns the old one.
        fetch_max = "max.s32";
    }
    AtomicU64 BlockAtomicU64 SystemAtomicU64: u64 reg64 "b64" {
        /// Sets the value; returns the old one.
        swap = "exch.b64";
        /// Adds `value`, wrapping; returns the old value.
        fetch_add = "add.u64";
        /// Takes the bitwise and; returns the old value.
        fetch_and = "and.b64";
        /// Takes the bitwise or; returns the old value.
        fetch_or = "or.b64";
        /// Takes the bitwise exclusive or; returns the old value.
        fetch_xor = "xor.b64";
        /// Takes the smaller value; returns the old one.
        fetch_min = "min.u64";
        /// Takes the larger value; returns the old one.
        fetch_max = "max.u64";
    }
    AtomicI64 BlockAtomicI64 SystemAtomicI64: i64 reg64 "b64" {
        /// Sets the value; returns the old one.
        swap = "exch.b64";
        /// Adds `value`, wrapping; returns the old value. The bits are those of unsigned addition.
        fetch_add = "add.u64";
        /// Takes the smaller value; returns the old one.
        fetch_min = "min.s64";
        /// Takes the larger value; returns the old one.
        fetch_max = "max.s64";
    }
    AtomicF32 BlockAtomicF32 SystemAtomicF32: f32 reg32 "b32" {
        /// Sets the value; returns the old one.
        swap = "exch.b32";
        /// Adds, rounding to nearest; returns the old value. Subnormals may become zero (PTX ISA, "atom": on
        /// global memory, `.f32` flushes them).
        fetch_add = "add.f32";
    }
    AtomicF64 BlockAtomicF64 SystemAtomicF64: f64 reg64 "b64" {
        /// Sets the value; returns the old one.
        swap = "exch.b64";
        /// Adds, rounding to nearest; returns the old value.
        fetch_add = "add.f64";
    }
}
