//! The header of a checkpoint: which run it is of, the numbers of that run, and the tensors that follow.

use crate::diagnostics::Diagnostics;
use crate::divergence::Watch;
use crate::estimator::Oracles;
use crate::fingerprint::Identity;
use crate::observer::{Iteration, OraclesFields};
use crate::progress::{Numbers, Progress};
use bilevel_graph::DType;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    library: String,
    pub identity: Identity,
    pub iteration: u32,
    #[serde(with = "OraclesFields")]
    oracles: Oracles,
    best: Option<f64>,
    mark: Option<f64>,
    since_best: u32,
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

/// A tensor of the file: its name, and type and shape where the header knows them.
pub(crate) struct Named<'h> {
    pub name: String,
    pub known: Option<(DType, &'h [usize])>,
}

impl Header {
    /// Of this progress of the run with this identity, whose optimizer has these slots.
    pub fn new(identity: &Identity, progress: &Progress, slots: &[&str]) -> Self {
        let Numbers { iteration, oracles, best, mark, since_best, last, lambda_norm, looked, watch, elapsed } =
            progress.numbers.clone();
        Header {
            library: env!("CARGO_PKG_VERSION").into(),
            identity: identity.clone(),
            iteration,
            oracles,
            best,
            mark,
            since_best,
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
        let Header { iteration, oracles, best, mark, since_best, last, lambda_norm, looked, watch, elapsed, .. } =
            self.clone();
        Numbers { iteration, oracles, best, mark, since_best, last, lambda_norm, looked, watch, elapsed }
    }

    /// False where it holds sizes that no run has.
    pub fn is_sound(&self) -> bool {
        self.watch.is_sound() && self.lambda_norm >= 0.0 && self.lambda_norm.is_finite()
    }

    /// All tensors: λ, θ, the method's memory, then the optimizer's slots, each leaf by leaf. A forged header may promise any
    /// number of them, so they are named one at a time.
    pub fn tensors(&self) -> impl Iterator<Item = Named<'_>> {
        let problem = &self.identity.problem;
        let dtype = if problem.is_single() { DType::F32 } else { DType::F64 };
        let (lambda, theta) = problem.leaves();
        let memory = (0..self.memory).map(|i| Named { name: format!("memory.{i}"), known: None });
        let slots = self.slots.iter().flat_map(move |slot| named(format!("optimizer.{slot}"), lambda, dtype));
        named("lambda".into(), lambda, dtype).chain(named("theta".into(), theta, dtype)).chain(memory).chain(slots)
    }
}

fn named(prefix: String, leaves: &[(String, Vec<usize>)], dtype: DType) -> impl Iterator<Item = Named<'_>> {
    leaves.iter().map(move |(name, shape)| Named { name: format!("{prefix}.{name}"), known: Some((dtype, shape)) })
}
