//! A planned program on a GPU: bound to buffers, run for some steps.

use crate::compile::failure_record;
use crate::compile::plan::{Plan, Space, plan_with};
use crate::compile::stats::Part;
use crate::compile::step::{Step, Work};
use crate::conv::cudnn::Dnn;
use crate::gemm::select::Products;
use crate::runtime::buffer::CudaStorage;
use crate::runtime::capture::Captured;
use crate::runtime::device::{BRANCH, Device, Function, Memory, QUEUE, STREAMS, failed};
use crate::runtime::events::Events;
use crate::runtime::launch::{Ready, start};
use crate::schedule::loop_pipeline::{CHAIN_STREAMS, Overlap, Part as Of};
use crate::schedule::loop_stages::{Halves, Staggered};
use crate::schedule::streams::{Turn, turns};
use bilevel_graph::{Bindings, Buffer, DType, Error, ErrorKind, Meta, Program, Result, Runnable};
use bilevel_plan::{IndexCheck, Place, Region, internal_error};
use cudarc::driver::{result, sys};
use std::ops::Range;
use std::sync::Arc;

/// Graphs kept of one program: it may be bound to several sets of buffers in turn.
const GRAPHS: usize = 12;

/// A program planned for a GPU.
pub struct CudaRun {
    pub(crate) bindings: Bindings,
    pub(crate) planned: Planned,
}

/// All of a run but its buffers.
pub(crate) struct Planned {
    pub plan: Plan,
    pub device: Arc<Device>,
    prologue: Body,
    seeds: Vec<Ready>,
    body: Body,
    lean: Option<Body>,
    finish: Vec<Ready>,
    chains: Option<Chains>,
    kept: Memory,
    error: Memory,
    graphs: Vec<Recorded>,
    /// The prologue has run, on these buffers and versions of its inputs.
    prologue_of: Option<Vec<(u64, u64)>>,
    /// It has run at all: what runs again is worth a recording.
    prologue_ran: bool,
}

/// What can be made of a program on any thread: it takes no memory of the GPU for itself, and puts nothing in its queue but trials of
/// products and convolutions, in their turn.
pub(crate) struct Preparation {
    plan: Plan,
    /// The kernels of all steps, in order.
    functions: Vec<Function>,
    /// By step of what comes before the loop, of the loop, and of its lean form.
    turns: [Vec<Turn>; 3],
}

impl Preparation {
    /// Plans a valid program, with convolutions by the library where it is given, and loads its kernels.
    pub fn new(program: &Program, dnn: Option<&Dnn>, device: &Arc<Device>) -> Result<Self> {
        Self::within(Space::Some, program, dnn, device)
    }

    fn within(space: Space, program: &Program, dnn: Option<&Dnn>, device: &Arc<Device>) -> Result<Self> {
        let strips = device.architecture.has_strips();
        let plan = device.clock.time(Part::Planning, || plan_with(program, dnn, strips, space))?;
        device.expect_scratch(plan.arena_bytes);
        let sources: Vec<&str> = plan.kernels().map(|launch| &launch.source[..]).collect();
        // The compiler keeps the cores busy, and trials of products the GPU.
        let functions = std::thread::scope(|scope| {
            let functions = scope.spawn(|| device.clock.time(Part::Kernels, || device.functions(&sources)));
            let chosen = device.clock.time(Part::Products, || choose_products(&plan, device));
            let functions = functions.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            chosen.map(|()| functions)
        })?;
        let turns =
            [&plan.prologue, &plan.body, plan.lean.as_deref().unwrap_or(&[])].map(|steps| turns(steps, STREAMS));
        Ok(Preparation { plan, functions, turns })
    }
}

/// Chooses how each product of a plan is computed.
fn choose_products(plan: &Plan, device: &Arc<Device>) -> Result<()> {
    device.enter()?;
    for step in plan.steps() {
        if let Work::Product(product) = &step.work {
            device.products()?.prepare(product, device).map_err(|error| error.at(step.location))?;
        }
    }
    device.products().map(Products::keep_recent)
}

