//! The library's tables of operators.
//!
//! Each operator is a row: it is compiled for every element type, has a one-line function of the row's name,
//! and is tested and timed with the others. There is a table for operators of elements, of integers only, of
//! pairs of elements, and of elements that are compared with a scalar.

/// The operators of elements: calls `$callback! { { ARGUMENTS } ROW ROW … }`.
///
/// A row is `NAME: OPERATOR BLOCKS COPIES;` after the documentation of its one-line function. BLOCKS says
/// which kernels of whole inputs are compiled: `each` for one kernel for each BLOCK, which is fastest, or
/// `any` or `large` for one kernel for every BLOCK, a twelfth of the code. If a call names no BLOCK, large
/// inputs have 1,024 threads a block with `each` and `large`, and 512 with `any`. Segments, rows and columns
/// always have one kernel for every BLOCK.
///
/// Two types of the same size share kernels (`op/twins.rs`): signed integers run the kernels of the unsigned type, and `bf16`
/// runs the kernels of `f16`. Each type has its own kernels
/// - for spans, whose kernel has 32 registers, and code for two types spills more of them (maxima of `u64` 200 bytes in place of 48);
/// - for columns of `exact_dot`, and of rows with `each` that are not `by value`: maxima of `u8` took 94 µs in place of 77;
/// - for floats that are `rows as wholes`, whose accumulators have other sizes;
/// - for all shapes of a row with `apart`: `minmax`, because rows of `i8` took 58 µs in place of 49.
///
/// An operator of a row `by value` depends on the type only in the value that it takes of an item (`op/by_value.rs`). Its kernels for two
/// types take this value for each type, and compute everything else once. If a row has `for others`, its kernels work in the same way, except
/// that a kernel of `exact_mean` of floats serves one type.
///
/// COPIES says which kernels are not compiled, because other kernels do the same:
/// - `as OTHER`: elements are reduced by the kernels of the row OTHER; `integers as OTHER` and `floats as OTHER`: those
///   elements are;
/// - `signed as unsigned`: signed integers are reduced by the kernels of the unsigned type of the same size, in which nothing
///   depends on the type;
/// - `rows as wholes`: floats that are a row by the kernel of whole inputs.
///
/// With `for others`, `integers for others` or `floats for others`, the row's kernels serve operators that differ in
/// their last step alone: they have a parameter that says which of the operators it is (`op/shared.rs`). For `var`
/// and `std`, short rows take 3% longer than with kernels of their own, which is less than their PTX is worth.
#[macro_export]
macro_rules! for_each_operator {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            /// The sum of a slice or a buffer; see [`Sum`](crate::Sum) for its type. For no elements it is 0.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::sum(&[1u8, 2, 255])?, 258);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            sum: Sum each by value;
            /// The product of a slice or a buffer; see [`Prod`](crate::Prod) for its type. For no elements it
            /// is 1.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::prod(&[1.5f64, 2.0])?, 3.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            prod: Prod each by value;
            /// The sum of the squares of a slice or a buffer; see [`SumSq`](crate::SumSq) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::sumsq(&[3i8, -4])?, 25);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            sumsq: SumSq each by value;
            /// The smallest element of a slice or a buffer. A NaN makes it NaN. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::min(&[3i16, -1, 4])?, -1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            min: Min each;
            /// The largest element of a slice or a buffer. A NaN makes it NaN. Empty input is an error.
            ///
            /// ```
            /// assert!(gpu_reduce::max(&[1.0f32, f32::NAN])?.is_nan());
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            max: Max each;
            /// The index of the smallest element; of the first one if there are several. If there is a NaN,
            /// the index of the first NaN. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::argmin(&[3i16, -1, 4, -1])?, 1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            argmin: ArgMin any;
            /// The index of the largest element; of the first one if there are several. If there is a NaN,
            /// the index of the first NaN. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::argmax(&[1.0f32, f32::NAN, 2.0])?, 1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            argmax: ArgMax any;
            /// The indices of the smallest and of the largest element. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::argminmax(&[3u8, 1, 4])?, [1, 2]);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            argminmax: ArgMinMax any;
            /// The smallest and the largest element. A NaN makes both NaN. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::minmax(&[3u8, 1, 4])?, [1, 4]);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            minmax: MinMax any apart;
            /// The arithmetic mean of a slice or a buffer; see [`Mean`](crate::Mean) for its type. For no
            /// elements it is NaN.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::mean(&[u64::MAX, u64::MAX])?, u64::MAX as f64);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            mean: Mean any integers for others;
            /// The variance of a slice or a buffer, as a whole population; see [`Var`](struct@crate::Var) for that
            /// of a sample.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::var(&[1u8, 2, 3, 4])?, 1.25);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            var: Var any for others;
            /// The standard deviation of a slice or a buffer, as a whole population; see [`Std`](struct@crate::Std)
            /// for that of a sample.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::std(&[1.0f32, 5.0])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            std: Std any as var;
            /// The L1 norm, the sum of the magnitudes; see [`NormL1`](crate::NormL1) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::norm_l1(&[3i8, -128])?, 131.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            norm_l1: NormL1 any by value;
            /// The Euclidean norm, without overflow or underflow on the way; see [`NormL2`](crate::NormL2)
            /// for its type.
            ///
            /// ```
            /// let huge = 2f64.powi(1000);
            /// assert_eq!(gpu_reduce::norm_l2(&[3.0 * huge, -4.0 * huge])?, 5.0 * huge);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            norm_l2: NormL2 any by value;
            /// The largest magnitude; see [`NormMax`](crate::NormMax) for its type. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::norm_max(&[3i8, -128])?, 128.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            norm_max: NormMax large by value;
            /// Whether any element is nonzero. A NaN is nonzero.
            ///
            /// ```
            /// assert!(gpu_reduce::any(&[0i32, 2, 0])?);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            any: Any large signed as unsigned;
            /// Whether all elements are nonzero. A NaN is nonzero.
            ///
            /// ```
            /// assert!(!gpu_reduce::all(&[1.0f64, -0.0])?);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            all: All large signed as unsigned;
            /// The number of nonzero elements. A NaN is nonzero.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::count_nonzero(&[0.0f32, 2.0, f32::NAN])?, 2);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            count_nonzero: CountNonzero large signed as unsigned;
            /// The number of elements that are NaN.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::count_nan(&[0.0f32, 2.0, f32::NAN])?, 1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            count_nan: CountNan large signed as unsigned;
            /// The sum of the elements that are not NaN; see [`NanSum`](crate::NanSum) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nansum(&[1.0f32, 2.0, f32::NAN])?, 3.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nansum: NanSum any integers as sum;
            /// The smallest element that is not NaN. If all are NaN, it is NaN. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanmin(&[1.0f32, 2.0, f32::NAN])?, 1.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanmin: NanMin any integers as min;
            /// The largest element that is not NaN. If all are NaN, it is NaN. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanmax(&[1.0f32, 2.0, f32::NAN])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanmax: NanMax any integers as max;
            /// The index of the smallest element that is not NaN; of the first one if there are several. If
            /// all are NaN, it is 0. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanargmin(&[f32::NAN, 2.0, 1.0])?, 2);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanargmin: NanArgMin any integers as argmin;
            /// The index of the largest element that is not NaN; of the first one if there are several. If
            /// all are NaN, it is 0. Empty input is an error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanargmax(&[f32::NAN, 2.0, 1.0])?, 1);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanargmax: NanArgMax any integers as argmax;
            /// The mean of the elements that are not NaN; see [`NanMean`](crate::NanMean) for its type. If
            /// there are none, it is NaN.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanmean(&[1.0f32, f32::NAN, 2.0])?, 1.5);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanmean: NanMean any integers as mean;
            /// The variance of the elements that are not NaN, as a whole population; see
            /// [`NanVar`](struct@crate::NanVar) for that of a sample.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanvar(&[1.0f32, f32::NAN, 5.0])?, 4.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanvar: NanVar any integers as var for others;
            /// The standard deviation of the elements that are not NaN, as a whole population; see
            /// [`NanStd`](struct@crate::NanStd) for that of a sample.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::nanstd(&[1.0f32, f32::NAN, 5.0])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            nanstd: NanStd any integers as var floats as nanvar;
            /// The mean, and the second, third and fourth central moments; see [`Moments`](struct@crate::Moments)
            /// for their type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::moments(&[1u8, 2, 3, 6])?, [3.0, 3.5, 4.5, 24.5]);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            moments: Moments any as skewness;
            /// The skewness; see [`Skewness`](struct@crate::Skewness) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::skewness(&[-1.0f32, 0.0, 1.0])?, 0.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            skewness: Skewness any for others;
            /// The excess kurtosis, which is 0 for a normal distribution; see [`Kurtosis`](struct@crate::Kurtosis)
            /// for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::kurtosis(&[-1.0f32, 1.0, -1.0, 1.0])?, -2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            kurtosis: Kurtosis any as skewness;
            /// The logarithm of the sum of exponentials, without overflow; see
            /// [`LogSumExp`](struct@crate::LogSumExp) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::logsumexp(&[1000.0f32, 1000.0])?, 1000.0 + 2f32.ln());
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            logsumexp: LogSumExp any by value;
            /// The sum, with compensated rounding errors; see [`CompensatedSum`](crate::CompensatedSum) for
            /// its error.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::compensated_sum(&[1e16_f64, 1.0, 1.0, -1e16])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            compensated_sum: CompensatedSum any integers as sum;
            /// The exact sum, rounded once to the nearest number; see [`ExactSum`](crate::ExactSum) for its
            /// type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::exact_sum(&[1e30f32, 1.0, -1e30])?, 1.0);
            /// assert_eq!(gpu_reduce::exact_sum(&[i64::MAX, 1])?, 1i128 << 63);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            exact_sum: ExactSum any rows as wholes integers as mean floats as exact_mean;
            /// The exact sum as two `f64`, the nearest one and the one nearest to the rest; see
            /// [`ExactSumTwofold`](crate::ExactSumTwofold).
            ///
            /// ```
            /// assert_eq!(gpu_reduce::exact_sum_twofold(&[1e30f64, 1.0])?, [1e30, 1.0]);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            exact_sum_twofold: ExactSumTwofold any rows as wholes integers as mean floats as exact_mean;
            /// The exact mean, rounded once to the nearest number; see [`ExactMean`](crate::ExactMean) for
            /// its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::exact_mean(&[f32::MAX, f32::MAX])?, f32::MAX);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            exact_mean: ExactMean any rows as wholes integers as mean floats for others;
        }
    };
}

