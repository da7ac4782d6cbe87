//! How blocks hand values over: [`slot`]s, which need no fence, and partial results, which the last block
//! folds.

pub(crate) mod partials;
pub mod slot;
