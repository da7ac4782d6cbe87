place! {
    /// The index of the largest element; otherwise as [`ArgMin`](crate::ArgMin).
    ArgMax "argmax": gt, from LEAST, NaN is GREATEST;
}
