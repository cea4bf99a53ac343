//! Planning: lower, group, order, lay out memory, and turn every group into a step.

use crate::arena::{ALIGN, Buffer, Layout, lay_out};
use crate::conv::{ConvPlan, ConvSpec};
use crate::fuse::{Grouping, Role, group, is_whole};
use crate::gemm::{BatchAxis, GemmPlan, GemmSpec, Strides};
use crate::indexing::Rows;
use crate::kernels::Isa;
use crate::lower::{Kind, Lowered, Lowering, Operand, lower};
use crate::lower_dot::DotLayout;
use crate::memory::{ARENA, Address, BOUND, KEPT};
use crate::moves::Move;
use crate::planning::{known, lacks};
use crate::scalar_loop::ScalarLoop;
use crate::scalars;
use crate::step::{Step, StepKind, Typed};
use crate::tile::MAX_RUNS;
use crate::tile_build::{self, Constants, Surroundings, reads_in_step, task_count};
use crate::view::View;
use bilevel_graph::{ConvDims, DType, Error, ErrorKind, Port, Program, Result};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Everything a run needs but the memory itself.
pub(crate) struct Plan {
    /// Steps that are the same in every turn of the loop: run when what they read has changed.
    pub prologue: Vec<Step>,
    /// The inputs the prologue reads.
    pub prologue_inputs: Vec<usize>,
    /// Steps of one turn.
    pub body: Vec<Step>,
    /// The body as a loop of its own, where it is scalar.
    pub scalar_loop: Option<ScalarLoop>,
    /// After the last turn: outputs that were not computed in their buffers.
    pub finish: Vec<Move>,
    /// Where the number of the step goes.
    pub counter: Option<Address>,
    /// Numbers written once: place, type, values.
    pub tables: Vec<(Address, DType, Vec<f64>)>,
    pub constants: Vec<u64>,
    /// Bytes of inputs and outputs, of what outlives a run, and of what does not.
    pub bound_bytes: usize,
    pub kept_bytes: usize,
    pub arena_bytes: usize,
    /// Bytes alive at once in the best of layouts.
    pub memory_lower_bound: usize,
    /// Bytes of scratch for one worker.
    pub scratch_bytes: usize,
}

/// Plans a program for a team of this size. The size decides only how much scratch is kept.
pub(crate) fn plan(program: &Program, threads: usize, isa: Isa) -> Result<Plan> {
    let low = lower(program)?;
    check_ranks(&low)?;
    let mut grouping = group(&low)?;
    let in_place = carries_in_place(&low, &mut grouping);
    let (prologue, body) = schedule(&grouping)?;
    let stored = stored_nodes(&low, &grouping, &in_place);
    Planner { low: &low, grouping: &grouping, in_place: &in_place, stored: &stored, threads, isa }
        .assemble(program, &prologue, &body)
}

/// Views with more strides than a loop can walk are refused; nobody should meet this.
fn check_ranks(low: &Lowering) -> Result<()> {
    for node in &low.nodes {
        // A reduction walks its result by the axes of its operand, which need not merge.
        let axes = |view: &View| match node.kind {
            Kind::Reduce(..) => view.shape.len(),
            _ => view.runs().len(),
        };
        let deep = node.operands.iter().filter_map(|o| o.at()).any(|(_, view)| axes(view) > MAX_RUNS);
        if deep || node.shape.len() > MAX_RUNS {
            let what = format!("a tensor with more than {MAX_RUNS} axes; merge some with reshape");
            return Err(Error::new(ErrorKind::Unsupported { what }).at(node.location));
        }
    }
    Ok(())
}

