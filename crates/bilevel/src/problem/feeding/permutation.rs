//! Rows in a random order, computed place by place from random words: no table, no state, nothing on the host.
//!
//! Few rows, or few of many: Fisher and Yates. With jᵢ uniform in i … n−1, output i is the content of place jᵢ after
//! places t and jₜ were exchanged for t = 0 … i−1. It is found by reversing the exchanges:
//!
//!   x ← jᵢ;   for t = i−1 … 0:   x ← t where x = jₜ
//!
//! Many rows: rounds on x in 0 … n−1, with a = ⌊√n⌋ and b = ⌊n/a⌋:
//!
//!   x ← (x + s) mod n
//!   where x < a·b, with x = l·b + r:   r ← (r + F(l)) mod b,   l ← (l + G(r)) mod a
//!
//! Every line is invertible for all s, F and G, so the rounds permute exactly n rows for every n, and no value has to
//! be redrawn. The fewer than √n rows that the second line leaves alone are others in every round.
//!
//! Places and rows are whole numbers below 2³¹ in 64-bit floats, in which all of this is exact on every executor.

use bilevel_graph::{DType, Tensor};

/// Rounds. With 5, pairs of places are met by all pairs of rows equally often as far as 10⁵ orders can tell, from 16 rows on.
const ROUNDS: usize = 5;
/// Words of a round: s, and three each for F and G.
const ROUND_WORDS: usize = 7;
/// Random words that [`row_at`] takes.
pub(crate) const WORDS: usize = ROUNDS * ROUND_WORDS;

/// The first k of n different numbers in random order, all orders equally likely, from uniform numbers `[.., k]` in
/// \[0, 1). n is a tensor that broadcasts to `[.., k]`. Each draw has a bias below n·2⁻⁵³, that of a uniform number.
pub(crate) fn first_of(uniform: Tensor, n: Tensor) -> Tensor {
    let axis = uniform.rank().saturating_sub(1);
    let place = uniform.iota_like(axis);
    let drawn = place + (uniform * (n - place)).floor();
    (0..uniform.dim(axis).saturating_sub(1)).rev().fold(drawn, |x, t| {
        let met = x.equal(drawn.slice(axis, t, t + 1)) * place.greater(t as f64);
        met.select(t as f64, x)
    })
}

/// The row at each place of a random order of n rows, in 64-bit floats. `word(i)` is the i-th of [`WORDS`] random
/// words, an i32 scalar or one for every place.
pub(crate) fn row_at(place: Tensor, n: usize, word: impl Fn(usize) -> Tensor) -> Tensor {
    let a = n.isqrt().max(n.min(2)).max(1);
    let b = n / a;
    let (n, a, b) = (n as f64, a as f64, b as f64);
    (0..ROUNDS).fold(place, |x, round| {
        let word = |i: usize| word(round * ROUND_WORDS + i);
        let x = modulo(x + (unit(word(0)) * n).floor(), n);
        // Half a row from any border, the quotient's rounding cannot cross one.
        let l = ((x + 0.5) * (1.0 / b)).floor();
        let r = modulo(x - l * b + below(b, l, [word(1), word(2), word(3)]), b);
        let mixed = modulo(l + below(a, r, [word(4), word(5), word(6)]), a) * b + r;
        x.less(a * b).select(mixed, x)
    })
}

/// x mod m for 0 ≤ x < 2m.
fn modulo(x: Tensor, m: f64) -> Tensor {
    x - x.greater_equal(m) * m
}

/// A word as a number in \[0, 1).
fn unit(word: Tensor) -> Tensor {
    word.convert(DType::F64) * 2f64.powi(-32) + 0.5
}

/// A number in 0 … m−1 that depends on x as if at random: the upper bits of (x + k₀)·(k₁·x + k₂) mod 2³².
fn below(m: f64, x: Tensor, [k0, k1, k2]: [Tensor; 3]) -> Tensor {
    let x = x.convert(DType::I32);
    (unit((x + k0) * (x * k1 + k2)) * m).floor()
}
