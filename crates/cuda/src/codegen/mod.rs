//! Code generation: CUDA C for the groups of a schedule. It needs no GPU: the texts are golden-tested and compiled
//! anywhere.
//!
//! A kernel's text depends only on the structure of its work: pointers, element counts and non-trivial constants are
//! arguments, so that the updates of all parameters of a network share one kernel. Lengths by which an index is divided
//! are literals, because division by a constant is a multiplication.

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
pub(crate) use crate::codegen::conv::im2col::{col2im, im2col, swapped};
pub(crate) use crate::codegen::data::copy::{Elements, concat, copy_unless_failed, gathered, pad_sum, scattered};
pub(crate) use crate::codegen::data::index_ops::{
    add_rows, check_index, cumsum, gather, list_bytes, scatter_add, window_argmax,
};
pub(crate) use crate::codegen::data::init_casts::{amax_of, scaled_f16_copy};
pub(crate) use crate::codegen::data::smem_transpose::is_smem_transpose;
pub(crate) use crate::codegen::data::transpose::{TransposeShape, VECTOR, transposed};
pub(crate) use crate::codegen::gemm::batched_mma::is_small;
pub(crate) use crate::codegen::gemm::fused_attention::is_fused_attention;
pub(crate) use crate::codegen::kernel::{Arg, Cell, Code, Launch};
pub(crate) use crate::codegen::loops::column_reduce::{ColumnReduction, Registers, column_blocks, is_by_columns};
pub(crate) use crate::codegen::loops::map::{is_scalar_reduction, partials, sum_type};
pub(crate) use crate::codegen::loops::reduce::{MAX_TERMS, MemoryReduction, reduce_memory};
pub(crate) use crate::codegen::loops::reduce_finalize::{Partial, folds};
pub(crate) use crate::codegen::loops::reduction_shape::ReductionShape;
pub(crate) use crate::codegen::loops::rows::{MAX_ROW_LENGTH, RowReductions, read_from_memory};
pub(crate) use crate::codegen::loops::segment_reduce::{SegmentReduction, within_rows};
pub(crate) use crate::codegen::prelude::whole;
