//! Memory assignment: bound buffers for inputs and outputs, persistent memory, and one arena for all other values.

pub(crate) mod alias_policy;
pub(crate) mod arena;
pub(crate) mod concat_in_place;
pub(crate) mod rotating_copies;

use crate::cost_model::CostModel;
use crate::fuse::group::Role;
use crate::internal_error::internal_error;
use crate::ir::node::{Kind, Operand};
use crate::ir::verify::memory::verify_memory;
use crate::memory::alias_policy::{AliasPolicy, Stage, lay_out_stages};
use crate::memory::arena::{Layout, Life, lay_out};
use crate::memory::concat_in_place::{ConcatSlot, concat_slots};
use crate::schedule::Schedule;
use crate::target::{Capabilities, Target};
use bilevel_graph::{DType, Error, ErrorKind, Result};

/// Workspaces of up to this many times [`CostModel::no_alias_bytes`] share memory with nothing: few groups need one.
const WORKSPACE_FACTOR: usize = 32;

/// A separately allocated region of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// The buffer of a program input.
    Input(usize),
    /// The buffer of a program output.
    Output(usize),
    /// Memory of the program that outlives a run: tables, the step number, loop-invariant values.
    Persistent,
    /// Memory for values that live within one run.
    Arena,
}

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The region.
    pub region: Region,
    /// The offset in bytes.
    pub offset: usize,
}

/// The address of every value, and the bytes to allocate.
pub struct MemoryMap {
    /// By node: its address; `None` for values that stay in registers. A product without readers outside its group can
    /// share memory with a result of its epilogue.
    pub nodes: Vec<Option<Place>>,
    /// By group: its workspace in the arena; `None` if it needs none.
    pub workspaces: Vec<Option<Place>>,
    /// The address of the step number, a 32-bit integer; `None` if it is not used.
    pub counter: Option<Place>,
    /// The contiguous words of all [`Kind::AmaxExponent`] results and their bytes: those of the prologue, and those of
    /// a step. An executor clears them before the first group of either, because loops update them by an atomic
    /// maximum.
    pub amax_words: [Option<(Place, usize)>; 2],
    /// Outputs that are not computed in their buffers. After the last step each is copied, dense, from
    /// [`Schedule::outputs`] to its buffer.
    pub outputs_to_copy: Vec<usize>,
    /// Bytes of persistent memory.
    pub persistent_bytes: usize,
    /// Bytes of the arena. Programs that do not run concurrently can share it.
    pub arena_bytes: usize,
    /// Bytes of inputs and outputs.
    pub bound_bytes: usize,
    /// The peak of live bytes: a lower bound of any layout.
    pub lower_bound: usize,
}

/// Persistent memory so far.
struct Persistent {
    bytes: usize,
    align: usize,
}

impl Persistent {
    fn place(&mut self, bytes: usize) -> Place {
        let offset = self.bytes;
        self.bytes = self.bytes.saturating_add(bytes.next_multiple_of(self.align));
        Place { region: Region::Persistent, offset }
    }
}

/// Which values have their place with others, by node.
struct Constraints {
    /// The program input it is.
    input_of: Vec<Option<usize>>,
    /// The output buffer it is computed in.
    output_of: Vec<Option<usize>>,
    /// The carried node it is written over.
    updated: Vec<Option<usize>>,
    /// The value of its group that is computed in its memory.
    shared: Vec<Option<usize>>,
    /// Whether it shares memory with nothing.
    is_separate: Vec<bool>,
}

impl Constraints {
    fn new(schedule: &Schedule, policy: AliasPolicy) -> Self {
        let mut is_separate = vec![false; schedule.nodes.len()];
        let copied = schedule.carries.iter().filter(|carry| policy == AliasPolicy::SeparateCarries && !carry.in_place);
        copied.filter_map(|carry| carry.next.at()).for_each(|(node, _)| is_separate[node] = true);
        let mut input_of = vec![None; schedule.nodes.len()];
        schedule.inputs.iter().enumerate().for_each(|(input, &node)| input_of[node] = Some(input));
        let updated = read_where_carried(schedule);
        let output_of = computed_in_their_buffers(schedule, &updated);
        let shared = results_in_place(schedule, &updated);
        Constraints { input_of, output_of, updated, shared, is_separate }
    }

    /// Returns true if a value can be computed as a part of a concatenation.
    fn is_free(&self, id: usize) -> bool {
        let elsewhere = [&self.output_of, &self.updated, &self.shared].iter().any(|places| places[id].is_some());
        !elsewhere && !self.is_separate[id]
    }
}

