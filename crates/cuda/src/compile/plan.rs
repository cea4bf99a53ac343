//! Compiles a schedule to a GPU plan: steps for every group, memory, and a pipelined loop if it pays.

use crate::codegen::{Context, Elements, Launch, amax_of, copy_unless_failed, gathered, scaled_f16_copy};
use crate::compile::device_asserts::{Check, Checks};
use crate::compile::lower_group::steps_of;
use crate::compile::step::{Span, Step, Work};
use crate::conv::cudnn::Dnn;
use crate::runtime::run::PlannedBytes;
use crate::schedule::horizontal_fusion::fuse_horizontally;
use crate::schedule::loop_pipeline::LoopPipeline;
use crate::schedule::loop_stages::StagedLoop;
use crate::target::{CudaTarget, NO_ALIAS_BYTES};
use bilevel_graph::{DType, Error, ErrorKind, Program, Result};
use bilevel_plan::{
    CastForm, InitialCast, Kind, MemoryMap, Operand, Place, Region, Schedule, channels_last, expect, internal_error,
};
use std::collections::HashMap;

/// Everything a run needs except the memory itself.
pub(crate) struct Plan {
    /// The loop-invariant steps: run if their inputs have changed.
    pub prologue: Vec<Step>,
    /// Number of inputs of the program.
    pub inputs: usize,
    /// The inputs that the prologue reads.
    pub prologue_inputs: Vec<usize>,
    /// The casts of carried inputs at the start of a run.
    pub initial_casts: Vec<Step>,
    /// One step of the loop.
    pub body: Vec<Step>,
    /// A step whose outputs are not needed, if that omits work.
    pub carry_only: Option<Vec<Step>>,
    /// After the last step: copies of outputs that were not computed in their buffers.
    pub finish: Vec<Step>,
    /// The address of the step number; the body increments it.
    pub counter: Option<Place>,
    /// Constants written once: address, type, values.
    pub tables: Vec<(Place, DType, Vec<f64>)>,
    /// The operations that fail if an index is out of range.
    pub checks: Vec<Check>,
    /// Bytes of inputs and outputs, of persistent memory, and of the arena.
    pub bound_bytes: usize,
    pub persistent_bytes: usize,
    pub arena_bytes: usize,
    /// The peak of live bytes.
    pub memory_lower_bound: usize,
    /// The software pipeline of the loop, if it pays.
    pub pipeline: Option<LoopPipeline>,
    /// The split into stages, if the late one can overlap with the next early one.
    pub staged: Option<StagedLoop>,
}

/// The maximum number of blocks of a grid.
const MAX_BLOCKS: u32 = i32::MAX as u32;

/// Plans a valid program, with convolutions by cuDNN if given, and with fused attention if blocks have enough shared
/// memory.
pub(crate) fn plan(program: &Program, dnn: Option<&Dnn>, fuses_attention: bool) -> Result<Plan> {
    plan_with(program, dnn, fuses_attention, MemoryBudget::Relaxed)
}

/// The memory that a plan may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryBudget {
    /// As little as possible: steps run sequentially.
    Minimal,
    /// More if that lets steps overlap.
    Relaxed,
}

