use crate::op::bits::{Bits, Bitwise};
use bytemuck::{Pod, Zeroable};
use num_traits::PrimInt;

/// The bits that are set in any element; integers only.
///
/// The result has the elements' type. For no elements it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BitOr;

impl Bitwise for BitOr {
    const NOTHING: u8 = 0;

    #[inline(always)]
    fn of<V: PrimInt>(a: V, b: V) -> V {
        a | b
    }
}

forward! { BitOr, "bit_or", PrimInt: |op| Bits<BitOr> = Bits(*op) }
