//! SAMA: gradients alone, with the identity for the inverse Hessian, and with the optimizer of the inner loop. From
//! Choe, Mehta, Ahn, Neiswanger, Xie, Strubell and Xing, "Making scalable meta learning practical", NeurIPS 2023.
//!
//!   θ ← θ − u(∇θL_T(θ)), T times              u is γ times the direction of the inner optimizer
//!   v = (∂u/∂g)ᵀ·f_θ                           g the gradient at the last θ, u with the optimizer's state there
//!   h = f_λ − \[∂λL_T(θ + εv) − ∂λL_T(θ − εv)\]/(2ε),   ε = radius/‖v‖
//!
//! The quotient approximates vᵀ·C: it is exact if ∂λL_T is quadratic in θ, otherwise O(radius²) off. It needs no
//! product with a Hessian. It approximates the derivative through one more step of training, f_λ − f_θᵀ·(∂u/∂g)·C. The
//! indirect term is its correct value times about γ times the curvature, and is rotated if curvatures differ.

use crate::compiled::trace::as_variables;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{InnerStart, SLOTS, outer_gradient};
use bilevel_graph::{gradient, vjp};

/// Settings of SAMA.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::Sama;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ²: through one more step of 0.5, half the hypergradient λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let (method, inner) = (Sama::default(), InnerLoop::new(0.5, 100));
/// let h = method.prepare_in(&session, &inner)?.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item()? - 1.0).abs() < 1e-12);
/// assert_eq!(h.oracles.hessian_products + h.oracles.mixed_products, 0);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sama {
    /// How far θ is moved to either side for the difference, above 0.
    pub radius: f64,
}

impl Default for Sama {
    fn default() -> Self {
        Sama { radius: 0.01 }
    }
}

struct Prepared {
    radius: f64,
    inner: InnerLoop,
    start: InnerStart,
    walk: Routine,
    outer: Routine,
    adapting: Routine,
    difference: Routine,
    norm: LazyNorm,
}

impl Method for Sama {
    named!("sama");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        positive("radius", self.radius)?;
        inner.check_for(self)?;
        Ok(Box::new(Prepared {
            radius: self.radius,
            inner: *inner,
            start: InnerStart::new(session)?,
            walk: inner.walk(session)?,
            outer: outer_gradient(session)?,
            adapting: adapting_program(inner, session)?,
            difference: difference_program(session)?,
            norm: LazyNorm::new(session.executor()),
        }))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse { noise: Noise::Never, fewest_samples: 1, ..LoopUse::MINIMUM }
    }

    fn tune(&mut self, task: InnerLoop, curvature: f64) -> InnerLoop {
        // The indirect term is γ × curvature times its right size, which this step brings close to 1.
        InnerLoop { step: task.step.max(1.0 / curvature), ..self.loop_use().adapt(task) }
    }

    fn claims(&self) -> Claims {
        // Exact if every curvature is 1/γ, so that training converges in one step.
        Claims { minimum: true, only: Some(Condition::OneCurvature), ..Claims::default() }
    }
}

/// v from `f_theta`: the step differentiated by its gradient, which counts as an independent variable.
fn adapting_program(inner: &InnerLoop, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let f_theta = trace.inputs_like("f_theta", theta);
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let slope = as_variables(&or_zeros(gradient(loss, theta)?, theta));
    let taken = inner.one_step(&trace, &slope, &updates, step);
    let by = or_zeros(vjp(&taken.next(), &f_theta, &slope)?, theta);
    let mut builder = f_theta.iter().fold(Program::builder(&graph), |builder, &f| builder.keep_input(f));
    builder = taken.slots.iter().fold(builder, |builder, (slot, _)| builder.keep_input(*slot));
    for (i, by) in by.into_iter().enumerate() {
        // θ becomes θ − u.
        builder = builder.output(format!("v.{i}"), -by);
    }
    Routine::new(&builder.build()?, session)
}

/// h = f_λ − \[∂λL_T(θ + εv) − ∂λL_T(θ − εv)\]/(2ε).
fn difference_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, step) = (&trace.lambda, graph.step());
    let (direct, v) = (trace.inputs_like("direct", lambda), trace.inputs_like("v", &trace.theta));
    let epsilon = graph.input("epsilon.0", [], session.problem().dtype);
    let slope = |sign: f64| -> Result<Vec<Tensor>> {
        let moved: Vec<Tensor> = trace.theta.iter().zip(&v).map(|(t, v)| *t + *v * (epsilon * sign)).collect();
        Ok(or_zeros(gradient(trace.inner(&moved, step)?, lambda)?, lambda))
    };
    let (ahead, behind) = (slope(1.0)?, slope(-1.0)?);
    let mut builder = Program::builder(&graph).keep_input(epsilon);
    builder = v.iter().fold(builder, |builder, &v| builder.keep_input(v));
    for i in 0..lambda.len() {
        builder = builder.output(format!("h.{i}"), direct[i] - (ahead[i] - behind[i]) / (epsilon * 2.0));
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let (lambda, theta) = (&state.lambda, &state.theta);
        self.start.place(lambda, theta, key)?;
        self.inner.place(&mut self.walk, gamma)?;
        self.walk.bind_point(lambda, theta, key)?;
        self.walk.run(0..self.inner.steps as u32)?;
        let (direct, f_theta) = (self.outer.outputs("direct")?, self.outer.outputs("f_theta")?);
        self.outer.bind_point(lambda, theta, key)?;
        self.outer.run(self.inner.last())?;
        self.inner.place(&mut self.adapting, gamma)?;
        self.adapting.bind_point(lambda, theta, key)?;
        self.adapting.bind("f_theta", &f_theta)?;
        if self.inner.has_slots() {
            self.adapting.bind(SLOTS, &self.walk.inputs(SLOTS)?)?;
        }
        let v = self.adapting.outputs("v")?;
        self.adapting.run(self.inner.last())?;
        let size = self.norm.of(&v)?;
        self.difference.bind_point(lambda, theta, key)?;
        self.difference.bind("direct", &direct)?;
        self.difference.bind("v", &v)?;
        // If v is 0, ε has no effect.
        self.difference.set_numbers("epsilon", [if size == 0.0 { 1.0 } else { self.radius / size }])?;
        let value = self.difference.fresh_outputs("h")?;
        self.difference.run(self.inner.last())?;
        let inner_gradients = self.inner.steps as u64 + 2 + self.inner.has_slots() as u64;
        let oracles = Oracles { inner_gradients, outer_gradients: 1, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles).with_outer_loss(self.outer.number("outer")?))
    }
}