/// For each carry, true where the loop that computes the next value can write it over the old one: it reads the old one
/// only element by element, and everybody else who reads it can run before.
fn carries_in_place(low: &Lowering, grouping: &mut Grouping) -> Vec<bool> {
    let mut readers: HashMap<usize, Vec<usize>> = low.carries.iter().map(|(input, _)| (*input, vec![])).collect();
    for (id, node) in low.nodes.iter().enumerate() {
        for (operand, _) in node.operands.iter().filter_map(|o| o.at()) {
            readers.entry(operand).and_modify(|readers| readers.push(id));
        }
    }
    // What can fail comes first too, so that a step that fails leaves its inputs as they were.
    let failing: Vec<usize> = (0..low.nodes.len()).filter(|&id| can_fail(low, id)).collect();
    let mut chosen = vec![];
    for (input, next) in &low.carries {
        let place = next.at().and_then(|(node, view)| {
            let group = grouping.group_of[node]?;
            let simple = is_whole(low, node, view) && grouping.role[node] == Some(Role::Full);
            (simple && !grouping.groups[group].invariant && reads_in_step(low, grouping, group, *input))
                .then_some(group)
        });
        let Some(group) = place else {
            chosen.push(false);
            continue;
        };
        let first = readers.get(input).into_iter().flatten().chain(&failing);
        let in_loop = |&g: &usize| g != group && !grouping.groups[g].invariant;
        let mut first: Vec<usize> = first.filter_map(|&id| grouping.group_of[id]).filter(in_loop).collect();
        first.sort_unstable();
        first.dedup();
        chosen.push(first.into_iter().all(|reader| grouping.order.add_edge(reader, group)));
    }
    chosen
}

/// True for operations that stop a run where an index is out of range. Places of largest elements never are.
fn can_fail(low: &Lowering, id: usize) -> bool {
    let indices = match low.nodes[id].kind {
        Kind::CheckIndex(_) | Kind::ScatterAdd { .. } => 0,
        Kind::Gather { .. } => 1,
        _ => return false,
    };
    let source = low.nodes[id].operands[indices].at().map(|(node, _)| &low.nodes[node].kind);
    !matches!(source, Some(Kind::WindowArgMax(_)))
}

/// An order of the groups, loop-invariant ones apart: among those that can run, the one whose work was written first.
fn schedule(grouping: &Grouping) -> Result<(Vec<usize>, Vec<usize>)> {
    let count = grouping.groups.len();
    let mut waiting: Vec<usize> = (0..count).map(|g| grouping.order.before(g).len()).collect();
    // A loop merged into another has no members left; when it comes does not matter.
    let key = |g: usize| grouping.groups[g].members.last().copied();
    let mut ready: BinaryHeap<Reverse<(Option<usize>, usize)>> =
        (0..count).filter(|&g| waiting[g] == 0).map(|g| Reverse((key(g), g))).collect();
    let (mut prologue, mut body) = (vec![], vec![]);
    while let Some(Reverse((_, g))) = ready.pop() {
        let order = if grouping.groups[g].invariant { &mut prologue } else { &mut body };
        if !grouping.groups[g].members.is_empty() {
            order.push(g);
        }
        for &next in grouping.order.after(g) {
            waiting[next] -= 1;
            if waiting[next] == 0 {
                ready.push(Reverse((key(next), next)));
            }
        }
    }
    let planned = grouping.groups.iter().filter(|group| !group.members.is_empty()).count();
    if prologue.len() + body.len() != planned {
        return Err(lacks("an order in which every loop can run"));
    }
    Ok((prologue, body))
}

/// The nodes whose values must be in memory: those read outside their own loop.
fn stored_nodes(low: &Lowering, grouping: &Grouping, in_place: &[bool]) -> Vec<bool> {
    let live = low.live();
    let loop_member = |id: usize| matches!(grouping.role[id], Some(Role::Full | Role::Row));
    let mut stored: Vec<bool> = (0..low.nodes.len()).map(|id| live[id] && !loop_member(id)).collect();
    for (id, node) in low.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
        for (operand, _) in node.operands.iter().filter_map(|o| o.at()) {
            stored[operand] |= grouping.group_of[operand] != grouping.group_of[id];
        }
    }
    for (node, _) in low.outputs.iter().filter_map(|o| o.at()) {
        stored[node] = true;
    }
    for ((_, next), _) in low.carries.iter().zip(in_place).filter(|(_, in_place)| !**in_place) {
        if let Some((node, _)) = next.at() {
            stored[node] = true;
        }
    }
    stored
}

struct Planner<'a> {
    low: &'a Lowering,
    grouping: &'a Grouping,
    in_place: &'a [bool],
    stored: &'a [bool],
    threads: usize,
    isa: Isa,
}

/// A product or convolution whose workspace must be known before memory is laid out.
enum Heavy {
    Gemm(Typed<GemmPlan<f32>, GemmPlan<f64>>),
    Conv(Typed<ConvPlan<f32>, ConvPlan<f64>>),
}

