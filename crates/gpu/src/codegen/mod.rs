//! Code generation for the groups of a schedule. It needs no GPU: the texts are golden-tested and compiled anywhere.
//!
//! A kernel's text depends only on the structure of its work: pointers, element counts and non-trivial constants are
//! arguments, so that the updates of all parameters of a network share one kernel. Lengths by which an index is divided
//! are literals, because division by a constant is a multiplication.

pub mod batched_launch;
pub mod body;
pub mod context;
pub mod conv;
pub mod data;
pub mod expr;
pub mod kernel;
pub mod library;
pub mod limits;
pub mod load;
pub mod loops;
pub mod naive_gemm;
pub mod parts;
pub mod prefetch;
pub mod renderer;
pub mod store;
pub mod thread_mapping;

pub use crate::codegen::context::Context;
pub use crate::codegen::conv::direct::convolution;
pub use crate::codegen::data::block_ops::block_op;
pub use crate::codegen::data::copy::{Elements, concat, copy_unless_failed, gathered, pad_sum, scattered};
pub use crate::codegen::data::index_ops::{
    add_rows, check_index, cumsum, gather, list_bytes, scatter_add, window_argmax,
};
pub use crate::codegen::data::init_casts::{amax_of, scaled_f16_copy};
pub use crate::codegen::data::smem_transpose::is_smem_transpose;
pub use crate::codegen::data::transpose::{TransposeShape, transposed};
pub use crate::codegen::kernel::{Arg, CStorage, Code, IndexWidth, Kernel, Launch, RoundedStorage};
pub use crate::codegen::limits::VECTOR;
pub use crate::codegen::loops::column_reduce::{ColumnReduction, Registers, column_blocks, is_by_columns};
pub use crate::codegen::loops::map::{is_scalar_reduction, partials, sum_type};
pub use crate::codegen::loops::reduce::{MAX_TERMS, MemoryReduction, reduce_memory};
pub use crate::codegen::loops::reduce_finalize::{Partial, folds};
pub use crate::codegen::loops::reduction_shape::ReductionShape;
pub use crate::codegen::loops::rows::{MAX_ROW_LENGTH, RowReductions, read_from_memory};
pub use crate::codegen::loops::segment_reduce::{SegmentReduction, within_rows};
pub use crate::codegen::renderer::{Renderer, unit};
