//! What the implicit methods share: the inner loop, the outer derivatives where it ends, and the product that follows the
//! linear solve.
//!
//! Every derivative of one hypergradient is taken with the draw of step T, one past the inner loop's steps 0 … T−1, so that
//! all products of a solve see the same minibatch and noise, and none that the inner loop saw.

use super::inner_loop::{InnerLoop, Start, outer_gradient};
use crate::error::require;
use crate::estimator::{Hypergradient, Oracles, State, finite};
use crate::problem::Problem;
use crate::routine::Routine;
use crate::trace::{Trace, or_zeros};
use crate::{Cause, Result};
use bilevel_graph::{Array, Executor, Graph, Program, Tensor, gradient, hessian_vector, mixed_vector};

/// The number of the step whose draw the hypergradient uses.
pub(crate) fn counter(inner: &InnerLoop, graph: &Graph) -> Tensor {
    graph.scalar(inner.steps as f64, bilevel_graph::DType::I32)
}

/// H·v of the inner loss, with the draw of the hypergradient.
pub(crate) fn hessian(inner: &InnerLoop, trace: &Trace, v: &[Tensor]) -> Result<Vec<Tensor>> {
    let loss = trace.inner(&trace.theta, counter(inner, trace.graph))?;
    Ok(or_zeros(hessian_vector(loss, &trace.theta, v)?, &trace.theta))
}

/// A number of loop steps from `least` on.
pub(crate) fn count(name: &'static str, value: usize, least: usize) -> Result<()> {
    let must = if least == 0 { "below 2³¹" } else { "at least 1 and below 2³¹" };
    require((least..=i32::MAX as usize).contains(&value), name, value as f64, must)
}

/// How the solution v of the linear system becomes the hypergradient: h = f_λ + \[v\] − scale·vᵀC.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// Factor of vᵀC.
    pub scale: f64,
    /// ρ of a proximal term (ρ/2)·‖θ−λ‖² of the inner loop, whose own C is −ρ·I: v is added.
    pub proximal: Option<f64>,
}

/// Where a hypergradient is taken, and the outer derivatives there.
pub(crate) struct Point {
    pub lambda: Vec<Array>,
    pub theta: Vec<Array>,
    pub key: [i32; 2],
    pub direct: Vec<Array>,
    pub f_theta: Vec<Array>,
    pub outer_loss: f64,
}

impl Point {
    /// Sets λ, θ and the key of a routine.
    pub fn place(&self, routine: &mut Routine) -> Result<()> {
        routine.set_point(&self.lambda, &self.theta, self.key)
    }
}

/// The compiled parts around a linear solve.
pub(crate) struct Implicit {
    method: &'static str,
    pub inner: InnerLoop,
    start: Start,
    descent: Routine,
    outer: Routine,
    ending: Routine,
    /// Whether the inner loss has a C, so that vᵀC is computed.
    mixed: bool,
}

impl Implicit {
    pub fn new(
        method: &'static str,
        problem: &Problem,
        executor: &dyn Executor,
        inner: InnerLoop,
        ending: Ending,
    ) -> Result<Self> {
        let (last, mixed) = ending_program(problem, executor, &inner, ending)?;
        Ok(Implicit {
            method,
            inner,
            start: Start::new(problem, executor)?,
            descent: descent_program(problem, executor, &inner, ending.proximal)?,
            outer: outer_gradient(problem, executor)?,
            ending: last,
            mixed,
        })
    }

    /// Runs the inner loop from θ, and takes the outer derivatives where it ends.
    pub fn descend(&mut self, lambda: &[Array], theta: &[Array], key: [i32; 2]) -> Result<Point> {
        let theta = &self.start.theta(lambda, theta, key)?;
        self.inner.place(&mut self.descent)?;
        self.descent.set_point(lambda, theta, key)?;
        self.descent.run(0..self.inner.steps as u32)?;
        let end = self.descent.theta()?;
        finite(self.method, "θ", &end, Cause::InnerStepTooLarge)
            .map_err(|e| self.inner.explain(e, &mut self.descent, (lambda, theta, key)))?;
        let mut point =
            Point { lambda: lambda.to_vec(), theta: end, key, direct: vec![], f_theta: vec![], outer_loss: f64::NAN };
        point.place(&mut self.outer)?;
        self.outer.run(self.inner.last())?;
        point.direct = self.outer.output_all("direct")?;
        point.f_theta = self.outer.output_all("f_theta")?;
        point.outer_loss = self.outer.number("outer")?;
        let given = [&point.direct[..], &point.f_theta].concat();
        finite(self.method, "the derivative of the outer loss", &given, Cause::OuterLossUndefined)?;
        Ok(point)
    }

    /// The hypergradient from the solution `v`, which took `products` Hessian products; leaves θ in the state.
    /// `cause` is for a solution that is not finite.
    pub fn finish(
        &mut self,
        state: &mut State,
        point: Point,
        v: &[Array],
        products: usize,
        cause: Cause,
    ) -> Result<Hypergradient> {
        finite(self.method, "the solution of the linear system", v, cause)?;
        point.place(&mut self.ending)?;
        self.ending.set_all("direct", &point.direct)?;
        self.ending.set_all("v", v)?;
        self.ending.run(0..1)?;
        let value = self.ending.output_all("h")?;
        finite(self.method, "the hypergradient", &value, cause)?;
        state.theta = point.theta;
        let oracles = Oracles {
            inner_gradients: self.inner.steps as u64,
            outer_gradients: 1,
            hessian_products: products as u64,
            mixed_products: self.mixed as u64,
            losses: 0,
        };
        Ok(Hypergradient::new(value, (self.ending.number("inner")?, point.outer_loss), oracles))
    }
}

fn descent_program(
    problem: &Problem,
    executor: &dyn Executor,
    inner: &InnerLoop,
    proximal: Option<f64>,
) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let loss = trace.inner(theta, step)?;
    let mut slope = or_zeros(gradient(loss, theta)?, theta);
    if let Some(rho) = proximal {
        let pulled = |(i, s): (usize, &Tensor)| *s + (theta[i] - lambda[i]) * rho;
        slope = slope.iter().enumerate().map(pulled).collect();
    }
    let mut builder = Program::builder(&graph).output("inner", loss);
    for (&theta, next) in theta.iter().zip(inner.next(&trace, &slope, step)) {
        builder = builder.carry(theta, next);
    }
    Routine::new(&builder.build()?, problem, executor)
}

/// The program, and whether it computes vᵀC.
fn ending_program(
    problem: &Problem,
    executor: &dyn Executor,
    inner: &InnerLoop,
    ending: Ending,
) -> Result<(Routine, bool)> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (lambda, theta) = (&trace.lambda, &trace.theta);
    let (direct, v) = (trace.inputs_like("direct", lambda), trace.inputs_like("v", theta));
    let loss = trace.inner(theta, counter(inner, &graph))?;
    let mixed = mixed_vector(loss, theta, &v, lambda)?;
    let mut builder = Program::builder(&graph).output("inner", loss);
    builder = v.iter().fold(builder, |builder, &v| builder.keep_input(v));
    for i in 0..lambda.len() {
        let base = if ending.proximal.is_some() { direct[i] + v[i] } else { direct[i] };
        builder = builder.output(format!("h.{i}"), mixed[i].map_or(base, |mixed| base - mixed * ending.scale));
    }
    Ok((Routine::new(&builder.build()?, problem, executor)?, mixed.iter().any(Option::is_some)))
}
