spread! {
    /// The standard deviation of the elements that are not NaN.
    NanStd "nanstd": NanSpread, root true, chunk NanVar
}
