operator! {
    /// The bits that are set in all elements; integers only.
    ///
    /// The result has the elements' type. For no elements all bits are set, as in NumPy.
    BitAnd "bit_and", num_traits::PrimInt: bits::Bits<'&'>, crate::agent::extremes::Bitwise::<'&'>
}
