//! Reductions of items that come in pieces, whose operator and type are chosen when the program runs.

use std::cell::RefCell;

use bytemuck::{Zeroable, pod_read_unaligned};
use gpu_reduce::Reduce;
use gpu_reduce::steps::{Fold, Pieces};

use crate::{Dtype, Error, Number, Operator, Target, Values, cast, with_type};

/// A reduction of items that come in pieces: [`gpu_reduce::Reducer`]. It takes items on the CPU.
///
/// The bits of the result do not depend on how the items are cut into pieces. If the number of items is
/// given, the result has the bits of the same reduction of one array.
///
/// ```
/// use gpu_reduce_dynamic::{Dtype, Operator, Reducer};
///
/// let mut mean = Reducer::new(Operator::Mean, Dtype::f32, 0, None)?;
/// mean.push(&[1.0f32, 2.0].map(f32::to_ne_bytes).concat())?;
/// mean.push(&6.0f32.to_ne_bytes())?;
/// assert_eq!(mean.finish()?.text(0), "3.0");
/// # Ok::<(), gpu_reduce_dynamic::Error>(())
/// ```
#[derive(Clone)]
pub struct Reducer {
    operator: Operator,
    dtype: Dtype,
    ddof: u64,
    len: Option<u64>,
    /// `None` while there are no items.
    begun: Option<Begun>,
}

/// A reduction that has items: the bytes of the first, and the pieces' fold.
#[derive(Clone)]
struct Begun {
    first: Vec<u8>,
    pieces: Box<dyn AnyPieces>,
}

impl Reducer {
    /// A reduction without items: of `len` items, or of any number.
    ///
    /// # Errors
    ///
    /// [`Error::NotIntegers`].
    pub fn new(operator: Operator, dtype: Dtype, ddof: u64, len: Option<u64>) -> Result<Self, Error> {
        let new = Self { operator, dtype, ddof, len, begun: None };
        with_type!(dtype, T => drop(new.pieces::<T>(T::zeroed())?));
        Ok(new)
    }

    /// Takes the next items, given by their bytes.
    ///
    /// # Errors
    ///
    /// [`gpu_reduce::Error::OutOfBounds`] if there would be more items than `len`; then none is taken.
    pub fn push(&mut self, items: &[u8]) -> Result<(), Error> {
        if let Some(Begun { pieces, .. }) = &mut self.begun {
            return Ok(pieces.push(items)?);
        }
        let Some(first) = items.get(..self.dtype.size()) else { return Ok(()) };
        let mut pieces = with_type!(self.dtype, T => {
            Box::new(self.pieces::<T>(pod_read_unaligned(first))?) as Box<dyn AnyPieces>
        });
        pieces.push(items)?;
        self.begun = Some(Begun { first: first.to_vec(), pieces });
        Ok(())
    }

    /// The number of items so far.
    pub fn count(&self) -> u64 {
        self.begun.as_ref().map_or(0, |begun| begun.pieces.count())
    }

    /// The number of items that may still come; `None` if any number may.
    pub fn room(&self) -> Option<u64> {
        self.len.map(|len| len - self.count())
    }

    /// The result of the items so far; others may follow.
    ///
    /// # Errors
    ///
    /// [`gpu_reduce::Error::EmptyInput`] if there are no items and the operator has no value for none;
    /// [`gpu_reduce::Error::Incomplete`] if there have been fewer items than `len`.
    pub fn finish(&self) -> Result<Values, Error> {
        let Self { operator, dtype, ddof, len, ref begun } = *self;
        match begun {
            Some(Begun { first, pieces }) => pieces.finish(operator, ddof, first),
            _ => match len {
                Some(len @ 1..) => Err(gpu_reduce::Error::Incomplete { count: 0, len }.into()),
                _ => with_type!(dtype, T => Target::All(<[T]>::data(&[])).reduce(operator, ddof)),
            },
        }
    }

    /// The operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The type of the items.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The fold of pieces that begin with this item.
    fn pieces<T: Number>(&self, first: T) -> Result<Pieces<T>, Error> {
        let pieces = RefCell::new(None);
        let by = |fold: &Fold<T>| drop(pieces.replace(Some(fold.pieces(self.len))));
        let values = Target::All([first].data()).reduce_by(self.operator, self.ddof, &by);
        match pieces.into_inner() {
            Some(pieces) => Ok(pieces),
            // The operator does not take this type.
            None => Err(values.err().unwrap_or(Error::Stopped)),
        }
    }
}

/// [`Pieces`] of any type.
trait AnyPieces: Send + Sync {
    fn push(&mut self, items: &[u8]) -> Result<(), gpu_reduce::Error>;

    fn count(&self) -> u64;

    /// The result of pieces that begin with the item `first`.
    fn finish(&self, operator: Operator, ddof: u64, first: &[u8]) -> Result<Values, Error>;

    fn boxed(&self) -> Box<dyn AnyPieces>;
}

impl Clone for Box<dyn AnyPieces> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}

impl<T: Number> AnyPieces for Pieces<T> {
    fn push(&mut self, items: &[u8]) -> Result<(), gpu_reduce::Error> {
        self.push(&cast::<T>(items))
    }

    fn count(&self) -> u64 {
        self.count()
    }

    fn finish(&self, operator: Operator, ddof: u64, first: &[u8]) -> Result<Values, Error> {
        self.check_complete()?;
        let first: T = pod_read_unaligned(first);
        Target::All([first].data()).reduce_by(operator, ddof, &|fold| fold.take(self))
    }

    fn boxed(&self) -> Box<dyn AnyPieces> {
        Box::new(self.clone())
    }
}
