spread! {
    /// The variance of the elements that are not NaN.
    NanVar "nanvar": NanSpread, root false, agent crate::agent::Listed
}
