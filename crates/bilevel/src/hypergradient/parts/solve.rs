//! Linear solves with the curvature of the inner loss at a [`Point`], each one looped program.

use crate::hypergradient::parts::implicit::{CurvatureProduct, Point, STRETCH};
use crate::hypergradient::vocabulary::*;
use std::fmt;

/// A solver of A·q = f_θ at a point.
pub(crate) trait LinearSolver: Send {
    /// The solution, from 0 or, if the solver was compiled for it, from `start`, which it overwrites.
    fn solve_for(&mut self, point: &Point, start: Option<&Leaves>, tolerance: Option<f64>) -> Result<Solution>;

    /// The likely cause of a solution that is not finite.
    fn cause(&self) -> Cause;
}

/// Richardson's iteration z ← z − β·H·z + w·f_θ: with w = β it approaches H⁻¹·f_θ, with w = 1 the Neumann series of it over β.
pub struct Richardson {
    sweep: Routine,
    sweeps: usize,
}

impl Richardson {
    /// This many sweeps with these (β, w), with the Hessian as this inner loop leaves it.
    pub fn new(session: &Session, inner: &InnerLoop, weights: (f64, f64), sweeps: usize) -> Result<Self> {
        Self::with_curvature(session, inner, CurvatureProduct::Hessian, weights, sweeps)
    }

    /// As [`new`](Self::new), with something else in place of the Hessian.
    pub fn with_curvature(
        session: &Session,
        inner: &InnerLoop,
        curvature: CurvatureProduct,
        (beta, weight): (f64, f64),
        sweeps: usize,
    ) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let z = trace.inputs_like("z", &trace.theta);
        let f_theta = trace.inputs_like("f_theta", &trace.theta);
        let hessian = curvature.times(inner, &trace, &z)?;
        let mut builder = Program::builder(&graph);
        for i in 0..z.len() {
            builder = builder.carry(z[i], z[i] - hessian[i] * beta + f_theta[i] * weight);
        }
        Ok(Richardson { sweep: Routine::new(&builder.build()?, session)?, sweeps })
    }

    /// Goes on from z, in place.
    pub fn solve(&mut self, point: &Point, z: &Leaves) -> Result<()> {
        point.place(&mut self.sweep)?;
        self.sweep.bind("f_theta", &point.f_theta)?;
        self.sweep.bind("z", z)?;
        self.sweep.run(0..self.sweeps as u32)
    }
}

impl LinearSolver for Richardson {
    fn solve_for(&mut self, point: &Point, start: Option<&Leaves>, _: Option<f64>) -> Result<Solution> {
        let z = match start {
            Some(start) => start.clone(),
            None => self.sweep.zeroed("z")?,
        };
        self.solve(point, &z)?;
        Ok(Solution::after(z, self.sweeps))
    }

    fn cause(&self) -> Cause {
        Cause::SolveStepTooLarge
    }
}

/// The default shift of the eigenvalues of H, the same for all methods that solve H·q = f_θ, so that comparing methods
/// does not compare defaults. It is 0: any other number silently biases the hypergradient by an amount that depends on
/// the scale of the inner loss. A Hessian that is not positive, in contrast, causes a warning or an error that suggests
/// a shift.
pub(crate) const REGULARISATION: f64 = 0.0;

/// The matrix A = a·H + b·I of a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix {
    /// a.
    pub hessian: f64,
    /// b.
    pub identity: f64,
}

impl Matrix {
    fn times(
        &self,
        curvature: CurvatureProduct,
        inner: &InnerLoop,
        trace: &Trace,
        v: &[Tensor],
    ) -> Result<Vec<Tensor>> {
        let hessian = curvature.times(inner, trace, v)?;
        Ok(hessian.iter().zip(v).map(|(h, v)| *h * self.hessian + *v * self.identity).collect())
    }
}

/// Conjugate gradients on A·q = f_θ:
///
///   s = rᵀr / pᵀAp,  q ← q + s·p,  r ← r − s·Ap,  p ← r + (new rᵀr / old rᵀr)·p
///
/// One product A·p gives both the step length and the residual. Once ‖r‖ is rounding compared with ‖f_θ‖, the solve has
/// converged and stops: more steps would follow rounding into the directions in which A is singular. A NaN propagates.
///
/// It solves systems with a positive A. At a direction in which A is not positive it ends, before a step along it, and
/// reports that ([`Ended`]). If nothing has been solved by then, that is an error.
pub struct ConjugateGradients {
    sweep: Routine,
    sweeps: usize,
    /// f_θ − A·q of a warm start.
    residual: Option<Routine>,
    norm: LazyNorm,
    dtype: DType,
}

