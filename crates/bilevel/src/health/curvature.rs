//! The largest and the smallest curvature of the inner loss, by Lanczos iterations with Hessian products.
//!
//!   w = H·q − β·p,   α = w·q,   w ← w − α·q,   β ← ‖w‖,   p ← q,   q ← w/β
//!
//! The extreme eigenvalues of the tridiagonal matrix of all α and β approach those of H, the largest from below and the
//! smallest from above. Only p, q and w are stored, on the device: 3·|θ| numbers in addition to the workspace of one
//! Hessian product, for any number of products.
//!
//! Nothing is reorthogonalised, which would need all previous q. Once an extreme eigenvalue has converged, rounding
//! brings its eigenvector back, and the tridiagonal matrix repeats the eigenvalue. Every eigenvalue of that matrix
//! stays within rounding of the spectrum of H, so the extremes are still right and only need more products. See Paige,
//! "Accuracy and effectiveness of the Lanczos algorithm for the symmetric eigenproblem", 1980.

use crate::compiled::key::Key;
use crate::compiled::norms::square_norm;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::{Snapshot, State};
use crate::compiled::trace::{Trace, or_zeros};
use crate::problem::AnyProblem;
use crate::problem::variable::Role;
use crate::{Error, Result};
use bilevel_graph::{DType, Executor, Graph, Precision, Program, Tensor, hessian_vector};
use serde::Serialize;
use std::fmt;

/// Hessian products for the curvature at one point, at most. A condition number of 1000 takes about 100.
const MAX_PRODUCTS: usize = 200;
/// An extreme has converged when its error is below this share of it.
const CONVERGED: f64 = 1e-3;
/// A curvature below this share of the largest counts as none, and needs no more digits.
const FLAT: f64 = 1e-6;

/// The extremes of the Hessian's spectrum.
///
/// ```
/// let curvature = bilevel::diagnostics::Curvature { largest: 2.0, smallest: 0.5, products: 7, converged: true };
/// assert_eq!(curvature.condition(), Some(4.0));
/// assert_eq!(
///     curvature.to_string(),
///     "Curvature of the inner loss, by 7 Hessian products: 5.000e-1 to 2.000e0, a condition number of 4.0."
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Curvature {
    /// The largest eigenvalue, or a little less.
    pub largest: f64,
    /// The smallest eigenvalue, or a little more.
    pub smallest: f64,
    /// Hessian products taken.
    pub products: usize,
    /// Both are known to a thousandth, or to a millionth of the largest.
    pub converged: bool,
}

impl Curvature {
    /// The extremes of both, measured at two points.
    ///
    /// ```
    /// use bilevel::diagnostics::Curvature;
    /// let here = Curvature { largest: 2.0, smallest: 0.5, products: 7, converged: true };
    /// let there = Curvature { largest: 1.0, smallest: -0.5, products: 8, converged: true };
    /// assert_eq!(here.with(there), Curvature { largest: 2.0, smallest: -0.5, products: 15, converged: true });
    /// ```
    pub fn with(self, other: Curvature) -> Curvature {
        Curvature {
            largest: self.largest.max(other.largest),
            smallest: self.smallest.min(other.smallest),
            products: self.products + other.products,
            converged: self.converged && other.converged,
        }
    }

    /// Along some direction the inner loss curves downwards, by more than rounding.
    ///
    /// ```
    /// let saddle = bilevel::diagnostics::Curvature { largest: 2.0, smallest: -0.5, products: 2, converged: true };
    /// assert!(saddle.is_negative() && !saddle.is_singular() && saddle.condition().is_none());
    /// ```
    pub fn is_negative(&self) -> bool {
        self.smallest < -FLAT * self.largest.abs()
    }

    /// Along some direction the inner loss does not curve at all.
    pub fn is_singular(&self) -> bool {
        self.smallest.abs() <= FLAT * self.largest.abs()
    }

    /// The largest curvature over the smallest, if both are above 0.
    pub fn condition(&self) -> Option<f64> {
        (self.smallest > FLAT * self.largest).then(|| self.largest / self.smallest)
    }
}

