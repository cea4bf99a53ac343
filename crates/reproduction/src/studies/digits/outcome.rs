//! The outcome of every way to regularise, on every split.

use super::{BOTH, EVIDENCE, NONE, SHARED, Scale, Scores, afresh, both, evidence, learning, none, shared};
use bilevel::Result;
use bilevel_run::Finished;
use bilevel_run::price::price;
use bilevel_run::spread::Spread;

/// A point on the way of a method, at the parameters the run has there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Outer iterations done.
    pub iteration: u32,
    /// Their cost, in gradients.
    pub cost: f64,
    /// The loss on the validation digits.
    pub validation_loss: f64,
    /// The loss on the test digits.
    pub test_loss: f64,
    /// The fraction of the test digits that is classified correctly.
    pub test_accuracy: f64,
}

/// The outcome of one way to regularise, on one split.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// [`NONE`], [`SHARED`], [`BOTH`], [`EVIDENCE`] or the name of a method.
    pub name: &'static str,
    /// The split.
    pub split: u64,
    /// The scores of the classifier; `None` if the method diverged.
    pub scores: Option<Scores>,
    /// The change of the logarithms of the weights; empty if none were learned.
    pub change: Vec<f64>,
    /// The total cost in gradients, including the grid search it starts from.
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

/// All of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The requested scale.
    pub scale: Scale,
    /// Everything on each split, in the order of a table.
    pub trials: Vec<Trial>,
}

impl Outcome {
    /// Reads the finished items.
    pub fn read(scale: &Scale, done: &Finished) -> Result<Self> {
        let training = scale.steps as f64;
        let search = scale.grid.len() as f64 * training;
        let mut trials = vec![];
        for &split in &scale.splits {
            let plain = |name: &'static str, label: &str, scores: Scores, cost: f64| Trial {
                name,
                split,
                scores: Some(scores),
                change: vec![],
                cost,
                seconds: done.seconds(label).unwrap_or(f64::NAN),
                iterations: 0,
                curve: vec![],
                failed: None,
            };
            let (start, tuned): (f64, Scores) = done.measured(&shared(split))?;
            trials.push(plain(NONE, &none(split), done.measured(&none(split))?, training));
            trials.push(plain(SHARED, &shared(split), tuned, search));
            for setting in &scale.methods {
                let run = done.run(&learning(setting.name, split))?;
                let label = afresh(setting.name, split);
                let beginning = Point {
                    iteration: 0,
                    cost: 0.0,
                    validation_loss: tuned.validation.loss,
                    test_loss: tuned.test.loss,
                    test_accuracy: tuned.test.accuracy,
                };
                let point = |row: &bilevel_run::run::IterationRow| {
                    let measure = |name: &str| row.measures.get(name)?.as_f64();
                    Some(Point {
                        iteration: row.iteration,
                        cost: price(row.oracles, setting.passes()),
                        validation_loss: measure("validation loss")?,
                        test_loss: measure("test loss")?,
                        test_accuracy: measure("test accuracy")?,
                    })
                };
                let values = run.lambda.first().map_or(&[][..], |leaf| &leaf.values);
                trials.push(Trial {
                    name: setting.name,
                    split,
                    scores: run.arrived().then(|| done.measured(&label)).transpose()?,
                    change: values.iter().map(|value| value - start).collect(),
                    cost: search + run.price + training,
                    seconds: run.seconds + done.seconds(&label).unwrap_or(0.0),
                    iterations: run.result.iterations,
                    curve: std::iter::once(beginning).chain(run.history.rows.iter().filter_map(point)).collect(),
                    failed: (!run.arrived()).then(|| run.result.because.clone()),
                });
            }
            trials.push(plain(BOTH, &both(split), done.measured(&both(split))?, search + training));
            let cost = search + scale.budget + training;
            trials.push(plain(EVIDENCE, &evidence(split), done.measured(&evidence(split))?, cost));
        }
        Ok(Outcome { scale: scale.clone(), trials })
    }

    /// Names of the rows of a table.
    pub fn names(&self) -> Vec<&'static str> {
        [NONE, SHARED].into_iter().chain(self.scale.methods.iter().map(|method| method.name)).collect()
    }

    /// The trials of this name, one per split.
    pub fn trials<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Trial> {
        self.trials.iter().filter(move |trial| trial.name == name)
    }

    /// A number of the scores over all splits that have them.
    pub fn spread(&self, name: &str, pick: impl Fn(&Scores) -> f64) -> Spread {
        Spread::of(&self.trials(name).filter_map(|trial| trial.scores.as_ref().map(&pick)).collect::<Vec<_>>())
    }
}
