//! One operator, or several in a tuple, over many segments.

use crate::data::Data;
use crate::{Buffer, Error, Item, Op, Pending, Segments, Stream};

/// One operator, or two to six in a tuple, by which [`Segments::by`] reduces.
///
/// `M` says which: the compiler infers it.
pub trait Operators<I: Copy + 'static, M>: Copy + sealed::Sealed<M> {
    /// A result; of a tuple, a tuple of results.
    type Outputs: Copy;

    /// A buffer of results; of a tuple, a tuple of buffers.
    type Buffers;

    /// Reduces each segment by one operator after the other.
    #[doc(hidden)]
    fn run<'a, D: Data<'a, Item = I>>(
        self,
        segments: &Segments<'a, D>,
        defaults: Option<Self::Outputs>,
        block: u32,
    ) -> Result<Self::Buffers, Error>;

    /// As [`run`](Self::run), on a stream.
    #[doc(hidden)]
    fn start<'a, D: Data<'a, Item = I>>(
        self,
        segments: &Segments<'a, D>,
        defaults: Option<Self::Outputs>,
        block: u32,
        stream: &Stream,
    ) -> Pending<'a, Self::Buffers>;
}

/// [`Operators`] that are one operator.
#[derive(Clone, Copy, Debug)]
pub struct One;

/// [`Operators`] that are a tuple.
#[derive(Clone, Copy, Debug)]
pub struct Several;

mod sealed {
    pub trait Sealed<M> {}
}

impl<O: Copy> sealed::Sealed<One> for O {}

impl<I: Copy + 'static, O: Op<I, Output: Item>> Operators<I, One> for O {
    type Outputs = O::Output;
    type Buffers = Buffer<O::Output>;

    fn run<'a, D: Data<'a, Item = I>>(
        self,
        segments: &Segments<'a, D>,
        default: Option<O::Output>,
        block: u32,
    ) -> Result<Self::Buffers, Error> {
        segments.run(self, default, block)
    }

    fn start<'a, D: Data<'a, Item = I>>(
        self,
        segments: &Segments<'a, D>,
        default: Option<O::Output>,
        block: u32,
        stream: &Stream,
    ) -> Pending<'a, Self::Buffers> {
        segments.start(self, default, block, stream).unwrap_or_else(Pending::from)
    }
}

/// Nests values in pairs, as a value or a pattern: `(a, (b, c))`.
macro_rules! nested {
    ($last:ident) => { $last };
    ($first:ident $($rest:ident)+) => { ($first, nested!($($rest)+)) };
}

/// Joins results that are pending in nested pairs.
macro_rules! joined {
    ($last:expr) => { $last };
    ($first:expr, $($rest:expr),+) => { $first.join(joined!($($rest),+), |first, rest| (first, rest)) };
}

macro_rules! tuples {
    ($($($op:ident $place:tt),+;)*) => {$(
        impl<$($op: Copy),+> sealed::Sealed<Several> for ($($op,)+) {}

        impl<I: Copy + 'static, $($op: Op<I, Output: Item>),+> Operators<I, Several> for ($($op),+) {
            type Outputs = ($($op::Output),+);
            type Buffers = ($(Buffer<$op::Output>),+);

            fn run<'a, Q: Data<'a, Item = I>>(
                self,
                segments: &Segments<'a, Q>,
                defaults: Option<Self::Outputs>,
                block: u32,
            ) -> Result<Self::Buffers, Error> {
                let segments = segments.counted()?;
                Ok(($(segments.run(self.$place, defaults.map(|defaults| defaults.$place), block)?),+))
            }

            #[allow(non_snake_case)]
            fn start<'a, Q: Data<'a, Item = I>>(
                self,
                segments: &Segments<'a, Q>,
                defaults: Option<Self::Outputs>,
                block: u32,
                stream: &Stream,
            ) -> Pending<'a, Self::Buffers> {
                let segments = match segments.counted() {
                    Ok(segments) => segments,
                    Err(error) => return error.into(),
                };
                let nested = joined!($(
                    Operators::<I, One>::start(
                        self.$place,
                        &segments,
                        defaults.map(|defaults| defaults.$place),
                        block,
                        stream,
                    )
                ),+);
                nested.join(Pending::done(Ok(())), |nested!($($op)+), ()| ($($op),+))
            }
        }
    )*};
}

tuples! {
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}
