//! A planned program with its memory: set inputs, run steps, read outputs.

use crate::block::Block;
use crate::kernels::Isa;
use crate::plan::{Plan, plan};
use crate::step::Step;
use crate::team::Team;
use crate::tile::Memory;
use bilevel_graph::{Array, DType, Error, ErrorKind, Executor, Program, Result, Runnable};
use std::ops::Range;
use std::sync::Arc;

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
    isa: Isa,
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
        Cpu { team: Arc::new(Team::new(threads.max(1))), isa: Isa::detect() }
    }

    /// As [`Executor::compile`], giving the concrete type, which can tell more about itself.
    pub fn plan(&self, program: &Program) -> Result<CpuRun> {
        program.validate()?;
        let plan = plan(program, self.team.threads(), self.isa)?;
        CpuRun::new(program.clone(), plan, self.team.clone())
    }
}

impl Executor for Cpu {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        Ok(Box::new(self.plan(program)?))
    }
}

/// A program planned for the CPU, with its memory.
pub struct CpuRun {
    program: Program,
    plan: Plan,
    team: Arc<Team>,
    memory: Block,
    scratch: Block,
    set: Vec<bool>,
    ran: bool,
}

impl CpuRun {
    fn new(program: Program, plan: Plan, team: Arc<Team>) -> Result<Self> {
        let mut memory = Block::new(plan.memory_bytes)?;
        for (place, dtype, values) in &plan.tables {
            for (i, &value) in values.iter().enumerate() {
                // SAFETY: the plan reserved the table's place.
                unsafe {
                    let to = memory.start().add(place + i * dtype.size());
                    match dtype {
                        DType::F32 => to.cast::<f32>().write(value as f32),
                        DType::F64 => to.cast::<f64>().write(value),
                        DType::I32 => to.cast::<i32>().write(value as i32),
                    }
                }
            }
        }
        let scratch = Block::new(plan.scratch_bytes.saturating_mul(team.threads()))?;
        let set = (0..program.inputs.len()).map(|i| program.step == Some(i)).collect();
        Ok(CpuRun { program, plan, team, memory, scratch, set, ran: false })
    }

    /// Bytes of the one block that holds inputs, outputs and everything between.
    pub fn memory_bytes(&self) -> usize {
        self.plan.memory_bytes
    }

    /// The most bytes alive at once: what a perfect layout would take.
    pub fn memory_lower_bound(&self) -> usize {
        self.plan.memory_lower_bound
    }

    /// A line for each step, for people who want to see what was fused.
    pub fn describe(&self) -> String {
        let part = |name: &str, steps: &[Step]| {
            steps.iter().enumerate().map(|(i, step)| format!("{name} {i}: {}\n", step.describe())).collect::<String>()
        };
        part("once", &self.plan.prologue) + &part("step", &self.plan.body)
    }

    /// Runs one turn of the loop, timing each step; for profiles.
    pub fn profile(&mut self) -> Result<Vec<(String, std::time::Duration)>> {
        let memory = self.view();
        let mut times = vec![];
        for step in self.plan.prologue.iter().chain(&self.plan.body) {
            let start = std::time::Instant::now();
            // SAFETY: the memory is laid out by this plan, and `self` is borrowed for the whole run.
            unsafe { step.run(&self.team, memory)? };
            times.push((step.describe(), start.elapsed()));
        }
        self.ran = true;
        Ok(times)
    }

    fn view(&mut self) -> Memory {
        Memory {
            program: self.memory.start(),
            constants: self.plan.constants.as_ptr().cast(),
            scratch: self.scratch.start(),
            scratch_stride: self.plan.scratch_bytes,
        }
    }

    fn bytes(&self) -> *const u8 {
        self.memory.bytes()
    }
}

impl Runnable for CpuRun {
    fn set(&mut self, input: usize, value: &Array) -> Result<()> {
        self.program.check_input(input, value)?;
        if let Some(place) = self.plan.inputs[input] {
            let bytes = value.bytes();
            // SAFETY: the plan reserved the input's place, and its shape and type were just checked.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.start().add(place), bytes.len()) };
        }
        self.set[input] = true;
        Ok(())
    }

    fn run(&mut self, steps: Range<u32>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        if let Some(missing) = self.set.iter().position(|set| !set) {
            let name = self.program.inputs[missing].name.clone();
            return Err(Error::new(ErrorKind::MissingInput { name }));
        }
        self.program.check_steps(&steps)?;
        // What a run that fails leaves behind is no output.
        self.ran = false;
        let memory = self.view();
        let counter = self.program.step.and_then(|input| self.plan.inputs[input]);
        // SAFETY: the memory is laid out by this plan, and `self` is borrowed for the whole run.
        unsafe {
            for step in &self.plan.prologue {
                step.run(&self.team, memory)?;
            }
            let count = |number: u32| {
                if let Some(place) = counter {
                    memory.program.add(place).cast::<u32>().write(number);
                }
            };
            if let Some(scalars) = &self.plan.scalar_loop {
                count(steps.end - 1);
                scalars.run(steps, memory);
                self.ran = true;
                return Ok(());
            }
            for number in steps {
                count(number);
                for step in &self.plan.body {
                    step.run(&self.team, memory)?;
                }
            }
        }
        self.ran = true;
        Ok(())
    }

    fn read(&self, output: usize, into: &mut Array) -> Result<()> {
        self.program.check_output(output, into)?;
        if !self.ran {
            let name = self.program.outputs[output].name.clone();
            return Err(Error::new(ErrorKind::NotRun { name }));
        }
        // SAFETY: the view lies inside the memory of its node, and the array has the output's shape and type.
        unsafe { self.plan.outputs[output].run_between(self.bytes(), into.bytes_mut().as_mut_ptr()) };
        Ok(())
    }

    fn read_input(&self, input: usize, into: &mut Array) -> Result<()> {
        self.program.check_input(input, into)?;
        if !self.set[input] {
            let name = self.program.inputs[input].name.clone();
            return Err(Error::new(ErrorKind::MissingInput { name }));
        }
        if let Some(place) = self.plan.inputs[input] {
            let bytes = into.bytes_mut();
            // SAFETY: the plan reserved the input's place for this shape and type.
            unsafe { std::ptr::copy_nonoverlapping(self.bytes().add(place), bytes.as_mut_ptr(), bytes.len()) };
        }
        Ok(())
    }

    fn program(&self) -> &Program {
        &self.program
    }
}
