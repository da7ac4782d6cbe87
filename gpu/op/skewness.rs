use crate::element::Element;
use crate::op::by_value::{ByValue, Value, taken};
use crate::op::powers::{Powers, Standardized};
use crate::op::{Kurtosis, Moments};
use bytemuck::{Pod, Zeroable};

/// The skewness of a whole population: the third central moment in units of the standard deviation.
///
/// The result is an `f64` for integers and `f64`, else an `f32`, as SciPy's `skew`. It is NaN, too, if the
/// elements are equal up to rounding.
///
/// It is computed in `f64` from the powers of the distances to the first element: if that element is far from
/// all n others, rounding errors grow up to a few times n. It is NaN for no elements, if an element is not
/// finite, or if a fourth power overflows. 64-bit integers are first converted to the nearest `f64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Skewness {
    /// The first element.
    origin: f64,
}

by_name! { Skewness { origin: 0.0 } }

forward! {
    Skewness, "skewness": |op| Standardized<3> = Standardized::<3>(Moments { origin: op.origin }),
    begin |first| op.begin_twin(first, false),
    agent crate::agent::chunks::ChunksBy(|op: &Self| Moments { origin: op.origin })
}

impl<T: Element> ByValue<T> for Skewness {
    #[inline(always)]
    fn begin_twin(&self, first: T, is_second: bool) -> Self {
        Self { origin: taken(Value, first, is_second) }
    }

    #[inline(always)]
    fn lift_twin(&self, item: T, _: u64, is_second: bool) -> Powers {
        Powers::of_distance(taken(Value, item, is_second) - self.origin)
    }
}

serves! {
    Skewness: |op|
        Kurtosis = Kurtosis { origin: op.origin },
        Moments = Moments { origin: op.origin }
}
