//! Executes a compiled program: bound to buffers, for a range of steps.

use crate::compile::plan::{Plan, plan_with};
use crate::compile::stats::Phase;
use crate::compile::step::{Call, Step, Work};
use crate::conv::cudnn::Dnn;
use crate::gemm::select::GemmSelector;
use crate::runtime::buffer::CudaStorage;
use crate::runtime::capture::Captured;
use crate::runtime::device::{BRANCH, Device, DeviceMemory, Function, QUEUE, failed};
use crate::runtime::events::Events;
use crate::runtime::launch::{PreparedLaunch, start};
use crate::target::H200;
use bilevel_gpu::codegen::Kernel;
use bilevel_gpu::compile::failure_record;
use bilevel_gpu::compile::passes::GpuPipeline;
use bilevel_gpu::compile::plan::PlannedBytes;
use bilevel_gpu::schedule::pipeline::{PIPELINE_STREAMS, PipelinePart, SoftwarePipeline, Window};
use bilevel_gpu::schedule::streams::{StreamSlot, assign_streams};
use bilevel_graph::{Bindings, Buffer, DType, Error, ErrorKind, Meta, Program, Result, Runnable};
use bilevel_plan::{IndexCheck, Place, Region, internal_error};
use cudarc::driver::{result, sys};
use std::ops::Range;
use std::sync::Arc;

/// The maximum number of cached graphs per program, which may be bound to several sets of buffers in turn.
const MAX_CACHED_GRAPHS: usize = 12;

/// A program compiled for a GPU.
pub struct CudaRun {
    pub(crate) bindings: Bindings,
    pub(crate) planned: Executable,
}

/// A compiled program with its memory, without its buffers.
pub(crate) struct Executable {
    pub plan: Plan,
    pub device: Arc<Device>,
    prologue: Body,
    initial_casts: Vec<PreparedLaunch>,
    body: Body,
    carry_only: Option<Body>,
    finish: Vec<PreparedLaunch>,
    /// By part, the launches of a pipeline's own steps.
    pipeline_launches: Option<[Vec<PreparedLaunch>; 4]>,
    kept: DeviceMemory,
    error: DeviceMemory,
    graphs: Vec<Recorded>,
    /// The buffers and versions of its inputs with which the prologue last ran.
    prologue_of: Option<Vec<(u64, u64)>>,
    /// Whether the prologue has run: only repeated work is worth capturing.
    prologue_ran: bool,
}

/// The result of compilation on any thread. It allocates no GPU memory for itself, and submits only trials.
pub(crate) struct CompiledPlan {
    plan: Plan,
    /// The kernels of all steps, in order.
    functions: Vec<Function>,
    /// By step of the prologue, of the body and of the carry-only body.
    slots: [Vec<StreamSlot>; 3],
}

impl CompiledPlan {
    /// Compiles a valid program, with convolutions by cuDNN if given, and loads its kernels.
    pub fn new(program: &Program, dnn: Option<&Dnn>, device: &Arc<Device>) -> Result<Self> {
        Self::by(&GpuPipeline::new(), program, dnn, device)
    }

    fn by(passes: &GpuPipeline, program: &Program, dnn: Option<&Dnn>, device: &Arc<Device>) -> Result<Self> {
        let fuses_attention = device.architecture.has_fused_attention();
        let plan = device.clock.time(Phase::Planning, || plan_with(program, dnn, fuses_attention, passes))?;
        device.expect_scratch(plan.arena_bytes);
        let kernels: Vec<Arc<Kernel>> = plan.kernels().map(|launch| launch.kernel.clone()).collect();
        // Kernel compilation uses the cores while GEMM trials use the GPU.
        let functions = std::thread::scope(|scope| {
            let functions = scope.spawn(|| device.clock.time(Phase::Kernels, || device.functions(&kernels)));
            let chosen = device.clock.time(Phase::Products, || choose_products(&plan, device));
            let functions = functions.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            chosen.map(|()| functions)
        })?;
        let slots = [&plan.prologue, &plan.body, plan.carry_only.as_deref().unwrap_or(&[])]
            .map(|steps| assign_streams(&H200, steps, plan.streams));
        Ok(CompiledPlan { plan, functions, slots })
    }
}

