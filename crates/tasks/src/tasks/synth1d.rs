//! The paper's synthetic problem in one dimension, without and with noise; [`synthetic`](crate::synthetic) has its formula.

use crate::synthetic::{OPTIMUM, STEP};
use crate::task::{Defaults, InnerLoop, OptimizerKind, Task, TaskOptions};
use bilevel::{DType, Leaf, Problem, Result, Scope, Tensor, Variable};

const DEFAULTS: Defaults = Defaults {
    method: "langevin-adjoint",
    inner: InnerLoop { step: STEP, steps: 100, temperature: 1e-6, curvature: 2.0 },
    optimizer: OptimizerKind::Sgd,
    rate: 0.005,
    cosine: false,
    iterations: 2000,
    cold: false,
    dtype: DType::F64,
};

/// Without noise.
pub(super) const PLAIN: Task = Task {
    name: "synth1d",
    summary: "one number λ that shapes a cubic inner loss; the optimum is known (λ = 0.74894)",
    defaults: DEFAULTS,
    picture: None,
    problem: |_: &TaskOptions, dtype| problem(0.0, dtype),
};

/// With noise.
pub(super) const NOISY: Task = Task {
    name: "noisy-synth1d",
    summary: "the λ of synth1d, with the inner loss drawn anew at every inner step",
    defaults: Defaults { inner: InnerLoop { temperature: 1e-5, curvature: 4.0, ..DEFAULTS.inner }, ..DEFAULTS },
    picture: None,
    problem: |_: &TaskOptions, dtype| problem(0.3, dtype),
};

fn problem(noise: f64, dtype: DType) -> Result<Problem> {
    let variable = || Leaf(Variable::constant([], 0.1));
    let epsilon = move |s: &Scope, value: f64| -> Tensor {
        if noise > 0.0 { s.uniform([], -noise, noise) + value } else { s.graph().scalar(value, s.dtype()) }
    };
    Problem::new(variable(), variable())
        .dtype(dtype)
        .inner(move |s, l, t| epsilon(s, 1.0 / 3.0) * t.0 * t.0 * t.0 - (epsilon(s, 1.0) - l.0 * l.0) * t.0)
        .outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square())
        .measure("distance of λ from the optimum", |_, l, _| (l.0 - OPTIMUM.0).abs())
        .build()
        .map(Problem::erase)
}
