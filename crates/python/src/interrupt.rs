//! Work that Ctrl-C ends: it runs on a background thread, while the calling thread polls Python for signals.

use crate::error;
use bilevel::observers::StopSignal;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Python is asked for signals this often.
const POLL: Duration = Duration::from_millis(50);

/// The result of work, or the exception of a signal, such as `KeyboardInterrupt`. A signal stops the work and waits for
/// it.
pub fn interruptible<T: Send>(
    py: Python<'_>,
    signal: &StopSignal,
    work: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    let (done, result) = channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || told(work, &done));
        let found = waited(py, result);
        if found.is_err() {
            signal.stop();
        }
        // Its end is waited for without the GIL, which its last words may need.
        py.detach(|| worker.join().unwrap_or_default());
        found?
    })
}

/// As [`interruptible`], for work without a stop signal: it is abandoned, and its result is lost.
pub fn abandonable<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let (done, result) = channel();
    std::thread::spawn(move || told(work, &done));
    waited(py, result)?
}

/// Does the work and tells its result; of a panic nothing is told.
fn told<T>(work: impl FnOnce() -> PyResult<T>, done: &Sender<PyResult<T>>) {
    if let Ok(found) = catch_unwind(AssertUnwindSafe(work)) {
        // The receiver is gone once a signal has come.
        done.send(found).unwrap_or_default();
    }
}

/// The result, unless a signal comes first.
fn waited<T: Send>(py: Python<'_>, mut result: Receiver<PyResult<T>>) -> PyResult<PyResult<T>> {
    loop {
        let (receiver, found) = py.detach(move || {
            let found = result.recv_timeout(POLL);
            (result, found)
        });
        result = receiver;
        match found {
            Ok(found) => return Ok(found),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Err(error::other("the computation ended in a panic, which is a bug; please report it")));
            }
        }
    }
}
