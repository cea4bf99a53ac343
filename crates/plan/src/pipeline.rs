//! The pipeline: every pass from a program to a schedule, in order, with its contract.
//!
//! A pass changes the draft of a schedule: the program until it is lowered, then its nodes, their groups and the order of
//! these. Each states its precondition, its postcondition and the reason for its place. [`Pipeline`] runs them, shows
//! their results, and can skip the passes that only make a program faster or smaller. In builds with debug assertions
//! the verifier runs after each pass.

use crate::fuse::epilogue::attach_epilogues;
use crate::fuse::gemm_gemm::fuse_gemm_gemm;
use crate::fuse::group;
use crate::fuse::group::Grouping;
use crate::fuse::licm::hoist;
use crate::fuse::remat::rematerialize;
use crate::fuse::topo_order::TopoOrder;
use crate::internal_error::internal_error;
use crate::ir::lowered::LoweredProgram;
use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::Operand;
use crate::ir::snapshot::Snapshot;
use crate::ir::storage_type::StorageType;
use crate::ir::verify::program::verify_rewrite;
use crate::lower::carried_casts::{are_written_in_place, carry_casts};
use crate::lower::inline_gather::inline_gathers;
use crate::lower::narrow_storage::narrow_lossless;
use crate::lower::{Copies, Lowering, lower};
use crate::program::channels_last::{channels_last, takes_channels_last, will_have_channels_last};
use crate::program::max_pool::{elementwise_pools, has_max_pools};
use crate::program::pad_channels::padded;
use crate::program::pool_gradient::select_pool_gradients;
use crate::schedule::in_place::{Carry, carries_in_place};
use crate::schedule::{Schedule, carried_on, check_axes, put_in_order, stored_nodes};
use crate::target::{RULES, Target};
use bilevel_graph::{Error, ErrorKind, Program, Result};
use std::borrow::Cow;

/// One pass, and its contract.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// The name, as `--print-after` and [`Pipeline::without`] use it.
    pub name: &'static str,
    /// Its precondition.
    pub requires: &'static str,
    /// Its postcondition.
    pub ensures: &'static str,
    /// Why it is in this place.
    pub placed: &'static str,
    /// Why a schedule needs it; `None` for an optimisation, which can be switched off.
    pub needed: Option<&'static str>,
}

/// A pass of this pipeline, and the function that runs it.
struct PassEntry {
    pass: Pass,
    run: fn(&mut Draft) -> Result<PassOutcome>,
}

/// A rule of the pass `lower`, or of memory, that a target requests and that can be switched off like a pass.
pub struct Rule {
    /// The name.
    pub name: &'static str,
    /// Its effect.
    pub ensures: &'static str,
    /// Makes a target one that does not ask for it.
    pub(crate) switch_off: fn(&mut Target),
}

