operator! {
    /// The bits that are set in an odd number of elements; integers only.
    ///
    /// The result has the elements' type. For no elements it is 0.
    BitXor "bit_xor", num_traits::PrimInt: bits::Bits<'^'>, crate::agent::extremes::Bitwise::<'^'>
}
