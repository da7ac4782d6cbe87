exact_operator! {
    /// The exact sum as two `f64`: the nearest to it, and the nearest to the difference.
    ///
    /// Otherwise as an [`ExactSum`](crate::ExactSum). If the first number is NaN, infinite or zero, the
    /// second is 0.
    ExactSumTwofold "exact_sum_twofold" over T, T: ExactElement, Sums;
    [f64; 2], |sum, count| T::as_f64s(sum, count)
}
