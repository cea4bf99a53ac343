//! MEHA: descent on f plus a penalty on the gap between the inner loss and its Moreau envelope. From Liu, Liu, Yao,
//! Zeng and Zhang, "Moreau envelope for nonconvex bi-level optimization: a single-loop and Hessian-free solution
//! strategy", ICML 2024.
//!
//!   w ← w − γ·(∇θL_T(λ, w) + ρ·(w − θ))                              towards the proximal point of θ
//!   h = f_λ(λ, θ) + c·(∂λL_T(λ, θ) − ∂λL_T(λ, w))                    with the new w
//!   θ ← θ − γ·(f_θ(λ, θ)/c + ∇θL_T(λ, θ) − ρ·(θ − w))                also with the new w c = c₀·(k + 1)ᵖ in the k-th
//!   hypergradient, counted from 0
//!
//! Needs no product with a Hessian, and T such steps for a hypergradient, with h of the last; the published method has
//! T = 1. **Prescribes how λ, θ and w move together, and h is c times its direction of λ**, in the units of a
//! hypergradient. In the publication θ moves after λ, by the slopes at the new λ, and here before it, by those at the
//! old one. θ, w and k are kept. At a fixed λ and c, h settles at the exact derivative of min over θ of f + c·(L_T −
//! envelope), which is O(1/c) away from the hypergradient. While λ moves, c multiplies the lag of training: with a
//! large penalty use many steps, or an outer rate well below 1/c.

use crate::hypergradient::parts::penalty::{Slopes, carry, inner_by_lambda};
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::InnerStart;

/// Settings of MEHA.
///
/// Assumes that training reaches the inner minimum, so it ignores a θ⁰ that depends on λ; refused if λ acts only
/// through θ⁰.
///
/// ```
/// use bilevel::methods::Meha;
/// use bilevel::{Driver, InnerLoop, Leaf, Problem, Variable};
/// // θ(λ) = λ, and f is least where θ is 1.
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| (t.0 - 1.0).square() * 0.5)
///     .build()?;
/// let (method, inner) = (Meha { rho: 0.1, ..Meha::default() }, InnerLoop::new(0.3, 10));
/// let outcome = Driver::new(&problem, method).inner(inner).rate(0.1).iterations(500).run()?;
/// assert!((outcome.lambda.0.item().unwrap() - 1.0).abs() < 1e-6);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Meha {
    /// Strength ρ of the proximal term, above 0; 1/γ in the letters of the publication.
    pub rho: f64,
    /// The first penalty c₀, above 0.
    pub penalty: f64,
    /// How the penalty grows: p, at least 0 and, for the published proof, below ½.
    pub power: f64,
}

impl Default for Meha {
    fn default() -> Self {
        Meha { rho: 0.1, penalty: 10.0, power: 0.25 }
    }
}

struct Prepared {
    settings: Meha,
    inner: InnerLoop,
    start: InnerStart,
    step: Routine,
    warm: Warm<2>,
    starts_from_lambda: bool,
}

impl Method for Meha {
    named!("meha");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        positive("rho", self.rho)?;
        positive("penalty", self.penalty)?;
        at_least_0("power", self.power)?;
        inner.check_for(self)?;
        Ok(Box::new(Prepared {
            settings: *self,
            inner: *inner,
            start: InnerStart::new(session)?,
            step: step_program(self.rho, session)?,
            warm: Warm::new(session, [Like::Theta, Like::Number]),
            starts_from_lambda: session.problem().starts_from_lambda(),
        }))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::OWN_STEPS
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 1)
    }

    fn converge(&mut self, scale: &Scale) {
        // A proximal term that is part of the problem, or one that bends less than the inner loss does anywhere.
        self.rho = scale.proximal.unwrap_or(0.1 * scale.smallest_curvature);
        self.penalty = scale.penalty.unwrap_or(self.penalty);
    }

    fn claims(&self) -> Claims {
        Claims { promise: Promise::InversePenalty, minimum: true, ..Claims::default() }
    }

    fn output(&self) -> crate::methods::Output {
        crate::methods::Output::Direction { penalty: None }
    }
}

fn step_program(rho: f64, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let (w, c) = (trace.inputs_like("w", theta), graph.input("penalty.0", [], session.problem().dtype));
    let slopes_w = Slopes::new(&trace, &w, step)?;
    let back: Vec<Tensor> = (0..w.len()).map(|i| slopes_w.inner_theta[i] + (w[i] - theta[i]) * rho).collect();
    let w_next = slopes_w.step(&trace, &w, &back);
    let at = Slopes::new(&trace, theta, step)?;
    let direction: Vec<Tensor> =
        (0..theta.len()).map(|i| at.outer_theta[i] / c + at.inner_theta[i] - (theta[i] - w_next[i]) * rho).collect();
    let there = inner_by_lambda(&trace, &w_next, step)?;
    let mut builder = Program::builder(&graph).keep_input(c);
    builder = carry(carry(builder, &w, &w_next), theta, &at.step(&trace, theta, &direction));
    for (i, there) in there.into_iter().enumerate() {
        builder = builder.output(format!("h.{i}"), at.outer_lambda[i] + (at.inner_lambda[i] - there) * c);
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let kept = self.warm.of(state)?;
        let [w, count] = kept.groups;
        self.start.place(&state.lambda, &state.theta, key)?;
        if kept.fresh || self.starts_from_lambda {
            w.copy_from(&state.theta)?;
        }
        let so_far = number(&count)?;
        self.inner.place(&mut self.step, gamma)?;
        self.step.bind_point(&state.lambda, &state.theta, key)?;
        self.step.bind("w", &w)?;
        self.step.set_numbers("penalty", [self.settings.penalty * (so_far + 1.0).powf(self.settings.power)])?;
        let value = self.step.fresh_outputs("h")?;
        self.step.run(0..self.inner.steps as u32)?;
        set_number(&count, so_far + 1.0)?;
        // At w and at θ, and in the last step by λ at the new w.
        let steps = self.inner.steps as u64;
        let oracles = Oracles { inner_gradients: 2 * steps + 1, outer_gradients: steps, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles))
    }

    fn restart(&mut self, state: &mut State, theta: &Leaves) -> Result<()> {
        self.warm.of(state)?.groups[0].copy_from(theta)?;
        state.theta.copy_from(theta)
    }
}