/// The lifetimes of values in the arena, and of which nodes they are.
#[derive(Default)]
struct ArenaValues {
    lives: Vec<Life>,
    nodes: Vec<usize>,
}

impl ArenaValues {
    fn add(&mut self, node: usize, life: Life) {
        self.lives.push(life);
        self.nodes.push(node);
    }
}

/// The memory of a schedule in the making.
struct Placing<'a> {
    schedule: &'a Schedule,
    target: Target,
    constraints: Constraints,
    persistent: Persistent,
    counter: Option<Place>,
    amax_words: [Option<(Place, usize)>; 2],
    nodes: Vec<Option<Place>>,
}

impl<'a> Placing<'a> {
    /// Places the step number and the words of all amax exponents.
    fn new(schedule: &'a Schedule, target: Target, policy: AliasPolicy, lives: &[Option<Life>]) -> Self {
        let mut persistent = Persistent { bytes: 0, align: target.can.alignment };
        let mut nodes = vec![None; schedule.nodes.len()];
        let counter = schedule.step.map(|_| persistent.place(DType::I32.size()));
        let amax_words = [true, false].map(|invariant| {
            let is_one = |id: &usize| matches!(schedule.nodes[*id].kind, Kind::AmaxExponent) && lives[*id].is_some();
            let all = (0..lives.len()).filter(is_one).filter(|&id| schedule.nodes[id].invariant == invariant);
            let all: Vec<usize> = all.collect();
            let bytes = all.len() * DType::F32.size();
            let first = (bytes > 0).then(|| persistent.place(bytes))?;
            for (number, &id) in all.iter().enumerate() {
                nodes[id] = Some(Place { offset: first.offset + number * DType::F32.size(), ..first });
            }
            Some((first, bytes))
        });
        let constraints = Constraints::new(schedule, policy);
        Placing { schedule, target, constraints, persistent, counter, amax_words, nodes }
    }

    /// Throughout a run.
    fn throughout(&self, life: Life) -> Life {
        Life { first: 0, last: self.schedule.groups().len() + 1, ..life }
    }

    fn is_cast(&self, id: usize) -> bool {
        matches!(self.schedule.nodes[id].kind, Kind::CarriedCast(_))
    }

    /// Places the values that are not in the arena, and returns those that are. Values `within` a concatenation, and
    /// those computed in the memory of others, are placed with them.
    fn place_values(&mut self, lives: &[Option<Life>], within: &[Option<ConcatSlot>]) -> ArenaValues {
        let (schedule, end) = (self.schedule, self.schedule.groups().len() + 1);
        let mut arena = ArenaValues::default();
        for initial_cast in &schedule.initial_casts {
            // Live throughout a run.
            let life = Life { bytes: schedule.nodes[initial_cast.cast].bytes(), first: 0, last: end };
            arena.add(initial_cast.cast, life);
        }
        for (id, life) in lives.iter().enumerate().filter_map(|(id, life)| Some((id, (*life)?))) {
            let bound = |region| Some(Place { region, offset: 0 });
            if self.nodes[id].is_some() || self.is_cast(id) || within[id].is_some() {
                continue;
            }
            let Constraints { input_of, output_of, updated, shared, is_separate } = &self.constraints;
            self.nodes[id] = match (input_of[id], output_of[id]) {
                (Some(input), _) if schedule.step == Some(input) => self.counter,
                (Some(input), _) => bound(Region::Input(input)),
                _ if shared[id].is_some() || updated[id].is_some_and(|carried| self.is_cast(carried)) => None,
                (None, Some(output)) => bound(Region::Output(output)),
                _ if updated[id].is_some() => {
                    updated[id].and_then(|node| input_of[node]).map(Region::Input).and_then(bound)
                }
                // Tables, and values that the prologue leaves for the loop.
                _ if life.first <= schedule.prologue && life.last == end => Some(self.persistent.place(life.bytes)),
                _ => {
                    let stays = is_separate[id] || life.bytes <= self.target.costs.no_alias_bytes;
                    arena.add(id, if stays { self.throughout(life) } else { life });
                    None
                }
            };
        }
        arena
    }

    /// Places the values that are computed in the memory of others.
    fn place_with_others(&mut self, within: &[Option<ConcatSlot>]) {
        for (id, part) in within.iter().enumerate().filter_map(|(id, part)| Some((id, (*part)?))) {
            let ConcatSlot { whole, offset } = part;
            self.nodes[id] = self.nodes[whole].map(|place: Place| Place { offset: place.offset + offset, ..place });
        }
        for (id, &with) in self.constraints.shared.iter().enumerate() {
            with.into_iter().for_each(|with| self.nodes[id] = self.nodes[with]);
        }
        for (id, &carried) in self.constraints.updated.iter().enumerate() {
            carried
                .filter(|&carried| self.is_cast(carried))
                .into_iter()
                .for_each(|cast| self.nodes[id] = self.nodes[cast]);
        }
    }

