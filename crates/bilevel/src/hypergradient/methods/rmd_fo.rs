//! First-order reverse mode: every second-order term dropped.
//!
//!   h = f_λ(θᵀ) + f_θ(θᵀ)·J0
//!
//! With θ⁰ = λ this is FO-MAML. Where θ⁰ does not depend on λ only the direct term f_λ is left; where there is none either, it
//! is refused.

use crate::Result;
use crate::compiled::key::Key;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::health::probe::InnerTime;
use crate::hypergradient::paths::Path;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Oracles, Suited};
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::{InnerLoop, Start, add_through_start, outer_gradient, through_start};
use crate::truth::{Claims, Condition};
use serde::{Deserialize, Serialize};

/// Settings of first-order reverse mode.
///
/// ```
/// use bilevel::{Cpu, Key, Leaf, Method, Problem, RmdFo, Session, Variable};
/// // θ⁰ = λ and f = θ²: the first-order hypergradient is 2θᵀ, whatever the inner loss.
/// let problem = Problem::new(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, _, t| t.0.square() / 2.0)
///     .outer(|_, _, t| t.0.square())
///     .start(|_, l| *l)
///     .build()
///     .unwrap();
/// let method = RmdFo { step: 0.5, steps: 1, ..RmdFo::default() };
/// let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
/// let mut estimator = method.prepare_in(&session).unwrap();
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0)).unwrap(), Key::from_seed(0)).unwrap();
/// assert_eq!(h.value[0].item().unwrap(), 1.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RmdFo {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T, at least 1.
    pub steps: usize,
    /// Temperature τ, at least 0.
    pub temperature: f64,
    /// Noise scale κ, at least 0.
    pub noise_scale: f64,
    /// How the inner loop steps.
    pub optimizer: InnerOptimizer,
}

impl Default for RmdFo {
    fn default() -> Self {
        RmdFo { step: 0.01, steps: 100, temperature: 0.0, noise_scale: 1.0, optimizer: InnerOptimizer::Sgd }
    }
}

struct Prepared {
    inner: InnerLoop,
    start: Start,
    forward: Routine,
    outer: Routine,
    through: Option<Routine>,
}

impl Method for RmdFo {
    fn name(&self) -> &'static str {
        "rmd-fo"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let RmdFo { step, steps, temperature, noise_scale, optimizer } = *self;
        let inner = InnerLoop::at_least(step, steps, temperature, noise_scale, 1)?.with_optimizer(optimizer)?;
        Ok(Box::new(Prepared {
            inner,
            start: Start::new(session)?,
            forward: inner.walk(session)?,
            outer: outer_gradient(session)?,
            through: through_start(session)?,
        }))
    }

    fn sees(&self, path: Path) -> bool {
        path != Path::Training
    }

    fn claims(&self) -> Claims {
        // Exact where the second-order terms that it drops vanish.
        Claims { training: true, only: Some(Condition::StraightInnerLoss), ..Claims::default() }
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(
            InnerTime::new(self.step, self.steps)
                .with_noise(self.temperature, self.noise_scale)
                .with_optimizer(self.optimizer),
        )
    }

    fn suit(&mut self, suited: &Suited) {
        (self.step, self.steps) = (suited.step, suited.steps);
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        self.inner.place(&mut self.forward)?;
        self.forward.bind_point(&state.lambda, &state.theta, key)?;
        self.forward.run(0..self.inner.steps as u32)?;
        let (mut value, f_theta) = (self.outer.fresh_outputs("direct")?, self.outer.outputs("f_theta")?);
        self.outer.bind_point(&state.lambda, &state.theta, key)?;
        self.outer.run(self.inner.last())?;
        if let Some(through) = &mut self.through {
            value = add_through_start(through, (&state.lambda, key), &value, &f_theta)?;
        }
        let oracles = Oracles { inner_gradients: self.inner.steps as u64, outer_gradients: 1, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles).with_outer_loss(self.outer.number("outer")?))
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.inner.scale(factor);
        Ok(())
    }
}
