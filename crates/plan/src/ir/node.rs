//! The operations of a lowered program: few kinds, all on memory, with every operand a view of another's elements.

use crate::ir::dot_layout::DotLayout;
use crate::ir::view::View;
use crate::lower::scaled_fp16::scale::Pow2Scale;
use bilevel_graph::{BinaryOp, ConvDims, DType, Precision, RandomKind, ReduceOp, UnaryOp, WindowDims};
use std::panic::Location;

/// What a node of the lowered program does. Operands are named in the order in which they stand in [`Node::operands`].
#[derive(Clone, Debug)]
pub enum Kind {
    /// A program input: memory that somebody else fills.
    Input,
    /// What the step before left of a carried input besides the input itself, for products to read. Before the first step it has to be made:
    /// see [`Schedule::initial_casts`](crate::Schedule::initial_casts).
    CarriedCast(CastForm),
    /// Numbers known when the program is planned, to be written once.
    Table(Vec<f64>),
    /// One value for each element.
    Elementwise(Elementwise),
    /// A sum or a maximum over these axes of the operand's view.
    Reduce(ReduceOp, Vec<usize>),
    /// The power of two of the operand's largest element, 2^⌊log₂ max |x|⌋ over those that are finite; 0 where none is other than 0, or all
    /// are below 2⁻¹²⁶. Only where [`Target::scales_to_f16`](crate::Target::scales_to_f16) says so, as the next.
    AmaxExponent,
    /// The place of the largest element along the last axis of the operand's view; of several, the first.
    ArgMax,
    /// A batched matrix product; its strides already contain the views of its operands, but for their offsets. Its
    /// precision is `Full`, or one that [`Target::has_native`](crate::Target::has_native) says is the machine's own.
    Dot(DotLayout, Precision),
    /// A convolution of an image with a kernel, each a view of four axes, in a precision as that of a product. The
    /// result lies as [`Node::layout`] says.
    Conv(ConvDims, Precision),
    /// Operands x and indices, both dense: rows of x by their number.
    Gather {
        /// Leading axes that both operands share.
        batch: usize,
    },
    /// Operands index and base, one of each for every element: the element of base's memory that lies index·apart after it. Only where
    /// [`Target::fuses_gather`](crate::Target::fuses_gather) says so.
    InlineGather {
        /// Elements from what one index stands for to what the next does.
        stride: usize,
        /// Where an index is not in 0..limit, the value is 0.
        limit: usize,
        /// And then it fails at run time.
        checked: bool,
    },
    /// Operands indices and updates, both dense: rows added to zeros at the rows with these numbers.
    ScatterAdd {
        /// Leading axes that both operands share.
        batch: usize,
    },
    /// Operands x, indices and updates, all dense: x with rows added at the rows with these numbers. It is what a carried x becomes,
    /// and is written over it where nobody reads the old value later: only the rows with these numbers are touched then. Indices are
    /// in range, for a [`CheckIndex`](Kind::CheckIndex) of the same indices is part of the program.
    AddRows {
        /// Leading axes that all operands share.
        batch: usize,
    },
    /// Within the plane of the last two axes, the place of the largest element in every window. The operand is dense.
    WindowArgMax(WindowDims),
    /// Running sums of a dense operand.
    CumSum {
        /// The axis to sum along.
        axis: usize,
        /// From the end to the start.
        reverse: bool,
    },
    /// The operands one after the other along this axis.
    Concat(usize),
    /// The operand among zeros.
    Pad(Padding),
    /// The sum of the operands, each among zeros as its frame says. Only where [`Target::fuses_pad_sum`](crate::Target::fuses_pad_sum) says so.
    PadSum(Vec<Padding>),
    /// Fails at run time where an element of the operand, which is dense, is not in 0..limit. Has no elements itself.
    CheckIndex {
        /// All elements are below this.
        limit: usize,
        /// The operation that needs it, for the error.
        operation: &'static str,
    },
}

/// What is kept of a carried input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastForm {
    /// Its elements rounded to `Bf16`, in two bytes each.
    Bf16,
    /// Its [`Kind::AmaxExponent`].
    AmaxExponent,
    /// Its elements as [`Elementwise::ScaleToF16`] makes them.
    ScaledF16,
}

