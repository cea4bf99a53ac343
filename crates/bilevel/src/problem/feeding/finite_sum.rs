//! Whether a loss is a mean over finitely many minibatches, and over how many, for methods with variance reduction.
//!
//! Minibatches of k rows from epochs of n take n/gcd(n, k) steps to have taken every row equally often. With one key for all, that
//! many steps, counted from 0, are a fixed set of minibatches whose mean is the loss on all rows.

/// How a loss draws its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FiniteSum {
    /// The mean over this many minibatches; 1 for a loss that draws nothing.
    Of(usize),
    /// No such mean, for the loss does this.
    Not(&'static str),
}

impl Default for FiniteSum {
    fn default() -> Self {
        FiniteSum::Of(1)
    }
}

impl FiniteSum {
    /// The loss is not a finite mean.
    pub fn refuse(&mut self, why: &'static str) {
        if let FiniteSum::Of(_) = self {
            *self = FiniteSum::Not(why);
        }
    }

    /// The loss also takes minibatches of this size from epochs of this many rows.
    pub fn epochs(&mut self, rows: usize, size: usize) {
        let FiniteSum::Of(known) = *self else { return };
        let steps = rows / greatest_divisor(rows, size);
        match known.checked_mul(steps / greatest_divisor(known, steps)) {
            Some(all) if all <= i32::MAX as usize => *self = FiniteSum::Of(all),
            _ => self.refuse("has too many minibatches to count"),
        }
    }
}

fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minibatches_are_counted_until_every_row_came_up_equally_often() {
        let mut sum = FiniteSum::default();
        assert_eq!(sum, FiniteSum::Of(1));
        sum.epochs(12, 3);
        assert_eq!(sum, FiniteSum::Of(4));
        sum.epochs(10, 4);
        assert_eq!(sum, FiniteSum::Of(20), "five of one go with four of the other");
        sum.refuse("tosses coins");
        sum.epochs(10, 5);
        sum.refuse("rolls dice");
        assert_eq!(sum, FiniteSum::Not("tosses coins"), "the first reason stays");
    }
}
