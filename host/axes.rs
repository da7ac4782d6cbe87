//! Reductions of `ndarray`'s arrays over an axis.

use crate::buffer::with_room;
use crate::place::Place::{Cpu, Gpu};
use crate::{
    ArgMax, ArgMin, Block, Device, Error, Item, Max, Mean, Min, Op, Parameterless, Prod, Reduce, Std, Sum,
    Threads, Var, Whole,
};
use ndarray::{Array, ArrayBase, ArrayD, ArrayRef, ArrayViewD, Axis, Dimension, RemoveAxis, Slice};
use std::borrow::Cow;
use std::cmp::Reverse;

/// Reduces arrays and views of the crate `ndarray` over an axis.
///
/// Each result has the bits of reducing its lane alone, in the lane's order.
///
/// A view without gaps in memory is reduced without a copy, for any order of its axes: row-major,
/// column-major, permuted, or with inverted axes other than the reduced one. An axis with stride 0 repeats
/// its items: it is reduced once and the results are repeated. Other views are copied first: views with gaps,
/// views whose items overlap (such as windows), and views that are inverted or have stride 0 along the
/// reduced axis.
///
/// [`sum_axis`], [`mean_axis`] and so on are functions for single operators. (They are not methods because
/// ndarray's own methods would hide them.) Needs the feature `ndarray`.
///
/// ```
/// use gpu_reduce::{ArgMax, Device, ReduceAxis, Sum, Var, mean_axis};
/// use ndarray::{Axis, array};
///
/// let x = array![[1.0f32, 5.0, 3.0], [4.0, 2.0, 6.0]];
/// assert_eq!(x.reduce_axis::<Sum, 256>(Axis(0))?, array![5.0, 7.0, 9.0]);
/// assert_eq!(x.t().reduce_axis::<ArgMax, 256>(Axis(0))?, array![1, 2]);
/// assert_eq!(x.reduce_axis_by::<_, 256>(Var::new(1), Axis(1))?, array![4.0, 4.0]);
/// assert_eq!(x.reduce_axis_on::<Sum, 256>(Axis(1), &Device::cpu())?, array![9.0, 12.0]);
/// assert_eq!(mean_axis(&x, Axis(1))?, array![3.0, 4.0]);
/// assert_eq!(x.t().reduce_all::<ArgMax, 256>()?, 5);
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
pub trait ReduceAxis {
    /// The type of the elements.
    type Elem: Item;

    /// The array's dimension.
    type Dim: RemoveAxis;

    /// Returns the array.
    fn array(&self) -> &ArrayRef<Self::Elem, Self::Dim>;

    /// Reduces over `axis` on the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::Axes`] if the array does not have `axis`; [`Error::EmptySegment`] if the axis is empty and
    /// the operator has no value for that; [`Error::OutOfMemory`].
    fn reduce_axis<O: Op<Self::Elem, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
        axis: Axis,
    ) -> Result<Results<Self, O>, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.reduce_axis_by::<O, BLOCK>(O::default(), axis)
    }

    /// As [`reduce_axis`](Self::reduce_axis), with an operator that has parameters.
    ///
    /// # Errors
    ///
    /// As for [`reduce_axis`](Self::reduce_axis).
    fn reduce_axis_by<O: Op<Self::Elem, Output: Item>, const BLOCK: u32>(
        &self,
        op: O,
        axis: Axis,
    ) -> Result<Results<Self, O>, Error>
    where
        Threads<BLOCK>: Block,
    {
        reduce_over::<_, _, O, BLOCK>(self.array(), op, axis, &Device::cpu())
    }

    /// As [`reduce_axis`](Self::reduce_axis), on `device`. Items are copied to a GPU first.
    ///
    /// # Errors
    ///
    /// As for [`reduce_axis`](Self::reduce_axis); on a GPU also [`Error::NoKernel`], [`Error::Launch`] and
    /// [`Error::Driver`].
    fn reduce_axis_on<O: Op<Self::Elem, Output: Item> + Parameterless, const BLOCK: u32>(
        &self,
        axis: Axis,
        device: &Device,
    ) -> Result<Results<Self, O>, Error>
    where
        Threads<BLOCK>: Block,
    {
        reduce_over::<_, _, O, BLOCK>(self.array(), O::default(), axis, device)
    }

    /// Reduces all items on the CPU, with the bits of a slice in row-major order.
    ///
    /// An array in another order, or with gaps, is copied first.
    ///
    /// # Errors
    ///
    /// As for [`Reduce::reduce`]; [`Error::OutOfMemory`].
    fn reduce_all<O: Op<Self::Elem> + Parameterless, const BLOCK: u32>(&self) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.reduce_all_by::<O, BLOCK>(O::default())
    }

    /// As [`reduce_all`](Self::reduce_all), with an operator that has parameters.
    ///
    /// # Errors
    ///
    /// As for [`reduce_all`](Self::reduce_all).
    fn reduce_all_by<O: Op<Self::Elem>, const BLOCK: u32>(&self, op: O) -> Result<O::Output, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.array().whole()?.by(op).block::<BLOCK>().run()
    }
}

