//! Plans: the steps of a program with its memory, and a pipelined loop if that pays.

use crate::codegen::Launch;
use crate::codegen::renderer::Dialect;
use crate::compile::backend::Backend;
use crate::compile::device_asserts::{Check, Checks};
use crate::compile::segments::{Segments, copies, counted_on, initial_casts, moved, workspaces};
use crate::compile::step::{LibraryCall, Step, Work};
use crate::schedule::horizontal_fusion::fuse_horizontally;
use crate::schedule::pipeline::{Rotatable, SoftwarePipeline};
use bilevel_graph::{DType, Error, ErrorKind, Program, Result};
use bilevel_plan::{CostModel, MemoryMap, Place, Region, Schedule, Target};

/// Everything that a run needs except the memory itself.
pub struct Plan<C> {
    /// The loop-invariant steps: run if their inputs have changed.
    pub prologue: Vec<Step<C>>,
    /// Number of inputs of the program.
    pub inputs: usize,
    /// The inputs that the prologue reads.
    pub prologue_inputs: Vec<usize>,
    /// The casts of carried inputs at the start of a run.
    pub initial_casts: Vec<Step<C>>,
    /// One step of the loop.
    pub body: Vec<Step<C>>,
    /// A step whose outputs are not needed, if that omits work.
    pub carry_only: Option<Vec<Step<C>>>,
    /// After the last step: copies of outputs that were not computed in their buffers.
    pub finish: Vec<Step<C>>,
    /// The address of the step number; the body increments it.
    pub counter: Option<Place>,
    /// Constants written once: address, type, values.
    pub tables: Vec<(Place, DType, Vec<f64>)>,
    /// The operations that fail if an index is out of range.
    pub checks: Vec<Check>,
    /// Bytes of inputs and outputs.
    pub bound_bytes: usize,
    /// Bytes of persistent memory.
    pub persistent_bytes: usize,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// The peak of live bytes.
    pub memory_lower_bound: usize,
    /// The software pipeline of the loop, if it pays.
    pub pipeline: Option<SoftwarePipeline<C>>,
}

/// The memory that a plan may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBudget {
    /// As little as possible: steps run sequentially.
    Minimal,
    /// More if that lets steps overlap.
    Relaxed,
}

/// The planned memory of a program, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBytes {
    /// Inputs and outputs, which other programs may share.
    pub bound: usize,
    /// Persistent memory.
    pub kept: usize,
    /// The arena, which programs share in turn.
    pub arena: usize,
    /// The peak of live bytes, with inputs and outputs: a lower bound of any layout.
    pub lower_bound: usize,
}

/// The maximum number of blocks of a grid.
const MAX_BLOCKS: u32 = i32::MAX as u32;

/// The steps of a loop in memory: those of one iteration, in two stages if it is pipelined so.
struct Loop<C> {
    map: MemoryMap,
    segments: Segments<C>,
    pipeline: Option<SoftwarePipeline<C>>,
}

/// Plans a valid program for a target within a memory budget.
pub fn plan<B: Backend>(
    program: &Program,
    target: &Target,
    backend: &B,
    budget: MemoryBudget,
) -> Result<Plan<B::Call>> {
    let schedule = Schedule::new(program, target)?;
    let (checks, dialect, costs) = (Checks::of(&schedule), backend.dialect(), &target.costs);
    let Loop { map, segments, pipeline } = planned_loop(&schedule, target, backend, &checks, budget)?;
    let Segments { prologue, mut body, mut carry_only } = segments;
    let copies = copies(dialect, &schedule, &map, &checks)?;
    for stages in [Some(&mut body), carry_only.as_mut()].into_iter().flatten() {
        end_of_step(dialect, &map, pipeline.as_ref(), &copies, stages);
    }
    let prologue = fuse_horizontally(costs, prologue);
    let in_order = |stages: [Vec<Step<B::Call>>; 2]| {
        let [early, late] = stages.map(|steps| fuse_horizontally(costs, steps));
        let split = early.len();
        (early.into_iter().chain(late).collect::<Vec<_>>(), split)
    };
    let (body, split) = in_order(body);
    let (carry_only, carry_only_split) = carry_only.map(in_order).unzip();
    let pipeline = pipeline.map(|pipeline| pipeline.split_at(split, carry_only_split));
    let mut finish = vec![];
    for &number in &map.outputs_to_copy {
        let to = Place { region: Region::Output(number), offset: 0 };
        finish.extend(moved(dialect, (&schedule, &map), &schedule.outputs[number], to, false)?);
    }
    let plan = Plan {
        prologue,
        inputs: program.inputs.len(),
        prologue_inputs: schedule.prologue_inputs(),
        initial_casts: fuse_horizontally(costs, initial_casts(dialect, &schedule, &map)?),
        body,
        carry_only,
        finish,
        counter: map.counter,
        tables: map.tables(&schedule).map(|(place, dtype, values)| (place, dtype, values.to_vec())).collect(),
        checks: checks.all,
        bound_bytes: map.bound_bytes,
        persistent_bytes: pipeline.as_ref().map_or(map.persistent_bytes, |pipeline| pipeline.persistent_bytes),
        arena_bytes: pipeline.as_ref().map_or(map.arena_bytes, |pipeline| pipeline.arena_bytes),
        // Iterations in flight are live at the same time.
        memory_lower_bound: map.lower_bound + pipeline.as_ref().map_or(0, SoftwarePipeline::extra_bytes),
        pipeline,
    };
    plan.check_grids().map(|()| plan)
}

