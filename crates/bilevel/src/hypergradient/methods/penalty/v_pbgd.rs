//! V-PBGD: descent on the outer loss plus a penalty on the gap between the inner loss and its minimum. From Shen and
//! Chen, "On penalty-based bilevel gradient descent method", ICML 2023.
//!
//!   θ ← θ − γ·∇θL_T(λ, θ), T times
//!   h = f_λ(λ, y) + σ·(∂λL_T(λ, y) − ∂λL_T(λ, θ)),   y ← y − γ·(∇θL_T(λ, y) + f_θ(λ, y)/σ)        both at the same y
//!
//! Needs no product with a Hessian. θ and y are carried from one hypergradient to the next. θ is the result of training
//! alone, and y, which the outer loss also acts on, are the published method's parameters. λ and y are meant to move
//! together: the published step is along (h, f_θ + σ·∇θL_T). The outer optimizer applies the part of λ, and y moves
//! here by γ/σ. Once both have settled, h is the exact derivative of min over y of f + σ·(L_T − min L_T): its bias is
//! O(1/σ). While λ moves, σ multiplies the lag of training: with a large penalty use many steps, or an outer rate well
//! below 1/σ.

use crate::hypergradient::parts::penalty::{Pace, Penalised};
use crate::hypergradient::vocabulary::*;

/// Settings of V-PBGD.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::VPbgd;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ; with the penalty σ it is λ·σ/(σ + 1).
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = VPbgd { penalty: 9.0 }.prepare_in(&session, &InnerLoop::new(0.5, 10))?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let h = (0..100).map(|_| estimator.estimate(&mut state, Key::from_seed(0))).last().unwrap()?;
/// assert!((h.value[0].item()? - 1.8).abs() < 1e-12);
/// assert_eq!(h.oracles.hessian_products + h.oracles.mixed_products, 0);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VPbgd {
    /// The penalty σ, above 0.
    pub penalty: f64,
}

impl Default for VPbgd {
    fn default() -> Self {
        VPbgd { penalty: 10.0 }
    }
}

struct Prepared {
    penalty: f64,
    penalised: Penalised,
    warm: Warm<1>,
}

impl Method for VPbgd {
    named!("v-pbgd");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        positive("penalty", self.penalty)?;
        inner.check_for(self)?;
        let penalised = Penalised::new(session, *inner, Pace::Once)?;
        Ok(Box::new(Prepared { penalty: self.penalty, penalised, warm: Warm::new(session, [Like::Theta]) }))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::OWN_STEPS
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 10)
    }

    fn tune(&mut self, task: InnerLoop, curvature: f64) -> InnerLoop {
        // y takes a single step, and so the largest that is surely stable; the outer loss adds some curvature.
        InnerLoop { step: task.step.max(0.5 / curvature), ..self.loop_use().adapt(task) }
    }

    fn converge(&mut self, scale: &Scale) {
        self.penalty = scale.penalty.unwrap_or(self.penalty);
    }

    fn claims(&self) -> Claims {
        Claims { promise: Promise::InversePenalty, settling: Settling::StepByStep, minimum: true, ..Claims::default() }
    }

    fn output(&self) -> crate::methods::Output {
        // The published step moves λ and y together: y by γ on L_T + f/σ is γ/σ on f + σ·L_T.
        crate::methods::Output::Direction { penalty: Some(self.penalty) }
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let kept = self.warm.of(state)?;
        self.penalised.advance(state, (&kept.groups[0], kept.fresh), self.penalty, (key, gamma))
    }

    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        self.warm.of(state)?.groups[0].copy_from(theta)?;
        state.theta.copy_from(theta)
    }
}
