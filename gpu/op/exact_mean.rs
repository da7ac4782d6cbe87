exact_operator! {
    /// The mean, rounded once: the number nearest to the exact mean.
    ///
    /// For `f64` and integers it is an `f64`, for other floats an `f32`. NaN and infinities follow IEEE 754,
    /// and overflow on the way does not matter, as for an [`ExactSum`](crate::ExactSum). Of no elements it is
    /// NaN.
    ExactMean "exact_mean" over T, T: ExactElement, Sums;
    T::Real, |sum, count| T::mean(sum, count),
    tally counts true, |sum, low, count| T::mean_from(sum, low, count)
}
