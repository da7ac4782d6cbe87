//! The library's table: an operator is a row. It is compiled for every element type with every BLOCK, has a one-line function of
//! the row's name, and is tested and timed with the others.

/// The operators: calls `$callback! { { ARGUMENTS } ROW ROW … }`, a row being `NAME: OPERATOR BLOCKS;` with the documentation of its
/// one-line function before it. BLOCKS says which entry points there are: one for `each` BLOCK, which is what is fastest, or one for
/// `any`, which is a twelfth of the code.
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
            sum: Sum each;
            /// The product of a slice or a buffer; see [`Prod`](crate::Prod) for its type. An empty product is 1.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::prod(&[1.5f64, 2.0])?, 3.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            prod: Prod each;
            /// The sum of the squares of a slice or a buffer; see [`SumOfSquares`](crate::SumOfSquares) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::sumsq(&[3i8, -4])?, 25);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            sumsq: SumOfSquares each;
            /// The smallest element of a slice or a buffer; NaN if there is one, and an error where there are none.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::min(&[3i16, -1, 4])?, -1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            min: Min each;
            /// The largest element of a slice or a buffer; NaN if there is one, and an error where there are none.
            ///
            /// ```
            /// assert!(gpu_reduce::max(&[1.0f32, f32::NAN])?.is_nan());
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            max: Max each;
            /// The index of the smallest element, of the first where there are several; that of the first NaN if there is one.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::argmin(&[3i16, -1, 4, -1])?, 1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            argmin: ArgMin any;
            /// The index of the largest element, of the first where there are several; that of the first NaN if there is one.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::argmax(&[1.0f32, f32::NAN, 2.0])?, 1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            argmax: ArgMax any;
            /// The indices of the smallest and of the largest element.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::argminmax(&[3u8, 1, 4])?, [1, 2]);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            argminmax: ArgMinMax any;
            /// The smallest and the largest element; NaN if there is one, and an error where there are none.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::minmax(&[3u8, 1, 4])?, [1, 4]);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            minmax: MinMax any;
            /// The arithmetic mean of a slice or a buffer; see [`Mean`](crate::Mean) for its type. Of no elements it is NaN.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::mean(&[u64::MAX, u64::MAX])?, u64::MAX as f64);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            mean: Mean any;
            /// The variance of a slice or a buffer, a whole population; see [`Var`](crate::Var) for that of a sample.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::var(&[1u8, 2, 3, 4])?, 1.25);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            var: Var any;
            /// The standard deviation of a slice or a buffer, a whole population; see [`Std`](crate::Std) for that of a sample.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::std(&[1.0f32, 5.0])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            std: Std any;
            /// The sum of magnitudes; see [`NormL1`](crate::NormL1) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::norm_l1(&[3i8, -128])?, 131.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            norm_l1: NormL1 any;
            /// The square root of the sum of squares, with no overflow or underflow on the way; see [`NormL2`](crate::NormL2) for its type.
            ///
            /// ```
            /// let huge = 2f64.powi(1000);
            /// assert_eq!(gpu_reduce::norm_l2(&[3.0 * huge, -4.0 * huge])?, 5.0 * huge);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            norm_l2: NormL2 any;
            /// The largest magnitude; see [`NormMax`](crate::NormMax) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::norm_max(&[3i8, -128])?, 128.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            norm_max: NormMax any;
            /// Whether any element is not zero; a NaN is not.
            ///
            /// ```
            /// assert!(gpu_reduce::any(&[0i32, 2, 0])?);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            any: Any any;
            /// Whether all elements are not zero; a NaN is not.
            ///
            /// ```
            /// assert!(!gpu_reduce::all(&[1.0f64, -0.0])?);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            all: All any;
            /// How many elements are not zero; a NaN is not.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::count_nonzero(&[0.0f32, 2.0, f32::NAN])?, 2);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            count_nonzero: CountNonzero any;
            /// How many elements are NaN.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::count_nan(&[0.0f32, 2.0, f32::NAN])?, 1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            count_nan: CountNan any;
            /// The sum of the elements that are not NaN.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nansum(&[1.0f32, 2.0, f32::NAN])?, 3.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nansum: NanSum any;
            /// The smallest element that is not NaN; NaN where all are, and an error where there are none.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanmin(&[1.0f32, 2.0, f32::NAN])?, 1.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanmin: NanMin any;
            /// The largest element that is not NaN; NaN where all are, and an error where there are none.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanmax(&[1.0f32, 2.0, f32::NAN])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanmax: NanMax any;
            /// The index of the smallest element that is not NaN, of the first where there are several.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanargmin(&[f32::NAN, 2.0, 1.0])?, 2);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanargmin: NanArgMin any;
            /// The index of the largest element that is not NaN, of the first where there are several.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanargmax(&[f32::NAN, 2.0, 1.0])?, 1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanargmax: NanArgMax any;
            /// The mean of the elements that are not NaN; see [`NanMean`](crate::NanMean) for its type. Where there are none it is NaN.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanmean(&[1.0f32, f32::NAN, 2.0])?, 1.5);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanmean: NanMean any;
            /// The variance of the elements that are not NaN, a whole population; see [`NanVar`](crate::NanVar) for that of a sample.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanvar(&[1.0f32, f32::NAN, 5.0])?, 4.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanvar: NanVar any;
            /// The standard deviation of the elements that are not NaN, a whole population; see [`NanStd`](crate::NanStd) for that of a
            /// sample.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanstd(&[1.0f32, f32::NAN, 5.0])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanstd: NanStd any;
        }
    };
}

