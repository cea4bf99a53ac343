//! Plans: the steps of a program with its memory, and a pipelined loop if that pays.

use crate::codegen::Launch;
use crate::codegen::renderer::Dialect;
use crate::compile::backend::Backend;
use crate::compile::device_asserts::{Check, Checks};
use crate::compile::dump::PlanSteps;
use crate::compile::passes::{GPU_PASSES, GpuPass, GpuPipeline};
use crate::compile::segments::{Segments, copies, counted_on, initial_casts, moved, workspaces};
use crate::compile::step::{LibraryCall, Step, Work};
use crate::schedule::horizontal_fusion::fuse_horizontally;
use crate::schedule::pipeline::{Rotatable, SoftwarePipeline};
use bilevel_graph::{DType, Error, ErrorKind, Program, Result};
use bilevel_plan::{CostModel, MemoryMap, Pass, Place, Region, Schedule, Snapshot, Target, internal_error};

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
    /// The number of streams for the steps of an iteration.
    pub streams: usize,
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
struct LaidOutLoop<C> {
    map: MemoryMap,
    segments: Segments<C>,
    pipeline: Option<SoftwarePipeline<C>>,
}

/// A callback for the result of each pass.
pub type Show<'a> = &'a mut dyn FnMut(&'static Pass, &dyn Snapshot);

/// Plans a valid program for a target.
pub fn plan<B: Backend>(
    program: &Program,
    target: &Target,
    backend: &B,
    passes: &GpuPipeline,
) -> Result<Plan<B::Call>> {
    let schedule = passes.schedule().run(program, target)?;
    draft(&schedule, backend, passes, None)?.finish(program.inputs.len())
}

/// As [`plan`]; shows the result of every pass that runs, from the first one on programs to the last one on steps.
pub fn observe<B: Backend>(
    program: &Program,
    target: &Target,
    backend: &B,
    passes: &GpuPipeline,
    show: Show,
) -> Result<Plan<B::Call>> {
    let schedule = passes.schedule().observe(program, target, &mut *show)?;
    draft(&schedule, backend, passes, Some(show))?.finish(program.inputs.len())
}

/// Runs the passes on a schedule.
fn draft<'a, B: Backend>(
    schedule: &'a Schedule,
    backend: &'a B,
    passes: &'a GpuPipeline,
    mut show: Option<Show>,
) -> Result<Draft<'a, B>> {
    let mut draft = Draft::new(schedule, backend, passes);
    for (kind, pass) in GPU_PASSES.iter().filter(|(kind, _)| passes.has(*kind)) {
        draft.run(*kind)?;
        if let Some(show) = &mut show {
            show(pass, &draft.steps());
        }
    }
    Ok(draft)
}

/// A plan in the making.
struct Draft<'a, B: Backend> {
    schedule: &'a Schedule,
    backend: &'a B,
    passes: &'a GpuPipeline,
    costs: CostModel,
    checks: Checks,
    workspaces: Vec<usize>,
    looped: Option<LaidOutLoop<B::Call>>,
    initial_casts: Vec<Step<B::Call>>,
    finish: Vec<Step<B::Call>>,
}

impl<'a, B: Backend> Draft<'a, B> {
    fn new(schedule: &'a Schedule, backend: &'a B, passes: &'a GpuPipeline) -> Self {
        let (checks, costs) = (Checks::of(schedule), schedule.costs());
        let (workspaces, initial_casts, finish) = (vec![], vec![], vec![]);
        Draft { schedule, backend, passes, costs, checks, workspaces, looped: None, initial_casts, finish }
    }

    fn run(&mut self, pass: GpuPass) -> Result<()> {
        match pass {
            GpuPass::Workspaces => self.workspaces = workspaces(self.schedule, self.backend, &self.checks)?,
            GpuPass::Rotation => self.looped = self.rotating()?,
            GpuPass::Stages if self.looped.is_none() => self.looped = self.in_stages()?,
            GpuPass::Memory if self.looped.is_none() => self.looped = Some(self.sequential()?),
            GpuPass::Stages | GpuPass::Memory | GpuPass::Streams => {}
            GpuPass::EndOfStep => self.end_of_step()?,
            GpuPass::HorizontalFusion => self.fuse()?,
        }
        Ok(())
    }

    fn looped(&mut self) -> Result<&mut LaidOutLoop<B::Call>> {
        self.looped.as_mut().ok_or_else(|| internal_error("the memory of a loop"))
    }

    /// The steps of an iteration under this map, with the groups in `late` in the second stage.
    fn segments(&self, map: &MemoryMap, late: Option<&[bool]>) -> Result<Segments<B::Call>> {
        Segments::new(self.schedule, map, self.backend, &self.checks, late)
    }

    /// Lays out a loop of which several iterations may run at the same time.
    fn rotating(&self) -> Result<Option<LaidOutLoop<B::Call>>> {
        let Draft { schedule, costs, checks, .. } = self;
        if !SoftwarePipeline::<B::Call>::may_rotate(schedule) {
            return Ok(None);
        }
        let map = schedule.lay_out_pipelined(&self.workspaces)?;
        if !SoftwarePipeline::<B::Call>::fits_rotating(costs, &map) {
            return Ok(None);
        }
        let segments = self.segments(&map, None)?;
        let dialect = self.backend.dialect();
        let pipeline = SoftwarePipeline::rotating(Rotatable {
            dialect,
            costs: *costs,
            schedule,
            map: &map,
            full: &segments.body[0],
            carry_only: segments.carry_only.as_ref().map(|[carry_only, _]| &carry_only[..]),
            copies: copies(dialect, schedule, &map, checks)?,
            can_fail: !checks.all.is_empty(),
            fuses: self.passes.has(GpuPass::HorizontalFusion),
        });
        Ok(Some(LaidOutLoop { map, segments, pipeline }))
    }

