//! A classifier trained from scratch on the digits that a λ keeps and on the clean ones, which is the purpose of cleaning.

use super::deep::LearnedLambda;
use bilevel::{DType, InnerLoop, Result};
use bilevel_run::manifest::Taken;
use bilevel_run::{Config, Context, Measure, Place, Task};
use bilevel_tasks::{HyperCleaning, Retraining};
use serde::Serialize;
use serde_json::{Map, Value};

/// The training.
#[derive(Clone, Debug, Serialize)]
pub struct Retrained {
    task: HyperCleaning,
    seed: u64,
    inner: InnerLoop,
    lambda: LearnedLambda,
}

impl Retrained {
    /// With the λ that a configuration starts from, and its inner loop. Without one, no training digit is kept.
    pub fn of(config: &Config, _: &Map<String, Value>) -> Result<Self> {
        let inner = InnerLoop::new(config.inner.step, config.inner.steps);
        Ok(Retrained { task: config.task.read()?, seed: config.seed, inner, lambda: LearnedLambda::of(config) })
    }
}

impl Measure for Retrained {
    type Found = Taken;

    /// Its `accuracy`, and the F1 of kept digits by the `best threshold` on its probabilities.
    fn take(&self, place: &Place) -> Result<Taken> {
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        let lambda = match self.lambda.read(&self.task.build(&context)?)? {
            Some(leaves) => leaves.into_iter().flat_map(|leaf| leaf.values).collect(),
            None => vec![-1.0; self.task.train],
        };
        let (executor, signal) = (place.executor.clone(), place.signal.clone());
        let training = Retraining { inner: self.inner, seed: self.seed, executor, signal };
        let (accuracy, ceiling) = self.task.retrained(&lambda, &context, training)?;
        let numbers = [("accuracy".into(), vec![accuracy]), ("best threshold".into(), vec![ceiling])].into();
        Ok(Taken { numbers, ..Taken::default() })
    }
}