/// As [`plan`], within a memory budget.
pub(crate) fn plan_with(
    program: &Program,
    dnn: Option<&Dnn>,
    fuses_attention: bool,
    space: MemoryBudget,
) -> Result<Plan> {
    let rewritten = dnn.and_then(|_| channels_last(program));
    let target = CudaTarget { channels_last: rewritten.is_some(), fuses_attention };
    let program = rewritten.as_ref().unwrap_or(program);
    let schedule = Schedule::new(program, &target)?;
    let groups = schedule.groups().len();
    // A dry run finds the workspaces; a second run assigns them.
    let first = schedule.lay_out(&vec![0; groups])?;
    let checks = Checks::of(&schedule);
    let (_, workspaces) = steps(&schedule, &first, dnn, &checks, Wanted::Workspaces)?;
    let mut pipelined = None;
    if space == MemoryBudget::Relaxed && LoopPipeline::may_be_of(&schedule) {
        let map = schedule.lay_out_pipelined(&workspaces)?;
        if LoopPipeline::fits(&map) {
            let segments = PlanSegments::new(&schedule, &map, dnn, &checks, None)?;
            let pipeline = segments.pipeline(&schedule, &map, &checks)?;
            pipelined = pipeline.map(|pipeline| (map, segments, Some(pipeline)));
        }
    }
    let (map, segments, pipeline, staged) = match pipelined {
        Some((map, segments, pipeline)) => (map, segments, pipeline, None),
        None => {
            let map = schedule.lay_out(&workspaces)?;
            let mut staged = None;
            if space == MemoryBudget::Relaxed
                && let Some(late) = schedule.late_groups().filter(|_| !checks.are_in_loop(&schedule))
            {
                let in_stages = schedule.lay_out_in_stages(&workspaces, &late)?;
                if StagedLoop::fits(&map, &in_stages) {
                    let segments = PlanSegments::new(&schedule, &in_stages, dnn, &checks, Some(&late))?;
                    staged = StagedLoop::new(&in_stages, &segments.body).map(|found| (in_stages, segments, found));
                }
            }
            match staged {
                Some((map, segments, staged)) => (map, segments, None, Some(staged)),
                None => {
                    let segments = PlanSegments::new(&schedule, &map, dnn, &checks, None)?;
                    (map, segments, None, None)
                }
            }
        }
    };
    let PlanSegments { prologue, mut body, mut carry_only } = segments;
    let copies = copies(&schedule, &map, &checks)?;
    for [early, late] in [Some(&mut body), carry_only.as_mut()].into_iter().flatten() {
        let location = early.first().map(|step| step.location);
        let counted = map.counter.map(|place| counted_on(place, location));
        match &staged {
            None => {
                early.extend(copies.iter().cloned());
                early.extend(counted);
            }
            Some(staged) => {
                early.extend(counted);
                late.iter_mut().for_each(|step| *step = staged.with_late_counter(step));
                late.extend(copies.iter().cloned());
                late.extend(staged.late_counter().map(|place| counted_on(place, location)));
            }
        }
    }
    let prologue = fuse_horizontally(prologue);
    let in_order = |stages: [Vec<Step>; 2]| {
        let [early, late] = stages.map(fuse_horizontally);
        let split = early.len();
        (early.into_iter().chain(late).collect::<Vec<Step>>(), split)
    };
    let (body, split) = in_order(body);
    let (carry_only, carry_only_split) = carry_only.map(in_order).unzip();
    let staged = staged.map(|staged| staged.split_at(split, carry_only_split));
    let mut finish = vec![];
    for &number in &map.outputs_to_copy {
        let to = Place { region: Region::Output(number), offset: 0 };
        finish.extend(moved(&schedule, &map, &schedule.outputs[number], to, false)?);
    }
    let initial_casts = fuse_horizontally(initial_casts(&schedule, &map)?);
    for step in prologue.iter().chain(&initial_casts).chain(&body).chain(&finish) {
        if let Work::Kernel(launch) = &step.work
            && launch.grid[0] > MAX_BLOCKS
        {
            let what = "an operation on more elements than a GPU can start threads for; work on smaller parts".into();
            return Err(Error::new(ErrorKind::Unsupported { what }).at(step.location));
        }
    }
    Ok(Plan {
        prologue,
        inputs: program.inputs.len(),
        prologue_inputs: schedule.prologue_inputs(),
        initial_casts,
        body,
        carry_only,
        finish,
        counter: map.counter,
        tables: map.tables(&schedule).map(|(place, dtype, values)| (place, dtype, values.to_vec())).collect(),
        checks: checks.all,
        bound_bytes: map.bound_bytes,
        persistent_bytes: match (&pipeline, &staged) {
            (Some(pipeline), _) => pipeline.persistent_bytes,
            (_, Some(staged)) => staged.persistent_bytes,
            _ => map.persistent_bytes,
        },
        arena_bytes: pipeline.as_ref().map_or(map.arena_bytes, |pipeline| pipeline.arena_bytes),
        // Steps in flight are live at the same time.
        memory_lower_bound: map.lower_bound
            + pipeline.as_ref().map_or(0, |pipeline| pipeline.arena_bytes - pipeline.arena_stride),
        pipeline,
        staged,
    })
}

