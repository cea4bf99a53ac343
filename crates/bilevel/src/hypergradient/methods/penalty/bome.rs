//! BOME (Liu, Ye, Wright, Stone and Liu, "BOME! Bilevel optimization made easy: a simple first-order approach",
//! NeurIPS 2022): descent on f that lowers the inner loss at least as fast as a dynamic barrier requires.
//!
//!   w = θ after T plain steps of γ,   q(λ, θ) = L_T(λ, θ) − L_T(λ, w) with w held fixed
//!   μ = max(0, η − ⟨∇f, ∇q⟩/‖∇q‖²),        gradients by λ and θ together
//!   h = f_λ + μ·q_λ,   θ ← θ − γ·(f_θ + μ·q_θ)
//!
//! Needs no product with a Hessian. ****Prescribes how λ and θ move together, and h is the part for λ**, the direction
//! passed to the outer optimizer. It is not an estimate of the hypergradient at a fixed λ. If λ and θ both settle, and
//! T steps suffice to train, the hypergradient is O(γ) and not 0: the barrier keeps θ a step away from the minimum.

use crate::hypergradient::parts::penalty::{Slopes, carry, inner_by_lambda};
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::InnerStart;

/// Settings of BOME.
///
/// Assumes that training reaches the inner minimum, so it ignores a θ⁰ that depends on λ; refused if λ acts only
/// through θ⁰.
///
/// ```
/// use bilevel::methods::Bome;
/// use bilevel::{Driver, InnerLoop, Leaf, Problem, Variable};
/// // θ(λ) = λ, and f is least where θ is 1.
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| (t.0 - 1.0).square() * 0.5)
///     .build()?;
/// let (method, inner) = (Bome::default(), InnerLoop::new(0.1, 10));
/// let outcome = Driver::new(&problem, method).inner(inner).rate(0.1).iterations(1000).run()?;
/// assert!((outcome.lambda.0.item().unwrap() - 1.0).abs() < 1e-3);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bome {
    /// How fast the inner loss has to fall, in squares of its slope: η, above 0.
    pub barrier: f64,
}

impl Default for Bome {
    fn default() -> Self {
        Bome { barrier: 0.5 }
    }
}

struct Prepared {
    inner: InnerLoop,
    start: InnerStart,
    walk: Routine,
    ending: Routine,
    session: Session,
    /// w.
    ahead: Option<Leaves>,
}

impl Method for Bome {
    named!("bome");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        positive("barrier", self.barrier)?;
        inner.check_for(self)?;
        Ok(Box::new(Prepared {
            inner: *inner,
            start: InnerStart::new(session)?,
            walk: inner.walk(session)?,
            ending: ending_program(self.barrier, session)?,
            session: session.clone(),
            ahead: None,
        }))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::OWN_STEPS
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 10)
    }

    fn claims(&self) -> Claims {
        // A descent direction of the outer loss once θ has settled as far as a fixed λ allows.
        let only = Some(Condition::WellConditioned);
        let (promise, settling) = (Promise::Descent, Settling::StepByStep);
        Claims { promise, settling, minimum: true, only, ..Claims::default() }
    }

    fn output(&self) -> crate::methods::Output {
        crate::methods::Output::Direction { penalty: None }
    }
}

fn ending_program(barrier: f64, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let ahead = trace.inputs_like("ahead", theta);
    let at = Slopes::new(&trace, theta, step)?;
    let there = inner_by_lambda(&trace, &ahead, step)?;
    let fall: Vec<Tensor> = at.inner_lambda.iter().zip(&there).map(|(here, there)| *here - *there).collect();
    let both = |a: &[Tensor], b: &[Tensor]| a.iter().chain(b).copied().collect::<Vec<_>>();
    let (f, q) = (both(&at.outer_lambda, &at.outer_theta), both(&fall, &at.inner_theta));
    let zero = graph.scalar(0.0, session.problem().dtype);
    let dot = |a: &[Tensor], b: &[Tensor]| a.iter().zip(b).fold(zero, |sum, (a, b)| sum + (*a * *b).sum_all());
    let square = dot(&q, &q);
    // If q is flat, there is nothing to lower.
    let flat = square.equal(0.0);
    let along = flat.select(0.0, dot(&f, &q) / flat.select(1.0, square));
    let weight = (barrier - along).maximum(0.0);
    let combined: Vec<Tensor> = f.iter().zip(&q).map(|(f, q)| *f + *q * weight).collect();
    let (h, direction) = combined.split_at(trace.lambda.len());
    let mut builder = Program::builder(&graph);
    builder = ahead.iter().fold(builder, |builder, &w| builder.keep_input(w));
    builder = carry(builder, theta, &at.step(&trace, theta, direction));
    for (i, h) in h.iter().enumerate() {
        builder = builder.output(format!("h.{i}"), *h);
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        let ahead = match &self.ahead {
            Some(ahead) => ahead.clone(),
            None => self.ahead.insert(state.theta.zeros_like(self.session.executor())?).clone(),
        };
        ahead.copy_from(&state.theta)?;
        self.inner.place(&mut self.walk, gamma)?;
        self.walk.bind_point(&state.lambda, &ahead, key)?;
        self.walk.run(0..self.inner.steps as u32)?;
        self.inner.place(&mut self.ending, gamma)?;
        self.ending.bind_point(&state.lambda, &state.theta, key)?;
        self.ending.bind("ahead", &ahead)?;
        let value = self.ending.fresh_outputs("h")?;
        self.ending.run(self.inner.last())?;
        let inner_gradients = self.inner.steps as u64 + 2;
        let oracles = Oracles { inner_gradients, outer_gradients: 1, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles))
    }
}
