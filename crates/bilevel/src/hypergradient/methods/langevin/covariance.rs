//! The covariance (score-function) estimator: no second derivatives, from samples of the inner chain.
//!
//!   dF/dλ = E\[f_λ\] − Cov(f, ∂L_T/∂λ)/(κ²τ),   θ ~ exp(−L_T/(κ²τ))
//!
//! κ²τ is the actual temperature of the chain. The samples are the M states after B steps of burn-in. f and ∂L_T/∂λ are
//! centred by their values at the first of them, so that large ones cost no digits. It is right up to the O(γ) bias of
//! the chain and the bias of a sample covariance. The latter is too small by one part in n, the effective number of
//! samples, which is far below M for a chain. It is noisy: the variance grows with the size of λ and as τ falls.

use crate::hypergradient::parts::effective_samples;
use crate::hypergradient::paths::must_see;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::not_applicable;
use bilevel_graph::gradient;

/// Settings of the covariance estimator.
///
/// ```
/// use bilevel::methods::Covariance;
/// use bilevel::{Cpu, InnerLoop, Key, Leaf, Method, Problem, Session, Variable};
/// // θ ~ N(λ, τ) and f = θ: the derivative is 1.
/// let problem = Problem::builder(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 3.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()
///     .unwrap();
/// let (method, inner) = (Covariance::default(), InnerLoop { burn_in: 100, ..InnerLoop::new(0.1, 20100).at_temperature(0.1) });
/// let session = Session::new(&problem, &Cpu::with_threads(1)).unwrap();
/// let mut estimator = method.prepare_in(&session, &inner).unwrap();
/// let h = estimator.estimate(&mut session.state(Key::from_seed(0)).unwrap(), Key::from_seed(0)).unwrap();
/// assert!((h.value[0].item().unwrap() - 1.0).abs() < 0.3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Covariance {}

struct Prepared {
    inner: InnerLoop,
    burn_in: Routine,
    chain: Routine,
    ending: Routine,
}

impl Method for Covariance {
    named!("covariance");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        self.applies(session.problem())?;
        inner.check_for(self)?;
        let must = "above 0: without noise there is no covariance; langevin-adjoint, rmd and ift-cg work at 0";
        require(inner.temperature > 0.0, "temperature", inner.temperature, must)?;
        require(inner.noise_scale > 0.0, "noise_scale", inner.noise_scale, must)?;
        Ok(Box::new(Prepared {
            inner: *inner,
            burn_in: inner.walk(session)?,
            chain: chain_program(inner, session)?,
            ending: ending_program(inner.samples(), session)?,
        }))
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        if problem.starts_from_lambda() {
            let reason = "it averages over the stationary chain, which does not depend on θ⁰, but here θ⁰ depends on \
                λ; use rmd, which differentiates through θ⁰(λ)";
            return not_applicable(self.name(), reason);
        }
        must_see(self.name(), problem, |path| self.sees(path))
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse { fewest_samples: 2, ..LoopUse::CHAIN }
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop { burn_in: 100, ..InnerLoop::new(0.01, 1100).at_temperature(0.1) }
    }

    fn tune(&mut self, task: InnerLoop, _curvature: f64) -> InnerLoop {
        // An average over samples is all it has: it needs many, and a temperature at which they differ.
        let temperature = task.temperature.max(1e-3);
        InnerLoop { burn_in: task.steps, steps: 11 * task.steps, temperature, ..self.loop_use().adapt(task) }
    }

    fn claims(&self) -> Claims {
        Claims { gibbs: true, several_minima: true, ..Claims::default() }
    }
}

