//! Reptile: the learned initialisation moves towards the end of training.
//!
//!   h = λ − θᵀ,   θ⁰ = λ,      so that λ ← λ − β·h is λ + β·(θᵀ − λ)
//!
//! If several tasks train side by side, each from a copy of λ, θᵀ is the mean of their final parameters. No derivative
//! of f is taken; f is only reported.

use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{InnerStart, not_applicable, starts_at_copies_of_lambda};

/// Settings of Reptile.
///
/// ```
/// use bilevel::methods::Reptile;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, _, t| t.0.square() / 2.0)
///     .outer(|_, _, t| t.0.square())
///     .start(|_, l| *l)
///     .build()
///     .unwrap();
/// let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
/// let mut estimator = Reptile::default().prepare_in(&session, &InnerLoop::new(0.5, 1)).unwrap();
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0)).unwrap(), Key::from_seed(0)).unwrap();
/// assert_eq!(h.value[0].item().unwrap(), 0.5, "from 1 to 0.5");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reptile {}

struct Prepared {
    inner: InnerLoop,
    start: InnerStart,
    forward: Routine,
    outer: Routine,
}

impl Method for Reptile {
    named!("reptile");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        self.applies(session.problem())?;
        let (forward, outer) = (inner.walk(session)?, outer_program(session)?);
        Ok(Box::new(Prepared { inner: *inner, start: InnerStart::new(session)?, forward, outer }))
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        if starts_at_copies_of_lambda(problem)? {
            return Ok(());
        }
        let reason = "it learns the initial θ, so θ⁰ must be λ or copies of λ; add .start(|_, l| l.clone()), or use \
            rmd, which works for any θ⁰(λ)";
        not_applicable(self.name(), reason)
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse { noise: Noise::Never, ..LoopUse::PLAIN }
    }

    fn claims(&self) -> Claims {
        Claims { promise: Promise::Descent, training: true, only: Some(Condition::SameLosses), ..Claims::default() }
    }

    fn output(&self) -> crate::methods::Output {
        crate::methods::Output::Direction { penalty: None }
    }
}

/// f, and h = λ − θ, or the mean over the copies of λ that θ is.
fn outer_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let mut builder = Program::builder(&graph).output("outer", trace.outer(&trace.theta, graph.step())?);
    for (i, (l, t)) in trace.lambda.iter().zip(&trace.theta).enumerate() {
        let copies: Vec<usize> = (0..t.rank() - l.rank()).collect();
        builder = builder.output(format!("h.{i}"), *l - if copies.is_empty() { *t } else { t.mean(copies) });
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        self.inner.place(&mut self.forward, gamma)?;
        self.forward.bind_point(&state.lambda, &state.theta, key)?;
        self.forward.run(0..self.inner.steps as u32)?;
        self.outer.bind_point(&state.lambda, &state.theta, key)?;
        let value = self.outer.fresh_outputs("h")?;
        self.outer.run(self.inner.last())?;
        let oracles = Oracles { inner_gradients: self.inner.steps as u64, losses: 1, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles).with_outer_loss(self.outer.number("outer")?))
    }
}
