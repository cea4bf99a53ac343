//! Alias policies: which values may share memory, depending on how steps overlap.

use crate::memory::arena::{Layout, Life};
use crate::memory::concat_in_place::ConcatSlot;
use crate::schedule::Schedule;

/// Which values may share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AliasPolicy<'a> {
    /// Values with disjoint lifetimes.
    Sequential,
    /// As `Sequential`, but next values of carried inputs that are not updated in place share memory with nothing.
    SeparateCarries,
    /// Values of the same stage with disjoint lifetimes. The flags mark the groups of the late stage, which may overlap
    /// with the early stage of the next step.
    Stages(&'a [bool]),
}

/// The stage of a step that a value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Early,
    Late,
    /// Computed in the early stage and read in the late stage.
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
    /// By node: its stage, including that of its parts.
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

/// Lays out the values of the early stage and of both stages, the latter live throughout, followed by those of the late
/// stage.
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
