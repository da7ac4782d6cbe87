//! Single instructions that `core` has no name for, under CUDA's names.

use crate::on_device;
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Tells `ptxas` not to unroll a loop. Call it first in the loop's body. (PTX ISA, "Pragma Strings":
/// `nounroll`.)
///
/// A loop that runs once or twice per launch is faster when it is not unrolled, because every instruction has
/// to be fetched from memory.
#[inline(always)]
pub fn no_unroll() {
    // SAFETY: a pragma is not an instruction.
    on_device!(unsafe { asm!(".pragma \"nounroll\";", options(nomem, nostack, preserves_flags)) })
}

/// Returns `value` and hides it from the compiler: a loop that counts to it remains a loop in the PTX.
#[inline(always)]
pub fn opaque(value: u32) -> u32 {
    on_device! {
        let mut value = value;
        // SAFETY: a comment is not an instruction.
        unsafe { asm!("/* {} */", inout(reg32) value, options(nomem, nostack, preserves_flags)) };
        value
    }
}

/// As [`opaque`], but the compiler leaves the value out if nothing uses it.
#[inline(always)]
pub fn in_register(value: u32) -> u32 {
    on_device! {
        let mut value = value;
        // SAFETY: a comment is not an instruction.
        unsafe { asm!("/* {} */", inout(reg32) value, options(pure, nomem, nostack, preserves_flags)) };
        value
    }
}

/// Calls `run`, and keeps the compiler from merging its code with that of another branch.
///
/// If one branch loads several items at once and the other loads them one by one, the compiler would move the
/// last load of both branches behind them, and each branch would wait for it.
#[inline(always)]
pub fn apart<V>(run: impl FnOnce() -> V) -> V {
    // SAFETY: there is no instruction.
    let border = || on_device!(unsafe { asm!("", options(nostack, preserves_flags)) });
    border();
    let value = run();
    border();
    value
}

/// As [`apart`], for loads of all lanes of a warp: ptxas moves no load across the barrier that follows them.
///
/// # Safety
///
/// All lanes of the warp call it together.
#[inline(always)]
pub unsafe fn together<V>(run: impl FnOnce() -> V) -> V {
    let value = apart(run);
    // SAFETY: as the caller promises.
    let barrier = || on_device!(unsafe { asm!("bar.warp.sync 0xffffffff;", options(nostack)) });
    barrier();
    value
}

/// As [`apart`], for loads: ptxas issues all loads before it computes anything of their values. A branch follows the loads. No thread
/// takes it, but ptxas moves no computation across it. The barrier of [`together`] has no such effect in code without branches, where
/// ptxas removes it.
#[inline(always)]
pub fn ahead<V>(run: impl FnOnce() -> V) -> V {
    let value = apart(run);
    let branch = |block: u32| {
        on_device!({
            let _ = block;
            // SAFETY: no block has this number, so no thread exits.
            unsafe {
                asm!(
                    "{{ .reg .pred never; setp.eq.u32 never, {}, 0xffffffff; @never exit; }}",
                    in(reg32) block,
                    options(nostack),
                );
            }
        })
    };
    branch(crate::thread::block_idx_x());
    value
}

macro_rules! instructions {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty => $class:ident),*) -> $result:ty, $out:ident = $instruction:literal;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($($argument: $type),*) -> $result {
            on_device! {
                let result;
                // SAFETY: computes registers from registers.
                unsafe { asm!($instruction, out($out) result, $(in($class) $argument,)* options(pure, nomem, nostack)) };
                result
            }
        }
    )*};
}

