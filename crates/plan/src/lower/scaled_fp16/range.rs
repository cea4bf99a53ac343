//! How large the numbers of an array can be at most, from how large others are.
//!
//!   |x| ≤ Σₜ cₜ · Π_f 2·m_f,   m_f = 2^⌊log₂ max |f|⌋ of some arrays f
//!
//! A sum is at most as large as its terms together, a product as its factors, and a sum of k products of elements of A and B as
//! k·max |A|·max |B|. The last is much more than such a sum is as a rule, so it is *loose*, and nothing that is loose is multiplied by
//! anything else that is: from layer to layer of a network, bounds would leave what they bound far behind.
//!
//! As with [`Kind::AmaxExponent`](crate::Kind::AmaxExponent), only numbers that are finite are spoken of.

use crate::lower::scaled_fp16::scale::{MAX_SCALE_TERMS, Pow2Scale, ScaleTerm};

/// Most arrays whose largest elements are multiplied in a term.
const MAX_TERM_FACTORS: usize = 4;

/// What the numbers of an array are not beyond. At least one of the first two is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// They are at most this. It may say little: they may all be far smaller.
    ceiling: Option<f64>,
    /// They are at most the sum of these, and as a rule the largest is not far below it.
    terms: Option<Vec<BoundTerm>>,
    /// The sum holds one of many products.
    loose: bool,
}

/// A number times twice the [`Kind::AmaxExponent`](crate::Kind::AmaxExponent) of these nodes, in the order of their numbers.
#[derive(Clone, Debug, PartialEq)]
struct BoundTerm {
    coefficient: f64,
    nodes: Vec<usize>,
}

impl Bound {
    /// Of the node with this number, by its own elements.
    pub fn of(node: usize) -> Self {
        Bound { ceiling: None, terms: Some(vec![BoundTerm { coefficient: 1.0, nodes: vec![node] }]), loose: false }
    }

    /// Of numbers the largest of which is about this.
    pub fn about(value: f64) -> Self {
        let finite = if value.is_finite() { value.abs() } else { 0.0 };
        let terms = vec![BoundTerm { coefficient: finite, nodes: vec![] }];
        Bound { ceiling: Some(finite), terms: Some(terms), loose: false }
    }

    /// Of numbers that are at most this, and may all be far smaller.
    pub fn ceiling(value: f64) -> Self {
        Bound { ceiling: Some(value), terms: None, loose: false }
    }

    /// Of the numbers times this one.
    pub fn scaled(mut self, by: f64) -> Self {
        self.ceiling = self.ceiling.map(|ceiling| ceiling * by.abs());
        self.terms.iter_mut().flatten().for_each(|term| term.coefficient *= by.abs());
        self
    }

    /// Of sums, of differences, or of either of the two.
    pub fn plus(&self, other: &Bound) -> Option<Self> {
        let ceiling = self.ceiling.zip(other.ceiling).map(|(a, b)| a + b);
        let both = self.terms.as_ref().zip(other.terms.as_ref());
        let terms = both.and_then(|(a, b)| gathered(a.iter().chain(b).cloned()));
        Self::known(ceiling, terms, self.loose || other.loose)
    }

    /// Of products. Where one has a ceiling and the other has none, that is what its numbers are taken at.
    pub fn times(&self, other: &Bound) -> Option<Self> {
        let (ceiling, terms, loose) = match (self.ceiling, other.ceiling) {
            (Some(at), None) => (None, other.clone().scaled(at).terms, other.loose),
            (None, Some(at)) => (None, self.clone().scaled(at).terms, self.loose),
            (a, b) => {
                let both = self.terms.as_ref().zip(other.terms.as_ref()).filter(|_| !(self.loose && other.loose));
                let terms = both.and_then(|(a, b)| gathered(a.iter().flat_map(|a| b.iter().map(|b| a.times(b)))));
                (a.zip(b).map(|(a, b)| a * b), terms, self.loose || other.loose)
            }
        };
        Self::known(ceiling, terms, loose)
    }

    /// Of sums of so many products of elements of two arrays; `None` where either is loose.
    pub fn summed(&self, other: &Bound, count: usize) -> Option<Self> {
        let product = self.times(other).filter(|_| !self.loose && !other.loose)?;
        Some(Bound { loose: true, ..product.scaled(count as f64) })
    }

    fn known(ceiling: Option<f64>, terms: Option<Vec<BoundTerm>>, loose: bool) -> Option<Self> {
        (ceiling.is_some() || terms.is_some()).then_some(Bound { ceiling, terms, loose })
    }

