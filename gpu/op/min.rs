operator! {
    /// The smallest element.
    ///
    /// The result has the elements' type. A NaN makes it NaN, as in NumPy and PyTorch (IEEE 754-2019,
    /// `minimum`); −0.0 is below +0.0. Empty input is an error.
    Min "min": extremes::Extreme<true>, crate::agent::extremes::OneExtreme::<true, false>
}
