spread! {
    /// The variance of the elements that are not NaN.
    NanVar "nanvar": variance => variance, by NanSpread;
}
