//! Forward-mode differentiation through the unrolled inner loop, a column of dθ/dλ at a time.
//!
//!   sⱼ⁰ = J0·eⱼ,   sⱼ ← sⱼ − γ·(H(θᵗ)·sⱼ + C(θᵗ)·eⱼ),   hⱼ = f_λ(θᵀ)·eⱼ + f_θ(θᵀ)·sⱼᵀ
//!
//! One jvp of ∇θL_T along (sⱼ, eⱼ) gives both products. The inner loop is run again for every number of λ, with the same
//! draws, so the memory does not grow with the steps and the cost grows with λ: it is for a handful of hyperparameters.

use super::inner_loop::{InnerLoop, Start, outer_gradient};
use crate::estimator::{Estimator, Hypergradient, Method, Oracles, State, finite, zeros_like};
use crate::probe::InnerTime;
use crate::problem::Problem;
use crate::routine::Routine;
use crate::trace::{Trace, or_zeros};
use crate::{Cause, Result};
use bilevel_graph::{Array, Executor, Graph, Program, gradient, jvp};
use serde::{Deserialize, Serialize};

/// Settings of forward mode.
///
/// ```
/// use bilevel::{Cpu, Fmd, Leaf, Method, Problem, State, Variable};
/// // One step from θ = 0 on ½(θ−λ)² goes to γλ, and f = θ there.
/// let problem = Problem::new(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()
///     .unwrap();
/// let method = Fmd { step: 0.25, steps: 1, ..Fmd::default() };
/// let mut estimator = method.prepare(&problem, &Cpu::with_threads(1)).unwrap();
/// let h = estimator.estimate(&mut State::initial(&problem, [0, 0]).unwrap(), [0, 0]).unwrap();
/// assert_eq!(h.value[0].item(), Some(0.25));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fmd {
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T, at least 1.
    pub steps: usize,
    /// Temperature τ, at least 0.
    pub temperature: f64,
    /// Noise scale κ, at least 0.
    pub noise_scale: f64,
}

impl Default for Fmd {
    fn default() -> Self {
        Fmd { step: 0.01, steps: 100, temperature: 0.0, noise_scale: 1.0 }
    }
}

struct Prepared {
    inner: InnerLoop,
    start: Start,
    /// J0·e, where θ⁰ depends on λ.
    start_column: Option<Routine>,
    chain: Routine,
    outer: Routine,
}

impl Method for Fmd {
    fn name(&self) -> &'static str {
        "fmd"
    }

    fn compile(&self, problem: &Problem, executor: &dyn Executor) -> Result<Box<dyn Estimator>> {
        let Fmd { step, steps, temperature, noise_scale } = *self;
        let inner = InnerLoop::new(step, steps, temperature, noise_scale, 1)?;
        Ok(Box::new(Prepared {
            inner,
            start: Start::new(problem, executor)?,
            start_column: start_column(problem, executor)?,
            chain: chain_program(&inner, problem, executor)?,
            outer: outer_gradient(problem, executor)?,
        }))
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(InnerTime::new(self.step, self.steps).with_noise(self.temperature, self.noise_scale))
    }
}

/// J0·e from inputs `e.i`, as outputs `s.i`.
fn start_column(problem: &Problem, executor: &dyn Executor) -> Result<Option<Routine>> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let Some(start) = trace.start()? else { return Ok(None) };
    let e = trace.inputs_like("e", &trace.lambda);
    let column = or_zeros(jvp(&start, &trace.lambda, &e)?, &trace.theta);
    let mut builder = e.iter().fold(Program::builder(&graph), |builder, &e| builder.keep_input(e));
    for (i, s) in column.into_iter().enumerate() {
        builder = builder.output(format!("s.{i}"), s);
    }
    Ok(Some(Routine::new(&builder.build()?, problem, executor)?))
}

