//! Central differences, extrapolated to step 0: derivatives of a function that can only be evaluated.

use crate::Result;

/// How many steps are tried at first, each half of the one before, and how many more if these meet a kink.
const LEVELS: usize = 9;
const MORE_LEVELS: usize = 9;
/// Differences that are known to this share need no smaller steps.
const SMOOTH: f64 = 1e-6;

/// A derivative by differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Difference {
    /// The derivative.
    pub value: f64,
    /// How far differences at the smallest steps are from those of a smooth function: the disagreement within Neville's
    /// table, or of the derivatives to the right and to the left.
    pub doubt: f64,
}

/// d f(t)/dt at t = 0 for a vector function of one number, each element by itself.
///
/// D(h) = (f(h) − f(−h))/2h = f′ + c₂h² + c₄h⁴ + … is taken at h, h/2, h/4, … and Neville's table cancels one power of h²
/// a column:
///
///   T\[i\]\[j\] = T\[i\]\[j−1\] + (T\[i\]\[j−1\] − T\[i−1\]\[j−1\])/(4ʲ − 1).
///
/// The answer is the entry that agrees best with its two neighbours. Large steps suffer from curvature and small ones
/// from rounding, so neither end is trusted; a kink that only the large steps reach spoils only their entries. A kink that
/// all of them reach is left behind by further halvings, unless it is at t = 0 itself: there
///
///   S(h) = (f(h) − 2f(0) + f(−h))/h = f″·h + …
///
/// does not fall with h, because the derivatives to the right and to the left differ by S.
pub(crate) fn derivative(mut f: impl FnMut(f64) -> Result<Vec<f64>>, step: f64) -> Result<Vec<Difference>> {
    let centre = f(0.0)?;
    let elements = centre.len();
    let (mut quotients, mut bends) = (vec![vec![]; elements], vec![vec![]; elements]);
    let mut found: Vec<Difference> = vec![];
    for (from, to) in [(0, LEVELS), (LEVELS, LEVELS + MORE_LEVELS)] {
        for level in from..to {
            let h = step / (1u32 << level) as f64;
            let (right, left) = (f(h)?, f(-h)?);
            for e in 0..elements {
                quotients[e].push((right[e] - left[e]) / (2.0 * h));
                bends[e].push(((right[e] - centre[e]) - (centre[e] - left[e])) / h);
            }
        }
        found = quotients.iter().zip(&bends).map(|(quotients, bends)| difference(quotients, bends)).collect();
        let largest = found.iter().fold(0.0, |m: f64, d| m.max(d.value.abs()));
        if found.iter().all(|d| d.doubt <= SMOOTH * d.value.abs().max(1e-3 * largest) || d.doubt.is_nan()) {
            break;
        }
    }
    Ok(found)
}

/// The derivative from central differences and S with halved steps.
fn difference(quotients: &[f64], bends: &[f64]) -> Difference {
    let (value, disagreement) = extrapolated(quotients);
    let [.., before, _, last] = bends else { return Difference { value, doubt: disagreement } };
    // Two halvings leave a quarter of the curvature's contribution.
    let bend = if last.abs() > 0.6 * before.abs() { last.abs() } else { 0.0 };
    Difference { value, doubt: disagreement.max(bend) }
}

/// The best entry of Neville's table over central differences with halved steps, and how far it is from its neighbours.
fn extrapolated(quotients: &[f64]) -> (f64, f64) {
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
    (best.1, best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smooth_function_is_differentiated_to_eleven_digits() {
        let f = |t: f64| Ok(vec![(0.7 + t).exp(), (0.7 + t).sin(), 1.0 / (0.7 + t)]);
        let found = derivative(f, 0.0625).unwrap();
        for (a, b) in found.iter().zip([0.7f64.exp(), 0.7f64.cos(), -1.0 / 0.49]) {
            assert!((a.value - b).abs() < 1e-11 * b.abs() && a.doubt < 1e-8 * b.abs(), "{a:?} {b}");
        }
    }

    #[test]
    fn a_kink_inside_the_first_steps_is_stepped_over() {
        let found = derivative(|t| Ok(vec![(0.02 + t).abs().powi(3) + (0.02 + t).abs()]), 0.0625).unwrap();
        assert!((found[0].value - (1.0 + 3.0 * 0.0004)).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_function_undefined_at_the_first_steps_is_differentiated_at_the_others() {
        let found = derivative(|t| Ok(vec![(0.01 + t).ln()]), 0.0625).unwrap();
        assert!((found[0].value - 100.0).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn a_kink_that_the_first_steps_all_reach_is_left_behind_by_smaller_ones() {
        // The derivative jumps at 1e-4, where the smallest of the first steps is 2.4e-4.
        let found = derivative(|t| Ok(vec![if t < 1e-4 { 3.0 * t } else { 5.0 + t }]), 0.0625).unwrap();
        assert!((found[0].value - 3.0).abs() < 1e-6 && found[0].doubt < 1e-5, "{found:?}");
    }

    #[test]
    fn a_kink_at_the_point_itself_is_in_doubt_however_well_central_differences_agree() {
        let found = derivative(|t| Ok(vec![t.abs(), t.max(0.0), t.abs() * t, if t > 0.0 { 1.0 } else { 0.0 }]), 0.0625);
        let found = found.unwrap();
        assert!(found[0].value == 0.0 && found[0].doubt > 1.0, "{found:?}");
        assert!(found[1].doubt > 0.5 && found[3].doubt > 1.0, "{found:?}");
        assert!(found[2].doubt < 1e-3, "the derivative of t·|t| is continuous: {found:?}");
    }
}
