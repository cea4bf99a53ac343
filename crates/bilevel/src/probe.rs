//! What is worth knowing about a hypergradient besides its value, whatever method it comes from.
//!
//! At the θ where the inner loop ends, one outer gradient and one Hessian product give the norms of f_θ and f_λ and the
//! curvature r = f_θᵀ·H·f_θ / f_θᵀ·f_θ, the Rayleigh quotient of H along f_θ. γ·T·r says how far the inner loop has come
//! along the direction that matters: far below 1 it has hardly begun to forget its start.

use crate::Result;
use crate::estimator::{Estimator, Hypergradient, Method, State};
use crate::outer_step::norm;
use crate::problem::Problem;
use crate::routine::Routine;
use crate::trace::{Trace, or_zeros};
use bilevel_graph::{Array, Executor, Graph, Program, Tensor, gradient, hessian_vector};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A factor of the indirect term further from 1 than this is far.
const FAR: f64 = 1.5;
/// An adjoint that has grown so many times within one hypergradient is suspect.
const GROWTH: f64 = 10.0;

/// What was seen beside a hypergradient. A number that a method does not have is `None`.
///
/// ```
/// use bilevel::{Cpu, HpoSgld, Leaf, Method, Problem, State, Variable, Warning};
/// // The inner curvature is 1, so 20 steps of .01 go a fifth of the way, and the kept ones have the mean number 15.5.
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, l, t| (t.0 - 1.0).square() + l.0.square())
///     .build()?;
/// let method = HpoSgld { burn_in: 10, samples: 10, step: 0.01, ..HpoSgld::default() };
/// let mut estimator = method.prepare(&problem, &Cpu::with_threads(1))?;
/// let h = estimator.estimate(&mut State::initial(&problem, [0, 0])?, [0, 0])?;
/// assert!((h.diagnostics.horizon.unwrap() - 0.2).abs() < 1e-12);
/// assert!((h.diagnostics.indirect_scale.unwrap() - 0.155).abs() < 1e-12);
/// assert!(matches!(h.diagnostics.warnings()[..], [Warning::IndirectTermScaled { .. }]));
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnostics {
    /// ‖f_θ‖ at the last θ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outer_gradient_norm: Option<f64>,
    /// ‖f_λ‖ at the last θ; `None` where f does not depend on λ directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_norm: Option<f64>,
    /// The Rayleigh quotient of the inner Hessian along f_θ at the last θ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curvature: Option<f64>,
    /// γ times the curvature: the inner loop blows up beyond 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_curvature: Option<f64>,
    /// γ·T times the curvature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<f64>,
    /// ‖z‖ of the method's adjoint where the inner loop ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjoint_norm: Option<f64>,
    /// ‖z‖ there over ‖z‖ where it began, where it was warm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjoint_growth: Option<f64>,
    /// How many independent samples the kept values of f are worth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_samples: Option<f64>,
    /// The factor c = γ·curvature·(mean number of the kept steps) by which the indirect term of HPO-SGLD is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indirect_scale: Option<f64>,
    /// ‖f_θ − A·q‖/‖f_θ‖ where a linear solve ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solve_residual: Option<f64>,
    /// The least curvature that a solve by conjugate gradients met on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_curvature: Option<f64>,
}

/// Something a person should know of a hypergradient.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// The method's indirect term is off by a factor that is far from 1, and f's direct term makes that matter: the run will
    /// settle elsewhere than at the optimum.
    IndirectTermScaled {
        /// The factor.
        scale: f64,
    },
    /// Conjugate gradients met a direction in which the inner loss is not curved upwards: θ is no minimum, and the solution
    /// of the linear system no derivative of one.
    NotConvex {
        /// The curvature there.
        curvature: f64,
    },
    /// The adjoint grew within one hypergradient.
    AdjointGrowing {
        /// By this factor.
        growth: f64,
    },
    /// The inner step is beyond what the curvature allows.
    StepTooLarge {
        /// γ·curvature, above 2.
        step_curvature: f64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::IndirectTermScaled { scale } => write!(
                f,
                "this method's indirect term is about {scale:.2} times what it should be, and as the outer loss depends \
                 on λ directly, the run settles away from the optimum; change the inner step or the number of steps, or use \
                 langevin-adjoint"
            ),
            Warning::NotConvex { curvature } => write!(
                f,
                "the linear solve met the curvature {curvature:.1e}: θ is not at a minimum of the inner loss, which this \
                 method takes for granted; train longer, take more regularisation, or use langevin-adjoint or rmd"
            ),
            Warning::AdjointGrowing { growth } => write!(
                f,
                "the adjoint grew {growth:.1} times within one hypergradient; take a smaller inner step or a smaller outer \
                 rate, or start the adjoint cold"
            ),
            Warning::StepTooLarge { step_curvature } => write!(
                f,
                "inner step × curvature is {step_curvature:.2}, and the inner loop blows up beyond 2; take a smaller step"
            ),
        }
    }
}

impl Diagnostics {
    /// What a person should know.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut found = vec![];
        if let Some(scale) = self.indirect_scale
            && self.direct_norm.is_some()
            && !(1.0 / FAR..=FAR).contains(&scale)
        {
            found.push(Warning::IndirectTermScaled { scale });
        }
        if let Some(growth) = self.adjoint_growth.filter(|growth| *growth > GROWTH)
            && self.adjoint_norm > self.settled_adjoint()
        {
            found.push(Warning::AdjointGrowing { growth });
        }
        if let Some(curvature) = self.least_curvature.filter(|curvature| *curvature < 0.0) {
            found.push(Warning::NotConvex { curvature });
        }
        if let Some(step_curvature) = self.step_curvature.filter(|x| *x > 2.0) {
            found.push(Warning::StepTooLarge { step_curvature });
        }
        found
    }
}

impl Diagnostics {
    /// A size of z that growth up to it says nothing of: ten times the ‖f_θ‖/curvature it settles at, or 1 where that is not
    /// known.
    fn settled_adjoint(&self) -> Option<f64> {
        let settled = self.outer_gradient_norm.zip(self.curvature).map(|(f_theta, r)| GROWTH * f_theta / r.abs());
        Some(settled.filter(|size| size.is_finite()).unwrap_or(1.0))
    }
}

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

/// ‖z‖ after an inner loop, and its growth where it was not 0 before.
pub(crate) fn adjoint(before: &[Array], after: &[Array]) -> Diagnostics {
    let (before, after) = (norm(before), norm(after));
    Diagnostics {
        adjoint_norm: Some(after),
        adjoint_growth: (before > 0.0).then_some(after / before),
        ..Diagnostics::default()
    }
}
