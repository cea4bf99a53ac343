//! The Langevin adjoint: an estimator that is right at finite temperature, in the memory of HPO-SGLD.
//!
//!   z ← z + γ·(f_θ(θᵐ) − H(θᵐ)·z)
//!   h = mean over kept m of \[f_λ(θᵐ) − zᵀ·C(θᵐ)\]      (z before it is advanced)
//!
//! A stationary Langevin chain is reversible in time, so the pathwise adjoint run forward has the expectation of the one run
//! backward, up to O(γ). One reverse pass over ⟨∇θL_T, z⟩ gives H·z and zᵀ·C together. Dropping −γ·H·z gives back
//! essentially the recursion of HPO-SGLD.
//!
//! If training is chaotic, products of (I − γH) grow and there is no hypergradient to find. z then leaves its trust
//! region (`trust_region.rs`) and is reset, and the measured growth (`growth.rs`) becomes a warning. With a `horizon`
//! of K steps z also decays, z ← (1 − 1/K)·z + γ·(f_θ − H·z), and settles at (H + I/(γK))⁻¹·f_θ.

use crate::hypergradient::parts::trust_region::TrustRegion;
use crate::hypergradient::parts::{effective_samples, trust_region};
use crate::hypergradient::paths::must_see;
use crate::hypergradient::vocabulary::*;
use crate::inner::growth;
use crate::inner::walk::{carried_from, not_applicable, outer_gradient};
use bilevel_graph::{Executor, gradient, vjp};

/// Settings of the Langevin adjoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LangevinAdjoint {
    /// Keep z from one hypergradient to the next (the default), or start it at 0.
    pub warm: bool,
    /// Take f_θ at every step (the default), or once, at the first θ.
    pub outer_every_step: bool,
    /// Reset z if it leaves the region that contraction keeps it in (the default). This changes no bit if training
    /// contracts, and keeps z bounded if there is no hypergradient.
    pub trust: bool,
    /// The horizon K, in steps: z is multiplied by 1 − 1/K at every step, which biases the hypergradient as if every
    /// curvature were 1/(γK) larger. 0, the default, is never; otherwise at least 2.
    pub horizon: usize,
}

impl Default for LangevinAdjoint {
    fn default() -> Self {
        LangevinAdjoint { warm: true, outer_every_step: true, trust: true, horizon: 0 }
    }
}

impl LangevinAdjoint {
    /// The factor by which z decays in a step, apart from the curvature.
    fn kept(&self) -> f64 {
        if self.horizon == 0 { 1.0 } else { 1.0 - 1.0 / self.horizon as f64 }
    }

    /// Returns true if f is evaluated at every step, and at enough of them to estimate how many of its values are
    /// independent.
    fn counts_samples(&self, inner: &InnerLoop) -> bool {
        self.outer_every_step && effective_samples::are_enough(inner.samples())
    }
}

struct Prepared {
    settings: LangevinAdjoint,
    inner: InnerLoop,
    session: Session,
    chain: Routine,
    adjoint: LazyNorm,
    /// f_θ and f_λ at the first θ, if they are evaluated once.
    outer: Option<Routine>,
}

impl Method for LangevinAdjoint {
    named!("langevin-adjoint");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        require(self.horizon != 1, "horizon", 1.0, "0, for none, or at least 2 steps")?;
        self.applies(session.problem())?;
        Ok(Box::new(Prepared {
            settings: *self,
            inner: *inner,
            session: session.clone(),
            chain: chain_program(self, inner, session)?,
            adjoint: LazyNorm::new(session.executor()),
            outer: if self.outer_every_step { None } else { Some(outer_gradient(session)?) },
        }))
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        if problem.starts_from_lambda() {
            let reason = "it assumes that θ⁰ does not depend on λ; use rmd, which differentiates through θ⁰(λ)";
            return not_applicable(self.name(), reason);
        }
        must_see(self.name(), problem, |path| self.sees(path))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::CHAIN
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop::default().at_temperature(1e-6)
    }

    fn tune(&mut self, task: InnerLoop, _curvature: f64) -> InnerLoop {
        InnerLoop { burn_in: 0, ..self.loop_use().adapt(task) }
    }

    fn claims(&self) -> Claims {
        Claims {
            gibbs: true,
            minimum: true,
            several_minima: true,
            singular: true,
            minibatches: true,
            ..Claims::default()
        }
    }

    fn shares_passes(&self) -> bool {
        true
    }
}

