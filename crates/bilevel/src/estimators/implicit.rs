//! What the implicit methods share: the inner loop, the outer derivatives where it ends, and the product that follows the
//! linear solve.
//!
//! Every derivative of one hypergradient is taken with the draw of step T, one past the inner loop's steps 0 … T−1, so that
//! all products of a solve see the same minibatch and noise, and none that the inner loop saw.

use crate::Result;
use crate::error::require;
use crate::estimator::{Hypergradient, Oracles, State, finite};
use crate::problem::Problem;
use crate::trace::{Routine, Trace, or_zeros};
use bilevel_graph::{Array, Executor, Graph, Program, Tensor, gradient, hessian_vector, mixed_vector};

/// θ ← θ − γ·∇θL_T + κ·√(2τγ)·ξ, T times.
#[derive(Clone, Copy)]
pub(crate) struct Descent {
    pub step: f64,
    pub steps: usize,
    pub temperature: f64,
    pub noise_scale: f64,
}

impl Descent {
    fn check(&self) -> Result<()> {
        positive("step", self.step)?;
        require(self.steps < i32::MAX as usize, "steps", self.steps as f64, "below 2³¹ − 1")?;
        at_least_0("temperature", self.temperature)?;
        at_least_0("noise_scale", self.noise_scale)
    }

    /// The number of the step whose draw the hypergradient uses.
    pub fn counter(&self, graph: &Graph) -> Tensor {
        graph.scalar(self.steps as f64, bilevel_graph::DType::I32)
    }

    /// H·v of the inner loss, with the draw of the hypergradient.
    pub fn hessian(&self, trace: &Trace, v: &[Tensor]) -> Result<Vec<Tensor>> {
        let loss = trace.inner(&trace.theta, self.counter(trace.graph))?;
        Ok(or_zeros(hessian_vector(loss, &trace.theta, v)?, &trace.theta))
    }
}

pub(crate) fn positive(name: &'static str, value: f64) -> Result<()> {
    require(value > 0.0 && value.is_finite(), name, value, "above 0")
}

pub(crate) fn at_least_0(name: &'static str, value: f64) -> Result<()> {
    require(value >= 0.0 && value.is_finite(), name, value, "at least 0")
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
    pub fn place(&self, routine: &mut Routine, problem: &Problem) -> Result<()> {
        routine.set_point(problem, &self.lambda, &self.theta)?;
        routine.set_key(self.key)
    }
}

/// The compiled parts around a linear solve.
pub(crate) struct Implicit {
    pub problem: Problem,
    method: &'static str,
    steps: usize,
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
        descent: Descent,
        ending: Ending,
    ) -> Result<Self> {
        descent.check()?;
        let (last, mixed) = ending_program(problem, executor, &descent, ending)?;
        Ok(Implicit {
            problem: problem.clone(),
            method,
            steps: descent.steps,
            descent: descent_program(problem, executor, &descent, ending.proximal)?,
            outer: outer_program(problem, executor, &descent)?,
            ending: last,
            mixed,
        })
    }

    /// Runs the inner loop from θ, and takes the outer derivatives where it ends.
    pub fn descend(&mut self, lambda: &[Array], theta: &[Array], key: [i32; 2]) -> Result<Point> {
        let problem = &self.problem;
        self.descent.set_point(problem, lambda, theta)?;
        self.descent.set_key(key)?;
        self.descent.run(0..self.steps as u32)?;
        let theta = self.descent.theta(problem)?;
        let advice = "take a smaller inner step: step × the largest curvature must stay below 2";
        finite(self.method, "θ", &theta, advice)?;
        let mut point =
            Point { lambda: lambda.to_vec(), theta, key, direct: vec![], f_theta: vec![], outer_loss: f64::NAN };
        point.place(&mut self.outer, problem)?;
        self.outer.run(0..1)?;
        point.direct = self.outer.output_all("direct", lambda.len())?;
        point.f_theta = self.outer.output_all("f_theta", point.theta.len())?;
        point.outer_loss = self.outer.number("outer")?;
        let given = [&point.direct[..], &point.f_theta].concat();
        finite(self.method, "the derivative of the outer loss", &given, "look for a division or logarithm of 0 in it")?;
        Ok(point)
    }

    /// The hypergradient from the solution `v`, which took `products` Hessian products; leaves θ in the state.
    /// `advice` is for a solution that is not finite.
    pub fn finish(
        &mut self,
        state: &mut State,
        point: Point,
        v: &[Array],
        products: usize,
        advice: &str,
    ) -> Result<Hypergradient> {
        finite(self.method, "the solution of the linear system", v, advice)?;
        point.place(&mut self.ending, &self.problem)?;
        self.ending.set_all("direct", &point.direct)?;
        self.ending.set_all("v", v)?;
        self.ending.run(0..1)?;
        let value = self.ending.output_all("h", point.lambda.len())?;
        finite(self.method, "the hypergradient", &value, advice)?;
        state.theta = point.theta;
        let oracles = Oracles {
            inner_gradients: self.steps as u64,
            outer_gradients: 1,
            hessian_products: products as u64,
            mixed_products: self.mixed as u64,
            losses: 0,
        };
        Ok(Hypergradient {
            value,
            standard_error: None,
            inner_loss: self.ending.number("inner")?,
            outer_loss: point.outer_loss,
            oracles,
        })
    }
}

