//! The properties of a problem that determine the choice of a method: size, curvature and noise of the inner loss, and
//! progress of the inner loop.

use bilevel::diagnostics::Curvature;
use bilevel::graph::Executor;
use bilevel::methods::claims::Target;
use bilevel::programs::Snapshot;
use bilevel::training::Trainer;
use bilevel::{Array, Error, InnerLoop, Key, Problem, Result, Session, State};
use serde::Serialize;

/// Number of ends of chains at which the inner loss is measured, if there is noise.
const POINTS: u32 = 6;
/// Draws of minibatches whose gradients are compared.
const DRAWS: u64 = 4;
/// Gradients that differ by less than this share are the same.
const QUIET: f64 = 1e-9;

/// The question: the point of the derivative, and the inner loop that leads there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// The point at which the hypergradient differentiates.
    pub target: Target,
    /// The inner loop that leads there.
    pub inner: InnerLoop,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Situation {
    /// Numbers of λ.
    pub hyperparameters: usize,
    /// Numbers of θ.
    pub parameters: usize,
    /// The curvature of the inner loss.
    pub curvature: Curvature,
    /// How much gradients of the inner loss differ from draw to draw, relative to their mean.
    pub noise: f64,
    /// Inner step × steps × smallest curvature: how many times the error of the start falls by a factor e along the
    /// slowest direction.
    pub horizon: f64,
    /// θ⁰ depends on λ.
    pub starts_from_lambda: bool,
}

impl Situation {
    /// Measures a problem at its first λ and the θ at the end of the inner loop.
    ///
    /// ```
    /// use bilevel::methods::claims::Target;
    /// use bilevel::{Cpu, InnerLoop, Key, Leaf, Problem, Variable};
    /// use bilevel_run::advise::{Question, Situation};
    /// let problem = Problem::builder(Leaf(Variable::constant([], 2.0)), Leaf(Variable::constant([2], 0.0)))
    ///     .inner(|_, l, t| (t.0 - l.0).square().sum_all() * 1.5)
    ///     .outer(|_, _, t| t.0.square().sum_all())
    ///     .build()?
    ///     .erase();
    /// let question = Question { target: Target::Minimum, inner: InnerLoop::new(0.1, 50) };
    /// let found = Situation::measure(&problem, &question, &Cpu::with_threads(1), Key::from_seed(0))?;
    /// assert_eq!((found.parameters, found.noise, found.curvature.is_negative()), (2, 0.0, false));
    /// assert!((found.curvature.largest - 3.0).abs() < 1e-9 && (found.horizon - 15.0).abs() < 1e-6);
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn measure(problem: &Problem, question: &Question, executor: &dyn Executor, key: Key) -> Result<Self> {
        let session = Session::new(problem, executor)?;
        let temperature = match question.target {
            Target::Gibbs { temperature } | Target::Evidence { temperature } => temperature,
            _ => 0.0,
        };
        let inner = InnerLoop::new(question.inner.step, question.inner.steps).at_temperature(temperature);
        let mut trainer = Trainer::new(&session, inner)?;
        let state = session.state(key)?;
        let (mut found, mut noise): (Option<Curvature>, f64) = (None, 0.0);
        let points = if temperature > 0.0 { POINTS } else { 1 };
        let start = state.snapshot()?;
        for point in 0..points {
            trainer.train(&state, key.fold_in(point))?;
            let mut here = state.snapshot()?;
            // If training diverges, only its start can be measured.
            if here.theta.iter().flat_map(Array::to_f64).any(|number| !number.is_finite()) {
                here = start.clone();
            }
            let curvature = match problem.curvature(&here, executor, key) {
                Err(Error::UndefinedCurvature) if here != start => problem.curvature(&start, executor, key)?,
                curvature => curvature?,
            };
            found = Some(found.map_or(curvature, |before| before.with(curvature)));
            if point == 0 {
                noise = noise_at(&session, &here, question.inner.step, executor)?;
            }
        }
        let Some(curvature) = found else { return Err(Error::other("nothing was measured")) };
        let (hyperparameters, parameters) = problem.sizes();
        Ok(Situation {
            hyperparameters,
            parameters,
            curvature,
            noise,
            horizon: question.inner.step * question.inner.steps as f64 * curvature.smallest.max(0.0),
            starts_from_lambda: problem.starts_from_lambda(),
        })
    }

    /// The inner loss is a draw.
    pub fn is_noisy(&self) -> bool {
        self.noise > QUIET
    }
}

/// √(mean ‖g − ḡ‖²)/‖ḡ‖ over a few draws, with each gradient g given by the length of one step.
fn noise_at(session: &Session, here: &Snapshot, step: f64, executor: &dyn Executor) -> Result<f64> {
    let mut one = Trainer::new(session, InnerLoop::new(step, 1))?;
    let start: Vec<f64> = here.theta.iter().flat_map(Array::to_f64).collect();
    let mut gradients: Vec<Vec<f64>> = vec![];
    for draw in 0..DRAWS {
        let state = State::from_snapshot(here, executor)?;
        one.train(&state, Key::from_seed(1000 + draw))?;
        gradients.push(start.iter().zip(state.theta.numbers()?).map(|(before, after)| before - after).collect());
    }
    let count = gradients.len() as f64;
    let mean: Vec<f64> = (0..start.len()).map(|j| gradients.iter().map(|g| g[j]).sum::<f64>() / count).collect();
    let square = |g: &Vec<f64>| g.iter().zip(&mean).map(|(g, m)| (g - m).powi(2)).sum::<f64>();
    let spread = gradients.iter().map(square).sum::<f64>() / count;
    let size: f64 = mean.iter().map(|m| m * m).sum();
    Ok(if spread == 0.0 { 0.0 } else { (spread / size.max(f64::MIN_POSITIVE)).sqrt() })
}
