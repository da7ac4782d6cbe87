//! Several operators in one call of many reductions.

use crate::data::Data;
use crate::{Buffer, Error, Item, Op, Segments};

/// Two to six operators in a tuple, for [`Segments::reduce_tuple`]: of each, a buffer of results.
pub trait Operators<I: Copy + 'static>: Copy + sealed::Sealed {
    /// A result of each.
    type Outputs: Copy;

    /// A buffer of each one's results.
    type Buffers;

    /// Reduces each segment by one operator after the other.
    #[doc(hidden)]
    fn reduce_segments<'a, Q: Data<'a, Item = I>>(
        self,
        segments: &Segments<'a, Q>,
        defaults: Option<Self::Outputs>,
        block: u32,
    ) -> Result<Self::Buffers, Error>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! tuples {
    ($($($op:ident $place:tt),+;)*) => {$(
        impl<$($op: Copy),+> sealed::Sealed for ($($op),+) {}

        impl<I: Copy + 'static, $($op: Op<I, Output: Item>),+> Operators<I> for ($($op),+) {
            type Outputs = ($($op::Output),+);
            type Buffers = ($(Buffer<$op::Output>),+);

            fn reduce_segments<'a, Q: Data<'a, Item = I>>(
                self,
                segments: &Segments<'a, Q>,
                defaults: Option<Self::Outputs>,
                block: u32,
            ) -> Result<Self::Buffers, Error> {
                Ok(($(segments.run(self.$place, defaults.map(|defaults| defaults.$place), block)?),+))
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
