place! {
    /// The index of the largest element; otherwise as [`ArgMin`](crate::ArgMin).
    ArgMax "argmax": gt max greater, from LEAST, NaN is GREATEST;
}
