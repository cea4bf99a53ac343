//! What is worth knowing about a hypergradient besides its value, whatever method it comes from.
//!
//! At the θ where the inner loop ends, one outer gradient and one Hessian product give the norms of f_θ and f_λ and the
//! curvature r = f_θᵀ·H·f_θ / f_θᵀ·f_θ, the Rayleigh quotient of H along f_θ. γ·T·r says how far the inner loop has come
//! along the direction that matters: far below 1 it has hardly begun to forget its start.

use crate::Result;
use crate::diagnostics::Diagnostics;
use crate::estimator::{Estimator, Hypergradient, Method, State};
use crate::problem::Problem;
use crate::routine::Routine;
use crate::trace::{Trace, or_zeros};
use bilevel_graph::{Array, Executor, Graph, Program, Tensor, gradient, hessian_vector};
use std::sync::Arc;

/// What the diagnosis has to know of a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InnerTime {
    /// Inner step γ.
    pub step: f64,
    /// Inner steps T.
    pub steps: usize,
    /// For a method that scales its indirect term by γ·curvature·(mean number of the kept steps): that mean.
    pub mean_kept: Option<f64>,
    /// Curvature that the method adds to that of the inner loss, as a proximal term does.
    pub added_curvature: f64,
}

impl InnerTime {
    /// So many steps of this size, in a method that is right for any number of them.
    pub fn new(step: f64, steps: usize) -> Self {
        InnerTime { step, steps, mean_kept: None, added_curvature: 0.0 }
    }
}

/// An estimator that adds the diagnosis to the hypergradients of another.
pub(crate) struct Probed {
    estimator: Box<dyn Estimator>,
    time: Option<InnerTime>,
    factor: f64,
    routine: Routine,
    direct: bool,
    idle: Arc<[String]>,
}

impl Probed {
    pub fn new(method: &(impl Method + ?Sized), problem: &Problem, executor: &dyn Executor) -> Result<Self> {
        let estimator = method.compile(problem, executor)?;
        let (routine, direct) = probe_program(problem, executor)?;
        let idle = problem.idle_hyperparameters()?.into();
        let time = method.inner_time();
        Ok(Probed { estimator, time, factor: 1.0, routine, direct, idle })
    }

    /// The names of idle hyperparameters, found when the method was prepared.
    pub fn idle(&self) -> &[String] {
        &self.idle
    }

    /// The hypergradient with no more diagnosis than the method itself gives.
    pub fn estimate_only(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        let mut found = self.estimator.estimate(state, key)?;
        found.idle = self.idle.clone();
        Ok(found)
    }

    /// Adds the diagnosis at the θ where the inner loop ended.
    pub fn look(&mut self, state: &State, key: [i32; 2], into: &mut Diagnostics) -> Result<()> {
        self.routine.set_point(&state.lambda, &state.theta, key)?;
        let steps = self.time.map_or(0, |time| time.steps as u32);
        self.routine.run(steps..steps + 1)?;
        let size =
            |name: &str| Ok::<_, crate::Error>(Some(self.routine.number(name)?.sqrt()).filter(|x| x.is_finite()));
        into.outer_gradient_norm = size("outer_gradient")?;
        into.direct_norm = if self.direct { size("direct")? } else { None };
        let added = self.time.map_or(0.0, |time| time.added_curvature);
        into.curvature = Some(self.routine.number("curvature")? + added).filter(|x| x.is_finite());
        if let (Some(time), Some(curvature)) = (self.time, into.curvature) {
            let a_step = time.step * self.factor * curvature;
            into.step_curvature = Some(a_step);
            into.horizon = Some(a_step * time.steps as f64);
            into.indirect_scale = time.mean_kept.map(|mean| a_step * mean);
        }
        Ok(())
    }
}

impl Estimator for Probed {
    fn estimate(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        let mut found = self.estimate_only(state, key)?;
        self.look(state, key, &mut found.diagnostics)?;
        Ok(found)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.factor = factor;
        self.estimator.scale_step(factor)
    }

    fn restart(&mut self, state: &mut State, theta: &[Array]) -> Result<()> {
        self.estimator.restart(state, theta)
    }
}

fn square_norm(all: &[Tensor]) -> Option<Tensor> {
    all.iter().map(|t| t.square().sum_all()).reduce(|a, b| a + b)
}

/// Squares of the norms of f_θ and f_λ, the Rayleigh quotient along f_θ, and whether f depends on λ directly.
fn probe_program(problem: &Problem, executor: &dyn Executor) -> Result<(Routine, bool)> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (theta, step) = (&trace.theta, graph.step());
    let outer = trace.outer(theta, step)?;
    let f_theta = or_zeros(gradient(outer, theta)?, theta);
    let direct: Vec<Tensor> = gradient(outer, &trace.lambda)?.into_iter().flatten().collect();
    let inner = trace.inner(theta, step)?;
    let product = or_zeros(hessian_vector(inner, theta, &f_theta)?, theta);
    let zero = graph.scalar(0.0, problem.dtype);
    let square = square_norm(&f_theta).unwrap_or(zero);
    let along = f_theta.iter().zip(&product).map(|(f, p)| (*f * *p).sum_all()).reduce(|a, b| a + b).unwrap_or(zero);
    let builder = Program::builder(&graph)
        .output("outer_gradient", square)
        .output("direct", square_norm(&direct).unwrap_or(zero))
        .output("curvature", along / square);
    Ok((Routine::new(&builder.build()?, problem, executor)?, !direct.is_empty()))
}
