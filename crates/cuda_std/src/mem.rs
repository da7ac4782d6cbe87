//! Vector access to global memory.

/// A value aligned to 16 bytes, so that a `#[repr(C)]` array of that size moves in one instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C, align(16))]
pub struct Aligned16<V>(pub V);

/// Reads the 16 bytes at `pointer` in one instruction (`ld.global.v4.b32` or `ld.global.v2.b64` where the pointer comes
/// from a kernel argument).
///
/// # Safety
///
/// `pointer` is valid for a read of `V` and aligned to 16 bytes, and no other thread writes there meanwhile.
#[inline(always)]
pub unsafe fn load_16_bytes<V: Copy>(pointer: *const V) -> V {
    const { assert!(size_of::<V>() == 16, "a 16-byte load needs a value of 16 bytes") };
    // SAFETY: as the caller vouches.
    unsafe { pointer.cast::<Aligned16<V>>().read().0 }
}
