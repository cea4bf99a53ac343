//! Problems that use the evidence: Bayesian linear regression in closed form, and one and two dimensions by quadrature.

use super::dense::{Matrix, dot, gram, rows, solve, times, transposed_times};
use super::quadrature::mean_slope;
use super::{TruthProblem, normals};
use bilevel::methods::claims::{Facts, Target};
use bilevel::{Array, Leaf, Problem, Result, Scope, Tensor, Variable};
use bilevel_graph::nn::{gaussian_prior, laplace_prior, softplus};

/// Bayesian linear regression with n rows, d weights with a precision e^λⱼ each, and noise of precision β = e^λ_d:
///
///   L_T = ½·β·‖Xθ − y‖² − ½·n·ln β + Σⱼ −ln N(θⱼ; 0, e^−λⱼ)
pub(super) struct Regression {
    pub x: Matrix,
    pub y: Vec<f64>,
    /// d precisions of weights and one of the noise, as logarithms.
    pub lambda: Vec<f64>,
}

impl Regression {
    /// Rows of unit length on average, and targets that half of the weights explain.
    pub fn new(d: usize, n: usize) -> Self {
        let mut x = rows(&normals(40 + d as u32, n * d), d);
        x.iter_mut().flatten().for_each(|v| *v /= (d as f64).sqrt());
        let weights: Vec<f64> =
            normals(41, d).iter().enumerate().map(|(j, w)| if j % 2 == 0 { *w } else { 0.0 }).collect();
        let y = times(&x, &weights).iter().zip(normals(42, n)).map(|(z, e)| z + 0.5 * e).collect();
        let lambda = (0..d).map(|j| 0.3 * (j % 5) as f64 - 0.4).chain([0.8]).collect();
        Regression { x, y, lambda }
    }

    /// A = β·XᵀX + diag(e^λ).
    fn precision(&self) -> Matrix {
        let (beta, d) = (self.lambda[self.lambda.len() - 1].exp(), self.lambda.len() - 1);
        let mut a = gram(&self.x);
        for (j, row) in a.iter_mut().enumerate().take(d) {
            row.iter_mut().for_each(|v| *v *= beta);
            row[j] += self.lambda[j].exp();
        }
        a
    }

    /// The derivative of −log evidence, with m = β·A⁻¹·Xᵀy and S = A⁻¹:
    ///
    ///   by λⱼ: ½·e^λⱼ·(mⱼ² + Sⱼⱼ) − ½,   by λ_d: ½·β·(‖Xm − y‖² + tr(X·S·Xᵀ)) − ½·n
    pub fn slope(&self) -> Vec<f64> {
        let (d, n) = (self.lambda.len() - 1, self.y.len());
        let (a, beta) = (self.precision(), self.lambda[d].exp());
        let pull: Vec<f64> = transposed_times(&self.x, &self.y).iter().map(|v| beta * v).collect();
        let m = solve(a.clone(), pull);
        let column = |j: usize| solve(a.clone(), (0..d).map(|i| if i == j { 1.0 } else { 0.0 }).collect());
        let s: Matrix = (0..d).map(column).collect();
        let off: Vec<f64> = times(&self.x, &m).iter().zip(&self.y).map(|(z, y)| z - y).collect();
        let trace: f64 = self.x.iter().map(|row| dot(row, &times(&s, row))).sum();
        let mut slope: Vec<f64> = (0..d).map(|j| 0.5 * self.lambda[j].exp() * (m[j] * m[j] + s[j][j]) - 0.5).collect();
        slope.push(0.5 * beta * (dot(&off, &off) + trace) - 0.5 * n as f64);
        slope
    }

    /// The log evidence itself, but for −½·n·ln 2π:
    ///
    ///   ½·Σ λⱼ + ½·n·ln β − ½·ln det A − ½·β·‖y‖² + ½·mᵀ·A·m
    #[cfg(test)]
    pub fn log_evidence(&self) -> f64 {
        let (d, n) = (self.lambda.len() - 1, self.y.len() as f64);
        let (a, beta) = (self.precision(), self.lambda[d].exp());
        let pull: Vec<f64> = transposed_times(&self.x, &self.y).iter().map(|v| beta * v).collect();
        let fit = dot(&pull, &solve(a.clone(), pull.clone()));
        let prior: f64 = self.lambda[..d].iter().sum();
        0.5 * (prior + n * self.lambda[d] - log_determinant(a) - beta * dot(&self.y, &self.y) + fit)
    }

    /// The problem: as a sum at the temperature 1, or as a mean over rows at the temperature 1/n.
    fn problem(&self, mean: bool) -> Result<Problem> {
        let (d, n) = (self.lambda.len() - 1, self.y.len());
        let lambda = Variable::fixed(Array::from_f64([d + 1, 1], self.lambda.clone())?);
        let share = if mean { 1.0 / n as f64 } else { 1.0 };
        Ok(Problem::builder(Leaf(lambda), Leaf(Variable::constant([d, 1], 0.0)))
            .data("x", Array::from_f64([n, d], self.x.concat())?)
            .data("y", Array::from_f64([n, 1], self.y.clone())?)
            .inner(move |s, l, t| {
                let (precisions, noise) = (l.0.slice(0, 0, d).exp(), l.0.slice(0, d, d + 1).sum_all());
                let fit = (s.data("x").matmul(t.0) - s.data("y")).square().sum_all() * noise.exp() * 0.5;
                (fit - noise * (0.5 * n as f64) + gaussian_prior(t.0, precisions)) * share
            })
            .evidence()
            .build()?
            .erase())
    }

