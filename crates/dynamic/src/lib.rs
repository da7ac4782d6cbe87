//! Reductions by [`gpu_reduce`] whose operator and type of elements are chosen when the program runs.
//!
//! A [`Dtype`] names the type of the elements, and [`with_type!`] evaluates an expression with that type. A
//! [`Target`] is the data of one type: all of it, or divided into segments or groups. An [`Operator`] reduces
//! it to [`Values`], which say their own type.
//!
//! ```
//! use gpu_reduce_dynamic::gpu_reduce::Reduce;
//! use gpu_reduce_dynamic::{Dtype, Operator, Target, with_type};
//!
//! let bytes = [1.5f32, 2.5, 5.0].map(f32::to_ne_bytes).concat();
//! let dtype: Dtype = "float32".parse().unwrap();
//! let operator: Operator = "mean".parse().unwrap();
//! let values = with_type!(dtype, T => {
//!     let items: Vec<T> = gpu_reduce_dynamic::cast(&bytes).into_owned();
//!     Target::All(items.data()).reduce(operator, 0).unwrap()
//! });
//! assert_eq!(values.text(0), "3.0");
//! assert_eq!(values.descr(), Some("<f4"));
//! ```

mod dtype;
mod number;
mod operator;
mod partial;
mod reducer;
mod several;
mod values;

pub use dtype::{Dtype, cast};
pub use gpu_reduce;
pub use number::{Described, Number, Pairs, Target};
pub use operator::{Operator, PairOperator};
pub use partial::{Partial, PartialError};
pub use reducer::Reducer;
pub use values::{Value, Values};

/// Why there are no values.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The library's error.
    #[error(transparent)]
    Reduce(#[from] gpu_reduce::Error),
    /// The operator takes integers only.
    #[error("{operator} takes integers, not {dtype}")]
    NotIntegers {
        /// The operator.
        operator: Operator,
        /// The type of the elements.
        dtype: Dtype,
    },
    /// Results of groups are not written by a stream.
    #[error("results of groups are not enqueued: reduce the groups, which waits for the results")]
    Grouped,
    /// The caller of [`Target::reduce_all`] has stopped it.
    #[error("the reduction was stopped")]
    Stopped,
}
