//! A method that is prepared once and then run many times.

use bilevel::{Estimator, Hypergradient, InnerLoop, Key, Method, Result, Session, State};
use std::sync::{Arc, Mutex, PoisonError};

/// A method compiled in one session; its clones share the compiled programs, so that a driver that prepares it has nothing left
/// to do. An estimator keeps nothing outside the state between its calls, so runs are independent.
///
/// It must be run on the problem and the kind of executor of its session. It obeys that session's stop signal, so a
/// driver that is to be stopped must have the same one.
#[derive(Clone)]
pub(crate) struct Prepared {
    name: &'static str,
    inner: InnerLoop,
    estimator: Arc<Mutex<Box<dyn Estimator>>>,
}

impl Prepared {
    pub fn new(method: &dyn Method, inner: &InnerLoop, session: &Session) -> Result<Self> {
        let estimator = method.compile(session, inner)?;
        method.applies(session.problem())?;
        Ok(Prepared { name: method.name(), inner: *inner, estimator: Arc::new(Mutex::new(estimator)) })
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

    fn usual_loop(&self) -> InnerLoop {
        self.inner
    }

    fn compile(&self, _: &Session, _: &InnerLoop) -> Result<Box<dyn Estimator>> {
        Ok(Box::new(self.clone()))
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.estimator.lock().unwrap_or_else(PoisonError::into_inner).estimate(state, key, gamma)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel::methods::RmdFo;
    use bilevel::observers::StopSignal;
    use bilevel::{Cpu, StopReason};
    use bilevel_run::{Config, Registry};
    use bilevel_tasks::Synth1d;
    use std::time::Duration;

    #[test]
    fn a_signal_breaks_off_a_method_that_was_prepared_before_the_run() {
        let registry = crate::register(bilevel_tasks::register(Registry::new()));
        let config = registry.config(&Synth1d::default()).unwrap();
        let problem = config.problem(&registry).unwrap();
        let signal = StopSignal::new();
        let cpu = Cpu::with_threads(1);
        let session = Session::new(&problem, &cpu).unwrap().stopped_by(signal.clone());
        // Left alone it would train for minutes.
        let config = Config { inner: InnerLoop::new(1e-3, 2_000_000_000), ..config };
        let method = Prepared::new(&RmdFo::default(), &config.inner, &session).unwrap();
        let driver = config.driver_by(method, &registry, &problem, Box::new(cpu)).unwrap().stop_signal(signal.clone());
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                signal.stop();
            });
            driver.run().unwrap()
        });
        assert_eq!((outcome.reason, outcome.iterations), (StopReason::Signal, 0));
    }
}
