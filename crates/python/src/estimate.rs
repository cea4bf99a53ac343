//! A method compiled for a problem: one hypergradient at a time.

use crate::array;
use crate::error::{self, of};
use crate::interrupt::interruptible;
use crate::problem::{inner_loop, named, place};
use bilevel::graph::Executor;
use bilevel::methods::PreparedMethod;
use bilevel::observers::StopSignal;
use bilevel::programs::Leaves;
use bilevel::{Array, Key, Method, Problem as Core, Session, State};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A compiled method. Every estimate starts from given values. It is unusable once Ctrl-C has ended an estimate.
#[pyclass(frozen, module = "bilevel._bilevel")]
pub struct Estimator {
    core: Core,
    signal: StopSignal,
    held: Mutex<Option<Held>>,
}

struct Held {
    session: Session,
    method: PreparedMethod,
    state: Option<State>,
}

/// The result of an estimate, on the host.
struct Found {
    value: Vec<Array>,
    standard_error: Option<Vec<Array>>,
    theta: Vec<Array>,
    report: String,
}

impl Estimator {
    pub fn new(
        core: &Core,
        settings: &bilevel_run::Settings,
        inner: Option<&str>,
        executor: &dyn Executor,
        signal: StopSignal,
    ) -> PyResult<Self> {
        let method = bilevel_run::Registry::new().read_method(settings).map_err(error::setting)?;
        let inner = inner_loop(inner, &*method)?;
        method.applies(core).map_err(of)?;
        let session = Session::new(core, executor).map_err(of)?.stopped_by(signal.clone());
        let method = method.prepare_in(&session, &inner).map_err(of)?;
        let held = Mutex::new(Some(Held { session, method, state: None }));
        Ok(Estimator { core: core.clone(), signal, held })
    }

    fn estimated(
        &self,
        seed: u64,
        warm: bool,
        lambda: Option<bilevel::Named<Array>>,
        theta: Option<bilevel::Named<Array>>,
    ) -> PyResult<Found> {
        let mut held = self
            .held
            .lock()
            .map_err(|_| error::other("an earlier estimate ended in a panic; prepare the method again"))?;
        let Some(Held { session, method, state }) = &mut *held else {
            return Err(error::other("the method is being discarded"));
        };
        if state.is_none() || !warm {
            *state = Some(session.state(Key::from_seed(0)).map_err(of)?);
        }
        let state = state.get_or_insert_with(State::default);
        place(&self.core, state, lambda, theta)?;
        let found = method.estimate(state, Key::from_seed(seed)).map_err(of)?;
        let arrays = |leaves: &Leaves| leaves.arrays().map_err(of);
        let report = serde_json::json!({
            "inner_loss": found.inner_loss,
            "outer_loss": found.outer_loss,
            "oracles": found.oracles,
            "diagnostics": found.diagnostics,
            "idle": found.idle.to_vec(),
        });
        Ok(Found {
            value: arrays(&found.value)?,
            standard_error: found.standard_error.as_ref().map(arrays).transpose()?,
            theta: arrays(&state.theta)?,
            report: report.to_string(),
        })
    }
}

impl Drop for Estimator {
    /// Without the GIL: the end of a session waits for the batch that is being read, and reading a batch takes the GIL.
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        Python::attach(|py| py.detach(move || drop(held)));
    }
}

#[pymethods]
impl Estimator {
    /// The hypergradient leaf by leaf, its standard error, the last θ, and a JSON table of losses, costs and diagnostics.
    #[pyo3(signature = (seed=0, warm=false, lambda_=None, theta=None))]
    #[allow(clippy::type_complexity)] // Python names the parts.
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        seed: u64,
        warm: bool,
        lambda_: Option<Vec<Bound<'py, PyAny>>>,
        theta: Option<Vec<Bound<'py, PyAny>>>,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Option<Vec<Bound<'py, PyAny>>>, Vec<Bound<'py, PyAny>>, String)> {
        let lambda = lambda_.map(|arrays| named(&self.core.lambda_names(), &arrays)).transpose()?;
        let theta = theta.map(|arrays| named(&self.core.theta_names(), &arrays)).transpose()?;
        let found = interruptible(py, &self.signal, || self.estimated(seed, warm, lambda, theta))?;
        let error = found.standard_error.map(|arrays| array::all(py, arrays)).transpose()?;
        Ok((array::all(py, found.value)?, error, array::all(py, found.theta)?, found.report))
    }
}
