//! First-order reverse mode: every second-order term dropped.
//!
//!   h = f_λ(θᵀ) + f_θ(θᵀ)·J0
//!
//! With θ⁰ = λ this is FO-MAML. If θ⁰ does not depend on λ, only the direct term f_λ is left; without that too, it is
//! refused.

use crate::hypergradient::paths::Path;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{InnerStart, add_through_start, outer_gradient, through_start};

/// Settings of first-order reverse mode.
///
/// ```
/// use bilevel::methods::RmdFo;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ⁰ = λ and f = θ²: the first-order hypergradient is 2θᵀ, whatever the inner loss.
/// let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, _, t| t.0.square() / 2.0)
///     .outer(|_, _, t| t.0.square())
///     .start(|_, l| *l)
///     .build()
///     .unwrap();
/// let (method, inner) = (RmdFo::default(), InnerLoop::new(0.5, 1));
/// let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
/// let mut estimator = method.prepare_in(&session, &inner).unwrap();
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0)).unwrap(), Key::from_seed(0)).unwrap();
/// assert_eq!(h.value[0].item().unwrap(), 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RmdFo {}

struct Prepared {
    inner: InnerLoop,
    start: InnerStart,
    forward: Routine,
    outer: Routine,
    through: Option<Routine>,
}

impl Method for RmdFo {
    named!("rmd-fo");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        Ok(Box::new(Prepared {
            inner: *inner,
            start: InnerStart::new(session)?,
            forward: inner.walk(session)?,
            outer: outer_gradient(session)?,
            through: through_start(session)?,
        }))
    }

    fn sees(&self, path: Path) -> bool {
        path != Path::Training
    }

    fn claims(&self) -> Claims {
        // Exact if the dropped second-order terms vanish.
        Claims { training: true, only: Some(Condition::StraightInnerLoss), ..Claims::default() }
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        self.inner.place(&mut self.forward, gamma)?;
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
}
