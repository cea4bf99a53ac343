//! The digits of a split with labels of which exactly half are wrong, and a few digits whose labels are right.

use bilevel::Key;
use bilevel::graph::random::fill_uniform_f64;
use bilevel_tasks::digits::{CLASSES, Digits, Split};
use serde::{Deserialize, Serialize};

/// Digits whose labels are known to be right.
pub const CLEAN: usize = 100;

/// How a label is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mistakes {
    /// Each digit is always mistaken for the same other one: a permutation without a fixed point, which the split decides.
    Systematic,
    /// Each label is replaced by any of the nine others, all equally likely.
    AtRandom,
}

/// The digits of a split.
pub struct Labelled {
    /// 599 digits with the labels they are given.
    pub doubtful: Digits,
    /// The labels they should have.
    pub right: Vec<i32>,
    /// Digits with right labels.
    pub clean: Digits,
    /// The other validation digits: settings were chosen by them, on other splits.
    pub others: Digits,
    /// Digits that are used for the scores alone.
    pub test: Digits,
}

impl Labelled {
    /// Those of a split.
    pub fn new(split: u64, mistakes: Mistakes) -> Self {
        let Split { train, validation, test } = Split::new(split);
        let mut draws = Draws { key: Key::from_seed(split), stream: 0 };
        let right = train.labels.clone();
        let mut doubtful = train;
        let confusion = derangement(&mut draws);
        // The digits are in a random order, so the first half is as good as any.
        let half = right.len().div_ceil(2);
        for (label, draw) in doubtful.labels[..half].iter_mut().zip(draws.numbers(half)) {
            *label = match mistakes {
                Mistakes::Systematic => confusion[*label as usize],
                Mistakes::AtRandom => (*label + 1 + (draw * (CLASSES - 1) as f64) as i32) % CLASSES as i32,
            };
        }
        let clean = validation.clone().first(CLEAN);
        let others = Digits {
            pixels: validation.pixels[clean.pixels.len()..].to_vec(),
            labels: validation.labels[CLEAN..].to_vec(),
        };
        Labelled { doubtful, right, clean, others, test }
    }

    /// Which of the given labels are wrong.
    pub fn wrong(&self) -> Vec<bool> {
        self.doubtful.labels.iter().zip(&self.right).map(|(given, right)| given != right).collect()
    }

    /// Those of the doubtful digits that are kept, and the clean ones.
    pub fn kept(&self, keep: &[bool]) -> Digits {
        let mut kept = Digits { pixels: vec![], labels: vec![] };
        let pixels = self.doubtful.pixels.chunks_exact(bilevel_tasks::digits::PIXELS);
        for ((digit, label), _) in pixels.zip(&self.doubtful.labels).zip(keep).filter(|(_, keep)| **keep) {
            kept.pixels.extend_from_slice(digit);
            kept.labels.push(*label);
        }
        kept.and(&self.clean)
    }
}

/// Numbers drawn one block after another.
struct Draws {
    key: Key,
    stream: u32,
}

impl Draws {
    /// Numbers uniform in \[0, 1).
    fn numbers(&mut self, count: usize) -> Vec<f64> {
        self.stream += 1;
        let mut numbers = vec![0.0; count];
        fill_uniform_f64(self.key.words(), self.stream, 0, 0, &mut numbers);
        numbers
    }
}

/// A permutation of the classes without a fixed point, all equally likely.
fn derangement(draws: &mut Draws) -> Vec<i32> {
    loop {
        let keys = draws.numbers(CLASSES);
        let mut classes: Vec<i32> = (0..CLASSES as i32).collect();
        classes.sort_by(|a, b| keys[*a as usize].total_cmp(&keys[*b as usize]));
        if classes.iter().enumerate().all(|(place, class)| place as i32 != *class) {
            return classes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_labels_are_wrong_and_systematic_ones_are_wrong_in_one_way() {
        for split in 1..=5 {
            for mistakes in [Mistakes::Systematic, Mistakes::AtRandom] {
                let labelled = Labelled::new(split, mistakes);
                assert_eq!(labelled.wrong().iter().filter(|wrong| **wrong).count(), 300, "split {split}");
                assert_eq!((labelled.clean.len(), labelled.others.len(), labelled.test.len()), (CLEAN, 499, 599));
                let given = |right: i32| {
                    let pairs = labelled.right.iter().zip(&labelled.doubtful.labels);
                    let mut found: Vec<i32> = pairs.filter(|(r, g)| **r == right && r != g).map(|(_, g)| *g).collect();
                    found.sort_unstable();
                    found.dedup();
                    found.len()
                };
                let ways: Vec<usize> = (0..CLASSES as i32).map(given).collect();
                match mistakes {
                    Mistakes::Systematic => assert!(ways.iter().all(|ways| *ways == 1), "{ways:?}"),
                    Mistakes::AtRandom => assert!(ways.iter().all(|ways| *ways >= 6), "{ways:?}"),
                }
            }
        }
    }

    #[test]
    fn the_rows_kept_are_followed_by_the_clean_ones() {
        let labelled = Labelled::new(1, Mistakes::Systematic);
        let keep: Vec<bool> = labelled.wrong().iter().map(|wrong| !wrong).collect();
        let kept = labelled.kept(&keep);
        assert_eq!((kept.len(), kept.pixels.len()), (299 + CLEAN, (299 + CLEAN) * 64));
        let right: Vec<i32> = labelled.right.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(r, _)| *r).collect();
        assert_eq!(kept.labels[..299], right);
        assert_eq!(kept.labels[299..], labelled.clean.labels);
    }
}
