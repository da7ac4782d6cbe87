use crate::op::bits::{Bits, Bitwise};
use bytemuck::{Pod, Zeroable};
use num_traits::PrimInt;

/// The bits that are set in all elements; integers only.
///
/// The result has the elements' type. For no elements all bits are set, as in NumPy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BitAnd;

impl Bitwise for BitAnd {
    const NOTHING: u8 = u8::MAX;

    #[inline(always)]
    fn of<V: PrimInt>(a: V, b: V) -> V {
        a & b
    }
}

forward! { BitAnd, "bit_and", PrimInt: |op| Bits<BitAnd> = Bits(*op) }
