//! Generalisation of λ to unseen rows: splits, losses row by row, baselines, folds, and offsets that are shrunk.

use crate::array;
use crate::command::executor;
use crate::error::{self, of};
use crate::interrupt::interruptible;
use crate::problem::{Divided, Problem, named, place};
use bilevel::observers::StopSignal;
use bilevel::splits::{Part, RowLosses, Rows, Shrunk as Core, Split};
use bilevel::{InnerLoop, Key, Session};
use pyo3::prelude::*;

fn divided(rows: &Rows) -> Divided {
    [Part::Train, Part::Validation, Part::HeldOut, Part::Test].map(|part| rows.of(part).to_vec())
}

fn named_part(name: &str) -> PyResult<Part> {
    serde_json::from_value(name.into()).map_err(|_| {
        error::setting(format!("there is no part '{name}'; the parts are train, validation, held-out and test"))
    })
}

/// The numbers of the rows of each part: at random, with every label in every part as often, or with every group in one part.
#[pyfunction]
#[pyo3(signature = (split, count, labels=None, groups=None))]
pub fn split_rows(split: &str, count: usize, labels: Option<Vec<i64>>, groups: Option<Vec<i64>>) -> PyResult<Divided> {
    let split: Split = serde_json::from_str(split).map_err(error::setting)?;
    let rows = match (labels, groups) {
        (None, None) => split.rows(count),
        (Some(labels), None) => split.stratified(&labels),
        (None, Some(groups)) => split.grouped(&groups),
        (Some(_), Some(_)) => return Err(error::setting("a split is stratified by labels or by groups, not by both")),
    };
    Ok(divided(&rows.map_err(of)?))
}

/// The numbers of the rows of each part.
#[pyfunction]
pub fn rows(problem: &Problem) -> Divided {
    divided(&problem.core.rows())
}

/// The outer loss on the rows of a part, one number for each row or block of rows.
#[pyfunction]
#[pyo3(signature = (problem, part, lambda_=None, theta=None, seed=0, device="cpu", threads=0))]
#[allow(clippy::too_many_arguments)] // They are keywords in Python.
pub fn row_losses(
    problem: &Problem,
    py: Python<'_>,
    part: &str,
    lambda_: Option<Vec<Bound<'_, PyAny>>>,
    theta: Option<Vec<Bound<'_, PyAny>>>,
    seed: u64,
    device: &str,
    threads: usize,
) -> PyResult<Vec<f64>> {
    let part = named_part(part)?;
    let lambda = lambda_.map(|arrays| named(&problem.core.lambda_names(), &arrays)).transpose()?;
    let theta = theta.map(|arrays| named(&problem.core.theta_names(), &arrays)).transpose()?;
    py.detach(|| {
        let session = Session::new(&problem.core, &*executor(device, threads)?).map_err(of)?;
        let state = session.state(Key::from_seed(0)).map_err(of)?;
        place(&problem.core, &state, lambda, theta)?;
        let mut losses = RowLosses::new(&session, part).map_err(of)?;
        losses.at(&state, Key::from_seed(seed)).map_err(of)
    })
}

/// λ against one tuned value per leaf and against none, as JSON, and whether it wins, in a sentence.
#[pyfunction]
#[pyo3(signature = (problem, lambda_, inner, seed=0, device="cpu", threads=0))]
pub fn baselines(
    problem: &Problem,
    py: Python<'_>,
    lambda_: Vec<Bound<'_, PyAny>>,
    inner: &str,
    seed: u64,
    device: &str,
    threads: usize,
) -> PyResult<(String, bool, String)> {
    let lambda = named(&problem.core.lambda_names(), &lambda_)?;
    let inner: InnerLoop = serde_json::from_str(inner).map_err(error::setting)?;
    let signal = StopSignal::new();
    let compared = || {
        let executor = executor(device, threads)?;
        let comparison = problem.core.compare(&lambda).inner(inner).seed(seed).stop_signal(signal.clone());
        comparison.boxed_executor(Box::new(executor)).run().map_err(of)
    };
    let found = interruptible(py, &signal, compared)?;
    Ok((serde_json::to_string(&found).map_err(error::other)?, found.wins(), found.sentence()))
}

/// The problem on several folds at once: one training for each, and a share of each fold held out.
#[pyfunction]
#[pyo3(signature = (problem, count, held_out=0.0, seed=0))]
pub fn folded(problem: &Problem, py: Python<'_>, count: usize, held_out: f64, seed: u64) -> PyResult<Problem> {
    Ok(Problem { core: py.detach(|| problem.core.folded(count, held_out, seed)).map_err(of)? })
}

/// The problem with all rows that have labels for training.
#[pyfunction]
pub fn on_all_rows(problem: &Problem, py: Python<'_>) -> PyResult<Problem> {
    Ok(Problem { core: py.detach(|| problem.core.on_all_rows()).map_err(of)? })
}

/// The problem with each leaf of λ as a mean and offsets from it that are normal with this standard deviation.
#[pyfunction]
pub fn shrunk(problem: &Problem, py: Python<'_>, deviation: f64) -> PyResult<Shrunk> {
    Ok(Shrunk(py.detach(|| problem.core.shrunk(deviation)).map_err(of)?))
}

/// Names and starts of the leaves of λ, and of those of θ that are not frozen.
#[pyfunction]
#[allow(clippy::type_complexity)] // Python names the parts.
pub fn starts<'py>(
    problem: &Problem,
    py: Python<'py>,
) -> PyResult<(Vec<(String, Bound<'py, PyAny>)>, Vec<(String, Bound<'py, PyAny>)>)> {
    let found = py.detach(|| {
        let session = Session::new(&problem.core, &bilevel::Cpu::with_threads(1))?;
        let state = session.state(Key::from_seed(0))?;
        Ok((state.lambda.arrays()?, state.theta.arrays()?))
    });
    let (lambda, theta) = found.map_err(of)?;
    let paired = |names: Vec<&str>, arrays: Vec<bilevel::Array>| -> PyResult<Vec<_>> {
        names.iter().zip(arrays).map(|(name, start)| Ok((name.to_string(), array::written(py, start)?))).collect()
    };
    Ok((paired(problem.core.lambda_names(), lambda)?, paired(problem.core.theta_names(), theta)?))
}

/// A problem whose leaves of λ are a mean and offsets.
#[pyclass(frozen, module = "bilevel._bilevel")]
pub struct Shrunk(Core);

#[pymethods]
impl Shrunk {
    /// The problem to run.
    #[getter]
    fn problem(&self) -> Problem {
        Problem { core: self.0.problem().clone() }
    }

    /// λ of the original problem from that of this one.
    fn lambda_<'py>(&self, py: Python<'py>, found: Vec<Bound<'py, PyAny>>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let found = named(&self.0.problem().lambda_names(), &found)?;
        let lambda = self.0.lambda(&found).map_err(of)?;
        lambda.iter().map(|(_, leaf)| array::written(py, leaf.clone())).collect()
    }
}