macro_rules! table {
    ({} $($(#[$doc:meta])* $name:ident: $op:ident $blocks:ident;)*) => {
        $( $crate::for_each_element! { compiled! { $name $op $blocks } } )*

        /// The entry points of all, whose PTX the host library embeds.
        pub static ENTRIES: &[&[Entry]] = &[$( $crate::for_each_element! { entries! { $name $op } } ),*];

        #[allow(non_camel_case_types)]
        #[cfg_attr(target_arch = "nvptx64", expect(dead_code, reason = "folds are for CPUs"))]
        enum Index { $($name),* }

        $(impl Row for crate::op::$op {
            const INDEX: usize = Index::$name as usize;
        })*

        #[cfg(not(target_arch = "nvptx64"))]
        static FOLDS: &[&[Folds]] = &[$( $crate::for_each_element! { folds! { $op } } ),*];
    };
}

#[cfg(feature = "production")]
macro_rules! compiled {
    ({ $name:ident $op:ident each } $($type:ident: $($row:ident)*;)*) => {
        $( $crate::for_each_block! {
            reduce_entries! { [concat!(stringify!($name), "_", stringify!($type))] crate::op::$op, $type }
        } )*
    };
    ({ $name:ident $op:ident any } $($type:ident: $($row:ident)*;)*) => {
        $( reduce_entries! { { [concat!(stringify!($name), "_", stringify!($type))] crate::op::$op, $type } 0 } )*
    };
}

#[cfg(not(feature = "production"))]
macro_rules! compiled {
    ($($row:tt)*) => {};
}

macro_rules! entries {
    ({ $name:ident $op:ident } $($type:ident: $($row:ident)*;)*) => {
        &[$(
            Entry::new::<reduce::Kernel<crate::op::$op, *const $type>>(concat!(stringify!($name), "_", stringify!($type))),
            Entry::new::<reduce::RowKernel<crate::op::$op, *const $type>>(
                concat!(stringify!($name), "_", stringify!($type), "_row")
            ),
        )*]
    };
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! folds {
    ({ $op:ident } $($type:ident: $($row:ident)*;)*) => {
        &[$(Folds::of::<crate::op::$op, &[$type]>()),*]
    };
}

/// An operator's row. Not for others' operators: the folds are found by it.
pub(crate) trait Row {
    /// Its place in the table.
    #[cfg_attr(target_arch = "nvptx64", expect(dead_code, reason = "folds are for CPUs"))]
    const INDEX: usize;
}

/// Where the folds over slices are that are compiled here, for [`Op::ON_CPU`].
pub(crate) const fn on_cpu<O: Op<T> + Row, T: Element>() -> Option<OnCpu<O, T>> {
    #[cfg(not(target_arch = "nvptx64"))]
    return Some(OnCpu { row: O::INDEX, column: T::DTYPE as usize, types: PhantomData });
    #[cfg(target_arch = "nvptx64")]
    None
}

#[cfg(not(target_arch = "nvptx64"))]
impl<O, I> OnCpu<O, I> {
    /// The folds.
    #[inline]
    pub(crate) fn folds(&self) -> Folds {
        FOLDS[self.row][self.column]
    }
}

#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::Folds;
use crate::kernels::Entry;
use crate::op::OnCpu;
use crate::{Element, Op};
#[allow(unused_imports)]
use crate::{bf16, f16, reduce, reduce_entries};
#[cfg(not(target_arch = "nvptx64"))]
use core::marker::PhantomData;

for_each_operator! { table! {} }
