//! Compiles a program on a background thread. The first run waits for it.

use crate::compile::stats::Phase;
use crate::runtime::buffer::CudaStorage;
use crate::runtime::device::Device;
use crate::runtime::run::{CompiledPlan, Executable};
use bilevel_graph::{Bindings, Buffer, Error, Meta, Program, Result, Runnable};
use bilevel_plan::internal_error;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A program that is compiled by its first run at the latest. Buffers can be bound before.
pub(crate) struct LaterRun {
    bindings: Bindings,
    device: Arc<Device>,
    state: CompileState,
}

/// The progress of compilation.
enum CompileState {
    /// A thread is compiling; `None` after it has been joined.
    Coming(Option<JoinHandle<Result<CompiledPlan>>>),
    There(Box<Executable>),
    /// Compilation failed; every run returns this error.
    Failed(Error),
}

impl LaterRun {
    /// Starts compiling a valid program.
    pub fn new(program: &Program, device: &Arc<Device>) -> Self {
        let (for_thread, on) = (program.clone(), device.clone());
        let thread = std::thread::spawn(move || CompiledPlan::new(&for_thread, None, &on));
        LaterRun {
            bindings: Bindings::new(program.clone()),
            device: device.clone(),
            state: CompileState::Coming(Some(thread)),
        }
    }

    /// Waits for compilation, and returns the program and its buffers.
    fn planned(&mut self) -> Result<(&Bindings, &mut Executable)> {
        if let CompileState::Coming(thread) = &mut self.state {
            let joined = self.device.clock.time(Phase::Waiting, || thread.take().map(JoinHandle::join));
            let prepared = match joined {
                Some(Ok(prepared)) => prepared,
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                None => Err(internal_error("the thread that compiles a program")),
            };
            let program = self.bindings.program();
            let planned = prepared.and_then(|compiled| Executable::new(compiled, program, None, &self.device));
            self.state = match planned {
                Ok(planned) => CompileState::There(Box::new(planned)),
                Err(error) => CompileState::Failed(error),
            };
        }
        match &mut self.state {
            CompileState::There(planned) => Ok((&self.bindings, planned)),
            CompileState::Failed(error) => Err(error.clone()),
            CompileState::Coming(_) => Err(internal_error("a compiled program")),
        }
    }
}

impl Drop for LaterRun {
    fn drop(&mut self) {
        // The process must not end while a thread calls the driver.
        if let CompileState::Coming(Some(thread)) = std::mem::replace(&mut self.state, CompileState::Coming(None)) {
            let _ = thread.join();
        }
    }
}

impl Runnable for LaterRun {
    fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    fn bindings_mut(&mut self) -> &mut Bindings {
        &mut self.bindings
    }

    fn allocate(&self, meta: &Meta) -> Result<Buffer> {
        CudaStorage::buffer(meta, &self.device)
    }

    fn accepts(&self, buffer: &Buffer) -> bool {
        CudaStorage::of(buffer, &self.device).is_some()
    }

    unsafe fn execute(&mut self, steps: Range<u32>) -> Result<()> {
        let (bindings, planned) = self.planned()?;
        // SAFETY: the caller's promise.
        unsafe { planned.run_steps(bindings, steps, true) }
    }

    unsafe fn execute_for_carries(&mut self, steps: Range<u32>) -> Result<()> {
        let (bindings, planned) = self.planned()?;
        // SAFETY: the caller's promise.
        unsafe { planned.run_steps(bindings, steps, false) }
    }
}
