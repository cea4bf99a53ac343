//! A method together with the inner loop that a test runs it with, so that both can be handed on as one value.
#![allow(dead_code)] // Each test uses a part.

use bilevel::graph::Executor;
use bilevel::methods::claims::Claims;
use bilevel::methods::{AnyMethod, LoopUse, Noise, Output, Path, PreparedMethod, Scale, SettingsRecord};
use bilevel::{AnyProblem, Estimator, Hypergradient, InnerLoop, Key, Method, Result, Session, State};

/// A method whose usual inner loop is this one.
#[derive(Clone, Copy, Debug)]
pub struct With<M>(pub M, pub InnerLoop);

/// A method of the library with as much of this loop as it can use, whose own counts are set to `count`: directions of a search,
/// iterations of a solve.
pub fn library(name: &str, inner: InnerLoop, count: Option<usize>) -> With<AnyMethod> {
    let mut written = serde_json::to_value(AnyMethod::named(name).unwrap()).unwrap();
    for (key, count) in ["directions", "iterations", "terms"].into_iter().zip([count; 3]) {
        if let (Some(value), Some(count)) = (written.get_mut(key), count) {
            *value = count.into();
        }
    }
    let method: AnyMethod = serde_json::from_value(written).unwrap();
    let used = method.loop_use();
    let temperature = if used.noise == Noise::Never { 0.0 } else { inner.temperature };
    let burn_in = if used.burn_in { inner.burn_in } else { 0 };
    With(method, InnerLoop { temperature, burn_in, ..inner })
}

/// An estimator without the diagnosis, with the γ of its loop.
pub struct Compiled {
    pub estimator: Box<dyn Estimator>,
    gamma: f64,
}

impl Compiled {
    pub fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        self.estimator.estimate(state, key, self.gamma)
    }
}

/// A method of any kind, compiled or prepared with its usual loop.
pub trait Usual {
    fn usual(&self, session: &Session) -> Result<Compiled>;
    fn prepared(&self, session: &Session) -> Result<PreparedMethod>;
    fn prepared_on(&self, problem: &AnyProblem, executor: &dyn Executor) -> Result<PreparedMethod>;
}

impl<M: Method + ?Sized> Usual for M {
    fn usual(&self, session: &Session) -> Result<Compiled> {
        let inner = self.usual_loop();
        Ok(Compiled { estimator: self.compile(session, &inner)?, gamma: inner.step })
    }

    fn prepared(&self, session: &Session) -> Result<PreparedMethod> {
        self.prepare_in(session, &self.usual_loop())
    }

    fn prepared_on(&self, problem: &AnyProblem, executor: &dyn Executor) -> Result<PreparedMethod> {
        self.prepare(problem, executor, &self.usual_loop())
    }
}

impl<M: Method> Method for With<M> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn settings(&self) -> SettingsRecord {
        self.0.settings()
    }

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        self.0.compile(session, inner)
    }

    fn sees(&self, path: Path) -> bool {
        self.0.sees(path)
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        self.0.applies(problem)
    }

    fn loop_use(&self) -> LoopUse {
        self.0.loop_use()
    }

    fn output(&self) -> Output {
        self.0.output()
    }

    fn usual_loop(&self) -> InnerLoop {
        self.1
    }

    fn tune(&mut self, task: InnerLoop, curvature: f64) -> InnerLoop {
        self.0.tune(task, curvature)
    }

    fn converge(&mut self, scale: &Scale) {
        self.0.converge(scale);
    }

    fn shares_passes(&self) -> bool {
        self.0.shares_passes()
    }

    fn claims(&self) -> Claims {
        self.0.claims()
    }

    fn prepare(&self, problem: &AnyProblem, executor: &dyn Executor, inner: &InnerLoop) -> Result<PreparedMethod> {
        self.0.prepare(problem, executor, inner)
    }

    fn prepare_in(&self, session: &Session, inner: &InnerLoop) -> Result<PreparedMethod> {
        self.0.prepare_in(session, inner)
    }
}