/// The operators of integers only, in the form of [`for_each_operator!`](crate::for_each_operator!).
#[macro_export]
macro_rules! for_each_integer_operator {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            /// The bits that are set in all elements.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::bit_and(&[0b1110u8, 0b0111])?, 0b0110);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            bit_and: BitAnd any signed as unsigned;
            /// The bits that are set in any element.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::bit_or(&[0b1010u8, 0b0010])?, 0b1010);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            bit_or: BitOr any signed as unsigned;
            /// The bits that are set in an odd number of elements.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::bit_xor(&[0b1010u8, 0b0010])?, 0b1000);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            bit_xor: BitXor any signed as unsigned;
        }
    };
}

/// The operators of pairs of elements of one type, in the form of
/// [`for_each_operator!`](crate::for_each_operator!).
#[macro_export]
macro_rules! for_each_pair_operator {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            /// The dot product of two slices or buffers of the same length; see [`Dot`](crate::Dot) for its
            /// type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::dot(&[1i8, 2, 3], &[4i8, 5, -6])?, -4);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            dot: Dot any by value;
            /// The sum of the squared differences of two slices or buffers of the same length; see
            /// [`DistanceSquared`](crate::DistanceSquared) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::distance_squared(&[1.0f32, 5.0], &[4.0f32, 1.0])?, 25.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            distance_squared: DistanceSquared any by value;
            /// The sum of the magnitudes of the differences of two slices or buffers of the same length; see
            /// [`DistanceL1`](crate::DistanceL1) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::distance_l1(&[1u8, 5], &[4u8, 1])?, 7.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            distance_l1: DistanceL1 any by value;
            /// The mean of the first slice or buffer, weighted by the second; see
            /// [`WeightedMean`](crate::WeightedMean) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::weighted_mean(&[1.0f64, 4.0], &[2.0f64, 1.0])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            weighted_mean: WeightedMean any by value;
            /// The cosine of the angle between two vectors; see [`Cosine`](crate::Cosine) for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::cosine(&[1.0f32, 0.0], &[0.0f32, 2.0])?, 0.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            cosine: Cosine any by value;
            /// The exact dot product, rounded once to the nearest number; see [`ExactDot`](crate::ExactDot)
            /// for its type.
            ///
            /// ```
            /// assert_eq!(gpu_reduce::exact_dot(&[1e20f32, 1.0, -1e20], &[1e10f32, 2.0, 1e10])?, 2.0);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            exact_dot: ExactDot any rows as wholes;
        }
    };
}

