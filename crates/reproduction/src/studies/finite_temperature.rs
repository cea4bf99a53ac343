//! Hypergradients at finite temperature: derivatives of E\[f\] under p ∝ exp(−L_T/τ).
//!
//!   truth    E\[f_λ\] − Cov(f, ∂L_T/∂λ)/τ by quadrature on a grid
//!   adjoint  the Langevin adjoint along one long chain
//!   implicit f_λ − f_θ·H⁻¹·C averaged over samples of the chain, the aim of implicit methods
//!   paper's  the recursion of HPO-SGLD with B = M = 50
//!
//! Three problems: a quartic in one dimension, a coupled quartic in two, and a double well in two. The losses are ours.

use bilevel::methods::{Covariance, HpoSgld, IftCg, LangevinAdjoint};
use bilevel::{Error, InnerLoop, Key, Leaf, Method, Problem, Result, Session, Tensor, Variable};
use bilevel_run::statistics::mean_sd;
use bilevel_run::{Findings, Finished, Item, Measure, Place, Plan, Recipe, Row, Study, Verdict, label};
use serde::{Deserialize, Serialize};

const NAME: &str = "finite-temperature";
const STEP: f64 = 0.01;

/// A problem as tensors and as functions of numbers: L_T, ∂L_T/∂λ, f and f_λ.
struct Case {
    name: &'static str,
    problem: fn() -> Result<Problem>,
    lambda: f64,
    temperature: f64,
    dimensions: usize,
    inner: fn(f64, f64, f64) -> [f64; 2],
    outer: fn(f64, f64, f64) -> [f64; 2],
}

fn scalar(value: f64) -> Leaf<Variable> {
    Leaf(Variable::constant([], value))
}

fn build(
    lambda: f64,
    inner: fn(Tensor, Tensor, Tensor) -> Tensor,
    outer: fn(Tensor, Tensor, Tensor) -> Tensor,
) -> Result<Problem> {
    Problem::builder(scalar(lambda), (scalar(0.1), scalar(0.1)))
        .inner(move |_, l, t| inner(l.0, t.0.0, t.1.0))
        .outer(move |_, l, t| outer(l.0, t.0.0, t.1.0))
        .build()
        .map(Problem::erase)
}

fn line() -> Result<Problem> {
    Problem::builder(scalar(0.5), scalar(0.1))
        .inner(|_, l, t| {
            let x = t.0;
            x.square().square() / 4.0 + x.square() / 2.0 - l.0 * x
        })
        .outer(|_, l, t| (t.0 - 1.0).square() + l.0.square() * 0.1)
        .build()
        .map(Problem::erase)
}

fn cases() -> [Case; 3] {
    [
        Case {
            name: "1-D quartic, τ = 0.5",
            problem: line,
            lambda: 0.5,
            temperature: 0.5,
            dimensions: 1,
            inner: |l, x, _| [x.powi(4) / 4.0 + x * x / 2.0 - l * x, -x],
            outer: |l, x, _| [(x - 1.0).powi(2) + 0.1 * l * l, 0.2 * l],
        },
        Case {
            name: "2-D quartic, τ = 0.3",
            problem: || {
                build(
                    0.5,
                    |l, x, y| {
                        let quartic = (x.square().square() + y.square().square() + x.square() + y.square()) / 4.0;
                        quartic + (x - y).square() / 2.0 - l * x
                    },
                    |l, x, y| (x + y * 2.0 - 0.3).square() / 2.0 + l * y,
                )
            },
            lambda: 0.5,
            temperature: 0.3,
            dimensions: 2,
            inner: |l, x, y| [(x.powi(4) + y.powi(4) + x * x + y * y) / 4.0 + (x - y).powi(2) / 2.0 - l * x, -x],
            outer: |l, x, y| [(x + 2.0 * y - 0.3).powi(2) / 2.0 + l * y, y],
        },
        Case {
            name: "2-D double well, τ = 0.3",
            problem: || {
                build(
                    0.1,
                    |l, x, y| (x.square() - 0.5).square() / 4.0 + (y - x).square() / 2.0 - l * (x + y),
                    |l, x, y| (x - 1.0).square() / 2.0 - y * 0.3 + l.square() / 2.0,
                )
            },
            lambda: 0.1,
            temperature: 0.3,
            dimensions: 2,
            inner: |l, x, y| [(x * x - 0.5).powi(2) / 4.0 + (y - x).powi(2) / 2.0 - l * (x + y), -(x + y)],
            outer: |l, x, y| [(x - 1.0).powi(2) / 2.0 - 0.3 * y + l * l / 2.0, l],
        },
    ]
}

