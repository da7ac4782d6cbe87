//! Vector access to global memory.

macro_rules! loads {
    ($($(#[$doc:meta])* $name:ident $aligned:ident $bytes:literal;)*) => {$(
        #[derive(Clone, Copy)]
        #[repr(C, align($bytes))]
        struct $aligned<V>(V);

        $(#[$doc])*
        ///
        /// # Safety
        ///
        #[doc = concat!("`pointer` is valid for a read of `V` and aligned to ", stringify!($bytes), " bytes,")]
        /// and no other thread writes there meanwhile.
        ///
        /// # Panics
        ///
        /// If `V` has another size.
        #[inline(always)]
        pub unsafe fn $name<V: Copy>(pointer: *const V) -> V {
            assert!(size_of::<V>() == $bytes, "the load is for a value of another size");
            // SAFETY: as the caller vouches.
            unsafe { pointer.cast::<$aligned<V>>().read().0 }
        }
    )*};
}

loads! {
    /// Reads 16 bytes at `pointer` in one instruction: `ld.global.v4.b32` or `ld.global.v2.b64`, if the
    /// pointer comes from a kernel argument.
    load_16_bytes Aligned16 16;
    /// Reads 8 bytes at `pointer` in one instruction, as [`load_16_bytes`].
    load_8_bytes Aligned8 8;
    /// Reads 4 bytes at `pointer` in one instruction, as [`load_16_bytes`].
    load_4_bytes Aligned4 4;
}