/// The operators that compare elements with a scalar, in the form of
/// [`for_each_operator!`](crate::for_each_operator!). For elements of type `T` the operator is `OPERATOR<T>`.
#[macro_export]
macro_rules! for_each_comparison {
    ($callback:ident! { $($arguments:tt)* }) => {
        $callback! {
            { $($arguments)* }
            /// The number of elements for which a comparison holds.
            ///
            /// ```
            /// use gpu_reduce::Comparison::Greater;
            ///
            /// assert_eq!(gpu_reduce::count_where(&[1.0f32, 3.0, 2.0], Greater(1.5))?, 2);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            count_where: CountWhere large by value;
            /// The sum of the elements for which a comparison holds; see [`SumWhere`](crate::SumWhere) for
            /// its type.
            ///
            /// ```
            /// use gpu_reduce::Comparison::LessEqual;
            ///
            /// assert_eq!(gpu_reduce::sum_where(&[1u8, 3, 2], LessEqual(2))?, 3);
            /// # Ok::<(), gpu_reduce::Error>(())
            /// ```
            sum_where: SumWhere any by value;
        }
    };
}

/// The type of an operator, of its input or of its source, by the kind of table.
#[allow(unused_macros)] // in a build for CPUs alone
macro_rules! of {
    (comparison operator $op:ident $type:ident) => { crate::op::$op<$type> };
    (together operator $op:ident $type:ident) => { crate::op::together::$op };
    ($kind:ident operator $op:ident $type:ident) => { crate::op::$op };
    (pair item $type:ident) => { ($type, $type) };
    ($kind:ident item $type:ident) => { $type };
    (pair input $type:ident) => { (*const $type, *const $type) };
    ($kind:ident input $type:ident) => { *const $type };
    (pair source $type:ident) => { (&[$type], &[$type]) };
    ($kind:ident source $type:ident) => { &[$type] };
}

