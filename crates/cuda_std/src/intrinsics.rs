//! Single instructions that `core` has no name for, under CUDA's names.

use crate::on_device;
#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// Says to `ptxas` that it must not unroll a loop: the first thing in the loop's body. (PTX ISA, "Pragma Strings":
/// `nounroll`.) What runs once or twice a launch is faster without: each instruction comes from memory.
#[inline(always)]
pub fn no_unroll() {
    // SAFETY: a remark to the assembler.
    on_device!(unsafe { asm!(".pragma \"nounroll\";", options(nomem, nostack, preserves_flags)) })
}

/// The value, of which the compiler knows no more: a loop that counts to it stays one in the PTX.
#[inline(always)]
pub fn opaque(value: u32) -> u32 {
    on_device! {
        let mut value = value;
        // SAFETY: it is no instruction.
        unsafe { asm!("/* {} */", inout(reg32) value, options(nomem, nostack, preserves_flags)) };
        value
    }
}

/// What `run` returns, of which the compiler makes nothing one with what another branch does: where one loads several items at once and the other one by
/// one, it would load the last for both after them, and wait.
#[inline(always)]
pub fn apart<V>(run: impl FnOnce() -> V) -> V {
    // SAFETY: it is no instruction.
    let border = || on_device!(unsafe { asm!("", options(nostack, preserves_flags)) });
    border();
    let value = run();
    border();
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
    /// The dot product of the four signed bytes of `a` and of `b`, plus `c`. (PTX ISA, "dp4a".)
    dp4a_i32(a: u32 => reg32, b: u32 => reg32, c: i32 => reg32) -> i32, reg32 = "dp4a.s32.s32 {}, {}, {}, {};";
    /// The dot product of the four unsigned bytes of `a` and of `b`, plus `c`. (PTX ISA, "dp4a".)
    dp4a_u32(a: u32 => reg32, b: u32 => reg32, c: u32 => reg32) -> u32, reg32 = "dp4a.u32.u32 {}, {}, {}, {};";
    /// The dot product of the two signed halves of `a` and the two lower signed bytes of `b`, plus `c`. (PTX ISA, "dp2a".)
    dp2a_lo_i32(a: u32 => reg32, b: u32 => reg32, c: i32 => reg32) -> i32, reg32 = "dp2a.lo.s32.s32 {}, {}, {}, {};";
    /// The dot product of the two unsigned halves of `a` and the two lower unsigned bytes of `b`, plus `c`. (PTX ISA,
    /// "dp2a".)
    dp2a_lo_u32(a: u32 => reg32, b: u32 => reg32, c: u32 => reg32) -> u32, reg32 = "dp2a.lo.u32.u32 {}, {}, {}, {};";
    /// The byte of a word that begins with this bit. (PTX ISA, "bfe".)
    byte_of(word: u32 => reg32, bit: u32 => reg32) -> u32, reg32 = "bfe.u32 {}, {}, {}, 8;";
    /// The lower half of the product: in 32 bits also where the compiler sees that 64 would give the same. (PTX ISA, "mul".)
    mul_lo_i32(a: i32 => reg32, b: i32 => reg32) -> i32, reg32 = "mul.lo.s32 {}, {}, {};";
    /// The lower half of the product, as [`mul_lo_i32`].
    mul_lo_u32(a: u32 => reg32, b: u32 => reg32) -> u32, reg32 = "mul.lo.u32 {}, {}, {};";
    /// The smaller; −0.0 is below +0.0, and a NaN counts only beside another. (PTX ISA, "min".)
    fmin_f32(a: f32 => reg32, b: f32 => reg32) -> f32, reg32 = "min.f32 {}, {}, {};";
    /// The larger; −0.0 is below +0.0, and a NaN counts only beside another. (PTX ISA, "max".)
    fmax_f32(a: f32 => reg32, b: f32 => reg32) -> f32, reg32 = "max.f32 {}, {}, {};";
    /// The smaller, as [`fmin_f32`].
    fmin_f64(a: f64 => reg64, b: f64 => reg64) -> f64, reg64 = "min.f64 {}, {}, {};";
    /// The larger, as [`fmax_f32`].
    fmax_f64(a: f64 => reg64, b: f64 => reg64) -> f64, reg64 = "max.f64 {}, {}, {};";
    /// The square root, correctly rounded. (PTX ISA, "sqrt".)
    sqrt_f64(a: f64 => reg64) -> f64, reg64 = "sqrt.rn.f64 {}, {};";
    /// `a · b + c`, rounded once. (PTX ISA, "fma".)
    fma_f32(a: f32 => reg32, b: f32 => reg32, c: f32 => reg32) -> f32, reg32 = "fma.rn.f32 {}, {}, {}, {};";
    /// `a · b + c`, rounded once. (PTX ISA, "fma".)
    fma_f64(a: f64 => reg64, b: f64 => reg64, c: f64 => reg64) -> f64, reg64 = "fma.rn.f64 {}, {}, {}, {};";
    /// The double with this added to its upper 32 bits. (PTX ISA, "mov": a register of 64 bits as two of 32.)
    add_to_upper_word(a: f64 => reg64, b: u32 => reg32) -> f64, reg64 =
        "{{ .reg .b32 lower, upper; mov.b64 {{lower, upper}}, {1}; add.u32 upper, upper, {2}; mov.b64 {0}, {{lower, upper}}; }}";
    /// The bits of the nearest `f16`, ties to even. (PTX ISA, "cvt".)
    f32_to_f16_bits(a: f32 => reg32) -> u16, reg16 = "cvt.rn.f16.f32 {}, {};";
    /// The value of an `f16` with these bits. (PTX ISA, "cvt".)
    f16_bits_to_f32(a: u16 => reg16) -> f32, reg32 = "cvt.f32.f16 {}, {};";
}
