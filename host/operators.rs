//! One operator, or several in a tuple, over many segments, or over the items of many indices.

use crate::{Buffer, Error, Item, Op, Pending, Stream};

/// What reduces to a result for each part: segments, or the items of each index.
pub trait Parts<'a, I: Copy + 'static>: Sized {
    /// Reduces each part, and waits.
    fn run<O: Op<I, Output: Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
    ) -> Result<Buffer<O::Output>, Error>;

    /// Starts the reduction of each part on a stream.
    fn start<O: Op<I, Output: Item>>(
        &self,
        op: O,
        default: Option<O::Output>,
        block: u32,
        stream: &Stream,
    ) -> Result<Pending<'a, Buffer<O::Output>>, Error>;

    /// Returns the parts with their number, which is copied from the device if it lies there.
    fn counted(&self) -> Result<Self, Error>;
}

/// One operator, or two to six in a tuple, by which [`Segments::by`](crate::Segments::by) and
/// [`ByIndex::by`](crate::ByIndex::by) reduce.
///
/// `M` says which: the compiler infers it.
pub trait Operators<I: Copy + 'static, M>: Copy + sealed::Sealed<M> {
    /// A result; of a tuple, a tuple of results.
    type Outputs: Copy;

    /// A buffer of results; of a tuple, a tuple of buffers.
    type Buffers;

    /// Reduces each part by one operator after the other.
    #[doc(hidden)]
    fn run<'a, P: Parts<'a, I>>(
        self,
        parts: &P,
        defaults: Option<Self::Outputs>,
        block: u32,
    ) -> Result<Self::Buffers, Error>;

    /// As [`run`](Self::run), on a stream.
    #[doc(hidden)]
    fn start<'a, P: Parts<'a, I>>(
        self,
        parts: &P,
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

    fn run<'a, P: Parts<'a, I>>(
        self,
        parts: &P,
        default: Option<O::Output>,
        block: u32,
    ) -> Result<Self::Buffers, Error> {
        parts.run(self, default, block)
    }

    fn start<'a, P: Parts<'a, I>>(
        self,
        parts: &P,
        default: Option<O::Output>,
        block: u32,
        stream: &Stream,
    ) -> Pending<'a, Self::Buffers> {
        parts.start(self, default, block, stream).unwrap_or_else(Pending::from)
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

            fn run<'a, P: Parts<'a, I>>(
                self,
                parts: &P,
                defaults: Option<Self::Outputs>,
                block: u32,
            ) -> Result<Self::Buffers, Error> {
                let parts = parts.counted()?;
                Ok(($(parts.run(self.$place, defaults.map(|defaults| defaults.$place), block)?),+))
            }

            #[allow(non_snake_case)]
            fn start<'a, P: Parts<'a, I>>(
                self,
                parts: &P,
                defaults: Option<Self::Outputs>,
                block: u32,
                stream: &Stream,
            ) -> Pending<'a, Self::Buffers> {
                let parts = match parts.counted() {
                    Ok(parts) => parts,
                    Err(error) => return error.into(),
                };
                let nested = joined!($(
                    Operators::<I, One>::start(
                        self.$place,
                        &parts,
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
