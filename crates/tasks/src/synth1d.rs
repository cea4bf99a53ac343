//! The paper's synthetic problem in one dimension.
//!
//!   f = (λ−θ)² + (θ−½)²,   L_T = (1/3+ε₁)θ³ − (1−λ²+ε₂)θ,   ε uniform up to `noise`, fresh at every step

use bilevel::methods::AnyMethod;
use bilevel::optimizers::InnerOptimizer;
use bilevel::{Error, InnerLoop, Leaf, Problem, Result, Variable};
use bilevel_run::{Context, Defaults, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// λ and θ at the optimum without noise, by line search on θ = √(1−λ²).
pub const OPTIMUM: (f64, f64) = (0.74894, 0.66264);

/// One number λ that shapes a cubic inner loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Synth1d {
    /// largest noise in the inner loss, drawn again at every inner step; 0 for none, 0.3 in the paper
    pub noise: f64,
    /// start of λ and the parameter
    pub start: f64,
    /// keep λ between 0 and 1; only then has the inner loss a minimum
    pub bounded: bool,
}

impl Default for Synth1d {
    fn default() -> Self {
        Synth1d { noise: 0.0, start: 0.1, bounded: false }
    }
}

impl Task for Synth1d {
    const NAME: &'static str = "synth1d";
    const SUMMARY: &'static str = "one number λ that shapes a cubic inner loss; the optimum is known (λ = 0.74894)";

    fn build(&self, context: &Context) -> Result<Problem> {
        let Synth1d { noise, start, bounded } = *self;
        if noise < 0.0 {
            return Err(Error::setting("noise", noise, "at least 0"));
        }
        let free = Variable::constant([], start);
        let lambda = if bounded { free.clone().at_least(0.0).at_most(1.0) } else { free.clone() };
        let problem = Problem::builder(Leaf(lambda), Leaf(free))
            .dtype(context.dtype)
            .outer(|_, l, t| (l.0 - t.0).square() + (t.0 - 0.5).square())
            .measure("distance of λ from the optimum", |_, l, _| (l.0 - OPTIMUM.0).abs());
        let problem = if noise > 0.0 {
            problem.inner(move |scope, l, t| {
                let (one, two) = (scope.uniform([], -noise, noise), scope.uniform([], -noise, noise));
                (one + 1.0 / 3.0) * t.0 * t.0 * t.0 - (1.0 - l.0 * l.0 + two) * t.0
            })
        } else {
            problem.inner(|_, l, t| t.0 * t.0 * t.0 / 3.0 - (1.0 - l.0 * l.0) * t.0)
        };
        problem.build().map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        // The curvature that is drawn can be twice that of the mean.
        let (temperature, curvature) = if self.noise > 0.0 { (1e-5, 4.0) } else { (1e-6, 2.0) };
        Defaults {
            inner: InnerLoop::new(0.005, 100).at_temperature(temperature),
            curvature,
            optimizer: InnerOptimizer::Sgd,
            rate: 0.005,
            iterations: 2000,
            ..Defaults::default()
        }
    }

    fn tune(&self, method: &mut AnyMethod, inner: &mut InnerLoop) {
        // The indirect term of HPO-SGLD is right if γ × curvature × the mean number of the kept steps is 1, and the curvature at
        // the optimum is 2θ = 1.33.
        if let AnyMethod::HpoSgld(_) = method {
            (inner.burn_in, inner.steps) = (100, 200);
        }
    }
}
