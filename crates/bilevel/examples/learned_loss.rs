//! A loss function that is itself learned: a third of the training targets are wrong, always in the same direction. The
//! cost of a residual is learned from forty clean rows.
//!
//!   ρ(r) = Σₖ softplus(λₖ)·r²/(1 + (r/sₖ)²),   L_T = mean ρ(θ₁·x + θ₀ − y),   f = mean square of clean residuals
//!
//! Each term is a square near 0 and flat beyond its width sₖ, so ρ can represent the size above which a residual
//! carries no information.
//!
//!     cargo run --release -p bilevel --example learned_loss -- [PICTURE.svg]

use bilevel::graph::nn::softplus;
use bilevel::graph::random::{fill_normal_f64, fill_uniform_f64};
use bilevel::prelude::*;
use bilevel_report::{Axis, Curve, Plot};

const WIDTHS: [f64; 4] = [0.5, 1.5, 5.0, 100.0];
const TRUTH: [f64; 2] = [-1.0, 2.0];
const INNER: [f64; 2] = [0.05, 200.0];

/// λ: how much of each term.
#[derive(Clone, Tree)]
struct Shape<T> {
    amounts: T,
}

/// θ: a straight line.
#[derive(Clone, Tree)]
struct Line<T> {
    offset: T,
    slope: T,
}

/// x and y of rows of which this part is wrong: too high by 4 to 8.
fn rows(count: usize, wrong: f64, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let uniform = |stream: u32| {
        let mut numbers = vec![0.0; count];
        fill_uniform_f64(Key::from_seed(seed).words(), 0, stream, 0, &mut numbers);
        numbers
    };
    let mut noise = vec![0.0; count];
    fill_normal_f64(Key::from_seed(seed).words(), 0, 3, 0, &mut noise);
    let (place, chance, size) = (uniform(0), uniform(1), uniform(2));
    let x: Vec<f64> = place.iter().map(|u| 4.0 * u - 2.0).collect();
    let error = |i: usize| if chance[i] < wrong { 4.0 + 4.0 * size[i] } else { 0.3 * noise[i] };
    let y = x.iter().enumerate().map(|(i, x)| TRUTH[0] + TRUTH[1] * x + error(i)).collect();
    (x, y)
}

/// The loss of residuals, by the amounts of its terms.
fn learned(residuals: Tensor, amounts: Tensor) -> Tensor {
    let term = |(k, width): (usize, &f64)| {
        let square = residuals.square();
        softplus(amounts.index(0, k)) * (square / (square * (1.0 / (width * width)) + 1.0)).mean_all()
    };
    let terms: Vec<Tensor> = WIDTHS.iter().enumerate().map(term).collect();
    terms[1..].iter().fold(terms[0], |sum, term| sum + *term)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (train, clean) = (rows(150, 0.33, 1), rows(40, 0.0, 2));
    let column = |values: &[f64]| Array::from_f64([values.len()], values.to_vec());
    let residuals = |s: &Scope, rows: &str, t: &Line<Tensor>| {
        s.data(&format!("{rows} x")) * t.slope + t.offset - s.data(&format!("{rows} y"))
    };
    // It begins as a square: nearly all of it is the term that is never flat.
    let start = Array::from_f64([4], vec![-4.0, -4.0, -4.0, 0.0])?;
    let number = || Variable::constant([], 0.0);
    let problem = Problem::builder(
        Shape { amounts: Variable::fixed(start.clone()).at_least(-12.0).at_most(5.0) },
        Line { offset: number(), slope: number() },
    )
    .data("train x", column(&train.0)?)
    .data("train y", column(&train.1)?)
    .data("clean x", column(&clean.0)?)
    .data("clean y", column(&clean.1)?)
    .inner(move |s, l, t| learned(residuals(s, "train", t), l.amounts))
    .outer(move |s, _, t| residuals(s, "clean", t).square().mean_all())
    .build()?;

    let inner = InnerLoop::new(INNER[0], INNER[1] as usize);
    let driver = Driver::new(&problem, Rmd::default()).inner(inner).cold(true).optimizer(Adam::default());
    let outcome = driver.rate(0.1).iterations(150).run()?;

    println!("{:34} {:>8} {:>8}", "loss", "offset", "slope");
    println!("{:34} {:8.2} {:8.2}", "the line that made the data", TRUTH[0], TRUTH[1]);
    let mut fits = vec![];
    for (name, amounts) in [("squares", &start), ("learned", &outcome.lambda.amounts)] {
        let line = problem.train(&Shape { amounts: amounts.clone() }).step(0.05).steps(3000).run()?.theta;
        let fit = [line.offset, line.slope].map(|leaf| leaf.item().unwrap_or(f64::NAN));
        println!("{name:34} {:8.2} {:8.2}", fit[0], fit[1]);
        fits.push(fit);
    }

    if let Some(path) = std::env::args().nth(1) {
        let amounts: Vec<f64> = outcome.lambda.amounts.to_f64().iter().map(|l| l.exp().ln_1p()).collect();
        let cost = |r: f64| WIDTHS.iter().zip(&amounts).map(|(s, a)| a * r * r / (1.0 + (r / s).powi(2))).sum::<f64>();
        let plot = Plot {
            title: "The cost of a residual, learned".into(),
            x: Axis::linear("residual"),
            y: Axis::linear("cost, in units of that of a residual of 1"),
            curves: vec![
                Curve::new("square", (0..=60).map(|i| 0.05 * f64::from(i)).map(|r| (r, r * r))).dashed(),
                Curve::new("learned", (0..=160).map(|i| 0.05 * f64::from(i)).map(|r| (r, cost(r) / cost(1.0)))),
            ],
        };
        std::fs::write(path, plot.svg())?;
    }
    Ok(())
}
