exact_operator! {
    /// The dot product of two arrays, rounded once: products and their sum are exact.
    ///
    /// The sum is rounded as that of an [`ExactSum`](crate::ExactSum): to the nearest `f64` for `f64`, to the
    /// nearest `f32` for other floats. For integers it is an `i128`, modulo 2^128 if they have 64 bits. NaN
    /// and infinities follow IEEE 754, as in a sum of the products. Of no elements it is 0.
    ExactDot "exact_dot" over (T, T), T: ExactFactor, Dots;
    T::Rounded, |sum, count| T::rounded_products(sum, count),
    by index products_by_index
}
