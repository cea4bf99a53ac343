//! The operations of a lowered program: few kinds, each with its own memory, on operands that are views.

use crate::ir::dot_layout::DotLayout;
use crate::ir::storage_type::StorageType;
use crate::ir::view::View;
use crate::lower::scaled_fp16::scale::Pow2Scale;
use bilevel_graph::{
    BinaryOp, BlockOp, Collective, ConvDims, ConvRole, DType, HostCall, Line, Precision, RandomKind, ReduceOp, UnaryOp,
    WindowDims,
};

/// The operation of a lowered node. Operands are listed in the order of [`Node::operands`].
#[derive(Clone, Debug)]
pub enum Kind {
    /// A program input.
    Input,
    /// A cast of a carried input, carried along with it for products to read. Before the first step it is computed from
    /// the input: see [`Schedule::initial_casts`](crate::Schedule::initial_casts).
    CarriedCast(CastForm),
    /// Constants known when the program is planned, written once.
    Table(Vec<f64>),
    /// An elementwise function.
    Elementwise(Elementwise),
    /// A sum or a maximum over these axes of the operand's view.
    Reduce(ReduceOp, Vec<usize>),
    /// The exponent of the operand's amax: 2^⌊log₂ max |x|⌋ over its finite elements, or 0 if all are below 2⁻¹²⁶. Only
    /// if [`CostModel::min_scaled_side`](crate::CostModel::min_scaled_side) is set.
    AmaxExponent,
    /// The index of the largest element along the last axis of the operand's view; the first of equals.
    ArgMax,
    /// A batched matrix product. Its strides already contain the views of its operands, except for their offsets. Its
    /// math mode is `Full`, or one for which [`Capabilities::rounds_operands`](crate::Capabilities::rounds_operands) holds.
    Dot(DotLayout, Precision),
    /// A convolution of an image with a kernel, each a view of four axes, in a math mode as for products.
    /// [`Node::layout`] is the layout of the result.
    Conv(ConvDims, ConvRole, Precision),
    /// Operands x and indices, both dense: the rows of x at these indices.
    Gather {
        /// Leading axes that both operands share.
        batch: usize,
    },
    /// Operands index and base, one of each per element: the element index·stride after base. Only if
    /// [`Capabilities::inline_gather`](crate::Capabilities::inline_gather) holds.
    InlineGather {
        /// The distance between consecutive rows of the table, in elements.
        stride: usize,
        /// The exclusive upper bound of the indices. Outside it the value is 0.
        limit: usize,
        /// Whether the run fails if an index is out of range.
        checked: bool,
    },
    /// Operands indices and updates, both dense: the updates added to zeros at these rows.
    ScatterAdd {
        /// Leading axes that both operands share.
        batch: usize,
    },
    /// Operands x, indices and updates, all dense: x with the updates added at these rows. It is the next value of a
    /// carried x, computed in place if no later group reads the old value. A [`CheckIndex`](Kind::CheckIndex) of the
    /// same indices checks their range.
    AddRows {
        /// Leading axes that all operands share.
        batch: usize,
    },
    /// The index, within the plane of the last two axes, of the largest element of every window. The operand is dense.
    WindowArgMax(WindowDims),
    /// Running sums of a dense operand.
    CumSum {
        /// The axis to sum along.
        axis: usize,
        /// From the end to the start.
        reverse: bool,
    },
    /// A function of dense operands that user code computes.
    Host(HostCall),
    /// Communication between ranks.
    Collective(Collective),
    /// An operation on whole rows or matrices of dense operands.
    Block(BlockOp),
    /// The concatenation of the operands along this axis.
    Concat(usize),
    /// The operand padded with zeros.
    Pad(Padding),
    /// The sum of padded operands (col2im). Only if [`Capabilities::pad_sum`](crate::Capabilities::pad_sum) holds.
    PadSum(Vec<Padding>),
    /// Fails at run time if an element of the dense operand is not in 0..limit. It has no elements itself.
    CheckIndex {
        /// The exclusive upper bound.
        limit: usize,
        /// The operation that the error names.
        operation: &'static str,
    },
}

