//! Which values may share places in memory: those that do not live at the same time, of the same stage of a step where its stages run side by side.

use crate::memory::arena::{Layout, Life};
use crate::memory::concat_in_place::ConcatSlot;
use crate::schedule::Schedule;

/// Which values may share places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasPolicy<'a> {
    /// Those that do not live at the same time.
    Sequential,
    /// The same, but what carried inputs become without being written over them shares its place with nothing else.
    SeparateCarries,
    /// Those of the same stage of a step that do not live at the same time: these are the groups of the late stage, which may run beside the
    /// early stage of the next step.
    Stages(&'a [bool]),
}

/// The stage of a step that a value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Early,
    Late,
    /// Made in the early stage, and read in the late stage.
    Both,
}

impl Stage {
    pub fn of_group(is_late: bool) -> Self {
        if is_late { Stage::Late } else { Stage::Early }
    }

    fn and(self, other: Self) -> Self {
        if self == other { self } else { Stage::Both }
    }
}

impl AliasPolicy<'_> {
    /// By node: its stage, with those of its parts.
    pub fn stages(self, schedule: &Schedule, within: &[Option<ConcatSlot>]) -> Vec<Stage> {
        let AliasPolicy::Stages(late) = self else { return vec![] };
        let group = |node: usize| schedule.group_of(node).map(|group| Stage::of_group(late[group]));
        let mut stages: Vec<Stage> = (0..schedule.nodes.len()).map(|id| group(id).unwrap_or(Stage::Both)).collect();
        for (id, node) in schedule.nodes.iter().enumerate() {
            let Some(stage) = group(id) else { continue };
            node.reads().for_each(|(read, _)| stages[read] = stages[read].and(stage));
        }
        for (part, whole) in within.iter().enumerate().filter_map(|(part, within)| Some((part, (*within)?.whole))) {
            stages[whole] = stages[whole].and(stages[part]);
        }
        stages
    }
}

/// Lays out what belongs to the early stage, what belongs to both, which lives throughout, and behind them what belongs to the late stage.
pub(crate) fn lay_out_stages(
    lives: &[Life],
    stages: &[Stage],
    throughout: impl Fn(Life) -> Life,
    lay_out: impl Fn(&[Life]) -> Layout,
) -> Layout {
    let of = |is_late: bool| -> (Vec<usize>, Layout) {
        let own: Vec<usize> = (0..lives.len()).filter(|&i| (stages[i] == Stage::Late) == is_late).collect();
        let lasting = |&i: &usize| if stages[i] == Stage::Both { throughout(lives[i]) } else { lives[i] };
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
