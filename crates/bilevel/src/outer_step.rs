//! One step of λ: clip the hypergradient, ask the optimizer for a direction, move, project onto the bounds.

use crate::optimizer::Optimizer;
use crate::problem::Problem;
use crate::{Error, Result};
use bilevel_graph::{Array, DType, Data, DataMut};

/// The vectors an optimizer remembers: by slot, then by leaf of λ, in f64 whatever the problem's type.
pub(crate) type Slots = Vec<Vec<Array>>;

/// Slots before the first step.
pub(crate) fn zero_slots(optimizer: &dyn Optimizer, lambda: &[Array]) -> Slots {
    let zeros = || lambda.iter().map(|l| Array::zeros(l.shape(), DType::F64)).collect();
    optimizer.slots().iter().map(|_| zeros()).collect()
}

/// The Euclidean norm of all leaves together, without overflow on the way.
pub(crate) fn norm(arrays: &[Array]) -> f64 {
    let values: Vec<f64> = arrays.iter().flat_map(|a| a.to_f64()).collect();
    // `max` would pass over a NaN; the norm must not.
    let largest = values.iter().fold(0.0f64, |m, v| if v.is_nan() || m.is_nan() { f64::NAN } else { m.max(v.abs()) });
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    // The power of two below the largest: to scale by it rounds nothing.
    let scale = f64::from_bits(largest.to_bits() & f64::INFINITY.to_bits()).max(f64::MIN_POSITIVE);
    scale * values.iter().map(|v| (v / scale).powi(2)).sum::<f64>().sqrt()
}

/// ‖λ − project(λ − h)‖, which is ‖h‖ where λ has no bounds.
pub(crate) fn projected_norm(problem: &Problem, lambda: &[Array], h: &[Array], norm_of_h: f64) -> f64 {
    let free = (f64::NEG_INFINITY, f64::INFINITY);
    if problem.lambda.iter().all(|(_, variable)| variable.bounds() == free) {
        return norm_of_h;
    }
    let mut square = 0.0;
    for ((_, variable), (lambda, h)) in problem.lambda.iter().zip(lambda.iter().zip(h)) {
        let (low, high) = variable.bounds();
        let moved = |(l, h): (&f64, f64)| (l - (l - h).max(low).min(high)).powi(2);
        square += lambda.to_f64().iter().zip(h.to_f64()).map(moved).sum::<f64>();
    }
    square.sqrt()
}

pub(crate) fn all_finite(arrays: &[Array]) -> bool {
    arrays.iter().all(|a| match a.data() {
        Data::F32(v) => v.iter().all(|x| x.is_finite()),
        Data::F64(v) => v.iter().all(|x| x.is_finite()),
        Data::I32(_) => true,
    })
}

/// The nearest value of this type within the bounds: rounding to f32 does not step over them.
pub(crate) fn project(value: f64, (low, high): (f64, f64), dtype: DType) -> f64 {
    // `max` would turn a NaN into the bound and so hide it.
    let value = if value.is_nan() { value } else { value.max(low).min(high) };
    if dtype != DType::F32 {
        return value;
    }
    let rounded = value as f32;
    let rounded = if rounded as f64 > high { rounded.next_down() } else { rounded };
    if (rounded as f64) < low { rounded.next_up() as f64 } else { rounded as f64 }
}

/// What an outer step needs besides λ and the hypergradient.
pub(crate) struct OuterStep<'a> {
    pub problem: &'a Problem,
    pub optimizer: &'a dyn Optimizer,
    pub clip: Option<f64>,
    pub rate: f64,
    pub iteration: u32,
}

impl OuterStep<'_> {
    /// The next λ and how far it is from this one.
    pub fn take(
        &self,
        lambda: &[Array],
        gradient: &[Array],
        gradient_norm: f64,
        slots: &mut Slots,
    ) -> Result<(Vec<Array>, f64)> {
        if gradient.len() != lambda.len() || gradient.iter().zip(lambda).any(|(g, l)| g.shape() != l.shape()) {
            return Err(Error::Problem { reason: "the method's hypergradient does not have the shapes of λ".into() });
        }
        let scale = match self.clip {
            Some(limit) if gradient_norm > limit => limit / gradient_norm,
            _ => 1.0,
        };
        let (mut next, mut moved) = (vec![], vec![]);
        for (leaf, (array, (_, variable))) in lambda.iter().zip(&self.problem.lambda).enumerate() {
            let mut gradient = gradient[leaf].to_f64();
            if scale != 1.0 {
                gradient.iter_mut().for_each(|g| *g *= scale);
            }
            let mut views: Vec<&mut [f64]> = vec![];
            for slot in slots.iter_mut() {
                if let DataMut::F64(values) = slot[leaf].data_mut() {
                    views.push(values);
                }
            }
            let direction = self.optimizer.direction(&gradient, &mut views, self.iteration);
            let old = array.to_f64();
            let step = |(l, d): (&f64, f64)| project(l - self.rate * d, variable.bounds(), array.dtype());
            let new: Vec<f64> = old.iter().zip(direction).map(step).collect();
            let change: Vec<f64> = new.iter().zip(&old).map(|(n, o)| n - o).collect();
            next.push(Array::from_values(array.shape(), &new, array.dtype())?);
            moved.push(Array::from_f64(array.shape(), change)?);
        }
        Ok((next, norm(&moved)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_f32_stays_within_the_bounds() {
        for bound in [0.1, 0.3, 1.0 / 3.0, -0.7, 1e-30] {
            assert!(project(5.0, (f64::NEG_INFINITY, bound), DType::F32) <= bound);
            assert!(project(-5.0, (bound, f64::INFINITY), DType::F32) >= bound);
        }
    }

    #[test]
    fn a_norm_neither_overflows_nor_hides_a_nan() {
        let array = |v: Vec<f64>| [Array::from_f64([v.len()], v).unwrap()];
        assert_eq!(norm(&array(vec![3.0, 4.0])), 5.0);
        let huge = 2f64.powi(1000);
        assert_eq!(norm(&array(vec![3.0 * huge, 4.0 * huge])), 5.0 * huge);
        assert!(norm(&array(vec![1.0, f64::NAN, 2.0])).is_nan());
        assert_eq!(norm(&array(vec![f64::INFINITY, 1.0])), f64::INFINITY);
        assert_eq!(norm(&array(vec![0.0])), 0.0);
    }
}
