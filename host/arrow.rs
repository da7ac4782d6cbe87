//! Reductions of Arrow arrays.

use crate::{Block, Error, Item, Op, Parameterless, Reduce, Reducer, Threads};
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, PrimitiveArray};
use std::slice;

/// Reduces arrays of the crate `arrow-array` on the CPU, without nulls and without a copy.
///
/// It is implemented for an array, and for several arrays in a slice or `Vec`, such as the chunks of a
/// column, which are reduced as one. The result has the bits of a slice of the valid items. Indices, for
/// example of [`ArgMax`](crate::ArgMax), count nulls too. All threads reduce an array without nulls. One
/// thread reduces an array with nulls, one range of valid items after another, like a [`Reducer`]. Needs the
/// feature `arrow`.
///
/// ```
/// use arrow_array::{Float32Array, Int8Array};
/// use gpu_reduce::{ArgMax, Mean, Nullable, ReduceArray, Sum};
///
/// let x = Float32Array::from(vec![Some(1.5), None, Some(2.5)]);
/// assert_eq!(x.reduce_valid::<Sum, 256>()?, Nullable { value: Some(4.0), nulls: 1 });
/// assert_eq!(x.reduce_valid::<ArgMax, 256>()?.value, Some(2));
/// assert_eq!([x.clone(), x].reduce_valid::<Mean, 256>()?, Nullable { value: Some(2.0), nulls: 2 });
/// let none = Int8Array::new_null(3);
/// assert_eq!(none.reduce_valid::<Sum, 256>()?, Nullable { value: None, nulls: 3 });
/// # Ok::<(), gpu_reduce::Error>(())
/// ```
pub trait ReduceArray {
    /// The type of the arrays.
    type Type: ArrowPrimitiveType<Native: Item>;

    /// Returns the arrays in order.
    fn arrays(&self) -> &[PrimitiveArray<Self::Type>];

    /// Reduces the valid items.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyInput`] if there are valid items but the operator has no value for their number.
    fn reduce_valid<O: Op<<Self::Type as ArrowPrimitiveType>::Native> + Parameterless, const BLOCK: u32>(
        &self,
    ) -> Result<Nullable<O::Output>, Error>
    where
        Threads<BLOCK>: Block,
    {
        self.reduce_valid_by::<O, BLOCK>(O::default())
    }

    /// As [`reduce_valid`](Self::reduce_valid), with an operator that has parameters.
    ///
    /// # Errors
    ///
    /// As for [`reduce_valid`](Self::reduce_valid).
    fn reduce_valid_by<O: Op<<Self::Type as ArrowPrimitiveType>::Native>, const BLOCK: u32>(
        &self,
        op: O,
    ) -> Result<Nullable<O::Output>, Error>
    where
        Threads<BLOCK>: Block,
    {
        let arrays = self.arrays();
        let nulls = arrays.iter().map(|array| array.null_count()).sum();
        let valid = arrays.iter().map(|array| array.len()).sum::<usize>() - nulls;
        if valid == 0 {
            return Ok(Nullable { value: None, nulls });
        }
        if let ([array], 0) = (arrays, nulls) {
            return Ok(Nullable { value: Some(array.values().by(op).block::<BLOCK>().run()?), nulls });
        }
        let mut reducer = Reducer::<O, _, BLOCK>::with_len(op, valid as u64);
        for array in arrays {
            let values = array.values();
            let Some(nulls) = array.nulls() else {
                reducer.push(values)?;
                continue;
            };
            let mut next = 0;
            for (start, end) in nulls.valid_slices() {
                reducer.skip((start - next) as u64);
                reducer.push(&values[start..end])?;
                next = end;
            }
            reducer.skip((values.len() - next) as u64);
        }
        Ok(Nullable { value: Some(reducer.finish()?), nulls })
    }
}

/// The result of [`ReduceArray::reduce_valid`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nullable<V> {
    /// The result of the valid items. None if there are none, as for a sum in SQL.
    pub value: Option<V>,
    /// The number of nulls.
    pub nulls: usize,
}

impl<A: ArrowPrimitiveType<Native: Item>> ReduceArray for PrimitiveArray<A> {
    type Type = A;

    fn arrays(&self) -> &[Self] {
        slice::from_ref(self)
    }
}

impl<A: ArrowPrimitiveType<Native: Item>> ReduceArray for [PrimitiveArray<A>] {
    type Type = A;

    fn arrays(&self) -> &Self {
        self
    }
}
