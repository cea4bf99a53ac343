//! Finite temperature: the Langevin adjoint against quadrature of dF/dλ = E[f_λ] − Cov(f, ∂L_T/∂λ)/τ, and the paper's
//! recursion beside it.

use crate::with::{Usual, With};
use bilevel::methods::{HpoSgld, LangevinAdjoint};
use bilevel::{Array, Cpu, InnerLoop, Key, Leaf, Method, Problem, State, Variable};

/// A problem with one or two θ, again as plain functions of (λ, θ) for quadrature.
struct Case {
    problem: Problem,
    inner: fn(&[f64], &[f64]) -> f64,
    outer: fn(&[f64], &[f64]) -> f64,
    lambda: Vec<f64>,
    dimension: usize,
    temperature: f64,
}

impl Case {
    /// Calls back with every θ of a trapezoid grid.
    fn grid(&self, mut visit: impl FnMut(&[f64])) {
        let (reach, points) = (6.0, if self.dimension == 1 { 20_001 } else { 601 });
        let at = |i: usize| -reach + 2.0 * reach * i as f64 / (points - 1) as f64;
        for i in 0..points {
            if self.dimension == 1 {
                visit(&[at(i)]);
            } else {
                (0..points).for_each(|j| visit(&[at(i), at(j)]));
            }
        }
    }

    fn moved(&self, j: usize, by: f64) -> Vec<f64> {
        let mut lambda = self.lambda.clone();
        lambda[j] += by;
        lambda
    }

    /// ∂/∂λ_j of a function at a point, by central differences: good to ten digits for the polynomials here.
    fn slope(&self, of: fn(&[f64], &[f64]) -> f64, ahead: &[f64], behind: &[f64], theta: &[f64]) -> f64 {
        (of(ahead, theta) - of(behind, theta)) / 2e-4
    }

    /// The exact derivative by λ_j.
    fn truth(&self, j: usize) -> f64 {
        let (ahead, behind) = (self.moved(j, 1e-4), self.moved(j, -1e-4));
        let [mut mass, mut f, mut score, mut product, mut direct] = [0.0; 5];
        self.grid(|theta| {
            let weight = (-(self.inner)(&self.lambda, theta) / self.temperature).exp();
            let value = (self.outer)(&self.lambda, theta);
            let pull = self.slope(self.inner, &ahead, &behind, theta);
            mass += weight;
            f += weight * value;
            score += weight * pull;
            product += weight * value * pull;
            direct += weight * self.slope(self.outer, &ahead, &behind, theta);
        });
        let covariance = product / mass - f / mass * (score / mass);
        direct / mass - covariance / self.temperature
    }

    /// E[f] at another λ.
    fn mean(&self, lambda: &[f64]) -> f64 {
        let (mut mass, mut f) = (0.0, 0.0);
        self.grid(|theta| {
            let weight = (-(self.inner)(lambda, theta) / self.temperature).exp();
            mass += weight;
            f += weight * (self.outer)(lambda, theta);
        });
        f / mass
    }

    /// Mean and standard error over independent chains, by every number of λ; the first `warm_up` calls of a chain warm it
    /// and are left out, the next `calls` are averaged.
    fn estimate(&self, method: &dyn Method, chains: u32, (warm_up, calls): (u32, u32)) -> Vec<(f64, f64)> {
        let mut estimator = method.prepared_on(&self.problem, &Cpu::with_threads(1)).unwrap();
        let means: Vec<Vec<f64>> = (0..chains)
            .map(|chain| {
                let key = Key::from_seed(7).fold_in(chain);
                let mut state = State::initial(&self.problem, &Cpu::with_threads(1), key).unwrap();
                let mut mean = vec![0.0; self.lambda.len()];
                for call in 0..warm_up + calls {
                    let h = estimator.estimate(&mut state, key.fold_in(call)).unwrap();
                    if call >= warm_up {
                        let value = h.value.numbers().unwrap();
                        mean.iter_mut().zip(value).for_each(|(m, v)| *m += v / calls as f64);
                    }
                }
                mean
            })
            .collect();
        let n = chains as f64;
        let one = |j: usize| {
            let mean = means.iter().map(|m| m[j]).sum::<f64>() / n;
            let variance = means.iter().map(|m| (m[j] - mean).powi(2)).sum::<f64>() / (n - 1.0);
            (mean, (variance / n).sqrt())
        };
        (0..self.lambda.len()).map(one).collect()
    }
}

/// Checks the adjoint of `samples` steps in each of 40 chains, and that the paper's recursion is off by the share given.
fn compare(name: &str, case: &Case, step: f64, samples: usize, off: &[f64]) {
    let temperature = case.temperature;
    // Eleven calls a chain with θ and z warm between them; the first only warms them.
    let adjoint = With(LangevinAdjoint::default(), InnerLoop::new(step, samples / 10).at_temperature(temperature));
    let adjoint_found = case.estimate(&adjoint, 40, (1, 10));
    let paper = With(HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::default().at_temperature(temperature) });
    let paper_found = case.estimate(&paper, 40, (10, 200));
    for j in 0..case.lambda.len() {
        let truth = case.truth(j);
        let differences = (case.mean(&case.moved(j, 1e-4)) - case.mean(&case.moved(j, -1e-4))) / 2e-4;
        assert!((truth - differences).abs() < 1e-6 * truth.abs(), "quadrature: {truth} and {differences}");
        let ((mean, error), (paper, paper_error)) = (adjoint_found[j], paper_found[j]);
        let line = format!(
            "{name} λ_{j}, τ = {temperature}: truth {truth:.5}, adjoint {mean:.5} ± {error:.5} ({:+.2} errors), paper \
             {paper:.4} ± {paper_error:.4}",
            (mean - truth) / error
        );
        println!("{line}");
        assert!((mean - truth).abs() < 3.0 * error, "{line}");
        assert!(error < 0.01 * truth.abs(), "{line}");
        assert!((paper - truth).abs() > off[j] * truth.abs() + 4.0 * paper_error, "{line}");
    }
}

