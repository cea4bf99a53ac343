//! The header of a checkpoint: which run it is of, the numbers of that run, and the tensors that follow.

use crate::checkpoint::fingerprint::Identity;
use crate::compiled::state::State;
use crate::generalisation::guard::Watched;
use crate::health::diagnostics::Diagnostics;
use crate::health::divergence::Watch;
use crate::hypergradient::Oracles;
use crate::outer::measures::{Aim, Best, Followed, Measures};
use crate::outer::observer::Iteration;
use crate::outer::progress::{Numbers, Progress};
use bilevel_graph::DType;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    library: String,
    pub identity: Identity,
    pub iteration: u32,
    oracles: Oracles,
    best: Option<f64>,
    mark: Option<f64>,
    since_best: u32,
    #[serde(default)]
    followed: Option<Followed>,
    #[serde(default)]
    kept: Option<BestRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    watched: Option<Watched>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guarded: Option<BestRecord>,
    pub last: Option<Iteration>,
    #[serde(default)]
    looked: Diagnostics,
    lambda_norm: f64,
    watch: Watch,
    elapsed: Duration,
    /// How many tensors the method keeps.
    pub memory: usize,
    /// Names of the optimizer's vectors.
    pub slots: Vec<String>,
}

/// The record of the state at which a measure, or the loss of held-out rows, was best; its tensors are named
/// `best.lambda.…` and `best.theta.…`, or `guarded.…`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct BestRecord {
    aim: Aim,
    value: f64,
    iteration: u32,
}

impl BestRecord {
    fn with(&self, state: impl FnOnce() -> crate::Result<State>) -> crate::Result<Best> {
        let BestRecord { aim, value, iteration } = self.clone();
        Ok(Best { aim, value, iteration, state: state()?, measures: Measures::default() })
    }
}

/// A tensor of the file: its name, and type and shape if the header has them.
pub(crate) struct NamedTensor<'h> {
    pub name: String,
    pub known: Option<(DType, &'h [usize])>,
}

impl Header {
    /// The header of this progress, for the run with this identity, whose optimizer has these slots.
    pub fn new(identity: &Identity, progress: &Progress, slots: &[&str]) -> Self {
        let Numbers {
            iteration,
            oracles,
            best,
            mark,
            since_best,
            followed,
            watched,
            last,
            lambda_norm,
            looked,
            watch,
            elapsed,
        } = progress.numbers.clone();
        let kept = |best: &Best| BestRecord { aim: best.aim.clone(), value: best.value, iteration: best.iteration };
        Header {
            library: env!("CARGO_PKG_VERSION").into(),
            identity: identity.clone(),
            iteration,
            oracles,
            best,
            mark,
            since_best,
            followed,
            kept: progress.best.as_ref().map(kept),
            watched,
            guarded: progress.guarded.as_ref().map(kept),
            last,
            lambda_norm,
            looked,
            watch,
            elapsed,
            memory: progress.state.memory.len(),
            slots: slots.iter().map(|s| s.to_string()).collect(),
        }
    }

    /// The numbers of the run.
    pub fn numbers(&self) -> Numbers {
        Numbers {
            iteration: self.iteration,
            oracles: self.oracles,
            best: self.best,
            mark: self.mark,
            since_best: self.since_best,
            followed: self.followed.clone(),
            watched: self.watched.clone(),
            last: self.last.clone(),
            lambda_norm: self.lambda_norm,
            looked: self.looked,
            watch: self.watch,
            elapsed: self.elapsed,
        }
    }

    /// The number of kept states besides the run's own: those at which a measure and the held-out rows were best.
    pub fn kept_states(&self) -> usize {
        self.kept.iter().chain(&self.guarded).count()
    }

    /// The state at which a measure was best, in this memory.
    pub fn best(&self, state: impl FnOnce() -> crate::Result<State>) -> crate::Result<Option<Best>> {
        self.kept.as_ref().map(|kept| kept.with(state)).transpose()
    }

    /// The state at which held-out rows were best, in this memory.
    pub fn guarded(&self, state: impl FnOnce() -> crate::Result<State>) -> crate::Result<Option<Best>> {
        self.guarded.as_ref().map(|kept| kept.with(state)).transpose()
    }

    /// Returns false if it has sizes that no run has.
    pub fn is_sound(&self) -> bool {
        self.watch.is_sound() && self.lambda_norm >= 0.0 && self.lambda_norm.is_finite()
    }

    /// All tensors: λ, θ, the method's memory, the optimizer's slots, then the best λ and θ and the guard's, each leaf by leaf. A forged header may promise any
    /// number of them, so they are named one at a time.
    pub fn tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let problem = &self.identity.problem;
        let dtype = if problem.is_single() { DType::F32 } else { DType::F64 };
        let (lambda, theta) = problem.leaves();
        let memory = (0..self.memory).map(|i| NamedTensor { name: format!("memory.{i}"), known: None });
        let slots = self.slots.iter().flat_map(move |slot| named(format!("optimizer.{slot}"), lambda, dtype));
        let kept = [("best", &self.kept), ("guarded", &self.guarded)];
        let best = kept.into_iter().filter(|(_, kept)| kept.is_some()).flat_map(move |(name, _)| {
            let leaf = |tree| format!("{name}.{tree}");
            named(leaf("lambda"), lambda, dtype).chain(named(leaf("theta"), theta, dtype))
        });
        let state = named("lambda".into(), lambda, dtype).chain(named("theta".into(), theta, dtype));
        state.chain(memory).chain(slots).chain(best)
    }
}

fn named(prefix: String, leaves: &[(String, Vec<usize>)], dtype: DType) -> impl Iterator<Item = NamedTensor<'_>> {
    leaves
        .iter()
        .map(move |(name, shape)| NamedTensor { name: format!("{prefix}.{name}"), known: Some((dtype, shape)) })
}
