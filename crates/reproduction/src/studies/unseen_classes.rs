//! A learned start of few-shot learning, judged on tasks of classes never seen before.

use super::deep::LearnedLambda;
use bilevel::{DType, Error, InnerLoop, Precision, Result};
use bilevel_run::manifest::Taken;
use bilevel_run::{Config, Context, Measure, Place, Task};
use bilevel_tasks::few_shot::{Adaptation, FewShot};
use serde::Serialize;
use serde_json::{Map, Value};

/// The test.
#[derive(Clone, Debug, Serialize)]
pub struct UnseenClasses {
    task: FewShot,
    lambda: LearnedLambda,
    how: Adaptation,
    tests: usize,
    seed: u64,
    #[serde(with = "bilevel::diagnostics::precision_name")]
    precision: Precision,
}

impl UnseenClasses {
    /// The test of the λ that a configuration starts from, on this many `tests` with `queries` images of each class. Their `ways` and
    /// `shots`, and the `step`, are those of the training unless given; the number of `steps` is the test's own.
    pub fn of(config: &Config, with: &Map<String, Value>) -> Result<Self> {
        let number = |name: &str, usual: f64| with.get(name).and_then(Value::as_f64).unwrap_or(usual);
        let whole = |name: &str, usual: usize| number(name, usual as f64) as usize;
        let required = |name: &'static str| match whole(name, 0) {
            0 => Err(Error::setting(name, 0.0, "at least 1")),
            count => Ok(count),
        };
        let task: FewShot = config.task.read()?;
        let inner = InnerLoop::new(number("step", task.learning_rate), required("steps")?);
        let how = Adaptation {
            inner: inner.at_temperature(number("temperature", 0.0)),
            proximal: number("proximal", 0.0),
            samples: whole("samples", 1),
        };
        let task = FewShot {
            ways: whole("ways", task.ways),
            shots: whole("shots", task.shots),
            queries: required("queries")?,
            rotations: false,
            minibatch: 0,
            ..task
        };
        let (lambda, tests) = (LearnedLambda::of(config), required("tests")?);
        Ok(UnseenClasses { task, lambda, how, tests, seed: config.seed, precision: config.precision })
    }
}

impl Measure for UnseenClasses {
    type Found = Taken;

    /// `accuracy`, its 95 % `interval`, the expected `calibration error`, all in percent, and the `reliability` by confidence.
    fn take(&self, place: &Place) -> Result<Taken> {
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        let lambda = self.lambda.read(&self.task.build(&context)?)?;
        let lambda = lambda.ok_or_else(|| Error::other("there is no λ to test"))?;
        let judged = self.task.test(&lambda, &self.how, (self.tests, self.seed), self.precision, place)?;
        let percent = |name: &str, share: f64| (name.to_string(), vec![100.0 * share]);
        let numbers = [
            percent("accuracy", judged.accuracy()),
            percent("interval", judged.interval()),
            percent("calibration error", judged.calibration_error()),
        ];
        let way = [("reliability".to_string(), judged.reliability())].into();
        Ok(Taken { numbers: numbers.into(), way, ..Taken::default() })
    }
}