/// Copies the items of a view in row-major order.
fn gathered<T: Item, D: Dimension>(view: &ArrayRef<T, D>) -> Result<Vec<T>, Error> {
    let mut copy = with_room(view.len())?;
    // `extend` would call the iterator's `next` for each item, which takes eight times as long.
    view.iter().for_each(|&item| copy.push(item));
    Ok(copy)
}

/// The array of results when an array `A` is [reduced over an axis](ReduceAxis) by an operator `O`.
pub type Results<A, O> =
    Array<<O as Op<<A as ReduceAxis>::Elem>>::Output, <<A as ReduceAxis>::Dim as Dimension>::Smaller>;

impl<T: Item, D: RemoveAxis> ReduceAxis for ArrayRef<T, D> {
    type Elem = T;
    type Dim = D;

    fn array(&self) -> &Self {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T: Item, D: Dimension> Whole for ArrayRef<T, D> {
    type Item = T;
    type Data<'a>
        = Cow<'a, [T]>
    where
        Self: 'a;

    fn whole(&self) -> Result<Cow<'_, [T]>, Error> {
        Ok(match self.as_slice() {
            Some(items) => Cow::Borrowed(items),
            None => Cow::Owned(gathered(self)?),
        })
    }
}

#[diagnostic::do_not_recommend]
impl<S: ndarray::Data<Elem: Item>, D: Dimension> Whole for ArrayBase<S, D> {
    type Item = S::Elem;
    type Data<'a>
        = Cow<'a, [S::Elem]>
    where
        Self: 'a;

    fn whole(&self) -> Result<Cow<'_, [S::Elem]>, Error> {
        (**self).whole()
    }
}

fn reduce_over<T: Item, D: RemoveAxis, O: Op<T, Output: Item>, const BLOCK: u32>(
    array: &ArrayRef<T, D>,
    op: O,
    Axis(axis): Axis,
    device: &Device,
) -> Result<Array<O::Output, D::Smaller>, Error>
where
    Threads<BLOCK>: Block,
{
    let axes = array.ndim();
    if axis >= axes {
        return Err(Error::Axes { start: axis, end: axis.saturating_add(1), axes });
    }
    let (view, mut order) = in_memory_order(array.view().into_dyn(), axis);
    let copy;
    let items = match view.as_slice() {
        Some(items) => items,
        None => {
            copy = gathered(&view)?;
            &copy
        }
    };
    let place = order.iter().take_while(|&&other| other != axis).count();
    let results = match device.0 {
        Cpu(()) => items.reshape(view.shape())?.axis(place)?.by(op).block::<BLOCK>().run()?,
        Gpu(_) => device.upload(items)?.reshape(view.shape())?.axis(place)?.by(op).block::<BLOCK>().run()?,
    };
    let mut lengths = view.shape().to_vec();
    lengths.remove(place);
    order.remove(place);
    let results = ArrayD::from_shape_vec(lengths, results.into_vec()?)
        .unwrap_or_else(|_| unreachable!("there is one result per lane"));
    // Restore the order of the array's axes.
    let mut places: Vec<usize> = (0..order.len()).collect();
    places.sort_by_key(|&place| order[place]);
    let mut results = results.permuted_axes(&places[..]);
    let mut shape = Vec::new();
    for (place, other) in (0..axes).filter(|&other| other != axis).enumerate() {
        if array.stride_of(Axis(other)) < 0 {
            results.invert_axis(Axis(place));
        }
        shape.push(array.len_of(Axis(other)));
    }
    let results = match results.broadcast(&shape[..]) {
        Some(repeated) if results.shape() != shape => repeated.to_owned(),
        _ => results,
    };
    Ok(results.into_dimensionality().unwrap_or_else(|_| unreachable!("the results have one axis less")))
}

