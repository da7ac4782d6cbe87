operator! {
    /// Whether all elements are nonzero.
    ///
    /// The result is a `bool`. A NaN is nonzero. For no elements it is `true`.
    All "all": quantifiers::Quantifier<true>, crate::agent::extremes::Decided::<true>
}
