//! The reduction of data of one type. It is compiled here for each operator and type.

use std::ffi::c_void;

use gpu_reduce::steps::{Fold, ToPlaces, Way};
use gpu_reduce::{
    Buffer, ByIndex, Element, ExactElement, Item, NanStd, NanVar, Op, Reduce, Segments, Std, Stream, Var,
    View, bf16, f16, for_each_integer_operator, for_each_operator, for_each_pair_operator,
};

use crate::{Dtype, Error, Operator, PairOperator, Value, Values};

/// Data to reduce. BLOCK is always 256, so that all items have the bits of one segment with the same items.
#[derive(Clone, Debug)]
pub enum Target<'a, T: Element> {
    /// All items, with one result.
    All(View<'a, T>),
    /// Segments, rows or columns, with a result each.
    Each(Segments<'a, View<'a, T>>),
    /// Groups, with a result each.
    ByIndex(ByIndex<'a, View<'a, T>>),
}

/// Pairs of items to reduce, as [`Target`].
#[derive(Clone, Debug)]
pub enum Pairs<'a, T: Element> {
    /// All pairs, with one result.
    All(View<'a, T>, View<'a, T>),
    /// Segments, rows or columns, with a result each.
    Each(Segments<'a, (View<'a, T>, View<'a, T>)>),
}

impl<T: Number> Target<'_, T> {
    /// Reduces by an operator. `ddof` counts for `var`, `std`, `nanvar` and `nanstd` only.
    ///
    /// # Errors
    ///
    /// [`Error::NotIntegers`]; the errors of [`Reduce::reduce`], [`Segments::reduce`] and
    /// [`ByIndex::reduce`].
    pub fn reduce(&self, operator: Operator, ddof: u64) -> Result<Values, Error> {
        self.reduce_by(operator, ddof, &|fold| fold.run())
    }

    /// As [`reduce`](Self::reduce), but `by` folds all items that lie on the CPU, if there are some.
    pub(crate) fn reduce_by(
        &self,
        operator: Operator,
        ddof: u64,
        by: &dyn Fn(&Fold<T>),
    ) -> Result<Values, Error> {
        T::reduce(self, operator, ddof, Way::Wait(by))
    }

    /// Enqueues that a GPU writes the results, with the bits that [`reduce`](Self::reduce) has, from an address on.
    /// The items lie on the GPU of the stream. All items, or each part, are one or more. [`describe`](Self::describe)
    /// tells the results' type.
    ///
    /// # Safety
    ///
    /// As for [`Reduction::run_into`](gpu_reduce::Reduction::run_into); the GPU has a place for each result.
    ///
    /// # Errors
    ///
    /// [`Error::NotIntegers`]; [`Error::Grouped`]; the errors of
    /// [`Reduction::run_into`](gpu_reduce::Reduction::run_into).
    pub unsafe fn enqueue(
        &self,
        operator: Operator,
        ddof: u64,
        stream: &Stream,
        first: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: as the caller vouches.
        let places = unsafe { ToPlaces::new(stream, first) };
        T::reduce(self, operator, ddof, Way::Enqueue(&places)).map(drop)
    }

    /// What [`enqueue`](Self::enqueue) would write.
    ///
    /// # Errors
    ///
    /// [`Error::NotIntegers`]; [`Error::Grouped`].
    pub fn describe(&self, operator: Operator, ddof: u64) -> Result<Described, Error> {
        let none = ToPlaces::none();
        let values = T::reduce(self, operator, ddof, Way::Enqueue(&none))?;
        let (type_name, width) = (values.type_name(), values.width());
        Ok(Described { type_name, width, scratch_bytes: none.scratch_bytes() })
    }

    /// Reduces by an operator that is known when the program is compiled.
    ///
    /// # Errors
    ///
    /// The errors of [`Reduce::reduce`], [`Segments::reduce`] and [`ByIndex::reduce`].
    pub fn outputs<O: Op<T, Output: Item>>(&self, op: O) -> Result<Vec<O::Output>, gpu_reduce::Error> {
        match self {
            Target::All(data) => Ok(vec![data.by(op).block::<256>().run()?]),
            Target::Each(segments) => segments.by(op).block::<256>().run()?.to_vec(),
            Target::ByIndex(groups) => groups.by(op).block::<256>().run()?.to_vec(),
        }
    }

    /// Compiled for each operator and type, and so it only calls.
    fn values<O: Op<T, Output: Value>>(&self, op: O, way: Way<T>) -> Result<Values, Error> {
        match (self, way) {
            (Target::All(data), way) => value(data.by(op).block::<256>().run_by(way)),
            (Target::Each(segments), way) => values(segments.by(op).block::<256>().run_by(way)),
            (Target::ByIndex(groups), Way::Wait(_)) => values(groups.by(op).block::<256>().run().map(Some)),
            (Target::ByIndex(_), Way::Enqueue(_)) => Err(Error::Grouped),
        }
    }
}

