//! The costs of operations on a machine, in measured numbers, and the decisions of planning that follow from them.
//!
//! Whether a machine can do something is a [capability](crate::Capabilities); whether it pays is asked here. Every
//! threshold of planning that is a property of a machine has its one home in this table.

use crate::ir::dot_layout::DotLayout;
use crate::ir::storage_type::StorageType;

/// The costs of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Seconds of the shortest group: a kernel launch, or handing a loop to threads.
    pub launch_seconds: f64,
    /// Bytes that a group reads and writes per second.
    pub bytes_per_second: f64,
    /// Floating-point operations of matrix products and convolutions per second.
    pub flops_per_second: f64,
    /// Bytes of the widest load: contiguous elements that are read at once.
    pub load_bytes: usize,
    /// Results of fewer bytes are still in cache when the next group reads them: they cost no memory traffic, and how
    /// long they live does not count.
    pub cached_bytes: usize,
    /// Loops recompute results of at least this many bytes from fewer values, instead of reading them from memory.
    /// `None` if loops are compute-bound, so that storing results is faster.
    pub remat_min_bytes: Option<usize>,
    /// Loops over at most this many elements are merged even if unrelated, because launching them dominates their cost.
    pub tiny_loop: usize,
    /// Loops over the same number of elements, at most this many, are finally merged if neither depends on the other:
    /// for instance the updates of all biases. At least [`tiny_loop`](Self::tiny_loop).
    pub horizontal_fusion_max: usize,
    /// The memory of a value is not reused for this many groups after its last reader, so that independent groups can
    /// run concurrently. Near peak memory the distance may be shorter. 0 if groups run one after the other.
    pub reuse_distance: usize,
    /// Values of at most this many bytes never share memory, so that no group waits for it. 0 if groups run one after
    /// the other.
    pub no_alias_bytes: usize,
    /// Copies of more bytes are as fast by the machine's copy engine as by a kernel, which can share a launch with
    /// others.
    pub min_copy_bytes: usize,
    /// Equal kernels share a launch if each has at most this many blocks: larger ones take longer than their launch.
    pub max_fused_blocks: u32,
    /// Iterations overlap in several arenas if one arena has at most this many bytes: a larger step fills the machine by
    /// itself.
    pub max_rotating_bytes: usize,
    /// The maximum bytes of carried inputs updated in place, if a step of such a loop can fail: it works on copies.
    pub max_copied_bytes: usize,
    /// Two stages of a loop may need half as much memory again as sequential steps, or this many bytes more.
    pub max_stage_bytes: usize,
    /// The smallest m, n and k for which a `Tf32` product gains more from fp16 operands than scaling them costs; `None`
    /// if fp16 products are not faster.
    pub min_scaled_side: Option<usize>,
    /// Whether comparisons with a constant are computed again for each reader: the mask of a ReLU is then not stored
    /// from the forward pass to the backward pass.
    pub recomputes_masks: bool,
}

/// Results of at most this many elements cost no memory worth counting, on any machine.
const NEGLIGIBLE_ELEMENTS: usize = 64;

impl CostModel {
    /// Those of no machine in particular: nothing is merged, reused or computed again for its cost.
    pub const PLAIN: CostModel = CostModel {
        launch_seconds: 1e-6,
        bytes_per_second: 1e10,
        flops_per_second: 1e11,
        load_bytes: 16,
        cached_bytes: 1 << 20,
        remat_min_bytes: None,
        tiny_loop: 0,
        horizontal_fusion_max: 0,
        reuse_distance: 0,
        no_alias_bytes: 0,
        min_copy_bytes: 0,
        max_fused_blocks: 0,
        max_rotating_bytes: 0,
        max_copied_bytes: 0,
        max_stage_bytes: 0,
        min_scaled_side: None,
        recomputes_masks: true,
    };

    /// Returns the estimated seconds of a group with this many multiplications and bytes: it takes as long as the
    /// slower of the two, after its launch.
    pub fn seconds(&self, multiplications: usize, bytes: usize) -> f64 {
        let (compute, memory) =
            (2.0 * multiplications as f64 / self.flops_per_second, bytes as f64 / self.bytes_per_second);
        self.launch_seconds + compute.max(memory)
    }

    /// Returns true if a result of this many bytes costs memory traffic, and counts towards peak memory.
    pub(crate) fn is_large(&self, bytes: usize) -> bool {
        bytes >= self.cached_bytes
    }

    /// Returns true if keeping this many elements in memory costs nothing worth counting.
    pub(crate) fn is_negligible(&self, elements: usize) -> bool {
        elements <= NEGLIGIBLE_ELEMENTS
    }

    /// Returns true if a loop over this many elements takes no longer than its launch.
    pub(crate) fn is_tiny(&self, elements: usize) -> bool {
        elements <= self.tiny_loop
    }

    /// Returns the number of elements of a storage type in a wide load.
    pub fn lanes(&self, storage: StorageType) -> usize {
        (self.load_bytes / storage.size()).max(1)
    }

    /// Returns the most elements of a row that a loop gathers itself: one wide load of 16-bit elements, or two of
    /// 32-bit ones.
    pub(crate) fn max_gathered_row(&self) -> usize {
        self.lanes(StorageType::Bf16)
    }

    /// Returns true if a `Tf32` product with these strides is faster on fp16 operands: a large product of two matrices
    /// whose rows begin at multiples of a wide load.
    pub(crate) fn scales_to_f16(&self, product: &DotLayout) -> bool {
        let Some(min_side) = self.min_scaled_side else { return false };
        let DotLayout { m, n, k, a, b, ref batch, .. } = *product;
        let lanes = self.lanes(StorageType::F16) as isize;
        let in_rows = |(down, along): (isize, isize), (rows, columns): (usize, usize)| {
            let is_aligned = |stride: isize, length: usize| stride % lanes == 0 && stride >= length as isize;
            down == 1 && is_aligned(along, rows) || along == 1 && is_aligned(down, columns)
        };
        let single = batch.iter().all(|(length, _)| *length == 1);
        let large = [m, n, k].into_iter().all(|length| length >= min_side);
        single && large && in_rows(a, (m, k)) && in_rows(b, (k, n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_takes_as_long_as_its_arithmetic_or_its_memory() {
        let costs =
            CostModel { launch_seconds: 1.0, bytes_per_second: 4.0, flops_per_second: 10.0, ..CostModel::PLAIN };
        assert_eq!([costs.seconds(0, 0), costs.seconds(10, 4), costs.seconds(10, 40)], [1.0, 3.0, 11.0]);
    }

    #[test]
    fn large_products_of_aligned_matrices_gain_from_fp16() {
        let costs = CostModel { min_scaled_side: Some(256), ..CostModel::PLAIN };
        let [m, n, k] = [256, 512, 320];
        let layout = DotLayout { m, n, k, a: (320, 1), b: (512, 1), c: (512, 1), batch: vec![] };
        let with = |change: fn(&mut DotLayout)| {
            let mut layout = layout.clone();
            change(&mut layout);
            costs.scales_to_f16(&layout)
        };
        assert!(with(|_| ()) && with(|layout| layout.b = (1, 320)) && with(|layout| layout.batch = vec![(1, [0; 3])]));
        assert!(!CostModel::PLAIN.scales_to_f16(&layout));
        assert!(!with(|layout| layout.m = 255) && !with(|layout| layout.batch = vec![(2, [0; 3])]));
        assert!(!with(|layout| layout.a = (321, 1)) && !with(|layout| layout.b = (512, 2)));
    }
}
