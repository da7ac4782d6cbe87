//! What a block does for an operator that needs more than a fold.

pub(crate) mod exact;
pub(crate) mod near;
