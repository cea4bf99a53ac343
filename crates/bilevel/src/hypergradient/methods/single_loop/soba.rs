//! SOBA: θ, the solution v of the linear system and λ each move by one step at a time. From Dagréou, Ablin, Vaiter and
//! Moreau, "A framework for bilevel optimization that enables stochastic and global variance reduction algorithms",
//! NeurIPS 2022.
//!
//!   h = f_λ − vᵀ·C,   θ ← θ − γ·∇θL_T,   v ← v − γ·(H·v − f_θ)        all at the same (λ, θ, v), T times
//!
//! θ and v are carried from one hypergradient to the next. The hypergradient is that of the last of T steps, before the
//! step; with T = 1 and plain descent on λ this is the published method. At a fixed λ it is exact once θ and v have
//! converged; if λ moves, it lags behind.

use crate::hypergradient::parts::single_loop::SingleLoop;
use crate::hypergradient::vocabulary::*;

/// Settings of SOBA.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::Soba;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = Soba::default().prepare_in(&session, &InnerLoop::new(0.5, 1))?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let found = (0..80).map(|_| estimator.estimate(&mut state, Key::from_seed(0))).last().unwrap()?;
/// assert!((found.value[0].item()? - 2.0).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Soba {}

struct Prepared {
    single: SingleLoop,
    warm: Warm<1>,
    norm: LazyNorm,
}

impl Method for Soba {
    named!("soba");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        let single = SingleLoop::new(session, *inner)?;
        let norm = LazyNorm::new(session.executor());
        Ok(Box::new(Prepared { single, warm: Warm::new(session, [Like::Theta]), norm }))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::OWN_STEPS
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 1)
    }

    fn claims(&self) -> Claims {
        Claims { minimum: true, minibatches: true, ..Claims::default() }
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let [v] = self.warm.of(state)?.groups;
        let before = self.norm.of(&v)?;
        let mut found = self.single.advance(state, &v, (key, gamma))?;
        found.diagnostics = adjoint(before, self.norm.of(&v)?);
        Ok(found)
    }
}
