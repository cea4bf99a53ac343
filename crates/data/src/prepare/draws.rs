//! Random numbers on the host, from the generator that programs draw from.

use bilevel::Key;
use bilevel::graph::random::philox4x32;

/// A sequence of random words.
pub(crate) struct Draws {
    key: [u32; 2],
    stream: u32,
    next: u64,
}

impl Draws {
    /// The sequence of a key; different streams are unrelated.
    pub fn new(key: Key, stream: u32) -> Self {
        Draws { key: key.words(), stream, next: 0 }
    }

    fn word(&mut self) -> u64 {
        let block = philox4x32([self.next as u32, (self.next >> 32) as u32, 0, self.stream], self.key);
        self.next += 1;
        u64::from(block[0]) | u64::from(block[1]) << 32
    }

    /// Uniform in \[0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 * 2f64.powi(-53)
    }

    /// One of 0 … n − 1, all equally likely; 0 if n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let n = n.max(1) as u64;
        // The words above the last whole multiple of n would favour small numbers.
        let last = u64::MAX - (u64::MAX % n + 1) % n;
        loop {
            let word = self.word();
            if word <= last {
                return (word % n) as usize;
            }
        }
    }

    /// Shuffles, by Fisher and Yates.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_orders_of_three_are_equally_frequent() {
        let (mut draws, mut counts) = (Draws::new(Key::from_seed(1), 0), std::collections::BTreeMap::new());
        for _ in 0..6000 {
            let mut order = [0, 1, 2];
            draws.shuffle(&mut order);
            *counts.entry(order).or_insert(0) += 1;
        }
        // 1000 each, with a standard deviation of 29.
        assert!(counts.len() == 6 && counts.values().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
