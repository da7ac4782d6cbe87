use crate::op::powers::standardized;

of_powers! {
    /// The skewness of a whole population, the third central moment in units of the standard deviation: an `f64` of integers and `f64`,
    /// else an `f32`. NaN, too, where elements are equal up to rounding. (SciPy's `skew`.)
    Skewness "skewness" -> T::Real: |moments| standardized::<T>(moments, 3), folded as Moments;
}
