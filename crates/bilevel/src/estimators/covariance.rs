//! The covariance (score-function) estimator: no second derivatives, from samples of the inner chain.
//!
//!   dF/dλ = E\[f_λ\] − Cov(f, ∂L_T/∂λ)/(κ²τ),   θ ~ exp(−L_T/(κ²τ))
//!
//! κ²τ is the temperature the chain really has. The samples are the M states after B steps of burn-in; f and ∂L_T/∂λ are
//! centred by their values at the first of them, so that large ones cost no digits. It is right up to the O(γ) bias of the
//! chain and the O(1/M) of a sample covariance, but noisy: the variance grows with the size of λ and as τ falls.

use super::effective_samples;
use super::inner_loop::{InnerLoop, not_applicable};
use crate::error::require;
use crate::estimator::{Estimator, Hypergradient, Method, Oracles, State, finite, zeros_like};
use crate::paths::must_see;
use crate::probe::InnerTime;
use crate::problem::Problem;
use crate::routine::Routine;
use crate::trace::{Trace, or_zeros};
use crate::{Cause, Result};
use bilevel_graph::{Array, Executor, Graph, Program, gradient};
use serde::{Deserialize, Serialize};

/// Settings of the covariance estimator.
///
/// ```
/// use bilevel::{Cpu, Covariance, Leaf, Method, Problem, State, Variable};
/// // θ ~ N(λ, τ) and f = θ: the derivative is 1.
/// let problem = Problem::new(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 3.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()
///     .unwrap();
/// let method = Covariance { step: 0.1, samples: 20_000, ..Covariance::default() };
/// let mut estimator = method.prepare(&problem, &Cpu::with_threads(1)).unwrap();
/// let h = estimator.estimate(&mut State::initial(&problem, [0, 0]).unwrap(), [0, 0]).unwrap();
/// assert!((h.value[0].item().unwrap() - 1.0).abs() < 0.3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Covariance {
    /// Steps before any is kept, B.
    pub burn_in: usize,
    /// Samples kept, M; at least 2.
    pub samples: usize,
    /// Inner step γ, above 0.
    pub step: f64,
    /// Temperature τ, above 0.
    pub temperature: f64,
    /// Noise scale κ, above 0.
    pub noise_scale: f64,
}

impl Default for Covariance {
    fn default() -> Self {
        Covariance { burn_in: 100, samples: 1000, step: 0.01, temperature: 0.1, noise_scale: 1.0 }
    }
}

struct Prepared {
    settings: Covariance,
    inner: InnerLoop,
    problem: Problem,
    burn_in: Routine,
    chain: Routine,
}

impl Method for Covariance {
    fn name(&self) -> &'static str {
        "covariance"
    }

    fn compile(&self, problem: &Problem, executor: &dyn Executor) -> Result<Box<dyn Estimator>> {
        self.applies(problem)?;
        let Covariance { burn_in, samples, step, temperature, noise_scale } = *self;
        require(samples > 1, "samples", samples as f64, "at least 2, for a covariance")?;
        let inner = InnerLoop::new(step, burn_in.saturating_add(samples), temperature, noise_scale, 1)?;
        let must = "above 0: without noise there is no covariance; langevin-adjoint, rmd and ift-cg work at 0";
        require(temperature > 0.0, "temperature", temperature, must)?;
        require(noise_scale > 0.0, "noise_scale", noise_scale, must)?;
        Ok(Box::new(Prepared {
            settings: *self,
            inner,
            problem: problem.clone(),
            burn_in: inner.walk(problem, executor)?,
            chain: chain_program(&inner, problem, executor)?,
        }))
    }

    fn applies(&self, problem: &Problem) -> Result<()> {
        if problem.starts_from_lambda() {
            let reason = "it averages over the stationary chain, which forgets its start, but here θ⁰ depends on λ; use rmd, \
                          which differentiates through the start";
            return not_applicable(self.name(), reason);
        }
        must_see(self.name(), problem, |path| self.sees(path))
    }

    fn inner_time(&self) -> Option<InnerTime> {
        let time = InnerTime::new(self.step, self.burn_in.saturating_add(self.samples));
        Some(time.with_noise(self.temperature, self.noise_scale))
    }
}