/// A callback for the result of each pass.
type Show<'a> = &'a mut dyn FnMut(&'static Pass, &dyn Snapshot);

/// The outcome of a pass.
enum PassOutcome {
    /// The next pass runs.
    Continue,
    /// The pipeline starts again without the pass of this name, whose result turned out not to be worth it.
    RestartWithout(&'static str),
}

/// The pass that turns a program into nodes.
const LOWER: &str = "lower";

/// Every pass and the function that runs it, in the order in which they run.
const ENTRIES: [PassEntry; 17] = [
    PassEntry {
        pass: Pass {
            name: "pad-channels",
            requires: "the program is valid",
            ensures: "convolutions whose images get channels last read whole vectors of channels, if that less than doubles them",
            placed: "first: the zeros are operations that every later rewrite sees",
            needed: None,
        },
        run: |draft| {
            let lanes = draft.f32_lanes();
            let pads = |program: &Program| padded(program, takes_channels_last, lanes);
            draft.rewrite(|draft| if draft.will_have_channels_last() { pads(&draft.program) } else { None })
        },
    },
    PassEntry {
        pass: Pass {
            name: "max-pool",
            requires: "the images of the program will have channels last, or nothing is done",
            ensures: "max pools are elementwise selects, which any layout can compute",
            placed: "before channels-last, which leaves programs with other max pools alone",
            needed: None,
        },
        run: |draft| {
            let decomposes = draft.will_have_channels_last() && has_max_pools(&draft.program);
            draft.rewrite(|draft| if decomposes { elementwise_pools(&draft.program) } else { None })
        },
    },
    PassEntry {
        pass: Pass {
            name: "channels-last",
            requires: "no convolution has groups and no max pool is left, or nothing is done",
            ensures: "images between convolutions have the layout [n, h, w, c]",
            placed: "after the rewrites that make this layout possible; before lowering, for which transposes are views",
            needed: None,
        },
        run: |draft| {
            draft.rewrite(|draft| {
                let assigned = if draft.target.can.channels_last {
                    channels_last(&draft.program, draft.f32_lanes())
                } else {
                    None
                };
                draft.has_channels_last = assigned.is_some();
                assigned
            })
        },
    },
    PassEntry {
        pass: Pass {
            name: "pool-gradient",
            requires: "max pools that can be elementwise are, if the layout asks for it",
            ensures: "the gradient of any other pool with disjoint windows is a select, not a scatter, if the target asks for it",
            placed: "after max-pool, which rewrites a pool with its gradient",
            needed: None,
        },
        run: |draft| {
            let selects = draft.target.can.pool_grad_as_select;
            draft.rewrite(|draft| if selects { select_pool_gradients(&draft.program) } else { None })
        },
    },
    PassEntry {
        pass: Pass {
            name: LOWER,
            requires: "the program is valid, and no later pass rewrites it",
            ensures: "every operation is a node with memory of its own or a view of one; products have strides; operands come before readers",
            placed: "after the rewrites of the program: everything else works on nodes and views",
            needed: Some("all other passes work on the nodes it makes"),
        },
        run: |draft| {
            let Lowering { graph, copies } = lower(&draft.program, &draft.lowering_target())?;
            (draft.low, draft.copies, draft.is_lowered) = (graph, copies, true);
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "carry-casts",
            requires: "rounded and scaled copies are separate nodes, found by the node they copy",
            ensures: "copies of carried inputs that products read are carried casts, made before the first step and carried from then on",
            placed: "directly after lowering, which knows the copies by node, and takes them: later passes renumber nodes",
            needed: None,
        },
        run: |draft| {
            carry_casts(&mut draft.low, &std::mem::take(&mut draft.copies));
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "inline-gather",
            requires: "gathers are nodes with dense operands",
            ensures: "gathers of short rows that only loops read are done in these loops; one of them makes each index check",
            placed: "before fusion, so that gathers join loops; after carry-casts, because it renumbers nodes",
            needed: None,
        },
        run: |draft| {
            let inlined = if draft.target.can.inline_gather { inline_gathers(&draft.low, draft.target) } else { None };
            draft.low = inlined.unwrap_or_else(|| std::mem::take(&mut draft.low));
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "licm",
            requires: "nodes that depend on no carried input are marked invariant",
            ensures: "only nodes worth keeping in memory between steps are marked invariant",
            placed: "before fusion, which never puts invariant and varying nodes into one group",
            needed: None,
        },
        run: |draft| {
            hoist(&mut draft.low, draft.target);
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "check-axes",
            requires: "all views of the program are known",
            ensures: "no view has more axes than a loop of the target can walk",
            placed: "before fusion: no later pass adds views with more axes",
            needed: Some("a loop cannot walk more axes than the target has"),
        },
        run: |draft| {
            check_axes(&draft.low.nodes, draft.target.can.axes)?;
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "fuse",
            requires: "nodes are final up to rematerialisation",
            ensures: "every live node that computes is in one group; the order of groups has no cycle",
            placed: "after every rewrite that decides which nodes exist",
            needed: Some("only groups can run"),
        },
        run: |draft| {
            draft.groups = Some(group(&draft.low, draft.target)?);
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "remat",
            requires: "groups show which values loops leave for later loops",
            ensures: "large values that follow from fewer bytes are computed again in the loops that read them; nodes are grouped anew",
            placed: "after fusion, whose groups are its input; before groups are joined with products, which it would undo",
            needed: None,
        },
        run: |draft| {
            let (grouping, order) = draft.groups()?;
            let Some(bytes) = draft.target.costs.remat_min_bytes else { return Ok(PassOutcome::Continue) };
            if let Some(fewer) = rematerialize(&draft.low, draft.target, grouping, order, bytes) {
                draft.groups = Some(group(&fewer, draft.target)?);
                draft.low = fewer;
            }
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "epilogue",
            requires: "loops and products are separate groups",
            ensures: "a loop that can continue with a product's result is one group with it, if the target asks for it; affine loops are marked",
            placed: "after remat, on final groups; before gemm-gemm, which joins products that no loop has joined yet",
            needed: None,
        },
        run: |draft| {
            let (low, target) = (&draft.low, draft.target);
            let (grouping, order) = draft.groups.as_mut().ok_or_else(|| internal_error("the groups"))?;
            attach_epilogues(low, target, grouping, order)?;
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "gemm-gemm",
            requires: "products that no epilogue has joined are groups of their own",
            ensures: "a product, the loop over its rows and the product of these rows are one group, if the target asks for it",
            placed: "last of the passes that make groups: it takes three groups at a time",
            needed: None,
        },
        run: |draft| {
            let (low, target) = (&draft.low, draft.target);
            let (grouping, order) = draft.groups.as_mut().ok_or_else(|| internal_error("the groups"))?;
            fuse_gemm_gemm(low, target, grouping, order);
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "in-place",
            requires: "groups are final",
            ensures: "each carry says whether its loop writes over the old value; readers of the old value, and groups that can fail, run before",
            placed: "before scheduling, because it adds edges to the order of groups",
            needed: None,
        },
        run: |draft| {
            let (grouping, order) = draft.groups.as_mut().ok_or_else(|| internal_error("the groups"))?;
            let carries = carries_in_place(&draft.low, grouping, order);
            let worth_it = are_written_in_place(&draft.low, &carries);
            draft.carries = Some(carries);
            // Copying a carried copy takes as long as making it.
            Ok(if worth_it { PassOutcome::Continue } else { PassOutcome::RestartWithout("carry-casts") })
        },
    },
    PassEntry {
        pass: Pass {
            name: "list-schedule",
            requires: "the order of groups has all edges",
            ensures: "groups are numbered as they run, the invariant ones first",
            placed: "after the last pass that adds edges or changes groups",
            needed: Some("a schedule is an order of groups"),
        },
        run: |draft| {
            let lasting = draft.lasting(false);
            let (grouping, order) = draft.groups.as_mut().ok_or_else(|| internal_error("the groups"))?;
            draft.prologue = Some(put_in_order(&draft.low.nodes, &lasting, grouping, order)?);
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "narrow-storage",
            requires: "groups are final, so that every reader of a value is known",
            ensures: "signs and comparisons that only loops read take two bytes, if the target has such storage",
            placed: "after scheduling, which counts bytes as they were: its order must not depend on this",
            needed: None,
        },
        run: |draft| {
            if draft.target.can.gemm_reads_bf16 {
                let lasting = draft.lasting(true);
                let (grouping, _) = draft.groups.as_ref().ok_or_else(|| internal_error("the groups"))?;
                narrow_lossless(&mut draft.low.nodes, &lasting, grouping);
            }
            Ok(PassOutcome::Continue)
        },
    },
    PassEntry {
        pass: Pass {
            name: "storage",
            requires: "groups are final",
            ensures: "every value that leaves its group has memory",
            placed: "last: the memory map gives places to exactly these values",
            needed: Some("a value that leaves its group must be in memory"),
        },
        run: |draft| {
            let (grouping, _) = draft.groups()?;
            let copied = draft.copied();
            let last = draft.low.outputs.iter().chain(copied.iter());
            draft.stored = Some(stored_nodes(&draft.low.nodes, &draft.low.live(), grouping, last));
            Ok(PassOutcome::Continue)
        },
    },
];

/// Every pass, in the order in which they run.
pub const PASSES: [Pass; ENTRIES.len()] = {
    let mut passes = [ENTRIES[0].pass; ENTRIES.len()];
    let mut number = 1;
    while number < passes.len() {
        passes[number] = ENTRIES[number].pass;
        number += 1;
    }
    passes
};

/// A schedule in the making.
struct Draft<'a> {
    /// The program as rewritten so far.
    program: Cow<'a, Program>,
    target: &'a Target,
    /// Whether images between convolutions have channels last.
    has_channels_last: bool,
    /// Whether the program is lowered.
    is_lowered: bool,
    low: LoweredGraph,
    copies: Copies,
    groups: Option<(Grouping, TopoOrder)>,
    carries: Option<Vec<Carry>>,
    prologue: Option<usize>,
    stored: Option<Vec<bool>>,
}

impl<'a> Draft<'a> {
    fn new(program: &'a Program, target: &'a Target) -> Self {
        Draft {
            program: Cow::Borrowed(program),
            target,
            has_channels_last: false,
            is_lowered: false,
            low: LoweredGraph::default(),
            copies: Copies::default(),
            groups: None,
            carries: None,
            prologue: None,
            stored: None,
        }
    }

    /// Replaces the program by another with the same ports, if one is made.
    fn rewrite(&mut self, make: impl FnOnce(&mut Self) -> Option<Program>) -> Result<PassOutcome> {
        if let Some(new) = make(self) {
            if cfg!(debug_assertions) {
                verify_rewrite(&self.program, &new)?;
            }
            self.program = Cow::Owned(new);
        }
        Ok(PassOutcome::Continue)
    }

    /// Channels that fill a load of the target.
    fn f32_lanes(&self) -> usize {
        self.target.costs.lanes(StorageType::F32)
    }

    fn will_have_channels_last(&self) -> bool {
        self.target.can.channels_last && will_have_channels_last(&self.program, self.f32_lanes())
    }

    /// The target for lowering: convolutions of images with a layout other than the requested one take four bytes.
    fn lowering_target(&self) -> Target {
        let has_layout = self.has_channels_last || !self.target.can.channels_last;
        self.target.with(|target| target.can.conv_bf16_channels = target.can.conv_bf16_channels.filter(|_| has_layout))
    }

    fn groups(&self) -> Result<(&Grouping, &TopoOrder)> {
        self.groups.as_ref().map(|(grouping, order)| (grouping, order)).ok_or_else(|| internal_error("the groups"))
    }

    /// All carries: as decided, or copied at the end of each step.
    fn carries(&self) -> Vec<Carry> {
        let copied = |(input, next): &(usize, Operand)| Carry { input: *input, next: next.clone(), in_place: false };
        self.carries.clone().unwrap_or_else(|| self.low.carries.iter().map(copied).collect())
    }

    /// The next values that are copied at the end of each step.
    fn copied(&self) -> Vec<Operand> {
        self.carries().into_iter().filter(|carry| !carry.in_place).map(|carry| carry.next).collect()
    }

    /// By node: an output, or the next value of a carry: one that is copied, or any.
    fn lasting(&self, any: bool) -> Vec<bool> {
        let mut lasting = vec![false; self.low.nodes.len()];
        let carries = self.carries();
        let next = carries.iter().filter(|carry| any || !carry.in_place).map(|carry| &carry.next);
        self.low.outputs.iter().chain(next).filter_map(Operand::at).for_each(|(node, _)| lasting[node] = true);
        lasting
    }

    fn verify(&self) -> Result<()> {
        if self.is_lowered { self.lowered().verify() } else { Ok(()) }
    }

    fn lowered(&self) -> LoweredProgram<'_> {
        LoweredProgram {
            nodes: &self.low.nodes,
            inputs: self.low.inputs.iter().copied().flatten().collect(),
            outputs: &self.low.outputs,
            carries: self.carries(),
            initial_casts: &self.low.initial_casts,
            live: self.low.live(),
            grouping: self.groups.as_ref().map(|(grouping, _)| grouping),
            order: self.groups.as_ref().map(|(_, order)| order),
            prologue: self.prologue,
            stored: self.stored.as_deref(),
        }
    }

    fn finish(self) -> Result<Schedule> {
        let carries = self.carries();
        let (grouping, _) = self.groups.ok_or_else(|| internal_error("the groups"))?;
        let low = self.low;
        let inputs =
            low.inputs.into_iter().collect::<Option<_>>().ok_or_else(|| internal_error("the memory of an input"))?;
        Ok(Schedule {
            in_every_step: carried_on(&low.nodes, &carries),
            nodes: low.nodes,
            inputs,
            outputs: low.outputs,
            carries,
            initial_casts: low.initial_casts,
            prologue: self.prologue.ok_or_else(|| internal_error("the order of groups"))?,
            step: self.program.step,
            grouping,
            stored: self.stored.ok_or_else(|| internal_error("which values are in memory"))?,
        })
    }
}

