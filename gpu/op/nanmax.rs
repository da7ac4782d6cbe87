operator! {
    /// The largest element that is not NaN.
    ///
    /// The result has the elements' type; it is NaN if all elements are. −0.0 is below +0.0. Empty input is
    /// an error.
    NanMax "nanmax": extremes::NanExtreme<false>, crate::agent::extremes::OneExtreme::<false, true>
}
