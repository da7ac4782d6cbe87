operator! {
    /// The largest element.
    ///
    /// The result has the elements' type. A NaN makes it NaN, as in NumPy and PyTorch (IEEE 754-2019,
    /// `maximum`); −0.0 is below +0.0. Empty input is an error.
    Max "max": extremes::Extreme<false>, crate::agent::extremes::OneExtreme::<false, false>
}