/// Where a value lies among zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Zeros before the first element of each axis.
    pub low: Vec<usize>,
    /// Zeros between elements of each axis.
    pub interior: Vec<usize>,
}

/// Functions applied element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elementwise {
    /// The operand itself: puts a view into the order of memory.
    Copy,
    /// A function of one number.
    Unary(UnaryOp),
    /// A function of two numbers.
    Binary(BinaryOp),
    /// The second operand where the first is not 0, otherwise the third.
    Select,
    /// The operand as another type.
    Convert(DType),
    /// The operand as a product of this precision multiplies it, still a 32-bit float: [`Precision::round`].
    Round(Precision),
    /// The first operand x as a number of 16 bits that has as many digits as `Tf32`, times the power of two that brings the array into the
    /// range of such numbers: x·2¹⁴/p, all |x| ≤ 2p. The factors of p are the other operands; where nothing else is known, the only one is
    /// the [`Kind::AmaxExponent`] of the array.
    ScaleToF16(Pow2Scale),
    /// The first operand, of a product of halved numbers, with the powers of two of both taken out again: x·(p₁/2¹⁴)·(p₂/2¹⁴). The others are
    /// the factors of p₁, and those of p₂.
    Unscale([Pow2Scale; 2]),
    /// Draws of this kind from the stream with this number. Operands are a key (two elements) and a counter (one), read whole.
    Random(RandomKind, u32),
}

/// Where an operand's elements are.
#[derive(Clone, Debug)]
pub enum Operand {
    /// The same number everywhere.
    Constant(f64),
    /// In the memory of a node.
    At {
        /// The number of the node.
        node: usize,
        /// Which of its elements, and in which order.
        view: View,
    },
}

impl Operand {
    /// Node and view; `None` for a constant.
    pub fn at(&self) -> Option<(usize, &View)> {
        match self {
            Operand::Constant(_) => None,
            Operand::At { node, view } => Some((*node, view)),
        }
    }
}

/// An operation with memory of its own: the elements of `shape`, without gaps.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it does.
    pub kind: Kind,
    /// What it reads; nodes that come before it.
    pub operands: Vec<Operand>,
    /// Shape of the result.
    pub shape: Vec<usize>,
    /// Type of the result.
    pub dtype: DType,
    /// Its elements take two bytes each. Those of [`Elementwise::ScaleToF16`] are IEEE halves, which products alone read. All others are the
    /// upper bytes of a 32-bit float: what products and convolutions in `Bf16` read and give, where
    /// [`Target::gemm_reads_bf16`](crate::Target::gemm_reads_bf16) and [`Target::conv_reads_bf16`](crate::Target::conv_reads_bf16) say so, and what
    /// two bytes hold exactly anyway (`short.rs`). Only they, loops, concatenations and paddings read it.
    pub narrow: bool,
    /// How the node's own axes lie in its memory; differs from row-major only for products and convolutions whose result is
    /// read transposed.
    pub layout: View,
    /// True when it is the same in every step of a loop and computed before the first; for an input, when no step changes it.
    pub invariant: bool,
    /// It was computed before and not kept: it belongs to the loop that reads it.
    pub is_remat: bool,
    /// The line of user code it comes from.
    pub location: &'static Location<'static>,
}

impl Node {
    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> usize {
        self.count() * if self.narrow { 2 } else { self.dtype.size() }
    }

    /// The operands that are in memory.
    pub fn reads(&self) -> impl Iterator<Item = (usize, &View)> {
        self.operands.iter().filter_map(Operand::at)
    }

    /// True where its elements are IEEE halves.
    pub fn is_scaled_f16(&self) -> bool {
        matches!(self.kind, Kind::Elementwise(Elementwise::ScaleToF16(_)) | Kind::CarriedCast(CastForm::ScaledF16))
    }

    /// The node of which this fetches elements from anywhere.
    pub fn gathers_from(&self) -> Option<usize> {
        matches!(self.kind, Kind::InlineGather { .. })
            .then(|| self.operands.get(1)?.at().map(|(table, _)| table))
            .flatten()
    }

    /// True where the view shows all elements of this node in the order of its memory.
    pub fn is_whole(&self, view: &View) -> bool {
        view.is_contiguous() && view.count() == self.count()
    }
}