fn variables(lambda: &[f64], dimension: usize) -> (Leaf<Variable>, Leaf<Variable>) {
    let lambda = Array::from_f64([lambda.len()], lambda.to_vec()).unwrap();
    (Leaf(Variable::fixed(lambda)), Leaf(Variable::constant([dimension], 0.2)))
}

#[test]
fn the_adjoint_is_right_in_a_quartic_well() {
    let lambda = vec![1.0];
    let (l, t) = variables(&lambda, 1);
    let problem = Problem::builder(l, t)
        .inner(|_, l, t| {
            let (l, t) = (l.0.index(0, 0), t.0.index(0, 0));
            t.square().square() / 4.0 + l * t.square() / 2.0 - t
        })
        .outer(|_, l, t| (t.0.index(0, 0) - 2.0).square() + l.0.index(0, 0) * t.0.index(0, 0) / 2.0)
        .build()
        .unwrap();
    let case = Case {
        problem: problem.erase(),
        inner: |l, t| t[0].powi(4) / 4.0 + l[0] * t[0].powi(2) / 2.0 - t[0],
        outer: |l, t| (t[0] - 2.0).powi(2) + l[0] * t[0] / 2.0,
        lambda,
        dimension: 1,
        temperature: 0.5,
    };
    compare("quartic well", &case, 0.01, 100_000, &[0.1]);
}

#[test]
fn the_adjoint_is_right_in_a_rippled_bowl_with_two_hyperparameters() {
    let lambda = vec![0.3, 1.5];
    let (l, t) = variables(&lambda, 1);
    let problem = Problem::builder(l, t)
        .inner(|_, l, t| {
            let (a, b, t) = (l.0.index(0, 0), l.0.index(0, 1), t.0.index(0, 0));
            b * t.square() / 2.0 + a * (t * 2.0).cos() - t
        })
        .outer(|_, _, t| t.0.index(0, 0).square())
        .build()
        .unwrap();
    let case = Case {
        problem: problem.erase(),
        inner: |l, t| l[1] * t[0].powi(2) / 2.0 + l[0] * (2.0 * t[0]).cos() - t[0],
        outer: |_, t| t[0].powi(2),
        lambda,
        dimension: 1,
        temperature: 0.3,
    };
    compare("rippled bowl", &case, 0.01, 100_000, &[0.1, 0.1]);
}

#[test]
fn the_adjoint_is_right_in_a_coupled_plane() {
    let lambda = vec![0.6];
    let (l, t) = variables(&lambda, 2);
    let problem = Problem::builder(l, t)
        .inner(|_, l, t| {
            let (l, x, y) = (l.0.index(0, 0), t.0.index(0, 0), t.0.index(0, 1));
            x.square().square() / 4.0 + (x.square() + y.square()) / 2.0 + l * x * y - x + y * l.square()
        })
        .outer(|_, l, t| {
            let (l, x, y) = (l.0.index(0, 0), t.0.index(0, 0), t.0.index(0, 1));
            (x - y).square() + l * y
        })
        .build()
        .unwrap();
    let case = Case {
        problem: problem.erase(),
        inner: |l, t| {
            let (l, x, y) = (l[0], t[0], t[1]);
            x.powi(4) / 4.0 + (x * x + y * y) / 2.0 + l * x * y - x + y * l * l
        },
        outer: |l, t| (t[0] - t[1]).powi(2) + l[0] * t[1],
        lambda,
        dimension: 2,
        temperature: 0.3,
    };
    compare("coupled plane", &case, 0.01, 100_000, &[0.1]);
}

#[test]
fn the_adjoint_is_right_in_a_double_well() {
    // Wells near x = 1.12 and x = −0.79 with a top between them at −0.34, which the chain keeps crossing. The O(γ) bias is
    // half a percent at γ = 0.01, so the step is halved.
    let lambda = vec![0.3];
    let (l, t) = variables(&lambda, 2);
    let problem = Problem::builder(l, t)
        .inner(|_, l, t| {
            let (l, x, y) = (l.0.index(0, 0), t.0.index(0, 0), t.0.index(0, 1));
            (x.square() - 1.0).square() / 4.0 - l * x + (y - x).square() / 2.0
        })
        .outer(|_, _, t| t.0.index(0, 0).square() * t.0.index(0, 1))
        .build()
        .unwrap();
    let case = Case {
        problem: problem.erase(),
        inner: |l, t| {
            let (x, y) = (t[0], t[1]);
            (x * x - 1.0).powi(2) / 4.0 - l[0] * x + (y - x).powi(2) / 2.0
        },
        outer: |_, t| t[0] * t[0] * t[1],
        lambda,
        dimension: 2,
        temperature: 0.5,
    };
    compare("double well", &case, 0.005, 500_000, &[0.1]);
}
