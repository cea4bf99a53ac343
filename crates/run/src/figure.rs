//! Curves of a study as plots.

use bilevel_report::{Axis, Curve, Plot};

/// A curve: its name and its points.
pub type Series = (String, Vec<(f64, f64)>);

/// Curves of at most this many points get a dot at each.
const FEW: usize = 12;
/// An axis whose numbers are all positive and differ by this factor is logarithmic.
const WIDE: f64 = 50.0;
/// Unless they differ by so much that the least of them are rounding errors.
const ROUNDING: f64 = 1e20;

/// Curves in one plot; an axis that spans powers of ten is logarithmic. A series whose name ends in "data" is drawn as points.
///
/// ```
/// let plot = bilevel_run::figure("Errors", "T", "error", vec![("RMD".into(), vec![(50.0, 0.02), (100.0, 0.01)])]);
/// assert!(plot.curves[0].markers && !plot.y.log);
/// ```
pub fn figure(title: impl Into<String>, x: &str, y: &str, series: Vec<Series>) -> Plot {
    let axes = {
        let all = || series.iter().flat_map(|(_, points)| points);
        (axis(x, all().map(|(x, _)| *x)), axis(y, all().map(|(_, y)| *y)))
    };
    let curve = |(name, points): Series| {
        if name.ends_with("data") {
            // Points of data have no line between them: a gap after each.
            let apart = points.into_iter().flat_map(|point| [point, (f64::NAN, f64::NAN)]);
            return Curve::new(name, apart).with_markers();
        }
        let few = points.len() <= FEW;
        let curve = Curve::new(name, points);
        if few { curve.with_markers() } else { curve }
    };
    Plot { title: title.into(), x: axes.0, y: axes.1, curves: series.into_iter().map(curve).collect() }
}

fn axis(label: &str, values: impl Iterator<Item = f64>) -> Axis {
    let ends = |(low, high): (f64, f64), v: f64| (low.min(v), high.max(v));
    let (low, high) = values.filter(|v| v.is_finite()).fold((f64::INFINITY, f64::NEG_INFINITY), ends);
    if low > 0.0 && (WIDE..ROUNDING).contains(&(high / low)) { Axis::logarithmic(label) } else { Axis::linear(label) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_logarithmic_where_its_numbers_span_powers_of_ten() {
        assert!(axis("error", [1e-4, 1.0].into_iter()).log);
        assert!(!axis("error", [1.0, 2.0].into_iter()).log);
        assert!(!axis("error", [0.0, 1000.0].into_iter()).log);
        assert!(!axis("error", [1e-33, 1.0].into_iter()).log, "a rounding error is no power of ten");
        assert!(!axis("error", std::iter::empty()).log);
    }
}