/// Builds the steps of a loop: pipelined by rotation, or in stages, or neither.
fn planned_loop<B: Backend>(
    schedule: &Schedule,
    target: &Target,
    backend: &B,
    checks: &Checks,
    budget: MemoryBudget,
) -> Result<Loop<B::Call>> {
    type Pipeline<C> = SoftwarePipeline<C>;
    // A dry run finds the workspaces; a second run assigns them.
    let (workspaces, costs) = (workspaces(schedule, backend, checks)?, target.costs);
    let relaxed = budget == MemoryBudget::Relaxed;
    if relaxed && Pipeline::<B::Call>::may_rotate(schedule) {
        let map = schedule.lay_out_pipelined(&workspaces)?;
        if Pipeline::<B::Call>::fits_rotating(&map) {
            let segments = Segments::new(schedule, &map, backend, checks, None)?;
            let pipeline = rotating(backend.dialect(), costs, (schedule, &map), checks, &segments)?;
            return Ok(Loop { map, segments, pipeline });
        }
    }
    let map = schedule.lay_out(&workspaces)?;
    if relaxed && let Some(late) = schedule.late_groups().filter(|_| !checks.are_in_loop(schedule)) {
        let in_stages = schedule.lay_out_in_stages(&workspaces, &late)?;
        if Pipeline::<B::Call>::fits_in_stages(&map, &in_stages) {
            let segments = Segments::new(schedule, &in_stages, backend, checks, Some(&late))?;
            if let Some(pipeline) = Pipeline::of_stages(costs, &in_stages, &segments.body) {
                return Ok(Loop { map: in_stages, segments, pipeline: Some(pipeline) });
            }
        }
    }
    let segments = Segments::new(schedule, &map, backend, checks, None)?;
    Ok(Loop { map, segments, pipeline: None })
}

/// Builds a pipeline of whole iterations, if it pays.
fn rotating<C: LibraryCall>(
    dialect: Dialect,
    costs: CostModel,
    (schedule, map): (&Schedule, &MemoryMap),
    checks: &Checks,
    segments: &Segments<C>,
) -> Result<Option<SoftwarePipeline<C>>> {
    let copies = copies(dialect, schedule, map, checks)?;
    let ([full, _], carry_only) = (&segments.body, segments.carry_only.as_ref().map(|[carry_only, _]| &carry_only[..]));
    let can_fail = !checks.all.is_empty();
    Ok(SoftwarePipeline::rotating(Rotatable { dialect, costs, schedule, map, full, carry_only, copies, can_fail }))
}

/// Adds the copies at the end of a step, and what counts steps: each of two stages counts by itself.
fn end_of_step<C: LibraryCall>(
    dialect: Dialect,
    map: &MemoryMap,
    pipeline: Option<&SoftwarePipeline<C>>,
    copies: &[Step<C>],
    [early, late]: &mut [Vec<Step<C>>; 2],
) {
    let location = early.first().map(|step| step.location);
    let counted = |place: Option<Place>| place.map(|place| counted_on(dialect, place, location));
    match pipeline.filter(|pipeline| !pipeline.undoes_failed_windows()) {
        None => {
            early.extend(copies.iter().cloned());
            early.extend(counted(map.counter));
        }
        Some(staged) => {
            early.extend(counted(map.counter));
            late.iter_mut().for_each(|step| *step = staged.with_late_counter(step));
            late.extend(copies.iter().cloned());
            late.extend(counted(staged.late_counter()));
        }
    }
}

impl<C: LibraryCall> Plan<C> {
    /// Returns the planned memory.
    pub fn bytes(&self) -> PlannedBytes {
        PlannedBytes {
            bound: self.bound_bytes,
            kept: self.persistent_bytes,
            arena: self.arena_bytes,
            lower_bound: self.memory_lower_bound,
        }
    }

    /// Returns all steps.
    pub fn steps(&self) -> impl Iterator<Item = &Step<C>> {
        let loops = self.body.iter().chain(self.carry_only.iter().flatten());
        let pipelined = self.pipeline.iter().filter_map(SoftwarePipeline::own_steps).flatten().flatten();
        self.prologue.iter().chain(&self.initial_casts).chain(loops).chain(&self.finish).chain(pipelined)
    }

    /// Returns the kernels of all steps.
    pub fn kernels(&self) -> impl Iterator<Item = &Launch> {
        self.steps().filter_map(|step| if let Work::Kernel(launch) = &step.work { Some(launch) } else { None })
    }

    fn check_grids(&self) -> Result<()> {
        let loops = self.prologue.iter().chain(&self.initial_casts).chain(&self.body).chain(&self.finish);
        for step in loops {
            if let Work::Kernel(launch) = &step.work
                && launch.grid[0] > MAX_BLOCKS
            {
                let what = "an operation on more elements than a GPU can start threads for; work on smaller parts";
                return Err(Error::new(ErrorKind::Unsupported { what: what.into() }).at(step.location));
            }
        }
        Ok(())
    }
}
