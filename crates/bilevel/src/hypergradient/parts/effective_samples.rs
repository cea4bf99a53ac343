//! How many independent samples the f of a chain are worth, from three sums along it.
//!
//!   ESS = M·(1 − ρ)/(1 + ρ),   ρ the correlation of f at neighbouring steps
//!
//! Models f as a first-order autoregression, which costs a few scalar operations per step and no memory. f is centred
//! by an earlier value, so that a large f costs no digits.

use crate::hypergradient::vocabulary::*;
use bilevel_graph::ProgramBuilder;

/// Name of the numbers: the centre, which is given, and carried along the chain the last f − centre and the sums of it, its
/// square and its lagged product.
const GROUP: &str = "samples";

/// With fewer samples than this a correlation is meaningless.
const FEWEST: usize = 20;

/// Returns true if this many samples suffice for [`read`]; otherwise the sums need not be carried.
///
/// ```
/// use bilevel::parts::effective_samples::are_enough;
/// assert!(are_enough(20) && !are_enough(19));
/// ```
pub fn are_enough(kept: usize) -> bool {
    kept >= FEWEST
}

/// Carries the sums in a program whose f at this step is `outer`.
///
/// ```
/// use bilevel::graph::{Graph, Program};
/// use bilevel::parts::effective_samples;
/// use bilevel::programs::{Routine, Trace, or_zeros};
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// // A Langevin chain of a loss with curvature 1: neighbours are correlated by 1 − γ = 0.9.
/// let inner = InnerLoop::new(0.1, 10_000).at_temperature(1.0);
/// let graph = Graph::new();
/// let trace = Trace::new(&graph, &problem)?;
/// let loss = trace.inner(&trace.theta, graph.step())?;
/// let slope = or_zeros(bilevel::graph::gradient(loss, &trace.theta)?, &trace.theta);
/// let step = inner.one_step(&trace, &slope, &[None], graph.step());
/// let outer = trace.outer(&trace.theta, graph.step())?;
/// let program = effective_samples::carry(step.carry(Program::builder(&graph)), &trace, outer).build()?;
/// let mut chain = Routine::new(&program, &session)?;
///
/// let state = session.state(Key::from_seed(0))?;
/// inner.place(&mut chain, inner.step)?;
/// chain.bind_point(&state.lambda, &state.theta, Key::from_seed(0))?;
/// effective_samples::begin(&mut chain, 0.0)?;
/// chain.run(0..10_000)?;
/// let worth = effective_samples::read(&mut chain, 10_000)?.unwrap();
/// assert!((400.0..700.0).contains(&worth), "{worth} of about 526");
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn carry<'g>(builder: ProgramBuilder<'g>, trace: &Trace, outer: Tensor) -> ProgramBuilder<'g> {
    let input = |i| trace.graph.input(format!("{GROUP}.{i}"), [], trace.problem.dtype);
    let [centre, last, sum, squares, products] = [0, 1, 2, 3, 4].map(input);
    let off = outer.reshape([]) - centre;
    let builder = builder.carry(last, off).carry(sum, sum + off);
    builder.carry(squares, squares + off * off).carry(products, products + off * last)
}

/// Resets the sums, with an f near those to come as their centre.
pub fn begin(routine: &mut Routine, centre: f64) -> Result<()> {
    routine.set_numbers(GROUP, [centre, 0.0, 0.0, 0.0, 0.0])
}

/// The effective number of `kept` samples, between 1 and all of them; `None` if f did not vary or there are few. For a
/// chain that is short compared with its memory it is an upper estimate, because slow variations look constant.
pub fn read(routine: &mut Routine, kept: usize) -> Result<Option<f64>> {
    let [_, _, sum, squares, products] = routine.carried_numbers(GROUP)?;
    Ok(effective(sum, squares, products, kept as f64))
}

fn effective(sum: f64, squares: f64, products: f64, kept: f64) -> Option<f64> {
    let mean = sum / kept;
    let variance = squares / kept - mean * mean;
    // The products are over one pair less than the squares.
    let correlation = (products / (kept - 1.0) - mean * mean) / variance;
    let found = kept * (1.0 - correlation) / (1.0 + correlation);
    let varied = variance > 1e-12 * squares / kept && kept >= FEWEST as f64;
    (varied && found.is_finite()).then(|| if correlation >= 1.0 { 1.0 } else { found.clamp(1.0, kept) })
}

#[cfg(test)]
mod tests {
    use super::effective;

    /// The sums of a series, centred by its first number.
    fn sums(series: &[f64]) -> (f64, f64, f64, f64) {
        let off: Vec<f64> = series.iter().map(|f| f - series[0]).collect();
        let products = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
        (off.iter().sum(), off.iter().map(|x| x * x).sum(), products, series.len() as f64)
    }

    #[test]
    fn an_autoregression_is_worth_what_its_correlation_says() {
        for rho in [0.0, 0.5, 0.9] {
            let mut noise = vec![0.0; 200_000];
            bilevel_graph::random::fill_normal_f64([1, 2], 3, 0, 0, &mut noise);
            let mut x = 1e6; // far from 0: the centre must take care of it
            let series: Vec<f64> = noise
                .iter()
                .map(|n| {
                    x = 1e6 + rho * (x - 1e6) + n;
                    x
                })
                .collect();
            let (sum, squares, products, kept) = sums(&series);
            let found = effective(sum, squares, products, kept).unwrap() / kept;
            let expected = (1.0 - rho) / (1.0 + rho);
            assert!((found / expected - 1.0).abs() < 0.05, "{rho}: {found} and not {expected}");
        }
    }

    #[test]
    fn a_series_that_does_not_vary_or_is_short_has_no_answer() {
        for series in [&[2.0; 100][..], &[1.0, 2.0, 1.0, 2.0]] {
            let (sum, squares, products, kept) = sums(series);
            assert_eq!(effective(sum, squares, products, kept), None);
        }
    }
}
