//! Atomics with a memory order and a scope, as CUDA has them.
//!
//! `core`'s atomics know no scope, so on a GPU each is at system scope; here `Atomic…` is at device scope, `BlockAtomic…`
//! at that of the thread's block, and `SystemAtomic…` spans devices and host. Each maps to `ld`, `st`, `atom` of the PTX
//! ISA ("Parallel Synchronization and Communication Instructions") and needs sm_70. Sequential consistency is a fence
//! (`fence.sc`) before an acquire-release access, as that ISA's memory model says.

use crate::on_device;
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

/// Emits `$instruction.ORDER.$rest` for the order asked for. Orders are constants after inlining, so one arm is left.
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
            /// `pointer` is valid and aligned for `'a`, and meanwhile every access to it is atomic at this scope or wider.
            #[inline(always)]
            pub const unsafe fn from_ptr<'a>(pointer: *mut $value) -> &'a Self {
                // SAFETY: the type is transparent; the rest is as the caller vouches.
                unsafe { &*pointer.cast() }
            }

            /// The value. `order` is `Relaxed`, `Acquire` or `SeqCst`.
            ///
            /// # Panics
            ///
            /// With another order, as `core`'s do.
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
            /// With another order, as `core`'s do.
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

            /// Sets the value to `new` where it is `current`, compared as bits; returns what it was.
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
        /// Sets the value and returns what it was.
        swap = "exch.b32";
        /// Adds, wrapping, and returns what the value was.
        fetch_add = "add.u32";
        /// Takes the bitwise and, and returns what the value was.
        fetch_and = "and.b32";
        /// Takes the bitwise or, and returns what the value was.
        fetch_or = "or.b32";
        /// Takes the bitwise exclusive or, and returns what the value was.
        fetch_xor = "xor.b32";
        /// Takes the smaller, and returns what the value was.
        fetch_min = "min.u32";
        /// Takes the larger, and returns what the value was.
        fetch_max = "max.u32";
        /// Adds one, or sets 0 where the value is the argument or more; returns what the value was. (CUDA's `atomicInc`.)
        fetch_inc = "inc.u32";
        /// Takes one off, or sets the argument where the value is 0 or more than it; returns what the value was. (CUDA's
        /// `atomicDec`.)
        fetch_dec = "dec.u32";
    }
    AtomicI32 BlockAtomicI32 SystemAtomicI32: i32 reg32 "b32" {
        /// Sets the value and returns what it was.
        swap = "exch.b32";
        /// Adds, wrapping, and returns what the value was.
        fetch_add = "add.s32";
        /// Takes the smaller, and returns what the value was.
        fetch_min = "min.s32";
        /// Takes the larger, and returns what the value was.
        fetch_max = "max.s32";
    }
    AtomicU64 BlockAtomicU64 SystemAtomicU64: u64 reg64 "b64" {
        /// Sets the value and returns what it was.
        swap = "exch.b64";
        /// Adds, wrapping, and returns what the value was.
        fetch_add = "add.u64";
        /// Takes the bitwise and, and returns what the value was.
        fetch_and = "and.b64";
        /// Takes the bitwise or, and returns what the value was.
        fetch_or = "or.b64";
        /// Takes the bitwise exclusive or, and returns what the value was.
        fetch_xor = "xor.b64";
        /// Takes the smaller, and returns what the value was.
        fetch_min = "min.u64";
        /// Takes the larger, and returns what the value was.
        fetch_max = "max.u64";
    }
    AtomicI64 BlockAtomicI64 SystemAtomicI64: i64 reg64 "b64" {
        /// Sets the value and returns what it was.
        swap = "exch.b64";
        /// Adds, wrapping, and returns what the value was. (The bits are those of the unsigned addition.)
        fetch_add = "add.u64";
        /// Takes the smaller, and returns what the value was.
        fetch_min = "min.s64";
        /// Takes the larger, and returns what the value was.
        fetch_max = "max.s64";
    }
    AtomicF32 BlockAtomicF32 SystemAtomicF32: f32 reg32 "b32" {
        /// Sets the value and returns what it was.
        swap = "exch.b32";
        /// Adds, rounding to nearest, and returns what the value was. Subnormals may become zero (PTX ISA, "atom": on
        /// global memory, `.f32` flushes them).
        fetch_add = "add.f32";
    }
    AtomicF64 BlockAtomicF64 SystemAtomicF64: f64 reg64 "b64" {
        /// Sets the value and returns what it was.
        swap = "exch.b64";
        /// Adds, rounding to nearest, and returns what the value was.
        fetch_add = "add.f64";
    }
}