/// The passes to run.
///
/// ```
/// use bilevel_plan::Pipeline;
/// let plain = Pipeline::new().without("remat").unwrap().without("scaled-fp16").unwrap();
/// let said = plain.without("fuse").unwrap_err().to_string();
/// assert_eq!(said, "not supported: a pipeline without the pass 'fuse': only groups can run");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipeline {
    off: Vec<&'static str>,
}

impl Pipeline {
    /// All passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same without a pass, or a rule of lowering, of this name; an error if there is none, or if the result would be wrong without it.
    pub fn without(mut self, name: &str) -> Result<Self> {
        let refused = |what: String| Err(Error::new(ErrorKind::Unsupported { what }));
        let pass = PASSES.iter().find(|pass| pass.name == name);
        match (pass, RULES.iter().find(|rule| rule.name == name)) {
            (Some(Pass { needed: Some(reason), .. }), _) => {
                refused(format!("a pipeline without the pass '{name}': {reason}"))
            }
            (Some(Pass { name, .. }), _) | (None, Some(Rule { name, .. })) => {
                self.off.push(name);
                Ok(self)
            }
            (None, None) => {
                let names: Vec<&str> =
                    PASSES.iter().map(|pass| pass.name).chain(RULES.iter().map(|rule| rule.name)).collect();
                refused(format!("a pass named '{name}'; the passes and rules are {}", names.join(", ")))
            }
        }
    }

