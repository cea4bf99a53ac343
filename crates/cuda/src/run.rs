//! A planned program on a GPU: bound to buffers, run for some steps.

use crate::branches::{Turn, longest, needs, turns};
use crate::capture::Captured;
use crate::dnn::Dnn;
use crate::driver::{BRANCH, Device, Function, Memory, QUEUE, STREAMS, failed};
use crate::events::Events;
use crate::plan::{Plan, plan};
use crate::products::Products;
use crate::spent::Part;
use crate::start::{Ready, start};
use crate::step::{Span, Step, Work};
use crate::storage::CudaStorage;
use bilevel_graph::{Bindings, Buffer, DType, Error, ErrorKind, Meta, Program, Result, Runnable};
use bilevel_plan::{Place, Region, lacks};
use cudarc::driver::{result, sys};
use std::ops::Range;
use std::sync::Arc;

/// Graphs kept of one program: it may be bound to several sets of buffers in turn.
const GRAPHS: usize = 8;
/// The word that remembers errors, where there are none.
const FINE: u64 = u64::MAX;

/// A program planned for a GPU.
pub struct CudaRun {
    bindings: Bindings,
    planned: Planned,
}

/// All of a run but its buffers.
pub(crate) struct Planned {
    plan: Plan,
    device: Arc<Device>,
    prologue: Vec<Ready>,
    body: Body,
    lean: Option<Body>,
    finish: Vec<Ready>,
    kept: Memory,
    error: Memory,
    graphs: Vec<Recorded>,
    /// The prologue has run, on these buffers and versions of its inputs.
    prologue_of: Option<Vec<(u64, u64)>>,
}

/// What can be made of a program on any thread: it takes no memory of the GPU for itself, and puts nothing in its queue but trials of
/// products and convolutions, in their turn.
pub(crate) struct Preparation {
    plan: Plan,
    /// The kernels of all steps, in order.
    functions: Vec<Function>,
    /// By step of the loop, and of its lean form.
    turns: Vec<Turn>,
    lean_turns: Vec<Turn>,
}

