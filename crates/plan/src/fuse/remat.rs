//! Rematerialisation: recomputes values in late readers instead of storing them.
//!
//! The forward pass through a network leaves values for the backward pass, and a loop often leaves several that follow
//! from one of them: three for a GELU, two for a normalisation. The loops of the backward pass then read a minimum cut
//! between the operands of the forward loop and the values it leaves: the fewest bytes from which the others can be
//! recomputed element by element.
//!
//! Attention weights are read by two products: the next one, which can be fused with them, and one of the backward
//! pass. A loop of the backward pass recomputes them for the latter, so that the forward pass need not store them.

use crate::fuse::gemm_gemm::{GemmGemm, gemm_gemm_ending_at};
use crate::fuse::group::{Grouping, Role};
use crate::fuse::min_cut::{INFINITE, min_vertex_cut};
use crate::fuse::topo_order::TopoOrder;
use crate::ir::lowered_graph::LoweredGraph;
use crate::ir::node::{Elementwise, Kind, Node, Operand};
use crate::ir::rewrite::Rewriter;
use crate::target::Target;
use std::collections::{HashMap, HashSet};

/// The maximum number of operations of a loop that are recomputed; it bounds the size of the kernel that reads them.
const MAX_REMAT_OPERATIONS: usize = 48;

/// Returns the program with values of at least this many bytes rematerialised if that pays; `None` if none do.
pub(crate) fn rematerialize(
    low: &LoweredGraph,
    target: &Target,
    grouping: &Grouping,
    order: &TopoOrder,
    bytes: usize,
) -> Option<LoweredGraph> {
    let finder = Finder::new(low, grouping, order, bytes);
    // By dropped node: the values of its group from which it is recomputed.
    let mut dropped: HashMap<usize, HashSet<usize>> = HashMap::new();
    let mut groups: Vec<usize> = (0..grouping.groups.len()).filter(|&g| grouping.groups[g].domain.is_some()).collect();
    // Operands are decided before their readers.
    groups.sort_unstable_by_key(|&g| order.place(g));
    for group in groups {
        finder.look(group, &mut dropped);
    }
    if dropped.is_empty() {
        return None;
    }
    let later = finder.later(target, &dropped);
    Recomputing { new: Rewriter::new(low), again: HashMap::new() }.rewrite(grouping, &dropped, &later)
}

/// A rematerialisation for a product of the backward pass: the loop that recomputes the value, and the values it starts
/// from.
#[derive(Clone)]
struct Later {
    loop_group: usize,
    base: HashSet<usize>,
}

struct Finder<'a> {
    low: &'a LoweredGraph,
    grouping: &'a Grouping,
    order: &'a TopoOrder,
    /// By node: its readers, and whether each reads all elements in order.
    readers: Vec<Vec<(usize, bool)>>,
    /// By node: whether it is an output or the next value of a carried input.
    lasting: Vec<bool>,
    /// The minimum number of bytes.
    bytes: usize,
}

