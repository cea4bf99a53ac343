//! The schedule: a program lowered, grouped and ordered, before memory is assigned.

pub(crate) mod in_place;
pub(crate) mod index_checks;
pub(crate) mod list_schedule;
pub(crate) mod loop_stages;

use crate::cost_model::CostModel;
use crate::fuse::group::{Access, Group, Grouping, Role};
use crate::fuse::topo_order::TopoOrder;
use crate::internal_error::internal_error;
use crate::ir::node::{Kind, Node, Operand};
use crate::lower::carried_casts::InitialCast;
use crate::memory::MemoryMap;
use crate::memory::alias_policy::AliasPolicy;
use crate::pipeline::Pipeline;
use crate::schedule::in_place::Carry;
use crate::schedule::index_checks::{IndexCheck, index_check};
use crate::schedule::list_schedule::list_schedule;
use crate::target::Target;
use bilevel_graph::{Error, ErrorKind, Program, Result};

/// A program as groups of operations in execution order.
///
/// To execute the steps a..b, run the groups `0..prologue` once, unless they ran before and the buffers of
/// [`prologue_inputs`](Self::prologue_inputs) have not changed. Then compute the
/// [`initial_casts`](Self::initial_casts). For each step, write its number to the counter, run the remaining groups,
/// and copy the next values of [`carries`](Self::carries) that are not updated in place. Finally copy the outputs in
/// [`MemoryMap::outputs_to_copy`]. Operations that only outputs depend on need to run in the last step only: see
/// [`in_every_step`](Self::in_every_step).
pub struct Schedule {
    /// All operations in topological order. Inputs, tables and dead nodes are in no group.
    pub nodes: Vec<Node>,
    /// The node of each program input.
    pub inputs: Vec<usize>,
    /// The operand of each program output after the last step. Never a constant.
    pub outputs: Vec<Operand>,
    /// The next value of each carried input and of each carried cast.
    pub carries: Vec<Carry>,
    /// The casts that are computed before the first step of a run, in order. Empty unless the target has
    /// [`gemm_reads_bf16`](crate::Capabilities::gemm_reads_bf16) or [`min_scaled_side`](crate::CostModel::min_scaled_side).
    pub initial_casts: Vec<InitialCast>,
    /// The number of leading groups that are loop-invariant.
    pub prologue: usize,
    /// The program input that holds the step number.
    pub step: Option<usize>,
    pub(crate) grouping: Grouping,
    pub(crate) stored: Vec<bool>,
    pub(crate) in_every_step: Vec<bool>,
}

impl Schedule {
    /// Lowers, groups and orders a valid program.
    pub fn new(program: &Program, target: &Target) -> Result<Self> {
        Pipeline::new().run(program, target)
    }

    /// Returns the costs of the machine that it is planned for.
    pub fn costs(&self) -> CostModel {
        self.grouping.target.costs
    }

    /// Returns all groups in execution order.
    pub fn groups(&self) -> &[Group] {
        &self.grouping.groups
    }

    /// Returns the group of a node; `None` for inputs, tables and dead nodes.
    pub fn group_of(&self, node: usize) -> Option<usize> {
        self.grouping.group_of[node]
    }

    /// Returns the role of a node in its loop; `None` outside loops.
    pub fn role(&self, node: usize) -> Option<Role> {
        self.grouping.role[node]
    }

    /// Returns how a member of a loop reads one of its operands; `None` outside loops.
    pub fn access(&self, member: usize, operand: &Operand) -> Option<Access> {
        let group = self.group_of(member)?;
        let domain = self.groups()[group].domain?;
        self.grouping.access(&self.nodes, (group, domain), (member, self.role(member)?), operand)
    }

    /// Returns true if a node's values must be in memory, because it is in no loop or another group reads them.
    pub fn is_stored(&self, node: usize) -> bool {
        self.stored[node]
    }

    /// Returns true if every step must compute a node, because a carried value depends on it or because it can fail.
    /// All other nodes affect only the outputs, which are those of the last step of a run.
    pub fn in_every_step(&self, node: usize) -> bool {
        self.in_every_step[node]
    }

