//! The planning target for NVIDIA GPUs.

use crate::codegen::{MAX_ROW_LENGTH, is_fused_attention, is_small};
use crate::gemm::lower::{MIN_COPIED_SIDE, MIN_LIBRARY_MULTIPLICATIONS};
use bilevel_graph::{ConvDims, Precision};
use bilevel_plan::{DotLayout, DotSize, Group, Limits, Node, Target};

/// The alignment of buffers in bytes: a multiple of the widest loads, as the libraries prefer.
pub(crate) const ALIGN: usize = 256;

/// Smaller results stay in the L2 cache from the loop that computes them to the next, so recomputing them saves
/// nothing.
const REMAT_MIN_BYTES: usize = 1 << 20;

/// Values of at most this many bytes share no memory: a network has thousands of them, most of them scalars.
pub(crate) const NO_ALIAS_BYTES: usize = 32 << 10;

/// bf16 elements of a 16-byte load.
const BF16_LANES: usize = 8;

/// An NVIDIA GPU.
pub struct CudaTarget {
    /// Whether images have channels last, so that convolutions in `Bf16` may read two bytes per element.
    pub channels_last: bool,
    /// Whether blocks have enough shared memory for fused attention.
    pub fuses_attention: bool,
}

impl Target for CudaTarget {
    fn limits(&self) -> Limits {
        Limits {
            row: MAX_ROW_LENGTH,
            // With more members, the values of a thread exceed its registers.
            members: 64,
            // Launching a kernel takes as long as running a short one.
            tiny_loop: 64,
            // The independent updates of a network's biases.
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

    /// Large products of matrices with rows aligned to 16 bytes, as cuBLASLt prefers them.
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

    /// A scatter takes several kernels that build index lists.
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
        // For wgrad, the first axis of the image is the channel axis.
        let whole = |channels: usize| channels.is_multiple_of(BF16_LANES);
        self.channels_last && dims.groups == 1 && whole(kernel[0]) && (whole(kernel[1]) || whole(image[0]))
    }
}
