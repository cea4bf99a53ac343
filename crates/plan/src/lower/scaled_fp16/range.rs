//! Upper bounds of the magnitude of an array's elements, in terms of the amax of others.
//!
//!   |x| ≤ Σₜ cₜ · Π_f 2·m_f,   m_f = 2^⌊log₂ max |f|⌋ of some arrays f
//!
//! A sum is bounded by the sum of its terms' bounds, a product by the product, and a sum of k products of elements of A
//! and B by k·max |A|·max |B|. The last bound is usually far above the actual values, so it is *loose*. Two loose
//! bounds are never multiplied, because from layer to layer of a network the bound would grow without limit.
//!
//! As for [`Kind::AmaxExponent`](crate::Kind::AmaxExponent), bounds apply to finite numbers only.

use crate::lower::scaled_fp16::scale::{MAX_SCALE_TERMS, Pow2Scale, ScaleTerm};

/// The maximum number of amax factors of a term: a kernel adds that many exponents.
const MAX_TERM_FACTORS: usize = 4;

/// An upper bound of magnitudes. At least one of the first two fields is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// A constant bound. The actual values may all be far smaller.
    ceiling: Option<f64>,
    /// A sum of terms that bounds the values, usually not far above the amax.
    terms: Option<Vec<BoundTerm>>,
    /// Whether the sum contains a bound of a contraction.
    loose: bool,
}

/// A coefficient times twice the [`Kind::AmaxExponent`](crate::Kind::AmaxExponent) of each of these nodes, in ascending
/// order.
#[derive(Clone, Debug, PartialEq)]
struct BoundTerm {
    coefficient: f64,
    nodes: Vec<usize>,
}

impl Bound {
    /// Returns the bound of a node by its own amax.
    pub fn of(node: usize) -> Self {
        Bound { ceiling: None, terms: Some(vec![BoundTerm { coefficient: 1.0, nodes: vec![node] }]), loose: false }
    }

    /// Returns the bound of numbers whose amax is about this value.
    pub fn about(value: f64) -> Self {
        let finite = if value.is_finite() { value.abs() } else { 0.0 };
        let terms = vec![BoundTerm { coefficient: finite, nodes: vec![] }];
        Bound { ceiling: Some(finite), terms: Some(terms), loose: false }
    }

    /// Returns a constant bound of numbers that may all be far smaller.
    pub fn ceiling(value: f64) -> Self {
        Bound { ceiling: Some(value), terms: None, loose: false }
    }

    /// Returns the bound of the numbers times a constant.
    pub fn scaled(mut self, by: f64) -> Self {
        self.ceiling = self.ceiling.map(|ceiling| ceiling * by.abs());
        self.terms.iter_mut().flatten().for_each(|term| term.coefficient *= by.abs());
        self
    }

    /// Returns the bound of sums, differences, maxima or minima.
    pub fn plus(&self, other: &Bound) -> Option<Self> {
        let ceiling = self.ceiling.zip(other.ceiling).map(|(a, b)| a + b);
        let both = self.terms.as_ref().zip(other.terms.as_ref());
        let terms = both.and_then(|(a, b)| gathered(a.iter().chain(b).cloned()));
        Self::known(ceiling, terms, self.loose || other.loose)
    }

    /// Returns the bound of products. If only one factor has a constant bound, that constant scales the other.
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

    /// Returns the bound of contractions of this length; `None` if either bound is loose.
    pub fn summed(&self, other: &Bound, count: usize) -> Option<Self> {
        let product = self.times(other).filter(|_| !self.loose && !other.loose)?;
        Some(Bound { loose: true, ..product.scaled(count as f64) })
    }

    fn known(ceiling: Option<f64>, terms: Option<Vec<BoundTerm>>, loose: bool) -> Option<Self> {
        (ceiling.is_some() || terms.is_some()).then_some(Bound { ceiling, terms, loose })
    }

    /// Returns a power of two p such that all numbers are at most 2p, and the nodes whose amax exponents are its
    /// factors. `None` if the expected amax is unknown.
    ///
    ///   Σₜ cₜ Π_f 2m_f ≤ 2p,   p = maxₜ 2^⌈log₂ n·cₜ⌉ · 2^(f−1) · Π_f m_f   for n terms of f factors each
    pub fn scale(&self) -> Option<(Pow2Scale, Vec<usize>)> {
        let terms = self.terms.as_ref()?;
        let exponent = |value: f64| value.max(f64::MIN_POSITIVE).log2().ceil().clamp(-1e3, 1e3) as i16;
        let in_powers = |BoundTerm { coefficient, nodes }: &BoundTerm| ScaleTerm {
            shift: exponent(coefficient * terms.len() as f64) + nodes.len() as i16 - 1,
            factors: nodes.len(),
        };
        let scale = Pow2Scale::new(&terms.iter().map(in_powers).collect::<Vec<_>>())?;
        Some((scale, terms.iter().flat_map(|term| term.nodes.clone()).collect()))
    }
}

impl BoundTerm {
    fn times(&self, other: &BoundTerm) -> BoundTerm {
        let mut nodes = [&self.nodes[..], &other.nodes].concat();
        nodes.sort_unstable();
        BoundTerm { coefficient: self.coefficient * other.coefficient, nodes }
    }
}

/// Merges terms with the same nodes; `None` if too many terms or factors remain.
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

    /// Returns the exponent of a bound's scale if the exponent of each node is its number.
    fn exponent(bound: &Bound) -> Option<i32> {
        let (scale, nodes) = bound.scale()?;
        Some(scale.exponent(&nodes.iter().map(|&node| node as i32).collect::<Vec<_>>()))
    }

    #[test]
    fn the_bound_of_an_array_by_its_own_elements_is_its_largest() {
        let (scale, nodes) = Bound::of(7).scale().unwrap();
        assert_eq!((scale, nodes), (Pow2Scale::AMAX, vec![7]));
        // A scale is half of the power of two that bounds the values.
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
    fn loose_bounds_are_not_multiplied_with_each_other() {
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
