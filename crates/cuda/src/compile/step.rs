//! Steps of a plan: kernels, library calls and copies, with the memory they read and write.

use crate::codegen::{Arg, Launch};
use crate::conv::canonical::Geometry;
use crate::target::ALIGN;
use bilevel_graph::Precision;
use bilevel_plan::Place;
use std::panic::Location;

/// The work of a step.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A generated kernel.
    Kernel(Launch),
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
    /// A copy of memory.
    Copy {
        /// The source.
        from: Place,
        /// The destination.
        to: Place,
        /// The number of bytes.
        bytes: usize,
    },
}

impl Work {
    /// True for a kernel that reports indices out of range.
    pub fn can_fail(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.can_fail)
    }

    /// True for a kernel that is skipped after a check has failed.
    pub fn skips_after_failure(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.skips_after_failure)
    }

    /// True for a kernel that is tuned to occupy every multiprocessor. If it runs concurrently with others, many of its
    /// blocks must wait for them and then run alone, which doubles its time.
    pub fn occupies_whole_gpu(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.shared > 0)
    }

    /// Returns the addresses of its arguments. It accesses only the arrays that contain them.
    pub fn addresses(&self) -> Vec<Arg> {
        match self {
            Work::Kernel(launch) => launch.args.clone(),
            Work::Gemm(product) => {
                let workspace = Arg::Memory(product.workspace, 0);
                [product.a, product.b, product.c].map(|matrix| matrix.at).into_iter().chain([workspace]).collect()
            }
            Work::Convolution { at, workspace, .. } => [&at[..], &[Arg::Memory(*workspace, 0)]].concat(),
            Work::Copy { from, to, .. } => [*from, *to].map(|place| Arg::Memory(place, 0)).to_vec(),
        }
    }
}

/// A span of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first byte.
    pub place: Place,
    /// Its length.
    pub bytes: usize,
}

impl Span {
    /// True if an address is in the span; an empty span contains its first byte.
    pub fn holds(&self, address: &Arg) -> bool {
        let &Arg::Memory(place, bytes) = address else { return false };
        let (first, at) = (self.place.offset as isize, place.offset as isize + bytes);
        self.place.region == place.region && (first..first + self.bytes.max(1) as isize).contains(&at)
    }

    /// True if both overlap. Bound buffers are distinct.
    pub fn meets(&self, other: &Span) -> bool {
        let (a, b) = (self.place, other.place);
        a.region == b.region && a.offset < b.offset + other.bytes && b.offset < a.offset + self.bytes
    }
}

/// Work with the memory it reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The work.
    pub work: Work,
    /// The spans it reads.
    pub reads: Vec<Span>,
    /// The spans it writes.
    pub writes: Vec<Span>,
    /// The line of user code.
    pub location: &'static Location<'static>,
}

impl Step {
    /// Returns the step with its addresses mapped.
    pub fn moved(&self, to: impl Fn(Place) -> Place) -> Step {
        let span = |span: &Span| Span { place: to(span.place), ..*span };
        let arg = |arg: Arg| match arg {
            Arg::Memory(place, bytes) => Arg::Memory(to(place), bytes),
            other => other,
        };
        let matrix = |matrix: Matrix| Matrix { at: arg(matrix.at), ..matrix };
        let work = match &self.work {
            Work::Kernel(launch) => {
                Work::Kernel(Launch { args: launch.args.iter().copied().map(arg).collect(), ..launch.clone() })
            }
            Work::Gemm(product) => {
                let Gemm { a, b, c, workspace, .. } = *product;
                Work::Gemm(Gemm { a: matrix(a), b: matrix(b), c: matrix(c), workspace: to(workspace), ..*product })
            }
            Work::Convolution { geometry, at, workspace } => {
                Work::Convolution { geometry: *geometry, at: at.map(arg), workspace: to(*workspace) }
            }
            &Work::Copy { from, to: target, bytes } => Work::Copy { from: to(from), to: to(target), bytes },
        };
        let [reads, writes] = [&self.reads, &self.writes].map(|spans| spans.iter().map(span).collect());
        Step { work, reads, writes, location: self.location }
    }
}

/// The element type of a product's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Factor {
    /// f32.
    F32,
    /// f32 rounded to 10 mantissa bits by the multiplication.
    Tf32,
    /// IEEE fp16, which has as many mantissa bits.
    Half,
    /// bf16.
    Bf16,
    /// f64.
    F64,
}

impl Factor {
    /// Returns the precision of the graph that it implements.
    pub fn precision(self) -> Precision {
        match self {
            Factor::F32 | Factor::F64 => Precision::Full,
            Factor::Tf32 | Factor::Half => Precision::Tf32,
            Factor::Bf16 => Precision::Bf16,
        }
    }
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
    /// Returns the known alignment of its address in bytes: buffers are aligned to [`ALIGN`].
    pub fn alignment(&self) -> u32 {
        let Arg::Memory(place, bytes) = self.at else { return 1 };
        let from = place.offset as i64 + bytes as i64;
        1 << from.trailing_zeros().min(ALIGN.trailing_zeros())
    }
}

/// C = A·B, column-major, with C of m rows and n columns.
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
    /// Type of A and B.
    pub factor: Factor,
    /// Whether C has two bytes per element, as A and B have.
    pub narrow: bool,
    /// The left operand.
    pub a: Matrix,
    /// The right operand.
    pub b: Matrix,
    /// The result.
    pub c: Matrix,
    /// The workspace of the library.
    pub workspace: Place,
}
