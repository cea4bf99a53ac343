//! A problem's two losses as tensors of a user's graph, for inspection.

use crate::compiled::key::Key;
use crate::compiled::state::Snapshot;
use crate::compiled::trace::Trace;
use crate::problem::AnyProblem;
use crate::problem::feeding::stream::At;
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Graph, Precision, Tensor};
use std::sync::Arc;

/// Both losses in 64-bit floats, their arguments, and a value for every input.
pub struct Losses {
    /// L_T.
    pub inner: Tensor,
    /// f.
    pub outer: Tensor,
    /// λ, leaf by leaf.
    pub lambda: Vec<Tensor>,
    /// θ, leaf by leaf.
    pub theta: Vec<Tensor>,
    /// Values of λ, θ, the data and the random key: the point for the checker of the graph crate.
    pub point: Vec<(Tensor, Array)>,
}

impl AnyProblem {
    /// The same problem in another floating-point type.
    pub(crate) fn in_dtype(&self, dtype: DType) -> Result<AnyProblem> {
        if !dtype.is_float() {
            return Err(Error::Type { dtype });
        }
        let convert = |(name, array): &(String, Array)| Ok((name.clone(), in_dtype(array, dtype)?));
        let data = self.data.iter().map(convert).collect::<Result<_>>()?;
        let frozen = self.frozen.iter().map(|(place, name, array)| Ok((*place, name.clone(), in_dtype(array, dtype)?)));
        let frozen = frozen.collect::<Result<_>>()?;
        // Products of 64-bit floats have one precision.
        let precision = if dtype == DType::F32 { self.precision } else { Precision::Full };
        Ok(AnyProblem { dtype, precision, data, frozen, paths: Arc::default(), ..self.clone() })
    }

    /// Both losses at this state and with the draws of this key, on a given graph, to compare derivatives with
    /// differences.
    ///
    /// ```
    /// use bilevel::graph::{GradientCheck, Graph};
    /// use bilevel::{Cpu, Key, Leaf, Problem, State, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([3], 0.4)), Leaf(Variable::constant([3], 0.1)))
    ///     .inner(|_, l, t| (l.0.exp() * t.0.square()).sum_all())
    ///     .outer(|_, _, t| t.0.sin().sum_all())
    ///     .build()?;
    /// let graph = Graph::new();
    /// let (cpu, key) = (Cpu::with_threads(1), Key::from_seed(0));
    /// let losses = problem.losses(&graph, &State::initial(&problem, &cpu, key)?.snapshot()?, key)?;
    /// let report = GradientCheck::new(&graph, losses.inner, &losses.theta, &losses.point).lambda(&losses.lambda).run()?;
    /// assert!(report.worst() < 1e-6, "{report}");
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn losses(&self, graph: &Graph, state: &Snapshot, key: Key) -> Result<Losses> {
        let problem = self.in_dtype(DType::F64)?;
        let trace = Trace::new(graph, &problem)?;
        let step = graph.scalar(0.0, DType::I32);
        let (inner, outer) = (trace.inner(&trace.theta, step)?, trace.outer(&trace.theta, step)?);
        let mut point = vec![];
        for (tensors, values) in [(&trace.lambda, &state.lambda), (&trace.theta, &state.theta)] {
            for (tensor, value) in tensors.iter().zip(values) {
                point.push((*tensor, in_dtype(value, DType::F64)?));
            }
        }
        for ((_, value), tensor) in problem.data.iter().zip(trace.data()) {
            point.push((tensor, value.clone()));
        }
        for ((_, _, value), tensor) in problem.frozen.iter().zip(trace.frozen()) {
            point.push((tensor, value.clone()));
        }
        for read in trace.read() {
            let stream = &problem.streams[read.stream];
            // The losses are taken at step 0.
            let step = if let At::Fixed(step) = read.at { step } else { 0 };
            point.push((read.batch, stream.read(DType::F64, key, step)?));
        }
        point.push((trace.key, Array::from_i32([2], key.values().to_vec())?));
        Ok(Losses { inner, outer, lambda: trace.lambda.clone(), theta: trace.theta.clone(), point })
    }
}

fn in_dtype(array: &Array, dtype: DType) -> Result<Array> {
    match array.dtype() {
        DType::I32 => Ok(array.clone()),
        _ => Ok(Array::from_values(array.shape(), &array.to_f64(), dtype)?),
    }
}
