//! Batches from a Python function, read on the loader's thread: the GIL is taken once for each batch.

use crate::array;
use bilevel::data::{Stream, StreamResult};
use bilevel::{Array, DType, Key};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// The arrays of one batch.
type Batch = Vec<Array>;
/// The words of a key, and a step.
type Place = ([u32; 2], u32);

/// A Python function of the words of a key and a step that returns the arrays of a batch, in the order of their names.
pub struct Batches {
    read: Py<PyAny>,
    /// The batches that were read last, so that the arrays of one batch are read together: newest last.
    recent: Mutex<Vec<(Place, Arc<Batch>)>>,
}

/// Batches that are kept until all of their arrays have been used.
const KEPT: usize = 16;

impl Batches {
    pub fn new(read: Py<PyAny>) -> Arc<Self> {
        Arc::new(Batches { read, recent: Mutex::default() })
    }

    fn at(&self, key: Key, step: u32) -> Result<Arc<Batch>, Box<dyn std::error::Error + Send + Sync>> {
        let words = key.words();
        let find = |recent: &[(Place, Arc<Batch>)]| {
            recent.iter().find(|(place, _)| *place == (words, step)).map(|(_, batch)| batch.clone())
        };
        // No lock is held while Python is asked, which may be waiting for another thread that reads.
        if let Some(batch) = find(&self.recent.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(batch);
        }
        let batch = Python::attach(|py| -> PyResult<Batch> {
            let found = self.read.call1(py, (words, step))?;
            let arrays: Vec<Bound<'_, PyAny>> = found.extract(py)?;
            arrays.iter().map(array::read).collect()
        });
        let batch = Arc::new(batch.map_err(|error| Python::attach(|py| error.value(py).to_string()))?);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == KEPT {
            recent.remove(0);
        }
        recent.push(((words, step), batch.clone()));
        Ok(batch)
    }
}

/// One of the arrays of the batches.
pub struct Column {
    pub batches: Arc<Batches>,
    pub place: usize,
    pub identity: String,
}

impl Stream for Column {
    fn batch(&self, key: Key, step: u32) -> StreamResult {
        let batch = self.batches.at(key, step)?;
        let count = batch.len();
        batch.get(self.place).cloned().ok_or_else(|| format!("the batch has {count} arrays").into())
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }
}

/// A stream as Python declares it: the names, shapes and types of its arrays, the function, and its identity.
pub type Declared = (Vec<(String, Vec<usize>, String)>, Py<PyAny>, String);

/// The columns of a declared stream, by name.
#[allow(clippy::type_complexity)] // They are the arguments of `ProblemBuilder::stream`.
pub fn columns(declared: Declared) -> PyResult<Vec<(String, Vec<usize>, DType, Column)>> {
    let (ports, read, identity) = declared;
    let batches = Batches::new(read);
    let one = |(place, (name, shape, dtype)): (usize, (String, Vec<usize>, String))| {
        let column = Column { batches: batches.clone(), place, identity: identity.clone() };
        Ok((name, shape, crate::tracer::dtype(&dtype)?, column))
    };
    ports.into_iter().enumerate().map(one).collect()
}