/// The steps of a schedule before horizontal fusion, without the copies at the end of a step.
struct PlanSegments {
    prologue: Vec<Step>,
    /// By stage; the second is empty if the step is not split.
    body: [Vec<Step>; 2],
    carry_only: Option<[Vec<Step>; 2]>,
}

impl PlanSegments {
    fn new(
        schedule: &Schedule,
        map: &MemoryMap,
        dnn: Option<&Dnn>,
        checks: &Checks,
        late: Option<&[bool]>,
    ) -> Result<Self> {
        let by_stage = |by_group: Vec<Vec<Step>>| -> [Vec<Step>; 2] {
            let mut stages = [vec![], vec![]];
            for (group, steps) in (schedule.prologue..).zip(by_group) {
                stages[usize::from(late.is_some_and(|late| late[group]))].extend(steps);
            }
            stages
        };
        let (mut by_group, _) = steps(schedule, map, dnn, checks, Wanted::All)?;
        let members = schedule.groups()[schedule.prologue..].iter().flat_map(|group| &group.members);
        let mut carry_only = None;
        if members.into_iter().any(|&id| !schedule.in_every_step(id)) {
            let (by_group, _) = steps(schedule, map, dnn, checks, Wanted::EveryStep(&by_group))?;
            carry_only = Some(by_stage(by_group.into_iter().skip(schedule.prologue).collect()));
        }
        let mut body = by_stage(by_group.split_off(schedule.prologue));
        let mut prologue: Vec<Step> = by_group.into_iter().flatten().collect();
        let [once, in_steps] = map.amax_words;
        let clear_first = |steps: &mut Vec<Step>, raised: Option<(Place, usize)>| {
            let location = steps.first().map(|step| step.location);
            steps.splice(0..0, raised.zip(location).map(|(raised, location)| cleared(raised, location)));
        };
        clear_first(&mut prologue, once);
        [Some(&mut body), carry_only.as_mut()].into_iter().flatten().for_each(|[body, _]| clear_first(body, in_steps));
        Ok(PlanSegments { prologue, body, carry_only })
    }

    /// Builds a software pipeline, if it pays.
    fn pipeline(&self, schedule: &Schedule, map: &MemoryMap, checks: &Checks) -> Result<Option<LoopPipeline>> {
        let copies = copies(schedule, map, checks)?;
        let ([full, _], carry_only) = (&self.body, self.carry_only.as_ref().map(|[carry_only, _]| &carry_only[..]));
        Ok(LoopPipeline::new(schedule, map, (full, carry_only), copies, !checks.all.is_empty()))
    }
}

/// Returns the copies at the end of a step: next values of carried inputs that are not updated in place.
fn copies(schedule: &Schedule, map: &MemoryMap, checks: &Checks) -> Result<Vec<Step>> {
    let mut copies = vec![];
    for carry in schedule.carries.iter().filter(|carry| !carry.in_place) {
        let line = schedule.nodes[carry.input].location;
        let to = expect(map.nodes[carry.input], "the memory of a carried value", line)?;
        copies.extend(moved(schedule, map, &carry.next, to, !checks.all.is_empty())?);
    }
    Ok(copies)
}

impl Plan {
    /// Returns the planned memory.
    pub fn bytes(&self) -> PlannedBytes {
        let Plan {
            bound_bytes: bound,
            persistent_bytes: kept,
            arena_bytes: arena,
            memory_lower_bound: lower_bound,
            ..
        } = *self;
        PlannedBytes { bound, kept, arena, lower_bound }
    }

