//! HOAG (Pedregosa, "Hyperparameter optimization with approximate gradient", ICML 2016): train, and solve, to a tolerance that falls
//! from one hypergradient to the next.
//!
//!   θ ← θ − γ·∇θL_T(θ), until ‖∇θL_T‖ ≤ ε_k
//!   H·q = f_θ by conjugate gradients, until ‖H·q − f_θ‖ ≤ ε_k
//!   h = f_λ − qᵀ·C,        ε_k = ε₁/k², ε₁/k³ or ε₁·0.9ᵏ⁻¹ in the k-th hypergradient, counted from 1
//!
//! θ, q and k are kept. At a λ that does not move the error of h is O(ε_k); a sum of all ε_k that is finite is what the published
//! proof asks for. Training ends after T steps and the solve after i iterations at the latest, which losses with minibatches always
//! reach: there it is [`AmigoCg`](crate::AmigoCg). The published method also chooses its outer step; here the outer optimizer does.

use crate::compiled::key::Key;
use crate::compiled::norms::square_norm;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::{InnerLoss, Trace, or_zeros};
use crate::health::probe::InnerTime;
use crate::hypergradient::parts::implicit::{Ending, Implicit, count};
use crate::hypergradient::parts::solve::{ConjugateGradients, Matrix, REGULARISATION};
use crate::hypergradient::parts::warm::{Like, Warm, number, set_number};
use crate::hypergradient::paths::Path;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Oracles, Suited};
use crate::inner::walk::{InnerLoop, Start, at_least_0, positive};
use crate::truth::Claims;
use crate::{Cause, Result};
use bilevel_graph::{DType, Graph, Program, gradient};
use serde::{Deserialize, Serialize};

/// How the tolerance falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fall {
    /// As 1/k².
    #[default]
    Quadratic,
    /// As 1/k³.
    Cubic,
    /// As 0.9ᵏ⁻¹.
    Exponential,
}

impl Fall {
    fn factor(self, k: f64) -> f64 {
        match self {
            Fall::Quadratic => k.powi(-2),
            Fall::Cubic => k.powi(-3),
            Fall::Exponential => 0.9f64.powf(k - 1.0),
        }
    }
}

/// Settings of HOAG.
///
/// It takes θ for a minimum of the inner loss, and so sees nothing of a θ⁰ that depends on λ: it is refused where λ acts
/// through θ⁰ alone.
///
/// ```
/// use bilevel::{Cpu, Hoag, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = Hoag { step: 0.1, ..Hoag::default() }.prepare_in(&session)?;
/// let mut state = session.state(Key::from_seed(0))?;
/// for k in 1..20 {
///     let h = estimator.estimate(&mut state, Key::from_seed(0))?;
///     assert!((h.value[0].item()? - 2.0).abs() < 0.2 / (k * k) as f64, "twice the tolerance");
/// }
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hoag {
    /// Inner step γ, above 0.
    pub step: f64,
    /// At most this many inner steps T, at least 1.
    pub steps: usize,
    /// At most this many iterations i of conjugate gradients, at least 1.
    pub iterations: usize,
    /// The first tolerance ε₁, above 0.
    pub tolerance: f64,
    /// How the tolerance falls.
    pub fall: Fall,
    /// Added to every eigenvalue of H, at least 0; 0 unless said otherwise, for anything else biases the hypergradient.
    pub regularisation: f64,
}

impl Default for Hoag {
    fn default() -> Self {
        let (tolerance, fall, regularisation) = (0.1, Fall::Quadratic, REGULARISATION);
        Hoag { step: 0.01, steps: 1000, iterations: 100, tolerance, fall, regularisation }
    }
}

/// This many steps, or iterations, are taken before the next look at what is left. Neither loop starts again there.
const STRETCH: usize = 10;

struct Prepared {
    settings: Hoag,
    implicit: Implicit,
    start: Start,
    walk: Routine,
    solver: ConjugateGradients,
    warm: Warm<2>,
}

impl Method for Hoag {
    fn name(&self) -> &'static str {
        "hoag"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let Hoag { step, steps, iterations, tolerance, regularisation, .. } = *self;
        positive("tolerance", tolerance)?;
        at_least_0("regularisation", regularisation)?;
        count("iterations", iterations, 1)?;
        let inner = InnerLoop::at_least(step, steps, 0.0, 1.0, 1)?;
        let matrix = Matrix { hessian: 1.0, identity: regularisation };
        Ok(Box::new(Prepared {
            settings: *self,
            implicit: Implicit::new(session, inner, Ending { scale: 1.0, proximal: None })?,
            start: Start::new(session)?,
            walk: walk_program(&inner, session)?,
            solver: ConjugateGradients::new(session, &inner, matrix, iterations, true)?,
            warm: Warm::new(session, [Like::Theta, Like::Number]),
        }))
    }

    fn sees(&self, path: Path) -> bool {
        path != Path::Start
    }

    fn claims(&self) -> Claims {
        Claims { minimum: true, ..Claims::default() }
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(InnerTime::new(self.step, self.steps))
    }

    fn suit(&mut self, suited: &Suited) {
        (self.step, self.steps) = (suited.step, suited.steps);
    }
}

/// A step, L_T and the square of its slope where it was taken.
fn walk_program(inner: &InnerLoop, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (theta, step) = (&trace.theta, graph.step());
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    let square = square_norm(&slope).unwrap_or(graph.scalar(0.0, DType::F64));
    let builder = Program::builder(&graph).output("square", square);
    Routine::new(&inner.step(&trace, &slope, &updates, step).carry(builder).build()?, session)
}

impl Prepared {
    /// Trains until the slope is below the tolerance; how many steps it took.
    fn train(&mut self, state: &State, tolerance: f64, key: Key) -> Result<usize> {
        self.start.place(&state.lambda, &state.theta, key)?;
        self.implicit.inner.place(&mut self.walk)?;
        self.walk.bind_point(&state.lambda, &state.theta, key)?;
        let mut taken = 0;
        while taken < self.settings.steps {
            let next = (taken + STRETCH).min(self.settings.steps);
            self.walk.run(taken as u32..next as u32)?;
            taken = next;
            if self.walk.number("square")?.sqrt() <= tolerance {
                break;
            }
        }
        Ok(taken)
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        let [q, so_far] = self.warm.of(state)?.groups;
        let k = number(&so_far)? + 1.0;
        let tolerance = self.settings.tolerance * self.settings.fall.factor(k);
        let steps = self.train(state, tolerance, key)?;
        let point = self.implicit.here(state, key)?;
        let solution = self.solver.solve_to(&point, Some(&q), (tolerance, STRETCH))?;
        let mut found = self.implicit.finish(point, &q, solution.products, Cause::HessianNotPositive)?;
        found.oracles = Oracles { inner_gradients: steps as u64, ..found.oracles };
        found.diagnostics = solution.diagnostics;
        set_number(&so_far, k)?;
        Ok(found)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.implicit.inner.scale(factor);
        Ok(())
    }
}