/// The memory a program was planned to take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBytes {
    /// Inputs and outputs, which other programs may share.
    pub bound: usize,
    /// What outlives a run.
    pub kept: usize,
    /// What does not, in memory that programs use in turn.
    pub arena: usize,
    /// The most that is alive at once, with inputs and outputs: what a perfect layout would take.
    pub lower_bound: usize,
}

/// What is recorded as one: its parts, and which of them run side by side.
pub(crate) struct Body {
    pub ready: Vec<Ready>,
    turns: Vec<Turn>,
}

/// What chains of steps are made of.
struct Chains {
    full: Vec<Ready>,
    lean: Vec<Ready>,
    first: Vec<Ready>,
    last: Vec<Ready>,
}

impl Chains {
    fn ready(&self, part: Of) -> &Ready {
        match part {
            Of::Full(number) => &self.full[number],
            Of::Lean(number) => &self.lean[number],
            Of::First(number) => &self.first[number],
            Of::Last(number) => &self.last[number],
        }
    }
}

/// What a graph is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stretch {
    /// What is the same in every step of the loop.
    Prologue,
    /// A step of the loop.
    Step,
    /// A step of which nobody will look at the outputs.
    Lean,
    /// So many steps, each of which begins before the one before it is over.
    Chain {
        /// How many.
        count: usize,
        /// Somebody will look at the outputs of the last.
        shows: bool,
    },
    /// Halves of steps, and whether somebody will look at the outputs of the newest.
    Staggered(Halves, bool),
}

/// One of them, recorded for certain addresses.
struct Recorded {
    stretch: Stretch,
    bases: Vec<u64>,
    graph: Captured,
}

// SAFETY: the handles may be used from any thread, with the context made current first.
unsafe impl Send for Planned {}

impl Planned {
    /// What was prepared for a program, with memory. Where that is short, and steps one by one need less, they run one by one.
    pub fn new(preparation: Preparation, program: &Program, dnn: Option<&Dnn>, device: &Arc<Device>) -> Result<Self> {
        let takes_more = preparation.plan.overlap.is_some() || preparation.plan.staggered.is_some();
        match Self::with_memory(preparation, device) {
            Err(Error { kind: ErrorKind::OutOfMemory { .. }, .. }) if takes_more => {
                Self::with_memory(Preparation::within(Space::Least, program, dnn, device)?, device)
            }
            planned => planned,
        }
    }

