//! The ways to train with labels of which half are wrong, each as a selection of the doubtful rows.

use super::classifier::{classes, probabilities, trained};
use super::labels::{Labelled, Mistakes};
use super::learned::{Confusions, Learning, row_weights};
use bilevel::{Array, Result};
use bilevel_run::{Measure, Place};
use bilevel_tasks::digits::{CLASSES, Score};
use serde::{Deserialize, Serialize};

/// Rounds of a selection by a classifier that was trained on the last selection.
const ROUNDS: usize = 5;
/// Suspects that are named for each class.
const NAMED: usize = 2;

/// A way to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// All given labels.
    Given,
    /// All given labels and the clean ones.
    Both,
    /// The clean labels alone.
    Clean,
    /// The half of the rows whose loss is least, and the clean ones; repeated.
    SmallLoss,
    /// The rows whose label is what a classifier of the clean ones says, and these; repeated.
    Agreement,
    /// Confusions counted on the clean rows.
    Counted,
    /// A weight for each row, learned.
    Weights,
    /// Confusions, learned.
    Confusions,
    /// The labels that are right.
    Right,
}

impl Way {
    /// All of them, as in the table.
    pub const ALL: [Way; 9] = [
        Way::Given,
        Way::Both,
        Way::Clean,
        Way::SmallLoss,
        Way::Agreement,
        Way::Counted,
        Way::Weights,
        Way::Confusions,
        Way::Right,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Given => "all given labels",
            Way::Both => "all given labels and the clean ones",
            Way::Clean => "the clean labels alone",
            Way::SmallLoss => "small losses, repeated",
            Way::Agreement => "agreement with a classifier, repeated",
            Way::Counted => "confusions, counted on clean rows",
            Way::Weights => "a weight for each row, learned",
            Way::Confusions => "confusions, learned",
            Way::Right => "right labels (unknown in practice)",
        }
    }
}

/// The outcome of a way on a split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Which way.
    pub way: Way,
    /// On the test digits.
    pub test: Score,
    /// On the validation digits that are not among the clean ones.
    pub others: Score,
    /// Rows that are flagged as wrong.
    pub flagged: usize,
    /// Of these, the rows whose label is wrong.
    pub hits: usize,
    /// All rows whose label is wrong.
    pub wrong: usize,
}

/// A label that is flagged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// The number of the row.
    pub row: usize,
    /// The label it is given.
    pub given: i32,
    /// The most probable class.
    pub found: i32,
    /// The label it should have.
    pub right: i32,
    /// The probability that the given label is right.
    pub trust: f64,
}

/// All ways on one split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitTrials {
    /// In the order of [`Way::ALL`].
    pub trials: Vec<Trial>,
    /// For each class that is found, the labels that the learned confusions trust least.
    pub suspects: Vec<Suspect>,
    /// The learned confusions.
    pub table: Vec<f64>,
}

/// The decays of the classifiers, in the order of [`Way::ALL`].
pub type Decays = [f64; 9];

/// All ways on a split.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The seed of the split.
    pub split: u64,
    /// How labels are wrong.
    pub mistakes: Mistakes,
    /// Learning of confusions.
    pub confusions: Learning,
    /// Learning of weights.
    pub weights: Learning,
    /// The decays.
    pub decays: Decays,
}

impl Comparison {
    fn decay(&self, way: Way) -> f64 {
        Way::ALL.iter().zip(self.decays).find(|(known, _)| **known == way).map_or(0.0, |(_, decay)| decay)
    }

    /// Rows that are kept if the half of them with the least loss is, again and again.
    fn by_loss(&self, labelled: &Labelled, place: &Place) -> Result<Vec<bool>> {
        let mut keep = vec![true; labelled.doubtful.len()];
        for round in 0..=ROUNDS {
            let decay = self.decay(if round == 0 { Way::Both } else { Way::SmallLoss });
            let weights = trained(&labelled.kept(&keep), decay, place)?;
            let p = probabilities(&labelled.doubtful, &weights);
            let own: Vec<f64> = p.iter().zip(&labelled.doubtful.labels).map(|(p, given)| p[*given as usize]).collect();
            let mut sorted = own.clone();
            sorted.sort_by(f64::total_cmp);
            keep = own.iter().map(|p| *p >= sorted[sorted.len() / 2]).collect();
        }
        Ok(keep)
    }

    /// Rows that are kept if the classifier of those kept before agrees with their label, from one of the clean rows on.
    fn by_agreement(&self, labelled: &Labelled, place: &Place) -> Result<Vec<bool>> {
        let mut keep = vec![false; labelled.doubtful.len()];
        for round in 0..=ROUNDS {
            let decay = self.decay(if round == 0 { Way::Clean } else { Way::Agreement });
            let weights = trained(&labelled.kept(&keep), decay, place)?;
            let found = classes(&labelled.doubtful, &weights);
            keep = found.iter().zip(&labelled.doubtful.labels).map(|(found, given)| found == given).collect();
        }
        Ok(keep)
    }

    /// The mean probabilities on the clean rows of each class, by a classifier of the given labels.
    fn counted(&self, labelled: &Labelled, place: &Place) -> Result<Vec<f64>> {
        let weights = trained(&labelled.doubtful, self.decay(Way::Given), place)?;
        let (mut table, mut counts) = (vec![0.0; CLASSES * CLASSES], [0.0; CLASSES]);
        for (p, class) in probabilities(&labelled.clean, &weights).iter().zip(&labelled.clean.labels) {
            let class = *class as usize;
            counts[class] += 1.0;
            table[class * CLASSES..].iter_mut().zip(p).for_each(|(sum, p)| *sum += p);
        }
        let mean = |(i, sum): (usize, f64)| if counts[i / CLASSES] > 0.0 { sum / counts[i / CLASSES] } else { 0.1 };
        Ok(table.into_iter().enumerate().map(mean).collect())
    }

