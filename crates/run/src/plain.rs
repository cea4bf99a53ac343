//! Plain training as a method: θ is trained, and λ stays at its start.
//!
//!   h = 0
//!
//! So a baseline is a run like any other, with metrics, checkpoints and a page. Compared with a method it shows the
//! benefit of λ; from a learned λ (`start.lambda`) it trains a network with it.

use bilevel::graph::{Graph, Program};
use bilevel::methods::{MethodInfo, Oracles, Output, SettingsRecord};
use bilevel::programs::{Routine, Trace};
use bilevel::{AnyProblem, Error, Estimator, Hypergradient, InnerLoop, Key, Method, Result, Session, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Plain training.
///
/// ```
/// use bilevel::{Cpu, InnerLoop};
/// use bilevel_run::{Plain, Recipe, Registry, Settings};
/// let registry = bilevel_tasks::register(Registry::new());
/// let recipe = Recipe { method: Settings::new("plain", &Plain {}), inner: InnerLoop::new(0.005, 100) };
/// let mut config = registry.usual("synth1d")?.by(recipe);
/// config.outer.iterations = 3;
/// let problem = config.problem(&registry)?;
/// let outcome = config.driver(&registry, &problem, Box::new(Cpu::with_threads(1)))?.run()?;
/// assert_eq!(outcome.last.unwrap().hypergradient_norm, 0.0);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Plain {}

/// The description of the method.
pub const PLAIN: MethodInfo = MethodInfo::new("plain", "plain×n", "Plain training: λ does not change");

struct Prepared {
    inner: InnerLoop,
    train: Routine,
    none: Routine,
}

impl Method for Plain {
    fn name(&self) -> &'static str {
        PLAIN.name
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    /// It needs no path from λ to the outer loss.
    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        match problem.starts_from_lambda() {
            false => Ok(()),
            true => {
                let reason = "training starts from λ, so θ would be retrained in every iteration".into();
                Err(Error::NotApplicable { method: PLAIN.name, reason })
            }
        }
    }

    fn output(&self) -> Output {
        Output::Hypergradient
    }

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let mut program = Program::builder(&graph);
        for (i, lambda) in trace.lambda.iter().enumerate() {
            program = program.output(format!("h.{i}"), *lambda * 0.0);
        }
        let none = Routine::new(&program.build()?, session)?;
        Ok(Box::new(Prepared { inner: *inner, train: inner.walk(session)?, none }))
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.inner.place(&mut self.train, gamma)?;
        self.train.bind_point(&state.lambda, &state.theta, key)?;
        self.train.run(0..self.inner.steps as u32)?;
        self.none.bind_point(&state.lambda, &state.theta, key)?;
        let value = self.none.fresh_outputs("h")?;
        self.none.run(self.inner.last())?;
        let oracles = Oracles { inner_gradients: self.inner.steps as u64, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles))
    }
}
