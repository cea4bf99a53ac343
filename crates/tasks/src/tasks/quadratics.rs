//! Fifty quadratics of different curvature: λ says where each inner minimum lies, and the outer loss where it should be.
//!
//!   L_T = ½(θ−λ)ᵀA(θ−λ),   f = ½‖θ−a‖²,   spectrum of A geometric in \[2/10, 2\]; the optimum is λ = a

use crate::task::{Defaults, InnerLoop, OptimizerKind, Task, TaskOptions};
use bilevel::graph::random::fill_normal_f64;
use bilevel::{Array, DType, Key, Leaf, Problem, Result, Variable};

const SIZE: usize = 50;
const CONDITION: f64 = 10.0;
const LARGEST: f64 = 2.0;

/// The task.
pub(super) const TASK: Task = Task {
    name: "quadratics",
    summary: "fifty numbers λ that shift a quadratic inner loss of condition 10; the optimum is known",
    defaults: Defaults {
        method: "amigo-cg",
        inner: InnerLoop { step: 0.05, steps: 100, temperature: 0.0, curvature: LARGEST },
        optimizer: OptimizerKind::Sgd,
        rate: 0.1,
        cosine: false,
        iterations: 200,
        cold: false,
        dtype: DType::F64,
    },
    picture: None,
    problem,
};

fn problem(options: &TaskOptions, dtype: DType) -> Result<Problem> {
    let low = LARGEST / CONDITION;
    let spectrum = (0..SIZE).map(|i| low * CONDITION.powf(i as f64 / (SIZE - 1) as f64)).collect();
    let mut a = vec![0.0; SIZE];
    fill_normal_f64(Key::from_seed(options.seed).words(), 0, 50, 0, &mut a);
    let zeros = || Leaf(Variable::constant([SIZE], 0.0));
    Problem::new(zeros(), zeros())
        .dtype(dtype)
        .data("spectrum", Array::from_f64([SIZE], spectrum)?)
        .data("a", Array::from_f64([SIZE], a)?)
        .inner(|s, l, t| (s.data("spectrum") * (t.0 - l.0).square()).sum_all() * 0.5)
        .outer(|s, _, t| (t.0 - s.data("a")).square().sum_all() * 0.5)
        .measure("relative distance of λ from the optimum", |s, l, _| {
            let a = s.data("a");
            ((l.0 - a).square().sum_all() / a.square().sum_all()).sqrt()
        })
        .build()
        .map(Problem::erase)
}
