//! HPO-SGLD (Kim and Hospedales, Algorithm 1), exactly as printed.
//!
//!   θᵐ = θᵐ⁻¹ − γ·∇θL_T(θᵐ⁻¹) + κ·√(2τγ)·ξ
//!   g₀ = f_θ(θ⁰)·J0
//!   gₘ = gₘ₋₁ − γ·f_θ(θᵐ)·\[C(θᵐ⁻¹) + H(θᵐ⁻¹)·J0\] + (θᵐ − θᵐ⁻¹)·f_θθ(θᵐ⁻¹)·J0
//!   h  = (1/M)·Σ over m = B+1 … B+M of \[f_λ(θᵐ) + gₘ\]
//!
//! No g is kept: the term that step m subtracts is in every kept sum from m on, so h includes it at once with its
//! weight,
//!
//!   h ← h + \[m > B\]·f_λ(θᵐ)/M − w_m·γ·f_θ(θᵐ)·\[…\],   w_m = min(M, B+M+1−m)/M,   from h = g₀.
//!
//! Steps of the burn-in, for which w_m = 1 and f_λ does not contribute, have a separate program if that is cheaper.
//!
//! The recursion drops the contraction −γ·H·dθ/dλ, so it is not consistent: see [`LangevinAdjoint`](crate::methods::LangevinAdjoint)
//! for one that is.

use crate::compiled::trace::as_variables;
use crate::hypergradient::parts::effective_samples;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{InnerStart, carried_from, scaled};
use bilevel_graph::{gradient, hessian_vector, mixed_vector};

/// Settings of HPO-SGLD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HpoSgld {}

struct Prepared {
    inner: InnerLoop,
    /// The steps of the burn-in, if they are cheaper.
    burn_in: Option<Routine>,
    /// Those kept, or all.
    chain: Routine,
    start: InnerStart,
    /// g₀, if θ⁰ depends on λ.
    first: Option<Routine>,
}

impl Method for HpoSgld {
    named!("hpo-sgld");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        let (chain, part) = chain_program(inner, session, ChainPart::Kept)?;
        let burn_in = match part {
            ChainPart::All => None,
            _ => Some(chain_program(inner, session, ChainPart::BurnIn)?.0),
        };
        Ok(Box::new(Prepared {
            inner: *inner,
            burn_in,
            chain,
            start: InnerStart::new(session)?,
            first: if session.problem().starts_from_lambda() { Some(first_program(session)?) } else { None },
        }))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse { scales_indirect: true, ..LoopUse::CHAIN }
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop { burn_in: 50, ..InnerLoop::default().at_temperature(1e-6) }
    }

    fn tune(&mut self, task: InnerLoop, _curvature: f64) -> InnerLoop {
        InnerLoop { burn_in: task.steps / 2, ..self.loop_use().adapt(task) }
    }

    fn claims(&self) -> Claims {
        // Exact for a training of one step, which has no contraction to drop. The paper claims every length, which the
        // truth suite refutes.
        Claims { training: true, only: Some(Condition::OneStep), ..Claims::default() }
    }
}

/// g₀ = f_θ(θ⁰)·J0.
fn first_program(session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let loss = trace.outer(&trace.theta, graph.step())?;
    let f_theta = or_zeros(gradient(loss, &trace.theta)?, &trace.theta);
    let mut builder = Program::builder(&graph);
    for (i, g) in trace.through_start(&f_theta)?.into_iter().enumerate() {
        builder = builder.output(format!("g.{i}"), g);
    }
    Routine::new(&builder.build()?, session)
}

/// A part of the chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChainPart {
    BurnIn,
    Kept,
    All,
}