impl<'a> Finder<'a> {
    fn new(low: &'a LoweredGraph, grouping: &'a Grouping, order: &'a TopoOrder, bytes: usize) -> Self {
        let mut readers = vec![vec![]; low.nodes.len()];
        let live = low.live();
        for (id, node) in low.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
            node.reads().for_each(|(read, view)| readers[read].push((id, low.nodes[read].is_whole(view))));
        }
        let mut lasting = vec![false; low.nodes.len()];
        let last = low.outputs.iter().chain(low.carries.iter().map(|(_, next)| next));
        last.filter_map(Operand::at).for_each(|(node, _)| lasting[node] = true);
        Finder { low, grouping, order, readers, lasting, bytes }
    }

    /// Returns the position of a node's last reader; `None` if no other group reads it.
    fn until(&self, id: usize) -> Option<usize> {
        let own = self.grouping.group_of[id];
        let groups = self.readers[id].iter().filter_map(|&(reader, _)| self.grouping.group_of[reader]);
        groups.filter(|&group| Some(group) != own).map(|group| self.order.place(group)).max()
    }

    /// Returns true for a value that is only read element by element, by loops over the same elements.
    fn is_for_loops(&self, id: usize) -> bool {
        let node = &self.low.nodes[id];
        let own = self.grouping.group_of[id];
        let plain = computes_elements(node) && !node.storage.is_reduced() && self.grouping.role[id] == Some(Role::Full);
        let mut outside =
            self.readers[id].iter().filter(|(reader, _)| self.grouping.group_of[*reader] != own).peekable();
        plain
            && !self.lasting[id]
            && outside.peek().is_some()
            && outside.all(|&(reader, whole)| {
                let reading = &self.low.nodes[reader];
                let group = self.grouping.group_of[reader].map(|group| &self.grouping.groups[group]);
                let domain = group.and_then(|group| group.domain);
                let draws = matches!(reading.kind, Kind::Elementwise(Elementwise::Random(..)));
                let full = matches!(self.grouping.role[reader], Some(Role::Full | Role::Reduction { full: true }))
                    || matches!(reading.kind, Kind::Reduce(..));
                whole
                    && !draws
                    && full
                    && reading.invariant == node.invariant
                    && domain.is_some_and(|domain| domain.n == node.count())
            })
    }

    /// Decides which values a loop does not store.
    fn look(&self, group: usize, dropped: &mut HashMap<usize, HashSet<usize>>) {
        let members = &self.grouping.groups[group].members;
        let left: Vec<usize> = members
            .iter()
            .copied()
            .filter(|&id| self.low.nodes[id].bytes() >= self.bytes && self.is_for_loops(id))
            .collect();
        let Some(until) = left.iter().filter_map(|&id| self.until(id)).max() else { return };
        // A graph from the operands to the stored values; each vertex costs the bytes needed to store it.
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut costs: Vec<u64> = vec![];
        let mut edges: Vec<(usize, usize)> = vec![];
        let number = |id: usize, costs: &mut Vec<u64>, numbers: &mut HashMap<usize, usize>| {
            *numbers.entry(id).or_insert_with(|| {
                costs.push(self.cost(group, id, until, dropped));
                costs.len() - 1
            })
        };
        for &id in members.iter().filter(|&&id| self.grouping.role[id] == Some(Role::Full)) {
            let to = number(id, &mut costs, &mut numbers);
            if !computes_elements(&self.low.nodes[id]) {
                continue;
            }
            for (read, _) in self.low.nodes[id].reads() {
                let from = number(read, &mut costs, &mut numbers);
                edges.push((from, to));
                // A value that another loop does not store is replaced by the values it is recomputed from.
                for &base in dropped.get(&read).into_iter().flatten() {
                    let base = number(base, &mut costs, &mut numbers);
                    edges.push((base, from));
                }
            }
        }
        let is_source = |id: usize| {
            self.grouping.group_of[id] != Some(group) && !dropped.contains_key(&id)
                || !computes_elements(&self.low.nodes[id])
                || self.grouping.role[id] != Some(Role::Full)
        };
        let sources: Vec<usize> = numbers.iter().filter(|(id, _)| is_source(**id)).map(|(_, number)| *number).collect();
        let sinks: Vec<usize> = left.iter().map(|id| numbers[id]).collect();
        let kept = min_vertex_cut(&costs, &edges, &sources, &sinks);
        let price = kept.iter().map(|&number| costs[number]).fold(0, u64::saturating_add);
        if price >= left.iter().map(|&id| written(&self.low.nodes[id])).fold(0, u64::saturating_add) {
            return;
        }
        let base: HashSet<usize> =
            numbers.iter().filter(|(_, number)| kept.contains(number)).map(|(id, _)| *id).collect();
        let mut again: Vec<usize> = left.iter().copied().filter(|id| !base.contains(id)).collect();
        // All values in between.
        let mut between: HashSet<usize> = HashSet::new();
        while let Some(id) = again.pop() {
            if between.insert(id) {
                again.extend(self.low.nodes[id].reads().map(|(read, _)| read).filter(|read| !base.contains(read)));
            }
        }
        if between.len() <= MAX_REMAT_OPERATIONS {
            for &id in left.iter().filter(|id| !base.contains(id)) {
                dropped.insert(id, base.clone());
            }
        }
    }

    /// By product and operand between two fused products: the loop that recomputes the operand.
    fn later(&self, target: &Target, dropped: &HashMap<usize, HashSet<usize>>) -> HashMap<(usize, usize), Later> {
        let mut found = HashMap::new();
        let (mut order, mut grouping) = (self.order.clone(), self.grouping.clone());
        let fusible = (0..self.low.nodes.len()).filter_map(|next| {
            let GemmGemm { groups: [_, group, _], .. } =
                gemm_gemm_ending_at(self.low, target, &mut grouping, self.order, next)?;
            Some((next, group, self.low.nodes[next].operands[0].at()?.0))
        });
        for (next, group, rows) in fusible.filter(|(_, _, rows)| !self.lasting[*rows]) {
            let readers = || self.readers[rows].iter().map(|&(reader, _)| reader).filter(|&reader| reader != next);
            if !readers().all(|reader| matches!(self.low.nodes[reader].kind, Kind::Dot(..))) {
                continue;
            }
            // All readers need one loop; otherwise the forward pass must store the rows anyway.
            let groups: Vec<usize> = readers().filter_map(|reader| self.grouping.group_of[reader]).collect();
            let mut loops = self.loops_after(group, rows, dropped);
            let later = loops.find(|later| groups.iter().all(|&own| order.add_edge(later.loop_group, own)));
            for (reader, later) in readers().zip(later.into_iter().cycle()) {
                found.insert((reader, rows), later);
            }
        }
        found
    }

    /// Returns the loops that recompute values of this group and have all values that this one is computed from.
    fn loops_after(
        &self,
        group: usize,
        rows: usize,
        dropped: &HashMap<usize, HashSet<usize>>,
    ) -> impl Iterator<Item = Later> {
        let of_group = dropped.iter().filter(move |(id, _)| self.grouping.group_of[**id] == Some(group));
        let mut loops: Vec<(usize, usize)> = of_group
            .flat_map(|(&id, _)| self.readers[id].iter().map(move |&(reader, _)| (id, reader)))
            .filter_map(|(id, reader)| Some((self.grouping.group_of[reader]?, id)))
            .filter(|(other, _)| *other != group)
            .collect();
        // The earliest one, so that the fewest values stay live.
        loops.sort_unstable_by_key(|&(other, id)| (self.order.place(other), id));
        loops.dedup_by_key(|(other, _)| *other);
        loops.into_iter().filter_map(move |(loop_group, id)| {
            let members = &self.grouping.groups[loop_group].members;
            let reads = members.iter().flat_map(|&member| self.low.nodes[member].reads()).map(|(read, _)| read);
            let mut base = dropped[&id].clone();
            base.extend(reads.filter(|read| !dropped.contains_key(read)));
            self.follows_from(rows, &base).then_some(Later { loop_group, base })
        })
    }

    /// Returns true if a value can be computed element by element from these.
    fn follows_from(&self, id: usize, base: &HashSet<usize>) -> bool {
        let node = &self.low.nodes[id];
        base.contains(&id) || computes_elements(node) && node.reads().all(|(read, _)| self.follows_from(read, base))
    }

    /// Returns the cost, in bytes, of recomputing others from this value.
    fn cost(&self, group: usize, id: usize, until: usize, dropped: &HashMap<usize, HashSet<usize>>) -> u64 {
        let node = &self.low.nodes[id];
        let own = self.grouping.group_of[id] == Some(group);
        match node.kind {
            _ if dropped.contains_key(&id) || (node.storage.is_reduced() && computes_elements(node)) => INFINITE,
            // A value that a step changes would have to be copied first.
            Kind::Input | Kind::CarriedCast(_) if !node.invariant => 2 * node.bytes() as u64,
            Kind::Input | Kind::CarriedCast(_) | Kind::Table(_) => 0,
            // Computed in the prologue and kept through all steps.
            _ if node.invariant && !self.grouping.groups[group].invariant => 0,
            _ if own && (self.is_for_loops(id) || !self.lasting[id] && self.until(id).is_none()) => written(node),
            // In memory that long anyway.
            _ if self.until(id).is_some_and(|last| last >= until) => 0,
            _ => node.bytes() as u64,
        }
    }
}

