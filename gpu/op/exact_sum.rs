exact_operator! {
    /// The sum, rounded once: the number nearest to the exact sum.
    ///
    /// If two numbers are equally near, it is the even one. For `f64` it is an `f64`, for other floats an
    /// `f32`, for integers an `i128`, which is not rounded. The bits do not depend on the order of the
    /// elements, BLOCK, the number of threads or the device.
    ///
    /// The sum is NaN if an element is NaN, or if there are infinities of both signs; infinite if there is an
    /// infinity of one sign, or if the exact sum rounds to infinity. Overflow on the way does not matter. A
    /// sum of negative zeros alone is −0.0. Of no elements it is 0.
    ///
    /// ```
    /// use gpu_reduce_kernels::{ExactSum, Op};
    ///
    /// let sum = |a, b| Op::<f32>::combine(&ExactSum, a, b);
    /// let [a, b, c] = [1e30f32, 1.0, -1e30].map(|item| ExactSum.lift(item, 0));
    /// assert_eq!(Op::<f32>::finish(&ExactSum, sum(sum(a, b), c), 3), Some(1.0));
    /// ```
    ExactSum "exact_sum" over T, T: ExactElement, Sums;
    T::Rounded, |sum, count| T::rounded(sum, count),
    tally counts false, |sum, low, _count| T::rounded_from(sum, low)
}