    fn truth_problem(name: &str, about: &'static str, (d, n, mean): (usize, usize, bool)) -> Result<TruthProblem> {
        let regression = Regression::new(d, n);
        let share = if mean { 1.0 / n as f64 } else { 1.0 };
        let truth = regression.slope().iter().map(|v| v * share).collect();
        // Rows have unit length, so the largest eigenvalue of XᵀX is near (√(n/d) + 1)².
        let beta = regression.lambda[d].exp();
        let largest = share * (beta * ((n as f64 / d as f64).sqrt() + 1.0).powi(2) + 3.0);
        let facts = facts(share, 0.5 / largest, largest);
        Ok(TruthProblem::new(name, about, regression.problem(mean)?, truth, facts))
    }
}

#[cfg(test)]
fn log_determinant(mut a: Matrix) -> f64 {
    let mut sum = 0.0;
    for k in 0..a.len() {
        sum += a[k][k].ln();
        let (top, below) = a.split_at_mut(k + 1);
        for row in below {
            let factor = row[k] / top[k][k];
            row.iter_mut().zip(&top[k]).for_each(|(x, p)| *x -= factor * p);
        }
    }
    sum
}

fn facts(temperature: f64, step: f64, largest: f64) -> Facts {
    Facts { target: Target::Evidence { temperature }, ..Facts::gibbs(temperature, step, largest) }
}

type Energy = fn(&Scope, Tensor, Tensor) -> Tensor;

fn by_quadrature(
    name: &str,
    about: &'static str,
    (lambda, dimension): (&[f64], usize),
    energy: Energy,
    facts: Facts,
) -> Result<TruthProblem> {
    let variable = Variable::fixed(Array::from_f64([lambda.len()], lambda.to_vec())?);
    let problem = Problem::builder(Leaf(variable), Leaf(Variable::constant([dimension], 0.2)))
        .inner(move |s, l, t| energy(s, l.0, t.0))
        .evidence()
        .build()?
        .erase();
    let Target::Evidence { temperature } = facts.target else {
        return Err(bilevel::Error::other("a quadrature needs a temperature"));
    };
    let truth = mean_slope(&problem, temperature)?;
    Ok(TruthProblem::new(name, about, problem, truth, facts))
}

fn first(x: Tensor) -> Tensor {
    x.index(0, 0)
}

fn second(x: Tensor) -> Tensor {
    x.index(0, 1)
}

pub(super) fn problems() -> Result<Vec<TruthProblem>> {
    Ok(vec![
        Regression::truth_problem("evidence, one weight", "Bayesian linear regression, 20 rows", (1, 20, false))?,
        Regression::truth_problem("evidence, ten weights", "the same with 40 rows", (10, 40, false))?,
        Regression::truth_problem("evidence, a mean over rows", "the same as a mean, at τ = 1/40", (10, 40, true))?,
        Regression::truth_problem("evidence, a hundred weights", "101 λ, 150 rows", (100, 150, false))?,
        by_quadrature(
            "evidence, logistic",
            "one weight, three rows, a Gaussian prior that is too wide",
            (&[-1.5], 1),
            |_, l, t| {
                let rows = softplus(-(t * 2.0)) + softplus(-t) + softplus(t * 0.5);
                rows.sum_all() + gaussian_prior(t, l.exp())
            },
            facts(1.0, 0.05, 3.0),
        )?,
        by_quadrature(
            "evidence, Laplace prior",
            "two weights that a row couples, one rate for both",
            (&[0.2], 2),
            |_, l, t| (first(t) + second(t) - 1.0).square() * 0.5 + laplace_prior(t, l.exp().sum_all()),
            facts(1.0, 0.02, 2.0),
        )?,
        by_quadrature(
            "evidence, two wells",
            "λ in the prior and in the model, and a chain that crosses between two wells",
            (&[0.3, 0.5], 1),
            |_, l, t| {
                let fit = ((t.square() - 1.0).square() - second(l) * t).sum_all();
                fit + gaussian_prior(t, first(l).exp())
            },
            Facts { several_minima: true, ..facts(1.0, 0.01, 10.0) }.with_steps(20_000),
        )?,
    ])
}

#[cfg(test)]
mod tests {
    use super::Regression;

    #[test]
    fn the_slope_is_that_of_the_log_evidence() {
        for (d, n) in [(1, 20), (10, 40), (100, 150)] {
            let regression = Regression::new(d, n);
            for (j, slope) in regression.slope().into_iter().enumerate().step_by(if d > 10 { 7 } else { 1 }) {
                let at = |by: f64| {
                    let mut lambda = regression.lambda.clone();
                    lambda[j] += by;
                    Regression { lambda, x: regression.x.clone(), y: regression.y.clone() }.log_evidence()
                };
                // Five points: the error is O(h⁴).
                let h = 1e-2;
                let difference = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
                assert!(
                    (slope + difference).abs() < 1e-7 * (1.0 + slope.abs()),
                    "{d} weights, λ {j}: {slope}, {difference}"
                );
            }
        }
    }
}
