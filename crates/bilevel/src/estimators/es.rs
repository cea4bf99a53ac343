//! Evolutionary search: the derivative of a Gaussian-smoothed F, where F(λ) is f after the inner loop.
//!
//!   antithetic:  h = mean over z of z·\[F(λ + σz) − F(λ − σz)\]/(2σ)
//!   plain:       h = mean over z of z·F(λ + σz)/σ              z ~ N(0, I)
//!
//! Both have the same expectation. The plain form has a variance of F²/σ² per direction, which no small σ forgives. Every
//! inner loop of one hypergradient starts at the same θ, or at θ⁰ of its own λ, and sees the same draws.

use super::inner_loop::{InnerLoop, Start, outer_loss};
use crate::error::require;
use crate::estimator::{Estimator, Hypergradient, Method, Oracles, State, finite};
use crate::probe::InnerTime;
use crate::problem::Problem;
use crate::routine::Routine;
use crate::{Cause, Result};
use bilevel_graph::random::{fill_normal_f64, fold_in};
use bilevel_graph::{Array, Executor};
use serde::{Deserialize, Serialize};

/// Settings of evolutionary search.
///
/// ```
/// use bilevel::{Cpu, Es, Leaf, Method, Problem, State, Variable};
/// // F(λ) = λ, so every antithetic pair says z² and their mean is about 1.
/// let problem = Problem::new(Leaf(Variable::constant([], 3.0)), Leaf(Variable::constant([], 0.0)))
///     .inner(|_, l, t| (t.0 - l.0).square() / 2.0)
///     .outer(|_, _, t| t.0)
///     .build()
///     .unwrap();
/// let method = Es { step: 1.0, steps: 1, ..Es::default() };
/// let mut estimator = method.prepare(&problem, &Cpu::with_threads(1)).unwrap();
/// let h = estimator.estimate(&mut State::initial(&problem, [0, 0]).unwrap(), [0, 0]).unwrap();
/// assert!((h.value[0].item().unwrap() - 1.0).abs() < 0.6);
/// assert_eq!(h.oracles.losses, 201, "two for each of 100 directions, one at λ itself");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Es {
    /// Size of a perturbation σ, above 0.
    pub sigma: f64,
    /// Directions z, at least 1; an antithetic one costs two inner loops.
    pub samples: usize,
    /// Look both ways along every direction (the default), or one way.
    pub antithetic: bool,
    /// Inner step γ, above 0.
    pub step: f64,
    /// Inner steps T, at least 1.
    pub steps: usize,
    /// Temperature τ, at least 0.
    pub temperature: f64,
    /// Noise scale κ, at least 0.
    pub noise_scale: f64,
}

impl Default for Es {
    fn default() -> Self {
        Es { sigma: 0.001, samples: 100, antithetic: true, step: 0.01, steps: 100, temperature: 0.0, noise_scale: 1.0 }
    }
}

/// Keeps the directions apart from every other use of the key.
const DIRECTIONS: u32 = 0x0e5;

struct Prepared {
    settings: Es,
    inner: InnerLoop,
    start: Start,
    forward: Routine,
    outer: Routine,
}

impl Method for Es {
    fn name(&self) -> &'static str {
        "es"
    }

    fn compile(&self, problem: &Problem, executor: &dyn Executor) -> Result<Box<dyn Estimator>> {
        let Es { sigma, samples, step, steps, temperature, noise_scale, .. } = *self;
        require(sigma > 0.0 && sigma.is_finite(), "sigma", sigma, "above 0")?;
        require((1..=u32::MAX as usize).contains(&samples), "samples", samples as f64, "at least 1 and below 2³²")?;
        let inner = InnerLoop::new(step, steps, temperature, noise_scale, 1)?;
        Ok(Box::new(Prepared {
            settings: *self,
            inner,
            start: Start::new(problem, executor)?,
            forward: inner.walk(problem, executor)?,
            outer: outer_loss(problem, executor)?,
        }))
    }

    /// It takes no derivative by λ, so there need not be any.
    fn applies(&self, _: &Problem) -> Result<()> {
        Ok(())
    }

    fn inner_time(&self) -> Option<InnerTime> {
        Some(InnerTime::new(self.step, self.steps).with_noise(self.temperature, self.noise_scale))
    }
}

