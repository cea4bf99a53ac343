//! The measurement: held-out signals learned from an initialisation.

use bilevel::{DType, Key, Precision, Result, State};
use bilevel_run::{Context, LambdaLeaf, Measure, Place};
use bilevel_tasks::ImplicitRepresentation;
use bilevel_tasks::implicit_representation::adapt::{Adapted, Conditions};
use bilevel_tasks::implicit_representation::family::Family;
use bilevel_tasks::implicit_representation::{arrays, matching};
use serde::{Deserialize, Serialize, Serializer};

/// An initialisation that a run found.
#[derive(Clone, Debug)]
pub(super) struct Weights(pub Vec<LambdaLeaf>);

/// As a checksum of its numbers, of which there are many.
impl Serialize for Weights {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let numbers = self.0.iter().flat_map(|leaf| &leaf.values);
        // FNV-1a, a number at a time.
        let sum = numbers.fold(0xcbf2_9ce4_8422_2325_u64, |sum, n| (sum ^ n.to_bits()).wrapping_mul(0x0100_0000_01b3));
        serializer.collect_str(&format_args!("{sum:016x}"))
    }
}

/// The start of the networks of held-out signals.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Origin {
    /// The start of a run, before learning.
    Random,
    /// The λ found by a run.
    Learned(Weights),
    /// At the same numbers in another order within every leaf.
    Shuffled(Weights),
    /// At a network trained for this many steps to have the same outputs.
    Matched(Weights, usize),
}

/// Held-out signals after several numbers of steps.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Adaptation {
    pub task: ImplicitRepresentation,
    pub seed: u64,
    pub origin: Origin,
    pub counts: Vec<usize>,
    #[serde(with = "bilevel::diagnostics::precision_name")]
    pub precision: Precision,
    /// So many signals are kept as pictures.
    pub pictures: usize,
}

/// The results on held-out signals.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Found {
    pub adapted: Vec<Adapted>,
    /// The first of the signals themselves.
    pub truth: Vec<Vec<u8>>,
    /// The remaining mean squared difference between outputs, if they were matched.
    pub apart: Option<f64>,
}

impl Measure for Adaptation {
    type Found = Found;

    fn take(&self, place: &Place) -> Result<Found> {
        let context = Context { seed: self.seed, data: place.data.clone(), dtype: DType::F32, ..Context::default() };
        // The held-out ones are the first, for any number of others.
        let task = ImplicitRepresentation { signals: 1, tasks: 1, ..self.task.clone() };
        let family = Family::read(&task, &context)?;
        let (key, executor) = (Key::from_seed(self.seed), &*place.executor);
        let random = || State::initial(&*family.adapting(DType::F32)?, executor, key)?.lambda.arrays();
        let mut apart = None;
        let lambda = match &self.origin {
            Origin::Random => random()?,
            Origin::Learned(weights) => arrays(&weights.0)?,
            Origin::Shuffled(weights) => matching::shuffled_leaves(&arrays(&weights.0)?, key)?,
            Origin::Matched(weights, steps) => {
                let by = (place.executor.clone(), &place.signal);
                let (lambda, left) = family.matched([&arrays(&weights.0)?, &random()?], *steps, by, self.seed)?;
                apart = left.is_finite().then_some(left);
                lambda
            }
        };
        (place.progress)(0.3);
        let precision = self.precision;
        let conditions = Conditions { executor, signal: &place.signal, key, precision, pictures: self.pictures };
        let adapted = family.adapt(&lambda, &self.counts, &conditions)?;
        let truth = family.truth().iter().take(self.pictures).map(|truth| family.picture(truth)).collect();
        Ok(Found { adapted, truth, apart })
    }
}
