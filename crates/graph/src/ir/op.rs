//! The closed set of primitives. Everything else in the project is written in these, and every derivative rule
//! (`vjp_rules.rs`) answers with these again, so a derivative can be derived to any order.

use crate::ir::collective::Collective;
use crate::ir::conv_role::ConvRole;
use crate::ir::host::HostCall;
use crate::{DType, Precision};

/// Defines elementwise primitives: the formula of each, and its name in programs, errors and generated code.
macro_rules! elementwise {
    ($(#[$about:meta])* $ops:ident { $($(#[$formula:meta])* $op:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $ops {
            $($(#[$formula])* $op,)*
        }

        impl $ops {
            /// The number of these primitives.
            pub const COUNT: usize = [$($name),*].len();

            /// Each of them, in the order of their numbers, for tests and tables.
            pub const ALL: [Self; Self::COUNT] = [$($ops::$op),*];

            /// Its name in programs, errors and generated code.
            pub const fn name(self) -> &'static str {
                match self {
                    $($ops::$op => $name,)*
                }
            }
        }
    };
}

elementwise! {
    /// Elementwise functions of one tensor.
    UnaryOp {
        /// −x
        Neg = "neg",
        /// |x|
        Abs = "abs",
        /// −1 below 0, 1 above 0; ±0 and NaN are themselves, so that sign(−x) = −sign(x) to the bit
        Sign = "sign",
        /// Largest whole number not above x
        Floor = "floor",
        /// 1/x
        Recip = "recip",
        /// √x
        Sqrt = "sqrt",
        /// eˣ
        Exp = "exp",
        /// eˣ − 1, accurate near 0
        Expm1 = "expm1",
        /// ln x
        Log = "log",
        /// ln(1 + x), accurate near 0
        Log1p = "log1p",
        /// sin x
        Sin = "sin",
        /// cos x
        Cos = "cos",
        /// The angle between −π/2 and π/2 whose tangent is x
        Atan = "atan",
        /// tanh x
        Tanh = "tanh",
        /// 1/(1 + e⁻ˣ)
        Sigmoid = "sigmoid",
        /// The error function
        Erf = "erf",
        /// 1 − erf x, accurate for large x
        Erfc = "erfc",
        /// ln |Γ(x)|; ∞ at 0 and at negative whole numbers
        LnGamma = "ln_gamma",
        /// ψ(x) = d ln Γ(x)/dx; NaN at negative whole numbers
        Digamma = "digamma",
    }
}

elementwise! {
    /// Elementwise functions of two tensors of one shape and type.
    BinaryOp {
        /// a + b (wrapping for integers)
        Add = "add",
        /// a − b (wrapping for integers)
        Sub = "sub",
        /// a·b (wrapping for integers)
        Mul = "mul",
        /// a/b (floats only)
        Div = "div",
        /// The larger; the first where they are equal, as 0 and −0 are; NaN where either is
        Max = "max",
        /// The smaller; the first where they are equal, as 0 and −0 are; NaN where either is
        Min = "min",
        /// aᵇ (floats only)
        Pow = "pow",
        /// ψ⁽ᵃ⁾(b), the a-th derivative of digamma at b, for whole a from 0 to 170; else NaN (floats only)
        Polygamma = "polygamma",
        /// 1 where a = b, else 0
        Eq = "eq",
        /// 1 where a ≠ b, else 0
        Ne = "ne",
        /// 1 where a < b, else 0
        Lt = "lt",
        /// 1 where a ≤ b, else 0
        Le = "le",
    }
}

impl BinaryOp {
    /// Returns true for the comparisons, whose answer is 0 or 1 and whose derivative is structurally zero.
    pub const fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le)
    }
}

/// How a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ReduceOp {
    /// Sum of the elements; 0 for none.
    Sum,
    /// Largest element, NaN if any is; −∞ (or the least integer) for none. Either of 0 and −0 may be the largest,
    /// because the order of the elements depends on the executor.
    Max,
}

/// The distribution of a random node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

impl Default for ConvDims {
    /// A dense convolution without padding: every stride, dilation and number of groups is 1.
    fn default() -> Self {
        ConvDims { stride: [1; 2], padding: [(0, 0); 2], image_dilation: [1; 2], kernel_dilation: [1; 2], groups: 1 }
    }
}

/// Geometry of a 2-D window over the last two axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowDims {
    /// Window size by spatial axis.
    pub size: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Padding before and after each axis; padded places are never chosen.
    pub padding: [(usize, usize); 2],
}

/// An operation on whole rows or matrices, the last axis or the last two of its operands; axes before them are batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BlockOp {
    /// Rows x: the places (`i32`) of their elements from the smallest to the largest, equal ones in the order of their places, NaN last.
    ArgSort,
    /// Rows of indices (`i32`) and of updates: for each s below `size` the place (`i32`) of the first largest update
    /// with index s, or the length of the row if there is none. A NaN counts as the largest. Other indices are skipped.
    ScatterArgMax {
        /// The number of places that are scattered into.
        size: usize,
    },
    /// Matrices A, of which the lower triangle is read: lower triangular L with L·Lᵀ = A. From the first column on at which A is not
    /// positive definite, L is NaN.
    Cholesky,
    /// Triangular matrices A `[n, n]`, of which only that triangle is read, and B `[n, m]`: X with A·X = B. A zero on the diagonal
    /// gives infinities or NaN.
    TriangularSolve {
        /// The lower triangle; otherwise the upper one.
        lower: bool,
        /// Solves Aᵀ·X = B instead.
        transposed: bool,
    },
}

impl BlockOp {
    /// The number of axes of a block.
    pub const fn rank(self) -> usize {
        match self {
            BlockOp::ArgSort | BlockOp::ScatterArgMax { .. } => 1,
            BlockOp::Cholesky | BlockOp::TriangularSolve { .. } => 2,
        }
    }

    /// The number of operands.
    pub const fn operands(self) -> usize {
        match self {
            BlockOp::ArgSort | BlockOp::Cholesky => 1,
            BlockOp::ScatterArgMax { .. } | BlockOp::TriangularSolve { .. } => 2,
        }
    }

    /// Its name in programs and errors.
    pub const fn name(self) -> &'static str {
        match self {
            BlockOp::ArgSort => "argsort",
            BlockOp::ScatterArgMax { .. } => "scatter_argmax",
            BlockOp::Cholesky => "cholesky",
            BlockOp::TriangularSolve { .. } => "triangular_solve",
        }
    }
}

/// One operation. Its operands, shape and type stand in the node that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// The identity on integers, which fails at run time if an element is not in 0..limit.
    CheckIndex(usize),
    /// The identity, whose derivative is structurally zero.
    StopGradient,
    /// The first operand, whose derivative by the other operands is the graph's custom rule of this number
    /// ([`CustomRule`](crate::CustomRule)), and by the first is structurally zero. A program has its first operand in its place.
    Custom(u32),
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
    /// 2-D convolution. Operands: image, kernel. The role identifies its pass of the user's convolution.
    Conv(ConvDims, ConvRole, Precision),
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
    /// A function that user code computes.
    #[cfg_attr(feature = "serde", serde(skip))]
    Host(HostCall),
    /// An operation on whole rows or matrices.
    Block(BlockOp),
    /// Communication between ranks, in a program that was partitioned for them.
    #[cfg_attr(feature = "serde", serde(skip))]
    Collective(Collective),
}
