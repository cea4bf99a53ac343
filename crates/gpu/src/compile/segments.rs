//! The steps of a schedule: its prologue, one iteration of its loop, and the copies around them.

use crate::codegen::renderer::Dialect;
use crate::codegen::{Code, Context, Elements, RoundedStorage, amax_of, copy_unless_failed, gathered, scaled_f16_copy};
use crate::compile::backend::Backend;
use crate::compile::device_asserts::Checks;
use crate::compile::lower_group::steps_of;
use crate::compile::step::{LibraryCall, Span, Step, Work};
use bilevel_graph::{DType, Line, Result};
use bilevel_plan::{CastForm, InitialCast, Kind, MemoryMap, Operand, Place, Schedule, expect, internal_error};
use std::collections::HashMap;

/// Returns the bytes of workspace of each group, by a dry run.
pub fn workspaces(schedule: &Schedule, backend: &impl Backend, checks: &Checks) -> Result<Vec<usize>> {
    let first = schedule.lay_out(&vec![0; schedule.groups().len()])?;
    Ok(steps(schedule, &first, backend, checks, Wanted::Workspaces)?.1)
}

/// The steps of a schedule before horizontal fusion, without the copies at the end of a step.
pub struct Segments<C> {
    /// The loop-invariant steps.
    pub prologue: Vec<Step<C>>,
    /// The steps of an iteration by stage; the second is empty if the step is not split.
    pub body: [Vec<Step<C>>; 2],
    /// The steps of an iteration whose outputs are not needed, if that omits work.
    pub carry_only: Option<[Vec<Step<C>>; 2]>,
}

impl<C: LibraryCall> Segments<C> {
    /// Builds the steps, with the groups in `late` in the second stage.
    pub fn new(
        schedule: &Schedule,
        map: &MemoryMap,
        backend: &impl Backend<Call = C>,
        checks: &Checks,
        late: Option<&[bool]>,
    ) -> Result<Self> {
        let by_stage = |by_group: Vec<Vec<Step<C>>>| -> [Vec<Step<C>>; 2] {
            let mut stages = [vec![], vec![]];
            for (group, steps) in (schedule.prologue..).zip(by_group) {
                stages[usize::from(late.is_some_and(|late| late[group]))].extend(steps);
            }
            stages
        };
        let (mut by_group, _) = steps(schedule, map, backend, checks, Wanted::All)?;
        let members = schedule.groups()[schedule.prologue..].iter().flat_map(|group| &group.members);
        let mut carry_only = None;
        if members.into_iter().any(|&id| !schedule.in_every_step(id)) {
            let (by_group, _) = steps(schedule, map, backend, checks, Wanted::EveryStep(&by_group))?;
            carry_only = Some(by_stage(by_group.into_iter().skip(schedule.prologue).collect()));
        }
        let mut body = by_stage(by_group.split_off(schedule.prologue));
        let mut prologue: Vec<Step<C>> = by_group.into_iter().flatten().collect();
        let ([once, in_steps], dialect) = (map.amax_words, backend.dialect());
        let clear_first = |steps: &mut Vec<Step<C>>, raised: Option<(Place, usize)>| {
            let location = steps.first().map(|step| step.location);
            steps.splice(0..0, raised.zip(location).map(|(raised, location)| cleared(dialect, raised, location)));
        };
        clear_first(&mut prologue, once);
        [Some(&mut body), carry_only.as_mut()].into_iter().flatten().for_each(|[body, _]| clear_first(body, in_steps));
        Ok(Segments { prologue, body, carry_only })
    }
}

/// Returns the copies at the end of a step: next values of carried inputs that are not updated in place.
pub fn copies<C: LibraryCall>(
    dialect: Dialect,
    schedule: &Schedule,
    map: &MemoryMap,
    checks: &Checks,
) -> Result<Vec<Step<C>>> {
    let mut copies = vec![];
    for carry in schedule.carries.iter().filter(|carry| !carry.in_place) {
        let line = schedule.nodes[carry.input].location;
        let to = expect(map.nodes[carry.input], "the memory of a carried value", line)?;
        copies.extend(moved(dialect, (schedule, map), &carry.next, to, !checks.all.is_empty())?);
    }
    Ok(copies)
}

/// Returns the steps that compute the initial casts of a schedule.
pub fn initial_casts<C: LibraryCall>(dialect: Dialect, schedule: &Schedule, map: &MemoryMap) -> Result<Vec<Step<C>>> {
    let mut steps = vec![];
    for &InitialCast { cast: state, input, amax: power } in &schedule.initial_casts {
        let (node, line) = (&schedule.nodes[state], schedule.nodes[input].location);
        let place = |id: usize| expect(map.nodes[id], "the memory of a carried cast", line);
        let span = |id: usize| Ok(Span { place: place(id)?, bytes: schedule.nodes[id].bytes() });
        let (from, to, count) = (place(input)?, place(state)?, schedule.nodes[input].count());
        let launch = match (&node.kind, power) {
            (Kind::CarriedCast(CastForm::AmaxExponent), _) => {
                steps.push(cleared(dialect, (to, node.bytes()), line));
                amax_of(dialect, from, to, count)
            }
            (_, Some(power)) => scaled_f16_copy(dialect, from, place(power)?, to, count),
            _ => gathered(
                dialect,
                Elements { place: from, view: &schedule.nodes[input].layout },
                DType::F32,
                to,
                Some(RoundedStorage::Bf16),
            ),
        };
        let reads = [Some(input), power].into_iter().flatten().map(span).collect::<Result<_>>()?;
        steps.push(Step { work: Work::Kernel(launch), reads, writes: vec![span(state)?], location: line });
    }
    Ok(steps)
}

