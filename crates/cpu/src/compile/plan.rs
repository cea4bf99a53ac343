//! Planning for the CPU: every group of a schedule becomes a step.

use crate::compile::gemm_conv::Heavy;
use crate::compile::standalone_op::single;
use crate::compile::step::{Step, StepKind, Turns};
use crate::compile::tile_build;
use crate::compile::tile_build::{Constants, Cut, Surroundings};
use crate::data::moves::Move;
use crate::gemm::Pieces;
use crate::kernels::Isa;
use crate::runtime::memory::{ARENA, Address, Places};
use crate::target::ALIGN;
use crate::vm::scalar_loop::ScalarLoop;
use crate::vm::scalar_vm;
use crate::vm::tile::TileProgram;
use bilevel_graph::{DType, Program, Result};
use bilevel_plan::{Kind, Operand, Place, Region, Role, Schedule, Target, View, expect, internal_error};
use std::collections::HashMap;

/// Everything a run needs but the memory itself.
pub(crate) struct Plan {
    /// Loop-invariant steps: run when their operands have changed.
    pub prologue: Vec<Step>,
    /// The inputs the prologue reads.
    pub prologue_inputs: Vec<usize>,
    /// Steps of one turn.
    pub body: Vec<Step>,
    /// The body as a scalar loop, if it is scalar.
    pub scalar_loop: Option<ScalarLoop>,
    /// After the last turn: outputs that were not computed in their buffers.
    pub finish: Vec<Move>,
    /// The address of the step number.
    pub counter: Option<Address>,
    /// Numbers written once: place, type, values.
    pub tables: Vec<(Address, DType, Vec<f64>)>,
    pub constants: Vec<u64>,
    /// Bytes of inputs and outputs, of values that outlive a run, and of those that do not.
    pub bound_bytes: usize,
    pub kept_bytes: usize,
    pub arena_bytes: usize,
    /// Bytes alive at once in the best of layouts.
    pub memory_lower_bound: usize,
    /// Bytes of scratch for one worker.
    pub scratch_bytes: usize,
}

/// Plans a program for a team of this size. The size decides only how much scratch is kept.
pub(crate) fn plan(program: &Program, target: &Target, threads: usize, isa: Isa) -> Result<Plan> {
    let schedule = Schedule::new(program, target)?;
    let mut works = vec![];
    for g in 0..schedule.groups().len() {
        works.push(Work::new(&schedule, g, threads)?);
    }
    let workspaces: Vec<usize> = works.iter().map(|work| work.bytes).collect();
    let map = schedule.lay_out(&workspaces)?;
    let places = Places::new(&schedule, &map);
    let address = |place: Place| Address::new(place, schedule.inputs.len());
    let copies = copies(&schedule, &places)?;
    let around = Surroundings { schedule: &schedule, places: &places, copies: &copies, isa };
    let mut shared = StepResources::default();
    let (mut prologue, mut body) = (vec![], vec![]);
    for (g, work) in works.into_iter().enumerate() {
        // A group without a workspace needs none, wherever it would be.
        let workspace = map.workspaces[g].map_or(Address { region: ARENA, offset: 0 }, address);
        let steps = if g < schedule.prologue { &mut prologue } else { &mut body };
        steps.extend(steps_of(&around, g, (work, workspace), &mut shared)?);
    }
    let StepResources { constants, scratch_bytes } = shared;
    for carry in schedule.carries.iter().filter(|carry| !carry.in_place) {
        let old = &schedule.nodes[carry.input];
        let to = places.of(&schedule, carry.input)?;
        let moves = vec![moved(&schedule, &places, &carry.next, to)?];
        body.push(Step { kind: StepKind::Moves { zero: None, moves }, turns: Turns::All, location: old.location });
    }
    let finish = map.outputs_to_copy.iter().map(|&number| {
        let to = address(Place { region: Region::Output(number), offset: 0 });
        moved(&schedule, &places, &schedule.outputs[number], to)
    });
    let finish = finish.collect::<Result<_>>()?;
    let counter = map.counter.map(address);
    let scalar_loop = match &body[..] {
        [Step { kind: StepKind::Scalars(scalars), .. }] => ScalarLoop::new(scalars, counter),
        _ => None,
    };
    Ok(Plan {
        prologue,
        prologue_inputs: schedule.prologue_inputs(),
        body,
        scalar_loop,
        finish,
        counter,
        tables: map.tables(&schedule).map(|(place, dtype, values)| (address(place), dtype, values.to_vec())).collect(),
        constants: constants.bits,
        bound_bytes: map.bound_bytes,
        kept_bytes: map.persistent_bytes,
        arena_bytes: map.arena_bytes,
        memory_lower_bound: map.lower_bound,
        scratch_bytes: scratch_bytes.next_multiple_of(ALIGN),
    })
}

/// Shared resources of the steps: constants, and the maximum scratch of any of them.
#[derive(Default)]
struct StepResources {
    constants: Constants,
    scratch_bytes: usize,
}

