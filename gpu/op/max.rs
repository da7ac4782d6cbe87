use crate::op::extremes::Extreme;
use bytemuck::{Pod, Zeroable};

/// The largest element.
///
/// The result has the elements' type. A NaN makes it NaN, as in NumPy and PyTorch (IEEE 754-2019, `maximum`); −0.0 is below
/// +0.0. Empty input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Max;

forward! { Max, "max": |_op| Extreme<false> = Extreme::<false> }