    /// Returns the index check of a node; `None` if it cannot fail. Executors report exactly these errors.
    pub fn index_check(&self, node: usize) -> Option<IndexCheck> {
        index_check(&self.nodes, node)
    }

    /// Returns the program inputs that the prologue reads.
    pub fn prologue_inputs(&self) -> Vec<usize> {
        let mut read = vec![false; self.nodes.len()];
        for &id in self.groups()[..self.prologue].iter().flat_map(|group| &group.members) {
            self.nodes[id].reads().for_each(|(node, _)| read[node] = true);
        }
        (0..self.inputs.len()).filter(|&input| read[self.inputs[input]]).collect()
    }

    /// Assigns memory. `workspaces` are the bytes of workspace that each group needs while it runs.
    pub fn lay_out(&self, workspaces: &[usize]) -> Result<MemoryMap> {
        MemoryMap::new(self, self.grouping.target, workspaces, AliasPolicy::Sequential)
    }

    /// Assigns memory for an executor that overlaps steps: next values of carried inputs that are not updated in place
    /// share their memory with nothing, so that every step can have its own copy.
    pub fn lay_out_pipelined(&self, workspaces: &[usize]) -> Result<MemoryMap> {
        MemoryMap::new(self, self.grouping.target, workspaces, AliasPolicy::SeparateCarries)
    }

    /// Assigns memory for an executor that overlaps the late stage of a step, which these groups are, with the early
    /// stage of the next: values of different stages share no memory.
    pub fn lay_out_in_stages(&self, workspaces: &[usize], late: &[bool]) -> Result<MemoryMap> {
        MemoryMap::new(self, self.grouping.target, workspaces, AliasPolicy::Stages(late))
    }
}

/// By node: its values must be in memory, because a node outside its loop reads them, it is in none, or it is one of
/// the `last`.
pub(crate) fn stored_nodes<'a>(
    nodes: &[Node],
    live: &[bool],
    grouping: &Grouping,
    last: impl Iterator<Item = &'a Operand>,
) -> Vec<bool> {
    // A product is in memory unless an executor keeps it at hand.
    let is_fused = |id: usize| {
        let group = grouping.group_of[id].map(|group| &grouping.groups[group]);
        group.is_some_and(|group| group.second_gemm.is_some() || group.affine.is_some())
    };
    let product = |id: usize| matches!(nodes[id].kind, Kind::Dot(..)) && !is_fused(id);
    let loop_member = |id: usize| matches!(grouping.role[id], Some(Role::Full | Role::Row)) && !product(id);
    let mut stored: Vec<bool> = (0..nodes.len()).map(|id| live[id] && !loop_member(id)).collect();
    for (id, node) in nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
        for (operand, _) in node.reads() {
            stored[operand] |= grouping.group_of[operand] != grouping.group_of[id];
        }
    }
    last.filter_map(Operand::at).for_each(|(node, _)| stored[node] = true);
    stored
}

/// By node: a carried value, or whether a run fails, depends on it.
pub(crate) fn carried_on(nodes: &[Node], carries: &[Carry]) -> Vec<bool> {
    let mut found: Vec<bool> = (0..nodes.len()).map(|id| index_check(nodes, id).is_some()).collect();
    carries.iter().filter_map(|carry| carry.next.at()).for_each(|(node, _)| found[node] = true);
    // Operands precede their readers.
    for id in (0..nodes.len()).rev() {
        if found[id] {
            nodes[id].reads().for_each(|(read, _)| found[read] = true);
        }
    }
    found
}

/// Views with more strides than a loop can walk are refused, as an internal error.
pub(crate) fn check_axes(nodes: &[Node], most: usize) -> Result<()> {
    for node in nodes {
        // A reduction indexes its result by the axes of its operand, which need not merge.
        let deep = node.reads().any(|(_, view)| match node.kind {
            Kind::Reduce(..) => view.shape.len() > most,
            _ => view.runs().len() > most,
        });
        if deep || node.shape.len() > most {
            let what = format!("a tensor with more than {most} axes; merge some with reshape");
            return Err(Error::new(ErrorKind::Unsupported { what }).at(node.location));
        }
    }
    Ok(())
}