    /// Returns the bytes of inputs and outputs.
    fn bound_bytes(&self) -> usize {
        let schedule = self.schedule;
        let sizes = schedule.outputs.iter().filter_map(Operand::at).map(|(node, view)| {
            view.shape.iter().fold(schedule.nodes[node].dtype.size(), |bytes, length| bytes.saturating_mul(*length))
        });
        let sizes = schedule.inputs.iter().map(|&node| schedule.nodes[node].bytes()).chain(sizes);
        sizes.fold(0usize, |sum, bytes| sum.saturating_add(bytes.next_multiple_of(self.persistent.align)))
    }
}

impl MemoryMap {
    /// Assigns memory under this alias policy.
    pub(crate) fn new(schedule: &Schedule, target: Target, workspaces: &[usize], policy: AliasPolicy) -> Result<Self> {
        let CostModel { reuse_distance, no_alias_bytes, .. } = target.costs;
        let Capabilities { alignment: align, concat_in_place, .. } = target.can;
        let mut lives = lives(schedule);
        let mut placing = Placing::new(schedule, target, policy, &lives);
        let is_free = |id: usize| concat_in_place && placing.constraints.is_free(id);
        let within = concat_slots(schedule, align, is_free, &mut lives);
        let stages = policy.stages(schedule, &within);
        let ArenaValues { lives: mut arena, nodes: in_arena } = placing.place_values(&lives, &within);
        let working: Vec<usize> = (0..workspaces.len()).filter(|&g| workspaces[g] > 0).collect();
        // Live while its group runs: groups are counted from 1.
        arena.extend(working.iter().map(|&g| {
            let life = Life { bytes: workspaces[g], first: g + 1, last: g + 1 };
            let stays = life.bytes <= no_alias_bytes.saturating_mul(WORKSPACE_FACTOR);
            if stays { placing.throughout(life) } else { life }
        }));
        let Layout { offsets, bytes: arena_bytes, lower_bound } = match policy {
            AliasPolicy::Stages(late) => {
                let of_values = in_arena.iter().map(|&id| stages[id]);
                let stages: Vec<Stage> = of_values.chain(working.iter().map(|&g| Stage::of_group(late[g]))).collect();
                let throughout = |life| placing.throughout(life);
                lay_out_stages(&arena, &stages, throughout, |lives| lay_out(lives, align, reuse_distance, true))
            }
            _ => lay_out(&arena, align, reuse_distance, false),
        };
        let mut found = offsets.into_iter().map(|offset| Some(Place { region: Region::Arena, offset }));
        in_arena.iter().zip(&mut found).for_each(|(&id, place)| placing.nodes[id] = place);
        let mut workspaces = vec![None; schedule.groups().len()];
        working.iter().zip(&mut found).for_each(|(&g, place)| workspaces[g] = place);
        placing.place_with_others(&within);
        let bound_bytes = placing.bound_bytes();
        let Placing { persistent: Persistent { bytes: persistent_bytes, .. }, counter, amax_words, nodes, .. } =
            placing;
        if arena_bytes.saturating_add(bound_bytes).saturating_add(persistent_bytes) > isize::MAX as usize {
            let what = "a program that needs more bytes than can be addressed".to_string();
            return Err(Error::new(ErrorKind::Unsupported { what }));
        }
        let mut map = MemoryMap {
            nodes,
            workspaces,
            counter,
            amax_words,
            outputs_to_copy: vec![],
            persistent_bytes,
            arena_bytes,
            bound_bytes,
            lower_bound: lower_bound.saturating_add(bound_bytes).saturating_add(persistent_bytes),
        };
        map.outputs_to_copy = map.unfinished(schedule)?;
        if cfg!(debug_assertions) {
            verify_memory(schedule, &map, policy)?;
        }
        Ok(map)
    }

