//! A method that is prepared once and then run many times.

use bilevel::graph::Executor;
use bilevel::{Cpu, Estimator, Hypergradient, Method, Problem, Result, State};
use std::sync::{Arc, Mutex, PoisonError};

/// A method prepared for one problem on one thread; its clones share the compiled programs, so that a driver that prepares it
/// has nothing left to do. An estimator keeps nothing between its calls but what is in the state, so runs do not meet.
///
/// It must be run on the problem it was prepared for.
#[derive(Clone)]
pub(crate) struct Prepared {
    name: &'static str,
    estimator: Arc<Mutex<Box<dyn Estimator>>>,
}

impl Prepared {
    pub fn new(method: &dyn Method, problem: &Problem) -> Result<Self> {
        let estimator = method.compile(problem, &Cpu::with_threads(1))?;
        method.applies(problem)?;
        Ok(Prepared { name: method.name(), estimator: Arc::new(Mutex::new(estimator)) })
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prepared({})", self.name)
    }
}

impl Method for Prepared {
    fn name(&self) -> &'static str {
        self.name
    }

    fn compile(&self, _: &Problem, _: &dyn Executor) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(self.clone()))
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        self.estimator.lock().unwrap_or_else(PoisonError::into_inner).estimate(state, key)
    }
}
