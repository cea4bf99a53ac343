//! NVIDIA GPUs as planning sees them.

use crate::codegen::{is_fused_attention, is_small};
use crate::gemm::lower::{MIN_COPIED_SIDE, MIN_LIBRARY_MULTIPLICATIONS};
use bilevel_gpu::codegen::MAX_ROW_LENGTH;
use bilevel_plan::{Capabilities, CostModel, StorageType, Target};

pub(crate) use bilevel_gpu::compile::workspace::ALIGN;

/// The costs of an H200.
///
/// The rates are what kernels of the benchmarks reach, in orders of magnitude: they decide which of two independent
/// groups runs on another stream, and both grow with the size of a group. `bilevel-bench cuda CASE --show` prints the
/// kernels of a case, `bilevel-bench cuda CASE` its time.
pub(crate) const H200: CostModel = CostModel {
    launch_seconds: 2e-6,
    bytes_per_second: 2e12,
    flops_per_second: 1e14,
    load_bytes: 16,
    // Smaller results stay in the L2 cache from the loop that computes them to the next.
    cached_bytes: 1 << 20,
    remat_min_bytes: Some(1 << 20),
    // Launching a kernel takes as long as running a short one.
    tiny_loop: 64,
    // The independent updates of a network's biases.
    horizontal_fusion_max: 1024,
    reuse_distance: 8,
    // A network has thousands of such values, most of them scalars.
    no_alias_bytes: 32 << 10,
    min_copy_bytes: 32 << 10,
    // One block for each of most multiprocessors (decision 024).
    max_fused_blocks: 128,
    // Decisions 021 and 022.
    max_rotating_bytes: 384 << 20,
    max_copied_bytes: 64 << 20,
    max_stage_bytes: 256 << 20,
    min_scaled_side: Some(MIN_COPIED_SIDE),
    recomputes_masks: true,
};

/// Returns an NVIDIA GPU as planning sees it. With cuDNN, images have channels last, and convolutions in `Bf16` may
/// read two bytes per element. Attention is one kernel if blocks have enough shared memory for it.
pub fn gpu_target(has_cudnn: bool, fuses_attention: bool) -> Target {
    Target {
        can: Capabilities {
            row: MAX_ROW_LENGTH,
            // With more members, the values of a thread exceed its registers.
            members: 64,
            sequential_max: 0,
            axes: 8,
            alignment: ALIGN,
            rounds_operands: true,
            gemm_reads_bf16: true,
            channels_last: has_cudnn,
            conv_bf16_channels: has_cudnn.then(|| H200.lanes(StorageType::Bf16)),
            // A scatter takes several kernels that build index lists.
            pool_grad_as_select: true,
            pad_sum: true,
            inline_gather: true,
            concat_in_place: true,
            one_batch_stride: Some(|product| {
                product.multiplications() >= MIN_LIBRARY_MULTIPLICATIONS && !is_small(product)
            }),
            epilogue: None,
            affine_epilogue: Some(|_| true),
            gemm_gemm: if fuses_attention { Some(is_fused_attention) } else { None },
        },
        costs: H200,
    }
}