    /// Makes the schedule of a valid program.
    pub fn run(&self, program: &Program, target: &Target) -> Result<Schedule> {
        self.drive(program, target, None)
    }

    /// As [`run`](Self::run); shows the result of every pass that runs. If the pipeline starts again, it begins with
    /// the first pass.
    pub fn observe(
        &self,
        program: &Program,
        target: &Target,
        mut show: impl FnMut(&'static Pass, &dyn Snapshot),
    ) -> Result<Schedule> {
        self.drive(program, target, Some(&mut show))
    }

    /// Returns the program as the passes before `lower` leave it.
    pub fn rewrite(&self, program: &Program, target: &Target) -> Result<Program> {
        let target = &target.without(&self.off);
        let mut draft = Draft::new(program, target);
        for PassEntry { pass, run } in ENTRIES.iter().take_while(|entry| entry.pass.name != LOWER) {
            if !self.off.contains(&pass.name) {
                run(&mut draft)?;
            }
        }
        Ok(draft.program.into_owned())
    }

    fn drive(&self, program: &Program, target: &Target, mut show: Option<Show>) -> Result<Schedule> {
        let target = &target.without(&self.off);
        let mut off = self.off.clone();
        'start: loop {
            let mut draft = Draft::new(program, target);
            for PassEntry { pass, run } in ENTRIES.iter().filter(|entry| !off.contains(&entry.pass.name)) {
                if let PassOutcome::RestartWithout(name) = run(&mut draft).map_err(|error| after(pass, error))? {
                    if off.contains(&name) {
                        return Err(internal_error("a way to run without carried casts"));
                    }
                    off.push(name);
                    continue 'start;
                }
                if cfg!(debug_assertions) {
                    draft.verify().map_err(|error| after(pass, error))?;
                }
                if let Some(show) = &mut show {
                    if draft.is_lowered { show(pass, &draft.lowered()) } else { show(pass, &*draft.program) }
                }
            }
            return draft.finish();
        }
    }
}