impl ConjugateGradients {
    /// This many sweeps for systems with this matrix; a warm one continues from the last solution.
    pub fn new(session: &Session, inner: &InnerLoop, matrix: Matrix, sweeps: usize, warm: bool) -> Result<Self> {
        Self::with_curvature(session, inner, CurvatureProduct::Hessian, matrix, (sweeps, warm))
    }

    /// As [`new`](Self::new), with something else in place of the Hessian.
    pub fn with_curvature(
        session: &Session,
        inner: &InnerLoop,
        curvature: CurvatureProduct,
        matrix: Matrix,
        (sweeps, warm): (usize, bool),
    ) -> Result<Self> {
        let residual = if warm { Some(residual_program(session, inner, curvature, matrix)?) } else { None };
        let sweep = sweep_program(session, inner, curvature, matrix)?;
        let (norm, dtype) = (LazyNorm::new(session.executor()), session.problem().dtype);
        Ok(ConjugateGradients { sweep, sweeps, residual, norm, dtype })
    }

    /// Hessian products of a solve that makes all its sweeps.
    pub fn products(&self) -> usize {
        self.sweeps + self.residual.is_some() as usize
    }

    /// The solution, from 0 or, for a warm solve, from `start`, which it overwrites.
    pub fn solve(&mut self, point: &Point, start: Option<&Leaves>) -> Result<Solution> {
        self.solve_to(point, start, (0.0, self.sweeps))
    }

    /// As [`solve`](Self::solve), until ‖f_θ − A·q‖ is at most this tolerance; the norm is checked once per this many sweeps.
    /// The sweeps continue as if they were made at once: q, r and p are kept.
    pub fn solve_to(
        &mut self,
        point: &Point,
        start: Option<&Leaves>,
        (tolerance, every): (f64, usize),
    ) -> Result<Solution> {
        let sweep = &mut self.sweep;
        let q = match start {
            Some(start) => start.clone(),
            None => sweep.zeroed("q")?,
        };
        let (r, p) = (sweep.inputs("r")?, sweep.inputs("p")?);
        match &mut self.residual {
            Some(residual) => {
                point.place(residual)?;
                residual.bind("f_theta", &point.f_theta)?;
                residual.bind("q", &q)?;
                residual.bind_outputs("r", &r)?;
                residual.run(0..1)?;
            }
            None => r.copy_from(&point.f_theta)?,
        }
        p.copy_from(&r)?;
        let (first, size) = (self.norm.of(&r)?.powi(2), self.norm.of(&point.f_theta)?.powi(2));
        if !size.is_finite() {
            let seen = "the derivative of the outer loss is no longer finite".into();
            return Err(Error::Diverged { seen, cause: Cause::OuterLossUndefined });
        }
        let rounding = if self.dtype == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 };
        point.place(sweep)?;
        sweep.bind("q", &q)?;
        sweep.set_numbers("rr", [first])?;
        sweep.set_numbers("floor", [rounding * rounding * size])?;
        sweep.set_numbers("least", [f64::INFINITY])?;
        sweep.set_numbers("made", [0.0])?;
        let (mut done, mut rest) = (0, first);
        while done < self.sweeps {
            let next = (done + every.max(1)).min(self.sweeps);
            sweep.run(done as u32..next as u32)?;
            done = next;
            [rest] = sweep.carried_numbers("rr")?;
            if rest.sqrt() <= tolerance {
                break;
            }
        }
        let [least] = sweep.carried_numbers("least")?;
        let [made] = sweep.carried_numbers("made")?;
        let ended = match () {
            _ if least <= 0.0 => Ended::NotPositive { curvature: least, after: made as usize },
            _ if rest <= rounding * rounding * size => Ended::Arrived,
            _ => Ended::OutOfSweeps,
        };
        // A q that is still 0 would pass for a hypergradient without an indirect term.
        if least == 0.0 || (least < 0.0 && self.norm.of(&q)? == 0.0) {
            return Err(Error::Diverged { seen: ended.to_string(), cause: Cause::HessianNotPositive });
        }
        let diagnostics = Diagnostics {
            solve_residual: Some((rest / size).sqrt()).filter(|x| x.is_finite()),
            least_curvature: Some(least).filter(|x| x.is_finite()),
            ..Diagnostics::default()
        };
        Ok(Solution { q, ended, products: done + self.residual.is_some() as usize, diagnostics })
    }
}