    /// Returns the tables of a program with their addresses.
    pub fn tables<'a>(&'a self, schedule: &'a Schedule) -> impl Iterator<Item = (Place, DType, &'a [f64])> {
        schedule.nodes.iter().zip(&self.nodes).filter_map(|(node, place)| match &node.kind {
            Kind::Table(values) => Some(((*place)?, node.dtype, &values[..])),
            _ => None,
        })
    }

    /// Returns the outputs that are not in their buffers.
    fn unfinished(&self, schedule: &Schedule) -> Result<Vec<usize>> {
        let mut found = vec![];
        for (number, operand) in schedule.outputs.iter().enumerate() {
            let place = operand.at().and_then(|(node, _)| self.nodes[node]);
            if place.ok_or_else(|| internal_error("the memory of an output"))?.region != Region::Output(number) {
                found.push(number);
            }
        }
        Ok(found)
    }
}

/// Returns the lifetimes of stored nodes, in groups counted from 1. Lifetimes beyond the first or the last group
/// outlive a run.
pub(crate) fn lives(schedule: &Schedule) -> Vec<Option<Life>> {
    let end = schedule.groups().len() + 1;
    let position = |node: usize| schedule.group_of(node).map(|g| g + 1);
    let life = |id: usize| {
        let bytes = schedule.nodes[id].bytes();
        match position(id) {
            Some(at) => Life { bytes, first: at, last: at },
            None => Life { bytes, first: 0, last: end },
        }
    };
    let mut lives: Vec<Option<Life>> =
        (0..schedule.nodes.len()).map(|id| schedule.is_stored(id).then(|| life(id))).collect();
    for (id, node) in schedule.nodes.iter().enumerate() {
        let Some(reader) = position(id) else { continue };
        for (operand, _) in node.reads() {
            if let Some(life) = &mut lives[operand] {
                // Values of the prologue that the loop reads must outlive every step.
                let kept = schedule.nodes[operand].invariant && reader > schedule.prologue;
                life.last = life.last.max(if kept { end } else { reader });
            }
        }
    }
    let lasting = schedule.outputs.iter().chain(schedule.carries.iter().map(|carry| &carry.next));
    for (node, _) in lasting.filter_map(Operand::at) {
        if let Some(life) = &mut lives[node] {
            life.last = end;
        }
    }
    lives
}

/// For each node, the output buffer it can be computed in. Rows added to a carried input are added in place.
fn computed_in_their_buffers(schedule: &Schedule, updated: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut direct = vec![None; schedule.nodes.len()];
    for (number, (node, view)) in schedule.outputs.iter().enumerate().filter_map(|(i, o)| Some((i, o.at()?))) {
        // The prologue is not rerun when another buffer is bound.
        let computed = &schedule.nodes[node];
        let elsewhere = updated[node].is_some() && matches!(computed.kind, Kind::AddRows { .. });
        if direct[node].is_none() && computed.is_whole(view) && !computed.invariant && !elsewhere {
            direct[node] = Some(number);
        }
    }
    direct
}

/// For each next value that overwrites a carried input: the node of the input.
fn read_where_carried(schedule: &Schedule) -> Vec<Option<usize>> {
    let mut carried = vec![None; schedule.nodes.len()];
    for carry in schedule.carries.iter().filter(|carry| carry.in_place) {
        if let Some((node, _)) = carry.next.at()
            && schedule.nodes[node].storage == schedule.nodes[carry.input].storage
        {
            carried[node] = carried[node].or(Some(carry.input));
        }
    }
    carried
}

/// For each product without readers outside its group: the member computed in its memory after its last reader. Members
/// that overwrite a carried input are excluded, because the group may still read the old value.
fn results_in_place(schedule: &Schedule, updated: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut outside = vec![false; schedule.nodes.len()];
    for (id, node) in schedule.nodes.iter().enumerate() {
        for (read, _) in node.reads() {
            outside[read] |= schedule.group_of(id) != schedule.group_of(read);
        }
    }
    let lasting = schedule.outputs.iter().chain(schedule.carries.iter().map(|carry| &carry.next));
    lasting.filter_map(Operand::at).for_each(|(node, _)| outside[node] = true);
    let mut shared = vec![None; schedule.nodes.len()];
    for group in schedule.groups() {
        let in_memory = |product: &usize| schedule.is_stored(*product) && !outside[*product];
        let Some(product) = group.gemm.filter(in_memory) else { continue };
        let reads = |&id: &usize| schedule.nodes[id].reads().any(|(read, _)| read == product);
        let last = group.members.iter().rposition(reads).unwrap_or(0);
        let storage = schedule.nodes[product].storage;
        let fits = |&&id: &&usize| {
            id != product
                && schedule.role(id) == Some(Role::Full)
                && schedule.is_stored(id)
                && updated[id].is_none()
                && schedule.nodes[id].storage == storage
        };
        shared[product] = group.members[last..].iter().find(fits).copied();
    }
    shared
}
