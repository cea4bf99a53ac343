//! Part 2: the synthetic bi-level problem in one dimension, by two estimators.
//!
//!   outer loss f = (λ − θ)² + (θ − ½)²,  inner loss L = θ³/3 − (1 − λ²)·θ
//!
//! The inner loss is least at θ = √(1 − λ²), so the answer is known: λ = 0.74894, θ = 0.66264.

use super::page::{duration, sparkline};
use super::{Outcome, TourPage};
use bilevel::methods::{HpoSgld, LangevinAdjoint};
use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Result, Session, Variable};
use std::time::Instant;

const TRUE_LAMBDA: f64 = 0.74894;
const TRUE_THETA: f64 = 0.66264;
/// The start of λ and θ.
const START: f64 = 0.1;
/// Step of the outer gradient descent.
const OUTER_STEP: f64 = 0.005;

/// Temperature of the chains.
const TEMPERATURE: f64 = 1e-6;

fn problem() -> Result<Problem<Leaf<Variable>, Leaf<Variable>>> {
    Problem::builder(Leaf(Variable::constant([], START)), Leaf(Variable::constant([], START)))
        .inner(|_, lambda, theta| theta.0 * theta.0 * theta.0 / 3.0 - (1.0 - lambda.0 * lambda.0) * theta.0)
        .outer(|_, lambda, theta| (lambda.0 - theta.0).square() + (theta.0 - 0.5).square())
        .build()
}

/// The recursion of the paper: half of the 100 steps are burn-in.
fn inner(step: f64) -> InnerLoop {
    InnerLoop { burn_in: 50, ..InnerLoop::new(step, 100).at_temperature(TEMPERATURE) }
}

/// The results of an outer loop.
struct Learned {
    /// λ before each outer iteration, and after the last.
    lambdas: Vec<f64>,
    theta: f64,
    /// Median over the outer iterations.
    seconds_per_iteration: f64,
}

impl Learned {
    fn lambda(&self) -> f64 {
        self.lambdas[self.lambdas.len() - 1]
    }
}

/// How far values stray from their mean: the root of their mean squared distance.
fn spread(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// Descends along the hypergradient; the inner steps of an outer iteration are one call of one program.
fn learn(method: &dyn Method, inner: InnerLoop, iterations: usize) -> Result<Learned> {
    let problem = problem()?;
    let session = Session::new(&problem, &Cpu::with_threads(1))?;
    let mut estimator = method.prepare_in(&session, &inner)?;
    let key = Key::from_seed(0);
    let mut state = session.state(key)?;
    let mut lambdas = vec![START];
    let mut times = Vec::with_capacity(iterations);
    for iteration in 0..iterations {
        let start = Instant::now();
        let hypergradient = estimator.estimate(&mut state, key.fold_in(iteration as u32))?;
        lambdas.push(lambdas[iteration] - OUTER_STEP * hypergradient.value[0].item()?);
        state.lambda[0].set_item(lambdas[iteration + 1])?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(Learned { lambdas, theta: state.theta[0].item()?, seconds_per_iteration: times[iterations / 2] })
}

/// Writes the part.
pub fn show(page: &mut TourPage) -> Outcome {
    page.heading("2. A bilevel problem in one dimension")?;
    page.line("Choose λ so that f = (λ − θ)² + (θ − ½)² is minimal if θ minimises L = θ³/3 − (1 − λ²)·θ.")?;
    page.line(
        "Langevin steps of size γ train θ at temperature 1e-6. The 100 inner steps of an outer iteration, their",
    )?;
    page.line("derivatives and their noise are one program and one call; λ and θ start at 0.1, outer step 0.005.\n")?;
    let head = ["estimator", "γ", "outer", "λ", "θ", "error in λ", "per outer", "λ, first 200 outer"];
    let mut rows = vec![head.map(String::from)];
    let mut noise = 0.0;
    let runs: [(&str, &dyn Method, f64, usize); 4] = [
        ("HPO-SGLD as printed", &HpoSgld::default(), 0.005, 200),
        ("HPO-SGLD as printed", &HpoSgld::default(), 0.01, 200),
        ("Langevin adjoint", &LangevinAdjoint::default(), 0.005, 3000),
        ("Langevin adjoint", &LangevinAdjoint::default(), 0.01, 3000),
    ];
    for (name, method, inner_step, iterations) in runs {
        let learned = learn(method, inner(inner_step), iterations)?;
        if method.name() == "langevin-adjoint" {
            noise = spread(&learned.lambdas[iterations / 3..]).max(noise);
        }
        rows.push([
            name.into(),
            inner_step.to_string(),
            iterations.to_string(),
            format!("{:.5}", learned.lambda()),
            format!("{:.5}", learned.theta),
            format!("{:+.5}", learned.lambda() - TRUE_LAMBDA),
            duration(learned.seconds_per_iteration),
            sparkline(&learned.lambdas[..200], 24),
        ]);
    }
    let truth = format!("{TRUE_LAMBDA:.5}");
    let blank = String::new;
    rows.push(["the optimum".into(), blank(), blank(), truth, TRUE_THETA.to_string(), blank(), blank(), blank()]);
    page.table(&rows)?;
    page.line(&format!("\nThe noise of the chain moves a converged λ by about {noise:.0e} between outer iterations."))?;
    page.line(
        "The printed recursion omits the contraction −γ·H of the chain, so its indirect term has the right size",
    )?;
    page.line("at one chain length only (here γ·T = 1) and is biased at others; the Langevin adjoint keeps the term.")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_recursion_ends_where_the_paper_says() {
        for (inner_step, expected) in [(0.005, 0.7369), (0.01, 0.7489)] {
            let found = learn(&HpoSgld::default(), inner(inner_step), 200).unwrap().lambda();
            assert!((found - expected).abs() < 5e-4, "γ = {inner_step}: {found}, expected {expected}");
        }
    }

    #[test]
    fn the_langevin_adjoint_finds_the_optimum_for_either_step() {
        for inner_step in [0.005, 0.01] {
            let learned = learn(&LangevinAdjoint::default(), inner(inner_step), 3000).unwrap();
            assert!((learned.lambda() - TRUE_LAMBDA).abs() < 5e-4, "γ = {inner_step}: {}", learned.lambda());
            assert!((learned.theta - TRUE_THETA).abs() < 2e-3, "γ = {inner_step}: {}", learned.theta);
        }
    }
}
