//! D-TFBO: every step size follows from the gradients so far, so there is none to choose. From Yang, Ban, Huang, Ma and
//! Ji, "Tuning-free bilevel optimization: new algorithms and convergence analysis", ICLR 2025.
//!
//!   β² ← β² + ‖∇θL_T‖²,   θ ← θ − ∇θL_T/β,   until ‖∇θL_T‖ ≤ ε        from β = 1/γ in every hypergradient
//!   φ² ← φ² + ‖r‖²,   v ← v − r/φ,   until ‖r‖ ≤ ε,   r = H·v − f_θ        from φ = 1/γ in every hypergradient
//!   α² ← α² + ‖D‖²,   h = D/α,   D = f_λ − vᵀ·C                              α from 1 on, kept
//!
//! θ, v and α² are kept from one hypergradient to the next. **Also prescribes the step of λ: h is that step**, for an
//! outer optimizer with plain steps at rate 1; the hypergradient itself is α·h. γ is the largest possible step; the
//! published method also starts from 1 over a number, and converges for every choice. Training and the solve end after
//! at most T and i steps. The published loops check the residual before every step, and these after every ten, so they
//! may take up to ten more. At a fixed λ the error of α·h is O(ε).

use crate::compiled::norms::square_norm;
use crate::hypergradient::parts::implicit::{CurvatureProduct, Ending, Implicit, until_small};
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::InnerStart;
use crate::problem::variable::Role;
use bilevel_graph::gradient;

/// Settings of D-TFBO.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::DTfbo;
/// use bilevel::{Driver, Leaf, Problem, Variable};
/// // θ(λ) = λ, and f is least where θ is 1; curvatures of 1000 and of 0.01 need no other settings.
/// for curvature in [1000.0, 0.01] {
///     let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///         .inner(move |_, l, t| (t.0 - l.0).square() * (0.5 * curvature))
///         .outer(|_, _, t| (t.0 - 1.0).square() * 0.5)
///         .build()?;
///     let method = DTfbo { tolerance: 1e-6, ..DTfbo::default() };
///     let outcome = Driver::new(&problem, method).rate(1.0).iterations(100).run()?;
///     assert!((outcome.lambda.0.item().unwrap() - 1.0).abs() < 1e-3);
/// }
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DTfbo {
    /// At most this many steps i of v, at least 1.
    pub iterations: usize,
    /// The tolerance ε, above 0; 1 over the root of the outer iterations in the published proof.
    pub tolerance: f64,
}

impl Default for DTfbo {
    fn default() -> Self {
        DTfbo { iterations: 1000, tolerance: 0.01 }
    }
}

struct Prepared {
    settings: DTfbo,
    implicit: Implicit,
    start: InnerStart,
    training: Routine,
    solving: Routine,
    ending: Routine,
    warm: Warm<2>,
    norm: LazyNorm,
}

impl Method for DTfbo {
    named!("d-tfbo");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        let DTfbo { iterations, tolerance } = *self;
        positive("tolerance", tolerance)?;
        count("iterations", iterations, 1)?;
        inner.check_for(self)?;
        Ok(Box::new(Prepared {
            settings: *self,
            implicit: Implicit::new(session, *inner, Ending { scale: 1.0, proximal: None })?,
            start: InnerStart::new(session)?,
            training: training_program(session)?,
            solving: solving_program(inner, session)?,
            ending: ending_program(session)?,
            warm: Warm::new(session, [Like::Theta, Like::Number]),
            norm: LazyNorm::new(session.executor()),
        }))
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(1.0, 1000)
    }

    fn tune(&mut self, task: InnerLoop, _curvature: f64) -> InnerLoop {
        // The method chooses its own steps, so the task's are not used.
        self.iterations = task.steps;
        InnerLoop { step: 1.0, ..self.loop_use().adapt(task) }
    }

    fn converge(&mut self, scale: &Scale) {
        (self.iterations, self.tolerance) = (scale.steps, Scale::TOLERANCE);
    }

    fn claims(&self) -> Claims {
        Claims { promise: Promise::Direction, minimum: true, ..Claims::default() }
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse { descent: Descent::Adaptive, stops_at_tolerance: true, ..LoopUse::OWN_STEPS }
    }

    fn output(&self) -> crate::methods::Output {
        crate::methods::Output::Step
    }
}

