use crate::op::Std;
use crate::op::spread::Spread;

spread! {
    /// The variance: the mean of the squared distances from the mean.
    Var "var": Spread, root false, agent crate::agent::spread::Spreads
}

impl Var {
    /// The standard deviation of the same items.
    #[inline(always)]
    pub(crate) fn root(&self) -> Std {
        Std { ddof: self.ddof, origin: self.origin }
    }
}

serves! { Var: |op| Std = op.root() }
