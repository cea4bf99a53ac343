//! A planned program: bound to buffers, run for some steps.

use crate::compile::plan::{Plan, plan};
use crate::compile::step::{Step, Turns};
use crate::kernels::Isa;
use crate::runtime::block::{Block, free_bytes};
use crate::runtime::memory::{ARENA, BOUND, CONSTANTS, KEPT, Memory, SCRATCH};
use crate::runtime::scratch_pool::Pool;
use crate::runtime::storage::CpuStorage;
use crate::runtime::thread_pool::Team;
use crate::target::cpu_target;
use bilevel_graph::{Array, Bindings, Buffer, DType, Executor, Meta, Program, Result, Runnable};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The CPU executor: plans a program once, then runs it without allocating.
///
/// Results do not depend on the number of threads.
///
/// ```
/// use bilevel_cpu::Cpu;
/// use bilevel_graph::{gradient, Array, DType, Executor, Graph, Program};
/// let g = Graph::new();
/// let x = g.input("x", [3], DType::F32);
/// let dx = gradient((x * x).sum_all(), &[x]).unwrap()[0].unwrap();
/// let program = Program::builder(&g).output("dx", dx).build().unwrap();
///
/// let mut run = Cpu::new().compile(&program).unwrap();
/// run.set(0, &Array::from_f32([3], vec![1.0, 2.0, 3.0]).unwrap()).unwrap();
/// run.run(0..1).unwrap();
/// assert_eq!(run.output(0).unwrap().to_f64(), [2.0, 4.0, 6.0]);
/// ```
#[derive(Clone)]
pub struct Cpu {
    team: Arc<Team>,
    pool: Arc<Pool>,
    isa: Isa,
    again: Option<usize>,
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Cpu {
    /// One thread for each core.
    pub fn new() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }

    /// This many threads, the calling one included; at least one.
    pub fn with_threads(threads: usize) -> Self {
        Cpu { team: Arc::new(Team::new(threads.max(1))), pool: Arc::default(), isa: Isa::detect(), again: None }
    }

    /// Programs compiled from now on use less memory and more time. A loop that would leave several values of at least
    /// this many bytes each for later loops leaves the fewest from which the others can be rematerialised.
    ///
    /// ```
    /// use bilevel_cpu::Cpu;
    /// use bilevel_graph::{DType, Graph, Program, gradient, nn};
    /// let g = Graph::new();
    /// let [x, w] = ["x", "w"].map(|name| g.input(name, [64, 64], DType::F32));
    /// let loss = nn::gelu(nn::gelu(x.matmul(w)).matmul(w)).sum_all();
    /// let dw = gradient(loss, &[w])?[0].expect("the loss depends on it");
    /// let program = Program::builder(&g).output("dw", dw).build()?;
    /// let usual = Cpu::with_threads(1).plan(&program)?.memory_bytes();
    /// assert!(Cpu::with_threads(1).rematerialize(1).plan(&program)?.memory_bytes() < usual);
    /// # Ok::<(), bilevel_graph::Error>(())
    /// ```
    pub fn rematerialize(mut self, from_bytes: usize) -> Self {
        self.again = Some(from_bytes);
        self
    }

    /// As [`Executor::compile`], giving the concrete type, which can tell more about itself.
    pub fn plan(&self, program: &Program) -> Result<CpuRun> {
        program.validate()?;
        let target = cpu_target(self.again);
        let plan = plan(program, &target, self.team.threads(), self.isa)?;
        CpuRun::new(program.clone(), plan, self)
    }
}

impl Executor for Cpu {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        Ok(Box::new(self.plan(program)?))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        CpuStorage::buffer(meta, &self.team)
    }

    fn adopt(&self, value: &Array) -> Result<Buffer> {
        CpuStorage::adopted(value, &self.team).map_or_else(|| self.upload(value), Ok)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }

    fn free_bytes(&self) -> Option<u64> {
        free_bytes()
    }
}

/// Bytes that a program keeps for itself: asking for a block in turn would cost small programs more than their work.
const MAX_OWN_BYTES: usize = 4096;

