//! The library's table: an operator is a row. It is compiled for every element type with every BLOCK, has a one-line function of
//! the row's name, and is tested and timed with the others.

/// The operators: calls `$callback! { { ARGUMENTS } ROW ROW … }`, a row being `NAME: OPERATOR;` with the documentation of its
/// one-line function before it.
#[macro_export]
macro_rules! for_each_operator {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            /// The sum of a slice or a buffer; see [`Sum`](crate::Sum) for its type. An empty sum is 0.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::sum(&[1u8, 2, 255])?, 258);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            sum: Sum;
            /// The product of a slice or a buffer; see [`Prod`](crate::Prod) for its type. An empty product is 1.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::prod(&[1.5f64, 2.0])?, 3.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            prod: Prod;
            /// The smallest element of a slice or a buffer; NaN if there is one, and an error where there are none.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::min(&[3i16, -1, 4])?, -1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            min: Min;
            /// The largest element of a slice or a buffer; NaN if there is one, and an error where there are none.
            ///
            /// ```
            /// assert!(gpu_reduce::max(&[1.0f32, f32::NAN])?.is_nan());
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            max: Max;
        }
    };
}

macro_rules! table {
    ({} $($(#[$doc:meta])* $name:ident: $op:ident;)*) => {
        $( $crate::for_each_element! { compiled! { $name $op } } )*

        /// The entry points of all, whose PTX the host library embeds.
        pub static ENTRIES: &[&[Entry]] = &[$( $crate::for_each_element! { entries! { $name $op } } ),*];
    };
}

#[cfg(feature = "production")]
macro_rules! compiled {
    ({ $name:ident $op:ident } $($type:ident: $($row:ident)*;)*) => {
        $( $crate::for_each_block! {
            reduce_entries! { [concat!(stringify!($name), "_", stringify!($type))] crate::op::$op, $type }
        } )*
    };
}

#[cfg(not(feature = "production"))]
macro_rules! compiled {
    ($($row:tt)*) => {};
}

macro_rules! entries {
    ({ $name:ident $op:ident } $($type:ident: $($row:ident)*;)*) => {
        // SAFETY: the entry points are those that `compiled` makes.
        &[$(unsafe {
            Entry::new::<reduce::Kernel<crate::op::$op, *const $type>>(concat!(stringify!($name), "_", stringify!($type)))
        }),*]
    };
}

use crate::kernels::Entry;
#[allow(unused_imports)]
use crate::{bf16, f16, reduce, reduce_entries};

for_each_operator! { table! {} }
