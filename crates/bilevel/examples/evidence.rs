//! How smooth should a curve be? The precision e^λ of the prior on its weights is chosen by the evidence of the training rows: there
//! are no validation rows. A Langevin chain estimates the derivative, and the closed form of this linear model checks it.
//!
//!   y = Φ·w + noise of deviation σ, w ~ N(0, e^−λ·I), so y ~ N(0, S) with S = σ²·I + e^−λ·Φ·Φᵀ, and
//!   −log evidence = ½·yᵀ·S⁻¹·y + ½·log det S + const
//!
//!     cargo run --release -p bilevel --example evidence -- [PICTURE.svg]

use bilevel::graph::nn::gaussian_prior;
use bilevel::graph::random::fill_normal_f64;
use bilevel::methods::Evidence;
use bilevel::prelude::*;
use bilevel::{Leaf, Result};
use bilevel_report::{Axis, Curve, Plot};

const ROWS: usize = 14;
const BUMPS: usize = 30;
const NOISE: f64 = 0.5;

/// Bumps of one width, side by side.
fn features(x: f64) -> Vec<f64> {
    (0..BUMPS).map(|k| (-0.5 * ((x - 10.0 * k as f64 / (BUMPS - 1) as f64) / 0.5).powi(2)).exp()).collect()
}

fn truth(x: f64) -> f64 {
    x.sin() + 0.3 * x
}

fn data() -> (Vec<f64>, Vec<f64>) {
    let mut noise = vec![0.0; ROWS];
    fill_normal_f64(Key::from_seed(4).words(), 0, 0, 0, &mut noise);
    let x: Vec<f64> = (0..ROWS).map(|i| 10.0 * (i as f64 + 0.5) / ROWS as f64).collect();
    let y = x.iter().zip(noise).map(|(x, e)| truth(*x) + NOISE * e).collect();
    (x, y)
}

/// The lower triangular L with L·Lᵀ = A.
fn cholesky(a: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut l = vec![vec![0.0; a.len()]; a.len()];
    for i in 0..a.len() {
        for j in 0..=i {
            let rest = a[i][j] - (0..j).map(|k| l[i][k] * l[j][k]).sum::<f64>();
            l[i][j] = if i == j { rest.sqrt() } else { rest / l[j][j] };
        }
    }
    l
}

fn dot(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).map(|(a, b)| a * b).sum()
}

/// −log evidence without its constant, and S⁻¹·y.
fn exact(x: &[f64], y: &[f64], lambda: f64) -> (f64, Vec<f64>) {
    let (phi, n): (Vec<Vec<f64>>, usize) = (x.iter().map(|x| features(*x)).collect(), y.len());
    let entry = |i: usize, j: usize| (-lambda).exp() * dot(&phi[i], &phi[j]) + if i == j { NOISE * NOISE } else { 0.0 };
    let l = cholesky(&(0..n).map(|i| (0..n).map(|j| entry(i, j)).collect()).collect::<Vec<_>>());
    let mut z: Vec<f64> = vec![];
    for (i, row) in l.iter().enumerate() {
        z.push((y[i] - dot(&row[..i], &z)) / row[i]);
    }
    let mut solved = vec![0.0; n];
    for i in (0..n).rev() {
        let rest: f64 = (i + 1..n).map(|k| l[k][i] * solved[k]).sum();
        solved[i] = (z[i] - rest) / l[i][i];
    }
    (0.5 * dot(&z, &z) + (0..n).map(|i| l[i][i].ln()).sum::<f64>(), solved)
}

/// The posterior mean of the curve: e^−λ·φ(at)ᵀ·Φᵀ·S⁻¹·y.
fn fitted(x: &[f64], y: &[f64], lambda: f64, at: f64) -> f64 {
    let (solved, here) = (exact(x, y, lambda).1, features(at));
    (-lambda).exp() * x.iter().zip(&solved).map(|(x, a)| dot(&features(*x), &here) * a).sum::<f64>()
}

fn problem(x: &[f64], y: &[f64], start: f64) -> Result<Problem<Leaf<Variable>, Leaf<Variable>>> {
    let phi = x.iter().flat_map(|x| features(*x)).collect();
    Problem::builder(
        Leaf(Variable::constant([], start).at_least(-10.0).at_most(8.0)),
        Leaf(Variable::constant([BUMPS, 1], 0.0)),
    )
    .data("features", Array::from_f64([x.len(), BUMPS], phi)?)
    .data("y", Array::from_f64([y.len(), 1], y.to_vec())?)
    .inner(|s, l, t| {
        let error = s.data("features").matmul(t.0) - s.data("y");
        error.square().sum_all() * (0.5 / (NOISE * NOISE)) + gaussian_prior(t.0, l.0.exp())
    })
    .evidence()
    .build()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (x, y) = data();
    // The temperature is 1: the inner loss is −log of likelihood × prior.
    let inner = InnerLoop { burn_in: 100, ..InnerLoop::new(0.01, 4000).at_temperature(1.0) };
    let driver = Driver::new(&problem(&x, &y, 4.0)?, Evidence::default()).inner(inner).optimizer(Adam::default());
    let outcome = driver.schedule(Schedule::cosine(0.2, 150, 0.0)).iterations(150).seed(1).run()?;
    let learned = outcome.lambda.0.item().unwrap_or(f64::NAN);

    let grid = (0..=2000).map(|i| -6.0 + 0.006 * i as f64);
    let best = grid.min_by(|a, b| exact(&x, &y, *a).0.total_cmp(&exact(&x, &y, *b).0)).unwrap_or(f64::NAN);
    println!("λ with the largest evidence: {best:.2} in closed form, {learned:.2} learned along the chain\n");

    let at: Vec<f64> = (0..=200).map(|i| 0.05 * i as f64).collect();
    println!("{:32} {:>25}", "prior", "error against the truth");
    let mut curves = vec![Curve::new("the truth", at.iter().map(|x| (*x, truth(*x)))).dashed()];
    for (name, lambda) in
        [("almost none, λ = −9", -9.0), ("learned by the evidence", learned), ("far too strong, λ = 4", 4.0)]
    {
        let curve: Vec<(f64, f64)> = at.iter().map(|at| (*at, fitted(&x, &y, lambda, *at))).collect();
        let error = curve.iter().map(|(x, value)| (value - truth(*x)).powi(2)).sum::<f64>() / curve.len() as f64;
        println!("{name:32} {:25.3}", error.sqrt());
        curves.push(Curve::new(name, curve));
    }
    // A point between two gaps is a dot.
    let rows = x.iter().zip(&y).flat_map(|(x, y)| [(*x, *y), (f64::NAN, f64::NAN)]);
    curves.push(Curve::new("the rows", rows).with_markers());
    if let Some(path) = std::env::args().nth(1) {
        let title = "A curve through fourteen rows, smoothed by the evidence".into();
        std::fs::write(path, Plot { title, x: Axis::linear("x"), y: Axis::linear("y"), curves }.svg())?;
    }
    Ok(())
}
