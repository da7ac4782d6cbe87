use crate::op::extremes::NanExtreme;
use bytemuck::{Pod, Zeroable};

/// The smallest element that is not NaN.
///
/// The result has the elements' type; it is NaN if all elements are. −0.0 is below +0.0. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct NanMin;

forward! { NanMin, "nanmin": |_op| NanExtreme<true> = NanExtreme::<true> }