fn descent_program(
    problem: &Problem,
    executor: &dyn Executor,
    descent: &Descent,
    proximal: Option<f64>,
) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let slope = or_zeros(gradient(trace.inner(theta, step)?, theta)?, theta);
    let scale = descent.noise_scale * (2.0 * descent.temperature * descent.step).sqrt();
    let noise = (scale > 0.0).then(|| trace.noise(step));
    let mut builder = Program::builder(&graph);
    for i in 0..theta.len() {
        let pull = proximal.map(|rho| (theta[i] - lambda[i]) * rho);
        let slope = pull.map_or(slope[i], |pull| slope[i] + pull);
        let next = theta[i] - slope * descent.step;
        builder = builder.carry(theta[i], noise.as_ref().map_or(next, |noise| next + noise[i] * scale));
    }
    Routine::new(&builder.build()?, problem, executor)
}

fn outer_program(problem: &Problem, executor: &dyn Executor, descent: &Descent) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let loss = trace.outer(&trace.theta, descent.counter(&graph))?;
    let both = [&trace.lambda[..], &trace.theta].concat();
    let by = or_zeros(gradient(loss, &both)?, &both);
    let (direct, f_theta) = by.split_at(trace.lambda.len());
    let mut builder = Program::builder(&graph).output("outer", loss);
    for (prefix, values) in [("direct", direct), ("f_theta", f_theta)] {
        for (i, &value) in values.iter().enumerate() {
            builder = builder.output(format!("{prefix}.{i}"), value);
        }
    }
    Routine::new(&builder.build()?, problem, executor)
}

/// The program, and whether it computes vᵀC.
fn ending_program(
    problem: &Problem,
    executor: &dyn Executor,
    descent: &Descent,
    ending: Ending,
) -> Result<(Routine, bool)> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (lambda, theta) = (&trace.lambda, &trace.theta);
    let (direct, v) = (trace.inputs_like("direct", lambda), trace.inputs_like("v", theta));
    let inner = trace.inner(theta, descent.counter(&graph))?;
    let mixed = mixed_vector(inner, theta, &v, lambda)?;
    let mut builder = Program::builder(&graph).output("inner", inner);
    for i in 0..lambda.len() {
        let base = if ending.proximal.is_some() { direct[i] + v[i] } else { direct[i] };
        builder = builder.output(format!("h.{i}"), mixed[i].map_or(base, |mixed| base - mixed * ending.scale));
    }
    Ok((Routine::new(&builder.build()?, problem, executor)?, mixed.iter().any(Option::is_some)))
}