impl Prepared {
    /// F(λ): f after the inner loop.
    fn value(&mut self, lambda: &[Array], theta: &[Array], key: [i32; 2]) -> Result<f64> {
        let theta = self.start.theta(lambda, theta, key)?;
        self.inner.place(&mut self.forward)?;
        self.forward.set_point(lambda, &theta, key)?;
        self.forward.run(0..self.inner.steps as u32)?;
        self.outer.set_point(lambda, &self.forward.theta()?, key)?;
        self.outer.run(self.inner.last())?;
        self.outer.number("outer")
    }
}

/// λ + by·z.
fn moved(lambda: &[Array], z: &[Vec<f64>], by: f64) -> Result<Vec<Array>> {
    let leaf = |(l, z): (&Array, &Vec<f64>)| {
        let values: Vec<f64> = l.to_f64().iter().zip(z).map(|(l, z)| l + by * z).collect();
        Ok(Array::from_values(l.shape(), &values, l.dtype())?)
    };
    lambda.iter().zip(z).map(leaf).collect()
}

/// √((E\[x²\] − E\[x\]²)/(N − 1)), the standard error of the mean of the samples.
fn standard_error(lambda: &[Array], means: &[Vec<f64>], squares: &[Vec<f64>], samples: f64) -> Result<Vec<Array>> {
    let leaf = |((l, mean), square): ((&Array, &Vec<f64>), &Vec<f64>)| {
        let error = |(m, s): (&f64, &f64)| ((s - m * m).max(0.0) / (samples - 1.0)).sqrt();
        let errors: Vec<f64> = mean.iter().zip(square).map(error).collect();
        Ok(Array::from_values(l.shape(), &errors, l.dtype())?)
    };
    lambda.iter().zip(means).zip(squares).map(leaf).collect()
}

impl Estimator for Prepared {
    fn estimate(&mut self, state: &mut State, key: [i32; 2]) -> Result<Hypergradient> {
        let Es { sigma, samples, antithetic, .. } = self.settings;
        let words = fold_in(key, DIRECTIONS).map(|k| k as u32);
        let mut sums: Vec<Vec<f64>> = state.lambda.iter().map(|l| vec![0.0; l.len()]).collect();
        let mut squares = sums.clone();
        let mut z = sums.clone();
        for sample in 0..samples as u32 {
            for (leaf, z) in z.iter_mut().enumerate() {
                fill_normal_f64(words, sample, leaf as u32, 0, z);
            }
            let ahead = self.value(&moved(&state.lambda, &z, sigma)?, &state.theta, key)?;
            let slope = if antithetic {
                let behind = self.value(&moved(&state.lambda, &z, -sigma)?, &state.theta, key)?;
                (ahead - behind) / (2.0 * sigma)
            } else {
                ahead / sigma
            };
            let moments = sums.iter_mut().flatten().zip(squares.iter_mut().flatten());
            for ((sum, square), z) in moments.zip(z.iter().flatten()) {
                *sum += slope * z / samples as f64;
                *square += (slope * z).powi(2) / samples as f64;
            }
        }
        let leaves = state.lambda.iter().zip(&sums);
        let value = leaves.map(|(l, sum)| Ok(Array::from_values(l.shape(), sum, l.dtype())?));
        let value = value.collect::<Result<Vec<_>>>()?;
        finite("es", "the hypergradient", &value, Cause::SearchTooWide)?;

        let outer_loss = self.value(&state.lambda, &state.theta, key)?;
        let end = self.forward.theta()?;
        finite("es", "θ", &end, Cause::InnerStepTooLarge)?;
        state.theta = end;
        let loops = (samples * if antithetic { 2 } else { 1 } + 1) as u64;
        let oracles = Oracles { inner_gradients: loops * self.inner.steps as u64, losses: loops, ..Oracles::default() };
        let mut found = Hypergradient::new(value, (self.forward.number("inner")?, outer_loss), oracles);
        if samples > 1 {
            found.standard_error = Some(standard_error(&state.lambda, &sums, &squares, samples as f64)?);
        }
        Ok(found)
    }

    fn scale_step(&mut self, factor: f64) -> Result<()> {
        self.inner.factor = factor;
        Ok(())
    }
}