/// Returns the view with its axes in memory order (largest stride first), and the original number of each
/// axis.
///
/// Inverts axes other than `axis` with a negative stride, and cuts those with stride 0 to at most one item.
fn in_memory_order<T>(mut view: ArrayViewD<'_, T>, axis: usize) -> (ArrayViewD<'_, T>, Vec<usize>) {
    let strides = view.strides().to_vec();
    for other in (0..strides.len()).filter(|&other| other != axis) {
        match strides[other] {
            0 => {
                let once = view.len_of(Axis(other)).min(1);
                view.slice_axis_inplace(Axis(other), Slice::from(..once));
            }
            ..0 => view.invert_axis(Axis(other)),
            _ => {}
        }
    }
    let mut order: Vec<usize> = (0..strides.len()).collect();
    order.sort_by_key(|&axis| Reverse(strides[axis].unsigned_abs()));
    (view.permuted_axes(&order[..]), order)
}

/// Defines a function per operator, with BLOCK 256.
macro_rules! of_axis {
    ($($(#[$doc:meta])* $name:ident: $op:ident $(($parameter:ident: $type:ty))?;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// As [`ReduceAxis::reduce_axis`].
        pub fn $name<T: Item, D: RemoveAxis>(
            array: &ArrayRef<T, D>,
            axis: Axis,
            $($parameter: $type)?
        ) -> Result<Results<ArrayRef<T, D>, $op>, Error>
        where
            $op: Op<T, Output: Item>,
        {
            array.reduce_axis_by::<$op, 256>(of_axis!(@value $op $($parameter)?), axis)
        }
    )*};
    (@value $op:ident) => { $op };
    (@value $op:ident $parameter:ident) => { $op::new($parameter) };
}

of_axis! {
    /// Sums over an axis; see [`Sum`] for their type.
    ///
    /// ```
    /// use ndarray::{Axis, array, s};
    ///
    /// let x = array![[1u8, 2, 255], [4, 5, 6]];
    /// assert_eq!(gpu_reduce::sum_axis(&x, Axis(1))?, array![258, 15]);
    /// assert_eq!(gpu_reduce::sum_axis(&x.slice(s![.., ..;2]), Axis(0))?, array![5, 261]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    sum_axis: Sum;
    /// Products over an axis; see [`Prod`] for their type.
    prod_axis: Prod;
    /// Means over an axis; see [`Mean`] for their type. The mean over an empty axis is NaN.
    mean_axis: Mean;
    /// The smallest elements along an axis; NaN if there is a NaN.
    min_axis: Min;
    /// The largest elements along an axis; NaN if there is a NaN.
    max_axis: Max;
    /// The indices of the smallest elements along an axis: the first if several are equal, or the first NaN.
    argmin_axis: ArgMin;
    /// The indices of the largest elements along an axis: the first if several are equal, or the first NaN.
    argmax_axis: ArgMax;
    /// Variances over an axis, with the count minus `ddof` as divisor; see [`Var`](struct@Var).
    ///
    /// ```
    /// use ndarray::{Axis, array};
    ///
    /// let x = array![[1.0f32, 3.0], [5.0, 9.0]];
    /// assert_eq!(gpu_reduce::var_axis(&x, Axis(1), 1)?, array![2.0, 8.0]);
    /// # Ok::<(), gpu_reduce::Error>(())
    /// ```
    var_axis: Var (ddof: u64);
    /// Standard deviations over an axis, with the count minus `ddof` as divisor; see [`Std`](struct@Std).
    std_axis: Std (ddof: u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::s;

    #[test]
    fn what_lies_without_gaps_is_not_copied() {
        let x = Array::from_shape_fn((4, 5, 1, 6), |(a, b, _, c)| 30 * a + 6 * b + c);
        let stays = |view: ArrayViewD<usize>, axis: usize| {
            let (view, _) = in_memory_order(view, axis);
            view.as_slice().map(|items| items.as_ptr_range()) == Some(x.as_slice().unwrap().as_ptr_range())
        };
        for order in [[0, 1, 2, 3], [3, 1, 2, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            let view = x.view().permuted_axes(order);
            for axis in 0..4 {
                assert!(stays(view.view().into_dyn(), axis));
                let mut inverted = view.view();
                inverted.invert_axis(Axis((axis + 1) % 4));
                inverted.invert_axis(Axis((axis + 2) % 4));
                assert!(stays(inverted.into_dyn(), axis));
            }
        }
        assert!(stays(x.broadcast((7, 4, 5, 1, 6)).unwrap().into_dyn(), 4));
        assert!(!stays(x.broadcast((7, 4, 5, 1, 6)).unwrap().into_dyn(), 0));
        assert!(!stays(x.slice(s![.., .., .., ..5]).into_dyn(), 0));
        assert!(!stays(x.slice(s![.., ..;-1, .., ..]).into_dyn(), 1));
    }
}
