//! Implicit MAML: λ is where the inner loop starts, and what a proximal term pulls it back to.
//!
//!   θ⁰ = λ,  θ ← θ − γ·\[∇θL_T(θ) + ρ·(θ − λ)\], T times
//!   (I + H/ρ)·g = f_θ, by i iterations of conjugate gradients from 0
//!   h = f_λ + g − gᵀ·C/ρ
//!
//! H and C belong to the user's inner loss, without the proximal term. The last term is there only where that loss itself
//! depends on λ, which it does not in the usual setting. Where several tasks train side by side, each from a copy of λ and held near
//! it, g is the sum over the tasks: a solve for all of them at once.

use crate::compiled::key::Key;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::health::probe::InnerTime;
use crate::hypergradient::parts::implicit::{CurvatureProduct, Ending, Implicit, count};
use crate::hypergradient::parts::solve::{ConjugateGradients, Matrix};
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Suited};
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::{InnerLoop, not_applicable, positive, starts_at_copies_of_lambda};
use crate::problem::AnyProblem;
use crate::truth::Claims;
use crate::{Cause, Result};
use serde::{Deserialize, Serialize};

/// Settings of implicit MAML.
///
/// It applies where θ⁰ is λ, or copies of λ for tasks side by side. The inner loop always starts at λ, whatever θ is in the state; the inner loss reported is
/// without the proximal term.
///
/// ```
/// use bilevel::{Cpu, Imaml, Key, Leaf, Method, Problem, Session, Variable};
/// // The minimum of ½(θ−3)² + ½(θ−λ)² is θ = (3+λ)/2, and f = ½θ²: the hypergradient is θ/2.
/// let problem = Problem::new(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, _, t| (t.0 - 3.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .start(|_, l| Leaf(l.0))
///     .build()?;
/// let method = Imaml { rho: 1.0, step: 0.3, ..Imaml::default() };
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = method.prepare_in(&session)?;
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item().unwrap() - 1.0).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Imaml {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T; 0 takes the hypergradient at θ = λ.
    pub steps: usize,
    /// Temperature τ of Langevin noise in the inner loop, at least 0; 0 is plain gradient descent.
    pub temperature: f64,
    /// Noise scale κ, at least 0.
    pub noise_scale: f64,
    /// Strength ρ of the proximal term, above 0.
    pub rho: f64,
    /// Iterations i of conjugate gradients, at least 1.
    pub iterations: usize,
    /// How the inner loop steps.
    pub optimizer: InnerOptimizer,
    /// What stands for the curvature in the linear system: the Hessian (the default), or the Gauss-Newton matrix, which is positive
    /// where θ is at no minimum either.
    pub curvature: CurvatureProduct,
}

impl Default for Imaml {
    fn default() -> Self {
        Imaml {
            step: 0.01,
            steps: 100,
            temperature: 0.0,
            noise_scale: 1.0,
            rho: 1.0,
            iterations: 5,
            optimizer: InnerOptimizer::Sgd,
            curvature: CurvatureProduct::Hessian,
        }
    }
}

struct Prepared {
    implicit: Implicit,
    solver: ConjugateGradients,
}

impl Method for Imaml {
    fn name(&self) -> &'static str {
        "imaml"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let Imaml { step, steps, temperature, noise_scale, rho, iterations, optimizer, curvature } = *self;
        positive("rho", rho)?;
        count("iterations", iterations, 1)?;
        self.applies(session.problem())?;
        let inner = InnerLoop::at_least(step, steps, temperature, noise_scale, 0)?.with_optimizer(optimizer)?;
        let ending = Ending { scale: 1.0 / rho, proximal: Some(rho) };
        let implicit = Implicit::new(session, inner, ending)?;
        let matrix = Matrix { hessian: 1.0 / rho, identity: 1.0 };
        let solver = ConjugateGradients::with_curvature(session, &inner, curvature, matrix, (iterations, false))?;
        Ok(Box::new(Prepared { implicit, solver }))
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        if starts_at_copies_of_lambda(problem)? {
            return Ok(());
        }
        let reason = "it needs θ⁰ = λ, leaf by leaf, or copies of it: give the problem .start(…) with the identity, or use rmd, which \
                      differentiates through any start";
        not_applicable(self.name(), reason)
    }

    fn claims(&self) -> Claims {
        Claims { proximal: true, ..Claims::default() }
    }

    fn inner_time(&self) -> Option<InnerTime> {
        let time = InnerTime::new(self.step, self.steps)
            .with_noise(self.temperature, self.noise_scale)
            .with_optimizer(self.optimizer);
        Some(InnerTime { added_curvature: self.rho, ..time })
    }

    fn suit(&mut self, suited: &Suited) {
        (self.step, self.steps) = (suited.step, suited.steps);
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        // The start is the identity, so the loop begins at λ.
        let point = self.implicit.descend(state, key)?;
        let solution = self.solver.solve(&point, None)?;
        let products = self.solver.products();
        let mut found = self.implicit.finish(point, &solution.q, products, Cause::HessianNotPositive)?;
        found.diagnostics = solution.diagnostics;
        Ok(found)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.implicit.inner.scale(factor);
        Ok(())
    }
}
