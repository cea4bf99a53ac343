//! Calls of NVIDIA's libraries as steps of a plan.

use crate::conv::canonical::{ConvPass, Geometry};
use crate::target::ALIGN;
use bilevel_gpu::codegen::Arg;
use bilevel_gpu::codegen::naive_gemm::AffineStore;
use bilevel_gpu::compile::step::{Access, LibraryCall};
use bilevel_graph::Precision;
use bilevel_plan::{Place, StorageType};

/// A library call.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// A matrix product by cuBLASLt.
    Gemm(Gemm),
    /// A convolution by cuDNN.
    Convolution {
        /// The shapes and the pass.
        geometry: Geometry,
        /// The addresses of x, w and y.
        at: [Arg; 3],
        /// The workspace of the library.
        workspace: Place,
    },
}

/// The work of a step.
pub(crate) type Work = bilevel_gpu::compile::step::Work<Call>;
/// Work with the memory it reads and writes.
pub(crate) type Step = bilevel_gpu::compile::step::Step<Call>;

impl LibraryCall for Call {
    fn accesses(&self) -> Vec<Access> {
        match self {
            Call::Gemm(product) => {
                let workspace = Access::in_out(Arg::Memory(product.workspace, 0));
                let [a, b] = [product.a, product.b].map(|matrix| Access::input(matrix.at));
                let [addend, bias] = product.added().map(|at| at.map(Access::input));
                [a, b, Access::output(product.c.at), workspace].into_iter().chain(addend).chain(bias).collect()
            }
            Call::Convolution { geometry, at: [x, w, y], workspace } => {
                let [x, w, y] = [(ConvPass::Dgrad, *x), (ConvPass::Wgrad, *w), (ConvPass::Fprop, *y)]
                    .map(|(pass, at)| if pass == geometry.pass { Access::output(at) } else { Access::input(at) });
                vec![x, w, y, Access::in_out(Arg::Memory(*workspace, 0))]
            }
        }
    }

    fn moved(&self, to: &dyn Fn(Place) -> Place) -> Self {
        match self {
            Call::Gemm(product) => {
                let matrix = |matrix: Matrix| Matrix { at: matrix.at.moved(to), ..matrix };
                let Gemm { a, b, c, workspace, affine, .. } = *product;
                let affine = AffineStore {
                    addend: affine.addend.map(|(place, beta)| (to(place), beta)),
                    bias: affine.bias.map(|(place, first)| (to(place), first)),
                    ..affine
                };
                let [a, b, c] = [a, b, c].map(matrix);
                Call::Gemm(Gemm { a, b, c, workspace: to(workspace), affine, ..*product })
            }
            Call::Convolution { geometry, at, workspace } => {
                Call::Convolution { geometry: *geometry, at: at.map(|arg| arg.moved(to)), workspace: to(*workspace) }
            }
        }
    }

    fn multiplications(&self) -> usize {
        match self {
            Call::Gemm(p) => p.m * p.n * p.k * p.batch,
            Call::Convolution { geometry, .. } => geometry.products(),
        }
    }
}

/// How a product multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GemmMath {
    /// The storage type of the operands.
    pub operands: StorageType,
    /// The precision of the graph that it implements.
    pub precision: Precision,
}

impl GemmMath {
    /// f32.
    pub const F32: Self = GemmMath { operands: StorageType::F32, precision: Precision::Full };
    /// f32 rounded to 10 mantissa bits by the multiplication.
    pub const TF32: Self = GemmMath { operands: StorageType::F32, precision: Precision::Tf32 };
    /// IEEE fp16, which has as many mantissa bits.
    pub const F16: Self = GemmMath { operands: StorageType::F16, precision: Precision::Tf32 };
    /// bf16.
    pub const BF16: Self = GemmMath { operands: StorageType::Bf16, precision: Precision::Bf16 };
    /// f64.
    pub const F64: Self = GemmMath { operands: StorageType::F64, precision: Precision::Full };
}

/// One operand of a product as a column-major matrix, or a batch of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Matrix {
    /// The first element.
    pub at: Arg,
    /// Whether it is transposed.
    pub transposed: bool,
    /// Elements from one column to the next.
    pub leading: usize,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
}

impl Matrix {
    /// Returns the known alignment of its address in bytes.
    pub fn alignment(&self) -> u32 {
        alignment(self.at)
    }
}

/// C = α·A·B + β·C₀ + b, column-major, with C of m rows and n columns, C₀ of the layout of C and b of one element per row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gemm {
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// The length of the contracted axis.
    pub k: usize,
    /// Number of products.
    pub batch: usize,
    /// How A and B are stored and multiplied.
    pub math: GemmMath,
    /// How C is stored.
    pub result: StorageType,
    /// The left operand.
    pub a: Matrix,
    /// The right operand.
    pub b: Matrix,
    /// The result.
    pub c: Matrix,
    /// The map of the result: α, C₀ with β, and b.
    pub affine: AffineStore,
    /// The workspace of the library.
    pub workspace: Place,
}

impl Gemm {
    /// Returns the alignment of C and of all that is added to it.
    pub fn result_alignment(&self) -> u32 {
        let added = self.added().into_iter().flatten().map(alignment);
        added.fold(self.c.alignment(), u32::min)
    }

    /// Returns the addresses of C₀ and b.
    pub fn added(&self) -> [Option<Arg>; 2] {
        let size = if self.math == GemmMath::F64 { size_of::<f64>() } else { size_of::<f32>() };
        let addend = self.affine.addend.map(|(place, _)| Arg::Memory(place, 0));
        [addend, self.affine.bias.map(|(place, first)| Arg::Memory(place, first * size as isize))]
    }
}

/// Returns the known alignment of an address in bytes: buffers are aligned to [`ALIGN`].
fn alignment(at: Arg) -> u32 {
    let Arg::Memory(place, bytes) = at else { return 1 };
    let from = place.offset as i64 + bytes as i64;
    1 << from.trailing_zeros().min(ALIGN.trailing_zeros())
}