    /// Returns all steps.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        let loops = self.body.iter().chain(self.carry_only.iter().flatten());
        let chains = self.pipeline.iter().flat_map(LoopPipeline::steps);
        self.prologue.iter().chain(&self.initial_casts).chain(loops).chain(&self.finish).chain(chains)
    }

    /// Returns the kernels of all steps.
    pub fn kernels(&self) -> impl Iterator<Item = &Launch> {
        self.steps().filter_map(|step| if let Work::Kernel(launch) = &step.work { Some(launch) } else { None })
    }
}

/// Returns the steps that compute the initial casts of a schedule.
fn initial_casts(schedule: &Schedule, map: &MemoryMap) -> Result<Vec<Step>> {
    let mut steps = vec![];
    for &InitialCast { cast: state, input, amax: power } in &schedule.initial_casts {
        let (node, line) = (&schedule.nodes[state], schedule.nodes[input].location);
        let place = |id: usize| expect(map.nodes[id], "the memory of a carried cast", line);
        let span = |id: usize| Ok(Span { place: place(id)?, bytes: schedule.nodes[id].bytes() });
        let (from, to, count) = (place(input)?, place(state)?, schedule.nodes[input].count());
        let launch = match (&node.kind, power) {
            (Kind::CarriedCast(CastForm::AmaxExponent), _) => {
                steps.push(cleared((to, node.bytes()), line));
                amax_of(from, to, count)
            }
            (_, Some(power)) => scaled_f16_copy(from, place(power)?, to, count),
            _ => gathered(Elements { place: from, view: &schedule.nodes[input].layout }, DType::F32, to, Some("bf16")),
        };
        let reads = [Some(input), power].into_iter().flatten().map(span).collect::<Result<_>>()?;
        steps.push(Step { work: Work::Kernel(launch), reads, writes: vec![span(state)?], location: line });
    }
    Ok(steps)
}

type StepsAndWorkspaces = (Vec<Vec<Step>>, Vec<usize>);

/// What to emit for the groups of a schedule.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// Only the sizes of workspaces.
    Workspaces,
    /// All steps.
    All,
    /// The steps that every iteration must run. The given steps are those of `All`; most groups have no others.
    EveryStep(&'a [Vec<Step>]),
}

/// Returns the steps of all groups, and their workspaces.
fn steps(
    schedule: &Schedule,
    map: &MemoryMap,
    dnn: Option<&Dnn>,
    checks: &Checks,
    wanted: Wanted,
) -> Result<StepsAndWorkspaces> {
    let mut updates: HashMap<usize, Vec<usize>> = HashMap::new();
    for carry in schedule.carries.iter().filter(|carry| carry.in_place) {
        let (node, _) = carry.next.at().ok_or_else(|| internal_error("the loop of a carried value"))?;
        updates.entry(node).or_default().push(carry.input);
    }
    let (carry_only, measures) = (matches!(wanted, Wanted::EveryStep(_)), matches!(wanted, Wanted::Workspaces));
    let context = Context { schedule, map, updates: &updates, checks, carry_only, measures };
    let (mut all, mut workspaces) = (vec![], vec![]);
    for group in 0..schedule.groups().len() {
        let members = &schedule.groups()[group].members;
        if let Wanted::EveryStep(known) = wanted
            && members.iter().all(|&id| schedule.in_every_step(id))
        {
            all.push(known[group].clone());
            continue;
        }
        let (steps, bytes) = steps_of(context, dnn, group, map.workspaces[group])?;
        all.push(steps);
        workspaces.push(bytes);
    }
    Ok((all, workspaces))
}

