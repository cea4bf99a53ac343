//! Bowls: inner losses ½·Σ hᵢ(θᵢ − λᵢ)² and ½·Σ e^λᵢ·θᵢ², whose hypergradients are one line of algebra, cold and warm.

use super::TruthProblem;
use bilevel::methods::claims::Facts;
use bilevel::{Array, Leaf, Problem, Result, Variable};

/// Curvatures from `smallest` to `largest`, evenly on a logarithmic scale.
fn curvatures(count: usize, smallest: f64, largest: f64) -> Vec<f64> {
    let share = |i: usize| if count == 1 { 0.0 } else { i as f64 / (count - 1) as f64 };
    (0..count).map(|i| smallest * (largest / smallest).powf(share(i))).collect()
}

/// λ that differs from number to number.
fn first_lambda(count: usize) -> Vec<f64> {
    (0..count).map(|i| 0.5 + 0.3 * (i as f64).sin()).collect()
}

/// L_T = ½·Σ hᵢ(θᵢ − λᵢ)² and f = ½·Σ (θᵢ − 1)²/n, with or without a direct term λ²/(4n).
fn bowl(h: &[f64], direct: bool) -> Result<Problem> {
    let n = h.len();
    let count = n as f64;
    let lambda = Variable::fixed(Array::from_f64([n], first_lambda(n))?);
    Ok(Problem::builder(Leaf(lambda), Leaf(Variable::constant([n], 0.2)))
        .data("curvature", Array::from_f64([n], h.to_vec())?)
        .inner(|s, l, t| (s.data("curvature") * (t.0 - l.0).square()).sum_all() * 0.5)
        .outer(move |_, l, t| {
            let f = (t.0 - 1.0).square().sum_all() * (0.5 / count);
            if direct { f + l.0.square().sum_all() * (0.25 / count) } else { f }
        })
        .build()?
        .erase())
}

/// θ* = λ, so dF/dλᵢ = (λᵢ − 1 + direct·λᵢ/2)/n; noise adds a constant to E\[f\].
fn bowl_truth(n: usize, direct: bool) -> Vec<f64> {
    first_lambda(n).iter().map(|l| (l - 1.0 + if direct { 0.5 * l } else { 0.0 }) / n as f64).collect()
}

/// L_T = ½·Σ e^λᵢ·θᵢ² and f = Σ θᵢ²/n: at temperature τ the variance of θᵢ is τ·e^−λᵢ.
fn widths(n: usize) -> Result<Problem> {
    let count = n as f64;
    let lambda = Variable::fixed(Array::from_f64([n], first_lambda(n))?);
    Ok(Problem::builder(Leaf(lambda), Leaf(Variable::constant([n], 0.2)))
        .inner(|_, l, t| (l.0.exp() * t.0.square()).sum_all() * 0.5)
        .outer(move |_, _, t| t.0.square().sum_all() / count)
        .build()?
        .erase())
}

fn widths_truth(n: usize, temperature: f64) -> Vec<f64> {
    first_lambda(n).iter().map(|l| -temperature * (-l).exp() / n as f64).collect()
}

pub(super) fn problems() -> Result<Vec<TruthProblem>> {
    let mut all = vec![];
    let mut cold = |name, about, h: Vec<f64>, direct| -> Result<()> {
        let facts = Facts::minimum(h[0], h[h.len() - 1]);
        all.push(TruthProblem::new(name, about, bowl(&h, direct)?, bowl_truth(h.len(), direct), facts));
        Ok(())
    };
    cold("quadratic", "one dimension, no direct term", vec![0.7], false)?;
    cold("quadratic, direct", "one dimension, f names λ", vec![0.7], true)?;
    cold("ten quadratics", "condition 10", curvatures(10, 0.2, 2.0), false)?;
    cold("ten quadratics, badly conditioned", "condition 300, f names λ", curvatures(10, 0.01, 3.0), true)?;
    cold("a thousand quadratics", "1000 θ and 1000 λ, condition 4", curvatures(1000, 0.5, 2.0), false)?;

    let mut warm = |name, about, h: Vec<f64>, temperature, direct| -> Result<()> {
        let largest = h[h.len() - 1];
        // A thousand dimensions average over each other, and cost more per step.
        let (share, steps) = if h.len() == 1 { (0.01, 4000) } else { (0.05, 1000) };
        let facts = Facts::gibbs(temperature, share / largest, largest).with_steps(steps);
        all.push(TruthProblem::new(name, about, bowl(&h, direct)?, bowl_truth(h.len(), direct), facts));
        Ok(())
    };
    warm("warm quadratic", "τ = 0.1, f names λ", vec![1.0], 0.1, true)?;
    warm("a thousand warm quadratics", "1000 θ and 1000 λ, τ = 1", curvatures(1000, 0.5, 1.0), 1.0, false)?;
    for (name, about, n, temperature) in [
        ("width of a bowl", "λ is the curvature, and acts through the variance alone; τ = 0.5", 1, 0.5),
        ("ten widths", "ten curvatures, τ = 1", 10, 1.0),
    ] {
        let facts = Facts::gibbs(temperature, 0.005, 2.3);
        all.push(TruthProblem::new(name, about, widths(n)?, widths_truth(n, temperature), facts));
    }
    Ok(all)
}
