//! AmIGO with conjugate gradients: the linear solve starts from the last solution.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   (H + reg·I)·z = f_θ, by i iterations of conjugate gradients from the last z
//!   h = f_λ − zᵀ·C
//!
//! The residual of a warm start costs one Hessian product more than the iterations.

use crate::compiled::key::Key;
use crate::compiled::norms::LazyNorm;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::health::diagnostics::{Diagnostics, adjoint};
use crate::health::probe::InnerTime;
use crate::hypergradient::parts::implicit::{CurvatureProduct, Ending, Implicit, count};
use crate::hypergradient::parts::solve::{ConjugateGradients, Matrix, REGULARISATION};
use crate::hypergradient::paths::Path;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Suited};
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::{InnerLoop, at_least_0};
use crate::truth::Claims;
use crate::{Cause, Result};
use serde::{Deserialize, Serialize};

/// Settings of AmIGO with conjugate gradients.
///
/// It takes θ for a minimum of the inner loss, and so sees nothing of a θ⁰ that depends on λ: it is refused where λ acts
/// through θ⁰ alone.
///
/// ```
/// use bilevel::{AmigoCg, Cpu, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let method = AmigoCg { iterations: 1, step: 0.5, ..AmigoCg::default() };
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session)?;
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item().unwrap() - 2.0).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmigoCg {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T; 0 takes the hypergradient at the θ given.
    pub steps: usize,
    /// Temperature τ of Langevin noise in the inner loop, at least 0; 0 is plain gradient descent.
    pub temperature: f64,
    /// Noise scale κ, at least 0.
    pub noise_scale: f64,
    /// Added to every eigenvalue of H, at least 0; 0 unless said otherwise, for anything else biases the hypergradient.
    pub regularisation: f64,
    /// Iterations i, at least 1.
    pub iterations: usize,
    /// How the inner loop steps.
    pub optimizer: InnerOptimizer,
    /// What stands for the curvature in the linear system: the Hessian (the default), or the Gauss-Newton matrix, which is positive
    /// where θ is at no minimum either.
    pub curvature: CurvatureProduct,
}

impl Default for AmigoCg {
    fn default() -> Self {
        AmigoCg {
            step: 0.01,
            steps: 100,
            temperature: 0.0,
            noise_scale: 1.0,
            regularisation: REGULARISATION,
            iterations: 10,
            optimizer: InnerOptimizer::Sgd,
            curvature: CurvatureProduct::Hessian,
        }
    }
}

struct Prepared {
    implicit: Implicit,
    solver: ConjugateGradients,
    session: Session,
    adjoint: LazyNorm,
}

impl Method for AmigoCg {
    fn name(&self) -> &'static str {
        "amigo-cg"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let AmigoCg { step, steps, temperature, noise_scale, regularisation, iterations, optimizer, curvature } = *self;
        at_least_0("regularisation", regularisation)?;
        count("iterations", iterations, 1)?;
        let inner = InnerLoop::at_least(step, steps, temperature, noise_scale, 0)?.with_optimizer(optimizer)?;
        let ending = Ending { scale: 1.0, proximal: None };
        let implicit = Implicit::new(session, inner, ending)?;
        let matrix = Matrix { hessian: 1.0, identity: regularisation };
        let solver = ConjugateGradients::with_curvature(session, &inner, curvature, matrix, (iterations, true))?;
        let adjoint = LazyNorm::new(session.executor());
        Ok(Box::new(Prepared { implicit, solver, session: session.clone(), adjoint }))
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
        (self.step, self.steps) = (suited.step, suited.steps);
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        let point = self.implicit.descend(state, key)?;
        let q = state.warm(self.session.executor())?;
        let before = self.adjoint.of(&q)?;
        let solution = self.solver.solve(&point, Some(&q))?;
        let mut h = self.implicit.finish(point, &solution.q, self.solver.products(), Cause::HessianNotPositive)?;
        let Diagnostics { solve_residual, least_curvature, .. } = solution.diagnostics;
        h.diagnostics = Diagnostics { solve_residual, least_curvature, ..adjoint(before, self.adjoint.of(&q)?) };
        Ok(h)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.implicit.inner.scale(factor);
        Ok(())
    }
}
