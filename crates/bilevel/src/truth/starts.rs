//! Where λ is the start of training: bowls of which T steps are a power of a matrix, and proximal minima.

use super::{Facts, Target, TruthProblem};
use crate::optimizer::InnerOptimizer;
use crate::typed_problem::Problem;
use crate::variable::Variable;
use crate::{Array, Leaf, Result};

/// L_T = ½·Σ hᵢ(θᵢ − 1)² from θ⁰ = λ: θᵀᵢ − 1 = (1 − γhᵢ)ᵀ·(λᵢ − 1). f = ½·Σ (θᵢ − ½)².
fn training(name: &str, about: &'static str, h: &[f64], steps: usize) -> Result<TruthProblem> {
    let (n, step) = (h.len(), 0.4);
    let lambda: Vec<f64> = (0..n).map(|i| 2.0 - 0.7 * i as f64).collect();
    let left = |h: f64| (1.0 - step * h).powi(steps as i32);
    let truth = h.iter().zip(&lambda).map(|(&h, l)| (1.0 + left(h) * (l - 1.0) - 0.5) * left(h)).collect();
    let target = Target::Training { optimizer: InnerOptimizer::Sgd };
    let facts = Facts { target, step, steps, ..Facts::minimum(h[0], h[n - 1]) };
    Ok(TruthProblem::new(name, about, from_lambda(&lambda, h)?, truth, facts))
}

/// The minimum of L_T + (ρ/2)·‖θ − λ‖² is θᵢ = (hᵢ + ρλᵢ)/(hᵢ + ρ), and dF/dλᵢ = (θᵢ − ½)·ρ/(hᵢ + ρ).
fn proximal(h: &[f64], rho: f64) -> Result<TruthProblem> {
    let lambda: Vec<f64> = (0..h.len()).map(|i| 2.0 - 0.7 * i as f64).collect();
    let one = |(&h, l): (&f64, &f64)| ((h + rho * l) / (h + rho) - 0.5) * rho / (h + rho);
    let truth = h.iter().zip(&lambda).map(one).collect();
    let facts = Facts { target: Target::Proximal { rho }, ..Facts::minimum(h[0] + rho, h[h.len() - 1] + rho) };
    let about = "θ⁰ = λ, held near it by a proximal term";
    Ok(TruthProblem::new("proximal", about, from_lambda(&lambda, h)?, truth, facts))
}

fn from_lambda(lambda: &[f64], h: &[f64]) -> Result<Problem> {
    let n = h.len();
    Ok(Problem::new(Leaf(Variable::fixed(Array::from_f64([n], lambda.to_vec())?)), Leaf(Variable::constant([n], 0.0)))
        .data("curvature", Array::from_f64([n], h.to_vec())?)
        .inner(|s, _, t| (s.data("curvature") * (t.0 - 1.0).square()).sum_all() * 0.5)
        .outer(|_, _, t| (t.0 - 0.5).square().sum_all() * 0.5)
        .start(|_, l| *l)
        .build()?
        .erase())
}

pub(super) fn problems() -> Result<Vec<TruthProblem>> {
    Ok(vec![
        training("start", "θ⁰ = λ, five steps in one dimension", &[0.8], 5)?,
        training(
            "start, four dimensions",
            "θ⁰ = λ, twenty steps, curvatures from 0.1 to 2",
            &[0.1, 0.5, 1.0, 2.0],
            20,
        )?,
        proximal(&[0.3, 1.0, 3.0], 1.0)?,
    ])
}
