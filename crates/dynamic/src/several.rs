//! Reductions by several operators.

use std::cell::RefCell;

use gpu_reduce::steps::{Fold, Pass};

use crate::{Error, Number, Operator, Target, Values};

/// Operators that share a pass over memory, at most.
const IN_A_PASS: usize = 8;

impl<T: Number> Target<'_, T> {
    /// Reduces by several operators, with the bits that each has alone.
    ///
    /// All items on the CPU, and columns, are read from memory once for eight operators: a part of them that
    /// fits in a cache is folded by each. Segments, rows, groups, and items on a GPU are reduced by one
    /// operator after another.
    ///
    /// Asks `go_on` after every 32 MiB or more of a pass, and between operators, whether to go on.
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
