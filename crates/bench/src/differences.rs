//! How far two results are apart.

use bilevel_graph::Array;

/// Loss, gradient and Hessian-vector product of one case.
pub struct Products {
    /// The loss.
    pub loss: Array,
    /// One array per parameter.
    pub gradient: Vec<Array>,
    /// One array per parameter.
    pub product: Vec<Array>,
}

/// The largest relative difference of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Differences {
    /// The difference of the loss.
    pub loss: f64,
    /// The difference of the gradient, the worst over parameters.
    pub gradient: f64,
    /// The difference of the Hessian-vector product, the worst over parameters.
    pub product: f64,
}

impl Differences {
    /// The differences of `found` from `expected`.
    pub fn between(found: &Products, expected: &Products) -> Self {
        Differences {
            loss: relative_difference(&found.loss, &expected.loss),
            gradient: worst(&found.gradient, &expected.gradient),
            product: worst(&found.product, &expected.product),
        }
    }

    /// All three with their names.
    pub fn named(self) -> [(&'static str, f64); 3] {
        [("loss", self.loss), ("gradient", self.gradient), ("hvp", self.product)]
    }
}

fn worst(found: &[Array], expected: &[Array]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    found.iter().zip(expected).map(|(a, b)| relative_difference(a, b)).fold(0.0, f64::max)
}

/// max |a − b| / max |b|; infinite if shapes differ or a number is not finite, 0 if both are all zeros.
pub fn relative_difference(a: &Array, b: &Array) -> f64 {
    if a.shape() != b.shape() {
        return f64::INFINITY;
    }
    let (mut apart, mut size) = (0.0f64, 0.0f64);
    for (a, b) in a.to_f64().into_iter().zip(b.to_f64()) {
        if !(a.is_finite() && b.is_finite()) {
            return f64::INFINITY;
        }
        apart = apart.max((a - b).abs());
        size = size.max(b.abs());
    }
    if apart == 0.0 { 0.0 } else { apart / size }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(values: &[f64]) -> Array {
        Array::from_f64([values.len()], values.to_vec()).unwrap()
    }

    #[test]
    fn the_difference_is_relative_to_the_largest_element() {
        assert_eq!(relative_difference(&array(&[1.0, 4.5]), &array(&[1.25, 4.0])), 0.125);
        assert_eq!(relative_difference(&array(&[0.0]), &array(&[0.0])), 0.0);
        assert_eq!(relative_difference(&array(&[1.0]), &array(&[0.0])), f64::INFINITY);
        assert_eq!(relative_difference(&array(&[f64::NAN]), &array(&[f64::NAN])), f64::INFINITY);
        assert_eq!(relative_difference(&array(&[1.0]), &array(&[1.0, 2.0])), f64::INFINITY);
    }

    #[test]
    fn the_worst_parameter_counts() {
        let products = |g: f64| Products {
            loss: array(&[1.0]),
            gradient: vec![array(&[1.0]), array(&[g])],
            product: vec![array(&[2.0])],
        };
        let apart = Differences::between(&products(1.5), &products(1.0));
        assert_eq!(apart, Differences { loss: 0.0, gradient: 0.5, product: 0.0 });
    }
}
