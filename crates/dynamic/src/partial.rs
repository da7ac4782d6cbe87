//! Groups in parts, whose operator and type are chosen when the program runs.

use std::any::Any;

use gpu_reduce::{Op, PartialGroups, bf16, f16};

use crate::{Dtype, Error, Number, Operator, Value, Values, cast, with_type};

/// Why a part cannot be made, added to, merged or finished.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PartialError {
    /// The reduction's error.
    #[error(transparent)]
    Reduce(#[from] Error),
    /// The operator has no parts: the order of the items counts for it, or it tells their places.
    #[error(
        "{operator} of {dtype} has no parts that merge in any order: choose a sum, a mean, an extreme, a count, or an \
         exact operator"
    )]
    InOrder {
        /// The operator.
        operator: Operator,
        /// The type of the elements.
        dtype: Dtype,
    },
    /// Parts of different reductions do not merge.
    #[error("a part by {found} does not merge with one by {expected}")]
    Other {
        /// The other part's operator and type.
        found: String,
        /// This part's operator and type.
        expected: String,
    },
}

/// Groups in parts by index: [`PartialGroups`] with the keys `i64`. It takes items on the CPU.
///
/// ```
/// use gpu_reduce_dynamic::{Dtype, Operator, Partial};
///
/// let mut here = Partial::new(Operator::Sum, Dtype::f32)?;
/// here.add(&[1, 0], &[1e30f32, 2.0].map(f32::to_ne_bytes).concat())?;
/// let mut there = Partial::new(Operator::Sum, Dtype::f32)?;
/// there.add(&[1, 1], &[1.0f32, -1e30].map(f32::to_ne_bytes).concat())?;
///
/// here.merge(Partial::from_bytes(Operator::Sum, Dtype::f32, &there.to_bytes())?)?;
/// assert_eq!(format!("{:?}", here.finish(3)?), r#"["2.0", "1.0", "0.0"]"#);
/// # Ok::<(), gpu_reduce_dynamic::PartialError>(())
/// ```
pub struct Partial {
    operator: Operator,
    dtype: Dtype,
    part: Box<dyn Part>,
}

impl Partial {
    /// A part without items.
    ///
    /// # Errors
    ///
    /// [`PartialError::InOrder`] if the order of the items counts for the operator, or it tells their places;
    /// [`Error::NotIntegers`].
    pub fn new(operator: Operator, dtype: Dtype) -> Result<Self, PartialError> {
        let part = with_type!(dtype, T => <T as Parts>::part(operator, None)?);
        Ok(Self { operator, dtype, part })
    }

    /// The part with these [bytes](Self::to_bytes).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and [`gpu_reduce::Error::BadPartial`].
    pub fn from_bytes(operator: Operator, dtype: Dtype, bytes: &[u8]) -> Result<Self, PartialError> {
        let part = with_type!(dtype, T => <T as Parts>::part(operator, Some(bytes))?);
        Ok(Self { operator, dtype, part })
    }

    /// Adds items, given by their bytes, each to the group of its index.
    ///
    /// # Errors
    ///
    /// [`gpu_reduce::Error::LengthMismatch`].
    pub fn add(&mut self, indices: &[i64], items: &[u8]) -> Result<(), Error> {
        self.part.add(indices, items)
    }

    /// Adds the items of another part.
    ///
    /// # Errors
    ///
    /// [`PartialError::Other`] if it has another operator or type.
    pub fn merge(&mut self, other: Self) -> Result<(), PartialError> {
        let mismatch = PartialError::Other {
            found: format!("{} of {}", other.operator, other.dtype),
            expected: format!("{} of {}", self.operator, self.dtype),
        };
        if (self.operator, self.dtype) != (other.operator, other.dtype) {
            return Err(mismatch);
        }
        Ok(self.part.merge(other.part.into_any())?)
    }

    /// The results of the indices `0..count`. More items may be added after it.
    ///
    /// # Errors
    ///
    /// [`gpu_reduce::Error::BadIndex`] for an index that is negative or too large,
    /// [`gpu_reduce::Error::EmptySegment`] of an index without items if the operator has no value for none.
    pub fn finish(&self, count: usize) -> Result<Values, Error> {
        self.part.finish(count)
    }

    /// The part as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.part.to_bytes()
    }

    /// The operator.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The type of the items.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }
}

/// [`PartialGroups`] by any one operator.
trait Part: Send + Sync {
    fn add(&mut self, indices: &[i64], items: &[u8]) -> Result<(), Error>;