    fn trial(&self, labelled: &Labelled, way: Way, keep: Option<&[bool]>, place: &Place) -> Result<Trial> {
        let digits = match keep {
            Some(keep) => labelled.kept(keep),
            None => labelled.doubtful.clone(),
        };
        let weights: Array = trained(&digits, self.decay(way), place)?;
        let wrong = labelled.wrong();
        let keep = keep.map_or(vec![true; wrong.len()], <[bool]>::to_vec);
        let hits = keep.iter().zip(&wrong).filter(|(keep, wrong)| !**keep && **wrong).count();
        let [test, others] = [&labelled.test, &labelled.others].map(|part| part.score(&weights));
        let flagged = keep.iter().filter(|keep| !**keep).count();
        Ok(Trial { way, test, others, flagged, hits, wrong: wrong.iter().filter(|wrong| **wrong).count() })
    }

    fn suspects(&self, labelled: &Labelled, learned: &Confusions) -> Vec<Suspect> {
        let found = classes(&labelled.doubtful, &learned.weights);
        let row = |(row, trust): (usize, f64)| {
            let (given, right) = (labelled.doubtful.labels[row], labelled.right[row]);
            Suspect { row, given, found: found[row], right, trust }
        };
        let mut all: Vec<Suspect> = learned.trust(labelled).into_iter().enumerate().map(row).collect();
        all.sort_by(|a, b| a.trust.total_cmp(&b.trust));
        let least = |class: i32| all.iter().filter(move |suspect| suspect.found == class).take(NAMED).cloned();
        (0..CLASSES as i32).flat_map(least).collect()
    }
}

/// Rows that are trusted at least by half.
fn kept(trust: Vec<f64>) -> Vec<bool> {
    trust.into_iter().map(|trust| trust >= 0.5).collect()
}

impl Measure for Comparison {
    type Found = SplitTrials;

    fn take(&self, place: &Place) -> Result<SplitTrials> {
        let labelled = Labelled::new(self.split, self.mistakes);
        let counted = self.counted(&labelled, place)?;
        let learned = Confusions::learned(&labelled, &self.confusions, place)?;
        let mut trials = vec![];
        for way in Way::ALL {
            let keep = match way {
                Way::Given => None,
                Way::Both => Some(vec![true; labelled.doubtful.len()]),
                Way::Clean => Some(vec![false; labelled.doubtful.len()]),
                Way::SmallLoss => Some(self.by_loss(&labelled, place)?),
                Way::Agreement => Some(self.by_agreement(&labelled, place)?),
                Way::Counted => {
                    let decay = self.confusions.decay;
                    Some(kept(Confusions::given(&labelled, &counted, decay, place)?.trust(&labelled)))
                }
                Way::Weights => Some(kept(row_weights(&labelled, &self.weights, place)?)),
                Way::Confusions => Some(kept(learned.trust(&labelled))),
                Way::Right => Some(labelled.wrong().iter().map(|wrong| !wrong).collect()),
            };
            trials.push(self.trial(&labelled, way, keep.as_deref(), place)?);
            (place.progress)(trials.len() as f64 / Way::ALL.len() as f64);
        }
        Ok(SplitTrials { trials, suspects: self.suspects(&labelled, &learned), table: learned.table })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Choice;
    use super::*;
    use bilevel::Cpu;
    use bilevel_run::Registry;

    /// All ways on a split that the study does not show.
    fn compared(mistakes: Mistakes) -> SplitTrials {
        let registry = Registry::new();
        let place = Place::new(&registry, Cpu::with_threads(1));
        let Choice { confusions, weights, decays } = Choice::default();
        let decays = decays[usize::from(mistakes == Mistakes::AtRandom)];
        Comparison { split: 101, mistakes, confusions, weights, decays }.take(&place).unwrap()
    }

    fn trial(found: &SplitTrials, way: Way) -> Trial {
        *found.trials.iter().find(|trial| trial.way == way).unwrap()
    }

    #[test]
    fn learned_confusions_find_systematic_mistakes_and_come_near_the_right_labels() {
        let found = compared(Mistakes::Systematic);
        let learned = trial(&found, Way::Confusions);
        // 300 labels are wrong; a coin would flag 300 labels and be right on 150.
        assert_eq!(learned.wrong, 300);
        assert!(learned.hits > 280 && learned.hits * 100 > learned.flagged * 93, "{learned:?}");
        let accuracy = |way| trial(&found, way).test.accuracy;
        assert!(accuracy(Way::Confusions) > accuracy(Way::Clean) + 0.02, "{found:?}");
        assert!(accuracy(Way::Confusions) > accuracy(Way::Right) - 0.04, "{found:?}");
        assert!(accuracy(Way::Both) < accuracy(Way::Clean), "half of the labels mislead: {found:?}");
        for row in found.table.chunks_exact(CLASSES) {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{row:?}");
        }
        let classes: Vec<i32> = found.suspects.iter().map(|suspect| suspect.found).collect();
        assert!(classes.is_sorted() && classes.len() == NAMED * CLASSES, "{classes:?}");
    }

    #[test]
    fn the_truth_flags_all_wrong_labels_and_no_other() {
        let found = compared(Mistakes::AtRandom);
        let right = trial(&found, Way::Right);
        assert_eq!((right.flagged, right.hits, right.wrong), (300, 300, 300));
        let both = trial(&found, Way::Both);
        assert_eq!((both.flagged, both.hits), (0, 0));
        assert_eq!(trial(&found, Way::Clean).flagged, 599);
    }
}
