//! CUDA C from the groups of a schedule. Nothing here needs a GPU: the same text is golden-tested and compiled anywhere.
//!
//! A kernel's text depends on the structure of its work alone: pointers, the number of elements and odd constants are
//! arguments, so that the update of every leaf of a network is one kernel. Lengths that an index is divided by are written
//! into the text, because a division by a known number is a multiplication.

pub(crate) mod batched_launch;
pub(crate) mod body;
pub(crate) mod context;
pub(crate) mod conv;
pub(crate) mod data;
pub(crate) mod expr;
pub(crate) mod gemm;
pub(crate) mod kernel;
pub(crate) mod load;
pub(crate) mod loops;
pub(crate) mod prefetch;
pub(crate) mod prelude;
pub(crate) mod store;
pub(crate) mod thread_mapping;

pub(crate) use crate::codegen::context::Context;
pub(crate) use crate::codegen::conv::direct::convolution;
pub(crate) use crate::codegen::conv::im2col::{folded, swapped, unfolded};
pub(crate) use crate::codegen::data::copy::{Elements, concat, gathered, gathered_if_fine, overlay, scattered};
pub(crate) use crate::codegen::data::index_ops::{
    add_rows, check_index, cumsum, gather, list_bytes, scatter_add, window_argmax,
};
pub(crate) use crate::codegen::data::init_casts::{halved_copy, largest_of};
pub(crate) use crate::codegen::data::smem_transpose::is_turned;
pub(crate) use crate::codegen::data::transpose::{Lines, WIDE, transposed};
pub(crate) use crate::codegen::gemm::batched_mma::is_small;
pub(crate) use crate::codegen::gemm::fused_attention::is_strip;
pub(crate) use crate::codegen::kernel::{Arg, Cell, Code, Launch};
pub(crate) use crate::codegen::loops::column_reduce::{Columns, Registers, column_blocks, is_by_columns};
pub(crate) use crate::codegen::loops::map::{is_scalar_sink, partials, sum_type};
pub(crate) use crate::codegen::loops::reduce::{InMemory, MOST_TERMS, reduce_memory};
pub(crate) use crate::codegen::loops::reduce_finalize::{Partial, folds};
pub(crate) use crate::codegen::loops::reduction_shape::Structure;
pub(crate) use crate::codegen::loops::rows::{LONGEST as LONGEST_ROW, Sinks, read_from_memory};
pub(crate) use crate::codegen::loops::segment_reduce::{Within, within_rows};
pub(crate) use crate::codegen::prelude::whole;