/// 1/√(seen + ‖x‖²), the new sum, and ‖x‖² itself.
fn normalised(graph: &Graph, seen: Tensor, x: &[Tensor]) -> (Tensor, Tensor, Tensor) {
    let square = square_norm(x).unwrap_or(graph.scalar(0.0, DType::F64));
    let sum = seen + square;
    (1.0 / sum.sqrt(), sum, square)
}

fn training_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let seen = graph.input("seen.0", [], DType::F64);
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    let (length, sum, square) = normalised(&graph, seen, &slope);
    let mut builder = Program::builder(&graph).output("square", square).carry(seen, sum);
    for (i, (_, variable)) in session.problem().theta.iter().enumerate() {
        let next = match variable.role {
            Role::Statistic => updates[i].unwrap_or(theta[i]),
            _ => theta[i] - slope[i] * (length * variable.rate).convert(theta[i].dtype()),
        };
        builder = builder.carry(theta[i], next);
    }
    Routine::new(&builder.build()?, session)
}

fn solving_program(inner: &InnerLoop, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let [v, f_theta] = ["v", "f_theta"].map(|name| trace.inputs_like(name, &trace.theta));
    let seen = graph.input("seen.0", [], DType::F64);
    let residual: Vec<Tensor> = CurvatureProduct::Hessian
        .times(inner, &trace, &v)?
        .iter()
        .zip(&f_theta)
        .map(|(product, f)| *product - *f)
        .collect();
    let (length, sum, square) = normalised(&graph, seen, &residual);
    let mut builder = Program::builder(&graph).output("square", square).carry(seen, sum);
    for (v, r) in v.iter().zip(residual) {
        builder = builder.carry(*v, *v - r * length.convert(v.dtype()));
    }
    Routine::new(&builder.build()?, session)
}

/// D times the number `length.0`.
fn ending_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (d, length) = (trace.inputs_like("d", &trace.lambda), graph.input("length.0", [], session.problem().dtype));
    let mut builder = Program::builder(&graph);
    for (i, d) in d.into_iter().enumerate() {
        builder = builder.output(format!("h.{i}"), d * length);
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let [v, seen] = self.warm.of(state)?.groups;
        let DTfbo { iterations, tolerance } = self.settings;
        let (steps, first) = (self.implicit.inner.steps, gamma.powi(-2));
        self.start.place(&state.lambda, &state.theta, key)?;
        self.training.bind_point(&state.lambda, &state.theta, key)?;
        self.training.set_numbers("seen", [first])?;
        let inner_gradients = until_small(&mut self.training, tolerance, steps)? as u64;
        let point = self.implicit.here(state, key)?;
        point.place(&mut self.solving)?;
        self.solving.bind("v", &v)?;
        self.solving.bind("f_theta", &point.f_theta)?;
        self.solving.set_numbers("seen", [first])?;
        let products = until_small(&mut self.solving, tolerance, iterations)?;
        let found = self.implicit.finish(point, &v, products, Cause::InnerStepTooLarge)?;
        let sum = number(&seen)? + self.norm.of(&found.value)?.powi(2);
        set_number(&seen, sum)?;
        self.ending.bind("d", &found.value)?;
        self.ending.set_numbers("length", [1.0 / (1.0 + sum).sqrt()])?;
        let value = self.ending.fresh_outputs("h")?;
        self.ending.run(0..1)?;
        self.ending.unbind("d")?;
        Ok(Hypergradient { value, oracles: Oracles { inner_gradients, ..found.oracles }, ..found })
    }
}
