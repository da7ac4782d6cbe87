of_exact_sum! {
    /// The sum without any rounding but one, of the exact sum to the nearest number, the even one of two that are as near: of `f64` an `f64`, of
    /// other floats an `f32`, of integers an `i128`, which is not rounded. In whatever order, by whatever BLOCK, threads and device.
    ///
    /// Infinities and NaN are as IEEE 754 has them for a sum: NaN where there is one, or both infinities. What overflows on the way but not in the end is
    /// as the end is. The sum of negative zeros alone is −0.0; of nothing 0.
    ///
    /// ```
    /// use gpu_reduce_kernels::{ExactSum, Op};
    ///
    /// let sum = |a, b| Op::<f32>::combine(&ExactSum, a, b);
    /// let [a, b, c] = [1e30f32, 1.0, -1e30].map(|item| ExactSum.lift(item, 0));
    /// assert_eq!(Op::<f32>::finish(&ExactSum, sum(sum(a, b), c), 3), Some(1.0));
    /// ```
    ExactSum "exact_sum": T::Rounded, |sum, count| T::rounded(sum, count)
}
