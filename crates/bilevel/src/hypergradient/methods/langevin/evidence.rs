//! The evidence: λ by the marginal likelihood of the training rows, from first derivatives along a Langevin chain.
//!
//!   F(λ) = −T·log ∫ exp(−L_T(λ, θ)/T) dθ,   dF/dλ = E\[∂L_T/∂λ\] under exp(−L_T/T),   T = κ²τ
//!
//! With L_T = (mean loss of n rows) + (−log prior)/n and T = 1/n, F is −(log evidence)/n: nats per row. There is no outer loss, no
//! validation row, no adjoint and no solve. The prior must be normalised ([`nn::gaussian_prior`](bilevel_graph::nn::gaussian_prior)),
//! because its normaliser is the term that limits λ.
//!
//!   θ ← θ − γ·∇θL_T + √(2Tγ)·(ξᵐ + ξᵐ⁺¹)/2
//!
//! The mean of two neighbouring draws (Leimkuhler and Matthews, 2013) makes the variance exact for a quadratic L_T at any stable γ, and
//! right up to O(γ²) otherwise. The standard error is that of the means of up to 32 batches of samples; it is too small if a chain
//! remembers longer than a batch. Minibatches heat the chain by γ/2 times the variance of their gradients, which is
//! measured and reported as a warning. For a network it is the evidence of the basin that the chain is in.
//!
//! De Bortoli et al., Efficient stochastic optimisation by unadjusted Langevin Monte Carlo (2021). Akyildiz et al.,
//! Interacting particle Langevin algorithm (arXiv 2303.13429). For λ that moves along the chain, arXiv 2406.04187.

use crate::hypergradient::parts::effective_samples;
use crate::hypergradient::vocabulary::*;
use crate::inner::walk::{carried_from, not_applicable};
use crate::problem::variable::Role;
use bilevel_graph::gradient;

/// Batches of samples for the standard error, at most: more of them are shorter than a chain's memory.
const MAX_BATCHES: usize = 32;

/// The evidence needs no settings: the temperature and the length of the chain are those of the inner loop.
///
/// ```
/// use bilevel::graph::nn::gaussian_prior;
/// use bilevel::methods::Evidence;
/// use bilevel::{Array, Driver, InnerLoop, Leaf, Problem, Variable};
/// // Five weights with the prior N(0, 1/a), each seen once with noise of variance 1: the evidence is largest where the variance
/// // 1 + 1/a of what is seen equals its mean square, 11.
/// let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([5], 0.0)))
///     .data("y", Array::from_f64([5], vec![1.0, -2.0, 3.0, -4.0, 5.0])?)
///     .inner(|s, l, t| (s.data("y") - t.0).square().sum_all() / 2.0 + gaussian_prior(t.0, l.0.exp()))
///     .evidence()
///     .build()?;
/// let inner = InnerLoop { burn_in: 20, ..InnerLoop::new(0.3, 500).at_temperature(1.0) };
/// let outcome = Driver::new(&problem, Evidence::default()).inner(inner).rate(0.2).iterations(200).run()?;
/// assert!((outcome.lambda.0.item().unwrap() - 0.1f64.ln()).abs() < 0.1);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Evidence {}

/// How the kept samples are divided for the standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Batches {
    /// The step after which the first batch begins; steps that do not fill a batch precede it.
    from: usize,
    count: usize,
    length: usize,
}

impl Batches {
    /// The batches of a loop; `None` with too few samples for an estimate.
    fn of(inner: &InnerLoop) -> Option<Self> {
        let samples = inner.samples();
        if !effective_samples::are_enough(samples) {
            return None;
        }
        let count = samples.isqrt().min(MAX_BATCHES);
        let length = samples / count;
        Some(Batches { from: inner.steps - count * length, count, length })
    }
}

struct Prepared {
    inner: InnerLoop,
    batches: Option<Batches>,
    chain: Routine,
    ending: Routine,
    /// Two draws of ∇θL_T at one θ, if the loss is random.
    draws: Option<Routine>,
    warm: Warm<1>,
}

impl Method for Evidence {
    named!("evidence");

    fn compile(&self, session: &Session, inner: &InnerLoop) -> Result<Box<dyn Estimator>> {
        inner.check_for(self)?;
        let must = "above 0: it is 1/n for a mean over n rows, and 1 for a sum";
        require(inner.heat() > 0.0, "temperature", inner.heat(), must)?;
        self.applies(session.problem())?;
        let batches = Batches::of(inner);
        Ok(Box::new(Prepared {
            inner: *inner,
            batches,
            chain: chain_program(inner, batches, session)?,
            ending: ending_program(inner, batches, session)?,
            draws: draws_program(session)?,
            warm: Warm::new(session, [Like::Theta]),
        }))
    }

