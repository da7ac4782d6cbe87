use crate::element::Element;
use crate::op::comparison::{Comparison, Range, comparison};
use crate::op::{OnCpu, Op};
use crate::table;
use bytemuck::{Pod, Zeroable};

comparison! {
    /// How many elements compare so with a scalar.
    CountWhere
}

count! { CountWhere<T>, "count_where": |op, element| op.0.has(element) }
