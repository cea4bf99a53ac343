//! LILA: ranges and precisions by the marginal likelihood of the training images, while the network is trained.
//!
//! Every few epochs the Laplace approximation is fitted to all training images. From then on its multipliers stay, and every few
//! steps of training the ranges move along the slope of one more minibatch.

use crate::price::{Passes, price};
use crate::studies::deep::precision_on;
use crate::tasks::Invariance;
use crate::tasks::invariance::{ACCURACY, Fitting, RANGES, learning, set_multipliers};
use crate::{Context, Device, Measure, Place};
use bilevel::{Adam, DType, InnerLoop, InnerOptimizer, Key, Oracles, Result, Schedule, Session};
use serde::{Deserialize, Serialize};

/// A training with it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Lila {
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
    /// The first step of θ; it falls to 0.
    pub step: f64,
    /// The first step of the ranges; it falls to 0.
    pub rate: f64,
    /// How often test images are looked at.
    pub looks: u32,
}

impl Lila {
    pub fn new(task: Invariance, seed: u64, device: Device, epochs: u32) -> Self {
        Lila {
            task,
            seed,
            device,
            epochs,
            burn_in: 3,
            fit_every: 3,
            learn_every: 5,
            step: 0.005,
            rate: 0.05,
            looks: 10,
        }
    }
}

/// What it came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    /// The share of test images that are recognised; nothing where training diverged.
    pub accuracy: Option<f64>,
    /// By outer iteration: as many steps of training as lie between two steps of the ranges.
    pub way: Vec<(f64, f64)>,
    /// λ.
    pub ranges: Vec<f64>,
    /// δ by layer.
    pub precisions: Vec<f64>,
    /// −log p(D | λ, δ)/N, by outer iteration.
    pub evidence: Vec<(f64, f64)>,
    /// What it cost, in gradients.
    pub price: f64,
}

/// Folded into the key of the run, for draws of their own; fits have the numbers from the last on.
const TRAINING: u32 = 3;
const LEARNING: u32 = 4;
const FITS: u32 = 5;
/// How often δ moves after a fit, half of the way each time.
const PRECISION_STEPS: usize = 5;

impl Measure for Lila {
    type Found = Found;

    fn take(&self, place: &Place) -> Result<Found> {
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32 };
        let (problem, count) = self.task.evidence(&context)?;
        let problem = problem.in_precision(precision_on(self.device))?;
        let session = Session::new(&problem, &place.executor)?.stopped_by(place.signal.clone());
        let key = Key::from_seed(self.seed);
        let state = session.state(key)?;
        let batches = (count / self.task.batch).max(1) as u32;
        let steps = self.epochs * batches;

        let optimizer = InnerOptimizer::Adam(Adam::default());
        let inner = InnerLoop::new(self.step, steps as usize, 0.0, 1.0)?.with_optimizer(optimizer)?;
        let mut train = inner.walk(&session)?;
        inner.place(&mut train)?;
        train.bind_point(&state.lambda, &state.theta, key.fold_in(TRAINING))?;
        let mut learn = learning(&session)?;
        learn.bind_point(&state.lambda, &state.theta, key.fold_in(LEARNING))?;
        learn.zeroed("slot")?;
        let mut fitting = Fitting::new(&session, batches, count)?;
        let mut evaluator = session.evaluator()?;
        let accuracy = evaluator.names().iter().position(|name| name == ACCURACY).unwrap_or_default();

        let [fall, slow] = [self.step, self.rate].map(|rate| Schedule::cosine(rate, steps, 0.0));
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
        Ok(Found {
            accuracy: way.last().map(|(_, accuracy)| *accuracy).filter(|_| !diverged),
            way,
            ranges: state.lambda.array(RANGES)?.to_f64(),
            precisions: log_precisions.map(f64::exp).to_vec(),
            evidence,
            price: price(oracles, Passes::Separate),
        })
    }
}