impl fmt::Display for Curvature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Curvature { largest, smallest, products, converged } = *self;
        let products = format!("{products} Hessian product{}", if products == 1 { "" } else { "s" });
        let (at_most, at_least) = if converged { ("", "") } else { ("at most ", "at least ") };
        write!(f, "Curvature of the inner loss, by {products}: {at_most}{smallest:.3e} to {at_least}{largest:.3e}")?;
        match self.condition() {
            Some(condition) if condition < 10.0 => write!(f, ", a condition number of {condition:.1}."),
            Some(condition) => write!(f, ", a condition number of {condition:.0}."),
            None if self.is_negative() => write!(f, "; it curves downwards along some direction."),
            None => write!(f, "; it is flat along some direction."),
        }
    }
}

impl AnyProblem {
    /// Measures the extreme curvatures of the inner loss by θ at this point, in 64-bit floats, with the draws of this key.
    ///
    /// ```
    /// use bilevel::{Cpu, Key, Leaf, Problem, State, Variable};
    /// let problem = Problem::builder(Leaf(Variable::constant([3], 0.4)), Leaf(Variable::constant([3], 0.1)))
    ///     .inner(|_, l, t| (l.0.exp() * t.0.square()).sum_all())
    ///     .outer(|_, _, t| t.0.sin().sum_all())
    ///     .build()?;
    /// let (cpu, key) = (Cpu::with_threads(1), Key::from_seed(0));
    /// let here = State::initial(&problem, &cpu, key)?.snapshot()?;
    /// let curvature = problem.curvature(&here, &cpu, key)?;
    /// assert!((curvature.largest - 2.0 * 0.4f64.exp()).abs() < 1e-9);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn curvature(&self, at: &Snapshot, executor: &dyn Executor, key: Key) -> Result<Curvature> {
        let session = Session::new(&self.in_dtype(DType::F64)?, executor)?;
        let state = State::from_snapshot(&crate::health::check::snapshot_in(at, DType::F64)?, executor)?;
        session.curvature(&state, key, MAX_PRODUCTS)
    }
}

impl Session {
    /// Measures the extreme curvatures of the inner loss by θ in the problem's own floating-point type, with at most this
    /// many Hessian products.
    pub(crate) fn curvature(&self, state: &State, key: Key, most: usize) -> Result<Curvature> {
        let session = self.in_precision(Precision::Full)?;
        let mut step = step_program(&session)?;
        let q = step.inputs("q")?;
        step.zeroed("p")?;
        step.set_numbers("beta", [0.0])?;
        {
            // A separate start, independent of the problem's draws.
            let mut start = start_program(&session)?;
            start.bind_outputs("q", &q)?;
            start.set_key(Key::from_seed(7))?;
            start.run(0..1)?;
        }
        step.bind_point(&state.lambda, &state.theta, key)?;
        let rounding = if self.problem().dtype == DType::F64 { 1e-10 } else { 1e-5 };
        lanczos(most, rounding, || {
            step.run(0..1)?;
            Ok((step.number("alpha")?, step.number("length")?))
        })
    }
}

/// A random direction of length 1, as outputs `q.i`; 0 for leaves of θ that are not trained.
fn start_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let drawn = trace.noise(graph.step());
    let trained = |(draw, (_, variable)): (Tensor, &(String, crate::Variable))| match variable.role {
        Role::Trained => draw,
        _ => draw.zeros_like(),
    };
    let q: Vec<Tensor> = drawn.into_iter().zip(&session.problem().theta).map(trained).collect();
    let length = square_norm(&q).unwrap_or(graph.scalar(1.0, DType::F64)).sqrt();
    let mut builder = Program::builder(&graph);
    for (i, q) in q.into_iter().enumerate() {
        builder = builder.output(format!("q.{i}"), q / length.convert(q.dtype()));
    }
    Routine::new(&builder.build()?, session)
}

