use crate::op::bits::{Bits, Bitwise};
use bytemuck::{Pod, Zeroable};
use num_traits::PrimInt;

/// The bits that are set in an odd number of elements; integers only.
///
/// The result has the elements' type. For no elements it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BitXor;

impl Bitwise for BitXor {
    const NOTHING: u8 = 0;

    #[inline(always)]
    fn of<V: PrimInt>(a: V, b: V) -> V {
        a ^ b
    }
}

forward! { BitXor, "bit_xor", PrimInt: |op| Bits<BitXor> = Bits(*op) }
