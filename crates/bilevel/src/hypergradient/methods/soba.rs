//! SOBA (Dagréou, Ablin, Vaiter and Moreau, "A framework for bilevel optimization that enables stochastic and global variance
//! reduction algorithms", NeurIPS 2022): θ, the solution v of the linear system and λ all move by one step at a time.
//!
//!   h = f_λ − vᵀ·C,   θ ← θ − γ·∇θL_T,   v ← v − γ·(H·v − f_θ)        all at the same (λ, θ, v), T times
//!
//! θ and v are kept from one hypergradient to the next. The hypergradient is that of the last of T steps, before it is taken; with
//! T = 1 and plain descent outside it is the published method. At a λ that does not move it is exact once θ and v have settled;
//! at one that moves it lags behind.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::norms::LazyNorm;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::health::diagnostics::adjoint;
use crate::health::probe::InnerTime;
use crate::hypergradient::parts::single_loop::SingleLoop;
use crate::hypergradient::parts::warm::{Like, Warm};
use crate::hypergradient::paths::Path;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Suited};
use crate::inner::walk::InnerLoop;
use crate::truth::Claims;
use serde::{Deserialize, Serialize};

/// Settings of SOBA.
///
/// It takes θ for a minimum of the inner loss, and so sees nothing of a θ⁰ that depends on λ: it is refused where λ acts
/// through θ⁰ alone.
///
/// ```
/// use bilevel::{Cpu, Key, Leaf, Method, Problem, Session, Soba, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = Soba { step: 0.5, ..Soba::default() }.prepare_in(&session)?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let found = (0..80).map(|_| estimator.estimate(&mut state, Key::from_seed(0))).last().unwrap()?;
/// assert!((found.value[0].item()? - 2.0).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Soba {
    /// Step γ of θ and of v, above 0.
    pub step: f64,
    /// Steps T of both, at least 1; 1 in the published method.
    pub steps: usize,
}

impl Default for Soba {
    fn default() -> Self {
        Soba { step: 0.01, steps: 1 }
    }
}

struct Prepared {
    single: SingleLoop,
    warm: Warm<1>,
    norm: LazyNorm,
}

impl Method for Soba {
    fn name(&self) -> &'static str {
        "soba"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let single = SingleLoop::new(session, InnerLoop::at_least(self.step, self.steps, 0.0, 1.0, 1)?)?;
        let norm = LazyNorm::new(session.executor());
        Ok(Box::new(Prepared { single, warm: Warm::new(session, [Like::Theta]), norm }))
    }

    fn sees(&self, path: Path) -> bool {
        path != Path::Start
    }

    fn claims(&self) -> Claims {
        Claims { minimum: true, minibatches: true, ..Claims::default() }
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(InnerTime::new(self.step, self.steps))
    }

    fn suit(&mut self, suited: &Suited) {
        (self.step, self.steps) = (suited.step, suited.steps);
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        let [v] = self.warm.of(state)?.groups;
        let before = self.norm.of(&v)?;
        let mut found = self.single.advance(state, &v, key)?;
        found.diagnostics = adjoint(before, self.norm.of(&v)?);
        Ok(found)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.single.inner.scale(factor);
        Ok(())
    }
}