/// What a reduction writes, and the memory that it needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Described {
    /// The name in Rust of the numbers' type.
    pub type_name: &'static str,
    /// The numbers in each result, one after the other.
    pub width: usize,
    /// The bytes of scratch memory that a stream [with memory of the caller](Stream::with_scratch) needs.
    pub scratch_bytes: usize,
}

/// The result of a whole array, if it was waited for. One function for all operators with results of one type.
#[inline(never)]
fn value<V: Value>(result: Result<Option<V>, gpu_reduce::Error>) -> Result<Values, Error> {
    Ok(Values::of(Vec::from_iter(result?)))
}

/// The results of parts, as [`value`].
#[inline(never)]
fn values<V: Value>(results: Result<Option<Buffer<V>>, gpu_reduce::Error>) -> Result<Values, Error> {
    Ok(Values::of(results?.map_or(Ok(Vec::new()), |results| results.to_vec())?))
}

impl<T: Number> Pairs<'_, T> {
    /// Reduces by an operator.
    ///
    /// # Errors
    ///
    /// The errors of [`Reduce::reduce`] and [`Segments::reduce`].
    pub fn reduce(&self, operator: PairOperator) -> Result<Values, Error> {
        T::reduce_pairs(self, operator)
    }

    fn values<O: Op<(T, T), Output: Value>>(&self, op: O) -> Result<Values, Error> {
        match self {
            Pairs::All(a, b) => value((*a, *b).by(op).block::<256>().run().map(Some)),
            Pairs::Each(segments) => values(segments.by(op).block::<256>().run().map(Some)),
        }
    }
}

/// A type of elements, with all that its operators return.
pub trait Number: ExactElement<Wide: Value, Real: Value + Into<f64>, Rounded: Value> + Value {
    /// The type as a value.
    const TYPE: Dtype;

    /// Whether the type is an integer.
    const IS_INTEGER: bool;

    #[doc(hidden)]
    fn reduce(target: &Target<Self>, operator: Operator, ddof: u64, way: Way<Self>) -> Result<Values, Error>;

    #[doc(hidden)]
    fn reduce_pairs(pairs: &Pairs<Self>, operator: PairOperator) -> Result<Values, Error>;
}

/// Implements [`Number`] by the rows of the tables.
macro_rules! numbers {
    ({} $($rows:tt)*) => { for_each_integer_operator! { numbers! { elements [$($rows)*] } } };
    ({ elements $elements:tt } $($rows:tt)*) => {
        for_each_pair_operator! { numbers! { elements $elements integers [$($rows)*] } }
    };
    ({ elements $elements:tt integers $integers:tt } $($rows:tt)*) => {
        numbers! { @all $elements $integers [$($rows)*]
            i8 true, i16 true, i32 true, i64 true, u8 true, u16 true, u32 true, u64 true,
            f16 false, bf16 false, f32 false, f64 false
        }
    };
    (@all $elements:tt $integers:tt $pairs:tt $($T:ident $is_integer:ident),*) => {
        $(numbers! { @one $T $is_integer $elements $integers $pairs })*
    };
    (
        @one $T:ident $is_integer:ident
        [$($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*] $integers:tt
        [$($(#[$doc_of_pair:meta])* $name_of_pair:ident: $pair:ident $($how_of_pair:ident)+;)*]
    ) => {
        impl Number for $T {
            const TYPE: Dtype = Dtype::$T;
            const IS_INTEGER: bool = $is_integer;

            #[allow(unreachable_patterns, reason = "the rows have the operators with a parameter too")]
            fn reduce(
                target: &Target<$T>,
                operator: Operator,
                ddof: u64,
                way: Way<$T>,
            ) -> Result<Values, Error> {
                match operator {
                    Operator::Var => target.values(Var::new(ddof), way),
                    Operator::Std => target.values(Std::new(ddof), way),
                    Operator::NanVar => target.values(NanVar::new(ddof), way),
                    Operator::NanStd => target.values(NanStd::new(ddof), way),
                    $(Operator::$op => target.values(<gpu_reduce::$op>::default(), way),)*
                    other => numbers! { @integers $T $is_integer target other way $integers },
                }
            }

            fn reduce_pairs(pairs: &Pairs<$T>, operator: PairOperator) -> Result<Values, Error> {
                match operator {
                    $(PairOperator::$pair => pairs.values(gpu_reduce::$pair),)*
                }
            }
        }
    };
    (
        @integers $T:ident true $target:ident $operator:ident $way:ident
        [$($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*]
    ) => {
        match $operator {
            $(Operator::$op => $target.values(gpu_reduce::$op, $way),)*
            _ => unreachable!("the tables have all operators"),
        }
    };
    (@integers $T:ident false $target:ident $operator:ident $way:ident $integers:tt) => {{
        _ = ($target, $way);
        Err(Error::NotIntegers { operator: $operator, dtype: Dtype::$T })
    }};
}

for_each_operator! { numbers! {} }