/// E\[f_λ\] − Cov(f, ∂L_T/∂λ)/τ by sums over a grid wide enough that p is 0 at its ends.
fn truth(case: &Case) -> f64 {
    const POINTS: usize = 801;
    let at = |i: usize| -6.0 + 12.0 * i as f64 / (POINTS - 1) as f64;
    let columns = if case.dimensions == 1 { 1 } else { POINTS };
    let (mut mass, mut direct, mut f, mut slope, mut both) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for i in 0..POINTS {
        for j in 0..columns {
            let [energy, by_lambda] = (case.inner)(case.lambda, at(i), at(j));
            let [value, partial] = (case.outer)(case.lambda, at(i), at(j));
            let weight = (-energy / case.temperature).exp();
            mass += weight;
            direct += weight * partial;
            f += weight * value;
            slope += weight * by_lambda;
            both += weight * value * by_lambda;
        }
    }
    direct / mass - (both / mass - f / mass * slope / mass) / case.temperature
}

/// Hypergradients in a row along chains of one case, λ fixed and θ warm.
#[derive(Serialize)]
struct Chains {
    case: usize,
    method: Recipe,
    first: u64,
    chains: u64,
    /// Hypergradients that are passed over at the beginning of a chain, and those that are averaged.
    skip: u32,
    count: u32,
}

/// The mean of each chain that arrived, and how many did not.
#[derive(Serialize, Deserialize)]
struct Means {
    means: Vec<f64>,
    diverged: u32,
}

impl Measure for Chains {
    type Found = Means;

    fn take(&self, place: &Place) -> Result<Means> {
        let case = &cases()[self.case];
        let problem = (case.problem)()?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let Recipe { method, inner } = &self.method;
        let mut estimator = place.registry.read_method(method)?.prepare_in(&session, inner)?;
        let (mut means, mut diverged) = (vec![], 0);
        'chains: for chain in 0..self.chains {
            let key = Key::from_seed(100 + self.first + chain);
            let mut state = session.state(key)?;
            let mut sum = 0.0;
            for i in 0..self.skip + self.count {
                match estimator.estimate(&mut state, key.fold_in(i)) {
                    Ok(h) if i >= self.skip => sum += h.value[0].item()?,
                    Ok(_) => {}
                    Err(Error::Diverged { .. }) => {
                        diverged += 1;
                        continue 'chains;
                    }
                    Err(other) => return Err(other),
                }
            }
            means.push(sum / f64::from(self.count));
            (place.progress)((chain + 1) as f64 / self.chains as f64);
        }
        Ok(Means { means, diverged })
    }
}

const ADJOINT: &str = "Langevin adjoint";
const SOLVE: &str = "averaged implicit solve";
const RECURSION: &str = "HPO-SGLD, T = 100";
const METHODS: [&str; 4] = [ADJOINT, SOLVE, RECURSION, "covariance"];