/// The program of a part; the same for all steps if those of the burn-in are not cheaper.
fn chain_program(inner: &InnerLoop, session: &Session, part: ChainPart) -> Result<(Routine, ChainPart)> {
    let share = 1.0 / inner.samples() as f64;
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let gamma = trace.gamma;
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    let walk = inner.one_step(&trace, &slope, &updates, step);
    let next = walk.next();

    // θᵐ counts as an independent variable, so f_λ is the partial derivative.
    let reached = as_variables(&next);
    let outer = trace.outer(&reached, step)?;
    let both = [&lambda[..], &reached].concat();
    let mut direct = gradient(outer, &both)?;
    let f_theta = &or_zeros(direct.split_off(lambda.len()), &next);
    // γ·f_θ·C, and if θ⁰ depends on λ also (γ·f_θ·H − Δθ·f_θθ)·J0; leaves of θ may have their own steps.
    let scaled = &scaled(f_theta, session.problem());
    let mixed = or_zeros(mixed_vector(loss, theta, scaled, lambda)?, lambda);
    let mut change: Vec<_> = mixed.iter().map(|m| *m * gamma).collect();
    if session.problem().starts_from_lambda() {
        let hessian = or_zeros(hessian_vector(loss, theta, scaled)?, theta);
        let moved: Vec<_> = next.iter().zip(theta).map(|(n, t)| *n - *t).collect();
        let bend = or_zeros(hessian_vector(trace.outer(theta, step)?, theta, &moved)?, theta);
        let through: Vec<_> = hessian.iter().zip(&bend).map(|(h, b)| *h * gamma - *b).collect();
        change = change.iter().zip(trace.through_start(&through)?).map(|(c, s)| *c + s).collect();
    }
    let counts = effective_samples::are_enough(inner.samples());
    let part = match part {
        ChainPart::Kept if inner.burn_in == 0 || direct.iter().all(Option::is_none) && !counts => ChainPart::All,
        part => part,
    };
    let h = trace.inputs_like("h", lambda);
    // It begins in the first step, unless θ⁰ depends on λ: then g₀ is there already.
    let sum = match part != ChainPart::Kept && !session.problem().starts_from_lambda() {
        true => carried_from(0, h.clone(), step),
        false => h.clone(),
    };
    // The first step has the number 0 here.
    let weight = ((inner.steps as f64 - step).convert(session.problem().dtype) * share).minimum(1.0);
    let mut builder = walk.carry(Program::builder(&graph).output("outer", outer));
    for i in 0..lambda.len() {
        let h_next = match (part, direct[i]) {
            (ChainPart::BurnIn, _) => sum[i] - change[i],
            (_, None) => sum[i] - change[i] * weight,
            (_, Some(direct)) => sum[i] - change[i] * weight + direct * share,
        };
        builder = builder.carry(h[i], h_next);
    }
    if part != ChainPart::BurnIn && counts {
        builder = effective_samples::carry(builder, &trace, outer);
    }
    Ok((Routine::new(&builder.build()?, session)?, part))
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        self.start.place(&state.lambda, &state.theta, key)?;
        let chain = &mut self.chain;
        let value = match &mut self.first {
            Some(first) => {
                first.bind_point(&state.lambda, &state.theta, key)?;
                let value = first.fresh_outputs("g")?;
                first.run(0..1)?;
                chain.bind("h", &value)?;
                value
            }
            None => chain.fresh("h")?,
        };
        let (samples, end) = (self.inner.samples(), self.inner.steps as u32);
        let (mut from, mut centre) = (0, None);
        if let Some(burn_in) = &mut self.burn_in {
            from = self.inner.burn_in as u32;
            self.inner.place(burn_in, gamma)?;
            burn_in.bind_point(&state.lambda, &state.theta, key)?;
            burn_in.bind("h", &value)?;
            if effective_samples::are_enough(samples) {
                burn_in.run(0..from)?;
                centre = Some(burn_in.number("outer")?);
            } else {
                burn_in.advance(0..from)?;
            }
            burn_in.unbind("h")?;
        }
        self.inner.place(chain, gamma)?;
        chain.bind_point(&state.lambda, &state.theta, key)?;
        if effective_samples::are_enough(samples) {
            // The effective samples are those kept, with an f as their centre.
            let centre = match centre {
                Some(centre) => centre,
                None => {
                    effective_samples::begin(chain, 0.0)?;
                    chain.run(0..1)?;
                    from = 1;
                    chain.number("outer")?
                }
            };
            effective_samples::begin(chain, centre)?;
        }
        chain.run(from..end)?;
        if self.first.is_some() {
            // It began as an output of the other program, which may use its memory again.
            chain.unbind("h")?;
        }
        let (steps, from_lambda) = (self.inner.steps as u64, self.first.is_some() as u64);
        let oracles = Oracles {
            inner_gradients: steps,
            outer_gradients: steps + from_lambda,
            hessian_products: 2 * steps * from_lambda,
            mixed_products: steps,
            losses: 0,
        };
        let mut found = Hypergradient::new(value, oracles);
        if effective_samples::are_enough(samples) {
            found.diagnostics.effective_samples = effective_samples::read(chain, samples)?;
        }
        Ok(found)
    }
}
