//! The description of a machine that planning needs: predicates and limits.

use crate::fuse::group::Group;
use crate::ir::dot_layout::{DotLayout, DotSize};
use crate::ir::node::{Elementwise, Kind, Node, Operand};
use bilevel_graph::{ConvDims, Precision};

/// A machine as planning sees it. The default implementations suit any machine.
pub trait Target {
    /// Returns the sizes that the machine can work with.
    fn limits(&self) -> Limits;

    /// True if an elementwise operation is recomputed for each of its readers, because that is cheaper than storing its
    /// result. By default these are comparisons with a constant: the mask of a ReLU is not stored from the forward pass
    /// to the backward pass.
    fn recomputes(&self, node: &Node) -> bool {
        let comparison = matches!(node.kind, Kind::Elementwise(Elementwise::Binary(op)) if op.is_comparison());
        comparison && node.operands.iter().any(|operand| matches!(operand, Operand::Constant(_)))
    }

    /// True if an operation can be part of a fused loop; any other operation is a group of its own. By default
    /// elementwise operations, reductions and inline gathers can.
    fn fuses(&self, kind: &Kind) -> bool {
        matches!(
            kind,
            Kind::Elementwise(_) | Kind::Reduce(..) | Kind::AmaxExponent | Kind::ArgMax | Kind::InlineGather { .. }
        )
    }

    /// True if the machine multiplies in this precision natively, rounding the operands itself. By default it does not:
    /// planning inserts casts ([`Elementwise::Round`]), shared by all products that read a value, and the products are
    /// of full precision.
    fn has_native(&self, precision: Precision) -> bool {
        let _ = precision;
        false
    }

    /// True if matrix products in `Bf16` read and write two bytes per element. Planning then has their operands stored
    /// so ([`Node::narrow`]), once for all readers, by the loops that compute them. By default they do not.
    fn gemm_reads_bf16(&self) -> bool {
        false
    }

    /// True if a convolution in `Bf16` of these shapes reads and writes two bytes per element. By default none does.
    fn conv_reads_bf16(&self, dims: &ConvDims, image: &[usize], kernel: &[usize]) -> bool {
        let _ = (dims, image, kernel);
        false
    }

    /// True if a `Tf32` product with these strides is faster on fp16 operands. Planning then scales each array into the
    /// range of fp16 by a power of two ([`Elementwise::ScaleToF16`]). By default none is.
    fn scales_to_f16(&self, product: &DotLayout) -> bool {
        let _ = product;
        false
    }

    /// True if products of this size need a single stride from matrix to matrix of a batch. Planning then copies other
    /// operands into that layout, once for all readers. By default they do not.
    fn wants_one_stride(&self, product: &DotSize) -> bool {
        let _ = product;
        false
    }

    /// True if the gradient of a max pool with disjoint windows is an elementwise select in the loop that reads it
    /// instead of a scatter. By default it is a scatter.
    fn pool_grad_as_select(&self) -> bool {
        false
    }

    /// True if a sum of padded values is one operation ([`Kind::PadSum`]). By default each value is padded separately.
    fn fuses_pad_sum(&self) -> bool {
        false
    }

    /// True if loops gather short rows themselves ([`Kind::InlineGather`]). By default a separate gather writes them.
    fn fuses_gather(&self) -> bool {
        false
    }

    /// True if a loop that reads this matrix product should become its epilogue ([`Group::gemm`]). By default none
    /// should.
    fn wants_epilogue(&self, product: &Node, pass: &Group) -> bool {
        let _ = (product, pass);
        false
    }

    /// True if a matrix product, a loop over its rows and the product `next` of those rows should be one group
    /// ([`Group::second_gemm`]). The products are given by their node numbers. By default they should not.
    fn fuses_gemm_gemm(&self, nodes: &[Node], product: usize, pass: &Group, next: usize) -> bool {
        let _ = (nodes, product, pass, next);
        false
    }
}

/// The sizes that a machine can work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest row that a loop can reduce and then read again without going through memory: the capacity of the
    /// first-level cache, or of the registers of a thread block.
    pub row: usize,
    /// The maximum number of operations in one loop.
    pub members: usize,
    /// Loops over at most this many elements are merged even if unrelated, because launching them dominates their cost.
    pub tiny_loop: usize,
    /// Loops over the same number of elements, at most this many, are finally merged if neither depends on the other:
    /// for instance the updates of all biases. At least [`tiny_loop`](Self::tiny_loop).
    pub horizontal_fusion_max: usize,
    /// In loops over at most this many elements, each member is complete before the next begins, so a random draw can
    /// read a key of the same loop. 0 if members advance element by element.
    pub sequential_max: usize,
    /// The maximum rank of a view after merging axes that share a stride.
    pub axes: usize,
    /// The alignment of every buffer, in bytes.
    pub alignment: usize,
    /// The memory of a value is not reused for this many groups after its last reader, so that independent groups can
    /// run concurrently. Near peak memory the distance may be shorter. 0 if groups run one after the other.
    pub reuse_distance: usize,
    /// Values of at most this many bytes never share memory, so that no group waits for it. 0 if groups run one after
    /// the other.
    pub no_alias_bytes: usize,
    /// Whether the parts of a concatenation are computed directly in its buffer if possible. Executors skip such a
    /// concatenation.
    pub concat_in_place: bool,
    /// Loops recompute results of at least this many bytes from fewer values, instead of reading them from memory.
    /// `None` if loops are compute-bound, so that storing results is faster.
    pub remat_min_bytes: Option<usize>,
}

/// A machine that asks for nothing beyond the defaults: what examples, tests and the interpreter plan for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainTarget;

impl Target for PlainTarget {
    fn limits(&self) -> Limits {
        LIMITS
    }
}

/// Those of [`PlainTarget`].
pub(crate) const LIMITS: Limits = Limits {
    row: 1024,
    members: 96,
    tiny_loop: 0,
    horizontal_fusion_max: 0,
    sequential_max: 0,
    axes: 8,
    alignment: 64,
    reuse_distance: 0,
    no_alias_bytes: 0,
    concat_in_place: false,
    remat_min_bytes: None,
};
