//! In place of the command, in builds without it.

use crate::error;
use bilevel::graph::Executor;
use bilevel::observers::Iteration;
use bilevel::{Cpu, Named, Outcome, Problem, Variable};
use bilevel_run::Device;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::sync::Arc;

const ABSENT: &str = "this build is without the command; build it with the feature 'command'";

/// Refuses: there is no command.
#[pyfunction]
pub fn command(_arguments: Vec<OsString>) -> PyResult<u8> {
    Err(error::other(ABSENT))
}

/// Refuses: the digits come with the command.
#[pyfunction]
pub fn digits() -> PyResult<()> {
    Err(error::other(ABSENT))
}

/// The processor; this many threads, 0 for one for each core.
pub fn executor(device: &str, threads: usize) -> PyResult<Arc<dyn Executor>> {
    match (device.parse().map_err(|reason: String| error::setting(reason))?, threads) {
        (Device::Cpu | Device::Auto, 0) => Ok(Arc::new(Cpu::new())),
        (Device::Cpu | Device::Auto, _) => Ok(Arc::new(Cpu::with_threads(threads))),
        _ => Err(error::other(ABSENT)),
    }
}

/// The same: there are no ranks.
pub fn executor_of_run(device: &str, threads: usize, _settings: &str) -> PyResult<Arc<dyn Executor>> {
    executor(device, threads)
}

/// Refuses: ranks come with the command.
#[pyfunction]
pub fn join_ranks() -> PyResult<(usize, usize)> {
    Err(error::other(ABSENT))
}

/// There is nobody to leave.
#[pyfunction]
#[pyo3(signature = (_failure=None))]
pub fn leave_ranks(_failure: Option<String>) {}

/// There is one rank.
pub fn follows() -> bool {
    false
}

/// A page needs the command.
pub fn page(
    _title: &str,
    _problem: &Problem,
    _iterations: &[Iteration],
    _outcome: &Outcome<Named<Variable>, Named<Variable>>,
) -> PyResult<String> {
    Err(error::other(ABSENT))
}
