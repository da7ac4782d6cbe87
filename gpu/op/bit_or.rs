bits! {
    /// The bits that any element has; of no elements none. Of integers alone.
    BitOr "bit_or": BitOr |, of nothing 0u8;
}
