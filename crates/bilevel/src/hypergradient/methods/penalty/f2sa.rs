//! F²SA (Kwon, Kwon, Wright and Nowak, "A fully first-order method for stochastic bilevel optimization", ICML 2023):
//! gradients alone, with a penalty that grows.
//!
//!   θ ← θ − γ·∇θL_T(λ, θ),   y ← y − γ·(∇θL_T(λ, y) + f_θ(λ, y)/σ),   T times
//!   h = f_λ(λ, y) + σ·(∂λL_T(λ, y) − ∂λL_T(λ, θ)),   then σ ← σ + δ
//!
//! Needs no product with a Hessian. θ, y and the count that determines σ are kept from one hypergradient to the next. θ
//! is the result of training alone, and y, which the outer loss also acts on, belongs to the method. Once both have
//! settled, h is the exact derivative of min over y of f + σ·(L_T − min L_T): its bias is O(1/σ). The published step of
//! y is γ/σ on f + σ·L_T, which is equivalent. While λ moves, σ multiplies the lag of training: with a large penalty
//! use many steps, or an outer rate well below 1/σ.

use crate::hypergradient::parts::penalty::{Pace, Penalised};
use crate::hypergradient::vocabulary::*;

/// Settings of F²SA.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::F2sa;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ; with the penalty σ it is λ·σ/(σ + 1).
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let (method, inner) = (F2sa { penalty: 9.0, ..F2sa::default() }, InnerLoop::new(0.5, 100));
/// let h = method.prepare_in(&session, &inner)?.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item()? - 1.8).abs() < 1e-12);
/// assert_eq!(h.oracles.hessian_products + h.oracles.mixed_products, 0);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct F2sa {
    /// The first penalty σ, above 0.
    pub penalty: f64,
    /// The increase of σ after each hypergradient, at least 0.
    pub growth: f64,
}

impl Default for F2sa {
    fn default() -> Self {
        F2sa { penalty: 10.0, growth: 0.1 }
    }
}

struct Prepared {
    settings: F2sa,
    penalised: Penalised,
    warm: Warm<2>,
}

impl Method for F2sa {
    named!("f2sa");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        positive("penalty", self.penalty)?;
        at_least_0("growth", self.growth)?;
        inner.check_for(self)?;
        let penalised = Penalised::new(session, *inner, Pace::EveryStep)?;
        Ok(Box::new(Prepared { settings: *self, penalised, warm: Warm::new(session, [Like::Theta, Like::Number]) }))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::OWN_STEPS
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 10)
    }

    fn converge(&mut self, scale: &Scale) {
        self.penalty = scale.penalty.unwrap_or(self.penalty);
    }

    fn claims(&self) -> Claims {
        Claims { promise: Promise::InversePenalty, minimum: true, ..Claims::default() }
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let kept = self.warm.of(state)?;
        let [y, count] = kept.groups;
        let so_far = number(&count)?;
        let penalty = self.settings.penalty + self.settings.growth * so_far;
        let found = self.penalised.advance(state, (&y, kept.fresh), penalty, (key, gamma))?;
        set_number(&count, so_far + 1.0)?;
        Ok(found)
    }

    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        self.warm.of(state)?.groups[0].copy_from(theta)?;
        state.theta.copy_from(theta)
    }
}
