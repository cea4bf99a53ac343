//! Central differences, extrapolated to step 0: derivatives of a function that can only be evaluated.

use crate::Result;

/// How many steps are tried, each half of the one before.
const LEVELS: usize = 9;

/// d f(t)/dt at t = 0 for a vector function of one number, each element by itself.
///
/// D(h) = (f(h) − f(−h))/2h = f′ + c₂h² + c₄h⁴ + … is taken at h, h/2, h/4, … and Neville's table cancels one power of h²
/// a column:
///
///   T\[i\]\[j\] = T\[i\]\[j−1\] + (T\[i\]\[j−1\] − T\[i−1\]\[j−1\])/(4ʲ − 1).
///
/// The answer is the entry that agrees best with its two neighbours. Large steps suffer from curvature and small ones
/// from rounding, so neither end is trusted; a kink that only the large steps reach spoils only their entries.
pub(crate) fn derivative(mut f: impl FnMut(f64) -> Result<Vec<f64>>, step: f64) -> Result<Vec<f64>> {
    let mut quotients = Vec::with_capacity(LEVELS);
    for level in 0..LEVELS {
        let h = step / (1u32 << level) as f64;
        let (right, left) = (f(h)?, f(-h)?);
        quotients.push(right.iter().zip(&left).map(|(r, l)| (r - l) / (2.0 * h)).collect::<Vec<f64>>());
    }
    let elements = quotients[0].len();
    Ok((0..elements).map(|e| extrapolated(&quotients.iter().map(|q| q[e]).collect::<Vec<_>>())).collect())
}

/// The best entry of Neville's table over central differences with halved steps.
fn extrapolated(quotients: &[f64]) -> f64 {
    let mut best = (f64::INFINITY, quotients[quotients.len() - 1]);
    let mut column = quotients.to_vec();
    let mut power = 1.0;
    for _ in 1..quotients.len() {
        power *= 4.0;
        let next: Vec<f64> = column.windows(2).map(|w| w[1] + (w[1] - w[0]) / (power - 1.0)).collect();
        for (value, w) in next.iter().zip(column.windows(2)) {
            let disagreement = (value - w[0]).abs().max((value - w[1]).abs());
            if disagreement < best.0 {
                best = (disagreement, *value);
            }
        }
        column = next;
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smooth_function_is_differentiated_to_eleven_digits() {
        let f = |t: f64| Ok(vec![(0.7 + t).exp(), (0.7 + t).sin(), 1.0 / (0.7 + t)]);
        let found = derivative(f, 0.0625).unwrap();
        for (a, b) in found.iter().zip([0.7f64.exp(), 0.7f64.cos(), -1.0 / 0.49]) {
            assert!((a - b).abs() < 1e-11 * b.abs(), "{a} {b}");
        }
    }

    #[test]
    fn a_kink_inside_the_first_steps_is_stepped_over() {
        let found = derivative(|t| Ok(vec![(0.02 + t).abs().powi(3) + (0.02 + t).abs()]), 0.0625).unwrap();
        assert!((found[0] - (1.0 + 3.0 * 0.0004)).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_function_undefined_at_the_first_steps_is_differentiated_at_the_others() {
        let found = derivative(|t| Ok(vec![(0.01 + t).ln()]), 0.0625).unwrap();
        assert!((found[0] - 100.0).abs() < 1e-4, "{found:?}");
    }
}
