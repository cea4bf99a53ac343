//! Data that are read during a run.

use crate::compiled::key::Key;
use crate::problem::check_finite;
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Meta};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The result of a [`Stream`]: a batch, or any error, which ends the run as [`Error::Stream`].
pub type StreamResult = std::result::Result<Array, Box<dyn std::error::Error + Send + Sync>>;

/// Data that do not fit into memory, or are generated on demand: a batch for every step, see
/// [`ProblemBuilder::stream`](crate::ProblemBuilder::stream). It is read on a background thread, ahead of the run. The
/// thread ends with the [`Session`](crate::Session) and its compiled programs, after the current batch.
///
/// The batch must follow from the key and the step alone. A step is repeated when reverse mode recomputes from a
/// checkpoint, and in a resumed run; the result is the same only with the same batch. Draw random choices from the key,
/// as [`graph::random`](bilevel_graph::random) does, or with any generator it seeds.
///
/// A closure is a stream:
///
/// ```
/// use bilevel::prelude::*;
/// // Standard normal numbers around 3; what is learned is where they lie.
/// let numbers = |key: Key, step: u32| {
///     let mut batch = vec![0.0; 8];
///     bilevel::graph::random::fill_normal_f64(key.words(), step, 0, 0, &mut batch);
///     batch.iter_mut().for_each(|number| *number += 3.0);
///     Ok(Array::from_f64([8], batch)?)
/// };
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .stream("numbers", [8], bilevel::DType::F64, numbers)
///     .inner(|_, l, t| (t.0 - l.0).square())
///     .outer(|s, _, t| (t.0 - s.data("numbers")).square().mean_all())
///     .build()?;
/// let outcome = Driver::new(&problem, Rmd::default()).inner(InnerLoop::new(0.25, 10)).rate(0.1).iterations(50).run()?;
/// assert!((outcome.lambda.0.item().unwrap() - 3.0).abs() < 0.5);
/// # Ok::<(), bilevel::Error>(())
/// ```
pub trait Stream: Send + Sync {
    /// The batch of this step, of the shape and type the stream was declared with.
    fn batch(&self, key: Key, step: u32) -> StreamResult;

    /// The identity of these data, such as a path and a date. It is part of the identity of a checkpoint, which is
    /// refused if it differs. Empty by default.
    fn identity(&self) -> String {
        String::new()
    }
}

impl<F: Fn(Key, u32) -> StreamResult + Send + Sync> Stream for F {
    fn batch(&self, key: Key, step: u32) -> StreamResult {
        self(key, step)
    }
}

/// A stream of a problem.
#[derive(Clone)]
pub(crate) struct Streamed {
    pub name: String,
    pub shape: Vec<usize>,
    /// As it was declared; floats are taken in the problem's type.
    pub declared: DType,
    pub source: Arc<dyn Stream>,
}

impl Streamed {
    /// Type and shape of a batch in a problem of this type.
    pub fn meta(&self, problem: DType) -> Meta {
        Meta { dtype: if self.declared.is_float() { problem } else { DType::I32 }, shape: self.shape.clone() }
    }

    /// The batch of a step. Errors, panics, other shapes and numbers that are none become [`Error::Stream`].
    pub fn read(&self, problem: DType, key: Key, step: u32) -> Result<Array> {
        let refuse = |reason: String| Error::Stream { name: self.name.clone(), step, reason };
        let array = match catch_unwind(AssertUnwindSafe(|| self.source.batch(key, step))) {
            Ok(Ok(array)) => array,
            Ok(Err(error)) => return Err(refuse(error.to_string())),
            Err(panic) => {
                let said = panic.downcast_ref::<&str>().map(|said| said.to_string());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                return Err(refuse(format!("it panicked: {said}")));
            }
        };
        let meta = self.meta(problem);
        if array.shape() != meta.shape || array.dtype().is_float() != meta.dtype.is_float() {
            let (found, shape) = (array.dtype(), array.shape());
            let declared = &self.shape;
            return Err(refuse(format!(
                "it returned {found}{shape:?} but was declared as {}{declared:?}",
                self.declared
            )));
        }
        in_dtype(&self.name, array, meta.dtype).map_err(|error| refuse(error.to_string()))
    }
}

/// Floats in the problem's type, all of them finite.
pub(crate) fn in_dtype(name: &str, given: Array, dtype: DType) -> Result<Array> {
    use bilevel_graph::Data;
    let finite = match given.data() {
        Data::F32(numbers) => numbers.iter().all(|number| number.is_finite()),
        Data::F64(numbers) => dtype == DType::F64 && numbers.iter().all(|number| number.is_finite()),
        Data::I32(_) => return Ok(given),
    };
    if finite && given.dtype() == dtype {
        return Ok(given);
    }
    let values = given.to_f64();
    let array = Array::from_values(given.shape(), &values, dtype)?;
    check_finite(&format!("data '{name}'"), &array, &values)?;
    Ok(array)
}

/// The step at which a program reads a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// At the step its loop is in.
    Step,
    /// At this one, for every step of its loop.
    Fixed(u32),
}

impl At {
    /// The name of the input that holds the batch.
    pub fn port(self, stream: &str) -> String {
        match self {
            At::Step => format!("stream.step.{stream}"),
            At::Fixed(step) => format!("stream.{step}.{stream}"),
        }
    }

    /// The stream of an input with such a name, and the step at which it is read.
    pub fn of_port(port: &str) -> Option<(At, &str)> {
        let (at, stream) = port.strip_prefix("stream.")?.split_once('.')?;
        match at {
            "step" => Some((At::Step, stream)),
            at => Some((At::Fixed(at.parse().ok()?), stream)),
        }
    }
}
