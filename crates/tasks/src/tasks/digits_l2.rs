//! One L2 penalty for each of the 640 weights of a digit classifier, chosen by the loss on validation digits.
//!
//!   L_T = mean cross entropy of the training digits + Σ exp(λᵢⱼ)·wᵢⱼ²
//!   f   = mean cross entropy of the validation digits

use crate::digits::{CLASSES, Classifier, PIXELS, Penalty, SHAPE, Split};
use crate::task::{Defaults, InnerLoop, OptimizerKind, Picture, Task, TaskOptions};
use bilevel::graph::nn::cross_entropy;
use bilevel::{DType, Problem, Result, Scope, Tensor, Variable};

/// The task.
pub(super) const TASK: Task = Task {
    name: "digits-l2",
    summary: "640 penalties, one for each weight of a digit classifier, by the loss on validation digits",
    defaults: Defaults {
        method: "langevin-adjoint",
        inner: InnerLoop { step: 0.4, steps: 20, temperature: 1e-6, curvature: 1.5 },
        optimizer: OptimizerKind::Adam,
        rate: 0.05,
        cosine: false,
        iterations: 300,
        cold: false,
        dtype: DType::F32,
    },
    picture: Some(Picture { leaf: "log_strength", panels: CLASSES, rows: 8, columns: PIXELS / 8, panels_last: true }),
    problem,
};

fn problem(options: &TaskOptions, dtype: DType) -> Result<Problem> {
    let split = Split::new(options.seed);
    let log_strength = Variable::constant(SHAPE, -5.0).at_least(-12.0).at_most(0.0);
    let weights = Variable::constant(SHAPE, 0.0);
    Problem::new(Penalty { log_strength }, Classifier { weights })
        .dtype(dtype)
        .data("train x", split.train.x()?)
        .data("train y", split.train.y()?)
        .data("validation x", split.validation.x()?)
        .data("validation y", split.validation.y()?)
        .data("test x", split.test.x()?)
        .data("test y", split.test.y()?)
        .inner(|s, l, t| {
            let penalty = (l.log_strength.exp() * t.weights.square()).sum_all();
            cross_entropy(s.data("train x").matmul(t.weights), s.data("train y")) + penalty
        })
        .outer(|s, _, t| cross_entropy(s.data("validation x").matmul(t.weights), s.data("validation y")))
        .measure("test loss", |s, _, t| cross_entropy(s.data("test x").matmul(t.weights), s.data("test y")))
        .measure("test accuracy", |s, _, t| accuracy(s, "test", t.weights))
        .build()
}

/// The fraction of digits whose largest score is that of their label.
pub(super) fn accuracy(s: &Scope, part: &str, weights: Tensor) -> Tensor {
    let guess = s.data(&format!("{part} x")).matmul(weights).argmax(1).convert(s.dtype());
    let label = s.data(&format!("{part} y")).convert(s.dtype());
    (-(guess - label).abs()).greater(-0.5).mean_all()
}
