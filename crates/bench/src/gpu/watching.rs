//! An executor that records its programs, and their memory on a GPU.

use super::nowhere::Nowhere;
use bilevel_cuda::{Cuda, PlannedBytes, planned_bytes};
use bilevel_graph::{Buffer, Executor, Meta, Program, Result, Runnable};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An executor that records its compiled programs, and their planned memory.
#[derive(Clone)]
pub struct Watching {
    on: On,
    seen: Arc<Mutex<Vec<(Program, PlannedBytes)>>>,
    /// How long planning took.
    planning: Arc<Mutex<Duration>>,
}

/// The device of the programs.
#[derive(Clone)]
enum On {
    Gpu(Cuda),
    /// Nowhere, while they are planned for a GPU that is not there.
    Nowhere,
}

impl Watching {
    /// A GPU that has seen nothing yet.
    pub fn new(cuda: &Cuda) -> Self {
        Watching { on: On::Gpu(cuda.clone()), seen: Arc::default(), planning: Arc::default() }
    }

    /// Plans for a GPU, without one.
    pub fn without_gpu() -> Self {
        Watching { on: On::Nowhere, seen: Arc::default(), planning: Arc::default() }
    }

    /// How long the planning of all programs so far took.
    pub fn planning(&self) -> Duration {
        *self.planning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The programs so far, in order.
    pub fn seen(&self) -> Vec<(Program, PlannedBytes)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Executor for Watching {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        let start = Instant::now();
        let (run, bytes): (Box<dyn Runnable>, PlannedBytes) = match &self.on {
            On::Gpu(cuda) => {
                let run = cuda.plan(program)?;
                let bytes = run.planned_bytes();
                (Box::new(run), bytes)
            }
            On::Nowhere => (Nowhere.compile(program)?, planned_bytes(program)?),
        };
        *self.planning.lock().unwrap_or_else(PoisonError::into_inner) += start.elapsed();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push((program.clone(), bytes));
        Ok(run)
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        match &self.on {
            On::Gpu(cuda) => cuda.buffer(meta),
            On::Nowhere => Nowhere.buffer(meta),
        }
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }
}
