//! Implicit differentiation with a truncated Neumann series for the inverse Hessian.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   p = α·Σ over j = 0 … i of (I − αH)ʲ·f_θ
//!   h = f_λ − pᵀ·C
//!
//! The sum is run as p ← f_θ + (I − αH)·p, one Hessian product for each term after the first.

use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::norms::LazyNorm;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::health::probe::InnerTime;
use crate::hypergradient::parts::implicit::{CurvatureProduct, Ending, Implicit, count};
use crate::hypergradient::parts::solve::Richardson;
use crate::hypergradient::paths::Path;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Suited};
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::{InnerLoop, positive};
use crate::truth::Claims;
use crate::{Cause, Error, Result};
use serde::{Deserialize, Serialize};

/// Settings of implicit differentiation with a Neumann series.
///
/// It takes θ for a minimum of the inner loss, and so sees nothing of a θ⁰ that depends on λ: it is refused where λ acts
/// through θ⁰ alone.
///
/// ```
/// use bilevel::{Cpu, IftNeumann, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let method = IftNeumann { alpha: 0.5, terms: 30, step: 0.5, ..IftNeumann::default() };
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session)?;
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item().unwrap() - 2.0).abs() < 1e-8);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IftNeumann {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T; 0 takes the hypergradient at the θ given.
    pub steps: usize,
    /// Temperature τ of Langevin noise in the inner loop, at least 0; 0 is plain gradient descent.
    pub temperature: f64,
    /// Noise scale κ, at least 0.
    pub noise_scale: f64,
    /// α, above 0; the series converges where α × the largest curvature is below 2.
    pub alpha: f64,
    /// Terms i after the first.
    pub terms: usize,
    /// Multiply the sum by α, as the inverse needs (the default); without it the sum is as in the paper's tables.
    pub final_alpha: bool,
    /// How the inner loop steps.
    pub optimizer: InnerOptimizer,
    /// What stands for the curvature in the linear system: the Hessian (the default), or the Gauss-Newton matrix, which is positive
    /// where θ is at no minimum either.
    pub curvature: CurvatureProduct,
}

impl Default for IftNeumann {
    fn default() -> Self {
        IftNeumann {
            step: 0.01,
            steps: 100,
            temperature: 0.0,
            noise_scale: 1.0,
            alpha: 0.1,
            terms: 10,
            final_alpha: true,
            optimizer: InnerOptimizer::Sgd,
            curvature: CurvatureProduct::Hessian,
        }
    }
}

struct Prepared {
    implicit: Implicit,
    series: Richardson,
    terms: usize,
    session: Session,
    /// The partial sum.
    sum: Option<Leaves>,
    norm: LazyNorm,
}

impl Method for IftNeumann {
    fn name(&self) -> &'static str {
        "ift-neumann"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let IftNeumann { step, steps, temperature, noise_scale, alpha, terms, final_alpha, optimizer, curvature } =
            *self;
        positive("alpha", alpha)?;
        count("terms", terms, 0)?;
        let inner = InnerLoop::at_least(step, steps, temperature, noise_scale, 0)?.with_optimizer(optimizer)?;
        let ending = Ending { scale: if final_alpha { alpha } else { 1.0 }, proximal: None };
        let implicit = Implicit::new(session, inner, ending)?;
        let series = Richardson::with_curvature(session, &inner, curvature, (alpha, 1.0), terms)?;
        let norm = LazyNorm::new(session.executor());
        Ok(Box::new(Prepared { implicit, series, terms, session: session.clone(), sum: None, norm }))
    }

    fn sees(&self, path: Path) -> bool {
        path != Path::Start
    }

    fn claims(&self) -> Claims {
        Claims { minimum: true, ..Claims::default() }
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(
            InnerTime::new(self.step, self.steps)
                .with_noise(self.temperature, self.noise_scale)
                .with_optimizer(self.optimizer),
        )
    }

    fn suit(&mut self, suited: &Suited) {
        (self.step, self.steps, self.alpha) = (suited.step, suited.steps, 1.0 / suited.curvature);
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        let point = self.implicit.descend(state, key)?;
        // The first term is f_θ itself, which the sum must not overwrite.
        let sum = match &self.sum {
            Some(sum) => sum.clone(),
            None => self.sum.insert(point.f_theta.zeros_like(self.session.executor())?).clone(),
        };
        sum.copy_from(&point.f_theta)?;
        self.series.solve(&point, &sum)?;
        // Where the series converges no partial sum is longer than its number of terms times the first.
        let growth = self.norm.of(&sum)? / self.norm.of(&point.f_theta)? / (self.terms + 1) as f64;
        if growth > 1e6 {
            let seen = format!("ift-neumann: the series grew {growth:.0e} times beyond its first term");
            return Err(Error::Diverged { seen, cause: Cause::SolveStepTooLarge });
        }
        self.implicit.finish(point, &sum, self.terms, Cause::SolveStepTooLarge)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.implicit.inner.scale(factor);
        Ok(())
    }
}
