use crate::op::spread::NanSpread;

spread! {
    /// The standard deviation of the elements that are not NaN.
    NanStd "nanstd": NanSpread<T>, root true,
    agent crate::agent::chunks::ChunksBy(|op: &Self| crate::op::NanVar { ddof: op.ddof, origin: op.origin })
}
