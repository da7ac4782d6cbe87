use crate::op::Moments;
use crate::op::powers::Standardized;
use bytemuck::{Pod, Zeroable};

/// The excess kurtosis of a whole population: the fourth central moment in units of the standard deviation,
/// less 3.
///
/// The 3 is that of a normal distribution. The result is an `f64` for integers and `f64`, else an `f32`, as
/// SciPy's `kurtosis`. It is NaN, too, if the elements are equal up to rounding.
///
/// It is computed in `f64` from the powers of the distances to the first element: if that element is far from
/// all n others, rounding errors grow up to a few times n. It is NaN for no elements, if an element is not
/// finite, or if a fourth power overflows. 64-bit integers are first converted to the nearest `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Kurtosis {
    /// The first element.
    pub(in crate::op) origin: f64,
}

by_name! { Kurtosis { origin: 0.0 } }

forward! {
    Kurtosis, "kurtosis": |op| Standardized<4> = Standardized::<4>(Moments { origin: op.origin }),
    begin |first| Self { origin: first.as_f64() },
    agent crate::agent::chunks::ChunksBy(|op: &Self| Moments { origin: op.origin })
}
