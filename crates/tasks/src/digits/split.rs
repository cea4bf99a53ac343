//! Three equal parts of the digits, after a seeded shuffle.

use super::{Digits, records};
use bilevel::Key;
use bilevel::graph::random::fill_uniform_f64;

/// Digits to train with, to choose hyperparameters by, and to judge the result by: 599 each.
///
/// ```
/// use bilevel_tasks::digits::Split;
/// let split = Split::new(1);
/// assert_eq!([&split.train, &split.validation, &split.test].map(|part| part.len()), [599; 3]);
/// assert_eq!(split, Split::new(1));
/// assert_ne!(split, Split::new(2));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The inner loss sees these.
    pub train: Digits,
    /// The outer loss sees these.
    pub validation: Digits,
    /// No loss sees these.
    pub test: Digits,
}

impl Split {
    /// The split of this seed.
    pub fn new(seed: u64) -> Self {
        let mut records: Vec<&[u8]> = records().collect();
        let mut draws = vec![0.0; records.len()];
        fill_uniform_f64(Key::from_seed(seed).words(), 0, 0, 0, &mut draws);
        for (i, draw) in draws.into_iter().enumerate().rev() {
            records.swap(i, (draw * (i + 1) as f64) as usize);
        }
        let third = records.len() / 3;
        let part = |n: usize| Digits::of(records[n * third..(n + 1) * third].iter().copied());
        Split { train: part(0), validation: part(1), test: part(2) }
    }
}
