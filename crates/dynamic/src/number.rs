//! The reduction of data of one type. It is compiled here for each operator and type.

use gpu_reduce::steps::Fold;
use gpu_reduce::{
    Buffer, ByIndex, Element, ExactElement, Item, NanStd, NanVar, Op, Reduce, Segments, Std, Var, View, bf16,
    f16, for_each_integer_operator, for_each_operator, for_each_pair_operator,
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
        T::reduce(self, operator, ddof, by)
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
    fn values<O: Op<T, Output: Value>>(&self, op: O, by: &dyn Fn(&Fold<T>)) -> Result<Values, Error> {
        match self {
            Target::All(data) => value(data.by(op).block::<256>().run_by(by)),
            Target::Each(segments) => values(segments.by(op).block::<256>().run_by(by)),
            Target::ByIndex(groups) => values(groups.by(op).block::<256>().run()),
        }
    }
}

/// The result of a whole array. One function for all operators with results of one type.
#[inline(never)]
fn value<V: Value>(result: Result<V, gpu_reduce::Error>) -> Result<Values, Error> {
    Ok(Values::of(vec![result?]))
}

/// The results of parts, as [`value`].
#[inline(never)]
fn values<V: Value>(results: Result<Buffer<V>, gpu_reduce::Error>) -> Result<Values, Error> {
    Ok(Values::of(results?.to_vec()?))
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
            Pairs::All(a, b) => value((*a, *b).by(op).block::<256>().run()),
            Pairs::Each(segments) => values(segments.by(op).block::<256>().run()),
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
    fn reduce(
        target: &Target<Self>,
        operator: Operator,
        ddof: u64,
        by: &dyn Fn(&Fold<Self>),
    ) -> Result<Values, Error>;

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
                by: &dyn Fn(&Fold<$T>),
            ) -> Result<Values, Error> {
                match operator {
                    Operator::Var => target.values(Var::new(ddof), by),
                    Operator::Std => target.values(Std::new(ddof), by),
                    Operator::NanVar => target.values(NanVar::new(ddof), by),
                    Operator::NanStd => target.values(NanStd::new(ddof), by),
                    $(Operator::$op => target.values(<gpu_reduce::$op>::default(), by),)*
                    other => numbers! { @integers $T $is_integer target other by $integers },
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
        @integers $T:ident true $target:ident $operator:ident $by:ident
        [$($(#[$doc:meta])* $name:ident: $op:ident $($how:ident)+;)*]
    ) => {
        match $operator {
            $(Operator::$op => $target.values(gpu_reduce::$op, $by),)*
            _ => unreachable!("the tables have all operators"),
        }
    };
    (@integers $T:ident false $target:ident $operator:ident $by:ident $integers:tt) => {{
        _ = ($target, $by);
        Err(Error::NotIntegers { operator: $operator, dtype: Dtype::$T })
    }};
}

for_each_operator! { numbers! {} }