    fn applies(&self, problem: &AnyProblem) -> Result<()> {
        if !problem.judged_by_evidence {
            let reason = "it uses the evidence of the training rows, but this problem has an outer loss; use \
                .evidence() instead of .outer(…), and put a normalised prior into the inner loss";
            return not_applicable(self.name(), reason);
        }
        if problem.starts_from_lambda() {
            let reason = "it averages over the stationary chain, which does not depend on θ⁰, but here θ⁰ depends on \
                λ; use rmd, which differentiates through θ⁰(λ)";
            return not_applicable(self.name(), reason);
        }
        Ok(())
    }

    fn loop_use(&self) -> LoopUse {
        LoopUse::CHAIN
    }

    // A loop without noise has no evidence; 1 is the temperature of an inner loss that is a sum over rows.
    fn tune(&mut self, task: InnerLoop, _curvature: f64) -> InnerLoop {
        let inner = self.loop_use().adapt(task);
        if inner.heat() > 0.0 { inner } else { InnerLoop { noise_scale: 1.0, ..inner }.at_temperature(1.0) }
    }

    fn usual_loop(&self) -> InnerLoop {
        InnerLoop { burn_in: 100, ..InnerLoop::new(0.01, 1100).at_temperature(1.0) }
    }

    fn claims(&self) -> Claims {
        Claims { evidence: true, several_minima: true, ..Claims::default() }
    }
}

/// Carries θ, the last noise, the sum of ∂L_T/∂λ and its sums over batches:
///
///   b = sum over the current batch,   d = b/length − c,   e = Σ d,   q = Σ d²,   c the mean of the first batch
fn chain_program(inner: &InnerLoop, batches: Option<Batches>, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let InnerLoss { loss, updates } = trace.inner_loss(theta, step)?;
    let both = [&lambda[..], theta].concat();
    let by = or_zeros(gradient(loss, &both)?, &both);
    let (score, slope) = by.split_at(lambda.len());
    let mut builder = Program::builder(&graph).output("inner", loss);
    if batches.is_some() {
        builder = effective_samples::carry(builder, &trace, loss);
    }
    let (last, noise) = (trace.inputs_like("noise_before", theta), trace.noise(step));
    for (i, (gamma, (_, variable))) in trace.steps().into_iter().zip(&trace.problem.theta).enumerate() {
        if variable.role == Role::Statistic {
            builder = builder.carry(theta[i], updates[i].unwrap_or(theta[i])).carry(last[i], last[i]);
            continue;
        }
        let size = trace.noise_size * (0.5 * variable.rate.sqrt());
        builder = builder.carry(theta[i], theta[i] - slope[i] * gamma + (last[i] + noise[i]) * size);
        builder = builder.carry(last[i], noise[i]);
    }
    let sums = trace.inputs_like("score", lambda);
    let kept = carried_from(inner.burn_in, sums.clone(), step);
    for (i, &sum) in sums.iter().enumerate() {
        builder = builder.carry(sum, kept[i] + score[i]);
    }
    if let Some(batches) = batches {
        for (input, next) in batch_sums(&trace, batches, score, step) {
            builder = builder.carry(input, next);
        }
    }
    Routine::new(&builder.build()?, session)
}

/// Inputs of the batches' sums, and their values after this step.
fn batch_sums(trace: &Trace, batches: Batches, score: &[Tensor], step: Tensor) -> Vec<(Tensor, Tensor)> {
    let Batches { from, length, .. } = batches;
    let [now, centre, sum, squares] =
        ["batch", "centre", "deviation", "square"].map(|name| trace.inputs_like(name, &trace.lambda));
    // Steps of a chain are below 2³¹, so a 64-bit float counts them exactly.
    let done = step.convert(DType::F64) - (from as f64 - 1.0);
    let whole = (done / length as f64).floor();
    let has_begun = done.greater(0.5);
    let ends = has_begun * (whole * length as f64 - done).greater(-0.5);
    let is_first = whole.less(1.5);
    let mut found = vec![];
    for i in 0..score.len() {
        let dtype = score[i].dtype();
        let [has_begun, ends, is_first] = [has_begun, ends, is_first].map(|flag| flag.convert(dtype));
        let total = now[i] + score[i] * has_begun;
        let mean = total / length as f64;
        let centre_next = centre[i] + (mean - centre[i]) * (ends * is_first);
        let off = (mean - centre_next) * ends;
        found.push((now[i], total * (1.0 - ends)));
        found.push((centre[i], centre_next));
        found.push((sum[i], sum[i] + off));
        found.push((squares[i], squares[i] + off * off));
    }
    found
}