/// The steps of a group with this workspace.
fn steps_of(
    around: &Surroundings,
    g: usize,
    (work, workspace): (Work, Address),
    StepResources { constants, scratch_bytes }: &mut StepResources,
) -> Result<Vec<Step>> {
    let (schedule, turns) = (around.schedule, turns(around.schedule, g));
    let location = schedule.nodes[schedule.groups()[g].members[0]].location;
    if let Some(scalars) = scalar_vm::build(around, g) {
        *scratch_bytes = (*scratch_bytes).max(scalars.scratch());
        let turns = if turns == [Turns::Last] { Turns::Last } else { Turns::All };
        return Ok(vec![Step { kind: StepKind::Scalars(scalars), turns, location }]);
    }
    let mut kinds = vec![];
    if let Some(operation) = work.operation {
        let in_all = g < schedule.prologue || schedule.in_every_step(operation);
        let turns = if in_all { Turns::All } else { Turns::Last };
        kinds.push((single(schedule, operation, around.places, workspace, work.heavy)?, turns));
    }
    if let Some(cut) = work.cut {
        let mut next = Address { offset: workspace.offset + work.heavy_bytes, ..workspace };
        let mut partial = HashMap::new();
        for (id, bytes) in partial_sums(schedule, g, cut.parts) {
            partial.insert(id, next);
            next.offset += bytes;
        }
        let mut build = |all: Option<&TileProgram>| {
            let tile = tile_build::build(around, g, constants, &partial, cut, all)?;
            *scratch_bytes = (*scratch_bytes).max(tile.scratch);
            Ok(tile)
        };
        let tile = build(None)?;
        match kinds.last_mut() {
            Some((StepKind::Gemm { then, .. }, of_product)) if cut.pieces => {
                if turns != [Turns::Last] {
                    *of_product = Turns::All;
                }
                *then = Some(Box::new(tile));
            }
            _ => {
                let less = if turns.len() > 1 { Some(build(Some(&tile))?) } else { None };
                let tiles = [Some(tile), less].into_iter().flatten();
                kinds.extend(tiles.zip(turns).map(|(tile, &turns)| (StepKind::Loop(tile), turns)));
            }
        }
    }
    Ok(kinds.into_iter().map(|(kind, turns)| Step { kind, turns, location }).collect())
}

/// The steps in which a group's loop runs: one loop in all of them, one only in the last, or one in the last and a
/// smaller one in the others.
fn turns(schedule: &Schedule, g: usize) -> &'static [Turns] {
    let members = &schedule.groups()[g].members;
    match members.iter().filter(|&&id| schedule.in_every_step(id)).count() {
        _ if g < schedule.prologue => &[Turns::All],
        0 => &[Turns::Last],
        needed if needed == members.len() => &[Turns::All],
        _ => &[Turns::Last, Turns::ButLast],
    }
}

/// The copy of an operand, dense, to another address.
fn moved(schedule: &Schedule, places: &Places, from: &Operand, to: Address) -> Result<Move> {
    let (node, view) = from.at().ok_or_else(|| internal_error("the memory of a value to be copied"))?;
    let dtype = schedule.nodes[node].dtype;
    Ok(Move::new(view, places.of(schedule, node)?, &View::contiguous(&view.shape), to, dtype))
}

/// By group: members and the memory of the carried inputs that they are written to in place.
fn copies(schedule: &Schedule, places: &Places) -> Result<HashMap<usize, Vec<(usize, Address)>>> {
    let mut copies: HashMap<usize, Vec<(usize, Address)>> = HashMap::new();
    for carry in schedule.carries.iter().filter(|carry| carry.in_place) {
        let found = carry.next.at().and_then(|(node, _)| Some((schedule.group_of(node)?, node)));
        let location = schedule.nodes[carry.input].location;
        let (group, node) = expect(found, "the loop of a carried value", location)?;
        copies.entry(group).or_default().push((node, places.of(schedule, carry.input)?));
    }
    Ok(copies)
}

/// A group before memory is laid out.
struct Work {
    /// The operation that is not part of a loop.
    operation: Option<usize>,
    /// Its plan, if it is a product or a convolution.
    heavy: Option<Heavy>,
    /// The division of the loop, if there is one.
    cut: Option<Cut>,
    /// Bytes of workspace of the operation, and of all the group.
    heavy_bytes: usize,
    bytes: usize,
}

impl Work {
    fn new(schedule: &Schedule, g: usize, threads: usize) -> Result<Self> {
        let group = &schedule.groups()[g];
        let operation = if group.domain.is_some() { group.gemm } else { Some(group.members[0]) };
        let heavy = match operation {
            Some(id) => Heavy::new(&schedule.nodes[id])?,
            None => None,
        };
        let heavy_bytes = heavy.as_ref().map_or(0, |heavy| heavy.workspace_bytes(threads)).next_multiple_of(ALIGN);
        let in_pieces = heavy.as_ref().and_then(|heavy| into_pieces(schedule, g, heavy));
        let cut = group.domain.map(|_| in_pieces.unwrap_or_else(|| Cut::into_tasks(schedule, g)));
        let sums: usize = cut.map_or(0, |cut| partial_sums(schedule, g, cut.parts).map(|(_, bytes)| bytes).sum());
        Ok(Work { operation, heavy, cut, heavy_bytes, bytes: heavy_bytes + sums })
    }
}

