operator! {
    /// Whether any element is nonzero.
    ///
    /// The result is a `bool`. A NaN is nonzero. For no elements it is `false`.
    Any "any": quantifiers::Quantifier<false>, crate::agent::extremes::Decided::<false>
}