/// A program planned for the CPU.
pub struct CpuRun {
    bindings: Bindings,
    plan: Plan,
    team: Arc<Team>,
    pool: Arc<Pool>,
    kept: Block,
    /// Memory for values within a run, if it is so small that it need not be lent.
    own: Option<Block>,
    /// The regions of memory, a table for each worker.
    tables: Vec<*mut u8>,
    /// Regions in a table.
    regions: usize,
    /// The generation of the bindings that the tables show.
    shown: Option<u64>,
    /// The prologue has run, on these buffers and versions of its inputs.
    prologue_ran: bool,
    prologue_of: Vec<(u64, u64)>,
    /// The time of each step, if it is measured.
    times: Option<Vec<Duration>>,
}

fn timed(times: &mut Option<Vec<Duration>>, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some(times) = times else { return work() };
    let start = Instant::now();
    let done = work();
    times.push(start.elapsed());
    done
}

// SAFETY: the pointers in the tables are to blocks that the run owns or whose buffers it holds on to.
unsafe impl Send for CpuRun {}

impl CpuRun {
    fn new(program: Program, plan: Plan, cpu: &Cpu) -> Result<Self> {
        let kept = Block::new(plan.kept_bytes)?;
        for (place, dtype, values) in &plan.tables {
            for (i, &value) in values.iter().enumerate() {
                // SAFETY: the plan reserved the table's place, in kept memory.
                unsafe {
                    let to = kept.start().add(place.offset + i * dtype.size());
                    match dtype {
                        DType::F32 => to.cast::<f32>().write(value as f32),
                        DType::F64 => to.cast::<f64>().write(value),
                        DType::I32 => to.cast::<i32>().write(value as i32),
                    }
                }
            }
        }
        let (team, pool) = (cpu.team.clone(), cpu.pool.clone());
        let regions = BOUND as usize + program.inputs.len() + program.outputs.len();
        let tables = vec![std::ptr::null_mut(); regions * team.threads()];
        let prologue_of = Vec::with_capacity(plan.prologue_inputs.len());
        let mut run = CpuRun {
            bindings: Bindings::new(program),
            plan,
            team,
            pool,
            kept,
            own: None,
            tables,
            regions,
            shown: None,
            prologue_ran: false,
            prologue_of,
            times: None,
        };
        match run.lent_bytes() {
            bytes @ ..=MAX_OWN_BYTES => run.own = Some(Block::new(bytes)?),
            bytes => run.pool.reserve(bytes)?,
        }
        Ok(run)
    }

    /// Bytes a run works in, lent by the executor if they are many: values within the run, and every worker's scratch.
    fn lent_bytes(&self) -> usize {
        self.plan.arena_bytes.saturating_add(self.plan.scratch_bytes.saturating_mul(self.team.threads()))
    }

    /// Bytes of inputs, outputs and everything between.
    pub fn memory_bytes(&self) -> usize {
        self.plan.bound_bytes + self.plan.kept_bytes + self.plan.arena_bytes
    }

    /// The peak of live bytes, the size of a perfect layout.
    pub fn memory_lower_bound(&self) -> usize {
        self.plan.memory_lower_bound
    }

    /// A line for each step, which shows the fusion.
    pub fn describe(&self) -> String {
        let part = |name: &str, steps: &[Step]| {
            let line = |(i, step): (usize, &Step)| {
                let turns = match step.turns {
                    Turns::All => "",
                    Turns::Last => "in the last turn, ",
                    Turns::ButLast => "in the others, ",
                };
                format!("{name} {i}: {turns}{}\n", step.describe())
            };
            steps.iter().enumerate().map(line).collect::<String>()
        };
        part("once", &self.plan.prologue) + &part("step", &self.plan.body)
    }

    /// Runs one turn of the loop, timing each step; for profiles.
    pub fn profile(&mut self) -> Result<Vec<(String, Duration)>> {
        self.prologue_ran = false;
        self.times = Some(vec![]);
        let done = self.run(0..1);
        let times = self.times.take().unwrap_or_default();
        done?;
        let steps = self.plan.prologue.iter().chain(&self.plan.body).filter(|step| step.turns.include(true));
        Ok(steps.map(Step::describe).zip(times).collect())
    }

