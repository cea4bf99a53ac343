//! Truth at finite temperature in one and two dimensions, by sums over a grid:
//!
//!   dF/dλ = E\[f_λ\] − Cov(f, ∂L_T/∂λ)/τ,   E\[·\] under exp(−L_T/τ)
//!
//! and dF/dλ = E\[∂L_T/∂λ\] for the evidence, F = −τ·log ∫ exp(−L_T/τ) dθ.
//!
//! On smooth functions that fall off at the edges the trapezoid rule converges faster than any power of the spacing.

use bilevel::programs::{Routine, Trace, or_zeros};
use bilevel::{Cpu, Key, Problem, Result, Session};
use bilevel_graph::{Array, Graph, Program, gradient};

/// The grid runs from −`REACH` to `REACH` along each number of θ.
const REACH: f64 = 6.0;

/// Sums over the grid, weighted by exp(−L_T/τ); those of vectors by every number of λ.
struct Sums {
    mass: f64,
    f: f64,
    /// The sum of ∂L_T/∂λ.
    score: Vec<f64>,
    /// The sum of f·∂L_T/∂λ.
    product: Vec<f64>,
    /// The sum of f_λ.
    straight: Vec<f64>,
}

/// The derivative of E\[f\] by every number of λ, for a θ of one leaf with one or two numbers.
pub(super) fn quadrature(problem: &Problem, temperature: f64) -> Result<Vec<f64>> {
    let Sums { mass, f, score, product, straight } = sums(problem, temperature)?;
    let one = |i: usize| {
        let covariance = product[i] / mass - f / mass * (score[i] / mass);
        straight[i] / mass - covariance / temperature
    };
    Ok((0..score.len()).map(one).collect())
}

/// E\[∂L_T/∂λ\], the derivative of −τ·log ∫ exp(−L_T/τ) dθ, for the same θ.
pub(super) fn mean_slope(problem: &Problem, temperature: f64) -> Result<Vec<f64>> {
    let Sums { mass, score, .. } = sums(problem, temperature)?;
    Ok(score.into_iter().map(|sum| sum / mass).collect())
}

fn sums(problem: &Problem, temperature: f64) -> Result<Sums> {
    let session = Session::new(problem, &Cpu::with_threads(1))?;
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (inner, outer) = (trace.inner(&trace.theta, graph.step())?, trace.outer(&trace.theta, graph.step())?);
    let pull = or_zeros(gradient(inner, &trace.lambda)?, &trace.lambda);
    let direct = or_zeros(gradient(outer, &trace.lambda)?, &trace.lambda);
    let mut builder = Program::builder(&graph).output("inner", inner).output("outer", outer);
    for (i, (pull, direct)) in pull.into_iter().zip(direct).enumerate() {
        builder = builder.output(format!("pull.{i}"), pull).output(format!("direct.{i}"), direct);
    }
    let mut at = Routine::new(&builder.build()?, &session)?;
    let state = session.state(Key::from_seed(0))?;
    at.bind_point(&state.lambda, &state.theta, Key::from_seed(0))?;
    let (pull, direct) = (at.outputs("pull")?, at.outputs("direct")?);
    let dimension = state.theta[0].len();
    let points: i32 = if dimension == 1 { 2001 } else { 241 };
    let place = |i: i32| REACH * (2 * i - points + 1) as f64 / (points - 1) as f64;
    let numbers = pull.numbers()?.len();
    let (mut mass, mut f) = (0.0, 0.0);
    let [mut score, mut product, mut straight] = [vec![0.0; numbers], vec![0.0; numbers], vec![0.0; numbers]];
    for cell in 0..points.pow(dimension as u32) {
        let theta = [place(cell % points), place(cell / points)];
        state.theta[0].write(&Array::from_values(state.theta[0].shape(), &theta[..dimension], problem.dtype())?)?;
        at.run(0..1)?;
        let weight = (-at.number("inner")? / temperature).exp();
        if weight < 1e-40 {
            continue;
        }
        let value = at.number("outer")?;
        mass += weight;
        f += weight * value;
        for (i, (pull, direct)) in pull.numbers()?.into_iter().zip(direct.numbers()?).enumerate() {
            score[i] += weight * pull;
            product[i] += weight * value * pull;
            straight[i] += weight * direct;
        }
    }
    Ok(Sums { mass, f, score, product, straight })
}