impl Preparation {
    /// Plans a valid program, with convolutions by the library where it is given, and loads its kernels.
    pub fn new(program: &Program, dnn: Option<&Dnn>, device: &Arc<Device>) -> Result<Self> {
        let plan = device.clock.time(Part::Planning, || plan(program, dnn))?;
        device.expect_scratch(plan.arena_bytes);
        let sources: Vec<&str> = plan.kernels().map(|launch| &launch.source[..]).collect();
        // The compiler keeps the cores busy, and trials of products the GPU.
        let functions = std::thread::scope(|scope| {
            let functions = scope.spawn(|| device.clock.time(Part::Kernels, || device.functions(&sources)));
            let chosen = device.clock.time(Part::Products, || choose_products(&plan, device));
            let functions = functions.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            chosen.map(|()| functions)
        })?;
        let (turns, lean_turns) = (turns(&plan.body, STREAMS), turns(plan.lean.as_deref().unwrap_or(&[]), STREAMS));
        Ok(Preparation { plan, functions, turns, lean_turns })
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

/// One step of the loop: its parts, and which of them run side by side.
struct Body {
    ready: Vec<Ready>,
    turns: Vec<Turn>,
}

/// One step of the loop, recorded for certain addresses.
struct Recorded {
    lean: bool,
    bases: Vec<u64>,
    graph: Captured,
}

// SAFETY: the handles may be used from any thread, with the context made current first.
unsafe impl Send for Planned {}

impl Planned {
    pub fn new(preparation: Preparation, device: &Arc<Device>) -> Result<Self> {
        let Preparation { plan, functions, turns, lean_turns } = preparation;
        device.enter()?;
        let mut functions = functions.into_iter();
        let mut ready = |steps: &[Step]| -> Result<Vec<Ready>> {
            let one = |step: &Step| match &step.work {
                Work::Kernel(_) => functions.next().map(Ready::Kernel).ok_or_else(|| lacks("a kernel")),
                Work::Product(product) => {
                    let prepared = device.products()?.prepare(product, device);
                    prepared.map(Ready::Product).map_err(|error| error.at(step.location))
                }
                Work::Convolution { geometry, .. } => {
                    let dnn = device.dnn().ok_or_else(|| lacks("the library of convolutions"))?;
                    let convolved = dnn.prepare(geometry).map_err(|error| error.at(step.location))?;
                    Ok(Ready::Convolution(convolved))
                }
                Work::Copy { .. } => Ok(Ready::Copy),
            };
            steps.iter().map(one).collect()
        };
        let (prologue, body) = (ready(&plan.prologue)?, ready(&plan.body)?);
        let lean = plan.lean.as_ref().map(|steps| ready(steps)).transpose()?;
        let finish = ready(&plan.finish)?;
        let (kept, error) = (Memory::new(device, plan.kept_bytes)?, Memory::new(device, 8)?);
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
        let body = Body { ready: body, turns };
        let lean = lean.map(|ready| Body { ready, turns: lean_turns });
        Ok(Planned {
            plan,
            device: device.clone(),
            prologue,
            body,
            lean,
            finish,
            kept,
            error,
            graphs: vec![],
            prologue_of: None,
        })
    }

    /// The address of every region: inputs, outputs, what is kept, the arena.
    fn bases(&self, bindings: &Bindings, arena: u64) -> Vec<u64> {
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
            Region::Kept => bases[bases.len() - 2],
            Region::Arena => bases[bases.len() - 1],
        };
        base + place.offset as u64
    }

    /// Puts a step in the stream of a branch.
    ///
    /// # Safety
    /// The addresses must be those of this program's buffers, which the run holds.
    unsafe fn start(&self, step: &Step, ready: &Ready, bases: &[u64], branch: usize) -> Result<()> {
        let (at, error) = (|place: Place| self.address(place, bases), self.error.start);
        // SAFETY: the caller's promise; the plan keeps every access inside its places.
        unsafe { start(&self.device, (&step.work, ready), (at, error), branch) }
            .map_err(|error| if error.location.is_none() { error.at(step.location) } else { error })
    }

    /// Records one step of the loop as a graph, with branches where work is independent.
    ///
    /// # Safety
    /// As for [`start`](Self::start).
    unsafe fn record(&self, lean: bool, bases: &[u64]) -> Result<Captured> {
        let mut events = Events::new();
        // SAFETY: the caller's promise; all streams join the first again before the recording ends.
        unsafe { Captured::new(self.device.stream(BRANCH), || self.record_steps(lean, bases, &mut events)) }
    }

    unsafe fn record_steps(&self, lean: bool, bases: &[u64], events: &mut Events) -> Result<()> {
        let (steps, body) = match (&self.plan.lean, &self.lean) {
            (Some(steps), Some(body)) if lean => (steps, body),
            _ => (&self.plan.body, &self.body),
        };
        let device = &*self.device;
        let wrong = |e| failed("record a step", e);
        // SAFETY: as for `record`.
        unsafe {
            let first = device.stream(BRANCH);
            let start = events.after(first).map_err(wrong)?;
            let mut forked = [false; STREAMS];
            forked[0] = true;
            let mut done: Vec<Option<sys::CUevent>> = vec![None; body.turns.len()];
            let wait = |stream, event| {
                result::stream::wait_event(stream, event, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT).map_err(wrong)
            };
            for (number, turn) in body.turns.iter().enumerate() {
                let stream = device.stream(BRANCH + turn.stream);
                if !std::mem::replace(&mut forked[turn.stream], true) {
                    wait(stream, start)?;
                }
                for event in turn.after.iter().filter_map(|&step| done[step]) {
                    wait(stream, event)?;
                }
                self.start(&steps[number], &body.ready[number], bases, BRANCH + turn.stream)?;
                if turn.awaited {
                    done[number] = Some(events.after(stream).map_err(wrong)?);
                }
            }
            for branch in (1..STREAMS).filter(|&branch| forked[branch]) {
                let event = events.after(device.stream(BRANCH + branch)).map_err(wrong)?;
                wait(first, event)?;
            }
        }
        Ok(())
    }

    /// The recorded step for these addresses.
    unsafe fn graph(&mut self, lean: bool, bases: &[u64]) -> Result<&Captured> {
        let lean = lean && self.lean.is_some();
        let recorded = match self.graphs.iter().position(|old| old.lean == lean && old.bases == bases) {
            Some(found) => self.graphs.remove(found),
            None => {
                // SAFETY: the caller's promise.
                let graph = self.device.clock.time(Part::Recording, || unsafe { self.record(lean, bases) })?;
                if self.graphs.len() == GRAPHS {
                    drop(self.graphs.remove(0));
                }
                Recorded { lean, bases: bases.to_vec(), graph }
            }
        };
        // The one used last stands last.
        self.graphs.push(recorded);
        self.graphs.last().map(|recorded| &recorded.graph).ok_or_else(|| lacks("a step that was recorded"))
    }

    /// Runs what is the same in every step, unless what it reads is as it was.
    unsafe fn run_prologue(&mut self, bindings: &Bindings, bases: &[u64]) -> Result<()> {
        if self.prologue.is_empty() {
            return Ok(());
        }
        let of = |input: &usize| bindings.inputs()[*input].as_ref().map(|b| (b.id(), b.version()));
        let now: Vec<(u64, u64)> = self.plan.prologue_inputs.iter().filter_map(of).collect();
        if self.prologue_of.as_ref() == Some(&now) {
            return Ok(());
        }
        self.prologue_of = None;
        for (step, ready) in self.plan.prologue.iter().zip(&self.prologue) {
            // SAFETY: the caller's promise.
            unsafe { self.start(step, ready, bases, QUEUE)? };
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
        // SAFETY: the caller holds all buffers, and this thread the right to put work in the queue.
        unsafe {
            if !self.plan.checks.is_empty() {
                result::memset_d8_async(self.error.start, 0xff, 8, queue).map_err(|e| failed("clear memory", e))?;
            }
            self.run_prologue(bindings, &bases)?;
            if let Some(place) = self.plan.counter {
                let counter = self.address(place, &bases);
                sys::cuMemsetD32Async(counter, steps.start, 1, queue)
                    .result()
                    .map_err(|e| failed("write memory", e))?;
            }
            let last = steps.end - 1;
            for number in steps {
                self.graph(!(shows && number == last), &bases)?.start(queue)?;
            }
            if shows {
                for (step, ready) in self.plan.finish.iter().zip(&self.finish) {
                    self.start(step, ready, &bases, QUEUE)?;
                }
            }
        }
        drop(scratch);
        self.failure().inspect_err(|_| self.prologue_of = None)
    }

    /// The error of the last run, where an index was out of range.
    fn failure(&self) -> Result<()> {
        if self.plan.checks.is_empty() {
            return Ok(());
        }
        let mut word = [0u8; 8];
        self.device.count_to_host(word.len());
        // SAFETY: the word is the program's own, and the copy is waited for.
        unsafe { result::memcpy_dtoh_async(&mut word, self.error.start, self.device.queue()) }
            .map_err(|e| failed("read memory", e))?;
        self.device.wait()?;
        let word = u64::from_ne_bytes(word);
        if word == FINE {
            return Ok(());
        }
        let check = self.plan.checks.get((word >> 54) as usize).ok_or_else(|| lacks("the operation that failed"))?;
        let (operation, index) = (check.operation.to_string(), i64::from(word as u32 as i32));
        Err(Error::new(ErrorKind::IndexOutOfRange { operation, index, limit: check.limit }).at(check.location))
    }
}

impl CudaRun {
    pub(crate) fn new(program: Program, preparation: Preparation, device: &Arc<Device>) -> Result<Self> {
        Ok(CudaRun { planned: Planned::new(preparation, device)?, bindings: Bindings::new(program) })
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

    /// A line for each step, for people who want to see what was fused.
    pub fn describe(&self) -> String {
        let part = |name: &str, steps: &[Step]| -> String {
            steps.iter().enumerate().map(|(i, step)| format!("{name} {i}: {}\n", described(step))).collect()
        };
        let memory = format!(
            "memory: {} bytes bound, {} kept, {} in the arena; {} kernels of {} texts\n",
            self.planned.plan.bound_bytes,
            self.planned.plan.kept_bytes,
            self.planned.plan.arena_bytes,
            self.planned.plan.kernels().count(),
            self.planned.plan.kernels().map(|launch| &launch.source).collect::<std::collections::HashSet<_>>().len()
        );
        memory
            + &part("once", &self.planned.plan.prologue)
            + &part("step", &self.planned.plan.body)
            + &part("end", &self.planned.plan.finish)
    }

    /// Runs each part of one step of the loop by itself, `times` times in a row as a recorded graph, and says how long it took; for profiles.
    pub fn profile(&mut self, times: u32) -> Result<Vec<Profiled>> {
        self.run(0..1)?;
        let CudaRun { bindings, planned } = self;
        let device = planned.device.clone();
        let scratch = device.scratch();
        let bases = planned.bases(bindings, scratch.start());
        let (steps, body) = match (&planned.plan.lean, &planned.lean) {
            (Some(steps), Some(body)) if !bindings.program().carries.is_empty() => (steps, body),
            _ => (&planned.plan.body, &planned.body),
        };
        let mut found: Vec<Profiled> = vec![];
        for (step, ready) in steps.iter().zip(&body.ready) {
            // SAFETY: as in `execute`; what the steps compute is not used.
            let graph = unsafe {
                let put = || (0..times).try_for_each(|_| planned.start(step, ready, &bases, BRANCH));
                Captured::new(device.stream(BRANCH), put)?
            };
            // The first time loads kernels, and clocks rise: the best counts.
            let mut seconds = f64::INFINITY;
            for _ in 0..3 {
                device.wait()?;
                let start = std::time::Instant::now();
                // SAFETY: as above.
                unsafe { graph.start(device.queue())? };
                device.wait()?;
                seconds = seconds.min(start.elapsed().as_secs_f64() / f64::from(times));
            }
            found.push(Profiled { what: described(step), seconds, decisive: false });
        }
        let seconds: Vec<f64> = found.iter().map(|part| part.seconds).collect();
        longest(&needs(steps), &seconds).into_iter().for_each(|number| found[number].decisive = true);
        Ok(found)
    }
}

/// A part of a step, and how long it takes by itself.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// What it does, in a few words.
    pub what: String,
    /// How long it takes.
    pub seconds: f64,
    /// It is one of the parts that wait for each other the longest: the step cannot be faster than they are.
    pub decisive: bool,
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

/// A step in a few words.
fn described(step: &Step) -> String {
    match &step.work {
        Work::Kernel(launch) => {
            let body: Vec<&str> = launch.source.lines().skip(2).collect();
            let first = body.iter().find(|line| line.contains("op_") || line.contains("draw")).unwrap_or(&"");
            let megabytes = |spans: &[Span]| spans.iter().map(|span| span.bytes).sum::<usize>() as f64 / 1e6;
            format!(
                "kernel {}x{} of {}, {:.1} MB read, {:.1} written, {} lines: {}",
                launch.grid[0],
                launch.grid[1],
                launch.block,
                megabytes(&step.reads),
                megabytes(&step.writes),
                body.len(),
                first.trim()
            )
        }
        Work::Product(p) => {
            format!("product {} x {} x {} of {:?}, {} of them", p.m, p.n, p.k, p.factor, p.batch)
        }
        Work::Convolution { geometry, .. } => format!("convolution {geometry:?}"),
        Work::Copy { bytes, .. } => format!("copy of {bytes} bytes"),
    }
}
