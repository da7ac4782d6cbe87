spread! {
    /// The standard deviation, the root of the variance.
    Std "std": variance => crate::op::sqrt(variance), by Spread, folded as Var;
}