/// Returns the cost of storing a value only for this purpose: its bytes, plus a quarter of them for writing it. So the
/// sum of a product and a bias is recomputed from the product, which is stored anyway.
fn written(node: &Node) -> u64 {
    let bytes = node.bytes() as u64;
    bytes + bytes / 4
}

/// Returns true for operations computed element by element.
fn computes_elements(node: &Node) -> bool {
    match node.kind {
        Kind::Elementwise(kind) => !matches!(kind, Elementwise::Random(..)),
        Kind::InlineGather { .. } => true,
        Kind::Input
        | Kind::CarriedCast(_)
        | Kind::Table(_)
        | Kind::Reduce(..)
        | Kind::AmaxExponent
        | Kind::ArgMax
        | Kind::Dot(..)
        | Kind::Conv(..)
        | Kind::Gather { .. }
        | Kind::ScatterAdd { .. }
        | Kind::AddRows { .. }
        | Kind::WindowArgMax(_)
        | Kind::CumSum { .. }
        | Kind::Host(_)
        | Kind::Collective(_)
        | Kind::Block(_)
        | Kind::Concat(_)
        | Kind::Pad(_)
        | Kind::PadSum(_)
        | Kind::CheckIndex { .. } => false,
    }
}

/// Adds rematerialised values before their readers.
struct Recomputing<'a> {
    new: Rewriter<'a, LoweredGraph>,
    /// By reading group and old node: the rematerialised node.
    again: HashMap<(usize, usize), usize>,
}