/// Where everything lies.
struct Places {
    /// By node; `None` for values that stay in a loop.
    nodes: Vec<Option<Address>>,
    /// By group: its workspace.
    extra: Vec<Option<Address>>,
    heavy: Vec<Option<Heavy>>,
    counter: Option<Address>,
    bound_bytes: usize,
    kept_bytes: usize,
    arena_bytes: usize,
    lower_bound: usize,
}

impl Planner<'_> {
    fn assemble(&self, program: &Program, prologue: &[usize], body: &[usize]) -> Result<Plan> {
        let order: Vec<usize> = prologue.iter().chain(body).copied().collect();
        let mut places = self.places(program, &order, prologue.len())?;
        let memory = std::mem::take(&mut places.nodes);
        let place = |node: usize| known(memory[node], "the memory of a value", self.low.nodes[node].location);
        // A group without a workspace needs none, wherever it would be.
        let extra = |g: usize| places.extra[g].unwrap_or(Address { region: ARENA, offset: 0 });
        let mut copies: HashMap<usize, Vec<(usize, Address)>> = HashMap::new();
        for ((input, next), _) in self.low.carries.iter().zip(self.in_place).filter(|(_, in_place)| **in_place) {
            let found = next.at().and_then(|(node, _)| Some((self.grouping.group_of[node]?, node)));
            let (group, node) = known(found, "the loop of a carried value", self.low.nodes[*input].location)?;
            copies.entry(group).or_default().push((node, place(*input)?));
        }
        let mut constants = Constants::default();
        let mut scratch_bytes = 0;
        let mut steps: Vec<Step> = vec![];
        for &g in &order {
            let around = Surroundings {
                low: self.low,
                grouping: self.grouping,
                memory: &memory,
                copies: &copies,
                isa: self.isa,
            };
            let kind = if let Some(scalars) = scalars::build(&around, g) {
                scratch_bytes = scratch_bytes.max(scalars.scratch());
                StepKind::Scalars(scalars)
            } else if self.grouping.groups[g].domain.is_some() {
                let mut next = extra(g);
                let mut partial = HashMap::new();
                for (id, bytes) in self.partial_sums(g) {
                    partial.insert(id, next);
                    next.offset += bytes;
                }
                let tile = tile_build::build(&around, g, &mut constants, &partial)?;
                scratch_bytes = scratch_bytes.max(tile.scratch);
                StepKind::Loop(tile)
            } else {
                self.single(self.grouping.groups[g].members[0], &memory, extra(g), places.heavy[g].take())?
            };
            let location = self.low.nodes[self.grouping.groups[g].members[0]].location;
            steps.push(Step { kind, location });
        }
        let mut body_steps = steps.split_off(prologue.len());
        for ((input, next), _) in self.low.carries.iter().zip(self.in_place).filter(|(_, in_place)| !**in_place) {
            let old = &self.low.nodes[*input];
            let (node, view) = known(next.at(), "the memory of a carried value", old.location)?;
            let dense = View::contiguous(&old.shape);
            let movement = Move::new(view, place(node)?, &dense, place(*input)?, old.dtype);
            body_steps
                .push(Step { kind: StepKind::Moves { zero: None, moves: vec![movement] }, location: old.location });
        }
        let first_output = BOUND + program.inputs.len() as u32;
        let output = |(number, operand): (usize, &Operand)| {
            // Constants were given memory when the program was lowered.
            let (node, view) = operand.at().ok_or_else(|| lacks("the memory of an output"))?;
            let (from, to) = (place(node)?, Address { region: first_output + number as u32, offset: 0 });
            let dtype = self.low.nodes[node].dtype;
            Ok((from != to).then(|| Move::new(view, from, &View::contiguous(&view.shape), to, dtype)))
        };
        let tables = self.low.nodes.iter().enumerate().filter_map(|(id, node)| match &node.kind {
            Kind::Table(values) => Some((memory[id]?, node.dtype, values.clone())),
            _ => None,
        });
        if self.low.inputs.iter().any(|node| node.is_none_or(|node| memory[node].is_none())) {
            return Err(lacks("the memory of an input"));
        }
        let outputs = self.low.outputs.iter().enumerate().map(output).collect::<Result<Vec<_>>>()?;
        let scalar_loop = match &body_steps[..] {
            [Step { kind: StepKind::Scalars(scalars), .. }] => ScalarLoop::new(scalars, places.counter),
            _ => None,
        };
        Ok(Plan {
            prologue: steps,
            prologue_inputs: self.inputs_of(prologue),
            body: body_steps,
            scalar_loop,
            finish: outputs.into_iter().flatten().collect(),
            counter: places.counter,
            tables: tables.collect(),
            constants: constants.bits,
            bound_bytes: places.bound_bytes,
            kept_bytes: places.kept_bytes,
            arena_bytes: places.arena_bytes,
            memory_lower_bound: places.lower_bound,
            scratch_bytes: scratch_bytes.next_multiple_of(ALIGN),
        })
    }

    /// The inputs these groups read.
    fn inputs_of(&self, groups: &[usize]) -> Vec<usize> {
        let mut read = vec![false; self.low.nodes.len()];
        for &id in groups.iter().flat_map(|&g| &self.grouping.groups[g].members) {
            self.low.nodes[id].operands.iter().filter_map(|o| o.at()).for_each(|(node, _)| read[node] = true);
        }
        let is_read = |node: &Option<usize>| node.is_some_and(|node| read[node]);
        (0..self.low.inputs.len()).filter(|&input| is_read(&self.low.inputs[input])).collect()
    }

    /// The sinks of a group, and the bytes the sums of its tasks take for each.
    fn partial_sums(&self, group: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let tasks = task_count(self.low, self.grouping, group);
        let members = self.grouping.groups[group].members.iter().copied();
        members.filter(|&id| matches!(self.grouping.role[id], Some(Role::Sink { .. }))).map(move |id| {
            let node = &self.low.nodes[id];
            (id, (tasks * node.count() * node.dtype.size()).next_multiple_of(64))
        })
    }

    /// For each node, the output whose buffer it can be computed in.
    fn direct_outputs(&self) -> Vec<Option<usize>> {
        let mut direct = vec![None; self.low.nodes.len()];
        for (number, (node, view)) in self.low.outputs.iter().enumerate().filter_map(|(i, o)| Some((i, o.at()?))) {
            // What the prologue computes is not computed again when another buffer is bound.
            if direct[node].is_none() && is_whole(self.low, node, view) && !self.low.nodes[node].invariant {
                direct[node] = Some(number);
            }
        }
        direct
    }

    /// Gives every stored node and every group's workspace its place: inputs and outputs in their buffers, what outlives a run
    /// in memory of the program's own, all else where it shares places with what does not live at the same time.
    fn places(&self, program: &Program, order: &[usize], prologue: usize) -> Result<Places> {
        let (low, grouping) = (self.low, self.grouping);
        let end = order.len() + 1;
        let mut position = vec![0; grouping.groups.len()];
        order.iter().enumerate().for_each(|(i, &g)| position[g] = i + 1);
        let mut lives: Vec<Option<Buffer>> = vec![None; low.nodes.len()];
        for (id, node) in low.nodes.iter().enumerate().filter(|(id, _)| self.stored[*id]) {
            let bytes = node.count() * node.dtype.size();
            lives[id] = Some(match grouping.group_of[id] {
                Some(g) => Buffer { bytes, first: position[g], last: position[g] },
                None => Buffer { bytes, first: 0, last: end },
            });
        }
        for (id, node) in low.nodes.iter().enumerate() {
            let Some(reader) = grouping.group_of[id].map(|g| position[g]) else { continue };
            for (operand, _) in node.operands.iter().filter_map(|o| o.at()) {
                if let Some(life) = &mut lives[operand] {
                    // What the prologue computes and the loop reads must outlive every turn.
                    let kept = low.nodes[operand].invariant && reader > prologue;
                    life.last = life.last.max(if kept { end } else { reader });
                }
            }
        }
        let lasting = low.outputs.iter().chain(low.carries.iter().map(|(_, next)| next));
        for (node, _) in lasting.filter_map(|o| o.at()) {
            if let Some(life) = &mut lives[node] {
                life.last = end;
            }
        }

        let mut input_of = vec![None; low.nodes.len()];
        low.inputs.iter().enumerate().for_each(|(i, node)| node.iter().for_each(|&node| input_of[node] = Some(i)));
        let direct = self.direct_outputs();
        let first_output = program.inputs.len();
        let bound = |number: usize| Address { region: BOUND + number as u32, offset: 0 };
        let mut nodes = vec![None; low.nodes.len()];
        let mut kept_bytes = 0usize;
        let mut keep = |bytes: usize| {
            let offset = kept_bytes;
            kept_bytes = kept_bytes.saturating_add(bytes.next_multiple_of(ALIGN));
            Address { region: KEPT, offset }
        };
        let counter = program.step.map(|_| keep(size_of::<i32>()));
        let (mut arena, mut in_arena) = (vec![], vec![]);
        for (id, life) in lives.iter().enumerate().filter_map(|(id, life)| Some((id, (*life)?))) {
            nodes[id] = match (input_of[id], direct[id]) {
                (Some(input), _) if program.step == Some(input) => counter,
                (Some(input), _) => Some(bound(input)),
                (None, Some(output)) => Some(bound(first_output + output)),
                // Tables, and what the prologue leaves for the loop.
                _ if life.first <= prologue && life.last == end => Some(keep(life.bytes)),
                _ => {
                    arena.push(life);
                    in_arena.push(id);
                    None
                }
            };
        }
        let mut heavy: Vec<Option<Heavy>> = vec![];
        let mut with_extra = vec![];
        for (g, group) in grouping.groups.iter().enumerate() {
            let planned = if group.domain.is_none() { self.heavy(group.members[0])? } else { None };
            let bytes = match &planned {
                Some(Heavy::Gemm(Typed::F32(plan))) => plan.workspace_bytes(self.threads),
                Some(Heavy::Gemm(Typed::F64(plan))) => plan.workspace_bytes(self.threads),
                Some(Heavy::Conv(Typed::F32(plan))) => plan.workspace_bytes(self.threads),
                Some(Heavy::Conv(Typed::F64(plan))) => plan.workspace_bytes(self.threads),
                None => self.partial_sums(g).map(|(_, bytes)| bytes).sum(),
            };
            if bytes > 0 {
                with_extra.push(g);
                arena.push(Buffer { bytes, first: position[g], last: position[g] });
            }
            heavy.push(planned);
        }

        let Layout { offsets, bytes: arena_bytes, lower_bound } = lay_out(&arena);
        let mut addresses = offsets.into_iter().map(|offset| Address { region: ARENA, offset });
        in_arena.iter().zip(&mut addresses).for_each(|(&id, address)| nodes[id] = Some(address));
        let mut extra = vec![None; grouping.groups.len()];
        with_extra.iter().zip(&mut addresses).for_each(|(&g, address)| extra[g] = Some(address));
        let ports = program.inputs.iter().chain(&program.outputs);
        let bytes_of = |port: &Port| port.meta.shape.iter().fold(port.meta.dtype.size(), |n, d| n.saturating_mul(*d));
        let bound_bytes = ports.fold(0usize, |n, port| n.saturating_add(bytes_of(port).next_multiple_of(ALIGN)));
        let lower_bound = lower_bound.saturating_add(bound_bytes).saturating_add(kept_bytes);
        if arena_bytes.saturating_add(bound_bytes).saturating_add(kept_bytes) > isize::MAX as usize {
            let what = "a program that needs more bytes than can be addressed".to_string();
            return Err(Error::new(ErrorKind::Unsupported { what }));
        }
        Ok(Places { nodes, extra, heavy, counter, bound_bytes, kept_bytes, arena_bytes, lower_bound })
    }

    /// The plan of a product or convolution; `None` for anything else.
    fn heavy(&self, id: usize) -> Result<Option<Heavy>> {
        let node = &self.low.nodes[id];
        let no_kernel = || lacks("the kernel of a product of integers").at(node.location);
        Ok(match &node.kind {
            Kind::Dot(layout) => {
                let spec = gemm_spec(layout);
                Some(Heavy::Gemm(match node.dtype {
                    DType::F64 => Typed::F64(GemmPlan::new(&spec)),
                    DType::F32 => Typed::F32(GemmPlan::new(&spec)),
                    DType::I32 => return Err(no_kernel()),
                }))
            }
            Kind::Conv(dims) => {
                let spec = known(self.conv_spec(node, dims), "the four axes of a convolution", node.location)?;
                Some(Heavy::Conv(match node.dtype {
                    DType::F64 => Typed::F64(ConvPlan::new(&spec)),
                    DType::F32 => Typed::F32(ConvPlan::new(&spec)),
                    DType::I32 => return Err(no_kernel()),
                }))
            }
            _ => None,
        })
    }

    fn conv_spec(&self, node: &Lowered, dims: &ConvDims) -> Option<ConvSpec> {
        let (image, kernel) = (node.operands[0].at()?.1, node.operands[1].at()?.1);
        Some(ConvSpec {
            dims: dims.clone(),
            image: image.shape.clone().try_into().ok()?,
            kernel: kernel.shape.clone().try_into().ok()?,
            out: node.shape.clone().try_into().ok()?,
            image_strides: image.strides.clone().try_into().ok()?,
            kernel_strides: kernel.strides.clone().try_into().ok()?,
            out_strides: node.layout.strides.clone().try_into().ok()?,
        })
    }

    /// The step of a group that is not a loop.
    fn single(
        &self,
        id: usize,
        memory: &[Option<Address>],
        workspace: Address,
        heavy: Option<Heavy>,
    ) -> Result<StepKind> {
        let node = &self.low.nodes[id];
        let dtype = node.dtype;
        let place = |node: usize| known(memory[node], "the memory of a value", self.low.nodes[node].location);
        let result = place(id)?;
        let mut operands = vec![];
        for operand in &node.operands {
            operands.push(known(operand.at(), "the memory of an operand", node.location)?);
        }
        // First byte of every operand's view.
        let mut starts = vec![];
        for &(n, view) in &operands {
            starts.push(place(n)?.advanced(view.offset, self.low.nodes[n].dtype));
        }
        let at = |i: usize| starts[i];
        let shape = |i: usize| &operands[i].1.shape[..];
        Ok(match (&node.kind, heavy) {
            (_, Some(Heavy::Gemm(plan))) => StepKind::Gemm { plan, a: at(0), b: at(1), c: result, workspace },
            (_, Some(Heavy::Conv(plan))) => {
                StepKind::Conv { plan, image: at(0), kernel: at(1), out: result, workspace }
            }
            (Kind::Gather { batch }, _) => {
                let rows = Rows::new(shape(0), shape(1), *batch);
                StepKind::Gather { rows, dtype, x: at(0), indices: at(1), result }
            }
            (Kind::ScatterAdd { batch, .. }, _) => {
                let rows = Rows::new(&node.shape, shape(0), *batch);
                StepKind::ScatterAdd { rows, dtype, indices: at(0), updates: at(1), result }
            }
            (Kind::WindowArgMax(dims), _) => {
                let (from, to) = (shape(0), &node.shape);
                let rank = to.len();
                let planes = to[..rank - 2].iter().product();
                let sizes = (planes, from[rank - 2], from[rank - 1], to[rank - 2], to[rank - 1]);
                let dtype = self.low.nodes[operands[0].0].dtype;
                StepKind::WindowArgMax { dims: dims.clone(), sizes, dtype, x: at(0), result }
            }
            (Kind::CumSum { axis, reverse }, _) => {
                let product = |s: &[usize]| s.iter().product::<usize>();
                let sizes = (product(&node.shape[..*axis]), node.shape[*axis], product(&node.shape[axis + 1..]));
                StepKind::CumSum { sizes, reverse: *reverse, dtype, x: at(0), result }
            }
            (Kind::CheckIndex(limit), _) => {
                StepKind::CheckIndex { limit: *limit, count: shape(0).iter().product(), indices: at(0) }
            }
            (Kind::Concat(axis), _) => {
                let whole = View::contiguous(&node.shape);
                let mut start = vec![0; node.shape.len()];
                let step = vec![1; node.shape.len()];
                let mut moves = vec![];
                for &(n, view) in &operands {
                    let part = whole.slice(&start, &step, &view.shape);
                    start[*axis] += view.shape[*axis];
                    moves.push(Move::new(view, place(n)?, &part, result, dtype));
                }
                StepKind::Moves { zero: None, moves }
            }
            (Kind::Pad { low, interior }, _) => {
                let step: Vec<usize> = interior.iter().map(|n| n + 1).collect();
                let (n, view) = operands[0];
                let part = View::contiguous(&node.shape).slice(low, &step, &view.shape);
                let moves = vec![Move::new(view, place(n)?, &part, result, dtype)];
                StepKind::Moves { zero: Some((result, node.count() * dtype.size())), moves }
            }
            _ => return Err(lacks("a way to run an operation by itself").at(node.location)),
        })
    }
}

