//! An executor with every program it compiles, and what memory each takes on a GPU.

use bilevel_cpu::Cpu;
use bilevel_cuda::{Cuda, PlannedBytes, planned_bytes};
use bilevel_graph::{Buffer, Executor, Meta, Program, Result, Runnable};
use std::sync::{Arc, Mutex, PoisonError};

/// An executor that remembers what it compiles, and what memory that was planned to take.
#[derive(Clone)]
pub struct Watching {
    on: On,
    seen: Arc<Mutex<Vec<(Program, PlannedBytes)>>>,
}

/// Where programs run.
#[derive(Clone)]
enum On {
    Gpu(Cuda),
    /// On the CPU, while they are planned for a GPU that is not there.
    Cpu(Cpu),
}

impl Watching {
    /// A GPU that has seen nothing yet.
    pub fn new(cuda: &Cuda) -> Self {
        Watching { on: On::Gpu(cuda.clone()), seen: Arc::default() }
    }

    /// Plans for a GPU, without one.
    pub fn without_gpu() -> Self {
        Watching { on: On::Cpu(Cpu::new()), seen: Arc::default() }
    }

    /// The programs so far, in order.
    pub fn seen(&self) -> Vec<(Program, PlannedBytes)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Executor for Watching {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        let (run, bytes): (Box<dyn Runnable>, PlannedBytes) = match &self.on {
            On::Gpu(cuda) => {
                let run = cuda.plan(program)?;
                let bytes = run.planned_bytes();
                (Box::new(run), bytes)
            }
            On::Cpu(cpu) => (cpu.compile(program)?, planned_bytes(program)?),
        };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push((program.clone(), bytes));
        Ok(run)
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        match &self.on {
            On::Gpu(cuda) => cuda.buffer(meta),
            On::Cpu(cpu) => cpu.buffer(meta),
        }
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }
}
