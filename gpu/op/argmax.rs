use crate::op::place::FirstExtreme;
use bytemuck::{Pod, Zeroable};

/// The index of the largest element; of the first one if there are several.
///
/// The result is a `u64`. If there is a NaN, it is the index of the first one, as in NumPy and PyTorch. −0.0 is below +0.0. Empty
/// input is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ArgMax;

forward! { ArgMax, "argmax": |_op| FirstExtreme<false, false> = FirstExtreme::<false, false> }