instructions! {
    /// Returns the dot product of the four signed bytes of `a` and `b`, plus `c`. (PTX ISA, "dp4a".)
    dp4a_i32(a: u32 => reg32, b: u32 => reg32, c: i32 => reg32) -> i32, reg32 = "dp4a.s32.s32 {}, {}, {}, {};";
    /// Returns the dot product of the four unsigned bytes of `a` and `b`, plus `c`. (PTX ISA, "dp4a".)
    dp4a_u32(a: u32 => reg32, b: u32 => reg32, c: u32 => reg32) -> u32, reg32 = "dp4a.u32.u32 {}, {}, {}, {};";
    /// Returns the dot product of the signed halves of `a` and the two lower signed bytes of `b`, plus `c`.
    /// (PTX ISA, "dp2a".)
    dp2a_lo_i32(a: u32 => reg32, b: u32 => reg32, c: i32 => reg32) -> i32, reg32 = "dp2a.lo.s32.s32 {}, {}, {}, {};";
    /// Returns the dot product of the unsigned halves of `a` and the two lower unsigned bytes of `b`, plus
    /// `c`. (PTX ISA, "dp2a".)
    dp2a_lo_u32(a: u32 => reg32, b: u32 => reg32, c: u32 => reg32) -> u32, reg32 = "dp2a.lo.u32.u32 {}, {}, {}, {};";
    /// Returns the byte of `word` that starts at `bit`. (PTX ISA, "bfe".)
    byte_of(word: u32 => reg32, bit: u32 => reg32) -> u32, reg32 = "bfe.u32 {}, {}, {}, 8;";
    /// Returns the lower half of the product, computed in 32 bits even if the compiler would use an equal
    /// 64-bit product. (PTX ISA, "mul".)
    mul_lo_i32(a: i32 => reg32, b: i32 => reg32) -> i32, reg32 = "mul.lo.s32 {}, {}, {};";
    /// Returns the lower half of the product, as [`mul_lo_i32`].
    mul_lo_u32(a: u32 => reg32, b: u32 => reg32) -> u32, reg32 = "mul.lo.u32 {}, {}, {};";
    /// Returns the smaller; −0.0 is below +0.0. The result is NaN only if both are. (PTX ISA, "min".)
    fmin_f32(a: f32 => reg32, b: f32 => reg32) -> f32, reg32 = "min.f32 {}, {}, {};";
    /// Returns the larger; −0.0 is below +0.0. The result is NaN only if both are. (PTX ISA, "max".)
    fmax_f32(a: f32 => reg32, b: f32 => reg32) -> f32, reg32 = "max.f32 {}, {}, {};";
    /// Returns the smaller, as [`fmin_f32`].
    fmin_f64(a: f64 => reg64, b: f64 => reg64) -> f64, reg64 = "min.f64 {}, {}, {};";
    /// Returns the larger, as [`fmax_f32`].
    fmax_f64(a: f64 => reg64, b: f64 => reg64) -> f64, reg64 = "max.f64 {}, {}, {};";
    /// Rounds to an integer, towards zero. (PTX ISA, "cvt".)
    trunc_f32(a: f32 => reg32) -> f32, reg32 = "cvt.rzi.f32.f32 {}, {};";
    /// Rounds to an integer, as [`trunc_f32`].
    trunc_f64(a: f64 => reg64) -> f64, reg64 = "cvt.rzi.f64.f64 {}, {};";
    /// Rounds to an integer, downwards. (PTX ISA, "cvt".)
    floor_f32(a: f32 => reg32) -> f32, reg32 = "cvt.rmi.f32.f32 {}, {};";
    /// Rounds to an integer, as [`floor_f32`].
    floor_f64(a: f64 => reg64) -> f64, reg64 = "cvt.rmi.f64.f64 {}, {};";
    /// Rounds to an integer, upwards. (PTX ISA, "cvt".)
    ceil_f32(a: f32 => reg32) -> f32, reg32 = "cvt.rpi.f32.f32 {}, {};";
    /// Rounds to an integer, as [`ceil_f32`].
    ceil_f64(a: f64 => reg64) -> f64, reg64 = "cvt.rpi.f64.f64 {}, {};";
    /// Rounds to the nearest integer, ties to even. (PTX ISA, "cvt".)
    round_ties_even_f32(a: f32 => reg32) -> f32, reg32 = "cvt.rni.f32.f32 {}, {};";
    /// Rounds to an integer, as [`round_ties_even_f32`].
    round_ties_even_f64(a: f64 => reg64) -> f64, reg64 = "cvt.rni.f64.f64 {}, {};";
    /// Returns the square root, correctly rounded. (PTX ISA, "sqrt".)
    sqrt_f32(a: f32 => reg32) -> f32, reg32 = "sqrt.rn.f32 {}, {};";
    /// Returns the square root, correctly rounded. (PTX ISA, "sqrt".)
    sqrt_f64(a: f64 => reg64) -> f64, reg64 = "sqrt.rn.f64 {}, {};";
    /// Returns `a · b + c`, rounded once. (PTX ISA, "fma".)
    fma_f32(a: f32 => reg32, b: f32 => reg32, c: f32 => reg32) -> f32, reg32 = "fma.rn.f32 {}, {}, {}, {};";
    /// Returns `a · b + c`, rounded once. (PTX ISA, "fma".)
    fma_f64(a: f64 => reg64, b: f64 => reg64, c: f64 => reg64) -> f64, reg64 = "fma.rn.f64 {}, {}, {}, {};";
    /// Adds `b` to the upper 32 bits of `a`. (PTX ISA, "mov": a 64-bit register as two 32-bit registers.)
    add_to_upper_word(a: f64 => reg64, b: u32 => reg32) -> f64, reg64 =
        "{{ .reg .b32 lower, upper; mov.b64 {{lower, upper}}, {1}; add.u32 upper, upper, {2}; mov.b64 {0}, {{lower, upper}}; }}";
    /// Returns the number whose upper 16 bits these are, and whose others are 0. (PTX ISA, "mov": two 16-bit registers as a 32-bit one.
    /// A shift takes two instructions of the machine, if the bits are the upper half of a register.)
    upper_half(bits: u16 => reg16) -> f32, reg32 =
        "{{ .reg .b16 zero; mov.b16 zero, 0; mov.b32 {0}, {{zero, {1}}}; }}";
    /// Returns the bits of the nearest `f16`, ties to even. (PTX ISA, "cvt".)
    f32_to_f16_bits(a: f32 => reg32) -> u16, reg16 = "cvt.rn.f16.f32 {}, {};";
    /// Returns the value of the `f16` with these bits. (PTX ISA, "cvt".)
    f16_bits_to_f32(a: u16 => reg16) -> f32, reg32 = "cvt.f32.f16 {}, {};";
}