/// Stretches of fewer elements cost more, by the misses at their starts, than a pass over all elements in order.
const MIN_STRETCH_ELEMENTS: usize = 512;

/// How a loop is applied to each piece of its product as its epilogue; `None` if it has to wait for all of it.
fn into_pieces(schedule: &Schedule, g: usize, heavy: &Heavy) -> Option<Cut> {
    let group = &schedule.groups()[g];
    let (domain, product) = (group.domain?, &schedule.nodes[group.gemm?]);
    let Kind::Dot(layout, _) = &product.kind else { return None };
    let Pieces { count: parts, whole, stretch } = heavy.pieces()?;
    if stretch < MIN_STRETCH_ELEMENTS {
        return None;
    }
    let row = match domain.row {
        None => 1,
        Some(row) => {
            let dense = layout.c == (layout.n as isize, 1) || layout.c == (1, layout.m as isize);
            (whole && dense && (layout.m * layout.n).is_multiple_of(row)).then_some(row)?
        }
    };
    // Every piece has separate sums, which must not outnumber the elements.
    let sinks = || group.members.iter().filter(|&&id| matches!(schedule.role(id), Some(Role::Reduction { .. })));
    let many = sinks().any(|&id| 4 * parts * schedule.nodes[id].count() > domain.n);
    (!many).then_some(Cut { row, parts, pieces: true })
}

/// The sinks of a group, and the bytes the sums of its parts take for each.
fn partial_sums(schedule: &Schedule, group: usize, parts: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let members = schedule.groups()[group].members.iter().copied();
    members.filter(|&id| matches!(schedule.role(id), Some(Role::Reduction { .. }))).map(move |id| {
        let bytes = (parts * schedule.nodes[id].bytes()).next_multiple_of(ALIGN);
        (id, bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::cpu_target;
    use bilevel_graph::{ErrorKind, Graph};

    /// One loop, one product and a draw.
    fn parts() -> Schedule {
        let g = Graph::new();
        let (x, w) = (g.input("x", [3, 3], DType::F64), g.input("w", [3, 3], DType::F64));
        let key = g.input("key", [2], DType::I32);
        let noise = key.random(g.step(), bilevel_graph::RandomKind::Normal, 1, [3, 3], DType::F64);
        let loss = (x.matmul(w).tanh() + noise).sum([0]);
        let program = Program::builder(&g).output("loss", loss).build().unwrap();
        Schedule::new(&program, &cpu_target(None)).unwrap()
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
        let schedule = parts();
        let nodes = 0..schedule.nodes.len();
        let all: Vec<Option<Address>> = nodes.clone().map(|id| schedule.is_stored(id).then(|| somewhere(id))).collect();
        let step = |g: usize, memory: &[Option<Address>]| {
            let places = Places(memory.to_vec());
            let (copies, isa) = (&HashMap::new(), Isa::Portable);
            let around = Surroundings { schedule: &schedule, places: &places, copies, isa };
            let work = Work::new(&schedule, g, 1)?;
            if let Some(operation) = work.operation {
                single(&schedule, operation, &places, somewhere(0), work.heavy)?;
            }
            if let Some(cut) = work.cut {
                let partial = partial_sums(&schedule, g, cut.parts).map(|(id, _)| (id, somewhere(id))).collect();
                tile_build::build(&around, g, &mut Constants::default(), &partial, cut, None)?;
            }
            Ok(())
        };
        let mut refused = 0;
        for g in 0..schedule.groups().len() {
            step(g, &all).unwrap();
            for lost in nodes.clone().filter(|&id| schedule.is_stored(id)) {
                let mut memory = all.clone();
                memory[lost] = None;
                let reads = |id: &usize| schedule.nodes[*id].reads().any(|(node, _)| node == lost);
                // A loop keeps a member without memory in scratch; operands from other groups must be in memory.
                if schedule.group_of(lost) != Some(g) && schedule.groups()[g].members.iter().any(reads) {
                    is_refused(step(g, &memory));
                    refused += 1;
                }
            }
        }
        assert!(refused >= 4, "{refused}");
    }

    #[test]
    fn a_sink_without_room_for_its_sums_is_an_error() {
        let schedule = parts();
        let places = Places((0..schedule.nodes.len()).map(|i| Some(somewhere(i))).collect());
        let (copies, isa) = (&HashMap::new(), Isa::Portable);
        let around = Surroundings { schedule: &schedule, places: &places, copies, isa };
        let is_sink = |id: &usize| matches!(schedule.role(*id), Some(Role::Reduction { .. }));
        let sink = (0..schedule.nodes.len()).find(is_sink).unwrap();
        let group = schedule.group_of(sink).unwrap();
        let cut = Cut::into_tasks(&schedule, group);
        is_refused(tile_build::build(&around, group, &mut Constants::default(), &HashMap::new(), cut, None));
    }
}
