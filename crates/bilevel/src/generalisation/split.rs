//! How rows are divided into those to train on, to choose λ by, to hold out and to test with.

use crate::error::require;
use crate::generalisation::rows::{Rows, shuffled};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// How many rows a part has.
///
/// ```
/// use bilevel::splits::Share;
/// assert_eq!((Share::from(0.5), Share::from(100)), (Share::Fraction(0.5), Share::Rows(100)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Share {
    /// A number of rows.
    Rows(usize),
    /// This fraction of all.
    Fraction(f64),
}

impl From<usize> for Share {
    fn from(rows: usize) -> Self {
        Share::Rows(rows)
    }
}

impl From<f64> for Share {
    fn from(fraction: f64) -> Self {
        Share::Fraction(fraction)
    }
}

/// A division of rows, as fractions or counts. Rows of no part are left out.
///
/// By default half of the rows are for training, and of the other half a fifth is held out.
///
/// ```
/// use bilevel::splits::{Part, Split};
/// let rows = Split::default().rows(1000)?;
/// assert_eq!([Part::Train, Part::Validation, Part::HeldOut].map(|part| rows.of(part).len()), [500, 400, 100]);
/// // The same share of every label in every part.
/// let labels: Vec<i32> = (0..1000).map(|i| i32::from(i % 10 == 0)).collect();
/// let rows = Split { train: 200.into(), ..Split::default() }.stratified(&labels)?;
/// assert_eq!(rows.of(Part::Train).iter().filter(|row| labels[**row] == 1).count(), 20);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Split {
    /// Rows to train on.
    pub train: Share,
    /// Rows to choose λ by.
    pub validation: Share,
    /// Rows that no method sees, for the guard of a run.
    pub held_out: Share,
    /// Rows for the result.
    pub test: Share,
    /// The seed of the division.
    pub seed: u64,
}

impl Default for Split {
    fn default() -> Self {
        let [train, validation, held_out, test] = [0.5, 0.4, 0.1, 0.0].map(Share::Fraction);
        Split { train, validation, held_out, test, seed: 0 }
    }
}

impl Split {
    /// The rows of each part, at random.
    pub fn rows(&self, count: usize) -> Result<Rows> {
        let counts = self.counts(count)?;
        let order = shuffled(count, self.seed);
        let mut from = 0;
        let parts = counts.map(|part| {
            from += part;
            order[from - part..from].to_vec()
        });
        Ok(in_order(parts, count))
    }

    /// The same with every label in every part as often as among all rows, up to one row.
    pub fn stratified<L: Ord>(&self, labels: &[L]) -> Result<Rows> {
        let counts = self.counts(labels.len())?;
        let mut left = shuffled(labels.len(), self.seed);
        // Stable, so that rows of one label stay in random order.
        left.sort_by(|a, b| labels[*a].cmp(&labels[*b]));
        let parts = counts.map(|count| {
            // Every (left/count)-th of those that are left.
            let total = left.len().max(1);
            let takes = |place: usize| (place + 1) * count / total > place * count / total;
            let taken = left.iter().enumerate().filter(|(place, _)| takes(*place)).map(|(_, row)| *row).collect();
            let mut place = 0;
            left.retain(|_| {
                place += 1;
                !takes(place - 1)
            });
            taken
        });
        Ok(in_order(parts, labels.len()))
    }

    /// The same with all rows of a group, a patient or a day, in one part: counts are met up to the size of a group.
    ///
    /// ```
    /// use bilevel::splits::{Part, Split};
    /// let groups: Vec<u32> = (0..100).map(|row| row / 10).collect();
    /// let rows = Split::default().grouped(&groups)?;
    /// let of = |part| rows.of(part).iter().map(|row| groups[*row]).collect::<std::collections::BTreeSet<_>>();
    /// assert!(of(Part::Train).is_disjoint(&of(Part::Validation)));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn grouped<G: Ord>(&self, groups: &[G]) -> Result<Rows> {
        let counts = self.counts(groups.len())?;
        let mut members: std::collections::BTreeMap<&G, Vec<usize>> = Default::default();
        groups.iter().enumerate().for_each(|(row, group)| members.entry(group).or_default().push(row));
        let members: Vec<Vec<usize>> = members.into_values().collect();
        let mut parts: [Vec<usize>; 4] = Default::default();
        for group in shuffled(members.len(), self.seed) {
            // To the part that lacks most.
            let lacks = |part: usize| counts[part] as i64 - parts[part].len() as i64;
            let part = (0..parts.len()).rev().max_by_key(|part| lacks(*part)).unwrap_or(0);
            if lacks(part) > 0 {
                parts[part].extend(&members[group]);
            }
        }
        Ok(in_order(parts, groups.len()))
    }

    /// Rows of each part, of this many.
    fn counts(&self, count: usize) -> Result<[usize; 4]> {
        let shares = [self.train, self.validation, self.held_out, self.test];
        let (mut fixed, mut fractions) = (0usize, 0.0);
        for (share, part) in shares.into_iter().zip(["train", "validation", "held_out", "test"]) {
            match share {
                Share::Rows(rows) => fixed = fixed.saturating_add(rows),
                Share::Fraction(fraction) => {
                    require(
                        (0.0..=1.0).contains(&fraction),
                        part,
                        fraction,
                        "a fraction from 0 to 1, or a whole number of rows",
                    )?;
                    fractions += fraction;
                }
            }
        }
        let asked = fixed as f64 + fractions * count as f64;
        if fixed > count || asked > count as f64 + 1e-6 {
            let reason = format!("needs {asked:.0} of {count} rows; make a part smaller");
            return Err(Error::Data { what: "the split".into(), reason });
        }
        // Rounding a running sum wastes no row.
        let (mut sum, mut done) = (0.0, 0);
        let counts = shares.map(|share| match share {
            Share::Rows(rows) => rows,
            Share::Fraction(fraction) => {
                sum += fraction * count as f64;
                let rows = ((sum + 1e-6).floor() as usize).min(count - fixed) - done;
                done += rows;
                rows
            }
        });
        match counts[0] {
            0 => Err(Error::Data { what: "the split".into(), reason: "leaves no rows to train on".into() }),
            _ => Ok(counts),
        }
    }
}

/// Parts with their rows sorted, so that neighbours stay near each other.
fn in_order(parts: [Vec<usize>; 4], count: usize) -> Rows {
    let [train, validation, held_out, test] = parts.map(|mut part| {
        part.sort_unstable();
        part
    });
    Rows::given(train, validation).with_held_out(held_out).with_test(test).drawn_from(count)
}
