//! What one group of a schedule becomes: kernels, products and copies, in the order in which they run.

use crate::codegen::{Arg, Launch};
use crate::conv::canonical::Geometry;
use crate::target::ALIGN;
use bilevel_graph::Precision;
use bilevel_plan::Place;
use std::panic::Location;

/// One thing a GPU is asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// A kernel of our own.
    Kernel(Launch),
    /// A matrix product by cuBLASLt.
    Gemm(Gemm),
    /// A convolution by the library.
    Convolution {
        /// Shapes, and what is computed.
        geometry: Geometry,
        /// Where x, w and y begin.
        at: [Arg; 3],
        /// Memory for the library.
        workspace: Place,
    },
    /// Bytes copied from one place to another.
    Copy {
        /// Where they are.
        from: Place,
        /// Where they go.
        to: Place,
        /// How many.
        bytes: usize,
    },
}

impl Work {
    /// True for a kernel that reports indices out of range.
    pub fn can_fail(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.can_fail)
    }

    /// True for a kernel that does nothing after another has reported an index out of range.
    pub fn skips_after_failure(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.skips_after_failure)
    }

    /// True for a kernel made to have all of every multiprocessor at once. Beside others, many of its blocks find no
    /// place until those are done, and then run by themselves, for as long as all of them together would have: it takes
    /// twice the time.
    pub fn occupies_whole_gpu(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.shared > 0)
    }

    /// The addresses that it is given. It reads and writes nothing that is not of the same array as one of them.
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

/// A stretch of memory that is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first byte.
    pub place: Place,
    /// Its length.
    pub bytes: usize,
}

impl Span {
    /// True if an address lies in it; one without bytes holds its first.
    pub fn holds(&self, address: &Arg) -> bool {
        let &Arg::Memory(place, bytes) = address else { return false };
        let (first, at) = (self.place.offset as isize, place.offset as isize + bytes);
        self.place.region == place.region && (first..first + self.bytes.max(1) as isize).contains(&at)
    }

    /// True if both have a byte in common. Buffers that are bound are different ones.
    pub fn meets(&self, other: &Span) -> bool {
        let (a, b) = (self.place, other.place);
        a.region == b.region && a.offset < b.offset + other.bytes && b.offset < a.offset + self.bytes
    }
}

/// Work with what it reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What is to be done.
    pub work: Work,
    /// What it reads.
    pub reads: Vec<Span>,
    /// What it writes.
    pub writes: Vec<Span>,
    /// The line of user code it comes from.
    pub location: &'static Location<'static>,
}

impl Step {
    /// The same with other places.
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
    /// 32 bits, multiplied as they are.
    F32,
    /// 32 bits, of which the multiplication sees the leading 10 of the mantissa.
    Tf32,
    /// 16 bits, of which as many are digits: IEEE halves.
    Half,
    /// The top 16 bits.
    Bf16,
    /// 64 bits.
    F64,
}

impl Factor {
    /// The precision it stands for.
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
    /// It is to be read transposed.
    pub transposed: bool,
    /// Elements from one column to the next.
    pub leading: usize,
    /// Elements from one matrix of the batch to the next.
    pub batch_stride: usize,
}

impl Matrix {
    /// What its address is a multiple of, as far as is known: buffers begin at multiples of [`ALIGN`].
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
    /// What is summed over.
    pub k: usize,
    /// Number of products.
    pub batch: usize,
    /// Type of A and B.
    pub factor: Factor,
    /// C has elements of two bytes, as A and B have.
    pub narrow: bool,
    /// The left operand.
    pub a: Matrix,
    /// The right operand.
    pub b: Matrix,
    /// The result.
    pub c: Matrix,
    /// Memory for the library.
    pub workspace: Place,
}