/// Copies an operand, dense, to another address; if `guarded`, unless a check has failed.
fn moved(schedule: &Schedule, map: &MemoryMap, from: &Operand, to: Place, guarded: bool) -> Result<Option<Step>> {
    let (node, view) = from.at().ok_or_else(|| internal_error("the memory of a value to be copied"))?;
    let made = &schedule.nodes[node];
    let place = expect(map.nodes[node], "the memory of a value to be copied", made.location)?;
    let bytes = view.count() * made.dtype.size();
    if bytes == 0 {
        return Ok(None);
    }
    let work = if guarded {
        Work::Kernel(copy_unless_failed(Elements { place, view }, made.dtype, to))
    } else if made.is_whole(view) && bytes > NO_ALIAS_BYTES {
        Work::Copy { from: place, to, bytes }
    } else {
        Work::Kernel(gathered(Elements { place, view }, made.dtype, to, None))
    };
    let (reads, writes) = (vec![Span { place, bytes: made.bytes() }], vec![Span { place: to, bytes }]);
    Ok(Some(Step { work, reads, writes, location: made.location }))
}

/// Clears the amax words of arrays.
fn cleared((place, bytes): (Place, usize), location: &'static std::panic::Location<'static>) -> Step {
    let mut code = crate::codegen::Code::default();
    let words = bytes / size_of::<u32>();
    code.each(words);
    let start = code.raw_pointer(place, 0, "u32");
    code.line(format!("{start}[e] = 0;"));
    // Each word is its own span, so writers of one amax do not wait on readers of another.
    let word = |number: usize| Place { offset: place.offset + number * size_of::<u32>(), ..place };
    let writes = (0..words).map(|number| Span { place: word(number), bytes: size_of::<u32>() }).collect();
    Step { work: Work::Kernel(code.launch_each(words)), reads: vec![], writes, location }
}

