//! The closed set of primitives. Everything else in the project is written in these, and every derivative rule
//! (`rules.rs`) answers with these again, so a derivative can be derived to any order.

use crate::{DType, Precision};

/// Elementwise functions of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnaryOp {
    /// −x
    Neg,
    /// |x|
    Abs,
    /// −1 below 0, 1 above 0; ±0 and NaN are themselves, so that sign(−x) = −sign(x) to the bit
    Sign,
    /// Largest whole number not above x
    Floor,
    /// 1/x
    Recip,
    /// √x
    Sqrt,
    /// eˣ
    Exp,
    /// eˣ − 1, accurate near 0
    Expm1,
    /// ln x
    Log,
    /// ln(1 + x), accurate near 0
    Log1p,
    /// sin x
    Sin,
    /// cos x
    Cos,
    /// tanh x
    Tanh,
    /// 1/(1 + e⁻ˣ)
    Sigmoid,
    /// The error function
    Erf,
}

impl UnaryOp {
    /// Every unary primitive, for tests and tables.
    pub const ALL: [UnaryOp; 15] = [
        UnaryOp::Neg,
        UnaryOp::Abs,
        UnaryOp::Sign,
        UnaryOp::Floor,
        UnaryOp::Recip,
        UnaryOp::Sqrt,
        UnaryOp::Exp,
        UnaryOp::Expm1,
        UnaryOp::Log,
        UnaryOp::Log1p,
        UnaryOp::Sin,
        UnaryOp::Cos,
        UnaryOp::Tanh,
        UnaryOp::Sigmoid,
        UnaryOp::Erf,
    ];
}

/// Elementwise functions of two tensors of one shape and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BinaryOp {
    /// a + b (wrapping for integers)
    Add,
    /// a − b (wrapping for integers)
    Sub,
    /// a·b (wrapping for integers)
    Mul,
    /// a/b (floats only)
    Div,
    /// The larger; the first where they are equal, as 0 and −0 are; NaN where either is
    Max,
    /// The smaller; the first where they are equal, as 0 and −0 are; NaN where either is
    Min,
    /// aᵇ (floats only)
    Pow,
    /// 1 where a = b, else 0
    Eq,
    /// 1 where a ≠ b, else 0
    Ne,
    /// 1 where a < b, else 0
    Lt,
    /// 1 where a ≤ b, else 0
    Le,
}

impl BinaryOp {
    /// Every binary primitive, for tests and tables.
    pub const ALL: [BinaryOp; 11] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Max,
        BinaryOp::Min,
        BinaryOp::Pow,
        BinaryOp::Eq,
        BinaryOp::Ne,
        BinaryOp::Lt,
        BinaryOp::Le,
    ];

    /// True for the comparisons, whose answer is 0 or 1 and whose derivative is structurally zero.
    pub const fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le)
    }
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Sum of the elements; 0 for none.
    Sum,
    /// Largest element, NaN if any is; −∞ (or the least integer) for none. Of 0 and −0 either may be the largest, because an
    /// executor combines the elements in an order of its own.
    Max,
}

/// What a random node draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RandomKind {
    /// Standard normal.
    Normal,
    /// Uniform on [0, 1).
    Uniform,
    /// 32 random bits as an integer.
    Bits,
}

/// Which axes of two operands are matched in a [`Op::Dot`]. The result has the batch axes, then the free axes of the
/// left operand, then those of the right, each in operand order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DotDims {
    /// Axes of the left operand summed over.
    pub lhs_contract: Vec<usize>,
    /// Axes of the right operand summed over, paired with `lhs_contract`.
    pub rhs_contract: Vec<usize>,
    /// Batch axes of the left operand.
    pub lhs_batch: Vec<usize>,
    /// Batch axes of the right operand, paired with `lhs_batch`.
    pub rhs_batch: Vec<usize>,
}