impl Recomputing<'_> {
    fn rewrite(
        mut self,
        grouping: &Grouping,
        dropped: &HashMap<usize, HashSet<usize>>,
        later: &HashMap<(usize, usize), Later>,
    ) -> Option<LoweredGraph> {
        for (id, node) in self.new.old.nodes.iter().enumerate() {
            let computed = node.operands.iter().map(|operand| {
                let (read, _) = operand.at()?;
                let reader = grouping.group_of[id].filter(|group| grouping.group_of[read] != Some(*group));
                match (reader, dropped.get(&read), later.get(&(id, read))) {
                    (_, _, Some(Later { loop_group, base })) => Some(self.compute(*loop_group, read, base)),
                    (Some(reader), Some(base), _) => Some(self.compute(reader, read, base)),
                    _ => None,
                }
            });
            let computed: Vec<Option<usize>> = computed.collect();
            let kept = self.new.keep();
            for (operand, computed) in self.new.nodes[kept].operands.iter_mut().zip(computed) {
                if let (Operand::At { node, .. }, Some(computed)) = (operand, computed) {
                    *node = computed;
                }
            }
        }
        self.new.finish()
    }

    /// Returns the rematerialised node of a value for a reading group.
    fn compute(&mut self, reader: usize, id: usize, base: &HashSet<usize>) -> usize {
        if base.contains(&id) {
            return self.new.at(id);
        }
        if let Some(&number) = self.again.get(&(reader, id)) {
            return number;
        }
        let mut node = self.new.old.nodes[id].clone();
        for operand in &mut node.operands {
            if let Operand::At { node: read, .. } = operand {
                *read = self.compute(reader, *read, base);
            }
        }
        node.is_remat = true;
        if let Kind::InlineGather { checked, .. } = &mut node.kind {
            *checked = false;
        }
        let made = self.new.add(node);
        self.again.insert((reader, id), made);
        made
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::Schedule;
    use crate::target::Target;
    use bilevel_graph::{DType, Graph, Program, Tensor, gradient, nn};

    fn machine() -> Target {
        Target::PLAIN.with(|target| target.costs.remat_min_bytes = Some(1000))
    }

    /// Counts the stored values of this many elements: of loops, and of other operations.
    fn stored(program: &Program, count: usize) -> [usize; 2] {
        let schedule = Schedule::new(program, &machine()).unwrap();
        let mut found = [0; 2];
        for id in (0..schedule.nodes.len()).filter(|&id| schedule.group_of(id).is_some()) {
            if schedule.is_stored(id) && schedule.nodes[id].count() == count {
                let in_loop = schedule.group_of(id).is_some_and(|group| schedule.groups()[group].domain.is_some());
                found[usize::from(!in_loop)] += 1;
            }
        }
        found
    }

    #[test]
    fn functions_of_a_product_are_recomputed_from_it() {
        let g = Graph::new();
        let [x, w, b, v] = [("x", &[40, 30][..]), ("w", &[30, 50]), ("b", &[50]), ("v", &[50, 7])]
            .map(|(name, shape)| g.input(name, shape, DType::F32));
        let loss = nn::gelu(x.matmul(w) + b).matmul(v).square().sum_all();
        let slopes = gradient(loss, &[w, b]).unwrap();
        let builder = Program::builder(&g).outputs("", slopes.into_iter().map(|slope| slope.unwrap()));
        // Values of 2000 elements: those that both products read from the loops between them, and the products.
        assert_eq!(stored(&builder.build().unwrap(), 2000), [2, 2]);
    }

    #[test]
    fn a_rematerialised_value_is_no_reason_to_store_its_functions() {
        let g = Graph::new();
        let [x, w, v] = [("x", &[40, 30][..]), ("w", &[30, 50]), ("v", &[50, 7])]
            .map(|(name, shape)| g.input(name, shape, DType::F32));
        // Normalised columns of a product, in three loops: means, variances, and the rest.
        let h = x.matmul(w);
        let columns = |row: Tensor| row.broadcast([1], [40, 50]);
        let centred = h - columns(h.sum([0]) * (1.0 / 40.0));
        let normed = centred / columns((centred.square().sum([0]) * (1.0 / 40.0) + 1e-5).sqrt());
        let loss = nn::relu(normed * 0.5 + 0.1).matmul(v).square().sum_all();
        let slope = gradient(loss, &[w]).unwrap()[0].unwrap();
        let program = Program::builder(&g).output("slope", slope).build().unwrap();
        // Values of 2000 elements: the operand of the second product, the results of three loops of the backward pass,
        // and two products.
        assert_eq!(stored(&program, 2000), [4, 2]);
    }

    #[test]
    fn a_value_that_a_step_changes_is_not_copied_for_rematerialisation() {
        let g = Graph::new();
        let [x, y] = ["x", "y"].map(|name| g.input(name, [2000], DType::F32));
        let sign = x.sign();
        let next = x * 0.5 + sign * 0.1;
        // Read once more after x has changed.
        let later = y + sign * next.square().sum_all();
        let program = Program::builder(&g).carry(x, next).carry(y, later).build().unwrap();
        let schedule = Schedule::new(&program, &machine()).unwrap();
        assert!(schedule.carries.iter().all(|carry| carry.in_place));
    }
}
