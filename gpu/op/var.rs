spread! {
    /// The variance: the mean of the squared distances from the mean.
    Var "var": Spread, root false, agent crate::agent::spread::Spreads
}
