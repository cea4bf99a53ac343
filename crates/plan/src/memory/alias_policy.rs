//! Which values may share places in memory: those that do not live at the same time, of the same half of a step where its halves run side by side.

use crate::memory::arena::{Layout, Life};
use crate::memory::concat_in_place::Within;
use crate::schedule::Schedule;

/// Which values may share places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing<'a> {
    /// Those that do not live at the same time.
    InTurn,
    /// The same, but what carried inputs become without being written over them shares its place with nothing else.
    CarriedApart,
    /// Those of the same half of a step that do not live at the same time: these are the groups of the late half, which may run beside the
    /// early half of the next step.
    Halves(&'a [bool]),
}

/// The half of a step that a value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Early,
    Late,
    /// Made in the early half, and read in the late half.
    Both,
}

impl Half {
    pub fn of_group(is_late: bool) -> Self {
        if is_late { Half::Late } else { Half::Early }
    }

    fn and(self, other: Self) -> Self {
        if self == other { self } else { Half::Both }
    }
}

impl Sharing<'_> {
    /// By node: its half, with those of its parts.
    pub fn halves(self, schedule: &Schedule, within: &[Option<Within>]) -> Vec<Half> {
        let Sharing::Halves(late) = self else { return vec![] };
        let group = |node: usize| schedule.group_of(node).map(|group| Half::of_group(late[group]));
        let mut halves: Vec<Half> = (0..schedule.nodes.len()).map(|id| group(id).unwrap_or(Half::Both)).collect();
        for (id, node) in schedule.nodes.iter().enumerate() {
            let Some(half) = group(id) else { continue };
            node.reads().for_each(|(read, _)| halves[read] = halves[read].and(half));
        }
        for (part, whole) in within.iter().enumerate().filter_map(|(part, within)| Some((part, (*within)?.whole))) {
            halves[whole] = halves[whole].and(halves[part]);
        }
        halves
    }
}

/// Lays out what belongs to the early half, what belongs to both, which lives throughout, and behind them what belongs to the late half.
pub(crate) fn lay_out_halves(
    lives: &[Life],
    halves: &[Half],
    throughout: impl Fn(Life) -> Life,
    lay_out: impl Fn(&[Life]) -> Layout,
) -> Layout {
    let of = |is_late: bool| -> (Vec<usize>, Layout) {
        let own: Vec<usize> = (0..lives.len()).filter(|&i| (halves[i] == Half::Late) == is_late).collect();
        let lasting = |&i: &usize| if halves[i] == Half::Both { throughout(lives[i]) } else { lives[i] };
        let laid_out = lay_out(&own.iter().map(lasting).collect::<Vec<_>>());
        (own, laid_out)
    };
    let (early, first) = of(false);
    let (late, second) = of(true);
    let mut offsets = vec![0; lives.len()];
    early.iter().zip(first.offsets).for_each(|(&i, offset)| offsets[i] = offset);
    late.iter().zip(second.offsets).for_each(|(&i, offset)| offsets[i] = first.bytes.saturating_add(offset));
    Layout {
        offsets,
        bytes: first.bytes.saturating_add(second.bytes),
        lower_bound: first.lower_bound.saturating_add(second.lower_bound),
    }
}
