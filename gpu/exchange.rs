//! How blocks hand values over: [`slot`]s, which need no fence, and partial results, which the last block
//! folds. How the threads of a block do: by words in shared memory.

pub(crate) mod in_shared;
pub(crate) mod partials;
pub mod slot;