/// Increments the step number.
fn counted_on(place: Place, location: Option<&'static std::panic::Location<'static>>) -> Step {
    let mut code = crate::codegen::Code::default();
    let counter = code.pointer(place, DType::I32, 0);
    code.line(format!("{counter}[0] += 1;"));
    let span = Span { place, bytes: DType::I32.size() };
    let location = location.unwrap_or_else(|| std::panic::Location::caller());
    Step { work: Work::Kernel(code.launch([1, 1], 1)), reads: vec![span], writes: vec![span], location }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::Arg;
    use bilevel_graph::conformance::{Size, random_program, varied_program};
    use bilevel_graph::{Graph, Precision, gradient_or_zeros, nn};

    #[test]
    fn a_row_of_a_carried_table_is_changed_by_threads_for_that_row_alone() {
        let g = Graph::new();
        let (table, at) = (g.input("table", [1000, 300], DType::F32), g.input("at", [], DType::I32));
        let new = table.take(at).sin();
        let next = table + (new - table.take(at)).scatter_add(at, 0, 1000);
        let plan = plan(&Program::builder(&g).carry(table, next).build().unwrap(), None, true).unwrap();
        assert!(plan.steps().all(|step| matches!(step.work, Work::Kernel(_))), "nothing is copied");
        let threads = plan.kernels().map(|launch| launch.grid[0] * launch.grid[1] * launch.block).max().unwrap();
        assert!((300..=512).contains(&threads), "{threads}");
        assert!(plan.persistent_bytes + plan.arena_bytes < 3000, "no memory for another table");
    }

    #[test]
    fn the_second_pass_of_column_sums_runs_concurrently_with_readers_of_the_rows() {
        let g = Graph::new();
        let x = g.input("x", [4096, 768], DType::F32);
        let y = (x - x.max([1]).broadcast([0], [4096, 768])).exp();
        let builder = Program::builder(&g).output("rows", y).output("sums", y.sum([0]));
        let plan = plan(&builder.build().unwrap(), None, true).unwrap();
        let [rows, fold] = &plan.body[..] else { panic!("two kernels") };
        let writes = |step: &Step, output| step.writes.iter().any(|span| span.place.region == Region::Output(output));
        assert!(writes(rows, 0) && !writes(rows, 1) && writes(fold, 1) && !writes(fold, 0));
        assert!(rows.writes.iter().any(|span| fold.writes.iter().any(|other| other.meets(span))), "by the workspace");
    }

    #[test]
    fn overlapping_max_pools_have_no_check_and_no_kernel_reads_or_writes_the_record_of_failures() {
        let g = Graph::new();
        let x = g.input("x", [2, 3, 9, 9], DType::F32);
        let pool = nn::Pool2d { stride: [2, 2], padding: [1, 1], ..nn::Pool2d::of([3, 3]) };
        let loss = nn::max_pool2d(x, pool).square().sum_all();
        let slope = gradient_or_zeros(loss, &[x]).unwrap()[0];
        let program = Program::builder(&g).output("loss", loss).carry(x, x - slope).build().unwrap();
        let plan = plan(&program, None, true).unwrap();
        assert!(plan.kernels().any(|launch| launch.source.contains("gather_row<")), "there is a gather");
        assert!(plan.checks.is_empty());
        assert!(plan.kernels().all(|launch| !launch.args.contains(&Arg::Error)));
    }

    /// Every operation has a word of its own in the record: the 1025th is not mistaken for the first.
    #[test]
    fn each_of_thousands_of_checks_reports_under_its_own_number() {
        let g = Graph::new();
        let at = g.input("at", [2], DType::I32);
        let mut builder = Program::builder(&g);
        const TABLES: usize = 1200;
        for rows in 0..TABLES {
            let table = g.input(format!("table {rows}"), [10 + rows, 9], DType::F32);
            builder = builder.output(rows.to_string(), table.take(at));
        }
        let plan = plan(&builder.build().unwrap(), None, true).unwrap();
        assert_eq!(plan.checks.len(), TABLES);
        let mut found = vec![0; TABLES];
        for launch in plan.kernels().filter(|launch| launch.can_fail) {
            // The arguments of each part: blocks, threads, table, indices, result, k, n, row length, record, operation.
            let words = launch.args.len() / launch.parts as usize;
            for part in launch.args.chunks(words) {
                let [.., Arg::Count(n), Arg::Count(_), Arg::Error, Arg::Count(number)] = part else {
                    panic!("{part:?}")
                };
                assert_eq!(plan.checks[*number as usize].of.limit as u64, *n);
                found[*number as usize] += 1;
            }
        }
        assert!(found.iter().all(|&times| times == 1));
    }

    /// A check of the same indices runs before rows are added in place.
    #[test]
    fn rows_are_added_in_place_only_after_all_their_indices_were_checked() {
        let g = Graph::new();
        let (table, at) = (g.input("table", [1000, 300], DType::F32), g.input("at", [7], DType::I32));
        let next = table + table.take(at).sin().scatter_add(at, 0, 1000);
        let builder = Program::builder(&g).carry(table, next).carry(at, at.reverse([0]));
        let plan = plan(&builder.build().unwrap(), None, true).unwrap();
        let reporting: Vec<usize> = (0..plan.body.len()).filter(|&number| plan.body[number].work.can_fail()).collect();
        let heeding: Vec<usize> =
            (0..plan.body.len()).filter(|&number| plan.body[number].work.skips_after_failure()).collect();
        let writes_table = |step: &Step| step.writes.iter().any(|span| span.place.region == Region::Input(0));
        assert!(heeding.iter().any(|&number| writes_table(&plan.body[number])), "rows are added in place");
        assert_eq!(plan.checks.len(), 2, "of the gather and of the scatter");
        assert_eq!(reporting.len(), 2, "each is checked once");
        let dependencies = crate::schedule::streams::dependencies(&plan.body);
        for adding in heeding {
            let (mut before, mut next) = (vec![adding], 0);
            while next < before.len() {
                before.extend(&dependencies[before[next]]);
                next += 1;
            }
            assert!(reporting.iter().all(|number| before.contains(number)), "{dependencies:?}");
        }
    }

    /// Steps run concurrently unless one declares to write memory that the other declares to access.
    #[test]
    fn every_address_of_a_step_is_in_a_span_it_declares() {
        let mut found = 0;
        for number in 0..260 {
            let seed = number / 2;
            let graph = if number % 2 == 0 { Graph::new() } else { Graph::without_simplification() };
            let case = match seed % 3 {
                0 => random_program(seed, &graph, DType::F32, Size::small),
                _ => varied_program(seed, &graph, DType::F32, Size::small),
            };
            let case = case.unwrap();
            let precision = if seed % 5 == 0 { Precision::Bf16 } else { Precision::Full };
            let plan = plan(&case.program.with_precision(precision), None, true).unwrap();
            for step in plan.steps() {
                // A kernel that reads no workspace may be given one without an address.
                let reads_none = matches!(&step.work, Work::Kernel(launch) if launch.args.contains(&Arg::Count(0)));
                for address in step.work.addresses() {
                    let Arg::Memory(place, bytes) = address else { continue };
                    found += 1;
                    // A reversed view may start anywhere and end before its start; one without elements is never used.
                    let said = step.reads.iter().chain(&step.writes).any(|span| span.holds(&address));
                    let has_no_place =
                        reads_none && (place.region, place.offset as isize + bytes) == (Region::Arena, 0);
                    assert!(said || has_no_place, "{}: {address:?} of {step:?}", case.name);
                }
            }
        }
        assert!(found > 10_000, "{found} addresses");
    }

    #[test]
    fn a_bounded_value_between_two_fp16_products_is_written_as_fp16_by_its_loop() {
        let (rows, narrow, wide) = (1600, 768, 3072);
        let g = Graph::new();
        let shapes = [vec![narrow], vec![narrow], vec![narrow, wide], vec![wide], vec![wide, narrow], vec![narrow]];
        let names = ["gain", "offset", "first", "bias", "second", "last"];
        let weights: Vec<_> =
            names.iter().zip(&shapes).map(|(name, shape)| g.input(*name, shape, DType::F32)).collect();
        let x = g.input("x", [rows, narrow], DType::F32);
        let hidden = nn::linear(nn::layer_norm(x, weights[0], weights[1], 1e-6), weights[2], weights[3]);
        let loss = (nn::linear(nn::gelu(hidden), weights[4], weights[5]) - x).square().mean_all();
        let mut builder = Program::builder(&g);
        for (&weight, slope) in weights.iter().zip(gradient_or_zeros(loss, &weights).unwrap()) {
            builder = builder.carry(weight, weight - slope * 0.1);
        }
        let program = builder.build().unwrap().with_precision(Precision::Tf32);
        let plan = plan(&program, None, true).unwrap();
        let kernels: Vec<(&Step, &str)> = plan
            .body
            .iter()
            .filter_map(|step| match &step.work {
                Work::Kernel(launch) => Some((step, &launch.source[..])),
                _ => None,
            })
            .collect();
        // The GELU, and its gradient with partial sums for the bias gradient: neither computes an amax or stores 32
        // bits.
        let with_error_function = kernels.iter().filter(|(_, source)| source.contains("one_plus_erf("));
        for (step, source) in with_error_function.clone() {
            assert!(source.contains("scaled_to_f16(") && !source.contains("atomic_amax("), "{source}");
            assert_eq!(step.writes[0].bytes, 2 * rows * wide);
        }
        assert_eq!(with_error_function.count(), 2);
        let in_four_bytes = |step: &&Step| step.writes.iter().any(|span| span.bytes == 4 * rows * wide);
        assert!(plan.body.iter().filter(in_four_bytes).all(|step| matches!(step.work, Work::Gemm(_))));
        // The amax of both rows of the norm, of the bias, of both weights and of the gradient of the loss.
        assert_eq!(kernels.iter().filter(|(_, source)| source.contains("atomic_amax(")).count(), 5);
        assert_eq!(kernels.len(), 19);
    }
}
