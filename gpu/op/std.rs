use crate::op::spread::Spread;

spread! {
    /// The standard deviation: the square root of the variance.
    Std "std": Spread, root true, agent crate::agent::spread::Spreads
}

#[cfg(not(target_arch = "nvptx64"))]
impl Std {
    /// The variance of the same items.
    #[inline(always)]
    pub(crate) fn variance(&self) -> crate::op::Var {
        crate::op::Var { ddof: self.ddof, origin: self.origin }
    }
}