/// One Lanczos iteration, with q, p and β carried, and the outputs `alpha` and `length`, the next β.
fn step_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let theta = &trace.theta;
    let [q, p] = ["q", "p"].map(|name| trace.inputs_like(name, theta));
    let beta = graph.input("beta.0", [], DType::F64);
    let zero = graph.scalar(0.0, DType::F64);
    let product = or_zeros(hessian_vector(trace.inner(theta, graph.step())?, theta, &q)?, theta);
    let without = |from: &[Tensor], factor: Tensor, other: &[Tensor]| -> Vec<Tensor> {
        from.iter().zip(other).map(|(from, other)| *from - *other * factor.convert(other.dtype())).collect()
    };
    let w = without(&product, beta, &p);
    let dot = |(a, b): (&Tensor, &Tensor)| (a.convert(DType::F64) * b.convert(DType::F64)).sum_all();
    let alpha = w.iter().zip(&q).map(dot).fold(zero, |sum, term| sum + term);
    let w = without(&w, alpha, &q);
    let length = square_norm(&w).unwrap_or(zero).sqrt();
    // At length 0 the iteration ends, and the carried values are not used.
    let scale = length.equal(0.0).select(0.0, 1.0 / length.equal(0.0).select(1.0, length));
    let mut builder = Program::builder(&graph).output("alpha", alpha).output("length", length).carry(beta, length);
    for (i, w) in w.into_iter().enumerate() {
        builder = builder.carry(p[i], q[i]).carry(q[i], w * scale.convert(w.dtype()));
    }
    Routine::new(&builder.build()?, session)
}

/// Runs Lanczos iterations, each of which gives the next α and β, until both extremes have converged. A β below `rounding`
/// times the largest α is 0.
fn lanczos(most: usize, rounding: f64, mut iterate: impl FnMut() -> Result<(f64, f64)>) -> Result<Curvature> {
    let (mut alpha, mut beta): (Vec<f64>, Vec<f64>) = (vec![], vec![]);
    // The smallest and the largest, once they have converged.
    let mut known = [None; 2];
    loop {
        let (a, b) = iterate()?;
        if !a.is_finite() || !b.is_finite() {
            return Err(Error::UndefinedCurvature);
        }
        alpha.push(a);
        let (values @ [smallest, largest], products) = (extremes(&alpha, &beta), alpha.len());
        let size = largest.abs().max(smallest.abs());
        // The directions seen so far are closed under H: there is nothing more to find from this start.
        let closed = b <= rounding * size.max(f64::MIN_POSITIVE);
        for (value, known) in values.into_iter().zip(&mut known) {
            let tolerance = (CONVERGED * value.abs()).max(0.1 * FLAT * size);
            // One that has converged stays so while copies of it appear, unless it moves on.
            let stays = known.is_some_and(|known: f64| (value - known).abs() <= tolerance);
            let found = b * last_component(&alpha, &beta, value) <= tolerance;
            *known = if stays { *known } else { found.then_some(value) };
        }
        // The first few say nothing yet: a start may happen to have hardly any of an eigenvector.
        let converged = closed || (products >= 8 && known.iter().all(Option::is_some));
        if converged || products >= most.max(1) {
            return Ok(Curvature { largest, smallest, products, converged });
        }
        beta.push(b);
    }
}

/// The smallest and the largest eigenvalue of a symmetric tridiagonal matrix, by bisection on the number of eigenvalues
/// below a point, which is the number of negative pivots.
fn extremes(alpha: &[f64], beta: &[f64]) -> [f64; 2] {
    let below = |x: f64| {
        let mut pivot = 1.0;
        let mut count = 0;
        for (i, a) in alpha.iter().enumerate() {
            let off = if i == 0 { 0.0 } else { beta[i - 1] * beta[i - 1] / pivot };
            pivot = a - x - off;
            if pivot == 0.0 {
                pivot = f64::MIN_POSITIVE;
            }
            count += (pivot < 0.0) as usize;
        }
        count
    };
    let reach = alpha.iter().chain(beta).fold(0.0, |m: f64, v| m.max(v.abs())) * 3.0 + f64::MIN_POSITIVE;
    let find = |wanted: usize| {
        let (mut low, mut high) = (-reach, reach);
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if below(middle) >= wanted { high = middle } else { low = middle }
        }
        0.5 * (low + high)
    };
    [find(1), find(alpha.len())]
}

