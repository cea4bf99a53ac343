//! G-PBGD (Shen and Chen, "On penalty-based bilevel gradient descent method", ICML 2023): descent on the outer loss
//! plus a penalty on the slope of the inner loss.
//!
//!   h = f_λ + 2σ·∇θL_Tᵀ·C,   θ ← θ − γ·(f_θ/σ + 2·H·∇θL_T)        both at the same (λ, θ), T times
//!
//! The derivative of the penalty ‖∇θL_T‖² has a product with H and one with C along the gradient itself, which are one
//! reverse pass. It needs no solve, but it does need second derivatives. There is one θ, at which the slope of the
//! inner loss is small and not 0. Once it has settled, 2σ·H·∇θL_T = −f_θ, so that h is f_λ − f_θᵀ·H⁻¹·C at a θ that is
//! O(1/σ) from the minimum. λ and θ are meant to move together: the published step is along (h, f_θ + 2σ·H·∇θL_T). The
//! outer optimizer applies the part of λ, and θ moves here by γ/σ. The penalty has curvature 2·H², so γ must be below 1
//! over the square of the largest curvature. Directions in which the inner loss is flat take the square of the usual
//! time. While λ moves, σ multiplies the lag of training: with a large penalty use many steps, or an outer rate well
//! below 1/σ.

use crate::hypergradient::parts::penalty::{Slopes, carry};
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::InnerStart;
use bilevel_graph::vjp;

/// Settings of G-PBGD.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::GPbgd;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ; with the penalty σ it is λ·2σ/(2σ + 1).
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let (method, inner) = (GPbgd { penalty: 4.5 }, InnerLoop::new(0.25, 100));
/// let h = method.prepare_in(&session, &inner)?.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item()? - 1.8).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GPbgd {
    /// The penalty σ, above 0.
    pub penalty: f64,
}

impl Default for GPbgd {
    fn default() -> Self {
        GPbgd { penalty: 10.0 }
    }
}

struct Prepared {
    inner: InnerLoop,
    start: InnerStart,
    step: Routine,
}

impl Method for GPbgd {
    named!("g-pbgd");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        positive("penalty", self.penalty)?;
        inner.check_for(self)?;
        Ok(Box::new(Prepared {
            inner: *inner,
            start: InnerStart::new(session)?,
            step: step_program(self.penalty, session)?,
        }))
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 1)
    }

    fn tune(&mut self, task: InnerLoop, curvature: f64) -> InnerLoop {
        // The penalty bends more than the inner loss does.
        InnerLoop { step: task.step.min(0.5 / curvature.powi(2)), ..self.loop_use().adapt(task) }
    }

    fn converge(&mut self, scale: &Scale) {
        self.penalty = scale.penalty.unwrap_or(self.penalty);
    }

    fn claims(&self) -> Claims {
        Claims {
            promise: Promise::InversePenalty,
            minimum: true,
            only: Some(Condition::WellConditioned),
            ..Claims::default()
        }
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse { descent: Descent::Penalised { penalty: self.penalty }, ..LoopUse::OWN_STEPS }
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

fn step_program(penalty: f64, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let slopes = Slopes::new(&trace, theta, step)?;
    // Half the derivative of ‖∇θL_T‖², by λ and by θ.
    let both = [&lambda[..], theta].concat();
    let half = or_zeros(vjp(&slopes.inner_theta, &slopes.inner_theta, &both)?, &both);
    let (mixed, hessian) = half.split_at(lambda.len());
    let pull = |(outer, product): (&Tensor, &Tensor)| *outer / penalty + *product * 2.0;
    let direction: Vec<Tensor> = slopes.outer_theta.iter().zip(hessian).map(pull).collect();
    let mut builder = Program::builder(&graph);
    builder = carry(builder, theta, &slopes.step(&trace, theta, &direction));
    for (i, (direct, mixed)) in slopes.outer_lambda.iter().zip(mixed).enumerate() {
        builder = builder.output(format!("h.{i}"), *direct + *mixed * (2.0 * penalty));
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        self.inner.place(&mut self.step, gamma)?;
        self.step.bind_point(&state.lambda, &state.theta, key)?;
        let value = self.step.fresh_outputs("h")?;
        self.step.run(0..self.inner.steps as u32)?;
        let steps = self.inner.steps as u64;
        // The terms of h alone are computed only in the last step.
        let oracles = Oracles {
            inner_gradients: steps,
            outer_gradients: steps,
            hessian_products: steps,
            mixed_products: 1,
            losses: 0,
        };
        Ok(Hypergradient::new(value, oracles))
    }
}