fn gemm_spec(layout: &DotLayout) -> GemmSpec {
    let strides = |(row, col): (isize, isize)| Strides { row, col };
    GemmSpec {
        m: layout.m,
        n: layout.n,
        k: layout.k,
        a: strides(layout.a),
        b: strides(layout.b),
        c: strides(layout.c),
        batch: layout.batch.iter().map(|&(len, [a, b, c])| BatchAxis { len, a, b, c }).collect(),
        accumulate: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_graph::Graph;

    /// One loop, one product and a draw, lowered and grouped.
    fn parts() -> (Lowering, Grouping) {
        let g = Graph::new();
        let (x, w) = (g.input("x", [3, 3], DType::F64), g.input("w", [3, 3], DType::F64));
        let key = g.input("key", [2], DType::I32);
        let noise = key.random(g.step(), bilevel_graph::RandomKind::Normal, 1, [3, 3], DType::F64);
        let loss = (x.matmul(w).tanh() + noise).sum([0]);
        let program = Program::builder(&g).output("loss", loss).build().unwrap();
        let low = lower(&program).unwrap();
        let grouping = group(&low).unwrap();
        (low, grouping)
    }

    fn somewhere(number: usize) -> Address {
        Address { region: ARENA, offset: number * 1024 }
    }

    fn is_refused<T>(found: Result<T>) {
        let error = found.err().expect("a plan that lacks something is refused");
        assert!(matches!(error.kind, ErrorKind::Planning { .. }), "{error}");
    }

    #[test]
    fn a_value_without_memory_is_an_error_and_not_the_first_byte() {
        let (low, grouping) = parts();
        let stored = stored_nodes(&low, &grouping, &[]);
        let all: Vec<Option<Address>> = stored.iter().enumerate().map(|(i, s)| s.then(|| somewhere(i))).collect();
        let planner =
            Planner { low: &low, grouping: &grouping, in_place: &[], stored: &stored, threads: 1, isa: Isa::Portable };
        let step = |g: usize, memory: &[Option<Address>]| {
            let first = grouping.groups[g].members[0];
            let around =
                Surroundings { low: &low, grouping: &grouping, memory, copies: &HashMap::new(), isa: Isa::Portable };
            match grouping.groups[g].domain {
                Some(_) => {
                    let partial = planner.partial_sums(g).map(|(id, _)| (id, somewhere(id))).collect();
                    tile_build::build(&around, g, &mut Constants::default(), &partial).map(|_| ())
                }
                None => planner.single(first, memory, somewhere(0), planner.heavy(first)?).map(|_| ()),
            }
        };
        let mut refused = 0;
        for g in 0..grouping.groups.len() {
            step(g, &all).unwrap();
            for lost in (0..all.len()).filter(|&id| stored[id]) {
                let mut memory = all.clone();
                memory[lost] = None;
                let members = &grouping.groups[g].members;
                let reads = |id: &usize| low.nodes[*id].operands.iter().any(|o| o.at().is_some_and(|(n, _)| n == lost));
                // A loop keeps a member without memory in scratch; what it reads of others must be somewhere.
                if grouping.group_of[lost] != Some(g) && members.iter().any(reads) {
                    is_refused(step(g, &memory));
                    refused += 1;
                }
            }
        }
        assert!(refused >= 4, "{refused}");
    }

    #[test]
    fn a_sink_without_room_for_its_sums_is_an_error() {
        let (low, grouping) = parts();
        let memory: Vec<Option<Address>> = (0..low.nodes.len()).map(|i| Some(somewhere(i))).collect();
        let around = Surroundings {
            low: &low,
            grouping: &grouping,
            memory: &memory,
            copies: &HashMap::new(),
            isa: Isa::Portable,
        };
        let is_sink = |id: &usize| matches!(grouping.role[*id], Some(Role::Sink { .. }));
        let sink = (0..low.nodes.len()).find(is_sink).unwrap();
        let group = grouping.group_of[sink].unwrap();
        is_refused(tile_build::build(&around, group, &mut Constants::default(), &HashMap::new()));
    }

    #[test]
    fn an_output_or_a_carry_that_was_lost_on_the_way_is_an_error() {
        let g = Graph::new();
        let x = g.input("x", [3], DType::F64);
        let program = Program::builder(&g).output("y", x.sin()).carry(x, x.cos()).build().unwrap();
        let mut without = program.clone();
        without.outputs[0].node = None;
        is_refused(lower(&without));
        let mut without = program.clone();
        without.inputs[0].node = None;
        is_refused(lower(&without));
    }
}
