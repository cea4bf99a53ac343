//! MA-SOBA (Chen, Xiao and Balasubramanian, "Optimal algorithms for stochastic bilevel optimization under relaxed smoothness
//! conditions", JMLR 2024): SOBA whose direction for λ is a moving average.
//!
//!   D = f_λ − vᵀ·C,   θ ← θ − γ·∇θL_T,   v ← v − γ·(H·v − f_θ)        all at the same (λ, θ, v), T times
//!   h ← (1 − w)·h + w·D                                             once, with D of the last step
//!
//! θ, v and h are kept from one hypergradient to the next; h starts at 0, so the first directions are short. The outer
//! optimizer receives h. At a fixed λ it is exact once θ, v and h have settled.

use crate::hypergradient::parts::single_loop::SingleLoop;
use crate::hypergradient::vocabulary::*;

/// Settings of MA-SOBA.
///
/// Assumes that θ minimises the inner loss, so it ignores a θ⁰ that depends on λ; refused if λ acts only through θ⁰.
///
/// ```
/// use bilevel::methods::MaSoba;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ(λ) = λ and f = ½θ², so the hypergradient is λ.
/// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() * 0.5)
///     .outer(|_, _, t| t.0.square() * 0.5)
///     .build()?;
/// let session = Session::new(&problem, &Cpu::with_threads(1))?;
/// let mut estimator = MaSoba { weight: 0.4 }.prepare_in(&session, &InnerLoop::new(0.5, 1))?;
/// let mut state = session.state(Key::from_seed(0))?;
/// let found = (0..100).map(|_| estimator.estimate(&mut state, Key::from_seed(0))).last().unwrap()?;
/// assert!((found.value[0].item()? - 2.0).abs() < 1e-12);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaSoba {
    /// Weight w of the newest direction in the average, above 0 and at most 1; with 1 it is SOBA.
    pub weight: f64,
}

impl Default for MaSoba {
    fn default() -> Self {
        MaSoba { weight: 0.1 }
    }
}

struct Prepared {
    single: SingleLoop,
    averaging: Routine,
    warm: Warm<2>,
    norm: LazyNorm,
}

impl Method for MaSoba {
    named!("ma-soba");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        require(self.weight > 0.0 && self.weight <= 1.0, "weight", self.weight, "above 0 and at most 1")?;
        inner.check_for(self)?;
        Ok(Box::new(Prepared {
            single: SingleLoop::new(session, *inner)?,
            averaging: average_program(self.weight, session)?,
            warm: Warm::new(session, [Like::Theta, Like::Lambda]),
            norm: LazyNorm::new(session.executor()),
        }))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::OWN_STEPS
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::new(0.01, 1)
    }

    fn claims(&self) -> Claims {
        Claims { settling: Settling::StepByStep, minimum: true, minibatches: true, ..Claims::default() }
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

/// The average moves towards `d`; a copy of it for the caller is `h`.
fn average_program(weight: f64, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let [average, d] = ["average", "d"].map(|name| trace.inputs_like(name, &trace.lambda));
    let mut builder = Program::builder(&graph);
    for (i, (average, d)) in average.into_iter().zip(d).enumerate() {
        let next = average * (1.0 - weight) + d * weight;
        builder = builder.keep_input(average).carry(average, next).output(format!("h.{i}"), next);
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let [v, average] = self.warm.of(state)?.groups;
        let before = self.norm.of(&v)?;
        let found = self.single.advance(state, &v, (key, gamma))?;
        self.averaging.bind("average", &average)?;
        self.averaging.bind("d", &found.value)?;
        let value = self.averaging.fresh_outputs("h")?;
        self.averaging.run(0..1)?;
        self.averaging.unbind("d")?;
        Ok(Hypergradient { value, diagnostics: adjoint(before, self.norm.of(&v)?), ..found })
    }
}
