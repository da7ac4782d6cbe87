use crate::op::extremes::NanExtreme;
use bytemuck::{Pod, Zeroable};

/// The largest element that is not NaN.
///
/// The result has the elements' type; it is NaN if all elements are. −0.0 is below +0.0. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NanMax;

forward! { NanMax, "nanmax": |_op| NanExtreme<false> = NanExtreme::<false> }
