//! T1–T2: one hypergradient from the end of training, with the inner Hessian taken for the identity.
//!
//!   h = f_λ − γ·f_θᵀ·C   at the end of training
//!
//! Biased wherever the Hessian is not the identity divided by γ (Luketina and others, 2016).

use crate::hypergradient::vocabulary::*;
use bilevel_graph::{gradient_or_zeros, mixed_vector};

/// Settings of T1–T2: it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct T1T2 {}

struct Prepared {
    inner: InnerLoop,
    forward: Routine,
    outer: Routine,
}

impl Method for T1T2 {
    named!("t1-t2");

    fn loop_use(&self) -> LoopUse {
        LoopUse { noise: Noise::Never, ..LoopUse::PLAIN }
    }

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        let graph = Graph::new();
        let trace = Trace::new(&graph, session.problem())?;
        let (loss, f) = (trace.inner(&trace.theta, graph.step())?, trace.outer(&trace.theta, graph.step())?);
        let f_theta = gradient_or_zeros(f, &trace.theta)?;
        let mixed = or_zeros(mixed_vector(loss, &trace.theta, &f_theta, &trace.lambda)?, &trace.lambda);
        let mut program = Program::builder(&graph).output("outer", f);
        for (i, (direct, mixed)) in gradient_or_zeros(f, &trace.lambda)?.into_iter().zip(mixed).enumerate() {
            program = program.output(format!("h.{i}"), direct - mixed * trace.gamma);
        }
        let outer = Routine::new(&program.build()?, session)?;
        Ok(Box::new(Prepared { inner: *inner, forward: inner.walk(session)?, outer }))
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.inner.place(&mut self.forward, gamma)?;
        self.forward.bind_point(&state.lambda, &state.theta, key)?;
        self.forward.run(0..self.inner.steps as u32)?;
        self.outer.set_step_sizes(gamma, 0.0)?;
        self.outer.bind_point(&state.lambda, &state.theta, key)?;
        let value = self.outer.fresh_outputs("h")?;
        self.outer.run(self.inner.last())?;
        let (inner_gradients, outer_gradients, mixed_products) = (self.inner.steps as u64, 1, 1);
        let oracles = Oracles { inner_gradients, outer_gradients, mixed_products, ..Oracles::default() };
        Ok(Hypergradient::new(value, oracles).with_outer_loss(self.outer.number("outer")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, Leaf, Problem, Variable};

    #[test]
    fn added_method_is_exact_where_the_hessian_times_the_step_is_the_identity() {
        // θ* = λ, H = 1 and γ = 1, so that dF/dλ = 2(λ − 3).
        let problem = Problem::builder(Leaf(Variable::constant([], 1.0)), Leaf(Variable::constant([], 0.0)))
            .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
            .outer(|_, _, t| (t.0 - 3.0).square())
            .build()
            .unwrap();
        let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
        let inner = InnerLoop::new(1.0, 2);
        let mut state = session.state(Key::from_seed(0)).unwrap();
        let found = T1T2::default().prepare_in(&session, &inner).unwrap().estimate(&mut state, Key::from_seed(0)).unwrap();
        assert_eq!(found.value[0].item().unwrap(), -4.0);
    }
}
