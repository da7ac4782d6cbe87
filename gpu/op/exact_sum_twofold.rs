of_exact_sum! {
    /// As [`ExactSum`](crate::ExactSum), as two `f64`: the nearest to the sum, and the nearest to what that lacks. Where the first is infinite or NaN, the
    /// second is 0.
    ExactSumTwofold "exact_sum_twofold": [f64; 2], |sum, count| T::as_f64s(sum, count)
}