impl LinearSolver for ConjugateGradients {
    fn solve_for(&mut self, point: &Point, start: Option<&Leaves>, tolerance: Option<f64>) -> Result<Solution> {
        self.solve_to(point, start, tolerance.map_or((0.0, self.sweeps), |tolerance| (tolerance, STRETCH)))
    }

    fn cause(&self) -> Cause {
        Cause::HessianNotPositive
    }
}

/// The result of a solve, and how it ended.
pub struct Solution {
    /// The solution, in memory that the next solve overwrites unless it was given its own.
    pub q: Leaves,
    /// How it ended.
    pub ended: Ended,
    /// Hessian products that it took.
    pub products: usize,
    /// The residual that is left, and the least curvature on the way.
    pub diagnostics: Diagnostics,
}

impl Solution {
    /// The result of a solver with a fixed number of products.
    pub(crate) fn after(q: Leaves, products: usize) -> Self {
        Solution { q, ended: Ended::OutOfSweeps, products, diagnostics: Diagnostics::default() }
    }
}

/// How a solve by conjugate gradients ended.
///
/// ```
/// use bilevel::parts::Ended;
/// let ended = Ended::NotPositive { curvature: -0.5, after: 3 };
/// assert!(ended.to_string().contains("curvature -5.0e-1 after 3 sweeps"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// The residual is rounding.
    Arrived,
    /// The residual is at most the tolerance, or all sweeps were made.
    OutOfSweeps,
    /// A direction was found in which A is not positive: only the part solved by then is available.
    NotPositive {
        /// pᵀAp/pᵀp in that direction.
        curvature: f64,
        /// Sweeps made before it.
        after: usize,
    },
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Arrived => write!(f, "conjugate gradients converged"),
            Ended::OutOfSweeps => write!(f, "conjugate gradients used all their sweeps"),
            Ended::NotPositive { curvature, after } => write!(
                f,
                "conjugate gradients met the curvature {curvature:.1e} after {after} sweeps, and cannot solve with a matrix \
                 that is not positive"
            ),
        }
    }
}

fn dot(a: &[Tensor], b: &[Tensor]) -> Option<Tensor> {
    a.iter().zip(b).map(|(a, b)| (*a * *b).sum_all()).reduce(|a, b| a + b)
}

/// a/b, and 0 if b is 0.
fn quotient(a: Tensor, b: Tensor) -> Tensor {
    let nothing = b.equal(0.0);
    nothing.select(0.0, a / nothing.select(1.0, b))
}

fn sweep_program(session: &Session, inner: &InnerLoop, curvature: CurvatureProduct, matrix: Matrix) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let dtype = session.problem().dtype;
    let [q, r, p] = ["q", "r", "p"].map(|name| trace.inputs_like(name, &trace.theta));
    let [rr, floor, least, made] = ["rr.0", "floor.0", "least.0", "made.0"].map(|name| graph.input(name, [], dtype));
    let zero = graph.scalar(0.0, dtype);
    let product = matrix.times(curvature, inner, &trace, &p)?;
    let arrived = rr.less_equal(floor);
    let along = dot(&p, &product).unwrap_or(zero);
    // pᵀAp/pᵀp: if it is not positive, neither is A, and the solve stops there.
    let curvature = arrived.select(least, quotient(along, dot(&p, &p).unwrap_or(zero)));
    let least_next = least.less_equal(0.0).select(least, least.minimum(curvature));
    let stays = arrived.maximum(least_next.less_equal(0.0));
    let length = stays.select(0.0, quotient(rr, along));
    let r_next: Vec<Tensor> = (0..r.len()).map(|i| r[i] - length * product[i]).collect();
    let rr_next = dot(&r_next, &r_next).unwrap_or(zero);
    let turn = quotient(rr_next, rr);
    let mut builder =
        Program::builder(&graph).carry(rr, rr_next).carry(least, least_next).carry(made, made + (1.0 - stays));
    for i in 0..q.len() {
        builder = builder.carry(q[i], q[i] + length * p[i]).carry(r[i], r_next[i]).carry(p[i], r_next[i] + turn * p[i]);
    }
    Routine::new(&builder.build()?, session)
}

fn residual_program(
    session: &Session,
    inner: &InnerLoop,
    curvature: CurvatureProduct,
    matrix: Matrix,
) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (q, f_theta) = (trace.inputs_like("q", &trace.theta), trace.inputs_like("f_theta", &trace.theta));
    let product = matrix.times(curvature, inner, &trace, &q)?;
    let mut builder = Program::builder(&graph);
    for i in 0..q.len() {
        builder = builder.keep_input(q[i]).output(format!("r.{i}"), f_theta[i] - product[i]);
    }
    Routine::new(&builder.build()?, session)
}
