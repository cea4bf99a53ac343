//! Reptile: the learned initialisation moves towards where training ends.
//!
//!   h = λ − θᵀ,   θ⁰ = λ,      so that λ ← λ − β·h is λ + β·(θᵀ − λ)
//!
//! No derivative of f is taken; f is only looked at.

use super::inner_loop::{InnerLoop, not_applicable, outer_loss};
use crate::estimator::{Estimator, Hypergradient, Method, Oracles, State, finite};
use crate::probe::InnerTime;
use crate::problem::Problem;
use crate::routine::Routine;
use crate::trace::Trace;
use crate::{Cause, Result};
use bilevel_graph::{Array, Executor, Graph};
use serde::{Deserialize, Serialize};

/// Settings of Reptile.
///
/// ```
/// use bilevel::{Cpu, Leaf, Method, Problem, Reptile, State, Variable};
/// let problem = Problem::new(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, _, t| t.0.square() / 2.0)
///     .outer(|_, _, t| t.0.square())
///     .start(|_, l| *l)
///     .build()
///     .unwrap();
/// let mut estimator = Reptile { step: 0.5, steps: 1 }.prepare(&problem, &Cpu::with_threads(1)).unwrap();
/// let h = estimator.estimate(&mut State::initial(&problem, [0, 0]).unwrap(), [0, 0]).unwrap();
/// assert_eq!(h.value[0].item(), Some(0.5), "from 1 to 0.5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reptile {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T, at least 1.
    pub steps: usize,
}

impl Default for Reptile {
    fn default() -> Self {
        Reptile { step: 0.01, steps: 100 }
    }
}

struct Prepared {
    inner: InnerLoop,
    forward: Routine,
    outer: Routine,
}

impl Method for Reptile {
    fn name(&self) -> &'static str {
        "reptile"
    }

    fn compile(&self, problem: &Problem, executor: &dyn Executor) -> Result<Box<dyn Estimator>> {
        let inner = InnerLoop::new(self.step, self.steps, 0.0, 0.0, 1)?;
        self.applies(problem)?;
        Ok(Box::new(Prepared { inner, forward: inner.walk(problem, executor)?, outer: outer_loss(problem, executor)? }))
    }

    fn applies(&self, problem: &Problem) -> Result<()> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        if trace.start()?.is_some_and(|start| start == trace.lambda) {
            return Ok(());
        }
        let reason = "it learns where θ starts, so λ must be θ⁰ itself; give the problem .start(|_, l| l.clone()), or use \
                      rmd, which differentiates through any start";
        not_applicable(self.name(), reason)
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(InnerTime::new(self.step, self.steps))
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        self.inner.place(&mut self.forward)?;
        self.forward.set_point(&state.lambda, &state.lambda, key)?;
        self.forward.run(0..self.inner.steps as u32)?;
        let theta = self.forward.theta()?;
        let difference = |(l, t): (&Array, &Array)| -> Result<Array> {
            let values: Vec<f64> = l.to_f64().iter().zip(t.to_f64()).map(|(l, t)| l - t).collect();
            Ok(Array::from_values(l.shape(), &values, l.dtype())?)
        };
        let value = state.lambda.iter().zip(&theta).map(difference).collect::<Result<Vec<_>>>()?;
        finite("reptile", "θ", &value, Cause::InnerStepTooLarge)
            .map_err(|e| self.inner.explain(e, &mut self.forward, (&state.lambda, &state.lambda, key)))?;
        self.outer.set_point(&state.lambda, &theta, key)?;
        self.outer.run(self.inner.last())?;
        state.theta = theta;
        let oracles = Oracles { inner_gradients: self.inner.steps as u64, losses: 1, ..Oracles::default() };
        let (inner_loss, outer_loss) = (self.forward.number("inner")?, self.outer.number("outer")?);
        Ok(Hypergradient::new(value, (inner_loss, outer_loss), oracles))
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.inner.factor = factor;
        Ok(())
    }
}
