//! The digits of `digits.bin` in three equal parts, and how well a linear classifier does on one.

use bilevel::graph::random::{fill_uniform_f64, seed_key};
use bilevel::{Array, Result};

pub const PIXELS: usize = 64;
pub const CLASSES: usize = 10;
/// Digits in each part.
pub const ROWS: usize = 599;

/// Some of the digits: pixels from 0 to 1, and labels.
#[derive(Clone)]
pub struct Digits {
    pub pixels: Vec<f32>,
    pub labels: Vec<i32>,
}

/// Training, validation and test digits, after a shuffle that is always the same.
pub fn three_parts() -> [Digits; 3] {
    let mut records: Vec<&[u8]> = include_bytes!("digits.bin").chunks_exact(PIXELS + 1).collect();
    for (i, u) in uniform(1, records.len()).into_iter().enumerate().rev() {
        records.swap(i, (u * (i + 1) as f64) as usize);
    }
    let part = |n: usize| {
        let records = &records[n * ROWS..(n + 1) * ROWS];
        let pixels = records.iter().flat_map(|r| &r[..PIXELS]).map(|&p| p as f32 / 16.0);
        Digits { pixels: pixels.collect(), labels: records.iter().map(|r| r[PIXELS] as i32).collect() }
    };
    [part(0), part(1), part(2)]
}

/// Numbers uniform between 0 and 1.
pub fn uniform(seed: u64, count: usize) -> Vec<f64> {
    let mut numbers = vec![0.0; count];
    fill_uniform_f64(seed_key(seed).map(|k| k as u32), 0, 0, 0, &mut numbers);
    numbers
}

impl Digits {
    /// The pixels, a row for each digit.
    pub fn x(&self) -> Result<Array> {
        Ok(Array::from_f32([self.labels.len(), PIXELS], self.pixels.clone())?)
    }

    /// The labels.
    pub fn y(&self) -> Result<Array> {
        Ok(Array::from_i32([self.labels.len()], self.labels.clone())?)
    }

    /// Mean cross entropy, and the fraction that is classified correctly, by weights of a row for each pixel.
    pub fn judge(&self, weights: &Array) -> (f64, f64) {
        let weights = weights.to_f64();
        let (mut loss, mut right) = (0.0, 0.0);
        for (digit, &label) in self.pixels.chunks_exact(PIXELS).zip(&self.labels) {
            let mut scores = [0.0; CLASSES];
            for (&pixel, row) in digit.iter().zip(weights.chunks_exact(CLASSES)) {
                scores.iter_mut().zip(row).for_each(|(s, w)| *s += pixel as f64 * w);
            }
            let own = scores[label as usize];
            let most = scores.into_iter().fold(f64::NEG_INFINITY, f64::max);
            loss += most + scores.iter().map(|s| (s - most).exp()).sum::<f64>().ln() - own;
            right += if own == most { 1.0 } else { 0.0 };
        }
        let count = self.labels.len() as f64;
        (loss / count, right / count)
    }
}