/// The [`Row`] of an operator, and its name as text.
macro_rules! row {
    (comparison $($row:tt)*) => {
        row! { @row [T: Element] [<T>] comparison $($row)* }
    };
    ($kind:ident $($row:tt)*) => {
        row! { @row [] [] $kind $($row)* }
    };
    (@row [$($generics:tt)*] [$($of:tt)*] $kind:ident $for_each_type:ident $name:ident $op:ident $how:tt) => {
        /// The name of the one-line function, as `sum`.
        impl<$($generics)*> core::fmt::Display for crate::op::$op $($of)* {
            fn fmt(&self, f: &mut core::fmt::Formatter) -> core::fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        impl<$($generics)*> Row for crate::op::$op $($of)* {
            const LARGE_BLOCK: u32 = row! { @large $how };

            const MEMBER: u32 = row! { @member $op $how };

            #[cfg(not(target_arch = "nvptx64"))]
            const KERNELS: Kernels = files! {
                $name $how
                &[
                    $crate::$for_each_type! { entries! { $kind $name $op $how } },
                    $crate::for_each_alias! { entries! { alias $kind $name $op $how } },
                    row! { @bool $kind $name $op $how },
                ];
            };

            #[cfg(all(feature = "folds", not(any(test, target_arch = "nvptx64"))))]
            const FOLDS: &'static &'static [Folds] = {
                static FOLDS: &[Folds] = $crate::$for_each_type! { folds! { $kind $op } };
                &FOLDS
            };
        }
    };
    (@member $op:ident [$blocks:ident as $other:ident]) => { row! { @member $op } };
    (@member $op:ident [$blocks:ident integers as $other:ident floats as $another:ident]) => { row! { @member $op } };
    (@member $op:ident [$blocks:ident rows as wholes integers as $other:ident $($copies:ident)+]) => {
        row! { @member $op }
    };
    (@member $op:ident $how:tt) => { 0 };
    (@member $op:ident) => { <crate::op::$op as crate::op::shared::Member>::MEMBER };
    (@bool element $name:ident $op:ident $how:tt) => {
        entries! { { alias element $name $op $how } bool: u8; }
    };
    (@bool $kind:ident $name:ident $op:ident $how:tt) => { &[] };
    (@large [any $($copies:ident)*]) => { 512 };
    (@large $how:tt) => { 1024 };
}

/// The kernels of some entries, by [`embedded!`] with the files that a row's kernels are in: `files! { NAME HOW
/// ENTRIES; FILE FILE … }`, with the files of other rows.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! files {
    ($name:ident [$blocks:ident integers as $other:ident] $($rest:tt)*) => {
        embedded! { $($rest)* $name $other }
    };
    ($name:ident [$blocks:ident integers as $other:ident for others] $($rest:tt)*) => {
        embedded! { $($rest)* $name $other }
    };
    ($name:ident [$blocks:ident integers as $other:ident floats as $another:ident] $($rest:tt)*) => {
        embedded! { $($rest)* $other $another }
    };
    ($name:ident [$blocks:ident as $other:ident] $($rest:tt)*) => {
        embedded! { $($rest)* $other }
    };
    ($name:ident [$blocks:ident rows as wholes $($copies:ident)+] $($rest:tt)*) => {
        files! { $name [$blocks $($copies)+] $($rest)* }
    };
    ($name:ident [$blocks:ident integers as $other:ident floats for others] $($rest:tt)*) => {
        embedded! { $($rest)* $name $other }
    };
    ($name:ident $how:tt $($rest:tt)*) => {
        embedded! { $($rest)* $name }
    };
}

