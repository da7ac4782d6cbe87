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
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Kurtosis {
    /// The first element.
    origin: f64,
    /// The moment's degree. The kernels read it, so that skewness and kurtosis have the same.
    degree: u64,
}

impl Default for Kurtosis {
    fn default() -> Self {
        Self { origin: 0.0, degree: 4 }
    }
}

forward! {
    Kurtosis, "kurtosis": |op| Standardized = Standardized { moments: Moments { origin: op.origin }, degree: op.degree },
    begin |first| Self { origin: first.as_f64(), ..*op },
    agent crate::agent::chunks::ChunksBy(|op: &Self| Moments { origin: op.origin })
}