/// Numbers the groups in the order in which they run, those that are the same in every step first, and says how many these
/// are.
pub(crate) fn put_in_order(
    nodes: &[Node],
    lasting: &[bool],
    grouping: &mut Grouping,
    order: &TopoOrder,
) -> Result<usize> {
    let (prologue, body): (Vec<usize>, Vec<usize>) =
        list_schedule(nodes, lasting, grouping, order).into_iter().partition(|&g| grouping.groups[g].invariant);
    let planned = grouping.groups.iter().filter(|group| !group.members.is_empty()).count();
    if prologue.len() + body.len() != planned {
        return Err(internal_error("an acyclic order of groups"));
    }
    let running: Vec<Group> = prologue.iter().chain(&body).map(|&g| grouping.groups[g].clone()).collect();
    for (number, group) in running.iter().enumerate() {
        group.members.iter().for_each(|&id| grouping.group_of[id] = Some(number));
    }
    grouping.groups = running;
    Ok(prologue.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::{DType, Graph};

    /// A target that merges loops of at most this many elements.
    fn machine(short: usize) -> Target {
        Target::PLAIN.with(|target| (target.costs.tiny_loop, target.costs.horizontal_fusion_max) = (short, short))
    }

    #[test]
    fn an_output_or_a_carry_that_was_lost_on_the_way_is_an_error() {
        let g = Graph::new();
        let x = g.input("x", [3], DType::F64);
        let program = Program::builder(&g).output("y", x.sin()).carry(x, x.cos()).build().unwrap();
        let is_refused = |program: &Program| {
            let error = Schedule::new(program, &machine(0)).err().expect("an incomplete plan is refused");
            assert!(matches!(error.kind, ErrorKind::Planning { .. }), "{error}");
        };
        let mut without = program.clone();
        without.outputs[0].node = None;
        is_refused(&without);
        let mut without = program.clone();
        without.inputs[0].node = None;
        is_refused(&without);
    }

    #[test]
    fn invariant_groups_run_first_and_a_carry_that_others_read_before_is_updated_in_place() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [4, 4], DType::F64), g.input("w", [4, 4], DType::F64));
        let next = x - x.matmul(w).matmul(w.sin()) * 0.1;
        let program = Program::builder(&g).output("square", x.square().sum_all()).carry(x, next).build().unwrap();
        let schedule = Schedule::new(&program, &machine(0)).unwrap();
        assert_eq!(schedule.prologue, 1);
        let w = program.inputs.iter().position(|port| port.name == "w").unwrap();
        assert_eq!(schedule.prologue_inputs(), [w]);
        assert!(schedule.carries[0].in_place);
        let (last, _) = schedule.carries[0].next.at().unwrap();
        let writer = schedule.group_of(last).unwrap();
        for (id, node) in schedule.nodes.iter().enumerate() {
            let reads = node.reads().any(|(read, _)| read == schedule.carries[0].input);
            assert!(!reads || schedule.group_of(id).is_none_or(|g| g <= writer));
        }
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        // The sine outlives a run; the sum is computed in its buffer.
        assert_eq!((map.persistent_bytes, map.outputs_to_copy.len()), (128, 0));
    }

    #[test]
    fn a_program_that_carries_nothing_computes_everything_in_its_outputs_whenever_it_runs() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [4, 4], DType::F64), g.input("w", [4, 4], DType::F64));
        let program = Program::builder(&g).output("y", w.sin().matmul(x)).output("z", w.exp()).build().unwrap();
        let schedule = Schedule::new(&program, &machine(0)).unwrap();
        assert_eq!((schedule.prologue, schedule.prologue_inputs()), (0, vec![]));
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        assert_eq!((map.persistent_bytes, map.outputs_to_copy.len()), (0, 0));
    }

    #[test]
    fn every_step_computes_carried_values_and_checks_but_nothing_for_outputs_alone() {
        let g = Graph::new();
        let [x, y] = ["x", "y"].map(|name| g.input(name, [5], DType::F64));
        let at = g.input("at", [3], DType::I32);
        let (next, loss) = (x * y.sin(), (x - y).square().sum_all());
        let program = Program::builder(&g).output("loss", loss).output("taken", y.take(at)).carry(x, next);
        let schedule = Schedule::new(&program.build().unwrap(), &machine(0)).unwrap();
        let node = |is: fn(&Kind) -> bool| schedule.nodes.iter().position(|node| is(&node.kind)).unwrap();
        let (carried, _) = schedule.carries[0].next.at().unwrap();
        assert!(schedule.in_every_step(carried));
        assert!(schedule.in_every_step(node(|kind| matches!(kind, Kind::Gather { .. }))));
        assert!(!schedule.in_every_step(node(|kind| matches!(kind, Kind::Reduce(..)))));
    }

    #[test]
    fn scalars_that_depend_on_a_loop_do_not_prevent_its_fusion_with_another() {
        let g = Graph::new();
        let [x, y] = ["x", "y"].map(|name| g.input(name, [2000], DType::F64));
        let total = g.input("total", [], DType::F64);
        // The first number is complete after the loop; the second is needed before it.
        let sum = (x * y).sum_all() * 2.0 + total;
        let weight = (g.step() + 1.0).convert(DType::F64) * 0.5;
        let program = Program::builder(&g).carry(total, sum).carry(y, y - x * y * weight).build().unwrap();
        let schedule = Schedule::new(&program, &machine(64)).unwrap();
        let lengths: Vec<usize> = schedule.groups().iter().filter_map(|group| Some(group.domain?.n)).collect();
        assert_eq!(lengths, [1, 2000, 1]);
    }

    #[test]
    fn numbers_are_computed_together_where_nothing_must_happen_between_them() {
        let g = Graph::new();
        let [x, y] = ["x", "y"].map(|name| g.input(name, [2000], DType::F64));
        let a = g.input("a", [], DType::F64);
        // Each depends on a separate loop, or on none.
        let (one, two, three) = (x.sum_all() * 2.0, y.square().sum_all().sqrt(), a.exp() + 1.0);
        let program = Program::builder(&g).output("1", one).output("2", two).output("3", three).build().unwrap();
        let schedule = Schedule::new(&program, &machine(64)).unwrap();
        let lengths: Vec<usize> = schedule.groups().iter().filter_map(|group| Some(group.domain?.n)).collect();
        assert_eq!(lengths, [2000, 2000, 1]);
    }

    #[test]
    fn two_passes_that_share_a_small_loop_do_not_wait_for_each_other() {
        let side = 600;
        let g = Graph::new();
        let labels = g.input("labels", [side, 1], DType::F32).sin();
        let v = g.input("v", [side, 1], DType::F32);
        let mut builder = Program::builder(&g);
        let mut before = v;
        for pass in ["first", "second"] {
            let x = g.input(pass, [side, side], DType::F32);
            // Values stored for the backward pass, a small loop that reads the labels of both passes, and the backward
            // pass. The second pass depends on the first.
            let kept = x.matmul(x);
            let error = (kept.matmul(v) - labels) * before;
            let next = (error.broadcast_to([side, side]) * kept).matmul(x);
            before = next.matmul(v);
            builder = builder.output(pass, next.square().sum_all());
        }
        let schedule = Schedule::new(&builder.build().unwrap(), &machine(64)).unwrap();
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        let matrix = side * side * 4;
        // One pass has two matrices at a time.
        assert!(map.arena_bytes < 2 * matrix + matrix / 2, "{} matrices", map.arena_bytes as f64 / matrix as f64);
    }

    #[test]
    fn the_next_value_of_a_carried_input_is_read_in_place() {
        let g = Graph::new();
        let (x, w) = (g.input("x", [40, 50], DType::F32), g.input("w", [50, 60], DType::F32));
        let next = w - w.sin() * 0.1;
        let program = Program::builder(&g).carry(w, next).output("y", x.matmul(next)).build().unwrap();
        let schedule = Schedule::new(&program, &machine(0)).unwrap();
        let map = schedule.lay_out(&vec![0; schedule.groups().len()]).unwrap();
        assert!(schedule.carries[0].in_place);
        assert_eq!((map.arena_bytes, map.persistent_bytes), (0, 0));
        let (node, _) = schedule.carries[0].next.at().unwrap();
        assert_eq!(map.nodes[node], map.nodes[schedule.carries[0].input]);
    }
}
