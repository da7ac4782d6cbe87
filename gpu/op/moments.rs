of_powers! {
    /// The mean, and the second, third and fourth central moment, those of a whole population: `f64` of integers and `f64`, else `f32`.
    Moments "moments" -> [T::Real; 4]: |moments| moments.map(T::real);
}
