spread! {
    /// The standard deviation: the square root of the variance.
    Std "std": Spread, root true, chunk Var
}
