//! LILA: ranges and precisions by the marginal likelihood of the training images, while the network is trained.
//!
//! Every few epochs the Laplace approximation is fitted to all training images. From then on its multipliers stay, and every few
//! steps of training the ranges move along the slope of one more minibatch.

use super::laplace::{Fitting, RANGES, learning, set_multipliers};
use crate::studies::deep::precision_on;
use bilevel::methods::Oracles;
use bilevel::optimizers::{Adam, InnerOptimizer, Schedule};
use bilevel::{DType, Error, InnerLoop, Key, Result, Session};
use bilevel_run::manifest::Taken;
use bilevel_run::price::{Passes, price};
use bilevel_run::{Config, Context, Device, Measure, Place};
use bilevel_tasks::Invariance;
use bilevel_tasks::invariance::ACCURACY;
use serde::Serialize;
use serde_json::{Map, Value};

/// A training with it.
#[derive(Clone, Debug, Serialize)]
pub struct Lila {
    pub task: Invariance,
    pub seed: u64,
    pub device: Device,
    pub epochs: u32,
    /// Epochs before the first fit.
    pub burn_in: u32,
    /// Epochs from one fit to the next.
    pub fit_every: u32,
    /// Steps of training from one step of the ranges to the next.
    pub learn_every: u32,
    /// The first learning rate of θ; it falls to 0.
    pub learning_rate: f64,
    /// The first rate of the ranges; it falls to 0.
    pub rate: f64,
    /// The number of evaluations on test images.
    pub looks: u32,
}

impl Lila {
    /// LILA on the task of a configuration, for this many `epochs`.
    pub fn of(config: &Config, with: &Map<String, Value>) -> Result<Self> {
        let epochs = with.get("epochs").and_then(Value::as_u64).and_then(|epochs| u32::try_from(epochs).ok());
        Ok(Lila {
            task: config.task.read()?,
            seed: config.seed,
            device: config.device,
            epochs: epochs.filter(|epochs| *epochs > 0).ok_or_else(|| Error::setting("epochs", 0.0, "at least 1"))?,
            burn_in: 3,
            fit_every: 3,
            learn_every: 5,
            learning_rate: 0.005,
            rate: 0.05,
            looks: 10,
        })
    }
}

/// −log p(D | λ, δ)/N, at each fit.
const EVIDENCE: &str = "−log p(D)/N";

/// Folded into the key of the run, for separate draws; fits have the numbers from the last one on.
const TRAINING: u32 = 3;
const LEARNING: u32 = 4;
const FITS: u32 = 5;
/// How often δ moves after a fit, half of the way each time.
const PRECISION_STEPS: usize = 5;

impl Measure for Lila {
    type Found = Taken;

    fn take(&self, place: &Place) -> Result<Taken> {
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        let (problem, count) = super::evidence::evidence(&self.task, &context)?;
        let problem = problem.in_precision(precision_on(self.device))?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let key = Key::from_seed(self.seed);
        let state = session.state(key)?;
        let batches = (count / self.task.batch).max(1) as u32;
        let steps = self.epochs * batches;

        let optimizer = InnerOptimizer::Adam(Adam::default());
        let inner = InnerLoop { optimizer, ..InnerLoop::new(self.learning_rate, steps as usize) };
        let mut train = inner.walk(&session)?;
        inner.place(&mut train, inner.step)?;
        train.bind_point(&state.lambda, &state.theta, key.fold_in(TRAINING))?;
        let mut learn = learning(&session)?;
        learn.bind_point(&state.lambda, &state.theta, key.fold_in(LEARNING))?;
        learn.zeroed("slot")?;
        let mut fitting = Fitting::new(&session, batches, count)?;
        let mut evaluator = session.evaluator()?;
        let accuracy = evaluator.names().iter().position(|name| name == ACCURACY).unwrap_or_default();

        let [fall, slow] = [self.learning_rate, self.rate].map(|rate| Schedule::cosine(rate, steps, 0.0));
        let mut log_precisions = [0.0; 2];
        let (mut way, mut evidence) = (vec![], vec![]);
        let (mut done, mut learned, mut fits) = (0, 0, 0);
        let mut diverged = false;
        while done < steps && !diverged {
            let epoch = done / batches;
            let due = epoch >= self.burn_in && (epoch - self.burn_in).is_multiple_of(self.fit_every);
            if due && done.is_multiple_of(batches) {
                let Some(laplace) = fitting.at(&state, key.fold_in(FITS + fits))? else {
                    diverged = true;
                    break;
                };
                for _ in 0..PRECISION_STEPS {
                    log_precisions = laplace.better_precisions(log_precisions);
                }
                evidence.push((
                    f64::from(done) / f64::from(self.learn_every),
                    laplace.objective(log_precisions) / count as f64,
                ));
                set_multipliers(&state, &laplace, log_precisions)?;
                fits += 1;
            }
            let to = (done + self.learn_every).min((epoch + 1) * batches);
            train.set_step_sizes(fall.at(done + 1), 0.0)?;
            train.run(done..to)?;
            done = to;
            if fits > 0 {
                learn.set_numbers("rate", [slow.at(done)])?;
                learn.run(learned..learned + 1)?;
                learned += 1;
            }
            if way.len() < (done * self.looks / steps) as usize {
                let numbers = evaluator.at(&state, key)?;
                diverged = !numbers[0].is_finite();
                way.push((f64::from(done) / f64::from(self.learn_every), numbers[accuracy]));
            }
            (place.progress)(f64::from(done) / f64::from(steps));
        }
        let oracles = Oracles {
            inner_gradients: u64::from(done),
            outer_gradients: u64::from(learned),
            losses: u64::from(fits * batches),
            ..Oracles::default()
        };
        let mut taken = Taken {
            leaf: "ranges".into(),
            lambda: state.lambda.array(RANGES)?.to_f64(),
            cost: Some(price(oracles, Passes::Separate)),
            diverged: u32::from(diverged),
            ..Taken::default()
        };
        if !diverged {
            let last = |way: &[(f64, f64)]| way.iter().map(|(_, number)| *number).next_back().into_iter().collect();
            taken.numbers.insert(ACCURACY.into(), last(&way));
            taken.numbers.insert(EVIDENCE.into(), last(&evidence));
            for (layer, log) in log_precisions.into_iter().enumerate() {
                taken.numbers.insert(format!("δ of layer {}", layer + 1), vec![log.exp()]);
            }
        }
        taken.way = [(ACCURACY.to_string(), way), (EVIDENCE.to_string(), evidence)].into();
        Ok(taken)
    }
}
