use crate::op::quantifiers::Quantifier;
use bytemuck::{Pod, Zeroable};

/// Whether all elements are nonzero.
///
/// The result is a `bool`. A NaN is nonzero. For no elements it is `true`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct All;

forward! { All, "all", crate::Element: |_op| Quantifier<true> = Quantifier::<true> }
