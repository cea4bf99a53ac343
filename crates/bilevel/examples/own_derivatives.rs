//! A simulator with derivatives written by hand: a heated rod, whose material is found from temperatures measured along it.
//!
//! θ are the temperatures of the rod's cells, λ the logarithms of the conductivities of its two halves. The rod settles
//! at its least energy: L(λ, θ) = ½·Σⱼ e^λ(j)·(θⱼ₊₁ − θⱼ)² − ⟨heat, θ⟩, with both ends held at 0. The measurements are
//! y: f = ½·‖θ − y‖².
//!
//!     cargo run --release -p bilevel --example own_derivatives

use bilevel::Result;
use bilevel::oracle::{BilevelOracle, Oracle, OraclePoint, OracleResult};
use bilevel::prelude::*;

const CELLS: usize = 8;

/// The rod, heated evenly.
struct Rod {
    measured: Vec<f64>,
}

/// The conductivity of the link before cell `j`, and the number of its half.
fn link(lambda: &[f64], j: usize) -> (f64, usize) {
    let half = usize::from(j > CELLS / 2);
    (lambda[half].exp(), half)
}

/// The difference of a vector across the link before cell `j`; both ends are 0.
fn across(x: &[f64], j: usize) -> f64 {
    let at = |i: usize| x.get(i).copied().unwrap_or(0.0);
    at(j) - if j == 0 { 0.0 } else { at(j - 1) }
}

/// K(λ)·x, with the stiffness matrix K of the rod.
fn stiffness(lambda: &[f64], x: &[f64], product: &mut [f64]) {
    product.fill(0.0);
    for j in 0..=CELLS {
        let flow = link(lambda, j).0 * across(x, j);
        if j < CELLS {
            product[j] += flow;
        }
        if j > 0 {
            product[j - 1] -= flow;
        }
    }
}

impl BilevelOracle for Rod {
    fn sizes(&self) -> (usize, usize) {
        (2, CELLS)
    }

    fn inner_gradient(&self, at: &OraclePoint, gradient: &mut [f64]) -> OracleResult {
        stiffness(at.lambda, at.theta, gradient);
        gradient.iter_mut().for_each(|g| *g -= 1.0);
        Ok(())
    }

    fn hessian_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        stiffness(at.lambda, v, product);
        Ok(())
    }

    fn mixed_product(&self, at: &OraclePoint, v: &[f64], product: &mut [f64]) -> OracleResult {
        product.fill(0.0);
        for j in 0..=CELLS {
            let (conductivity, half) = link(at.lambda, j);
            product[half] += conductivity * across(v, j) * across(at.theta, j);
        }
        Ok(())
    }

    fn outer(&self, at: &OraclePoint, by_lambda: &mut [f64], by_theta: &mut [f64]) -> OracleResult<f64> {
        by_lambda.fill(0.0);
        (0..CELLS).for_each(|i| by_theta[i] = at.theta[i] - self.measured[i]);
        Ok(0.5 * by_theta.iter().map(|d| d * d).sum::<f64>())
    }
}

/// The temperatures of a rod of these conductivities, by relaxation.
fn settled(lambda: &[f64]) -> Vec<f64> {
    let (mut theta, mut pull) = (vec![0.0; CELLS], vec![0.0; CELLS]);
    for _ in 0..20_000 {
        stiffness(lambda, &theta, &mut pull);
        theta.iter_mut().zip(&pull).for_each(|(t, pull)| *t += 0.05 * (1.0 - pull));
    }
    theta
}

fn main() -> Result<()> {
    let truth = [0.7, -0.4];
    let oracle = Oracle::new(Rod { measured: settled(&truth) });
    let report = oracle.check(&[0.2, -0.1], &[0.3; CELLS], 0)?;
    println!("products against differences:\n{report}");
    assert!(report.largest() < 1e-8);

    let problem = oracle.problem(Variable::constant([2], 0.0), Variable::constant([CELLS], 0.0))?;
    let (method, inner) = (IftCg { iterations: CELLS, ..IftCg::default() }, InnerLoop::new(0.2, 200));
    let found =
        Driver::new(&problem, method).inner(inner).optimizer(Adam::default()).rate(0.02).iterations(500).run()?;
    let lambda = found.lambda.0.to_f64();
    println!(
        "conductivities: e^{:.3} and e^{:.3}; the truth is e^{} and e^{}",
        lambda[0], lambda[1], truth[0], truth[1]
    );
    assert!(lambda.iter().zip(truth).all(|(found, truth)| (found - truth).abs() < 0.01));
    Ok(())
}