    fn with_memory(preparation: Preparation, device: &Arc<Device>) -> Result<Self> {
        let Preparation { plan, functions, turns: [before, turns, lean_turns] } = preparation;
        device.enter()?;
        let mut functions = functions.into_iter();
        let mut ready = |steps: &[Step]| -> Result<Vec<Ready>> {
            let one = |step: &Step| match &step.work {
                Work::Kernel(_) => functions.next().map(Ready::Kernel).ok_or_else(|| internal_error("a kernel")),
                Work::Product(product) => {
                    let prepared = device.products()?.prepare(product, device);
                    prepared.map(Ready::Product).map_err(|error| error.at(step.location))
                }
                Work::Convolution { geometry, .. } => {
                    let dnn = device.dnn().ok_or_else(|| internal_error("the library of convolutions"))?;
                    let convolved = dnn.prepare(geometry).map_err(|error| error.at(step.location))?;
                    Ok(Ready::Convolution(convolved))
                }
                Work::Copy { .. } => Ok(Ready::Copy),
            };
            steps.iter().map(one).collect()
        };
        let (prologue, seeds, body) = (ready(&plan.prologue)?, ready(&plan.seeds)?, ready(&plan.body)?);
        let lean = plan.lean.as_ref().map(|steps| ready(steps)).transpose()?;
        let finish = ready(&plan.finish)?;
        let chains = match &plan.overlap {
            Some(Overlap { full, lean, first, last, .. }) => Some(Chains {
                full: ready(full)?,
                lean: ready(lean.as_deref().unwrap_or(&[]))?,
                first: ready(first)?,
                last: ready(last)?,
            }),
            None => None,
        };
        let (kept, error) =
            (Memory::new(device, plan.kept_bytes)?, Memory::new(device, failure_record::bytes(plan.checks.len()))?);
        for (place, dtype, values) in &plan.tables {
            let bytes: Vec<u8> = match dtype {
                DType::F32 => values.iter().flat_map(|&v| (v as f32).to_ne_bytes()).collect(),
                DType::F64 => values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
                DType::I32 => values.iter().flat_map(|&v| (v as i32).to_ne_bytes()).collect(),
            };
            device.count_to_device(bytes.len());
            // SAFETY: the plan reserved the table's place, in what is kept; the copy is waited for below.
            unsafe { result::memcpy_htod_async(kept.start + place.offset as u64, &bytes, device.queue()) }
                .map_err(|e| failed("write memory", e))?;
            device.wait()?;
        }
        device.scratch().reserve(device, plan.arena_bytes)?;
        let (prologue, body) = (Body { ready: prologue, turns: before }, Body { ready: body, turns });
        let lean = lean.map(|ready| Body { ready, turns: lean_turns });
        Ok(Planned {
            plan,
            device: device.clone(),
            prologue,
            seeds,
            body,
            lean,
            finish,
            chains,
            kept,
            error,
            graphs: vec![],
            prologue_of: None,
            prologue_ran: false,
        })
    }

    /// The address of every region: inputs, outputs, what is kept, the arena.
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

    /// Puts a step in the stream of a branch.
    ///
    /// # Safety
    /// The addresses must be those of this program's buffers, which the run holds.
    pub unsafe fn start(&self, step: &Step, ready: &Ready, bases: &[u64], branch: usize) -> Result<()> {
        let (at, error) = (|place: Place| self.address(place, bases), self.error.start);
        // SAFETY: the caller's promise; the plan keeps every access inside its places.
        unsafe { start(&self.device, (&step.work, ready), (at, error), branch) }
            .map_err(|error| if error.location.is_none() { error.at(step.location) } else { error })
    }

    /// The steps of a stretch; where nothing is left out of a lean step, those of any.
    pub fn stretch(&self, stretch: Stretch) -> (&[Step], &Body) {
        match (stretch, &self.plan.lean, &self.lean) {
            (Stretch::Prologue, ..) => (&self.plan.prologue, &self.prologue),
            (Stretch::Lean, Some(steps), Some(body)) => (steps, body),
            _ => (&self.plan.body, &self.body),
        }
    }