/// Selects an algorithm for each matrix product of a plan.
fn choose_products(plan: &Plan, device: &Arc<Device>) -> Result<()> {
    device.enter()?;
    for step in plan.steps() {
        if let Work::Library(Call::Gemm(product)) = &step.work {
            device.products()?.prepare(product, device).map_err(|error| error.at(step.location))?;
        }
    }
    device.products().map(GemmSelector::flush)
}

/// Prepared launches and their stream slots.
pub(crate) struct Body {
    pub ready: Vec<PreparedLaunch>,
    slots: Vec<StreamSlot>,
}

/// The part of a program that a graph contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphSegment {
    /// The loop-invariant prologue.
    Prologue,
    /// An iteration of the loop.
    Step,
    /// An iteration whose outputs are not needed.
    CarryOnly,
    /// A window of a pipelined loop.
    Pipeline(Window),
}

/// A graph captured for certain addresses.
struct Recorded {
    segment: GraphSegment,
    bases: Vec<u64>,
    graph: Captured,
}

// SAFETY: the handles may be used from any thread, with the context made current first.
unsafe impl Send for Executable {}

impl Executable {
    /// Allocates memory for a compiled program. If that fails, replans for sequential steps if they need less.
    pub fn new(compiled: CompiledPlan, program: &Program, dnn: Option<&Dnn>, device: &Arc<Device>) -> Result<Self> {
        let takes_more = compiled.plan.pipeline.is_some();
        match Self::with_memory(compiled, device) {
            Err(Error { kind: ErrorKind::OutOfMemory { .. }, .. }) if takes_more => {
                Self::with_memory(CompiledPlan::by(&GpuPipeline::sequential(), program, dnn, device)?, device)
            }
            planned => planned,
        }
    }

    fn with_memory(compiled: CompiledPlan, device: &Arc<Device>) -> Result<Self> {
        let CompiledPlan { plan, functions, slots: [before, slots, carry_only_turns] } = compiled;
        device.enter()?;
        let mut functions = functions.into_iter();
        let mut ready = |steps: &[Step]| -> Result<Vec<PreparedLaunch>> {
            let one = |step: &Step| match &step.work {
                Work::Kernel(_) => {
                    functions.next().map(PreparedLaunch::Kernel).ok_or_else(|| internal_error("a kernel"))
                }
                Work::Library(Call::Gemm(product)) => {
                    let prepared = device.products()?.prepare(product, device);
                    prepared.map(PreparedLaunch::Gemm).map_err(|error| error.at(step.location))
                }
                Work::Library(Call::Convolution { geometry, .. }) => {
                    let dnn = device.dnn().ok_or_else(|| internal_error("cuDNN"))?;
                    let convolved = dnn.prepare(geometry).map_err(|error| error.at(step.location))?;
                    Ok(PreparedLaunch::Convolution(convolved))
                }
                Work::Copy { .. } => Ok(PreparedLaunch::Copy),
            };
            steps.iter().map(one).collect()
        };
        let (prologue, initial_casts, body) = (ready(&plan.prologue)?, ready(&plan.initial_casts)?, ready(&plan.body)?);
        let carry_only = plan.carry_only.as_ref().map(|steps| ready(steps)).transpose()?;
        let finish = ready(&plan.finish)?;
        let pipeline_launches = match plan.pipeline.as_ref().and_then(SoftwarePipeline::own_steps) {
            Some([first, carry_only, full, last]) => {
                Some([ready(first)?, ready(carry_only)?, ready(full)?, ready(last)?])
            }
            None => None,
        };
        let (kept, error) = (
            DeviceMemory::new(device, plan.persistent_bytes)?,
            DeviceMemory::new(device, failure_record::bytes(plan.checks.len()))?,
        );
        for (place, dtype, values) in &plan.tables {
            let bytes: Vec<u8> = match dtype {
                DType::F32 => values.iter().flat_map(|&v| (v as f32).to_ne_bytes()).collect(),
                DType::F64 => values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
                DType::I32 => values.iter().flat_map(|&v| (v as i32).to_ne_bytes()).collect(),
            };
            device.count_to_device(bytes.len());
            // SAFETY: the plan reserved this address in persistent memory; the copy is waited for below.
            unsafe { result::memcpy_htod_async(kept.start + place.offset as u64, &bytes, device.queue()) }
                .map_err(|e| failed("write memory", e))?;
            device.wait()?;
        }
        device.scratch().reserve(device, plan.arena_bytes)?;
        let (prologue, body) = (Body { ready: prologue, slots: before }, Body { ready: body, slots });
        let carry_only = carry_only.map(|ready| Body { ready, slots: carry_only_turns });
        Ok(Executable {
            plan,
            device: device.clone(),
            prologue,
            initial_casts,
            body,
            carry_only,
            finish,
            pipeline_launches,
            kept,
            error,
            graphs: vec![],
            prologue_of: None,
            prologue_ran: false,
        })
    }

