//! The CPU as planning sees it.

use crate::vm::tile::MAX_RUNS;
use bilevel_plan::{Group, Kind, Limits, Node, Target};

/// Places in memory are multiples of a cache line.
pub(crate) const ALIGN: usize = 64;

/// A result of fewer elements is in the first cache anyway.
const WORTH: usize = 1 << 12;
/// This many products are given to threads as wholes.
const MANY: usize = 16;

/// Any CPU, as planning sees it.
#[derive(Default)]
pub struct CpuTarget {
    /// See [`Limits::remat_min_bytes`].
    pub again: Option<usize>,
}

impl Target for CpuTarget {
    fn limits(&self) -> Limits {
        Limits {
            // A row and what is made of it stay in cache.
            row: 16 * 1024,
            // Beyond that, the live values of a tile no longer fit the cache.
            members: 96,
            tiny_loop: 64,
            horizontal_fusion_max: 64,
            // A tile is at least as long as this, and its instructions run one after the other.
            sequential_max: 64,
            axes: MAX_RUNS,
            alignment: ALIGN,
            reuse_distance: 0,
            no_alias_bytes: 0,
            concat_in_place: false,
            remat_min_bytes: self.again,
        }
    }

    /// A scatter keeps what was chosen, and is faster here; a choice is computed again.
    fn pool_grad_as_select(&self) -> bool {
        self.again.is_some()
    }

    fn wants_epilogue(&self, product: &Node, pass: &Group) -> bool {
        let Kind::Dot(layout, _) = &product.kind else { return false };
        let stretches = layout.c.0 == 1 || layout.c.1 == 1;
        // A reduction of rows needs them whole: only products that are computed by one thread each leave whole ones.
        let products: usize = layout.batch.iter().map(|(length, _)| length).product();
        let rows = pass.domain.is_none_or(|domain| domain.row.is_none());
        stretches && product.count() >= WORTH && (rows || products >= MANY)
    }
}
