//! Reductions by several operators.

use std::cell::RefCell;

use gpu_reduce::steps::{Fold, Pass};
use gpu_reduce::{ArgMinMax, Both, Max, Mean, Min, MinMax, Std, Sum, Var};

use crate::{Error, Number, Operator, Target, Value, Values};

/// Operators that share a pass over memory, at most.
const IN_A_PASS: usize = 8;

impl<T: Number> Target<'_, T> {
    /// Reduces by several operators, with the bits that each has alone.
    ///
    /// On the CPU, all items, and columns, are read from memory once for eight operators: a part of them that
    /// fits in a cache is folded by each. On a GPU, all items are read once by the sum, the minimum and the maximum, by
    /// two of these, by `argmin` and `argmax`, and by the mean and the variance or the standard deviation; segments,
    /// rows and columns of 4,096 items or more on average by the minimum and the maximum, and by `argmin` and `argmax`.
    /// Otherwise one operator reduces after another.
    ///
    /// Asks `go_on` after every 32 MiB or more of a pass on the CPU, and between passes, whether to go on.
    ///
    /// ```
    /// use gpu_reduce_dynamic::gpu_reduce::Reduce;
    /// use gpu_reduce_dynamic::{Operator, Target};
    ///
    /// let items = Target::All([1.5f64, 2.5, 5.0].data());
    /// let results = items.reduce_all(&[Operator::Sum, Operator::Max], 0, &|| true)?;
    /// assert_eq!(format!("{results:?}"), r#"[["9.0"], ["5.0"]]"#);
    /// # Ok::<(), gpu_reduce_dynamic::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`reduce`](Self::reduce), and [`Error::Stopped`].
    pub fn reduce_all(
        &self,
        operators: &[Operator],
        ddof: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<Values>, Error> {
        match self {
            Target::All(items) if !items.device().is_cpu() => {
                return self.by_kernels(&kernels(), operators, ddof, go_on);
            }
            Target::Each(segments) if !segments.data().device().is_cpu() => {
                // In shorter segments, a result takes longer to copy than the items to read again.
                let are_long = segments.data().len() / LONG >= segments.len();
                let kernels = if are_long { &kernels()[OF_ALL_ITEMS..] } else { &[] };
                return self.by_kernels(kernels, operators, ddof, go_on);
            }
            _ => {}
        }
        let mut all = Vec::with_capacity(operators.len());
        for (index, operators) in operators.chunks(IN_A_PASS).enumerate() {
            if index > 0 && !go_on() {
                return Err(Error::Stopped);
            }
            let mut values = joined(self, operators, ddof, None, go_on)?;
            values.reverse();
            all.append(&mut values);
        }
        Ok(all)
    }

    /// Reduces on a GPU: first by kernels of several operators, then by the other operators one after another.
    fn by_kernels(
        &self,
        kernels: &[Kernel<Self>],
        operators: &[Operator],
        ddof: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<Values>, Error> {
        let mut all: Vec<Option<Values>> = operators.iter().map(|_| None).collect();
        let mut is_first = true;
        let mut may_start = || match is_first || go_on() {
            true => {
                is_first = false;
                Ok(())
            }
            false => Err(Error::Stopped),
        };
        for (together, reduce) in kernels {
            let places: Vec<_> = together
                .iter()
                .map(|of| (0..all.len()).find(|&place| operators[place] == *of && all[place].is_none()))
                .collect();
            if places[0].is_none() || places.iter().flatten().count() < 2 {
                continue;
            }
            may_start()?;
            // If it fails, the operator that has no result says so below.
            let Ok(values) = reduce(self, ddof) else { continue };
            for (place, values) in places.into_iter().zip(values) {
                if let Some(place) = place {
                    all[place] = Some(values);
                }
            }
        }
        let others = all.into_iter().zip(operators).map(|(values, &operator)| match values {
            Some(values) => Ok(values),
            None => {
                may_start()?;
                self.reduce(operator, ddof)
            }
        });
        others.collect()
    }
}

/// Operators, and the function that reduces by one kernel for all of them, for some degrees of freedom.
type Kernel<T> = (&'static [Operator], fn(&T, u64) -> Result<Vec<Values>, gpu_reduce::Error>);

/// The average length from which on kernels of several operators reduce segments. On an H100, pairs of extremes of rows of
/// 1,024 `f32` took 1.05 times as long as two passes, of rows of 16,384 0.56 times.
const LONG: usize = 4096;

/// The first of the kernels reduce all items only. Segments may take longer by them than by one operator after another:
/// sums, minima and maxima of 4,096 columns of `f32` 1.8 times as long, sums and maxima of rows of 16,384 `f16` 1.2 times.
const OF_ALL_ITEMS: usize = 3;

/// The kernels of several operators. Each is used if its first operator is wanted, and another one.
fn kernels<'a, T: Number>() -> [Kernel<Target<'a, T>>; 5] {
    use Operator::{ArgMax, ArgMin};
    [
        (&[Operator::Sum, Operator::Min, Operator::Max], |target, _| {
            let (sums, extremes) = apart(target.outputs(Both(Sum, Both(Min, Max)))?);
            let (minima, maxima) = apart(extremes);
            Ok(vec![Values::of(sums), Values::of(minima), Values::of(maxima)])
        }),
        (&[Operator::Mean, Operator::Var], |target, ddof| {
            let (means, variances) = apart(target.outputs(Both(Mean, Var::new(ddof)))?);
            Ok(vec![Values::of(means), Values::of(variances)])
        }),
        (&[Operator::Mean, Operator::Std], |target, ddof| {
            let (means, deviations) = apart(target.outputs(Both(Mean, Std::new(ddof)))?);
            Ok(vec![Values::of(means), Values::of(deviations)])
        }),
        (&[Operator::Min, Operator::Max], |target, _| Ok(each(target.outputs(MinMax)?))),
        (&[ArgMin, ArgMax], |target, _| Ok(each(target.outputs(ArgMinMax)?))),
    ]
}

/// Results of pairs of operators.
fn apart<A: Copy, B: Copy>(pairs: Vec<Both<A, B>>) -> (Vec<A>, Vec<B>) {
    pairs.into_iter().map(|Both(a, b)| (a, b)).unzip()
}

/// Results of two operators with results of one type.
fn each<V: Value>(pairs: Vec<[V; 2]>) -> Vec<Values> {
    let (a, b) = pairs.into_iter().map(|[a, b]| (a, b)).unzip();
    vec![Values::of::<V>(a), Values::of::<V>(b)]
}

/// Reduces by operators, in one pass with the folds `before`. Returns the results in reverse order.
///
/// Each operator prepares its fold, then the next operator does so within that call. The last one runs the
/// pass.
fn joined<T: Number>(
    target: &Target<T>,
    operators: &[Operator],
    ddof: u64,
    before: Option<&Pass<T>>,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<Values>, Error> {
    let Some((&operator, others)) = operators.split_first() else {
        return match before {
            Some(pass) if !pass.run(go_on) => Err(Error::Stopped),
            _ => Ok(Vec::new()),
        };
    };
    let of_others = RefCell::new(None);
    let join = |fold: &Fold<T>| {
        let all = joined(target, others, ddof, Some(&Pass::new(fold, before)), go_on);
        of_others.replace(Some(all));
    };
    let values = target.reduce_by(operator, ddof, &join);
    let mut all = match of_others.into_inner() {
        Some(all) => all?,
        // There was nothing to fold, or not on the CPU.
        None if values.is_err() => Vec::new(),
        None if !others.is_empty() && !go_on() => return Err(Error::Stopped),
        None => joined(target, others, ddof, before, go_on)?,
    };
    all.push(values?);
    Ok(all)
}
