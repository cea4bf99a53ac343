//! The GPU, with every program it compiles.

use bilevel_cuda::{Cuda, PlannedBytes};
use bilevel_graph::{Buffer, Executor, Meta, Program, Result, Runnable};
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU that remembers what it compiles, and what memory that was planned to take.
#[derive(Clone)]
pub struct Watching {
    cuda: Cuda,
    seen: Arc<Mutex<Vec<(Program, PlannedBytes)>>>,
}

impl Watching {
    /// Nothing seen yet.
    pub fn new(cuda: &Cuda) -> Self {
        Watching { cuda: cuda.clone(), seen: Arc::default() }
    }

    /// The programs so far, in order.
    pub fn seen(&self) -> Vec<(Program, PlannedBytes)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Executor for Watching {
    fn compile(&self, program: &Program) -> Result<Box<dyn Runnable>> {
        let run = self.cuda.plan(program)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push((program.clone(), run.planned_bytes()));
        Ok(Box::new(run))
    }

    fn buffer(&self, meta: &Meta) -> Result<Buffer> {
        self.cuda.buffer(meta)
    }

    fn share(&self) -> Arc<dyn Executor> {
        Arc::new(self.clone())
    }
}