fn chain_program(inner: &InnerLoop, problem: &Problem, executor: &dyn Executor) -> Result<Routine> {
    let graph = Graph::new();
    let trace = Trace::new(&graph, problem)?;
    let (lambda, theta, step) = (&trace.lambda, &trace.theta, graph.step());
    let (s, e) = (trace.inputs_like("s", theta), trace.inputs_like("e", lambda));
    let loss = trace.inner(theta, step)?;
    let slope = or_zeros(gradient(loss, theta)?, theta);
    let along = [&s[..], &e].concat();
    let turn = or_zeros(jvp(&slope, &[&theta[..], lambda].concat(), &along)?, theta);
    let next = inner.next(&trace, &slope, step);
    let gamma = trace.gamma;
    let mut builder = Program::builder(&graph).output("inner", loss);
    builder = e.iter().fold(builder, |builder, &e| builder.keep_input(e));
    for i in 0..theta.len() {
        builder = builder.carry(theta[i], next[i]).carry(s[i], s[i] - turn[i] * gamma);
    }
    Routine::new(&builder.build()?, problem, executor)
}

/// Σ over all leaves of the products of their numbers.
fn inner_product(a: &[Array], b: &[Array]) -> f64 {
    let leaf = |(a, b): (&Array, &Array)| a.to_f64().iter().zip(b.to_f64()).map(|(x, y)| x * y).sum::<f64>();
    a.iter().zip(b).map(leaf).sum()
}

impl Prepared {
    /// Runs the inner loop with the tangent of λ along `e`; θᵀ is then in the chain, and dθᵀ/dλ·e comes back.
    fn column(&mut self, theta: &[Array], lambda: &[Array], e: &[Array], key: [i32; 2]) -> Result<Vec<Array>> {
        let s = match &mut self.start_column {
            Some(routine) => {
                routine.set_lambda(lambda)?;
                routine.set_key(key)?;
                routine.set_all("e", e)?;
                routine.run(0..1)?;
                routine.output_all("s")?
            }
            None => zeros_like(theta),
        };
        self.chain.set_theta(theta)?;
        self.chain.set_all("s", &s)?;
        self.chain.set_all("e", e)?;
        self.chain.run(0..self.inner.steps as u32)?;
        self.chain.carried_all("s")
    }
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        let lambda = state.lambda.clone();
        let theta = self.start.theta(&lambda, &state.theta, key)?;
        self.inner.place(&mut self.chain)?;
        self.chain.set_lambda(&lambda)?;
        self.chain.set_key(key)?;
        let mut e = zeros_like(&lambda);
        let (mut last, mut direct, mut f_theta) = (vec![], vec![], vec![]);
        let mut value = vec![];
        for leaf in 0..lambda.len() {
            let (shape, dtype, count) = (lambda[leaf].shape(), lambda[leaf].dtype(), lambda[leaf].len());
            let mut numbers = vec![0.0; count];
            for j in 0..count {
                let mut one = vec![0.0; count];
                one[j] = 1.0;
                e[leaf] = Array::from_values(shape, &one, dtype)?;
                let s = self.column(&theta, &lambda, &e, key)?;
                if f_theta.is_empty() {
                    // θᵀ is the same for every column.
                    last = self.chain.theta()?;
                    finite("fmd", "θ", &last, Cause::InnerStepTooLarge)
                        .map_err(|e| self.inner.explain(e, &mut self.chain, (&lambda, &theta, key)))?;
                    self.outer.set_point(&lambda, &last, key)?;
                    self.outer.run(self.inner.last())?;
                    direct = self.outer.output_all("direct")?;
                    f_theta = self.outer.output_all("f_theta")?;
                }
                numbers[j] = inner_product(&direct, &e) + inner_product(&f_theta, &s);
            }
            e[leaf] = Array::zeros(shape, dtype);
            value.push(Array::from_values(shape, &numbers, dtype)?);
        }
        finite("fmd", "the hypergradient", &value, Cause::InnerStepTooLarge)?;
        state.theta = last;
        let columns = lambda.iter().map(|l| l.len() as u64).sum::<u64>() * self.inner.steps as u64;
        let oracles = Oracles {
            inner_gradients: columns,
            outer_gradients: 1,
            hessian_products: columns,
            mixed_products: columns,
            losses: 0,
        };
        let (inner_loss, outer_loss) = (self.chain.number("inner")?, self.outer.number("outer")?);
        Ok(Hypergradient::new(value, (inner_loss, outer_loss), oracles))
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.inner.factor = factor;
        Ok(())
    }
}