/// h = Σ ∂L_T/∂λ / M, and its standard error √((q − e²/K)/(K·(K − 1))).
fn ending_program(inner: &InnerLoop, batches: Option<Batches>, session: &Session) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let score = trace.inputs_like("score", &trace.lambda);
    let mut builder = Program::builder(&graph);
    for (i, &sum) in score.iter().enumerate() {
        builder = builder.output(format!("h.{i}"), sum / inner.samples() as f64);
    }
    if let Some(Batches { count, .. }) = batches {
        let count = count as f64;
        let [sum, squares] = ["deviation", "square"].map(|name| trace.inputs_like(name, &trace.lambda));
        for (i, (sum, squares)) in sum.into_iter().zip(squares).enumerate() {
            let variance = ((squares - sum.square() / count) / (count * (count - 1.0))).maximum(0.0);
            builder = builder.output(format!("error.{i}"), variance.sqrt());
        }
    }
    Routine::new(&builder.build()?, session)
}

/// The mean over θ of half the squared difference of two draws of ∇θL_T: the variance of one. `None` if L_T draws
/// nothing.
fn draws_program(session: &Session) -> Result<Option<Routine>> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, session.problem())?;
    let step = graph.step();
    let draw = |counter: Tensor| trace.inner(&trace.theta, counter);
    let (one, other) = (
        draw(step)?,
        match session.problem().streams.is_empty() {
            true => draw(step + 1.0)?,
            // A stream can be read at the step of the loop alone.
            false => return Ok(None),
        },
    );
    if one.is_same_node(other) {
        return Ok(None);
    }
    let slope = |loss: Tensor| Ok::<_, Error>(or_zeros(gradient(loss, &trace.theta)?, &trace.theta));
    let squares = slope(one)?.into_iter().zip(slope(other)?).map(|(a, b)| (a - b).square().sum_all());
    let Some(sum) = squares.reduce(|a, b| a + b) else { return Ok(None) };
    let variance = sum / (2.0 * session.problem().sizes().1 as f64);
    Ok(Some(Routine::new(&Program::builder(&graph).output("variance", variance).build()?, session)?))
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: Key, gamma: f64) -> Result<Hypergradient> {
        let chain = &mut self.chain;
        let [noise] = self.warm.of(state)?.groups;
        self.inner.place(chain, gamma)?;
        chain.bind_point(&state.lambda, &state.theta, key)?;
        chain.bind("noise_before", &noise)?;
        let score = chain.zeroed("score")?;
        let (steps, burn_in) = (self.inner.steps as u32, self.inner.burn_in as u32);
        let mut of_batches: Option<(Leaves, Leaves)> = None;
        let mut from = 0;
        if self.batches.is_some() {
            for group in ["batch", "centre"] {
                chain.zeroed(group)?;
            }
            of_batches = Some((chain.zeroed("deviation")?, chain.zeroed("square")?));
            // The sums of L_T start again after the burn-in, with an L_T as their centre.
            from = burn_in.max(1);
            effective_samples::begin(chain, 0.0)?;
            chain.run(0..from)?;
            let centre = chain.number("inner")?;
            effective_samples::begin(chain, centre)?;
        }
        chain.run(from..steps)?;
        self.ending.bind("score", &score)?;
        if let Some((sum, squares)) = &of_batches {
            self.ending.bind("deviation", sum)?;
            self.ending.bind("square", squares)?;
        }
        let value = self.ending.fresh_outputs("h")?;
        let error = of_batches.as_ref().map(|_| self.ending.fresh_outputs("error")).transpose()?;
        self.ending.run(0..1)?;
        let mut oracles = Oracles { inner_gradients: u64::from(steps), ..Oracles::default() };
        let mut heat = None;
        if let Some(draws) = &mut self.draws {
            draws.bind_point(&state.lambda, &state.theta, key)?;
            draws.run(steps..steps + 1)?;
            oracles.inner_gradients += 2;
            heat = Some(0.5 * gamma * draws.number("variance")? / self.inner.heat());
        }
        let mut found = Hypergradient::new(value, oracles);
        found.standard_error = error;
        found.diagnostics.minibatch_heat = heat;
        if self.batches.is_some() {
            found.diagnostics.effective_samples =
                effective_samples::read(&mut self.chain, (steps - burn_in.max(1)) as usize)?;
        }
        Ok(found)
    }
}
