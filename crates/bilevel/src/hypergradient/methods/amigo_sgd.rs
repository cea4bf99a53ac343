//! AmIGO with gradient steps: the linear system continues where the last hypergradient left it.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   z ← z − β·(H·z − f_θ), i times, from the last z
//!   h = f_λ − zᵀ·C

use crate::compiled::key::Key;
use crate::compiled::norms::LazyNorm;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::health::diagnostics::adjoint;
use crate::health::probe::InnerTime;
use crate::hypergradient::parts::implicit::{CurvatureProduct, Ending, Implicit, count};
use crate::hypergradient::parts::solve::Richardson;
use crate::hypergradient::paths::Path;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Suited};
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::{InnerLoop, positive};
use crate::truth::Claims;
use crate::{Cause, Result};
use serde::{Deserialize, Serialize};

/// Settings of AmIGO with gradient steps.
///
/// It takes θ for a minimum of the inner loss, and so sees nothing of a θ⁰ that depends on λ: it is refused where λ acts
/// through θ⁰ alone.
///
/// ```
/// use bilevel::{AmigoSgd, Cpu, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let method = AmigoSgd { beta: 0.5, iterations: 10, step: 0.5, ..AmigoSgd::default() };
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session)?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let errors = [0, 1].map(|_| {
///     let h = estimator.estimate(&mut state, Key::from_seed(0)).unwrap();
///     (h.value[0].item().unwrap() - 2.0).abs()
/// });
/// assert!(errors[0] < 1e-2 && errors[1] < 1e-5, "{errors:?}");
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmigoSgd {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T; 0 takes the hypergradient at the θ given.
    pub steps: usize,
    /// Temperature τ of Langevin noise in the inner loop, at least 0; 0 is plain gradient descent.
    pub temperature: f64,
    /// Noise scale κ, at least 0.
    pub noise_scale: f64,
    /// Step β on z, above 0; β × the largest curvature must be below 2.
    pub beta: f64,
    /// Steps i on z, at least 1.
    pub iterations: usize,
    /// How the inner loop steps.
    pub optimizer: InnerOptimizer,
    /// What stands for the curvature in the linear system: the Hessian (the default), or the Gauss-Newton matrix, which is positive
    /// where θ is at no minimum either.
    pub curvature: CurvatureProduct,
}

impl Default for AmigoSgd {
    fn default() -> Self {
        AmigoSgd {
            step: 0.01,
            steps: 100,
            temperature: 0.0,
            noise_scale: 1.0,
            beta: 0.01,
            iterations: 10,
            optimizer: InnerOptimizer::Sgd,
            curvature: CurvatureProduct::Hessian,
        }
    }
}

struct Prepared {
    implicit: Implicit,
    solver: Richardson,
    iterations: usize,
    session: Session,
    adjoint: LazyNorm,
}

impl Method for AmigoSgd {
    fn name(&self) -> &'static str {
        "amigo-sgd"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let AmigoSgd { step, steps, temperature, noise_scale, beta, iterations, optimizer, curvature } = *self;
        positive("beta", beta)?;
        count("iterations", iterations, 1)?;
        let inner = InnerLoop::at_least(step, steps, temperature, noise_scale, 0)?.with_optimizer(optimizer)?;
        let ending = Ending { scale: 1.0, proximal: None };
        let implicit = Implicit::new(session, inner, ending)?;
        let solver = Richardson::with_curvature(session, &inner, curvature, (beta, beta), iterations)?;
        let adjoint = LazyNorm::new(session.executor());
        Ok(Box::new(Prepared { implicit, solver, iterations, session: session.clone(), adjoint }))
    }

    fn sees(&self, path: Path) -> bool {
        path != Path::Start
    }

    fn claims(&self) -> Claims {
        Claims { minimum: true, minibatches: true, ..Claims::default() }
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(
            InnerTime::new(self.step, self.steps)
                .with_noise(self.temperature, self.noise_scale)
                .with_optimizer(self.optimizer),
        )
    }

    fn suit(&mut self, suited: &Suited) {
        (self.step, self.steps, self.beta) = (suited.step, suited.steps, 1.0 / suited.curvature);
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        let point = self.implicit.descend(state, key)?;
        let z = state.warm(self.session.executor())?;
        let before = self.adjoint.of(&z)?;
        self.solver.solve(&point, &z)?;
        let mut h = self.implicit.finish(point, &z, self.iterations, Cause::SolveStepTooLarge)?;
        h.diagnostics = adjoint(before, self.adjoint.of(&z)?);
        Ok(h)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.implicit.inner.scale(factor);
        Ok(())
    }
}
