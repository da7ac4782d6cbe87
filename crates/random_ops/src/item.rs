//! The items to reduce.

use bytemuck::{Pod, Zeroable};

/// An item type.
pub trait Value: Copy + 'static {
    /// Bits that differ between different items.
    fn bits(self) -> u64;
}

macro_rules! numbers {
    ($($type:ident: $item:ident => $bits:expr;)*) => {$(
        impl Value for $type {
            #[inline(always)]
            fn bits(self) -> u64 {
                let $item = self;
                $bits.into()
            }
        }
    )*};
}

numbers! {
    u8: item => item;
    u16: item => item;
    u32: item => item;
    u64: item => item;
    f32: item => item.to_bits();
    f64: item => item.to_bits();
}

impl<A: Value, B: Value> Value for (A, B) {
    #[inline(always)]
    fn bits(self) -> u64 {
        self.0.bits().wrapping_mul(0x94d0_49bb_1331_11eb) ^ self.1.bits()
    }
}

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident [$word:ident; $len:literal];)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name(pub [$word; $len]);

        impl Value for $name {
            #[inline(always)]
            fn bits(self) -> u64 {
                self.0.into_iter().fold(0, |bits, word| (word, bits.rotate_left(24)).bits())
            }
        }
    )*};
}

structs! {
    /// 3 bytes.
    Colour [u8; 3];
    /// 8 bytes, aligned to 4.
    Point [f32; 2];
    /// 12 bytes.
    Place [f32; 3];
    /// 24 bytes, more than one load.
    Triple [u64; 3];
}
