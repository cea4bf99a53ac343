//! From values to places: a range that holds the data, linear or logarithmic, and the map from it to the page.

/// Values beyond this are drawn at it, so that no difference overflows.
const HUGE: f64 = 1e300;

/// An interval of values, kept as logarithms (base 10) on a logarithmic axis. Never empty, always finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub low: f64,
    pub high: f64,
    pub log: bool,
}

impl Range {
    /// The least range that holds all values that can be drawn, with `margin` (a part of its length) on both sides.
    /// `None` if no value can be drawn.
    pub fn of(values: impl Iterator<Item = f64>, log: bool, margin: f64) -> Option<Range> {
        let drawn = values.filter_map(|v| transform(v, log));
        let (low, high) = drawn.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            return None;
        }
        let size = low.abs().max(high.abs());
        // Values that differ by less than ticks can tell apart are equal.
        if high - low <= 1e-10 * size || high - low < 1e-290 {
            let room = if log { 0.5 } else { 0.1 * size };
            let room = if room > 1e-290 { room } else { 1.0 };
            return Some(Range { low: low - room, high: high + room, log });
        }
        let room = margin * (high - low);
        // Values near zero, but not below it, have an axis from zero.
        let one_sign = low >= 0.0 || high <= 0.0;
        let end = |bound: f64, moved: f64| if !log && one_sign && bound.abs() < 0.2 * size { 0.0 } else { moved };
        Some(Range { low: end(low, low - room), high: end(high, high + room), log })
    }

    /// How far along the range a value is, from 0 to 1. `None` if it cannot be drawn.
    pub fn part(&self, value: f64) -> Option<f64> {
        Some(((transform(value, self.log)? - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }

    /// The same for the edge of a band: values that are infinite, or too low for a logarithmic axis, are moved to an
    /// end.
    pub fn part_or_end(&self, value: f64) -> Option<f64> {
        match value {
            v if v.is_nan() => None,
            v if v == f64::INFINITY => Some(1.0),
            v if v == f64::NEG_INFINITY || (self.log && v <= 0.0) => Some(0.0),
            v => self.part(v),
        }
    }
}

fn transform(value: f64, log: bool) -> Option<f64> {
    if !value.is_finite() || (log && value <= 0.0) {
        None
    } else if log {
        Some(value.log10())
    } else {
        Some(value.clamp(-HUGE, HUGE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    #[test]
    fn nothing_to_draw_has_no_range() {
        assert_eq!(Range::of([].into_iter(), false, 0.1), None);
        assert_eq!(Range::of([f64::NAN, f64::INFINITY].into_iter(), false, 0.1), None);
        assert_eq!(Range::of([0.0, -1.0].into_iter(), true, 0.1), None);
    }

    #[test]
    fn losses_get_an_axis_from_zero() {
        let range = |values: [f64; 2]| Range::of(values.into_iter(), false, 0.1).unwrap();
        assert_eq!(range([0.01, 1.0]).low, 0.0);
        assert_eq!(range([0.0, 1.0]).low, 0.0);
        assert_eq!(range([-1.0, -0.01]).high, 0.0);
        assert!(range([-0.01, 1.0]).low < -0.01);
        assert!(range([0.5, 1.0]).low > 0.0);
        // So small that their product is zero.
        assert!(range([0.0, 3e-249]).high > 3e-249);
        assert!(range([-3e-249, 3e-249]).low < -3e-249);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(7),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_values_have_a_finite_range_that_holds_them(values: Vec<f64>, log: bool, margin in 0.0..0.2) {
            if let Some(range) = Range::of(values.iter().copied(), log, margin) {
                prop_assert!(range.low < range.high && (range.high - range.low).is_finite(), "{range:?}");
                for value in values {
                    if let Some(part) = range.part(value) {
                        prop_assert!((0.0..=1.0).contains(&part));
                    }
                }
            }
        }
    }
}