/// The last component of the eigenvector of length 1 that belongs to an extreme eigenvalue x of a symmetric tridiagonal
/// matrix: 1/√|δ′(x)| with δ the last pivot. Times the next β it is an upper limit of the eigenvalue's error.
fn last_component(alpha: &[f64], beta: &[f64], x: f64) -> f64 {
    let (mut pivot, mut slope) = (f64::INFINITY, 0.0);
    for (i, a) in alpha.iter().enumerate() {
        let off = if i == 0 { 0.0 } else { beta[i - 1] / pivot };
        slope = -1.0 + off * off * slope;
        pivot = a - x - off * if i == 0 { 0.0 } else { beta[i - 1] };
    }
    1.0 / f64::sqrt(-slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, Leaf, Problem, Variable};
    use bilevel_cpu::Cpu;

    /// L_T = ½·θᵀ·diag(spectrum)·θ.
    fn of(spectrum: &[f64], dtype: DType) -> Curvature {
        let size = spectrum.len();
        let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([size], 0.3)))
            .dtype(dtype)
            .data("spectrum", Array::from_values([size], spectrum, dtype).unwrap())
            .inner(|s, l, t| (s.data("spectrum") * (t.0 - l.0).square()).sum_all() * 0.5)
            .outer(|_, _, t| t.0.sum_all())
            .build()
            .unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        session.curvature(&session.state(Key::from_seed(0)).unwrap(), Key::from_seed(0), MAX_PRODUCTS).unwrap()
    }

    fn near(found: f64, want: f64, tolerance: f64) -> bool {
        (found - want).abs() <= tolerance * want.abs()
    }

    /// From 1 to this condition, evenly on a logarithmic scale.
    fn logarithmic(size: usize, condition: f64) -> Vec<f64> {
        (0..size).map(|i| condition.powf(i as f64 / (size - 1) as f64)).collect()
    }

    #[test]
    fn the_extremes_of_sixty_unknowns_of_condition_1000_are_found_without_a_basis() {
        for dtype in [DType::F64, DType::F32] {
            let found = of(&logarithmic(60, 1000.0), dtype);
            assert!(near(found.largest, 1000.0, 1e-3) && near(found.smallest, 1.0, 1e-3), "{found:?}");
            // In 32 bits copies come sooner, and the bound on the error takes longer than the error itself.
            assert!(found.converged || dtype == DType::F32, "{found:?}");
        }
        let even: Vec<f64> = (0..60).map(|i| 1.0 + i as f64 * 999.0 / 59.0).collect();
        let found = of(&even, DType::F64);
        assert!(near(found.largest, 1000.0, 1e-3) && near(found.smallest, 1.0, 1e-3), "{found:?}");
    }

    #[test]
    fn an_extreme_that_has_not_converged_is_called_a_bound() {
        // Hundreds of eigenvalues lie within a few per cent of the smallest.
        let found = of(&logarithmic(2000, 1000.0), DType::F64);
        assert!(near(found.largest, 1000.0, 1e-3) && near(found.smallest, 1.0, 0.05), "{found:?}");
        assert!(found.products == MAX_PRODUCTS && !found.converged && found.smallest > 1.0, "{found:?}");
        assert!(
            found.to_string().contains("at most 1.0") && found.to_string().contains("to at least 1.000e3"),
            "{found}"
        );
    }

    #[test]
    fn negative_and_flat_directions_are_told_apart() {
        let mut spectrum = logarithmic(40, 100.0);
        spectrum[7] = -0.5;
        let found = of(&spectrum, DType::F64);
        assert!(
            found.is_negative() && near(found.smallest, -0.5, 1e-3) && near(found.largest, 100.0, 1e-3),
            "{found:?}"
        );
        spectrum[7] = 0.0;
        let found = of(&spectrum, DType::F64);
        assert!(found.is_singular() && !found.is_negative() && found.condition().is_none(), "{found:?}");
    }

    #[test]
    fn one_dimension_and_a_matrix_of_zeros_are_no_exceptions() {
        let found = of(&[-2.5], DType::F64);
        assert!(near(found.largest, -2.5, 1e-12) && found.products == 1 && found.converged, "{found:?}");
        let found = of(&[0.0; 4], DType::F64);
        assert!(found.largest.abs() < 1e-12 && found.smallest.abs() < 1e-12 && found.converged, "{found:?}");
    }

    #[test]
    fn one_large_eigenvalue_among_equal_ones_is_found_at_once() {
        let mut spectrum = vec![1.0; 2000];
        spectrum[17] = 100.0;
        let found = of(&spectrum, DType::F64);
        assert!(near(found.largest, 100.0, 1e-6) && near(found.smallest, 1.0, 1e-6), "{found:?}");
        assert!(found.products < 10, "{found:?}");
    }
}
