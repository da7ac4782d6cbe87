bits! {
    /// The bits that an odd number of elements have; of no elements none. Of integers alone.
    BitXor "bit_xor": BitXor ^, of nothing 0u8;
}