/// Geometry of a 2-D convolution of `[n, c, h, w]` with a kernel `[o, c/groups, kh, kw]`.
///
/// The image is first spread by `image_dilation` (zeros between its elements), then padded (a negative padding crops),
/// then correlated with the kernel spread by `kernel_dilation`, at every `stride`-th position:
///
/// out[n, o, y, x] = Σ image[n, c, y·stride + ky·kernel_dilation − low, …]·kernel[o, c, ky, kx]
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConvDims {
    /// Step between output positions, by spatial axis.
    pub stride: [usize; 2],
    /// Padding before and after each spatial axis; negative crops.
    pub padding: [(i64, i64); 2],
    /// Spacing of image elements (1 = dense).
    pub image_dilation: [usize; 2],
    /// Spacing of kernel elements (1 = dense).
    pub kernel_dilation: [usize; 2],
    /// Number of channel groups.
    pub groups: usize,
}

/// Geometry of a 2-D window over the last two axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowDims {
    /// Window size by spatial axis.
    pub size: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Padding before and after each axis; padded places are never chosen.
    pub padding: [(usize, usize); 2],
}

/// One operation. Its operands, shape and type stand in the node that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// A named program input, by its number in the graph.
    Input(u32),
    /// Every element the same value; the bits of an `f64` (integers are exact in it).
    Constant(u64),
    /// The index along an axis, 0, 1, 2, …
    Iota(usize),
    /// A counter-based random draw. Operands: key `i32[2]`, counter `i32[]`. Two nodes with one stream and one shape are
    /// one draw; another stream is independent.
    Random(RandomKind, u32),
    /// Elementwise function of one operand.
    Unary(UnaryOp),
    /// Elementwise function of two operands.
    Binary(BinaryOp),
    /// Operands mask, a, b: a where the mask is not 0, else b.
    Select,
    /// The same numbers in another type. Floats to integers go toward zero, saturating; NaN becomes 0.
    Convert(DType),
    /// The identity on integers, which fails at run time where an element is not in 0..limit.
    CheckIndex(usize),
    /// The identity, whose derivative is structurally zero.
    StopGradient,
    /// The same elements in row-major order under another shape.
    Reshape,
    /// Output axis i is operand axis `perm[i]`.
    Transpose(Vec<usize>),
    /// Operand axis i becomes output axis `axes[i]` (increasing); the other output axes repeat.
    Broadcast(Vec<usize>),
    /// Elements start, start+step, … below stop, by axis.
    Slice {
        /// First index by axis.
        start: Vec<usize>,
        /// End (exclusive) by axis.
        stop: Vec<usize>,
        /// Step by axis, at least 1.
        step: Vec<usize>,
    },
    /// Zeros before, after and between elements, by axis. The adjoint of `Slice`.
    Pad {
        /// Zeros before the first element.
        low: Vec<usize>,
        /// Zeros after the last element.
        high: Vec<usize>,
        /// Zeros between neighbours.
        interior: Vec<usize>,
    },
    /// Operands one after another along an axis.
    Concat(usize),
    /// Elements in opposite order along each of these axes.
    Reverse(Vec<usize>),
    /// Combine over these axes (increasing), which disappear.
    Reduce(ReduceOp, Vec<usize>),
    /// Index (`i32`) of the first largest element along an axis, which disappears.
    ArgMax(usize),
    /// Batched matrix product over any contracted axes. Its precision is `Full` until a program is rewritten
    /// ([`Program::with_precision`](crate::Program::with_precision)); so is that of a convolution.
    Dot(DotDims, Precision),
    /// 2-D convolution. Operands: image, kernel.
    Conv(ConvDims, Precision),
    /// Operands x `[b.., n, inner..]`, indices `[b.., k..]` with `batch` leading axes b: `[b.., k.., inner..]`.
    Gather {
        /// Number of leading axes shared by operand and indices.
        batch: usize,
    },
    /// The adjoint of `Gather`. Operands indices `[b.., k..]`, updates `[b.., k.., inner..]`: `[b.., size, inner..]`.
    ScatterAdd {
        /// Number of leading batch axes.
        batch: usize,
        /// Length of the axis scattered into.
        size: usize,
    },
    /// Operand `[.., h, w]`: for every window the flat index (`i32`, in 0..h·w) of its first largest element.
    WindowArgMax(WindowDims),
    /// Running sum along an axis, from its end if `reverse`.
    CumSum {
        /// Axis summed along.
        axis: usize,
        /// Sum from the end.
        reverse: bool,
    },
}
