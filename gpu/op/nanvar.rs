use crate::op::NanStd;
use crate::op::spread::NanSpread;

spread! {
    /// The variance of the elements that are not NaN.
    NanVar "nanvar": NanSpread<T>, root false, agent crate::agent::Listed
}

serves! { NanVar: |op| NanStd = NanStd { ddof: op.ddof, origin: op.origin } }
