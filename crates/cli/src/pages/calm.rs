//! Long, noisy curves made readable: the median of each stretch, and how far the values around it spread.

/// A curve and its band.
pub type Calm = (Vec<(f64, f64)>, Vec<(f64, f64)>);

/// Stretches a noisy curve is cut into.
const STRETCHES: usize = 80;
/// A curve is noisy if its total variation is this many times its range.
const NOISY: f64 = 20.0;

fn size(points: &[(f64, f64)]) -> usize {
    points.len().div_ceil(STRETCHES)
}

/// Returns true if a curve is so long and noisy that it would be a smear.
pub fn is_noisy(points: &[(f64, f64)], log: bool) -> bool {
    let height = |y: f64| if log { y.ln() } else { y };
    let heights: Vec<f64> = points.iter().map(|point| height(point.1)).filter(|y| y.is_finite()).collect();
    let path: f64 = heights.windows(2).map(|two| (two[1] - two[0]).abs()).sum();
    let highest = heights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lowest = heights.iter().copied().fold(f64::INFINITY, f64::min);
    size(points) >= 3 && path.is_finite() && path > NOISY * (highest - lowest)
}

/// The curve by stretches, with the middle 80 % of their values; `None` if it is too short for that.
pub fn calm(points: &[(f64, f64)]) -> Option<Calm> {
    let stretch = |part: &[(f64, f64)]| {
        let mut values: Vec<f64> = part.iter().map(|point| point.1).filter(|y| y.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values.get((share * (values.len().max(1) - 1) as f64).round() as usize).copied();
        let middle = 0.5 * (part.first()?.0 + part.last()?.0);
        Some(((middle, at(0.5)?), (at(0.1)?, at(0.9)?)))
    };
    (size(points) >= 3).then(|| points.chunks(size(points)).filter_map(stretch).unzip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noisy_curve_becomes_its_median_and_a_smooth_one_stays() {
        let noisy: Vec<(f64, f64)> = (0..1600).map(|i| (f64::from(i), f64::from((i * 7919) % 1000))).collect();
        let (points, band) = calm(&noisy).unwrap();
        assert_eq!((points.len(), band.len()), (80, 80));
        assert!(points.iter().zip(&band).all(|(point, (low, high))| low <= &point.1 && &point.1 <= high));
        assert!(is_noisy(&noisy, false) && !is_noisy(&noisy[..100], false) && calm(&noisy[..100]).is_none());
        let smooth: Vec<(f64, f64)> = (1..1600).map(|i| (f64::from(i), 1.0 / f64::from(i))).collect();
        assert!(!is_noisy(&smooth, true) && !is_noisy(&[(1.0, 2.0); 1000], false));
        assert!(!is_noisy(&[], false) && calm(&[]).is_none());
    }
}