/// The verifier's error, with the pass it ran after.
fn after(pass: &Pass, error: Error) -> Error {
    match error.kind {
        ErrorKind::Planning { reason } => {
            Error { kind: ErrorKind::Planning { reason: format!("after the pass '{}', {reason}", pass.name) }, ..error }
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::{DType, Graph};

    fn program() -> Program {
        let g = Graph::new();
        let [x, w] = ["x", "w"].map(|name| g.input(name, [8, 8], DType::F32));
        let next = w - x.matmul(w) * 0.1;
        Program::builder(&g).carry(w, next).output("y", next.sum_all()).build().unwrap()
    }

    #[test]
    fn names_are_unique_and_every_pass_says_its_contract() {
        let names: Vec<&str> = PASSES.iter().map(|pass| pass.name).chain(RULES.iter().map(|rule| rule.name)).collect();
        assert!(names.iter().enumerate().all(|(i, name)| !names[..i].contains(name)), "{names:?}");
        for pass in &PASSES {
            assert!([pass.requires, pass.ensures, pass.placed].iter().all(|text| text.len() > 15), "{}", pass.name);
        }
    }

    #[test]
    fn every_pass_is_shown_once_in_order_and_those_switched_off_are_not() {
        let seen = |pipeline: Pipeline| {
            let mut seen = vec![];
            pipeline.observe(&program(), &Target::PLAIN, |pass, _| seen.push(pass.name)).unwrap();
            seen
        };
        assert_eq!(seen(Pipeline::new()), PASSES.map(|pass| pass.name));
        let fewer = seen(Pipeline::new().without("in-place").unwrap().without("licm").unwrap());
        assert_eq!(fewer.len(), PASSES.len() - 2);
        assert!(!fewer.contains(&"in-place") && !fewer.contains(&"licm"));
    }

    #[test]
    fn without_updates_in_place_every_carry_is_copied() {
        let carries = |pipeline: Pipeline| pipeline.run(&program(), &Target::PLAIN).unwrap().carries;
        assert!(carries(Pipeline::new())[0].in_place);
        assert!(!carries(Pipeline::new().without("in-place").unwrap())[0].in_place);
    }

    #[test]
    fn a_pass_that_is_needed_or_unknown_is_refused_with_a_sentence() {
        for pass in PASSES.iter().filter(|pass| pass.needed.is_some()) {
            let said = Pipeline::new().without(pass.name).unwrap_err().to_string();
            assert!(said.contains(pass.name) && said.contains(pass.needed.unwrap()), "{said}");
        }
        let said = Pipeline::new().without("fusion").unwrap_err().to_string();
        assert!(said.contains("'fusion'") && said.contains("gemm-gemm") && said.contains("scaled-fp16"), "{said}");
    }
}
