//! Quadratics of different curvature: λ sets each inner minimum, and the outer loss its target.
//!
//!   L_T = ½(θ−λ)ᵀA(θ−λ),   f = ½‖θ−a‖² \[+ ½ρ‖λ−b‖²\]
//!
//! A draw has normal a and b, and a spectrum of A from 2/condition to 2, log-uniform between its ends. Every method is unchanged
//! by a rotation, and so are both losses but for A: A is taken in its own basis. The optimum is λ = (a + ρb)/(1 + ρ).

use bilevel::graph::random::{fill_normal_f64, fill_uniform_f64};
use bilevel::methods::AnyMethod;
use bilevel::optimizers::InnerOptimizer;
use bilevel::{Array, Error, InnerLoop, Key, Leaf, Problem, Result, Variable};
use bilevel_run::{Context, Defaults, Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const LARGEST: f64 = 2.0;

/// Numbers λ that shift a quadratic inner loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Quadratics {
    /// how many numbers λ and the parameters have
    pub size: usize,
    /// largest over smallest curvature of the inner loss
    pub condition: f64,
    /// strength of a direct term of λ in the outer loss
    pub direct: f64,
}

impl Default for Quadratics {
    fn default() -> Self {
        Quadratics { size: 50, condition: 10.0, direct: 0.0 }
    }
}

impl Task for Quadratics {
    const NAME: &'static str = "quadratics";
    const SUMMARY: &'static str =
        "fifty numbers λ that shift a quadratic inner loss with condition number 10; the optimum is known";

    fn build(&self, context: &Context) -> Result<Problem> {
        let Quadratics { size, condition, direct } = *self;
        if size < 2 {
            return Err(Error::setting("size", size, "at least 2"));
        }
        if condition.is_nan() || condition < 1.0 {
            return Err(Error::setting("condition", condition, "at least 1"));
        }
        if direct.is_nan() || direct < 0.0 {
            return Err(Error::setting("direct", direct, "at least 0"));
        }
        let key = Key::from_seed(50 + context.seed).words();
        let [mut places, mut a, mut b] = [(); 3].map(|_| vec![0.0; size]);
        fill_normal_f64(key, 0, 0, 0, &mut a);
        fill_normal_f64(key, 0, 1, 0, &mut b);
        fill_uniform_f64(key, 0, 2, 0, &mut places);
        (places[0], places[1]) = (0.0, 1.0);
        let low = LARGEST / condition;
        let spectrum = places.into_iter().map(|place| low * f64::powf(condition, place)).collect();
        let optimum = a.iter().zip(&b).map(|(a, b)| (a + direct * b) / (1.0 + direct)).collect();
        let zeros = || Leaf(Variable::constant([size], 0.0));
        Problem::builder(zeros(), zeros())
            .dtype(context.dtype)
            .data("spectrum", Array::from_f64([size], spectrum)?)
            .data("a", Array::from_f64([size], a)?)
            .data("b", Array::from_f64([size], b)?)
            .data("optimum", Array::from_f64([size], optimum)?)
            .inner(|s, l, t| (s.data("spectrum") * (t.0 - l.0).square()).sum_all() * 0.5)
            .outer(move |s, l, t| {
                let loss = (t.0 - s.data("a")).square().sum_all() * 0.5;
                if direct > 0.0 { loss + (l.0 - s.data("b")).square().sum_all() * (0.5 * direct) } else { loss }
            })
            .measure("relative distance of λ from the optimum", |s, l, _| {
                let optimum = s.data("optimum");
                ((l.0 - optimum).square().sum_all() / optimum.square().sum_all()).sqrt()
            })
            .build()
            .map(Problem::erase)
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            method: "amigo-cg",
            inner: InnerLoop::new(0.05, 100),
            curvature: LARGEST,
            optimizer: InnerOptimizer::Sgd,
            rate: 0.1,
            iterations: 200,
            ..Defaults::default()
        }
    }

    fn tune(&self, method: &mut AnyMethod, _: &mut InnerLoop) {
        // Curvatures are spread evenly, so that a part of the columns says little of the others.
        if let AnyMethod::Nystrom(nystrom) = method {
            nystrom.columns = self.size;
        }
    }
}
