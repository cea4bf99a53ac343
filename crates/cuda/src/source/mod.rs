//! CUDA C from the groups of a schedule. Nothing here needs a GPU: the same text is golden-tested and compiled anywhere.
//!
//! A kernel's text depends on the structure of its work alone: pointers, the number of elements and odd constants are
//! arguments, so that the update of every leaf of a network is one kernel. Lengths that an index is divided by are written
//! into the text, because a division by a known number is a multiplication.

mod ahead;
mod bundled;
mod code;
mod columns;
mod context;
mod erf;
mod fetch;
mod fold;
mod formula;
mod indexed;
mod load;
mod map;
mod member;
mod moves;
mod patches;
mod product;
mod put;
mod raised;
mod reduce;
mod rows;
mod seeds;
mod strip;
mod structure;
mod text;
mod tiles;
mod transpose;
mod turned;
mod unfold;
mod walk;
mod within;

pub(crate) use bundled::bundled;
pub(crate) use code::{Arg, Cell, Code, Launch};
pub(crate) use columns::{Columns, Registers, column_blocks, is_by_columns};
pub(crate) use context::Context;
pub(crate) use fold::{Partial, folds};
pub(crate) use indexed::{add_rows, check_index, cumsum, gather, list_bytes, scatter_add, window_argmax};
pub(crate) use map::{is_scalar_sink, map, partials, sum_type};
pub(crate) use moves::{Elements, concat, gathered, gathered_if_fine, overlay, scattered};
pub(crate) use patches::{convolution, patches};
pub(crate) use product::product;
pub(crate) use reduce::{InMemory, MOST_TERMS, reduce, reduce_memory};
pub(crate) use rows::{LONGEST as LONGEST_ROW, Sinks, read_from_memory, rows};
pub(crate) use seeds::{halved_copy, largest_of};
pub(crate) use strip::{is_strip, strip};
pub(crate) use structure::Structure;
pub(crate) use text::whole;
pub(crate) use tiles::{is_small, tiles};
pub(crate) use transpose::{Lines, WIDE, transposed};
pub(crate) use turned::is_turned;
pub(crate) use unfold::{folded, swapped, unfolded};
pub(crate) use within::{Within, within_rows};
