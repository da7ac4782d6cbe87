operator! {
    /// The index of the largest element; of the first one if there are several.
    ///
    /// The result is a `u64`. If there is a NaN, it is the index of the first one, as in NumPy and PyTorch.
    /// −0.0 is below +0.0. Empty input is an error.
    ArgMax "argmax": place::FirstExtreme<false, false>, crate::agent::extremes::FirstPlace::<false, false>
}