    /// A power of two p such that all numbers are at most 2p, and the nodes whose largest are its factors. `None` where nothing says how large the
    /// largest may be expected to be.
    ///
    ///   Σₜ cₜ Π_f 2m_f ≤ 2p,   p = maxₜ 2^⌈log₂ n·cₜ⌉ · 2^(f−1) · Π_f m_f   for n terms of f factors each
    pub fn power(&self) -> Option<(Pow2Scale, Vec<usize>)> {
        let terms = self.terms.as_ref()?;
        let exponent = |value: f64| value.max(f64::MIN_POSITIVE).log2().ceil().clamp(-1e3, 1e3) as i16;
        let in_powers = |BoundTerm { coefficient, nodes }: &BoundTerm| ScaleTerm {
            shift: exponent(coefficient * terms.len() as f64) + nodes.len() as i16 - 1,
            factors: nodes.len(),
        };
        let power = Pow2Scale::new(&terms.iter().map(in_powers).collect::<Vec<_>>())?;
        Some((power, terms.iter().flat_map(|term| term.nodes.clone()).collect()))
    }
}

impl BoundTerm {
    fn times(&self, other: &BoundTerm) -> BoundTerm {
        let mut nodes = [&self.nodes[..], &other.nodes].concat();
        nodes.sort_unstable();
        BoundTerm { coefficient: self.coefficient * other.coefficient, nodes }
    }
}

/// The terms of a sum, those of the same nodes as one; `None` where too many are left, or of too many nodes.
fn gathered(terms: impl Iterator<Item = BoundTerm>) -> Option<Vec<BoundTerm>> {
    let mut all: Vec<BoundTerm> = vec![];
    for term in terms.filter(|term| term.coefficient != 0.0) {
        match all.iter_mut().find(|other| other.nodes == term.nodes) {
            Some(same) => same.coefficient += term.coefficient,
            None => all.push(term),
        }
    }
    (all.len() <= MAX_SCALE_TERMS && all.iter().all(|term| term.nodes.len() <= MAX_TERM_FACTORS)).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exponent of the power of a bound, where those of nodes are their numbers.
    fn exponent(bound: &Bound) -> Option<i32> {
        let (power, nodes) = bound.power()?;
        Some(power.exponent(&nodes.iter().map(|&node| node as i32).collect::<Vec<_>>()))
    }

    #[test]
    fn the_bound_of_an_array_by_its_own_elements_is_its_largest() {
        let (power, nodes) = Bound::of(7).power().unwrap();
        assert_eq!((power, nodes), (Pow2Scale::AMAX, vec![7]));
        // A power is half of the next one, which bounds everything below.
        assert_eq!([1.0, 2.0, 2.1].map(|value| exponent(&Bound::about(value))), [-1, 0, 1].map(Some));
        assert_eq!(exponent(&Bound::about(f64::INFINITY).plus(&Bound::of(3)).unwrap()), Some(3));
    }

    #[test]
    fn sums_and_products_of_bounds_bound_sums_and_products() {
        let (a, b) = (Bound::of(5), Bound::of(3));
        assert_eq!(exponent(&a.plus(&b).unwrap()), Some(6), "2·2⁶");
        assert_eq!(exponent(&a.plus(&a).unwrap()), Some(6), "of one term");
        assert_eq!(exponent(&a.times(&b).unwrap().scaled(0.25)), Some(7), "2⁶·2⁴/4 = 2·2⁷");
        assert_eq!(exponent(&a.summed(&b, 16).unwrap()), Some(13));
        assert_eq!(exponent(&a.times(&Bound::ceiling(2.0)).unwrap()), Some(6));
    }

    #[test]
    fn what_is_loose_is_not_multiplied_by_anything_else_that_is() {
        let (a, b) = (Bound::of(5), Bound::of(3));
        let loose = a.summed(&b, 16).unwrap();
        assert_eq!((loose.times(&loose), loose.summed(&a, 16)), (None, None));
        assert!(loose.plus(&loose).is_some() && loose.times(&a).is_some());
    }

    #[test]
    fn of_numbers_that_may_all_be_small_only_products_with_others_are_bounded() {
        let range = Bound::ceiling(1.0);
        assert_eq!(exponent(&range.plus(&Bound::about(1.0)).unwrap()), None);
        let raised = range.plus(&Bound::about(1.0)).unwrap().scaled(0.5);
        assert_eq!(exponent(&Bound::of(4).times(&raised).unwrap()), Some(4));
    }

    #[test]
    fn a_sum_of_too_many_terms_is_not_bounded() {
        let sum = |count: usize| (2..=count).try_fold(Bound::of(1), |sum, node| sum.plus(&Bound::of(node)));
        assert!(sum(MAX_SCALE_TERMS).is_some() && sum(MAX_SCALE_TERMS + 1).is_none());
    }
}
