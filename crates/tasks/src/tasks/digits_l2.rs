//! One L2 penalty for each of the 640 weights of a digit classifier, chosen by the loss on validation digits.

use crate::digits::{CLASSES, PIXELS, SHAPE, Split, per_weight_l2};
use crate::task::{Defaults, InnerLoop, OptimizerKind, Picture, Task, TaskOptions};
use bilevel::{DType, Problem, Result, Variable};

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
    let log_strength = Variable::constant(SHAPE, -5.0).at_least(-12.0).at_most(0.0);
    per_weight_l2(&Split::new(options.seed), dtype, log_strength).map(Problem::erase)
}
