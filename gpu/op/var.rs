spread! {
    /// The variance, the mean of the squares of the distances from the mean.
    Var "var": variance => variance, by Spread;
}
