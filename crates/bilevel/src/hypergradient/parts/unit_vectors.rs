//! Unit vectors in the shapes of λ or θ, by the number of their 1, and numbers drawn without repetition.

use crate::compiled::purpose::Purpose;
use crate::hypergradient::vocabulary::*;
use bilevel_graph::random::fill_uniform_f64;
use std::collections::HashMap;

/// The vector in the shapes of these leaves whose 1 has this number, an i32 scalar, counted through all leaves.
pub(crate) fn unit(graph: &Graph, like: &[Tensor], number: Tensor) -> Vec<Tensor> {
    let mut before = 0.0;
    let mut one = |leaf: &Tensor| {
        let place = graph.iota([leaf.len()], 0, DType::I32) + before;
        before += leaf.len() as f64;
        place.equal(number).convert(leaf.dtype()).reshape(leaf.shape())
    };
    like.iter().map(&mut one).collect()
}

/// The first `count` numbers of a random order of `0..total`: an exchange each, without the order ever being written down.
pub(crate) fn distinct(key: Key, purpose: Purpose, total: usize, count: usize) -> Vec<usize> {
    let mut drawn = vec![0.0; count];
    fill_uniform_f64(key.words(), 0, purpose.stream(), 0, &mut drawn);
    let mut exchanged = HashMap::new();
    let mut pick = |(place, uniform): (usize, f64)| {
        let other = place + (uniform * (total - place) as f64) as usize;
        let found = exchanged.get(&other).copied().unwrap_or(other);
        let here = exchanged.get(&place).copied().unwrap_or(place);
        exchanged.insert(other, here);
        found
    };
    drawn.into_iter().enumerate().map(&mut pick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_drawn_without_repetition_are_all_there_and_equally_likely_to_come_first() {
        let mut first = [0; 6];
        for seed in 0..6000 {
            let mut order = distinct(Key::from_seed(seed), Purpose::Columns, 6, 6);
            first[order[0]] += 1;
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4, 5]);
        }
        // A thousand each, give or take four standard deviations.
        assert!(first.iter().all(|count| (count - 1000i32).abs() < 4 * 29), "{first:?}");
        assert_eq!(distinct(Key::from_seed(1), Purpose::Columns, 1_000_000_000, 3).len(), 3);
    }
}
