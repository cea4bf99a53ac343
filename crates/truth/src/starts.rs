//! Problems in which λ is the start of training: bowls in which T steps are a power of a matrix, and proximal minima.

use super::TruthProblem;
use bilevel::methods::claims::{Facts, Target};
use bilevel::optimizers::InnerOptimizer;
use bilevel::{Array, InnerLoop, Leaf, Problem, Result, Variable};

/// λ that differs from number to number.
fn first_lambda(count: usize) -> Vec<f64> {
    (0..count).map(|i| 2.0 - 0.7 * i as f64).collect()
}

/// L_T = ½·Σ hᵢ(θᵢ − 1)² from θ⁰ = λ: θᵀᵢ − 1 = (1 − γhᵢ)ᵀ·(λᵢ − 1). f = ½·Σ (θᵢ − ½)².
fn training(name: &str, about: &'static str, h: &[f64], steps: usize) -> Result<TruthProblem> {
    let (n, step) = (h.len(), 0.4);
    let lambda = first_lambda(n);
    let left = |h: f64| (1.0 - step * h).powi(steps as i32);
    let truth = h.iter().zip(&lambda).map(|(&h, l)| (1.0 + left(h) * (l - 1.0) - 0.5) * left(h)).collect();
    let target = Target::Training { optimizer: InnerOptimizer::Sgd };
    let facts = Facts { target, inner: InnerLoop::new(step, steps), ..Facts::minimum(h[0], h[n - 1]) };
    Ok(TruthProblem::new(name, about, from_lambda(&lambda, h)?, truth, facts))
}

/// L_T = Σ aᵢ·θᵢ from θ⁰ = λ: θᵀ = λ − γT·a, and λ is carried on unchanged. f = ½·Σ (θᵢ − ½)².
fn straight(a: &[f64], steps: usize) -> Result<TruthProblem> {
    let (n, step) = (a.len(), 0.1);
    let lambda = first_lambda(n);
    let truth = a.iter().zip(&lambda).map(|(a, l)| l - step * steps as f64 * a - 0.5).collect();
    let target = Target::Training { optimizer: InnerOptimizer::Sgd };
    let facts = Facts { target, inner: InnerLoop::new(step, steps), straight: true, ..Facts::minimum(1.0, 1.0) };
    let problem =
        Problem::builder(Leaf(Variable::fixed(Array::from_f64([n], lambda)?)), Leaf(Variable::constant([n], 0.0)))
            .data("slope", Array::from_f64([n], a.to_vec())?)
            .inner(|s, _, t| (s.data("slope") * t.0).sum_all())
            .outer(|_, _, t| (t.0 - 0.5).square().sum_all() * 0.5)
            .start(|_, l| *l)
            .build()?
            .erase();
    let about = "θ⁰ = λ and an inner loss without curvature, so that second-order terms vanish";
    Ok(TruthProblem::new("start, straight", about, problem, truth, facts))
}

/// L_T = f = ½·Σ hᵢ(θᵢ − 1)² from θ⁰ = λ: dF/dλᵢ = hᵢ·(1 − γhᵢ)²ᵀ·(λᵢ − 1).
fn same_losses(h: &[f64], steps: usize) -> Result<TruthProblem> {
    let (n, step) = (h.len(), 0.4);
    let lambda = first_lambda(n);
    let truth = h.iter().zip(&lambda).map(|(h, l)| h * (1.0 - step * h).powi(2 * steps as i32) * (l - 1.0)).collect();
    let target = Target::Training { optimizer: InnerOptimizer::Sgd };
    let facts =
        Facts { target, inner: InnerLoop::new(step, steps), same_losses: true, ..Facts::minimum(h[0], h[n - 1]) };
    let problem =
        Problem::builder(Leaf(Variable::fixed(Array::from_f64([n], lambda)?)), Leaf(Variable::constant([n], 0.0)))
            .data("curvature", Array::from_f64([n], h.to_vec())?)
            .inner(|s, _, t| (s.data("curvature") * (t.0 - 1.0).square()).sum_all() * 0.5)
            .outer(|s, _, t| (s.data("curvature") * (t.0 - 1.0).square()).sum_all() * 0.5)
            .start(|_, l| *l)
            .build()?
            .erase();
    let about = "θ⁰ = λ, judged by the loss it trains on";
    Ok(TruthProblem::new("start, one loss", about, problem, truth, facts))
}

/// One step of L_T = ½·Σ hᵢ(θᵢ − λᵢ)² from θ⁰ = 0.2: θᵢ = 0.2 − γhᵢ(0.2 − λᵢ), and dF/dλᵢ = (θᵢ − 1)·γhᵢ with f = ½·Σ (θᵢ − 1)².
fn one_step(h: &[f64]) -> Result<TruthProblem> {
    let (n, step) = (h.len(), 0.4);
    let lambda = first_lambda(n);
    let one = |(h, l): (&f64, &f64)| (0.2 - step * h * (0.2 - l) - 1.0) * step * h;
    let truth = h.iter().zip(&lambda).map(one).collect();
    let target = Target::Training { optimizer: InnerOptimizer::Sgd };
    let facts = Facts { target, inner: InnerLoop::new(step, 1), ..Facts::minimum(h[0], h[n - 1]) };
    let problem =
        Problem::builder(Leaf(Variable::fixed(Array::from_f64([n], lambda)?)), Leaf(Variable::constant([n], 0.2)))
            .data("curvature", Array::from_f64([n], h.to_vec())?)
            .inner(|s, l, t| (s.data("curvature") * (t.0 - l.0).square()).sum_all() * 0.5)
            .outer(|_, _, t| (t.0 - 1.0).square().sum_all() * 0.5)
            .build()?
            .erase();
    Ok(TruthProblem::new("one step", "a training of one step, λ in the inner loss", problem, truth, facts))
}

/// The minimum of L_T + (ρ/2)·‖θ − λ‖² is θᵢ = (hᵢ + ρλᵢ)/(hᵢ + ρ), and dF/dλᵢ = (θᵢ − ½)·ρ/(hᵢ + ρ).
fn proximal(h: &[f64], rho: f64) -> Result<TruthProblem> {
    let lambda = first_lambda(h.len());
    let one = |(&h, l): (&f64, &f64)| ((h + rho * l) / (h + rho) - 0.5) * rho / (h + rho);
    let truth = h.iter().zip(&lambda).map(one).collect();
    let facts = Facts { target: Target::Proximal { rho }, ..Facts::minimum(h[0] + rho, h[h.len() - 1] + rho) };
    let about = "θ⁰ = λ, held near it by a proximal term";
    Ok(TruthProblem::new("proximal", about, from_lambda(&lambda, h)?, truth, facts))
}

fn from_lambda(lambda: &[f64], h: &[f64]) -> Result<Problem> {
    let n = h.len();
    Ok(Problem::builder(
        Leaf(Variable::fixed(Array::from_f64([n], lambda.to_vec())?)),
        Leaf(Variable::constant([n], 0.0)),
    )
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
        straight(&[0.5, -1.0, 2.0], 5)?,
        same_losses(&[0.1, 0.5, 1.0, 2.0], 5)?,
        one_step(&[0.3, 0.8, 2.0])?,
        proximal(&[0.3, 1.0, 3.0], 1.0)?,
    ])
}