type StepsAndWorkspaces<C> = (Vec<Vec<Step<C>>>, Vec<usize>);

/// The steps to emit for the groups of a schedule.
#[derive(Clone, Copy)]
enum Wanted<'a, C> {
    /// Only the sizes of workspaces.
    Workspaces,
    /// All steps.
    All,
    /// The steps that every iteration must run. The given steps are those of `All`; most groups have no others.
    EveryStep(&'a [Vec<Step<C>>]),
}

/// Returns the steps of all groups, and their workspaces.
fn steps<B: Backend>(
    schedule: &Schedule,
    map: &MemoryMap,
    backend: &B,
    checks: &Checks,
    wanted: Wanted<B::Call>,
) -> Result<StepsAndWorkspaces<B::Call>> {
    let mut updates: HashMap<usize, Vec<usize>> = HashMap::new();
    for carry in schedule.carries.iter().filter(|carry| carry.in_place) {
        let (node, _) = carry.next.at().ok_or_else(|| internal_error("the loop of a carried value"))?;
        updates.entry(node).or_default().push(carry.input);
    }
    let (carry_only, measures) = (matches!(wanted, Wanted::EveryStep(_)), matches!(wanted, Wanted::Workspaces));
    let context = Context {
        dialect: backend.dialect(),
        schedule,
        map,
        updates: &updates,
        checks,
        carry_only,
        measures,
        product: None,
    };
    let (mut all, mut workspaces) = (vec![], vec![]);
    for group in 0..schedule.groups().len() {
        let members = &schedule.groups()[group].members;
        if let Wanted::EveryStep(known) = wanted
            && members.iter().all(|&id| schedule.in_every_step(id))
        {
            all.push(known[group].clone());
            continue;
        }
        let (steps, bytes) = steps_of(context, backend, group, map.workspaces[group])?;
        all.push(steps);
        workspaces.push(bytes);
    }
    Ok((all, workspaces))
}

/// Copies an operand, dense, to another address; if `guarded`, unless a check has failed.
pub fn moved<C: LibraryCall>(
    dialect: Dialect,
    (schedule, map): (&Schedule, &MemoryMap),
    from: &Operand,
    to: Place,
    guarded: bool,
) -> Result<Option<Step<C>>> {
    let (node, view) = from.at().ok_or_else(|| internal_error("the memory of a value to be copied"))?;
    let made = &schedule.nodes[node];
    let place = expect(map.nodes[node], "the memory of a value to be copied", made.location)?;
    let bytes = view.count() * made.dtype.size();
    if bytes == 0 {
        return Ok(None);
    }
    let work = if guarded {
        Work::Kernel(copy_unless_failed(dialect, Elements { place, view }, made.dtype, to))
    } else if made.is_whole(view) && bytes > schedule.costs().min_copy_bytes {
        Work::Copy { from: place, to, bytes }
    } else {
        Work::Kernel(gathered(dialect, Elements { place, view }, made.dtype, to, None))
    };
    let (reads, writes) = (vec![Span { place, bytes: made.bytes() }], vec![Span { place: to, bytes }]);
    Ok(Some(Step { work, reads, writes, location: made.location }))
}

/// Clears the amax words of arrays.
fn cleared<C>(dialect: Dialect, (place, bytes): (Place, usize), location: Line) -> Step<C> {
    let mut code = Code::new(dialect);
    let words = bytes / size_of::<u32>();
    code.each(words);
    let start = code.words(place);
    code.line(format!("{start}[e] = 0;"));
    // Each word is its own span, so writers of one amax do not wait on readers of another.
    let word = |number: usize| Place { offset: place.offset + number * size_of::<u32>(), ..place };
    let writes = (0..words).map(|number| Span { place: word(number), bytes: size_of::<u32>() }).collect();
    Step { work: Work::Kernel(code.launch_each(words)), reads: vec![], writes, location }
}

/// Increments the step number.
pub fn counted_on<C>(dialect: Dialect, place: Place, location: Option<Line>) -> Step<C> {
    let mut code = Code::new(dialect);
    let counter = code.in_out(place, DType::I32, 0);
    code.line(format!("{counter}[0] += 1;"));
    let span = Span { place, bytes: DType::I32.size() };
    let location = location.unwrap_or_else(|| Line::caller());
    Step { work: Work::Kernel(code.launch([1, 1], 1)), reads: vec![span], writes: vec![span], location }
}
