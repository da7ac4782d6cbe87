use crate::op::powers::standardized;

of_powers! {
    /// The excess kurtosis of a whole population, the fourth central moment in units of the standard deviation less the 3 that a normal
    /// distribution has: an `f64` of integers and `f64`, else an `f32`. NaN, too, where elements are equal up to rounding. (SciPy's
    /// `kurtosis`.)
    Kurtosis "kurtosis" -> T::Real: |moments| standardized::<T>(moments, 4), folded as Moments;
}
