//! Row-major arrays of several axes: reductions over neighbouring axes.

use crate::data::Data;
use crate::{Error, Segments};
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Items as a row-major array of several axes: what [`Reduce::reshape`](crate::Reduce::reshape) returns.
///
/// The items of the last axis lie side by side.
///
/// ```
/// use gpu_reduce::{ArgMax, Device, Reduce, Sum};
///
/// let x = Device::cpu().upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0])?;
/// let reshaped = x.reshape(&[2, 3, 2])?;
/// assert_eq!(reshaped.axis(0)?.reduce::<Sum, 256>()?.to_vec()?, [8.0, 10.0, 12.0, 14.0, 16.0, 18.0]);
/// assert_eq!(reshaped.axis(1)?.reduce::<Sum, 256>()?.to_vec()?, [9.0, 12.0, 27.0, 30.0]);
/// assert_eq!(reshaped.axis(1..3)?.reduce::<ArgMax, 256>()?.to_vec()?, [5, 5]);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reshaped<'a, D> {
    data: D,
    shape: Vec<usize>,
    lifetime: PhantomData<&'a ()>,
}

/// One axis, or a range of neighbouring axes. They count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axes {
    start: usize,
    /// The axis after the last; none for the end of the array.
    end: Option<usize>,
}

impl From<usize> for Axes {
    fn from(axis: usize) -> Self {
        (axis..=axis).into()
    }
}

macro_rules! ranges {
    ($($range:ty)*) => {$(
        impl From<$range> for Axes {
            fn from(range: $range) -> Self {
                let after = |axis: usize| axis.saturating_add(1);
                Self {
                    start: match range.start_bound() {
                        Bound::Included(&start) => start,
                        Bound::Excluded(&before) => after(before),
                        Bound::Unbounded => 0,
                    },
                    end: match range.end_bound() {
                        Bound::Included(&last) => Some(after(last)),
                        Bound::Excluded(&end) => Some(end),
                        Bound::Unbounded => None,
                    },
                }
            }
        }
    )*};
}

ranges! { Range<usize> RangeInclusive<usize> RangeFrom<usize> RangeTo<usize> RangeToInclusive<usize> RangeFull }

impl<'a, D: Data<'a>> Reshaped<'a, D> {
    pub(crate) fn new(data: D, shape: &[usize]) -> Result<Self, Error> {
        let len = data.len();
        if product(shape) != Some(len) {
            let shape = match shape {
                [] => "no axes".to_owned(),
                shape => {
                    format!("axes of {}", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" × "))
                }
            };
            return Err(Error::Shape { shape, len });
        }
        Ok(Self { data, shape: shape.to_vec(), lifetime: PhantomData })
    }

    /// The lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the segments to reduce over one axis, or over several neighbouring axes as if they were one.
    ///
    /// There is a result for each place in the row-major array of the other axes. An index, as of
    /// [`ArgMax`](crate::ArgMax), counts along the axis.
    ///
    /// # Errors
    ///
    /// [`Error::Axes`] if there are no such axes.
    pub fn axis(&self, axes: impl Into<Axes>) -> Result<Segments<'a, D>, Error> {
        let Axes { start, end } = axes.into();
        let axes = self.shape.len();
        let end = end.unwrap_or(axes);
        if start >= end || end > axes {
            return Err(Error::Axes { start, end, axes });
        }
        // The product of the other axes may overflow if the reduced one has no items.
        let count = product(&[&self.shape[..start], &self.shape[end..]].concat()).unwrap_or(usize::MAX);
        let [reduced, inner] = [start..end, end..axes].map(|axes| product(&self.shape[axes]).unwrap_or(0));
        Ok(Segments::columns(self.data.clone(), [count, reduced, inner]))
    }
}

/// The product of lengths; 0 if one of them is 0.
fn product(lengths: &[usize]) -> Option<usize> {
    if lengths.contains(&0) {
        return Some(0);
    }
    lengths.iter().try_fold(1, |product: usize, &length| product.checked_mul(length))
}
