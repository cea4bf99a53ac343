//! A noisy inner loop in a double well, in which training has two possible ends. The objective is then the mean of f
//! over the chain, F(λ) = E[f] under p ∝ exp(−L_T/τ), which a quadrature computes exactly in one dimension. Implicit
//! differentiation at the end of training uses one well only, and averaged over the chain it fails at curvatures of 0;
//! the Langevin adjoint estimates dF/dλ.
//!
//!     cargo run --release -p bilevel --example finite_temperature -- [PICTURE.svg]

use bilevel::methods::{Chains, HpoSgld, IftCg, LangevinAdjoint};
use bilevel::optimizers::Schedule;
use bilevel::{Cpu, Driver, Error, InnerLoop, Key, Leaf, Method, Problem, Result, Session, Variable};
use bilevel_report::{Axis, Curve, Plot};

const TEMPERATURE: f64 = 0.3;
const STEP: f64 = 0.02;
const LAMBDA: f64 = 0.2;

/// L_T = (θ² − 1)²/4 − λθ has wells near −1 and 1, which λ tilts; f = (θ − 1)² + 2λ² favours the right one and small λ.
fn problem(lambda: f64, theta: f64) -> Result<Problem<Leaf<Variable>, Leaf<Variable>>> {
    Problem::builder(Leaf(Variable::constant([], lambda)), Leaf(Variable::constant([], theta)))
        .inner(|_, l, t| (t.0.square() - 1.0).square() / 4.0 - l.0 * t.0)
        .outer(|_, l, t| (t.0 - 1.0).square() + l.0.square() * 2.0)
        .build()
}

/// F(λ) by a sum over a grid wide enough that p is 0 at its ends.
fn exact(lambda: f64) -> f64 {
    let (mut mass, mut sum) = (0.0, 0.0);
    for i in 0..=4000 {
        let x = -4.0 + 0.002 * i as f64;
        let weight = (-((x * x - 1.0).powi(2) / 4.0 - lambda * x) / TEMPERATURE).exp();
        mass += weight;
        sum += weight * ((x - 1.0).powi(2) + 2.0 * lambda * lambda);
    }
    sum / mass
}

/// Mean and standard error of hypergradients in a row along each of 16 chains, λ fixed.
fn mean(method: &dyn Method, inner: InnerLoop, [lambda, theta]: [f64; 2], count: u32) -> Result<(f64, f64)> {
    let problem = problem(lambda, theta)?;
    let session = Session::new(&problem, &Cpu::with_threads(1))?;
    let mut estimator = method.prepare_in(&session, &inner)?;
    let mut means = vec![];
    for chain in 0..16 {
        let key = Key::from_seed(chain);
        let mut state = session.state(key)?;
        let mut sum = 0.0;
        for i in 0..count + 5 {
            let h = estimator.estimate(&mut state, key.fold_in(i))?.value[0].item()?;
            sum += if i < 5 { 0.0 } else { h };
        }
        means.push(sum / count as f64);
    }
    let mean = means.iter().sum::<f64>() / 16.0;
    let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / 15.0;
    Ok((mean, (variance / 16.0).sqrt()))
}

/// dF/dλ over λ: by quadrature, by the adjoint and by the paper's recursion.
fn picture() -> Result<Plot> {
    let at: Vec<f64> = (0..7).map(|i| -0.75 + 0.25 * f64::from(i)).collect();
    let slope = |lambda: f64| (exact(lambda + 1e-4) - exact(lambda - 1e-4)) / 2e-4;
    let chain = |steps| InnerLoop::new(STEP, steps).at_temperature(TEMPERATURE);
    let (sgld, adjoint) = (HpoSgld::default(), LangevinAdjoint::default());
    let methods: [(&str, &dyn Method, InnerLoop, u32); 2] = [
        ("Langevin adjoint, ± 2 standard errors", &adjoint, chain(2000), 60),
        ("HPO-SGLD, B = M = 50", &sgld, InnerLoop { burn_in: 50, ..chain(100) }, 500),
    ];
    let mut curves =
        vec![Curve::new("quadrature", (0..=150).map(|i| -0.75 + 0.01 * f64::from(i)).map(|l| (l, slope(l))))];
    for (name, method, inner, count) in methods {
        let found = at.iter().map(|l| mean(method, inner, [*l, 0.0], count)).collect::<Result<Vec<_>>>()?;
        let points = at.iter().zip(&found).map(|(l, (mean, _))| (*l, *mean));
        let band = found.iter().map(|(mean, error)| (mean - 2.0 * error, mean + 2.0 * error));
        curves.push(Curve::new(name, points).with_band(band).dashed().with_markers());
    }
    let title = "The hypergradient of a double well at temperature 0.3".into();
    Ok(Plot { title, x: Axis::linear("λ"), y: Axis::linear("dF/dλ"), curves })
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let slope = (exact(LAMBDA + 1e-4) - exact(LAMBDA - 1e-4)) / 2e-4;
    println!("dF/dλ at λ = {LAMBDA}, τ = {TEMPERATURE}\n\n{:42} {:>8}  {:>9}", "", "value", "std. err.");
    println!("{:42} {slope:8.4}", "quadrature");
    let solve = IftCg { regularisation: 0.0, iterations: 2, ..IftCg::default() };
    let (sgld, adjoint) = (HpoSgld::default(), LangevinAdjoint::default());
    let cold = InnerLoop::new(0.1, 500);
    let chain = |steps| InnerLoop::new(STEP, steps).at_temperature(TEMPERATURE);
    let half = InnerLoop { burn_in: 50, ..chain(100) };
    let rows: [(&str, &dyn Method, InnerLoop, f64, u32); 5] = [
        ("langevin-adjoint", &adjoint, chain(2000), 0.0, 600),
        ("hpo-sgld, B = M = 50", &sgld, half, 0.0, 4000),
        ("ift-cg at the minimum, trained from −1", &solve, cold, -1.0, 1),
        ("ift-cg at the minimum, trained from 1", &solve, cold, 1.0, 1),
        ("ift-cg averaged over the chain", &solve, chain(100), 0.0, 4000),
    ];
    for (name, method, inner, theta, count) in rows {
        match mean(method, inner, [LAMBDA, theta], count) {
            Ok((mean, error)) => println!("{name:42} {mean:8.4}  {error:9.4}"),
            // Between the wells the inner loss curves downwards.
            Err(refusal @ Error::Diverged { .. }) => println!("{name:42} {refusal}"),
            Err(error) => return Err(error.into()),
        }
    }

    let best = (0..2000).map(|i| i as f64 * 1e-3).min_by(|a, b| exact(*a).total_cmp(&exact(*b))).unwrap_or(f64::NAN);
    let outcome = Driver::new(&problem(LAMBDA, 0.0)?, Chains::new(adjoint, 4))
        .inner(chain(2000))
        .schedule(Schedule::cosine(0.05, 300, 0.0))
        .iterations(300)
        .run()?;
    let found = outcome.lambda.0.item().unwrap_or(f64::NAN);
    println!("\nThe best λ is {best:.3} by quadrature; following langevin-adjoint ended at {found:.3}.");
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, picture()?.svg())?;
    }
    Ok(())
}
