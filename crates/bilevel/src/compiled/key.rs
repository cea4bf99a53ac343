//! The key from which all random draws of a run follow.

use bilevel_graph::random::{fold_in, seed_key};

/// The key of random draws: the same key gives the same draws, to the bit, on every executor.
///
/// ```
/// use bilevel::Key;
/// let key = Key::from_seed(7);
/// assert_eq!(key, Key::from_seed(7));
/// assert_ne!(key.fold_in(1), key.fold_in(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key([i32; 2]);

impl Key {
    /// The key of a seed.
    pub fn from_seed(seed: u64) -> Self {
        Key(seed_key(seed))
    }

    /// A key for the part of this number: that of an iteration, a chain, a variable.
    pub fn fold_in(self, number: u32) -> Self {
        Key(fold_in(self.0, number))
    }

    /// The numbers a program takes as its input `key`.
    pub fn values(self) -> [i32; 2] {
        self.0
    }

    /// The words the generators of [`graph::random`](bilevel_graph::random) take.
    pub fn words(self) -> [u32; 2] {
        self.0.map(|k| k as u32)
    }
}

impl From<[i32; 2]> for Key {
    fn from(values: [i32; 2]) -> Self {
        Key(values)
    }
}
