//! 1797 handwritten digits of 8 × 8 pixels, embedded: the data set `digits` of scikit-learn.
//!
//! `data/README.md` has their source and licence.

mod per_weight_l2;
mod source;
mod split;

pub(crate) use per_weight_l2::share_right;
pub use per_weight_l2::{
    Classifier, Penalty, PerWeightL2, SHAPE, judged_by_evidence, largest_curvature, per_weight_l2,
};
pub(crate) use source::small_mnist;
pub use source::{DigitSource, Part};
pub use split::Split;

use bilevel::{Array, Result};
use serde::{Deserialize, Serialize};

/// Pixels of a digit.
pub const PIXELS: usize = 64;
/// Classes, one for each digit from 0 to 9.
pub const CLASSES: usize = 10;

/// The records of the embedded file: the pixels, from 0 to 16, and the label.
fn records() -> impl Iterator<Item = &'static [u8]> {
    include_bytes!("../../data/digits.bin").chunks_exact(PIXELS + 1)
}

/// Some of the digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Digits {
    /// Pixels from 0 to 1, a row of [`PIXELS`] for each digit.
    pub pixels: Vec<f32>,
    /// The label of each, from 0 to 9.
    pub labels: Vec<i32>,
}

/// How well a classifier does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Mean cross entropy.
    pub loss: f64,
    /// The fraction that is classified correctly.
    pub accuracy: f64,
}

impl Digits {
    /// All of them, in scikit-learn's order.
    ///
    /// ```
    /// let digits = bilevel_tasks::digits::Digits::all();
    /// assert_eq!((digits.len(), &digits.labels[..4]), (1797, &[0, 1, 2, 3][..]));
    /// ```
    pub fn all() -> Self {
        Self::of(records())
    }

    fn of<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digits = Digits { pixels: vec![], labels: vec![] };
        for record in records {
            digits.pixels.extend(record[..PIXELS].iter().map(|&pixel| pixel as f32 / 16.0));
            digits.labels.push(record[PIXELS] as i32);
        }
        digits
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The first of them, up to this number.
    ///
    /// ```
    /// assert_eq!(bilevel_tasks::digits::Digits::all().first(100).len(), 100);
    /// ```
    pub fn first(mut self, count: usize) -> Self {
        self.pixels.truncate(count * PIXELS);
        self.labels.truncate(count);
        self
    }

    /// These, and then those.
    pub fn and(mut self, others: &Digits) -> Self {
        self.pixels.extend_from_slice(&others.pixels);
        self.labels.extend_from_slice(&others.labels);
        self
    }

    /// The pixels as an array, a row for each digit.
    pub fn x(&self) -> Result<Array> {
        Ok(Array::from_f32([self.len(), PIXELS], self.pixels.clone())?)
    }

    /// The labels as an array.
    pub fn y(&self) -> Result<Array> {
        Ok(Array::from_i32([self.len()], self.labels.clone())?)
    }

    /// How well the linear classifier with these weights, [`PIXELS`] rows of [`CLASSES`], does on these digits.
    ///
    /// ```
    /// use bilevel::{Array, DType};
    /// // Without weights every class is as likely as any other.
    /// let score = bilevel_tasks::digits::Digits::all().score(&Array::zeros([64, 10], DType::F32));
    /// assert!((score.loss - 10f64.ln()).abs() < 1e-12);
    /// ```
    pub fn score(&self, weights: &Array) -> Score {
        let weights = weights.to_f64();
        let (mut loss, mut right) = (0.0, 0.0);
        for (digit, &label) in self.pixels.chunks_exact(PIXELS).zip(&self.labels) {
            let mut logits = [0.0; CLASSES];
            for (&pixel, row) in digit.iter().zip(weights.chunks_exact(CLASSES)) {
                logits.iter_mut().zip(row).for_each(|(logit, weight)| *logit += pixel as f64 * weight);
            }
            let own = logits[label as usize];
            let most = logits.into_iter().fold(f64::NEG_INFINITY, f64::max);
            loss += most + logits.iter().map(|logit| (logit - most).exp()).sum::<f64>().ln() - own;
            right += if own == most { 1.0 } else { 0.0 };
        }
        Score { loss: loss / self.len() as f64, accuracy: right / self.len() as f64 }
    }
}
