//! One split: the references, and each method from the best shared weight on.

use super::{BOTH, METHODS, NONE, Plan, Progress, SHARED, Setting, Watch};
use crate::digits::{Classifier, Penalty, PerWeightL2, SHAPE, Score, Split, largest_curvature, per_weight_l2};
use crate::price::price;
use bilevel::graph::{ErrorKind, Executor};
use bilevel::{
    Adam, Array, Cpu, DType, Driver, Error, Iteration, Key, Method, Observer, Result, State, StopReason, StopSignal,
    Variable,
};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// All is computed in 32-bit floats.
const DTYPE: DType = DType::F32;
/// e^−30 is no weight at all.
const NOTHING: f64 = -30.0;
/// Between e^−15, which is no regularisation to speak of, and e^−1, with which the inner step is still stable.
const BOUNDS: (f64, f64) = (-15.0, -1.0);
/// Points of a curve.
const POINTS: u32 = 50;

/// How well a classifier does on the three parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// On the digits it was trained on.
    pub train: Score,
    /// On those λ was chosen by.
    pub validation: Score,
    /// On those nobody has seen.
    pub test: Score,
}

/// A point on the way of a method, at the parameters the run has there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Outer iterations done.
    pub iteration: u32,
    /// What they cost, in gradients.
    pub cost: f64,
    /// On the validation digits.
    pub validation: Score,
    /// On the test digits.
    pub test: Score,
}

/// What came of one way to regularise, on one split.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// [`NONE`], [`SHARED`], [`BOTH`] or the name of a method.
    pub name: &'static str,
    /// The split.
    pub split: u64,
    /// How well the classifier does; nothing where the method diverged.
    pub scores: Option<Scores>,
    /// The logarithms of the weights, in [`SHAPE`]; empty where there are none.
    pub lambda: Vec<f64>,
    /// What all of it cost, the grid search it starts from included, in gradients.
    pub cost: f64,
    /// Seconds it took, without the grid search it starts from.
    pub seconds: f64,
    /// Outer iterations.
    pub iterations: u32,
    /// The way of a method.
    pub curve: Vec<Point>,
    /// Why there are no scores.
    pub failed: Option<String>,
}

/// Everything on one split, in the order of a table. A signal that is set is answered with `None`.
///
/// ```no_run
/// use bilevel_tasks::digits::study::{Plan, Watch, trials};
/// let nobody: Watch = std::sync::Arc::new(|_| ());
/// let cpu = bilevel::Cpu::with_threads(1);
/// let all = trials(&Plan::quick(), 1, &cpu, &bilevel::StopSignal::new(), &nobody)?;
/// assert_eq!(all.unwrap()[0].name, "no regularisation");
/// # Ok::<(), bilevel::Error>(())
/// ```
pub fn trials<E: Executor + Clone + 'static>(
    plan: &Plan,
    seed: u64,
    executor: &E,
    signal: &StopSignal,
    watch: &Watch,
) -> Result<Option<Vec<Trial>>> {
    let ground = Ground::new(plan, seed, executor, signal, watch)?;
    let began = Instant::now();
    let Some(weights) = ground.train(NONE, Array::full(SHAPE, NOTHING, DTYPE))? else { return Ok(None) };
    let mut done = vec![ground.trial(NONE, &weights, vec![], plan.steps as f64, began)];
    let Some(shared) = ground.search()? else { return Ok(None) };
    done.push(shared.trial.clone());
    for setting in &METHODS {
        match ground.learn(setting, &shared)? {
            Some(trial) => done.push(trial),
            None => return Ok(None),
        }
    }
    let began = Instant::now();
    let split = plan.split_of_both(seed);
    let both = Ground { problem: problem(&split)?, split, ..ground };
    let Some(weights) = both.train(BOTH, Array::full(SHAPE, shared.log_strength, DTYPE))? else { return Ok(None) };
    done.push(both.trial(BOTH, &weights, vec![], shared.trial.cost + plan.steps as f64, began));
    Ok(Some(done))
}

/// One method alone, after the grid search it starts from. A signal that is set is answered with `None`.
pub fn trial(plan: &Plan, seed: u64, method: &Setting, signal: &StopSignal, watch: &Watch) -> Result<Option<Trial>> {
    let cpu = Cpu::with_threads(1);
    let ground = Ground::new(plan, seed, &cpu, signal, watch)?;
    match ground.search()? {
        Some(shared) => ground.learn(method, &shared),
        None => Ok(None),
    }
}

/// The best weight for all parameters.
struct Shared {
    log_strength: f64,
    weights: Array,
    trial: Trial,
}

/// A split and what is done on it.
struct Ground<'a, E> {
    plan: &'a Plan,
    seed: u64,
    executor: &'a E,
    split: Split,
    problem: PerWeightL2,
    /// γ = 1 / (largest curvature of the training loss at weights 0).
    step: f64,
    /// Looked at within every training.
    signal: &'a StopSignal,
    watch: &'a Watch,
}

/// Wherever λ and the weights start.
fn problem(split: &Split) -> Result<PerWeightL2> {
    per_weight_l2(split, DTYPE, Variable::constant(SHAPE, BOUNDS.0).at_least(BOUNDS.0).at_most(BOUNDS.1))
}