/// Finds the kernels that serve a row and a type, and calls `$then!` with their name and type:
///
/// - `@own` if they are the row's, for the type or its twin; `@by_value` if only the value of an item depends on which;
///   `@shared` if they serve other operators, too;
/// - `@apart` if they are the row's, for this type alone; `@alike` if they are the row's, for the type or its twin without
///   a difference;
/// - `@exact` and `@shared_exact` if they are for this type alone, without a kernel of inputs of a row;
/// - `@copy` if another row's kernels serve, and `@copy_exact` if those have none for a row.
macro_rules! kernels_of {
    ($then:ident $args:tt $name:ident i8 $how:tt) => { kernels_of! { @integer $then $args $name i8 $how } };
    ($then:ident $args:tt $name:ident i16 $how:tt) => { kernels_of! { @integer $then $args $name i16 $how } };
    ($then:ident $args:tt $name:ident i32 $how:tt) => { kernels_of! { @integer $then $args $name i32 $how } };
    ($then:ident $args:tt $name:ident i64 $how:tt) => { kernels_of! { @integer $then $args $name i64 $how } };
    ($then:ident $args:tt $name:ident u8 $how:tt) => { kernels_of! { @integer $then $args $name u8 $how } };
    ($then:ident $args:tt $name:ident u16 $how:tt) => { kernels_of! { @integer $then $args $name u16 $how } };
    ($then:ident $args:tt $name:ident u32 $how:tt) => { kernels_of! { @integer $then $args $name u32 $how } };
    ($then:ident $args:tt $name:ident u64 $how:tt) => { kernels_of! { @integer $then $args $name u64 $how } };
    ($then:ident $args:tt $name:ident $float:ident $how:tt) => {
        kernels_of! { @float $then $args $name $float $how }
    };
    (@integer $then:ident $args:tt $name:ident $type:ident [$blocks:ident integers as $other:ident $($copies:ident)*]) => {
        $then! { @copy $args $other $type }
    };
    (@integer $then:ident $args:tt $name:ident $type:ident [$blocks:ident signed as unsigned]) => {
        $then! { @alike $args $name $type }
    };
    (@integer $then:ident $args:tt $name:ident $type:ident [$blocks:ident integers for others]) => {
        $then! { @shared $args $name $type }
    };
    (@integer $then:ident $args:tt $name:ident $type:ident [$blocks:ident rows as wholes $($copies:ident)*]) => {
        kernels_of! { @integer $then $args $name $type [$blocks $($copies)*] }
    };
    (@float $then:ident $args:tt $name:ident $type:ident [$blocks:ident integers as $other:ident floats $($copies:ident)*]) => {
        kernels_of! { @any $then $args $name $type [$blocks $($copies)*] }
    };
    (@float $then:ident $args:tt $name:ident $type:ident [$blocks:ident integers as $other:ident $($copies:ident)*]) => {
        kernels_of! { @any $then $args $name $type [$blocks $($copies)*] }
    };
    (@float $then:ident $args:tt $name:ident $type:ident [$blocks:ident rows as wholes]) => {
        $then! { @exact $args $name $type }
    };
    (@float $then:ident $args:tt $name:ident $type:ident [$blocks:ident rows as wholes integers as $integers:ident floats for others]) => {
        $then! { @shared_exact $args $name $type }
    };
    (@float $then:ident $args:tt $name:ident $type:ident [$blocks:ident rows as wholes integers as $integers:ident floats as $other:ident]) => {
        $then! { @copy_exact $args $other $type }
    };
    (@any $then:ident $args:tt $name:ident $type:ident [$blocks:ident for others]) => {
        $then! { @shared $args $name $type }
    };
    (@any $then:ident $args:tt $name:ident $type:ident [$blocks:ident as $other:ident]) => {
        $then! { @copy $args $other $type }
    };
    (@any $then:ident $args:tt $name:ident $type:ident [$blocks:ident apart]) => {
        $then! { @apart $args $name $type }
    };
    (@any $then:ident $args:tt $name:ident $type:ident [$blocks:ident by value]) => {
        $then! { @by_value $args $name $type }
    };
    // Of floats.
    (@any $then:ident $args:tt $name:ident $type:ident [$blocks:ident integers for others]) => {
        $then! { @by_value $args $name $type }
    };
    (@any $then:ident $args:tt $name:ident $type:ident $how:tt) => {
        $then! { @own $args $name $type }
    };
    (@$class:ident $then:ident $args:tt $name:ident $type:ident $how:tt) => {
        kernels_of! { @any $then $args $name $type $how }
    };
}

/// The kernels of several operators in one pass, and the files that they are in.
macro_rules! together {
    ([$($file:ident)+] $($name:ident: $op:ident $($how:ident)+;)*) => {
        mod together {
            #[allow(unused_imports)]
            use super::*;

            $( $crate::for_each_element! { compiled! { together $name $op [$($how)+] } } )*

            #[cfg(not(target_arch = "nvptx64"))]
            pub(super) const KERNELS: Kernels = embedded! {
                &[$(
                    $crate::for_each_element! { entries! { together $name $op [$($how)+] } },
                    $crate::for_each_alias! { entries! { alias together $name $op [$($how)+] } }
                ),*];
                $($file)+
            };
        }
    };
}