fn chain_program(settings: &LangevinAdjoint, inner: &InnerLoop, session: &Session) -> Result<Routine> {
    let share = 1.0 / inner.samples() as f64;
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let z = trace.inputs_like("z", theta);
    let h = trace.inputs_like("h", lambda);
    // Averages start again after the burn-in.
    let sums = carried_from(inner.burn_in, h.clone(), step);
    let gamma = trace.steps();
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    // One reverse pass over ⟨∇θL_T, z⟩: H·z by θ and zᵀ·C by λ.
    let both = [&lambda[..], theta].concat();
    let products = or_zeros(vjp(&slope, &z, &both)?, &both);
    let (mixed, hessian) = products.split_at(lambda.len());
    let mut builder = Program::builder(&graph);
    let (direct, f_theta) = if settings.outer_every_step {
        let outer = trace.outer(theta, step)?;
        let by = or_zeros(gradient(outer, &both)?, &both);
        builder = builder.output("outer", outer);
        if settings.counts_samples(inner) {
            builder = effective_samples::carry(builder, &trace, outer);
        }
        let (direct, f_theta) = by.split_at(lambda.len());
        (direct.to_vec(), f_theta.to_vec())
    } else {
        (trace.inputs_like("direct", lambda), trace.inputs_like("f_theta", theta))
    };
    builder = inner.one_step(&trace, &slope, &updates, step).carry(builder);
    let taken: Vec<Tensor> = hessian.iter().zip(&gamma).map(|(h, gamma)| *h * *gamma).collect();
    let along = growth::stretch(&trace, &z, &taken);
    let region = settings.trust.then(|| TrustRegion::new(&trace, along.xx));
    let inside = region.as_ref().map_or_else(|| graph.scalar(1.0, DType::F64), |region| region.inside);
    builder = growth::carry(builder, &trace, along, inside);
    // Inside the region all factors are 1, which changes no bit.
    let inside = inside.convert(session.problem().dtype);
    let kept = inside * settings.kept();
    for i in 0..theta.len() {
        builder = builder.carry(z[i], z[i] * kept + (f_theta[i] - hessian[i] * inside) * gamma[i]);
    }
    for i in 0..lambda.len() {
        builder = builder.carry(h[i], sums[i] + (direct[i] - mixed[i] * inside) * share);
    }
    if let Some(region) = region {
        let push: Vec<Tensor> = f_theta.iter().zip(&gamma).map(|(f, gamma)| *f * *gamma).collect();
        builder = region.carry(builder, settings.kept(), growth::product(&trace, &push, &push).sqrt());
    }
    Routine::new(&builder.build()?, session)
}

/// z and the radius of its region, initially zero, kept in the state.
fn memory(state: &mut State, executor: &dyn Executor) -> Result<(Leaves, Leaves)> {
    if state.memory.is_empty() {
        let radius = executor.buffer(&trust_region::radius())?;
        state.memory = state.theta.zeros_like(executor)?.iter().cloned().chain([radius]).collect();
    }
    let (z, radius) = state.memory.split_at(state.memory.len() - 1);
    Ok((z.iter().cloned().collect(), radius.iter().cloned().collect()))
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let chain = &mut self.chain;
        if let Some(outer) = &mut self.outer {
            outer.bind_point(&state.lambda, &state.theta, key)?;
            chain.bind("direct", &outer.outputs("direct")?)?;
            chain.bind("f_theta", &outer.outputs("f_theta")?)?;
            outer.run(0..1)?;
        }
        let (z, radius) = memory(state, self.session.executor())?;
        if !self.settings.warm {
            z.zero()?;
            radius.zero()?;
        }
        let before = self.adjoint.of(&z)?;
        self.inner.place(chain, gamma)?;
        chain.bind_point(&state.lambda, &state.theta, key)?;
        chain.bind("z", &z)?;
        if self.settings.trust {
            chain.bind(trust_region::RADIUS, &radius)?;
            trust_region::begin(chain)?;
        }
        growth::begin(chain)?;
        let value = chain.fresh("h")?;
        let mut from = 0;
        if self.settings.counts_samples(&self.inner) {
            // The sums of f start again after the burn-in, with an f as their centre.
            from = self.inner.burn_in.max(1) as u32;
            effective_samples::begin(chain, 0.0)?;
            chain.run(0..from)?;
            let centre = chain.number("outer")?;
            effective_samples::begin(chain, centre)?;
        }
        chain.run(from..self.inner.steps as u32)?;
        let steps = self.inner.steps as u64;
        let oracles = Oracles {
            inner_gradients: steps,
            outer_gradients: if self.outer.is_some() { 1 } else { steps },
            hessian_products: steps,
            mixed_products: steps,
            losses: 0,
        };
        let mut found = Hypergradient::new(value, oracles).blaming(Cause::AdjointGrowing);
        found.diagnostics = adjoint(before, self.adjoint.of(&z)?);
        growth::read(chain, Some(gamma), &mut found.diagnostics)?;
        if self.settings.trust {
            let exits = trust_region::exits(chain)?;
            found.diagnostics.trust_exits = Some(exits);
            // A z that was reset had grown, for any mean growth.
            let half = gamma / 2.0;
            let calm = &mut found.diagnostics.calm_step;
            *calm = calm.map(|calm| if exits > 0.0 { calm.min(half) } else { calm });
        }
        if self.settings.counts_samples(&self.inner) {
            found.diagnostics.effective_samples = effective_samples::read(chain, self.inner.samples())?;
        }
        Ok(found)
    }
}