    /// Records a stretch as a graph, with branches where work is independent.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    unsafe fn record(&self, stretch: Stretch, bases: &[u64]) -> Result<Captured> {
        let mut events = Events::new();
        let stream = self.device.stream(BRANCH);
        // SAFETY: the caller's promise; all streams join the first again before the recording ends.
        unsafe {
            match (stretch, &self.plan.overlap, &self.chains) {
                (Stretch::Chain { count, shows }, Some(overlap), Some(chains)) => {
                    let links = overlap.chain(count, shows);
                    let works = links.iter().map(|link| (&link.step, chains.ready(link.part), &link.turn));
                    Captured::new(stream, || self.record_steps(works, bases, &mut events))
                }
                (Stretch::Staggered(halves, shows), ..) => {
                    let staggered = self.plan.staggered.as_ref().ok_or_else(|| internal_error("steps in halves"))?;
                    let ((full, body), (lean, lean_body)) = (self.stretch(Stretch::Step), self.stretch(Stretch::Lean));
                    let turns = staggered.turns(halves, [full, lean], shows);
                    let works = turns.iter().map(|(all, number, turn)| {
                        let (steps, body) = if *all { (full, body) } else { (lean, lean_body) };
                        (&steps[*number], &body.ready[*number], turn)
                    });
                    Captured::new(stream, || self.record_steps(works, bases, &mut events))
                }
                _ => {
                    let (steps, body) = self.stretch(stretch);
                    let works = steps.iter().zip(&body.ready).zip(&body.turns);
                    let works = works.map(|((step, ready), turn)| (step, ready, turn));
                    Captured::new(stream, || self.record_steps(works, bases, &mut events))
                }
            }
        }
    }

    unsafe fn record_steps<'a>(
        &self,
        works: impl Iterator<Item = (&'a Step, &'a Ready, &'a Turn)>,
        bases: &[u64],
        events: &mut Events,
    ) -> Result<()> {
        let device = &*self.device;
        let wrong = |e| failed("record a step", e);
        // SAFETY: as for `record`.
        unsafe {
            let first = device.stream(BRANCH);
            let start = events.after(first).map_err(wrong)?;
            let mut forked = [false; CHAIN_STREAMS];
            forked[0] = true;
            let mut done: Vec<Option<sys::CUevent>> = vec![];
            let wait = |stream, event| Events::wait(stream, event).map_err(wrong);
            for (step, ready, turn) in works {
                let stream = device.stream(BRANCH + turn.stream);
                if !std::mem::replace(&mut forked[turn.stream], true) {
                    wait(stream, start)?;
                }
                for event in turn.after.iter().filter_map(|&step| done[step]) {
                    wait(stream, event)?;
                }
                self.start(step, ready, bases, BRANCH + turn.stream)?;
                done.push(if turn.awaited { Some(events.after(stream).map_err(wrong)?) } else { None });
            }
            for branch in (1..forked.len()).filter(|&branch| forked[branch]) {
                let event = events.after(device.stream(BRANCH + branch)).map_err(wrong)?;
                wait(first, event)?;
            }
        }
        Ok(())
    }

    /// The recorded stretch for these addresses.
    unsafe fn graph(&mut self, stretch: Stretch, bases: &[u64]) -> Result<&Captured> {
        let stretch = if stretch == Stretch::Lean && self.lean.is_none() { Stretch::Step } else { stretch };
        let recorded = match self.graphs.iter().position(|old| old.stretch == stretch && old.bases == bases) {
            Some(found) => self.graphs.remove(found),
            None => {
                // SAFETY: the caller's promise.
                let graph = self.device.clock.time(Part::Recording, || unsafe { self.record(stretch, bases) })?;
                if self.graphs.len() == GRAPHS {
                    drop(self.graphs.remove(0));
                }
                Recorded { stretch, bases: bases.to_vec(), graph }
            }
        };
        // The one used last stands last.
        self.graphs.push(recorded);
        self.graphs.last().map(|recorded| &recorded.graph).ok_or_else(|| internal_error("a step that was recorded"))
    }

    /// Runs what is the same in every step, unless what it reads is as it was.
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
                self.graph(Stretch::Prologue, bases)?.start(queue)?;
            } else {
                for (step, ready) in self.plan.prologue.iter().zip(&self.prologue.ready) {
                    self.start(step, ready, bases, QUEUE)?;
                }
            }
        }
        self.prologue_of = Some(now);
        Ok(())
    }

    /// Runs these steps; what only outputs need is left out in all but the last, and there too unless the run shows them.
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
        let mut is_fine = false;
        // SAFETY: the caller holds all buffers, and this thread the right to put work in the queue.
        unsafe {
            self.forget_failure()?;
            self.run_prologue(bindings, &bases)?;
            for (step, ready) in self.plan.seeds.iter().zip(&self.seeds) {
                self.start(step, ready, &bases, QUEUE)?;
            }
            let mut next = steps.start;
            if self.plan.staggered.is_some() && !steps.is_empty() {
                self.run_staggered(steps.clone(), shows, &bases)?;
                next = steps.end;
            }
            while next < steps.end {
                let left = (steps.end - next) as usize;
                let count = self.plan.overlap.as_ref().map_or(left, |overlap| overlap.length(left));
                let (some, shows) = (next..next + count as u32, shows && count == left);
                next = some.end;
                if self.chains.is_none() || count == 1 {
                    is_fine = false;
                    self.run_one_by_one(some, shows, &bases)?;
                    continue;
                }
                self.count_from(some.start, &bases)?;
                self.graph(Stretch::Chain { count, shows }, &bases)?.start(queue)?;
                is_fine = self.failure().is_ok();
                if !is_fine {
                    // A chain that fails changes nothing. One by one, its steps are run up to the one that does.
                    self.forget_failure()?;
                    self.run_one_by_one(some, shows, &bases)?;
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
        // Chains were asked already.
        if is_fine { Ok(()) } else { self.failure().inspect_err(|_| self.prologue_of = None) }
    }

    /// Puts these steps in the queue, one after the other.
    unsafe fn run_one_by_one(&mut self, steps: Range<u32>, shows: bool, bases: &[u64]) -> Result<()> {
        let (queue, last) = (self.device.queue(), steps.end - 1);
        // SAFETY: the caller's promise.
        unsafe {
            self.count_from(steps.start, bases)?;
            for number in steps {
                let stretch = if shows && number == last { Stretch::Step } else { Stretch::Lean };
                self.graph(stretch, bases)?.start(queue)?;
            }
        }
        Ok(())
    }

    /// Puts these steps in the queue, the late half of each beside the early half of the next.
    unsafe fn run_staggered(&mut self, steps: Range<u32>, shows: bool, bases: &[u64]) -> Result<()> {
        let (queue, last) = (self.device.queue(), steps.end - 1);
        // SAFETY: the caller's promise.
        unsafe {
            self.count_from(steps.start, bases)?;
            for number in steps.clone() {
                let halves = if number == steps.start { Halves::First } else { Halves::Together };
                self.graph(Stretch::Staggered(halves, shows && number == last), bases)?.start(queue)?;
            }
            self.graph(Stretch::Staggered(Halves::Last, shows), bases)?.start(queue)
        }
    }

    /// Writes the number of a step where all read it.
    unsafe fn count_from(&self, step: u32, bases: &[u64]) -> Result<()> {
        let late = self.plan.staggered.as_ref().and_then(Staggered::late_counter);
        for place in self.plan.counter.into_iter().chain(late) {
            // SAFETY: the place is the program's own.
            unsafe { sys::cuMemsetD32Async(self.address(place, bases), step, 1, self.device.queue()) }
                .result()
                .map_err(|e| failed("write memory", e))?;
        }
        Ok(())
    }

    /// Writes that nothing has failed, where anything can.
    unsafe fn forget_failure(&self) -> Result<()> {
        if self.plan.checks.is_empty() {
            return Ok(());
        }
        let bytes = failure_record::bytes(self.plan.checks.len());
        // SAFETY: the record is the program's own, and so long.
        unsafe { result::memset_d8_async(self.error.start, failure_record::NO_ERROR_BYTE, bytes, self.device.queue()) }
            .map_err(|e| failed("clear memory", e))
    }

    /// The error of the last run, where an index was out of range.
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

    /// The word that lies so many bytes from the start of the record of failed checks.
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
        preparation: Preparation,
        dnn: Option<&Dnn>,
        device: &Arc<Device>,
    ) -> Result<Self> {
        Ok(CudaRun { planned: Planned::new(preparation, &program, dnn, device)?, bindings: Bindings::new(program) })
    }

    /// The memory it was planned to take.
    pub fn planned_bytes(&self) -> PlannedBytes {
        self.planned.plan.bytes()
    }

    /// Bytes of inputs, outputs and everything between.
    pub fn memory_bytes(&self) -> usize {
        let PlannedBytes { bound, kept, arena, .. } = self.planned_bytes();
        bound + kept + arena
    }

    /// The most bytes alive at once: what a perfect layout would take.
    pub fn memory_lower_bound(&self) -> usize {
        self.planned.plan.memory_lower_bound
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        // What is dropped with it talks to the driver.
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