impl<'a, E: Executor + Clone + 'static> Ground<'a, E> {
    fn new(plan: &'a Plan, seed: u64, executor: &'a E, signal: &'a StopSignal, watch: &'a Watch) -> Result<Self> {
        let split = plan.split(seed);
        let (problem, step) = (problem(&split)?, 1.0 / largest_curvature(&split.train));
        Ok(Ground { plan, seed, executor, split, problem, step, signal, watch })
    }

    /// The grid search for one weight; `None` where the signal is set.
    fn search(&self) -> Result<Option<Shared>> {
        let began = Instant::now();
        let mut best: Option<(f64, f64, Array)> = None;
        for &log_strength in &self.plan.grid {
            let Some(weights) = self.train(SHARED, Array::full(SHAPE, log_strength, DTYPE))? else { return Ok(None) };
            let loss = self.split.validation.score(&weights).loss;
            if best.as_ref().is_none_or(|(least, ..)| loss < *least) {
                best = Some((loss, log_strength, weights));
            }
        }
        let Some((_, log_strength, weights)) = best else {
            return Err(Error::Problem { reason: "the grid of shared weights is empty".into() });
        };
        let cost = (self.plan.grid.len() * self.plan.steps) as f64;
        let trial = self.trial(SHARED, &weights, vec![log_strength; SHAPE[0] * SHAPE[1]], cost, began);
        Ok(Some(Shared { log_strength, weights, trial }))
    }

    /// The weights after training from 0 with this λ; `None` where the signal is set.
    fn train(&self, name: &'static str, log_strength: Array) -> Result<Option<Array>> {
        let penalty = Penalty { log_strength };
        let training = self.problem.train(&penalty).step(self.step).steps(self.plan.steps);
        let trained = match training.executor(self.executor.clone()).stop_signal(self.signal.clone()).run() {
            Err(Error::Graph(error)) if error.kind == ErrorKind::Stopped => return Ok(None),
            trained => trained?,
        };
        (self.watch)(Progress { name, split: self.seed, gradients: self.plan.steps as f64 });
        Ok(Some(trained.theta.weights))
    }

    fn trial(&self, name: &'static str, weights: &Array, lambda: Vec<f64>, cost: f64, began: Instant) -> Trial {
        let Split { train, validation, test } = &self.split;
        let [train, validation, test] = [train, validation, test].map(|part| part.score(weights));
        Trial {
            name,
            split: self.seed,
            scores: Some(Scores { train, validation, test }),
            lambda,
            cost,
            seconds: began.elapsed().as_secs_f64(),
            iterations: 0,
            curve: vec![],
            failed: None,
        }
    }

    /// Learns λ from the best shared weight, and trains afresh with what was learned.
    fn learn(&self, setting: &Setting, shared: &Shared) -> Result<Option<Trial>> {
        let began = Instant::now();
        let name = setting.name;
        let lambda = Penalty { log_strength: Array::full(SHAPE, shared.log_strength, DTYPE) };
        let theta = Classifier { weights: shared.weights.clone() };
        let method = setting.method(self.step, self.plan.inner_steps)?;
        let mut state = self.problem.state_at(&lambda, &theta, self.executor)?;
        let one = method.prepare(&self.problem, self.executor)?.estimate(&mut state, Key::from([0, 0]))?;
        let each = price(one.oracles, setting.passes());
        let iterations = ((self.plan.budget / each) as u32).max(1);
        let curve = Arc::new(Mutex::new(vec![]));
        let observer = Way {
            split: self.split.clone(),
            setting: *setting,
            seed: self.seed,
            every: (iterations / POINTS).max(1),
            last: iterations,
            cost: 0.0,
            watch: self.watch.clone(),
            curve: curve.clone(),
        };
        let outcome = Driver::new(&self.problem, method)
            .start_from(&lambda)
            .theta(&theta)
            .executor(self.executor.clone())
            .optimizer(Adam::default())
            .rate(setting.rate)
            .iterations(iterations)
            .seed(self.seed)
            .diagnose_every(0)
            .stop_signal(self.signal.clone())
            .observe(observer)
            .run()?;
        if outcome.reason == StopReason::Signal {
            return Ok(None);
        }
        let lambda = outcome.lambda.log_strength;
        let Some(weights) = self.train(name, lambda.clone())? else { return Ok(None) };
        let cost = shared.trial.cost + price(outcome.oracles, setting.passes()) + self.plan.steps as f64;
        let trial = self.trial(name, &weights, lambda.to_f64(), cost, began);
        let start = Point {
            iteration: 0,
            cost: 0.0,
            validation: self.split.validation.score(&shared.weights),
            test: self.split.test.score(&shared.weights),
        };
        let curve = std::mem::take(&mut *curve.lock().unwrap_or_else(PoisonError::into_inner));
        let failed = outcome.reason.is_failure().then(|| outcome.reason.to_string());
        Ok(Some(Trial {
            iterations: outcome.iterations,
            curve: std::iter::once(start).chain(curve).collect(),
            scores: trial.scores.filter(|_| failed.is_none()),
            failed,
            ..trial
        }))
    }
}

/// Keeps the way of a method and tells how far it is.
struct Way {
    split: Split,
    setting: Setting,
    seed: u64,
    every: u32,
    last: u32,
    cost: f64,
    watch: Watch,
    curve: Arc<Mutex<Vec<Point>>>,
}

impl Observer for Way {
    fn on_iteration(&mut self, iteration: &Iteration, state: &State) -> ControlFlow<String> {
        let cost = price(iteration.oracles, self.setting.passes());
        let gradients = cost - std::mem::replace(&mut self.cost, cost);
        (self.watch)(Progress { name: self.setting.name, split: self.seed, gradients });
        if iteration.number.is_multiple_of(self.every) || iteration.number == self.last {
            let weights = match state.theta.array(0) {
                Ok(weights) => weights,
                Err(error) => return ControlFlow::Break(error.to_string()),
            };
            let [validation, test] = [&self.split.validation, &self.split.test].map(|part| part.score(&weights));
            let point = Point { iteration: iteration.number, cost, validation, test };
            self.curve.lock().unwrap_or_else(PoisonError::into_inner).push(point);
        }
        ControlFlow::Continue(())
    }
}