    /// Returns the base address of every region: inputs, outputs, persistent memory, arena.
    pub fn bases(&self, bindings: &Bindings, arena: u64) -> Vec<u64> {
        let buffers = bindings.inputs().iter().chain(bindings.outputs());
        let start = |buffer: &Option<Buffer>| {
            buffer.as_ref().and_then(|buffer| CudaStorage::of(buffer, &self.device)).map_or(0, CudaStorage::start)
        };
        buffers.map(start).chain([self.kept.start, arena]).collect()
    }

    fn address(&self, place: Place, bases: &[u64]) -> u64 {
        let base = match place.region {
            Region::Input(number) => bases[number],
            Region::Output(number) => bases[self.plan.inputs + number],
            Region::Persistent => bases[bases.len() - 2],
            Region::Arena => bases[bases.len() - 1],
        };
        base + place.offset as u64
    }

    /// Submits a step to a stream.
    ///
    /// # Safety
    /// The addresses must be those of this program's buffers, which the run holds.
    pub unsafe fn start(&self, step: &Step, ready: &PreparedLaunch, bases: &[u64], branch: usize) -> Result<()> {
        let (at, error) = (|place: Place| self.address(place, bases), self.error.start);
        // SAFETY: the caller's promise; the plan keeps every access inside its places.
        unsafe { start(&self.device, (&step.work, ready), (at, error), branch) }
            .map_err(|error| if error.location.is_none() { error.at(step.location) } else { error })
    }

    /// Returns the steps of a segment; those of a full iteration if there is no carry-only one.
    pub fn segment(&self, segment: GraphSegment) -> (&[Step], &Body) {
        match (segment, &self.plan.carry_only, &self.carry_only) {
            (GraphSegment::Prologue, ..) => (&self.plan.prologue, &self.prologue),
            (GraphSegment::CarryOnly, Some(steps), Some(body)) => (steps, body),
            _ => (&self.plan.body, &self.body),
        }
    }

