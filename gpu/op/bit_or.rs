operator! {
    /// The bits that are set in any element; integers only.
    ///
    /// The result has the elements' type. For no elements it is 0.
    BitOr "bit_or", num_traits::PrimInt: bits::Bits<'|'>, crate::agent::extremes::Bitwise::<'|'>
}