impl Kind {
    /// Returns true if it can be part of a fused loop; any other operation is a separate group.
    pub(crate) fn fuses(&self) -> bool {
        matches!(
            self,
            Kind::Elementwise(_) | Kind::Reduce(..) | Kind::AmaxExponent | Kind::ArgMax | Kind::InlineGather { .. }
        )
    }
}

/// The form of a cast that is carried along with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastForm {
    /// The elements rounded to `Bf16`, two bytes each.
    Bf16,
    /// The [`Kind::AmaxExponent`].
    AmaxExponent,
    /// The elements scaled to fp16 by [`Elementwise::ScaleToF16`].
    ScaledF16,
}

/// Zero padding around and between the elements of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Zeros before the first element of each axis.
    pub low: Vec<usize>,
    /// Zeros between elements of each axis.
    pub interior: Vec<usize>,
}

/// Elementwise functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elementwise {
    /// The identity: makes a view contiguous.
    Copy,
    /// A unary function.
    Unary(UnaryOp),
    /// A binary function.
    Binary(BinaryOp),
    /// The second operand if the first is not 0, otherwise the third.
    Select,
    /// A conversion to another type.
    Convert(DType),
    /// The operand rounded to this precision, still a 32-bit float: [`Precision::round`].
    Round(Precision),
    /// The first operand x scaled to fp16, which has as many significant bits as `Tf32`: x·2¹⁴/p with all |x| ≤ 2p. The
    /// other operands are the factors of p; by default the only one is the [`Kind::AmaxExponent`] of the array.
    ScaleToF16(Pow2Scale),
    /// The first operand, a product of scaled arrays, with both scales removed: x·(p₁/2¹⁴)·(p₂/2¹⁴). The other operands
    /// are the factors of p₁ and of p₂.
    Unscale([Pow2Scale; 2]),
    /// Random draws of this kind from this stream. The operands are a key (two elements) and a counter (one element).
    Random(RandomKind, u32),
}

/// The source of an operand.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A constant.
    Constant(f64),
    /// A view of the memory of a node.
    At {
        /// The node.
        node: usize,
        /// Its elements that are read.
        view: View,
    },
}

impl Operand {
    /// Returns the node and the view; `None` for a constant.
    pub fn at(&self) -> Option<(usize, &View)> {
        match self {
            Operand::Constant(_) => None,
            Operand::At { node, view } => Some((*node, view)),
        }
    }
}

/// An operation and its result, the elements of `shape` without gaps.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operation.
    pub kind: Kind,
    /// The operands; they refer to earlier nodes only.
    pub operands: Vec<Operand>,
    /// Shape of the result.
    pub shape: Vec<usize>,
    /// Type of the result.
    pub dtype: DType,
    /// The type of the elements in memory. `F16` are the results of [`Elementwise::ScaleToF16`], which only products
    /// read. `Bf16` are operands and results of `Bf16` products and convolutions for which
    /// [`Capabilities`](crate::Capabilities) say so, and values that bf16 represents exactly
    /// (`narrow_storage.rs`). Only products, convolutions, loops, concatenations and paddings read them.
    pub storage: StorageType,
    /// The layout of the node's axes in its memory. It differs from row-major only for products and convolutions whose
    /// result is read transposed.
    pub layout: View,
    /// Whether the value is loop-invariant and computed before the first step; for an input, whether no step changes
    /// it.
    pub invariant: bool,
    /// Whether this is a rematerialised value, which belongs to the loop that reads it.
    pub is_remat: bool,
    /// The line of user code.
    pub location: Line,
}

impl Node {
    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.count() * self.storage.size()
    }

    /// Returns the operands in memory.
    pub fn reads(&self) -> impl Iterator<Item = (usize, &View)> {
        self.operands.iter().filter_map(Operand::at)
    }

    /// Returns the table of an inline gather.
    pub fn gathers_from(&self) -> Option<usize> {
        matches!(self.kind, Kind::InlineGather { .. })
            .then(|| self.operands.get(1)?.at().map(|(table, _)| table))
            .flatten()
    }

    /// Returns true if the view covers all elements of this node in memory order.
    pub fn is_whole(&self, view: &View) -> bool {
        view.is_contiguous() && view.count() == self.count()
    }
}
