spread! {
    /// The standard deviation of the elements that are not NaN.
    NanStd "nanstd": variance => crate::op::sqrt(variance), by NanSpread, folded as NanVar;
}
