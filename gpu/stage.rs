//! The two stages of a reduction, with a seam between them: a chunk becomes its partial result, the partial results become
//! the accumulator of all.

pub(crate) mod chunk;
pub(crate) mod partials;
