//! A GPU as planning sees it.

use crate::codegen::{MAX_ROW_LENGTH, is_fused_attention, is_small};
use crate::gemm::lower::{MIN_COPIED_SIDE, MIN_LIBRARY_MULTIPLICATIONS};
use bilevel_graph::{ConvDims, Precision};
use bilevel_plan::{DotLayout, DotSize, Group, Limits, Node, Target};

/// Places in memory are multiples of what the widest loads and the libraries like best.
pub(crate) const ALIGN: usize = 256;

/// Smaller results stay in the second cache from the loop that computes them to the next.
const REMAT_MIN_BYTES: usize = 1 << 20;

/// Values that are not worth the memory they would share: of a network there are some thousands, most of them of one
/// number.
pub(crate) const NO_ALIAS_BYTES: usize = 32 << 10;

/// Numbers of two bytes in a load of 16.
const BF16_LANES: usize = 8;

/// Any GPU.
pub(crate) struct CudaTarget {
    /// Images have their channels last, so that convolutions in `Bf16` may read operands of two bytes.
    pub channels_last: bool,
    /// Blocks can have the shared memory that strips of attentions take.
    pub fuses_attention: bool,
}

impl Target for CudaTarget {
    fn limits(&self) -> Limits {
        Limits {
            row: MAX_ROW_LENGTH,
            // Beyond that, the values of a thread no longer fit its registers.
            members: 64,
            // To start a kernel takes as long as to run a short one.
            tiny_loop: 64,
            // The updates of biases of a network, which have nothing to do with each other.
            horizontal_fusion_max: 1024,
            sequential_max: 0,
            axes: 8,
            alignment: ALIGN,
            reuse_distance: 8,
            no_alias_bytes: NO_ALIAS_BYTES,
            concat_in_place: true,
            remat_min_bytes: Some(REMAT_MIN_BYTES),
        }
    }

    fn has_native(&self, _: Precision) -> bool {
        true
    }

    fn wants_one_stride(&self, product: &DotSize) -> bool {
        product.multiplications() >= MIN_LIBRARY_MULTIPLICATIONS && !is_small(product)
    }

    fn gemm_reads_bf16(&self) -> bool {
        true
    }

    /// Long products, of matrices whose rows begin at multiples of 16 bytes, as the library likes them best.
    fn scales_to_f16(&self, product: &DotLayout) -> bool {
        let DotLayout { m, n, k, a, b, ref batch, .. } = *product;
        let in_rows = |(down, along): (isize, isize), (rows, columns): (usize, usize)| {
            let apart = |stride: isize, length: usize| stride % BF16_LANES as isize == 0 && stride >= length as isize;
            down == 1 && apart(along, rows) || along == 1 && apart(down, columns)
        };
        let single = batch.iter().all(|(length, _)| *length == 1);
        single
            && [m, n, k].into_iter().all(|length| length >= MIN_COPIED_SIDE)
            && in_rows(a, (m, k))
            && in_rows(b, (k, n))
    }

    fn fuses_gemm_gemm(&self, nodes: &[Node], product: usize, pass: &Group, next: usize) -> bool {
        self.fuses_attention && is_fused_attention(nodes, product, &pass.members, next)
    }

    /// A scatter is several loops, with lists of what goes where.
    fn pool_grad_as_select(&self) -> bool {
        true
    }

    fn fuses_pad_sum(&self) -> bool {
        true
    }

    fn fuses_gather(&self) -> bool {
        true
    }

    fn conv_reads_bf16(&self, dims: &ConvDims, image: &[usize], kernel: &[usize]) -> bool {
        // For the derivative with respect to a kernel, the first axis of its image is that of the channels.
        let whole = |channels: usize| channels.is_multiple_of(BF16_LANES);
        self.channels_last && dims.groups == 1 && whole(kernel[0]) && (whole(kernel[1]) || whole(image[0]))
    }
}
