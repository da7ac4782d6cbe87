spread! {
    /// The standard deviation: the square root of the variance.
    Std "std": Spread, root true,
    agent crate::agent::chunks::ChunksBy(|op: &Self| crate::op::Var { ddof: op.ddof, origin: op.origin })
}
