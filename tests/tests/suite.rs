//! The library's tests in one program, so that the library's generic code is compiled and linked once for all
//! of them.
//!
//! `cargo test -p gpu_reduce_tests --test suite -- table::` runs those of one file. A test that needs a
//! process of its own starts this program again: see `support::process`.
#![cfg_attr(not(whole), allow(unused_imports))] // of the types of other parts

mod algebra;
mod axes;
mod by_index;
mod by_index_in_order;
mod by_index_spread;
mod by_index_terms;
mod by_index_words;
mod by_key;
mod calls;
mod columns;
mod context;
mod counters;
mod device;
mod docs;
mod driver;
mod errors;
mod exact;
mod failures;
mod foreign;
mod fork;
mod group_by;
mod histogram;
mod kinds;
mod ladder;
mod ladder_cli;
mod launches;
mod laws;
mod long;
mod merge;
mod numpy;
mod operators;
mod own_op;
mod partial;
mod partial_groups;
mod pieces;
mod pinned;
mod pipeline_cli;
mod properties;
mod scratch;
mod segments;
mod shapes;
mod shared;
mod special;
mod speed_cli;
mod streams;
mod table;
mod tuples;
mod types;
