//! Held-out signals, learned from an initialisation: how well a network represents them after several numbers of steps.

use super::deep::LearnedLambda;
use bilevel::{DType, Error, Key, Precision, Result, State};
use bilevel_run::manifest::{Taken, TakenPicture};
use bilevel_run::spread::Spread;
use bilevel_run::{Config, Context, Measure, Place};
use bilevel_tasks::ImplicitRepresentation;
use bilevel_tasks::implicit_representation::adapt::{Adapted, Conditions};
use bilevel_tasks::implicit_representation::family::Family;
use bilevel_tasks::implicit_representation::{arrays, matching};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The start of the networks of held-out signals.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Origin {
    /// The start of a run, before learning.
    Random,
    /// The λ found by a run.
    Learned,
    /// The same numbers in another order within every leaf.
    Shuffled,
    /// A network trained for this many steps to have the same outputs.
    Matched(usize),
}

/// Held-out signals after several numbers of steps.
#[derive(Clone, Debug, Serialize)]
pub struct Represented {
    task: ImplicitRepresentation,
    seed: u64,
    origin: Origin,
    lambda: LearnedLambda,
    counts: Vec<usize>,
    #[serde(with = "bilevel::diagnostics::precision_name")]
    precision: Precision,
    /// So many signals are kept as pictures.
    pictures: usize,
}

impl Represented {
    /// From the `origin` "random", "learned", "shuffled" or "matched", the last in `matching` steps, after each number of `steps`.
    pub fn of(config: &Config, with: &Map<String, Value>) -> Result<Self> {
        let get =
            |name: &'static str| with.get(name).cloned().ok_or_else(|| Error::other(format!("with.{name} is missing")));
        let wrong = |error: serde_json::Error| Error::other(format!("with.origin: {error}"));
        let origin = match get("origin")? {
            Value::String(word) if word == "matched" => serde_json::json!({ "matched": get("matching")? }),
            word => word,
        };
        let steps: Vec<usize> = serde_json::from_value(get("steps")?).map_err(wrong)?;
        Ok(Represented {
            // The extra term is of the outer loss, which plays no part here.
            task: ImplicitRepresentation { extra: 0.0, ..config.task.read()? },
            seed: config.seed,
            origin: serde_json::from_value(origin).map_err(wrong)?,
            lambda: LearnedLambda::of(config),
            counts: [&[0], &steps[..]].concat(),
            precision: config.precision,
            pictures: with.get("pictures").and_then(Value::as_u64).unwrap_or(0) as usize,
        })
    }

    fn picture(&self, signal: usize, column: String, caption: String, levels: &[u8]) -> TakenPicture {
        let side = self.task.side;
        TakenPicture {
            grid: format!("Held-out signal {}", signal + 1),
            row: String::new(),
            column,
            caption,
            side,
            colours: levels.len() == 3 * side * side,
            levels: levels.to_vec(),
        }
    }
}

impl Measure for Represented {
    type Found = Taken;

    /// The `PSNR after N steps`, each the mean over signals, which is missing if one was lost; and how far outputs were matched.
    fn take(&self, place: &Place) -> Result<Taken> {
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        // The held-out ones are the first, for any number of others.
        let task = ImplicitRepresentation { signals: 1, tasks: 1, ..self.task.clone() };
        let family = Family::read(&task, &context)?;
        let (key, executor) = (Key::from_seed(self.seed), &*place.executor);
        let random = || State::initial(&*family.adapting(DType::F32)?, executor, key)?.lambda.arrays();
        let learned = || {
            let leaves = self.lambda.read(&family.adapting(DType::F32)?)?;
            arrays(&leaves.ok_or_else(|| Error::other("there is no λ to start from"))?)
        };
        let mut taken = Taken::default();
        let lambda = match self.origin {
            Origin::Random => random()?,
            Origin::Learned => learned()?,
            Origin::Shuffled => matching::shuffled_leaves(&learned()?, key)?,
            Origin::Matched(steps) => {
                let by = (place.executor.clone(), &place.signal);
                let (lambda, left) = family.matched([&learned()?, &random()?], steps, by, self.seed)?;
                if left.is_finite() {
                    taken.numbers.insert("difference of outputs".into(), vec![left.sqrt()]);
                }
                lambda
            }
        };
        (place.progress)(0.3);
        let precision = self.precision;
        let conditions = Conditions { executor, signal: &place.signal, key, precision, pictures: self.pictures };
        let mut way = vec![];
        let truths = family.truth();
        for (signal, truth) in truths.iter().take(self.pictures).enumerate() {
            let truth = self.picture(signal, "0 steps".into(), String::new(), &family.picture(truth));
            taken.pictures.push(TakenPicture { row: "truth".into(), ..truth });
        }
        for adapted in family.adapt(&lambda, &self.counts, &conditions)? {
            let Adapted { steps, psnr, pictures } = &adapted;
            if let Some(all) = psnr.iter().copied().collect::<Option<Vec<f64>>>() {
                let mean = Spread::of(&all).mean;
                taken.numbers.insert(format!("PSNR after {steps} steps"), vec![mean]);
                way.push((*steps as f64, mean));
            }
            for (signal, levels) in pictures.iter().enumerate() {
                taken.pictures.push(self.picture(signal, format!("{steps} steps"), adapted.caption(signal), levels));
            }
        }
        taken.way.insert("PSNR".into(), way);
        Ok(taken)
    }
}