macro_rules! table {
    ({ $table:ident $kind:ident $for_each_type:ident } $($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*) => {
        mod $table {
            use super::*;

            $( $crate::$for_each_type! { compiled! { $kind $name $op [$($how)+] } } )*

            $( row! { $kind $for_each_type $name $op [$($how)+] } )*
        }
    };
}

/// Calls `compiled!` with a type, and with its twin if it has one that runs its kernels; not for a type that runs its twin's.
macro_rules! with_twin {
    ($how:ident $args:tt $name:ident u8) => {
        compiled! { @$how $args $name u8 i8 }
    };
    ($how:ident $args:tt $name:ident u16) => {
        compiled! { @$how $args $name u16 i16 }
    };
    ($how:ident $args:tt $name:ident u32) => {
        compiled! { @$how $args $name u32 i32 }
    };
    ($how:ident $args:tt $name:ident u64) => {
        compiled! { @$how $args $name u64 i64 }
    };
    ($how:ident $args:tt $name:ident f16) => {
        compiled! { @$how $args $name f16 bf16 }
    };
    ($how:ident $args:tt $name:ident i8) => {};
    ($how:ident $args:tt $name:ident i16) => {};
    ($how:ident $args:tt $name:ident i32) => {};
    ($how:ident $args:tt $name:ident i64) => {};
    ($how:ident $args:tt $name:ident bf16) => {};
    ($how:ident $args:tt $name:ident $type:ident) => {
        compiled! { @$how $args $name $type }
    };
}

/// The name of the type whose kernels a type runs.
#[cfg(all(feature = "ptx", target_os = "linux"))]
macro_rules! first_twin {
    (i8) => {
        "u8"
    };
    (i16) => {
        "u16"
    };
    (i32) => {
        "u32"
    };
    (i64) => {
        "u64"
    };
    (bf16) => {
        "f16"
    };
    ($type:ident) => {
        stringify!($type)
    };
}

/// A row's entry points, in the families whose features are on.
macro_rules! compiled {
    ({ $kind:ident $name:ident $op:ident $how:tt } $($type:ident: $($row:ident)*;)*) => {
        $( kernels_of! { compiled [$kind $op $how] $name $type $how } )*
    };
    (@copy $($copy:tt)*) => {};
    (@copy_exact $($copy:tt)*) => {};
    (@own $args:tt $name:ident $type:ident) => {
        with_twin! { twins $args $name $type }
        compiled! { @alone $args $name $type }
    };
    (@shared [$kind:ident $op:ident $how:tt] $name:ident $type:ident) => {
        with_twin! { shared_either [$kind $op $how] $name $type }
        compiled! {
            @of_one_type $kind
            [
                concat!(stringify!($name), "_", stringify!($type)); op member =>
                $crate::op::shared::Shared::new($crate::op::twins::InKernel::of_either(op, 0), member)
            ]
            $op $type
        }
    };
    (@apart $args:tt $name:ident $type:ident) => {
        compiled! { @twins $args $name $type }
        compiled! { @alone $args $name $type }
    };
    (@by_value [$kind:ident $op:ident $how:tt] $name:ident $type:ident) => {
        with_twin! { either [$kind $op $how] $name $type }
        compiled! { @of_one_type $kind [concat!(stringify!($name), "_", stringify!($type))] $op $type }
    };
    (@alike $args:tt $name:ident $type:ident) => {
        with_twin! { alike $args $name $type }
    };
    (@alike $args:tt $name:ident $type:ident $twin:ident) => {
        compiled! { @apart $args $name $type }
    };
    (@exact [$kind:ident $op:ident $how:tt] $name:ident $type:ident) => {
        compiled! { @apart [$kind $op [wholes]] $name $type }
    };
    (@shared_exact [$kind:ident $op:ident $how:tt] $name:ident $type:ident) => {
        compiled! { @shared_alone [$kind $op [wholes]] $name $type }
    };
    (@alone [$kind:ident $op:ident [$blocks:ident $($copies:ident)*]] $name:ident $type:ident) => {
        compiled! { @of_one_type $kind [concat!(stringify!($name), "_", stringify!($type))] $op $type }
        compiled! { @columns_alone $blocks $kind [concat!(stringify!($name), "_", stringify!($type))] $op $type }
    };
    (@twins [$kind:ident $op:ident [$blocks:ident $($copies:ident)*]] $name:ident $type:ident) => {
        compiled! { @$blocks $kind [concat!(stringify!($name), "_", stringify!($type))] $op $type }
    };
    (@shared_alone [$kind:ident $op:ident [$blocks:ident $($copies:ident)*]] $name:ident $type:ident) => {
        compiled! {
            @$blocks $kind
            [
                concat!(stringify!($name), "_", stringify!($type)); op member =>
                $crate::op::shared::Shared::new(op, member)
            ]
            $op $type
        }
    };
    (@twins [$kind:ident $op:ident [$blocks:ident $($copies:ident)*]] $name:ident $type:ident $twin:ident) => {
        compiled! {
            @$blocks $kind
            [
                concat!(stringify!($name), "_", stringify!($type)); op member =>
                $crate::op::twins::Twins::<_, of!($kind operator $op $twin), of!($kind item $twin)>::new::<
                    of!($kind item $type)
                >(op, member)
            ]
            $op $type
        }
    };
    (@shared_either [$kind:ident $op:ident [$blocks:ident $($copies:ident)*]] $name:ident $type:ident $($twin:ident)?) => {
        compiled! {
            @$blocks $kind
            [
                concat!(stringify!($name), "_", stringify!($type)); op member =>
                $crate::op::shared::Shared::new($crate::op::twins::InKernel::of_either(op, member), member)
            ]
            $op $type
        }
    };
    (@either [$kind:ident $op:ident [$blocks:ident $($copies:ident)*]] $name:ident $type:ident $($twin:ident)?) => {
        compiled! {
            @either $blocks $kind
            [
                concat!(stringify!($name), "_", stringify!($type)); op member =>
                $crate::op::twins::InKernel::of_either(op, member)
            ]
            $op $type
        }
    };
    (@either $blocks:ident $kind:ident $kernel:tt $op:ident $type:ident) => {
        compiled! { @$blocks $kind $kernel $op $type }
        compiled! { @columns_alone $blocks $kind $kernel $op $type }
    };
    // Columns have a kernel for two types, but one for each type of `exact_dot` and of rows with a kernel for each BLOCK that are not by
    // value.
    (@columns $name:tt $op:ty, $item:ty) => {
        #[cfg(feature = "columns")]
        shape_entries! { columns $name $op, $item }
    };
    (@columns $name:tt $op:ty, $item:ty, $other:ty) => {};
    (@columns_alone each $kind:ident $name:tt $op:ident $type:ident) => {
        #[cfg(feature = "columns")]
        shape_entries! { columns $name of!($kind operator $op $type), $type }
    };
    (@columns_alone $blocks:ident pair $name:tt $op:ident $type:ident) => {
        #[cfg(feature = "columns")]
        shape_entries! { columns $name crate::op::$op, $type, $type }
    };
    (@columns_alone $($row:tt)*) => {};
    (@$blocks:ident pair $name:tt $op:ident $type:ident) => {
        compiled! { @$blocks $name crate::op::$op, $type, $type }
    };
    (@$blocks:ident $kind:ident $name:tt $op:ident $type:ident) => {
        compiled! { @$blocks $name of!($kind operator $op $type), $type }
    };
    (@each $($row:tt)*) => {
        #[cfg(feature = "reduce")]
        $crate::for_each_block! { reduce_entries! { $($row)* } }
        #[cfg(feature = "reduce")]
        reduce_entries! { @groups { $($row)* } }
        compiled! { @shapes $($row)* }
    };
    (@large $($row:tt)*) => {
        compiled! { @any $($row)* }
    };
    (@any $($row:tt)*) => {
        #[cfg(feature = "reduce")]
        reduce_entries! { { $($row)* } 0 }
        #[cfg(feature = "reduce")]
        reduce_entries! { @groups { $($row)* } }
        compiled! { @shapes $($row)* }
        compiled! { @columns $($row)* }
    };
    (@wholes $($row:tt)*) => {
        #[cfg(feature = "reduce")]
        reduce_entries! { @whole { $($row)* } 0 }
        compiled! { @shapes $($row)* }
        compiled! { @columns $($row)* }
    };
    (@shapes $($row:tt)*) => {
        #[cfg(feature = "segments")]
        shape_entries! { segments $($row)* }
        #[cfg(feature = "rows")]
        shape_entries! { rows $($row)* }
    };
    (@of_one_type $($row:tt)*) => {
        #[cfg(feature = "segments")]
        shape_entries! { spans $($row)* }
    };
}

/// The entries of a row: which kernels each type has.
#[cfg(all(feature = "ptx", target_os = "linux"))]
macro_rules! entries {
    ({ $kind:ident $name:ident $op:ident $how:tt } $($type:ident: $($row:ident)*;)*) => {
        entries! { @flat $( kernels_of! { entries [$kind $op $type] $name $type $how } ),* }
    };
    // Rows of another type's kernels.
    ({ alias $kind:ident $name:ident $op:ident $how:tt } $($type:ident: $other:ident;)*) => {
        entries! { @flat $( kernels_of! { entries [$kind $op $type] $name $other $how } ),* }
    };
    (@flat $($of_type:expr),*) => {{
        const ENTRIES: &[Entry] = &[$($of_type),*];
        ENTRIES
    }};
    (@alike $args:tt $name:ident $compiled:ident) => {
        entries! { @of $args $name [first_twin!($compiled)] [first_twin!($compiled)] true }
    };
    (@apart $args:tt $name:ident $compiled:ident) => {
        entries! { @of $args $name [stringify!($compiled)] [stringify!($compiled)] true }
    };
    (@exact $args:tt $name:ident $compiled:ident) => {
        entries! { @of $args $name [stringify!($compiled)] [stringify!($compiled)] false }
    };
    (@shared_exact $args:tt $name:ident $compiled:ident) => {
        entries! { @exact $args $name $compiled }
    };
    (@copy_exact $args:tt $name:ident $compiled:ident) => {
        entries! { @exact $args $name $compiled }
    };
    (@of [$kind:ident $op:ident $type:ident] $name:ident [$twin:expr] [$compiled:expr] $has_row:literal) => {
        Entry::of::<of!($kind operator $op $type), of!($kind input $type)>(
            concat!(stringify!($name), "_", $twin), concat!(stringify!($name), "_", $compiled), $has_row
        )
    };
    (@$own:ident $args:tt $name:ident $compiled:ident) => {
        entries! { @of $args $name [first_twin!($compiled)] [stringify!($compiled)] true }
    };
}

/// The kernels of some entries, whose PTX is in these files of `ptx/`: `embedded! { ENTRIES; FILE FILE … }`. Each is a static
/// of its own, so that a program has only those of its operators. None without the feature `ptx`.
#[cfg(all(feature = "ptx", target_os = "linux"))]
macro_rules! embedded {
    ($entries:expr; $($file:ident)+) => {
        // SAFETY: `ptx/` is compiled from the tables' entry points. Where a row names another kernel's, the two have the
        // same arguments and do the same, or the kernel is told by the last one whose result it stores.
        unsafe { Kernels::new(const { $entries }, const { &[$(&crate::ptx::kernels::$file),+] }) }
    };
}

#[cfg(not(any(all(feature = "ptx", target_os = "linux"), target_arch = "nvptx64")))]
macro_rules! embedded {
    ($($kernels:tt)*) => {
        Kernels::NONE
    };
}

#[cfg(all(feature = "folds", not(any(test, target_arch = "nvptx64"))))]
macro_rules! folds {
    ({ $kind:ident $op:ident } $($type:ident: $($row:ident)*;)*) => {
        &[$(Folds::of::<of!($kind operator $op $type), of!($kind source $type)>()),*]
    };
}

/// What an operator of the library has of its row.
pub(crate) trait Row {
    /// The BLOCK of large inputs if the call names none, see [`Agent::LARGE_BLOCK`].
    const LARGE_BLOCK: u32;

    /// Which operator it is of those that share kernels, see [`Agent::MEMBER`].
    const MEMBER: u32;

    /// The operator's kernels.
    #[cfg(not(target_arch = "nvptx64"))]
    const KERNELS: Kernels;

    /// The folds for each type. (The package's own tests compile those that they need, in a quarter of the time.)
    #[cfg(all(feature = "folds", not(any(test, target_arch = "nvptx64"))))]
    const FOLDS: &'static &'static [Folds];
}

/// Items of the library's operators: elements, or pairs of them.
pub(crate) trait Items: Copy + 'static {
    /// The bit of [`Agent::MEMBER`] that says that the elements are the second of two types that share kernels.
    const TWIN: u32;

    /// The elements' type.
    #[cfg(all(feature = "folds", not(any(test, target_arch = "nvptx64"))))]
    const DTYPE: Dtype;
}