/// A method at a temperature, with the hypergradients of a chain that are passed over and averaged.
fn method(name: &str, temperature: f64, plan: &Plan) -> (Recipe, u32, u32) {
    // Hypergradients along each chain: of 5000 steps, of 50 and of 100; and how long those of the covariance are.
    let (long, solves, short) = plan.choose((40, 500, 300), (400, 60_000, 15_000));
    let samples = plan.choose(100_000, 500_000);
    match name {
        ADJOINT => {
            let adjoint = (LangevinAdjoint::default(), InnerLoop::new(STEP, 5000).at_temperature(temperature));
            (adjoint.into(), 2, long)
        }
        SOLVE => {
            let solve = (
                IftCg { regularisation: 0.0, iterations: 2, ..IftCg::default() },
                InnerLoop::new(STEP, 50).at_temperature(temperature),
            );
            (solve.into(), 20, solves)
        }
        RECURSION => (
            (HpoSgld::default(), InnerLoop { burn_in: 50, ..InnerLoop::new(STEP, 100).at_temperature(temperature) })
                .into(),
            10,
            short,
        ),
        _ => {
            // Long, because a covariance about the mean of a short correlated chain is too small.
            let score = (
                Covariance::default(),
                InnerLoop { burn_in: 5000, ..InnerLoop::new(STEP, 5000 + samples).at_temperature(temperature) },
            );
            (score.into(), 0, long * 5000 / samples as u32)
        }
    }
}

fn item_label(method: &str, case: &Case) -> String {
    label(&format!("{method} {}", case.name))
}

/// The study.
pub(super) struct FiniteTemperature;

impl Study for FiniteTemperature {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Beyond the paper: hypergradients at finite temperature"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let items = cases().into_iter().enumerate().flat_map(|(number, case)| {
            METHODS.map(|name| {
                let (method, skip, count) = method(name, case.temperature, plan);
                let chains = Chains { case: number, method, first: plan.seed, chains: 16, skip, count };
                Item::measure(item_label(name, &case), chains)
            })
        });
        Ok(items.collect())
    }

    fn findings(&self, _: &Plan, done: &Finished) -> Result<Findings> {
        let mut rows = vec![];
        for case in cases() {
            let exact = truth(&case);
            let row =
                |method: &str, metric, ours| Row::new(NAME, method, metric, ours).setting(case.name).reference(exact);
            rows.push(row("quadrature", "dF/dλ", exact).verdict(Verdict::Reproduced));
            for name in METHODS {
                let Means { means, diverged } = done.measured(&item_label(name, &case))?;
                let (mean, sd) = mean_sd(&means);
                let error = sd / (means.len() as f64).sqrt();
                let close = (mean - exact).abs() <= 3.0 * error + 0.5 * STEP * exact.abs();
                let off = format!("{:.0} standard errors from the truth", ((mean - exact) / error).abs());
                let sure = error < 0.1 * exact.abs();
                let verdict = match name {
                    SOLVE if !sure => {
                        let why = "H is singular somewhere along the chain, so the mean of H⁻¹ has no bounded spread";
                        Verdict::NotReproduced(why.into())
                    }
                    _ if close && !sure => Verdict::NotReproduced("the spread is too large to tell".into()),
                    SOLVE => Verdict::when(close, format!("H⁻¹ at samples is not dθ/dλ of the distribution: {off}")),
                    RECURSION => Verdict::when(close, format!("no contraction in the recursion: {off}")),
                    _ => Verdict::when(close, off),
                };
                rows.push(row(name, "dF/dλ", mean).over(sd, means.len() as u32).verdict(verdict));
                if diverged > 0 {
                    let why = "the Hessian at a sample is singular to rounding".to_string();
                    let row = Row::new(NAME, name, "chains diverged", diverged as f64).setting(case.name);
                    rows.push(row.verdict(Verdict::NotReproduced(why)));
                }
            }
        }
        Ok(Findings::new(rows, []))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadrature_agrees_with_differences_of_the_expectation() {
        for case in cases() {
            let expectation = |lambda: f64| {
                let at = |i: usize| -6.0 + 12.0 * i as f64 / 600.0;
                let columns = if case.dimensions == 1 { 1 } else { 601 };
                let (mut mass, mut sum) = (0.0, 0.0);
                for (i, j) in (0..601).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    let weight = (-(case.inner)(lambda, at(i), at(j))[0] / case.temperature).exp();
                    mass += weight;
                    sum += weight * (case.outer)(lambda, at(i), at(j))[0];
                }
                sum / mass
            };
            let difference = (expectation(case.lambda + 1e-4) - expectation(case.lambda - 1e-4)) / 2e-4;
            assert!((difference - truth(&case)).abs() < 1e-6, "{}: {difference} {}", case.name, truth(&case));
        }
    }
}
