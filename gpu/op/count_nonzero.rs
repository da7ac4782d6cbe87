use crate::element::{Element, Wide};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

/// How many elements are not zero; a NaN is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct CountNonzero;

count! { CountNonzero, "count_nonzero": |_op, element| element.widen() != T::Wide::ZERO }
