//! Power-of-two scales computed from amax exponents that are known before the array.
//!
//!   log₂ p = maxₜ (sₜ + Σ_f log₂ m_f)
//!
//! for terms t, each an integer sₜ and factors m_f that are powers of two. Only exponents are added, so nothing
//! overflows, and every loop that needs the scale recomputes it from its factors.

/// The maximum number of terms of a scale: kernels evaluate them for every thread.
pub(crate) const MAX_SCALE_TERMS: usize = 4;

/// A power-of-two scale. Its factors, each the [`Kind::AmaxExponent`](crate::Kind::AmaxExponent) of an array, are operands
/// of the operation that uses it, in the order of the terms.
///
/// ```
/// use bilevel_plan::Pow2Scale;
/// assert_eq!((Pow2Scale::AMAX.factors(), Pow2Scale::AMAX.exponent(&[-3])), (1, -3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pow2Scale {
    terms: [Option<ScaleTerm>; MAX_SCALE_TERMS],
}

/// A term of a [`Pow2Scale`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleTerm {
    /// The constant added to the exponents of the factors.
    pub shift: i16,
    /// The number of factors.
    pub factors: usize,
}

impl Pow2Scale {
    /// The scale that is its only factor.
    pub const AMAX: Pow2Scale = Pow2Scale { terms: [Some(ScaleTerm { shift: 0, factors: 1 }), None, None, None] };

    /// Builds a scale from these terms; `None` if there are too many, or none.
    pub(crate) fn new(terms: &[ScaleTerm]) -> Option<Self> {
        let mut of = [None; MAX_SCALE_TERMS];
        of.iter_mut().zip(terms).for_each(|(place, &term)| *place = Some(term));
        (1..=MAX_SCALE_TERMS).contains(&terms.len()).then_some(Pow2Scale { terms: of })
    }

    /// Returns the terms.
    pub fn terms(&self) -> impl Iterator<Item = ScaleTerm> + '_ {
        self.terms.iter().copied().flatten()
    }

    /// Returns the number of factors of all terms.
    pub fn factors(&self) -> usize {
        self.terms().map(|term| term.factors).sum()
    }

    /// Returns the exponent for these exponents of the factors.
    pub fn exponent(&self, mut factors: &[i32]) -> i32 {
        let of_terms = self.terms().map(|term| {
            let (own, others) = factors.split_at(term.factors.min(factors.len()));
            factors = others;
            i32::from(term.shift) + own.iter().sum::<i32>()
        });
        of_terms.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_term_counts() {
        let terms = [ScaleTerm { shift: 3, factors: 2 }, ScaleTerm { shift: -1, factors: 1 }];
        let scale = Pow2Scale::new(&terms).unwrap();
        assert_eq!((scale.factors(), scale.exponent(&[4, -9, 2]), scale.exponent(&[4, -9, 0])), (3, 1, -1));
        assert_eq!([Pow2Scale::new(&[]), Pow2Scale::new(&[terms[0]; MAX_SCALE_TERMS + 1])], [None, None]);
    }
}
