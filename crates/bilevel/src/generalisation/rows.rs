//! Which rows of a table belong to which part.

use crate::error::require;
use crate::{Error, Key, Result};
use bilevel_graph::random::fill_uniform_f64;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A part of the rows.
///
/// ```
/// assert_eq!(bilevel::splits::Part::HeldOut.to_string(), "held-out");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The inner loss sees these.
    Train,
    /// The outer loss sees these.
    Validation,
    /// No method sees these; the guard of a run judges λ by them.
    HeldOut,
    /// Nothing in a run depends on these; they are for the result.
    Test,
}

impl Part {
    pub(crate) const ALL: [Part; 4] = [Part::Train, Part::Validation, Part::HeldOut, Part::Test];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Train => "training",
            Part::Validation => "validation",
            Part::HeldOut => "held-out",
            Part::Test => "test",
        })
    }
}

/// The numbers of the rows in each part of a table. A [`Split`](crate::splits::Split) draws them, or they are given.
///
/// ```
/// use bilevel::splits::{Part, Rows};
/// let rows = Rows::given(0..60, 60..80).with_test(80..100).holding_out(0.2, 0)?;
/// assert_eq!([rows.of(Part::Train).len(), rows.of(Part::Validation).len(), rows.of(Part::HeldOut).len()], [60, 16, 4]);
/// assert!(rows.check(100).is_ok() && rows.check(99).is_err());
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rows {
    train: Vec<usize>,
    validation: Vec<usize>,
    held_out: Vec<usize>,
    test: Vec<usize>,
    /// The number of rows that a split divided, if it did.
    #[serde(skip)]
    drawn_from: Option<usize>,
}

impl Rows {
    /// These rows to train on, and these to choose λ by.
    pub fn given(train: impl IntoIterator<Item = usize>, validation: impl IntoIterator<Item = usize>) -> Self {
        let (train, validation) = (train.into_iter().collect(), validation.into_iter().collect());
        Rows { train, validation, ..Rows::default() }
    }

    /// The same with these held-out rows.
    pub fn with_held_out(self, rows: impl IntoIterator<Item = usize>) -> Self {
        Rows { held_out: rows.into_iter().collect(), ..self }
    }

    /// The same with these test rows.
    pub fn with_test(self, rows: impl IntoIterator<Item = usize>) -> Self {
        Rows { test: rows.into_iter().collect(), ..self }
    }

    /// The same rows, which divide a table of `count` rows: one of another length is refused.
    pub(crate) fn drawn_from(self, count: usize) -> Self {
        Rows { drawn_from: Some(count), ..self }
    }

    /// The rows of a part.
    pub fn of(&self, part: Part) -> &[usize] {
        match part {
            Part::Train => &self.train,
            Part::Validation => &self.validation,
            Part::HeldOut => &self.held_out,
            Part::Test => &self.test,
        }
    }

    /// The same with a share of the validation rows held out instead, chosen by a seed. If some are held out already,
    /// or the share amounts to no row, nothing changes; at least one validation row is left.
    pub fn holding_out(&self, share: f64, seed: u64) -> Result<Self> {
        require((0.0..1.0).contains(&share), "held_out.share", share, "from 0 to below 1")?;
        let all = self.validation.len();
        let count = ((share * all as f64).round() as usize).min(all.saturating_sub(1));
        if count == 0 || !self.held_out.is_empty() {
            return Ok(self.clone());
        }
        let order = shuffled(all, seed);
        let mut is_out = vec![false; all];
        order[..count].iter().for_each(|&place| is_out[place] = true);
        let part = |out: bool| {
            let kept = self.validation.iter().zip(&is_out).filter(|(_, is_out)| **is_out == out);
            kept.map(|(row, _)| *row).collect()
        };
        Ok(Rows { validation: part(false), held_out: part(true), ..self.clone() })
    }

    /// All rows that have labels are for training: validation and held-out rows too. The test rows stay.
    pub fn all_for_training(&self) -> Self {
        let train = [&self.train[..], &self.validation, &self.held_out].concat();
        Rows { train, test: self.test.clone(), drawn_from: self.drawn_from, ..Rows::default() }
    }

    /// K parts of all rows with labels, each once the validation rows of a training on the others. Rows are shuffled by a seed first.
    ///
    /// ```
    /// use bilevel::splits::{Part, Rows};
    /// let folds = Rows::given(0..70, 70..100).folds(5, 0)?;
    /// assert!(folds.iter().all(|fold| fold.of(Part::Train).len() == 80 && fold.of(Part::Validation).len() == 20));
    /// # Ok::<(), bilevel::Error>(())
    /// ```
    pub fn folds(&self, count: usize, seed: u64) -> Result<Vec<Rows>> {
        let all = self.all_for_training().train;
        require((2..=all.len()).contains(&count), "folds", count, "at least 2, and at most the number of rows")?;
        let order: Vec<usize> = shuffled(all.len(), seed).into_iter().map(|place| all[place]).collect();
        let bound = |fold: usize| fold * order.len() / count;
        let one = |fold: usize| {
            let (from, to) = (bound(fold), bound(fold + 1));
            let train = order[..from].iter().chain(&order[to..]).copied();
            Rows::given(train, order[from..to].iter().copied()).with_test(self.test.iter().copied())
        };
        Ok((0..count).map(one).collect())
    }

    /// Refuses rows that a table of this many does not have, rows in two parts, a split of another number of rows, and
    /// one without rows to train on.
    pub fn check(&self, count: usize) -> Result<()> {
        if let Some(divided) = self.drawn_from.filter(|divided| *divided != count) {
            let reason = format!("divides {divided} rows, but there are {count}; divide as many rows as the table has");
            return Err(Error::Data { what: "the split".into(), reason });
        }
        let mut part_of = vec![None; count];
        for part in Part::ALL {
            for &row in self.of(part) {
                let refuse = |reason: String| Err(Error::Data { what: format!("row {row} of a split"), reason });
                match part_of.get_mut(row) {
                    None => return refuse(format!("does not exist: the table has {count} rows, counted from 0")),
                    Some(Some(other)) if *other == part => return refuse(format!("is a {part} row twice")),
                    Some(Some(other)) => return refuse(format!("is a {other} row and a {part} row")),
                    Some(free) => *free = Some(part),
                }
            }
        }
        match self.train.is_empty() {
            true => Err(Error::Data { what: "the split".into(), reason: "has no rows to train on".into() }),
            false => Ok(()),
        }
    }
}

/// The numbers below `count` in an order that a seed decides.
pub(crate) fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut draws = vec![0.0; count];
    fill_uniform_f64(Key::from_seed(seed).values().map(|k| k as u32), 0, 0, 0, &mut draws);
    for (i, draw) in draws.into_iter().enumerate().rev() {
        order.swap(i, (draw * (i + 1) as f64) as usize);
    }
    order
}
