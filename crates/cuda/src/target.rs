//! A GPU as planning sees it.

use crate::dot::OWN;
use crate::source::{LONGEST_ROW, is_small};
use bilevel_graph::{ConvDims, Precision};
use bilevel_plan::{DotSize, Limits, Target};

/// Places in memory are multiples of what the widest loads and the libraries like best.
pub(crate) const ALIGN: usize = 256;

/// Smaller results stay in the second cache from the loop that computes them to the next.
const AGAIN: usize = 1 << 20;

/// Channels in a load of 16 bytes.
const LANES: usize = 8;

/// Any GPU.
pub(crate) struct CudaTarget {
    /// Images have their channels last, so that convolutions in `Bf16` may read operands of two bytes.
    pub channels_last: bool,
}

impl Target for CudaTarget {
    fn limits(&self) -> Limits {
        Limits {
            row: LONGEST_ROW,
            // Beyond that, the values of a thread no longer fit its registers.
            members: 64,
            // To start a kernel takes as long as to run a short one.
            together: 64,
            in_turn: 0,
            axes: 8,
            alignment: ALIGN,
            slack: 8,
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