    /// Lays out a loop whose late stage overlaps with the next early stage, if that pays.
    fn in_stages(&self) -> Result<Option<LaidOutLoop<B::Call>>> {
        let Draft { schedule, costs, checks, workspaces, .. } = self;
        let Some(late) = schedule.late_groups().filter(|_| !checks.are_in_loop(schedule)) else { return Ok(None) };
        let map = schedule.lay_out_in_stages(workspaces, &late)?;
        if !SoftwarePipeline::<B::Call>::fits_in_stages(costs, &schedule.lay_out(workspaces)?, &map) {
            return Ok(None);
        }
        let segments = self.segments(&map, Some(&late))?;
        let pipeline = SoftwarePipeline::of_stages(*costs, &map, &segments.body);
        Ok(pipeline.map(|pipeline| LaidOutLoop { map, segments, pipeline: Some(pipeline) }))
    }

    /// Lays out a loop whose iterations run one after the other.
    fn sequential(&self) -> Result<LaidOutLoop<B::Call>> {
        let map = self.schedule.lay_out(&self.workspaces)?;
        let segments = self.segments(&map, None)?;
        Ok(LaidOutLoop { map, segments, pipeline: None })
    }

    /// Adds the copies at the end of a step and of a run, the step counter, and the initial casts.
    fn end_of_step(&mut self) -> Result<()> {
        let (dialect, schedule) = (self.backend.dialect(), self.schedule);
        let looped = self.looped.as_mut().ok_or_else(|| internal_error("the memory of a loop"))?;
        let LaidOutLoop { map, segments: Segments { body, carry_only, .. }, pipeline } = looped;
        let copies = copies(dialect, schedule, map, &self.checks)?;
        for stages in [Some(body), carry_only.as_mut()].into_iter().flatten() {
            end_of_stages(dialect, map, pipeline.as_ref(), &copies, stages);
        }
        for &number in &map.outputs_to_copy {
            let to = Place { region: Region::Output(number), offset: 0 };
            self.finish.extend(moved(dialect, (schedule, map), &schedule.outputs[number], to, false)?);
        }
        self.initial_casts = initial_casts(dialect, schedule, map)?;
        Ok(())
    }

    /// Joins equal kernels of the prologue, of the initial casts and of each stage.
    fn fuse(&mut self) -> Result<()> {
        let costs = self.costs;
        let fused = |steps: &mut Vec<Step<B::Call>>| *steps = fuse_horizontally(&costs, std::mem::take(steps));
        fused(&mut self.initial_casts);
        let Segments { prologue, body, carry_only } = &mut self.looped()?.segments;
        fused(prologue);
        body.iter_mut().chain(carry_only.iter_mut().flatten()).for_each(fused);
        Ok(())
    }

    fn steps(&self) -> PlanSteps<'_, B::Call> {
        let mut parts: Vec<(&str, &[Step<B::Call>])> = vec![("before the first step", &self.initial_casts)];
        if let Some(LaidOutLoop { segments: Segments { prologue, body: [early, late], .. }, .. }) = &self.looped {
            parts.extend([("prologue", &prologue[..]), ("step", early), ("late stage of a step", late)]);
        }
        parts.push(("after the last step", &self.finish));
        PlanSteps { parts }
    }

    fn finish(self, inputs: usize) -> Result<Plan<B::Call>> {
        let LaidOutLoop { map, segments, pipeline } =
            self.looped.ok_or_else(|| internal_error("the memory of a loop"))?;
        let in_order = |[early, late]: [Vec<Step<B::Call>>; 2]| {
            let split = early.len();
            (early.into_iter().chain(late).collect::<Vec<_>>(), split)
        };
        let (body, split) = in_order(segments.body);
        let (carry_only, carry_only_split) = segments.carry_only.map(in_order).unzip();
        let streams = self.passes.streams();
        let pipeline = pipeline.map(|pipeline| pipeline.split_at(split, carry_only_split).on_streams(streams));
        let schedule = self.schedule;
        let plan = Plan {
            prologue: segments.prologue,
            inputs,
            prologue_inputs: schedule.prologue_inputs(),
            initial_casts: self.initial_casts,
            body,
            carry_only,
            finish: self.finish,
            counter: map.counter,
            tables: map.tables(schedule).map(|(place, dtype, values)| (place, dtype, values.to_vec())).collect(),
            checks: self.checks.all,
            bound_bytes: map.bound_bytes,
            persistent_bytes: pipeline.as_ref().map_or(map.persistent_bytes, |pipeline| pipeline.persistent_bytes),
            arena_bytes: pipeline.as_ref().map_or(map.arena_bytes, |pipeline| pipeline.arena_bytes),
            // Iterations in flight are live at the same time.
            memory_lower_bound: map.lower_bound + pipeline.as_ref().map_or(0, SoftwarePipeline::extra_bytes),
            pipeline,
            streams,
        };
        plan.check_grids().map(|()| plan)
    }
}

/// Adds the copies at the end of a step, and the step counters: each of two stages has its own.
fn end_of_stages<C: LibraryCall>(
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
