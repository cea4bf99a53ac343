//! The CPU as planning sees it.

use crate::vm::tile::MAX_RUNS;
use bilevel_plan::{Capabilities, CostModel, Group, Kind, Node, Target};

/// Places in memory are multiples of a cache line.
pub(crate) const ALIGN: usize = 64;

/// Products of fewer elements are in the first cache anyway when a loop reads them.
const MIN_EPILOGUE_ELEMENTS: usize = 1 << 12;
/// A batch of at least this many products is given to threads as whole products.
const MIN_WHOLE_PRODUCTS: usize = 16;

/// Returns any CPU, as planning sees it. With `remat_min_bytes`, loops compute large values again: see
/// [`CostModel::remat_min_bytes`].
pub fn cpu_target(remat_min_bytes: Option<usize>) -> Target {
    Target {
        can: Capabilities {
            // A row and values computed from it stay in cache.
            row: 16 * 1024,
            // Beyond that, the live values of a tile no longer fit the cache.
            members: 96,
            // A tile is at least as long as this, and its instructions run one after the other.
            sequential_max: 64,
            axes: MAX_RUNS,
            alignment: ALIGN,
            // A scatter keeps the chosen places, and is faster here; a select recomputes them.
            pool_grad_as_select: remat_min_bytes.is_some(),
            epilogue: Some(is_epilogue),
            ..Target::PLAIN.can
        },
        costs: CostModel { remat_min_bytes, ..CPU },
    }
}

/// The costs of a core of a current server, in orders of magnitude: `bilevel-bench cpu` times its cases, and the examples
/// `dense_speed` and `conv_speed` of this crate the products.
const CPU: CostModel = CostModel {
    // Handing a loop to threads.
    launch_seconds: 1e-6,
    bytes_per_second: 1e10,
    flops_per_second: 1e11,
    load_bytes: 64,
    cached_bytes: 1 << 20,
    tiny_loop: 64,
    horizontal_fusion_max: 64,
    ..CostModel::PLAIN
};

/// Returns true if a loop is applied to the tiles of a product.
fn is_epilogue(product: &Node, pass: &Group) -> bool {
    let Kind::Dot(layout, _) = &product.kind else { return false };
    let stretches = layout.c.0 == 1 || layout.c.1 == 1;
    // A reduction of rows needs them whole: only products that are computed by one thread each leave whole ones.
    let products: usize = layout.batch.iter().map(|(length, _)| length).product();
    let rows = pass.domain.is_none_or(|domain| domain.row.is_none());
    stretches && product.count() >= MIN_EPILOGUE_ELEMENTS && (rows || products >= MIN_WHOLE_PRODUCTS)
}
