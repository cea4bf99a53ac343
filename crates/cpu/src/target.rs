//! The CPU as planning sees it.

use crate::tile::MAX_RUNS;
use bilevel_plan::{Limits, Target};

/// Places in memory are multiples of a cache line.
pub(crate) const ALIGN: usize = 64;

/// Any CPU.
pub(crate) struct CpuTarget;

impl Target for CpuTarget {
    fn limits(&self) -> Limits {
        Limits {
            // A row and what is made of it stay in cache.
            row: 16 * 1024,
            // Beyond that, the live values of a tile no longer fit the cache.
            members: 96,
            together: 64,
            // A tile is at least as long as this, and its instructions run one after the other.
            in_turn: 64,
            axes: MAX_RUNS,
            alignment: ALIGN,
        }
    }
}