/// Carries θ and the sums of f − c, f_λ, s − d and (f − c)·(s − d), with s = ∂L_T/∂λ; the centres c and d are given.
fn chain_program(inner: &InnerLoop, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let dtype = session.problem().dtype;
    let both = [&lambda[..], theta].concat();
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let by = or_zeros(gradient(loss, &both)?, &both);
    let (score, slope) = by.split_at(lambda.len());
    let outer = trace.outer(theta, step)?;
    let direct = or_zeros(gradient(outer, lambda)?, lambda);

    let (centre, f_sum) = (graph.input("centre.0", [], dtype), graph.input("f.0", [], dtype));
    let off = outer.reshape([]) - centre;
    let score_centre = trace.inputs_like("score_centre", lambda);
    let direct_sum = trace.inputs_like("direct", lambda);
    let score_sum = trace.inputs_like("score", lambda);
    let product_sum = trace.inputs_like("product", lambda);
    let mut builder = Program::builder(&graph).output("outer", outer).carry(f_sum, f_sum + off);
    builder = inner.one_step(&trace, slope, &updates, step).carry(builder);
    for i in 0..lambda.len() {
        let score_off = score[i] - score_centre[i];
        builder = builder
            .output(format!("now.{i}"), score[i])
            .carry(direct_sum[i], direct_sum[i] + direct[i])
            .carry(score_sum[i], score_sum[i] + score_off)
            .carry(product_sum[i], product_sum[i] + score_off * off);
    }
    builder = effective_samples::carry(builder, &trace, outer);
    Routine::new(&builder.build()?, session)
}

/// h = Σ f_λ/M − (Σ (f−c)(s−d) − Σ(f−c)·Σ(s−d)/M) / ((M−1)·κ²τ), from the sums.
fn ending_program(samples: usize, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let kept = samples as f64;
    let [direct, score, product] = ["direct", "score", "product"].map(|name| trace.inputs_like(name, &trace.lambda));
    let [f, heat] = ["f.0", "heat.0"].map(|name| graph.input(name, [], session.problem().dtype));
    let mut builder = Program::builder(&graph);
    for i in 0..direct.len() {
        let covariance = (product[i] - f * score[i] / kept) / (kept - 1.0);
        builder = builder.output(format!("h.{i}"), direct[i] / kept - covariance / heat);
    }
    Routine::new(&builder.build()?, session)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let (burn_in, samples) = (self.inner.burn_in, self.inner.samples());
        self.inner.place(&mut self.burn_in, gamma)?;
        if burn_in > 0 {
            self.burn_in.bind_point(&state.lambda, &state.theta, key)?;
            self.burn_in.run(0..burn_in as u32)?;
        }
        let chain = &mut self.chain;
        self.inner.place(chain, gamma)?;
        chain.bind_point(&state.lambda, &state.theta, key)?;
        effective_samples::begin(chain, 0.0)?;
        let direct = chain.zeroed("direct")?;
        let score_centre = chain.zeroed("score_centre")?;
        let (score, product) = (chain.zeroed("score")?, chain.zeroed("product")?);
        let now = chain.outputs("now")?;
        chain.set_numbers("centre", [0.0])?;
        chain.set_numbers("f", [0.0])?;
        // The first sample becomes the centre of f and of the score, and so adds nothing to their sums.
        let second = burn_in as u32 + 1;
        chain.run(burn_in as u32..second)?;
        let centre = chain.number("outer")?;
        chain.set_numbers("centre", [centre])?;
        chain.set_numbers("f", [0.0])?;
        score_centre.copy_from(&now)?;
        score.zero()?;
        product.zero()?;
        effective_samples::begin(chain, centre)?;
        chain.run(second..self.inner.steps as u32)?;

        let [f] = chain.carried_numbers("f")?;
        let heat = self.inner.heat();
        let ending = &mut self.ending;
        for (group, sums) in [("direct", &direct), ("score", &score), ("product", &product)] {
            ending.bind(group, sums)?;
        }
        ending.set_numbers("f", [f])?;
        ending.set_numbers("heat", [heat])?;
        let value = ending.fresh_outputs("h")?;
        ending.run(0..1)?;
        let oracles =
            Oracles { inner_gradients: self.inner.steps as u64, outer_gradients: samples as u64, ..Oracles::default() };
        let mut found = Hypergradient::new(value, oracles);
        found.diagnostics.effective_samples = effective_samples::read(chain, samples)?;
        Ok(found)
    }
}
