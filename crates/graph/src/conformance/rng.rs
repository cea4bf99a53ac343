//! A small deterministic generator: the same seed throws the same numbers on every machine.

use crate::{Array, DType, Result};

/// Choices and numbers from a seed.
///
/// ```
/// use bilevel_graph::conformance::Dice;
/// let (mut a, mut b) = (Dice::new(7), Dice::new(7));
/// assert_eq!(a.below(100), b.below(100));
/// assert!(["x", "y"].contains(&a.pick(&["x", "y"])));
/// ```
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of this seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    /// The next 31 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// A whole number in 0..n; 0 if n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n.max(1)
    }

    /// Returns true once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number in −1..1.
    pub fn uniform(&mut self) -> f64 {
        self.bits() as f64 / (1u64 << 31) as f64 * 2.0 - 1.0
    }

    /// One of these, of which there must be one.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// Numbers in −1..1.
    pub fn array(&mut self, shape: &[usize], dtype: DType) -> Result<Array> {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| self.uniform()).collect();
        Array::from_values(shape, &values, dtype)
    }

    /// Whole numbers in 0..limit.
    pub fn indices(&mut self, shape: &[usize], limit: usize) -> Result<Array> {
        let values = (0..shape.iter().product()).map(|_| self.below(limit) as i32).collect();
        Array::from_i32(shape, values)
    }
}
