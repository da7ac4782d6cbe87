bits! {
    /// The bits that all elements have; those of no elements are all set, as in NumPy. Of integers alone.
    BitAnd "bit_and": BitAnd &, of nothing u8::MAX;
}
