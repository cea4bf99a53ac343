//! stocBiO (Ji, Yang and Liang, "Bilevel optimization: convergence analysis and enhanced design", ICML 2021): a Neumann
//! series with a separate minibatch for every factor.
//!
//!   θ ← θ − γ·∇θL_T(θ), T times
//!   r_0 = f_θ,   r_j = (I − α·H_j)·r_{j−1},   p = α·Σ over j = 0 … i of r_j        H_j with the draw of step T + j
//!   h = f_λ − pᵀ·C                                                               f_λ, f_θ and C with that of step T
//!
//! Factors of independent draws multiply to the product of their means, so p is an unbiased estimate of the truncated series of the
//! whole inner loss, which one draw for all factors, as in [`IftNeumann`](crate::IftNeumann), is not. Without minibatches both are the
//! same. It is biased by what the series leaves out, (I − αH)^(i+1).

use crate::compiled::key::Key;
use crate::compiled::leaves::Leaves;
use crate::compiled::routine::Routine;
use crate::compiled::session::Session;
use crate::compiled::state::State;
use crate::compiled::trace::{Trace, or_zeros};
use crate::health::probe::InnerTime;
use crate::hypergradient::parts::implicit::{Ending, Implicit, count};
use crate::hypergradient::paths::Path;
use crate::hypergradient::settings::SettingsRecord;
use crate::hypergradient::{Estimator, Hypergradient, Method, Suited};
use crate::inner::optimizer::InnerOptimizer;
use crate::inner::walk::{InnerLoop, positive};
use crate::truth::Claims;
use crate::{Cause, Result};
use bilevel_graph::{Graph, Program, hessian_vector};
use serde::{Deserialize, Serialize};

/// Settings of stocBiO.
///
/// It takes θ for a minimum of the inner loss, and so sees nothing of a θ⁰ that depends on λ: it is refused where λ acts
/// through θ⁰ alone.
///
/// ```
/// use bilevel::{Cpu, Key, Leaf, Method, Problem, Session, StocBio, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::new(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let method = StocBio { alpha: 0.5, terms: 30, step: 0.5, steps: 50, ..StocBio::default() };
/// let h = method.prepare_in(&session)?.estimate(&mut session.state(Key::from_seed(0))?, Key::from_seed(0))?;
/// assert!((h.value[0].item()? - 2.0).abs() < 1e-8);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StocBio {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T; 0 takes the hypergradient at the θ given.
    pub steps: usize,
    /// α, above 0; the series converges where α × the largest curvature is below 2.
    pub alpha: f64,
    /// Terms i after the first.
    pub terms: usize,
    /// How the inner loop steps.
    pub optimizer: InnerOptimizer,
}

impl Default for StocBio {
    fn default() -> Self {
        StocBio { step: 0.01, steps: 100, alpha: 0.1, terms: 10, optimizer: InnerOptimizer::Sgd }
    }
}

struct Prepared {
    implicit: Implicit,
    series: Routine,
    terms: usize,
    session: Session,
    /// The newest term, and the sum.
    work: Option<[Leaves; 2]>,
}

impl Method for StocBio {
    fn name(&self) -> &'static str {
        "stocbio"
    }

    fn settings(&self) -> SettingsRecord {
        SettingsRecord::of(self.name(), self)
    }

    fn compile(&self, session: &Session) -> Result<Box<dyn Estimator>> {
        let StocBio { step, steps, alpha, terms, optimizer } = *self;
        positive("alpha", alpha)?;
        // Every term is a step of its own, after those of the inner loop.
        count("terms", terms.saturating_add(steps).saturating_add(1), 0)?;
        let inner = InnerLoop::new(step, steps, 0.0, 1.0)?.with_optimizer(optimizer)?;
        Ok(Box::new(Prepared {
            implicit: Implicit::new(session, inner, Ending { scale: alpha, proximal: None })?,
            series: series_program(alpha, session)?,
            terms,
            session: session.clone(),
            work: None,
        }))
    }

    fn sees(&self, path: Path) -> bool {
        path != Path::Start
    }

    fn claims(&self) -> Claims {
        Claims { minimum: true, minibatches: true, ..Claims::default() }
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(InnerTime::new(self.step, self.steps).with_optimizer(self.optimizer))
    }

    fn suit(&mut self, suited: &Suited) {
        (self.step, self.steps, self.alpha) = (suited.step, suited.steps, 1.0 / suited.curvature);
    }
}

/// r ← (I − αH)·r with the draw of the step, and sum ← sum + r.
fn series_program(alpha: f64, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let theta = &trace.theta;
    let [r, sum] = ["r", "sum"].map(|name| trace.inputs_like(name, theta));
    let product = or_zeros(hessian_vector(trace.inner(theta, graph.step())?, theta, &r)?, theta);
    let mut builder = Program::builder(&graph);
    for i in 0..r.len() {
        let next = r[i] - product[i] * alpha;
        builder = builder.carry(r[i], next).carry(sum[i], sum[i] + next);
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key) -> Result<Hypergradient> {
        let point = self.implicit.descend(state, key)?;
        let executor = self.session.executor();
        let [r, sum] = match &self.work {
            Some(work) => work.clone(),
            None => self.work.insert([state.theta.zeros_like(executor)?, state.theta.zeros_like(executor)?]).clone(),
        };
        r.copy_from(&point.f_theta)?;
        sum.copy_from(&point.f_theta)?;
        point.place(&mut self.series)?;
        self.series.bind("r", &r)?;
        self.series.bind("sum", &sum)?;
        let first = self.implicit.inner.last().end;
        self.series.run(first..first + self.terms as u32)?;
        self.implicit.finish(point, &sum, self.terms, Cause::SolveStepTooLarge)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.implicit.inner.scale(factor);
        Ok(())
    }
}
