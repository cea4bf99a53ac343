//! The command `bilevel`, and its shared parts with runs from Python: devices, ranks and pages.

use crate::error;
use bilevel::graph::Executor;
use bilevel::observers::Iteration;
use bilevel::{Named, Outcome, Problem, Variable};
use bilevel_cli::run::ranks;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::sync::Arc;

/// Runs the command with these arguments, of which the first is its name, and returns the exit code.
#[pyfunction]
pub fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| bilevel_cli::run_with(&bilevel_cli::everything(), arguments))
}

/// The 1797 digits that come with the library: pixels from 0 to 1, a row of 64 for each, and labels.
#[pyfunction]
pub fn digits(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, PyAny>)> {
    let digits = bilevel_tasks::digits::Digits::all();
    let read = |array: bilevel::Result<bilevel::Array>| crate::array::written(py, array.map_err(error::of)?);
    Ok((read(digits.x())?, read(digits.y())?))
}

/// The device of this name; this many threads on the processor, 0 for one for each core.
pub fn executor(device: &str, threads: usize) -> PyResult<Arc<dyn Executor>> {
    let device = device.parse().map_err(|reason: String| error::setting(reason))?;
    bilevel_cli::run::device::executor(device, threads).map_err(error::other)
}

/// The same for a run, which all ranks compute together once they are joined; its settings are compared first.
pub fn executor_of_run(device: &str, threads: usize, settings: &str) -> PyResult<Arc<dyn Executor>> {
    ranks::agree_on(settings).map_err(error::other)?;
    Ok(ranks::together(executor(device, threads)?))
}

/// Joins the ranks that a launcher started; the answer is the number of this one, and how many there are.
#[pyfunction]
pub fn join_ranks(py: Python<'_>) -> PyResult<(usize, usize)> {
    py.detach(|| ranks::detect().and_then(|()| ranks::join())).map_err(error::other)?;
    Ok(ranks::link().map_or((0, 1), |link| (link.rank(), link.size())))
}

/// Takes leave of the other ranks, or ends them for this reason.
#[pyfunction]
#[pyo3(signature = (failure=None))]
pub fn leave_ranks(py: Python<'_>, failure: Option<String>) {
    py.detach(|| ranks::leave(failure.as_deref()));
}

/// True for a rank that writes no files.
pub fn follows() -> bool {
    ranks::link().is_some() && ranks::follows()
}

/// The page about a run.
pub fn page(
    title: &str,
    problem: &Problem,
    iterations: &[Iteration],
    outcome: &Outcome<Named<Variable>, Named<Variable>>,
) -> PyResult<String> {
    Ok(bilevel_cli::report_of(title, problem, iterations, outcome).map_err(error::other)?.html())
}
