use crate::op::quantifiers::Quantifier;
use bytemuck::{Pod, Zeroable};

/// Whether any element is nonzero.
///
/// The result is a `bool`. A NaN is nonzero. For no elements it is `false`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Any;

forward! { Any, "any", crate::Element: |_op| Quantifier<false> = Quantifier::<false> }