impl<T: Element> Items for T {
    const TWIN: u32 = match T::DTYPE {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 | Dtype::Bf16 => SECOND,
        _ => 0,
    };

    #[cfg(all(feature = "folds", not(any(test, target_arch = "nvptx64"))))]
    const DTYPE: Dtype = <T as Element>::DTYPE;
}

impl<T: Element> Items for (T, T) {
    const TWIN: u32 = <T as Items>::TWIN;

    #[cfg(all(feature = "folds", not(any(test, target_arch = "nvptx64"))))]
    const DTYPE: Dtype = <T as Element>::DTYPE;
}

#[allow(unused_imports)]
use crate::agent::Agent;
#[cfg(all(feature = "folds", not(any(test, target_arch = "nvptx64"))))]
use crate::cpu::Folds;
use crate::element::Dtype;
#[cfg(all(feature = "ptx", target_os = "linux"))]
use crate::kernels::Entry;
#[cfg(not(target_arch = "nvptx64"))]
use crate::kernels::Kernels;
use crate::op::shared::SECOND;
#[allow(unused_imports)]
use crate::{Element, Op};
#[allow(unused_imports)]
use crate::{bf16, f16, reduce, reduce_entries, shape_entries};

for_each_operator! { table! { elements element for_each_element } }
for_each_integer_operator! { table! { integers integer for_each_integer } }
for_each_pair_operator! { table! { pairs pair for_each_element } }
for_each_comparison! { table! { comparisons comparison for_each_element } }
together! {
    [sum_min_max mean_var]
    sum_min_max: SumMinMax any;
    mean_var: MeanVar any for others;
    mean_std: MeanStd any as mean_var;
}

/// The library's kernels that are of no one operator.
#[cfg(not(target_arch = "nvptx64"))]
pub const SHARED: &[Kernels] = &[
    together::KERNELS,
    embedded! { crate::runs::ENTRIES; runs },
    embedded! { crate::runs::ALIASES; runs },
    embedded! { crate::shape::index::ENTRIES; sum mean exact_sum exact_mean center },
    embedded! { crate::shape::index::ALIASES; sum mean exact_sum exact_mean center },
    embedded! { crate::shape::deal::ENTRIES; deal },
    embedded! { crate::shape::order::ENTRIES; order },
    embedded! { crate::shape::keys::ENTRIES; keys wide_keys },
    embedded! { crate::shape::keys::ALIASES; keys },
    embedded! { crate::shape::indices::ENTRIES; indices },
    embedded! { crate::shape::indices::ALIASES; indices },
    embedded! { crate::shape::words::ENTRIES; words },
    embedded! { crate::shape::center::ENTRIES; center },
    embedded! { crate::shape::terms::ENTRIES; terms },
];
