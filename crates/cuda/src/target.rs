//! A GPU as planning sees it.

use crate::codegen::{LONGEST_ROW, is_small, is_strip};
use crate::gemm::lower::{LONG, OWN};
use bilevel_graph::{ConvDims, Precision};
use bilevel_plan::{DotLayout, DotSize, Group, Limits, Node, Target};

/// Places in memory are multiples of what the widest loads and the libraries like best.
pub(crate) const ALIGN: usize = 256;

/// Smaller results stay in the second cache from the loop that computes them to the next.
const AGAIN: usize = 1 << 20;

/// Values that are not worth the memory they would share: of a network there are some thousands, most of them of one number.
pub(crate) const APART: usize = 32 << 10;

/// Numbers of two bytes in a load of 16.
const LANES: usize = 8;

/// Any GPU, as planning sees it.
pub struct CudaTarget {
    /// Images have their channels last, so that convolutions in `Bf16` may read operands of two bytes.
    pub channels_last: bool,
    /// Blocks can have the shared memory that strips of attentions take.
    pub strips: bool,
}

impl Target for CudaTarget {
    fn limits(&self) -> Limits {
        Limits {
            row: LONGEST_ROW,
            // Beyond that, the values of a thread no longer fit its registers.
            members: 64,
            // To start a kernel takes as long as to run a short one.
            together: 64,
            // The updates of biases of a network, which have nothing to do with each other.
            gathered: 1024,
            in_turn: 0,
            axes: 8,
            alignment: ALIGN,
            slack: 8,
            apart: APART,
            joins: true,
            again: Some(AGAIN),
        }
    }

    fn multiplies(&self, _: Precision) -> bool {
        true
    }

    fn wants_one_stride(&self, product: &DotSize) -> bool {
        product.multiplications() >= OWN && !is_small(product)
    }

    fn narrows(&self) -> bool {
        true
    }

    /// Long products, of matrices whose rows begin at multiples of 16 bytes, as the library likes them best.
    fn halves(&self, product: &DotLayout) -> bool {
        let DotLayout { m, n, k, a, b, ref batch, .. } = *product;
        let in_rows = |(down, along): (isize, isize), (rows, columns): (usize, usize)| {
            let apart = |stride: isize, length: usize| stride % LANES as isize == 0 && stride >= length as isize;
            down == 1 && apart(along, rows) || along == 1 && apart(down, columns)
        };
        let single = batch.iter().all(|(length, _)| *length == 1);
        single && [m, n, k].into_iter().all(|length| length >= LONG) && in_rows(a, (m, k)) && in_rows(b, (k, n))
    }

    fn strips(&self, nodes: &[Node], product: usize, pass: &Group, next: usize) -> bool {
        self.strips && is_strip(nodes, product, &pass.members, next)
    }

    /// A scatter is several loops, with lists of what goes where.
    fn chooses(&self) -> bool {
        true
    }

    fn overlays(&self) -> bool {
        true
    }

    fn fetches(&self) -> bool {
        true
    }

    fn narrows_convolution(&self, dims: &ConvDims, image: &[usize], kernel: &[usize]) -> bool {
        // For the derivative with respect to a kernel, the first axis of its image is that of the channels.
        let whole = |channels: usize| channels.is_multiple_of(LANES);
        self.channels_last && dims.groups == 1 && whole(kernel[0]) && (whole(kernel[1]) || whole(image[0]))
    }
}