    /// Captures a segment as a graph, with concurrent streams for independent work.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    unsafe fn record(&self, segment: GraphSegment, bases: &[u64]) -> Result<Captured> {
        let mut events = Events::new();
        let stream = self.device.stream(BRANCH);
        // SAFETY: the caller's promise; all streams join the first one before the capture ends.
        unsafe {
            match (segment, &self.plan.pipeline) {
                (GraphSegment::Pipeline(window), Some(pipeline)) => {
                    let steps = pipeline.unrolled(window, (&self.plan.body, self.plan.carry_only.as_deref()));
                    let works = steps.iter().map(|of| (&of.step, self.pipelined(of.part), &of.slot));
                    Captured::new(stream, || self.record_steps(works, bases, &mut events))
                }
                _ => {
                    let (steps, body) = self.segment(segment);
                    let works = steps.iter().zip(&body.ready).zip(&body.slots);
                    let works = works.map(|((step, ready), slot)| (step, ready, slot));
                    Captured::new(stream, || self.record_steps(works, bases, &mut events))
                }
            }
        }
    }

    /// Returns the prepared launch of a pipelined step: one of the pipeline's own, or one of the plan's.
    fn pipelined(&self, part: PipelinePart) -> &PreparedLaunch {
        match (&self.pipeline_launches, part) {
            (Some([first, ..]), PipelinePart::First(number)) => &first[number],
            (Some([_, carry_only, ..]), PipelinePart::CarryOnly(number)) => &carry_only[number],
            (Some([_, _, full, _]), PipelinePart::Full(number)) => &full[number],
            (Some([.., last]), PipelinePart::Last(number)) => &last[number],
            (None, PipelinePart::CarryOnly(number)) => &self.carry_only.as_ref().unwrap_or(&self.body).ready[number],
            (None, PipelinePart::First(number) | PipelinePart::Full(number) | PipelinePart::Last(number)) => {
                &self.body.ready[number]
            }
        }
    }

    unsafe fn record_steps<'a>(
        &self,
        works: impl Iterator<Item = (&'a Step, &'a PreparedLaunch, &'a StreamSlot)>,
        bases: &[u64],
        events: &mut Events,
    ) -> Result<()> {
        let device = &*self.device;
        let wrong = |e| failed("capture a step", e);
        // SAFETY: as for `record`.
        unsafe {
            let first = device.stream(BRANCH);
            let start = events.after(first).map_err(wrong)?;
            let mut forked = [false; PIPELINE_STREAMS];
            forked[0] = true;
            let mut done: Vec<Option<sys::CUevent>> = vec![];
            let wait = |stream, event| Events::wait(stream, event).map_err(wrong);
            for (step, ready, slot) in works {
                let stream = device.stream(BRANCH + slot.stream);
                if !std::mem::replace(&mut forked[slot.stream], true) {
                    wait(stream, start)?;
                }
                for event in slot.after.iter().filter_map(|&step| done[step]) {
                    wait(stream, event)?;
                }
                self.start(step, ready, bases, BRANCH + slot.stream)?;
                done.push(if slot.awaited { Some(events.after(stream).map_err(wrong)?) } else { None });
            }
            for branch in (1..forked.len()).filter(|&branch| forked[branch]) {
                let event = events.after(device.stream(BRANCH + branch)).map_err(wrong)?;
                wait(first, event)?;
            }
        }
        Ok(())
    }

    /// Returns the graph of a segment for these addresses.
    unsafe fn graph(&mut self, segment: GraphSegment, bases: &[u64]) -> Result<&Captured> {
        let segment =
            if segment == GraphSegment::CarryOnly && self.carry_only.is_none() { GraphSegment::Step } else { segment };
        let recorded = match self.graphs.iter().position(|old| old.segment == segment && old.bases == bases) {
            Some(found) => self.graphs.remove(found),
            None => {
                // SAFETY: the caller's promise.
                let graph = self.device.clock.time(Phase::Recording, || unsafe { self.record(segment, bases) })?;
                if self.graphs.len() == MAX_CACHED_GRAPHS {
                    drop(self.graphs.remove(0));
                }
                Recorded { segment, bases: bases.to_vec(), graph }
            }
        };
        // Most recently used last.
        self.graphs.push(recorded);
        self.graphs.last().map(|recorded| &recorded.graph).ok_or_else(|| internal_error("a captured graph"))
    }

    /// Runs the prologue, unless its inputs are unchanged.
    unsafe fn run_prologue(&mut self, bindings: &Bindings, bases: &[u64]) -> Result<()> {
        if self.plan.prologue.is_empty() {
            return Ok(());
        }
        let of = |input: &usize| bindings.inputs()[*input].as_ref().map(|b| (b.id(), b.version()));
        let now: Vec<(u64, u64)> = self.plan.prologue_inputs.iter().filter_map(of).collect();
        if self.prologue_of.as_ref() == Some(&now) {
            return Ok(());
        }
        self.prologue_of = None;
        // SAFETY: the caller's promise.
        unsafe {
            if std::mem::replace(&mut self.prologue_ran, true) {
                let queue = self.device.queue();
                self.graph(GraphSegment::Prologue, bases)?.start(queue)?;
            } else {
                for (step, ready) in self.plan.prologue.iter().zip(&self.prologue.ready) {
                    self.start(step, ready, bases, QUEUE)?;
                }
            }
        }
        self.prologue_of = Some(now);
        Ok(())
    }

    /// Runs these steps. All but the last are carry-only; the last one too unless `shows`.
    ///
    /// # Safety
    /// As for [`Runnable::execute`].
    pub unsafe fn run_steps(&mut self, bindings: &Bindings, steps: Range<u32>, shows: bool) -> Result<()> {
        let device = self.device.clone();
        device.enter()?;
        let mut scratch = device.scratch();
        let arena = scratch.reserve(&device, self.plan.arena_bytes)?;
        let bases = self.bases(bindings, arena);
        let queue = device.queue();
        // The last window was checked; and the first error of a window that was run again.
        let (mut succeeded, mut first_error) = (false, None);
        // SAFETY: the caller holds all buffers, and this thread holds the main stream.
        unsafe {
            self.forget_failure()?;
            self.run_prologue(bindings, &bases)?;
            for (step, ready) in self.plan.initial_casts.iter().zip(&self.initial_casts) {
                self.start(step, ready, &bases, QUEUE)?;
            }
            let mut next = steps.start;
            while next < steps.end {
                let left = (steps.end - next) as usize;
                let count = self.plan.pipeline.as_ref().map_or(left, |pipeline| pipeline.length(left));
                let (some, shows) = (next..next + count as u32, shows && count == left);
                next = some.end;
                let pipeline = self.plan.pipeline.as_ref();
                let undoes = pipeline.is_some_and(SoftwarePipeline::undoes_failed_windows);
                let Some(windows) = pipeline.and_then(|pipeline| pipeline.windows(count, shows)) else {
                    succeeded = false;
                    self.run_sequentially(some, shows, &bases)?;
                    continue;
                };
                self.count_from(some.start, &bases)?;
                for window in windows {
                    self.graph(GraphSegment::Pipeline(window), &bases)?.start(queue)?;
                }
                if undoes {
                    first_error = self.failure().err();
                    succeeded = first_error.is_none();
                }
                if undoes && !succeeded {
                    // A failed window changes nothing. Its steps are rerun sequentially up to the one that fails.
                    self.forget_failure()?;
                    self.run_sequentially(some, shows, &bases)?;
                    break;
                }
            }
            if shows {
                for (step, ready) in self.plan.finish.iter().zip(&self.finish) {
                    self.start(step, ready, &bases, QUEUE)?;
                }
            }
        }
        drop(scratch);
        let done = if succeeded { Ok(()) } else { self.failure() };
        // What failed in the prologue does not fail again in the steps that are rerun.
        done.and(first_error.map_or(Ok(()), Err)).inspect_err(|_| self.prologue_of = None)
    }

    /// Submits these steps sequentially.
    unsafe fn run_sequentially(&mut self, steps: Range<u32>, shows: bool, bases: &[u64]) -> Result<()> {
        let (queue, last) = (self.device.queue(), steps.end - 1);
        // SAFETY: the caller's promise.
        unsafe {
            self.count_from(steps.start, bases)?;
            for number in steps {
                let segment = if shows && number == last { GraphSegment::Step } else { GraphSegment::CarryOnly };
                self.graph(segment, bases)?.start(queue)?;
            }
        }
        Ok(())
    }

    /// Writes the step number.
    unsafe fn count_from(&self, step: u32, bases: &[u64]) -> Result<()> {
        let late = self.plan.pipeline.as_ref().and_then(SoftwarePipeline::late_counter);
        for place in self.plan.counter.into_iter().chain(late) {
            // SAFETY: the address is in the program's own memory.
            unsafe { sys::cuMemsetD32Async(self.address(place, bases), step, 1, self.device.queue()) }
                .result()
                .map_err(|e| failed("write memory", e))?;
        }
        Ok(())
    }

    /// Resets the record of failed checks, if there are any checks.
    unsafe fn forget_failure(&self) -> Result<()> {
        if self.plan.checks.is_empty() {
            return Ok(());
        }
        let bytes = failure_record::bytes(self.plan.checks.len());
        // SAFETY: the record belongs to the program and has this length.
        unsafe { result::memset_d8_async(self.error.start, failure_record::NO_ERROR_BYTE, bytes, self.device.queue()) }
            .map_err(|e| failed("clear memory", e))
    }

    /// Returns the error of the last run, if an index was out of range.
    fn failure(&self) -> Result<()> {
        if self.plan.checks.is_empty() {
            return Ok(());
        }
        let Some(number) = failure_record::operation(self.error_word(0)?) else { return Ok(()) };
        let check = self.plan.checks.get(number).ok_or_else(|| internal_error("the operation that failed"))?;
        let index = i64::from(failure_record::index(self.error_word(failure_record::offset(number))?));
        let IndexCheck { operation, limit } = check.of;
        Err(Error::new(ErrorKind::IndexOutOfRange { operation: operation.into(), index, limit }).at(check.location))
    }

    /// Reads a word of the record of failed checks, at this byte offset.
    fn error_word(&self, offset: usize) -> Result<u64> {
        let mut word = [0u8; failure_record::WORD];
        self.device.count_to_host(word.len());
        // SAFETY: the word is in the program's own record, and the copy is waited for.
        unsafe { result::memcpy_dtoh_async(&mut word, self.error.start + offset as u64, self.device.queue()) }
            .map_err(|e| failed("read memory", e))?;
        self.device.wait()?;
        Ok(u64::from_ne_bytes(word))
    }
}

