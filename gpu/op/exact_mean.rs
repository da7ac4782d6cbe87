of_exact_sum! {
    /// The mean, exact but for one rounding to the nearest number: of `f64` and integers an `f64`, of other floats an `f32`. Of no elements it is NaN.
    /// As [`ExactSum`](crate::ExactSum) otherwise.
    ExactMean "exact_mean": T::Real, |sum, count| T::mean(sum, count)
}
