//! Linear solves with the Hessian of the inner loss, each one looped program.

use super::implicit::{Point, hessian};
use super::inner_loop::InnerLoop;
use crate::diagnostics::Diagnostics;
use crate::problem::Problem;
use crate::routine::Routine;
use crate::trace::Trace;
use crate::{Cause, Error, Result};
use bilevel_graph::{Array, DType, Executor, Graph, Program, Tensor};

/// z ← z − β·H·z + w·f_θ.
pub(crate) struct Richardson {
    sweep: Routine,
    sweeps: usize,
}

impl Richardson {
    pub fn new(
        problem: &Problem,
        executor: &dyn Executor,
        inner: &InnerLoop,
        (beta, weight): (f64, f64),
        sweeps: usize,
    ) -> Result<Self> {
        let graph = Graph::new();
        let trace = Trace::new(&graph, problem)?;
        let z = trace.inputs_like("z", &trace.theta);
        let f_theta = trace.inputs_like("f_theta", &trace.theta);
        let hessian = hessian(inner, &trace, &z)?;
        let mut builder = Program::builder(&graph);
        for i in 0..z.len() {
            builder = builder.carry(z[i], z[i] - hessian[i] * beta + f_theta[i] * weight);
        }
        Ok(Richardson { sweep: Routine::new(&builder.build()?, problem, executor)?, sweeps })
    }

    pub fn solve(&mut self, point: &Point, start: &[Array]) -> Result<Vec<Array>> {
        point.place(&mut self.sweep)?;
        self.sweep.set_all("f_theta", &point.f_theta)?;
        self.sweep.set_all("z", start)?;
        self.sweep.run(0..self.sweeps as u32)?;
        self.sweep.carried_all("z")
    }
}

/// What is added to every eigenvalue of H unless said otherwise, the same for all methods that solve H·q = f_θ, or a comparison
/// of them would be one of their defaults. It is nothing: any other number biases the hypergradient by an amount that
/// depends on the scale of the inner loss, in silence, whereas a Hessian that cannot be solved with is met with a warning or an
/// error that asks for it.
pub(crate) const REGULARISATION: f64 = 0.0;

/// The matrix A = a·H + b·I of a system.
#[derive(Clone, Copy)]
pub(crate) struct Matrix {
    pub hessian: f64,
    pub identity: f64,
}

impl Matrix {
    fn times(&self, inner: &InnerLoop, trace: &Trace, v: &[Tensor]) -> Result<Vec<Tensor>> {
        let hessian = hessian(inner, trace, v)?;
        Ok(hessian.iter().zip(v).map(|(h, v)| *h * self.hessian + *v * self.identity).collect())
    }
}

/// Conjugate gradients on A·q = f_θ:
///
///   s = rᵀr / pᵀAp,  q ← q + s·p,  r ← r − s·Ap,  p ← r + (new rᵀr / old rᵀr)·p
///
/// One product A·p gives both the step length and the residual. Once ‖r‖ is rounding beside ‖f_θ‖ the solve has arrived
/// and stays where it is: going on would follow rounding into the directions in which A is singular. A NaN goes through.
pub(crate) struct ConjugateGradients {
    sweep: Routine,
    sweeps: usize,
    /// f_θ − A·q of a warm start.
    residual: Option<Routine>,
    dtype: DType,
}

impl ConjugateGradients {
    pub fn new(
        problem: &Problem,
        executor: &dyn Executor,
        inner: &InnerLoop,
        matrix: Matrix,
        sweeps: usize,
        warm: bool,
    ) -> Result<Self> {
        let residual = if warm { Some(residual_program(problem, executor, inner, matrix)?) } else { None };
        let sweep = sweep_program(problem, executor, inner, matrix)?;
        Ok(ConjugateGradients { sweep, sweeps, residual, dtype: problem.dtype })
    }

    /// Hessian products of one solve.
    pub fn products(&self) -> usize {
        self.sweeps + self.residual.is_some() as usize
    }