    fn merge(&mut self, other: Box<dyn Any>) -> Result<(), Error>;

    fn finish(&self, count: usize) -> Result<Values, Error>;

    fn to_bytes(&self) -> Vec<u8>;

    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Number, O: Op<T, Output: Value> + Send + Sync> Part for (O, PartialGroups<O, i64, T>) {
    fn add(&mut self, indices: &[i64], items: &[u8]) -> Result<(), Error> {
        Ok(self.1.add(indices, &*cast::<T>(items))?)
    }

    fn merge(&mut self, other: Box<dyn Any>) -> Result<(), Error> {
        match other.downcast::<Self>() {
            Ok(other) => Ok(self.1.merge(other.1)?),
            Err(_) => unreachable!("operators and types are the same"),
        }
    }

    fn finish(&self, count: usize) -> Result<Values, Error> {
        let (op, groups) = self;
        let of_none = op.finish(op.identity(), 0);
        let results = match of_none {
            Some(of_none) => groups.finish_by_index(count, of_none)?.to_vec()?,
            None => {
                let (indices, results) = groups.finish()?;
                check(&indices.to_vec()?, count, O::NAME)?;
                results.to_vec()?
            }
        };
        Ok(Values::of(results))
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.1.to_bytes()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Fails unless the indices, which ascend, are those from 0 to below `count`.
fn check(indices: &[i64], count: usize, op: &'static str) -> Result<(), gpu_reduce::Error> {
    // Each is there once.
    let wrong = |&(place, &index): &(usize, &i64)| index != place as i64;
    match (indices.iter().enumerate().find(wrong), indices.last()) {
        (None, _) if indices.len() == count => Ok(()),
        (Some((_, &index)), _) if index < 0 => {
            Err(gpu_reduce::Error::BadIndex { place: 0, index: index.into(), count })
        }
        (_, Some(&last)) if last >= count as i64 => {
            let place = indices.len() as u64 - 1;
            Err(gpu_reduce::Error::BadIndex { place, index: last.into(), count })
        }
        (missing, _) => {
            let segment = missing.map_or(indices.len(), |(place, _)| place) as u64;
            Err(gpu_reduce::Error::EmptySegment { op, segment })
        }
    }
}

/// Parts of items of one type.
trait Parts: Number {
    /// A part by the operator, with these bytes if given.
    fn part(operator: Operator, bytes: Option<&[u8]>) -> Result<Box<dyn Part>, PartialError>;
}

/// A part by an operator of the library.
fn part<T: Number, O: Op<T, Output: Value> + Send + Sync>(
    op: O,
    bytes: Option<&[u8]>,
) -> Result<Box<dyn Part>, PartialError> {
    let groups = match bytes {
        None => PartialGroups::<O, i64, T>::new(op),
        Some(bytes) => PartialGroups::from_bytes(op, bytes).map_err(Error::from)?,
    };
    Ok(Box::new((op, groups)))
}

/// Implements [`Parts`] for the operators that have partial groups; others would not compile.
macro_rules! parts {
    ($($T:ident)*: $ops:tt) => { $(parts! { @one $T $ops })* };
    (@one $T:ident [$($op:ident)*]) => {
        impl Parts for $T {
            #[allow(unreachable_patterns, reason = "integers have operators of bits")]
            fn part(operator: Operator, bytes: Option<&[u8]>) -> Result<Box<dyn Part>, PartialError> {
                match operator {
                    $(Operator::$op => part::<$T, _>(gpu_reduce::$op, bytes),)*
                    Operator::BitAnd | Operator::BitOr | Operator::BitXor => {
                        Err(Error::NotIntegers { operator, dtype: <$T as Number>::TYPE }.into())
                    }
                    operator => Err(PartialError::InOrder { operator, dtype: <$T as Number>::TYPE }),
                }
            }
        }
    };
}

parts! {
    i8 i16 i32 i64 u8 u16 u32 u64: [
        Sum Prod SumSq NanSum CompensatedSum ExactSum ExactSumTwofold Mean NanMean ExactMean
        Min Max MinMax NanMin NanMax Any All CountNonzero CountNan BitAnd BitOr BitXor
    ]
}

parts! {
    f16 bf16 f32 f64: [
        Sum ExactSum ExactSumTwofold Mean ExactMean
        Min Max MinMax NanMin NanMax Any All CountNonzero CountNan
    ]
}