/// Carries θ and the sums of f − c, f_λ, s − d and (f − c)·(s − d), with s = ∂L_T/∂λ; the centres c and d are given.
fn chain_program(inner: &InnerLoop, problem: &Problem, executor: &dyn Executor) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let both = [&lambda[..], theta].concat();
    let loss = trace.inner(theta, step)?;
    let by = or_zeros(gradient(loss, &both)?, &both);
    let (score, slope) = by.split_at(lambda.len());
    let outer = trace.outer(theta, step)?;
    let direct = or_zeros(gradient(outer, lambda)?, lambda);

    let (centre, f_sum) = (graph.input("centre.0", [], problem.dtype), graph.input("f.0", [], problem.dtype));
    let off = outer.reshape([]) - centre;
    let score_centre = trace.inputs_like("score_centre", lambda);
    let direct_sum = trace.inputs_like("direct", lambda);
    let score_sum = trace.inputs_like("score", lambda);
    let product_sum = trace.inputs_like("product", lambda);
    let mut builder = Program::builder(&graph).output("inner", loss).output("outer", outer).carry(f_sum, f_sum + off);
    for (&theta, next) in theta.iter().zip(inner.next(&trace, slope, step)) {
        builder = builder.carry(theta, next);
    }
    for i in 0..lambda.len() {
        let score_off = score[i] - score_centre[i];
        builder = builder
            .output(format!("now.{i}"), score[i])
            .carry(direct_sum[i], direct_sum[i] + direct[i])
            .carry(score_sum[i], score_sum[i] + score_off)
            .carry(product_sum[i], product_sum[i] + score_off * off);
    }
    builder = effective_samples::carry(builder, &trace, outer);
    Routine::new(&builder.build()?, problem, executor)
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        let Covariance { burn_in, samples, temperature, noise_scale, .. } = self.settings;
        let mut theta = state.theta.clone();
        self.inner.place(&mut self.burn_in)?;
        if burn_in > 0 {
            self.burn_in.set_point(&state.lambda, &theta, key)?;
            self.burn_in.run(0..burn_in as u32)?;
            theta = self.burn_in.theta()?;
        }
        let chain = &mut self.chain;
        self.inner.place(chain)?;
        chain.set_point(&state.lambda, &theta, key)?;
        effective_samples::begin(chain, 0.0)?;
        let number = [Array::scalar(0.0, self.problem.dtype)];
        let zeros = zeros_like(&state.lambda);
        chain.set_all("direct", &zeros)?;
        chain.set_all("centre", &number)?;
        chain.set_all("score_centre", &zeros)?;
        let clear = |chain: &mut Routine| -> Result<()> {
            chain.set_all("f", &number)?;
            chain.set_all("score", &zeros)?;
            chain.set_all("product", &zeros)
        };
        clear(chain)?;
        // The first sample becomes the centre of f and of the score, and so adds nothing to their sums.
        let second = burn_in as u32 + 1;
        chain.run(burn_in as u32..second)?;
        let centre = chain.number("outer")?;
        chain.set_all("centre", &[Array::scalar(centre, self.problem.dtype)])?;
        chain.set_all("score_centre", &chain.output_all("now")?)?;
        clear(chain)?;
        effective_samples::begin(chain, centre)?;
        chain.run(second..self.inner.steps as u32)?;

        let count = zeros.len();
        let f = chain.carried_all("f")?[0].item().unwrap_or(f64::NAN);
        let sums = ["direct", "score", "product"].map(|prefix| chain.carried_all(prefix));
        let [direct, score, product] = sums;
        let (direct, score, product) = (direct?, score?, product?);
        let (kept, heat) = (samples as f64, noise_scale * noise_scale * temperature);
        let leaf = |i: usize| -> Result<Array> {
            let (d, s, p) = (direct[i].to_f64(), score[i].to_f64(), product[i].to_f64());
            let one = |j: usize| d[j] / kept - (p[j] - f * s[j] / kept) / (kept - 1.0) / heat;
            let values: Vec<f64> = (0..d.len()).map(one).collect();
            Ok(Array::from_values(direct[i].shape(), &values, direct[i].dtype())?)
        };
        let value = (0..count).map(leaf).collect::<Result<Vec<_>>>()?;
        let theta = chain.theta()?;
        finite("covariance", "θ or the hypergradient", &[&value[..], &theta].concat(), Cause::InnerStepTooLarge)
            .map_err(|e| self.inner.explain(e, &mut self.burn_in, (&state.lambda, &state.theta, key)))?;
        state.theta = theta;
        let oracles =
            Oracles { inner_gradients: self.inner.steps as u64, outer_gradients: samples as u64, ..Oracles::default() };
        let (inner_loss, outer_loss) = (chain.number("inner")?, chain.number("outer")?);
        let mut found = Hypergradient::new(value, (inner_loss, outer_loss), oracles);
        found.diagnostics.effective_samples = effective_samples::read(chain, samples)?;
        Ok(found)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.inner.factor = factor;
        Ok(())
    }
}