    /// The memory of a run in lent bytes: brings the tables up to date.
    fn memory(&mut self, lent: *mut u8) -> Memory {
        let generation = self.bindings.generation();
        let rebound = self.shown != Some(generation);
        if !rebound && self.own.is_some() {
            return Memory::new(&self.tables, self.regions);
        }
        for (worker, table) in self.tables.chunks_exact_mut(self.regions).enumerate() {
            let scratch = self.plan.arena_bytes + worker * self.plan.scratch_bytes;
            table[SCRATCH as usize] = lent.wrapping_add(scratch);
            table[ARENA as usize] = lent;
            if rebound {
                table[CONSTANTS as usize] = self.plan.constants.as_ptr().cast_mut().cast();
                table[KEPT as usize] = self.kept.start();
                let buffers = self.bindings.inputs().iter().chain(self.bindings.outputs());
                for (region, buffer) in table[BOUND as usize..].iter_mut().zip(buffers) {
                    *region = buffer.as_ref().and_then(CpuStorage::of).map_or(std::ptr::null_mut(), CpuStorage::start);
                }
            }
        }
        self.shown = Some(generation);
        Memory::new(&self.tables, self.regions)
    }

    /// The buffers that the prologue reads, and their versions.
    fn prologue_reads(&self) -> impl Iterator<Item = (u64, u64)> {
        let of = |input: &usize| self.bindings.inputs()[*input].as_ref().map(|b| (b.id(), b.version()));
        self.plan.prologue_inputs.iter().filter_map(of)
    }

    /// Runs the loop-invariant steps, unless their operands are unchanged.
    ///
    /// # Safety
    /// As for [`Step::run`].
    unsafe fn run_prologue(&mut self, memory: Memory) -> Result<()> {
        if self.plan.prologue.is_empty() {
            return Ok(());
        }
        if self.prologue_ran && self.prologue_of.iter().copied().eq(self.prologue_reads()) {
            return Ok(());
        }
        self.prologue_ran = false;
        self.prologue_of.clear();
        for step in &self.plan.prologue {
            // SAFETY: the caller's promise.
            unsafe { timed(&mut self.times, || step.run(&self.team, memory))? };
        }
        let mut read = std::mem::take(&mut self.prologue_of);
        read.extend(self.prologue_reads());
        self.prologue_of = read;
        self.prologue_ran = true;
        Ok(())
    }

    /// Runs these steps; operations that only outputs need are skipped unless the run shows them.
    ///
    /// # Safety
    /// As for [`Runnable::execute`].
    unsafe fn run_steps(&mut self, steps: Range<u32>, shows: bool, memory: Memory) -> Result<()> {
        // SAFETY: the memory is laid out by this plan, its buffers are held, and `self` is borrowed for the whole run.
        unsafe {
            self.run_prologue(memory)?;
            let count = |number: u32| {
                if let Some(place) = self.plan.counter {
                    memory.at(place).cast::<u32>().write(number);
                }
            };
            if let Some(scalars) = &self.plan.scalar_loop {
                count(steps.end - 1);
                timed(&mut self.times, || {
                    scalars.run(steps, memory);
                    Ok(())
                })?;
            } else {
                let last = steps.end - 1;
                for number in steps {
                    count(number);
                    let full = shows && number == last;
                    for step in self.plan.body.iter().filter(|step| step.turns.include(full)) {
                        timed(&mut self.times, || step.run(&self.team, memory))?;
                    }
                }
            }
            if shows {
                self.plan.finish.iter().for_each(|movement| movement.run(&self.team, memory));
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Runnable::execute`].
    unsafe fn run_in_lent_memory(&mut self, steps: Range<u32>, shows: bool) -> Result<()> {
        if let Some(own) = &self.own {
            let memory = self.memory(own.start());
            // SAFETY: the caller's promise.
            return unsafe { self.run_steps(steps, shows, memory) };
        }
        let lent = self.pool.take(self.lent_bytes())?;
        let memory = self.memory(lent.start());
        // SAFETY: the caller's promise.
        let done = unsafe { self.run_steps(steps, shows, memory) };
        self.pool.give_back(lent);
        done
    }
}

impl Runnable for CpuRun {
    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        &mut self.bindings
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        CpuStorage::buffer(meta, &self.team)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        CpuStorage::of(buffer).is_some()
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.run_in_lent_memory(steps, true) }
    }

    unsafe fn execute_for_carries(&mut self, steps: Range<u32>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.run_in_lent_memory(steps, false) }
    }
}