impl CudaRun {
    pub(crate) fn new(
        program: Program,
        compiled: CompiledPlan,
        dnn: Option<&Dnn>,
        device: &Arc<Device>,
    ) -> Result<Self> {
        Ok(CudaRun { planned: Executable::new(compiled, &program, dnn, device)?, bindings: Bindings::new(program) })
    }

    /// Returns the planned memory.
    pub fn planned_bytes(&self) -> PlannedBytes {
        self.planned.plan.bytes()
    }

    /// Returns the bytes of inputs, outputs and everything between.
    pub fn memory_bytes(&self) -> usize {
        let PlannedBytes { bound, kept, arena, .. } = self.planned_bytes();
        bound + kept + arena
    }

    /// Returns the peak of live bytes, a lower bound of any layout.
    pub fn memory_lower_bound(&self) -> usize {
        self.planned.plan.memory_lower_bound
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // Dropping the fields calls the driver.
        let _ = self.device.enter();
    }
}

impl Runnable for CudaRun {
    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        &mut self.bindings
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        CudaStorage::buffer(meta, &self.planned.device)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        CudaStorage::of(buffer, &self.planned.device).is_some()
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.planned.run_steps(&self.bindings, steps, true) }
    }

    unsafe fn execute_for_carries(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.planned.run_steps(&self.bindings, steps, false) }
    }
}