    /// The solution from `start`, which must be 0 where the solve is not a warm one.
    pub fn solve(&mut self, point: &Point, start: &[Array]) -> Result<Solution> {
        let first = match &mut self.residual {
            Some(residual) => {
                point.place(residual)?;
                residual.set_all("f_theta", &point.f_theta)?;
                residual.set_all("q", start)?;
                residual.run(0..1)?;
                residual.output_all("r")?
            }
            None => point.f_theta.clone(),
        };
        let (sweep, dtype) = (&mut self.sweep, self.dtype);
        point.place(sweep)?;
        sweep.set_all("q", start)?;
        sweep.set_all("r", &first)?;
        sweep.set_all("p", &first)?;
        sweep.set_all("rr", &[Array::scalar(square_norm(&first), dtype)])?;
        let rounding = if dtype == DType::F64 { f64::EPSILON } else { f32::EPSILON as f64 };
        let size = square_norm(&point.f_theta);
        sweep.set_all("floor", &[Array::scalar(rounding * rounding * size, dtype)])?;
        sweep.set_all("least", &[Array::scalar(f64::INFINITY, dtype)])?;
        sweep.run(0..self.sweeps as u32)?;
        let [rest] = sweep.carried_numbers("rr")?;
        let [least] = sweep.carried_numbers("least")?;
        if least == 0.0 {
            let seen = "conjugate gradients met a direction in which the Hessian is 0".into();
            return Err(Error::Diverged { seen, cause: Cause::HessianNotPositive });
        }
        let diagnostics = Diagnostics {
            solve_residual: Some((rest / size).sqrt()).filter(|x| x.is_finite()),
            least_curvature: Some(least).filter(|x| x.is_finite()),
            ..Diagnostics::default()
        };
        Ok(Solution { q: sweep.carried_all("q")?, diagnostics })
    }
}

/// What a solve found, and what it met on the way.
pub(crate) struct Solution {
    pub q: Vec<Array>,
    pub diagnostics: Diagnostics,
}

/// vᵀv.
pub(crate) fn square_norm(v: &[Array]) -> f64 {
    v.iter().flat_map(|a| a.to_f64()).map(|x| x * x).sum()
}

fn dot(a: &[Tensor], b: &[Tensor]) -> Option<Tensor> {
    a.iter().zip(b).map(|(a, b)| (*a * *b).sum_all()).reduce(|a, b| a + b)
}

/// a/b, and 0 where b is 0.
fn quotient(a: Tensor, b: Tensor) -> Tensor {
    let nothing = b.equal(0.0);
    nothing.select(0.0, a / nothing.select(1.0, b))
}

fn sweep_program(problem: &Problem, executor: &dyn Executor, inner: &InnerLoop, matrix: Matrix) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let [q, r, p] = ["q", "r", "p"].map(|name| trace.inputs_like(name, &trace.theta));
    let [rr, floor, least] = ["rr.0", "floor.0", "least.0"].map(|name| graph.input(name, [], problem.dtype));
    let zero = graph.scalar(0.0, problem.dtype);
    let product = matrix.times(inner, &trace, &p)?;
    let arrived = rr.less_equal(floor);
    let along = dot(&p, &product).unwrap_or(zero);
    let length = arrived.select(0.0, quotient(rr, along));
    // pᵀAp/pᵀp: where it is not positive, A is not.
    let curvature = arrived.select(least, quotient(along, dot(&p, &p).unwrap_or(zero)));
    let r_next: Vec<Tensor> = (0..r.len()).map(|i| r[i] - length * product[i]).collect();
    let rr_next = dot(&r_next, &r_next).unwrap_or(zero);
    let turn = quotient(rr_next, rr);
    let mut builder = Program::builder(&graph).carry(rr, rr_next).carry(least, least.minimum(curvature));
    for i in 0..q.len() {
        builder = builder.carry(q[i], q[i] + length * p[i]).carry(r[i], r_next[i]).carry(p[i], r_next[i] + turn * p[i]);
    }
    Routine::new(&builder.build()?, problem, executor)
}

fn residual_program(problem: &Problem, executor: &dyn Executor, inner: &InnerLoop, matrix: Matrix) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (q, f_theta) = (trace.inputs_like("q", &trace.theta), trace.inputs_like("f_theta", &trace.theta));
    let product = matrix.times(inner, &trace, &q)?;
    let mut builder = Program::builder(&graph);
    for i in 0..q.len() {
        builder = builder.keep_input(q[i]).output(format!("r.{i}"), f_theta[i] - product[i]);
    }
    Routine::new(&builder.build()?, problem, executor)
}
