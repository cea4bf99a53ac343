//! Ticks at round numbers.

use crate::axis::scale::Range;
use crate::number::{Label, exponent, fixed, minus};

/// The marks of an axis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticks {
    /// Values with their labels.
    pub major: Vec<(f64, Label)>,
    /// Values between them that get a small mark: 2 to 9 times a power of ten.
    pub minor: Vec<f64>,
}

/// About `wanted` ticks and never many more, for a range as [`Range`] keeps it.
pub(crate) fn ticks(range: &Range, wanted: usize) -> Ticks {
    let wanted = wanted.max(2);
    if !range.log {
        return Ticks { major: linear(range.low, range.high, wanted), minor: Vec::new() };
    }
    let (first, last) = (range.low.ceil() as i32, range.high.floor() as i32);
    let decades = (last - first + 1).max(0) as usize;
    if decades >= 2 {
        let stride = decades.div_ceil(wanted + 1).max(1);
        // Short axes around 1 read better without powers.
        let plain = first >= -3 && last <= 4;
        let label = |e: i32| match plain {
            true => Label::plain(fixed(power(e), (-e).max(0) as usize)),
            false => Label::power(None, e),
        };
        let major = (first..=last).filter(|e| e.rem_euclid(stride as i32) == 0).map(|e| (power(e), label(e))).collect();
        return Ticks { major, minor: minor(range, stride) };
    }
    let between: Vec<_> = decade_steps(range, &[1, 2, 5]).collect();
    if between.len() >= 2 {
        let major = between.into_iter().map(|(m, e)| (m as f64 * power(e), small(m, e))).collect();
        return Ticks { major, minor: minor(range, 1) };
    }
    // Less than a factor of about two: a logarithmic axis is nearly a linear one.
    let (low, high) = (10f64.powf(range.low), 10f64.powf(range.high));
    let usable = low > 1e-290 && high < 1e290;
    Ticks { major: if usable { linear(low, high, wanted) } else { Vec::new() }, minor: Vec::new() }
}

fn power(e: i32) -> f64 {
    // Parsing is exact, while a product of tens is not.
    format!("1e{e}").parse().unwrap_or(f64::NAN)
}

fn minor(range: &Range, stride: usize) -> Vec<f64> {
    if stride > 1 || range.high - range.low > 8.0 {
        return Vec::new();
    }
    decade_steps(range, &[2, 3, 4, 5, 6, 7, 8, 9]).map(|(m, e)| m as f64 * power(e)).collect()
}

/// All m·10^e in a logarithmic range.
fn decade_steps<'a>(range: &'a Range, mantissas: &'a [u32]) -> impl Iterator<Item = (u32, i32)> + 'a {
    let decades = range.low.floor() as i32..=range.high.floor() as i32;
    decades
        .flat_map(move |e| mantissas.iter().map(move |&m| (m, e)))
        .filter(|&(m, e)| (range.low..=range.high).contains(&(f64::from(m).log10() + f64::from(e))))
}

fn small(mantissa: u32, e: i32) -> Label {
    match (-4..6).contains(&e) {
        true => Label::plain(fixed(f64::from(mantissa) * power(e), (-e).max(0) as usize)),
        false => Label::power(Some(mantissa.to_string()), e),
    }
}

/// Multiples of 1, 2, 2.5 or 5 times a power of ten, the step that gives a few more than wanted rather than far fewer.
fn linear(low: f64, high: f64, wanted: usize) -> Vec<(f64, Label)> {
    let raw = (high - low) / wanted as f64;
    let e = exponent(raw);
    // A step as its digits and its exponent, so that decimals are counted and not measured.
    let steps = [(1.0, 0), (2.0, 0), (2.5, 1), (5.0, 0), (10.0, -1)];
    let (mantissa, digits) = steps.into_iter().find(|(m, _)| m * power(e) >= 0.75 * raw).unwrap_or((10.0, -1));
    let step = mantissa * power(e);
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    if !step.is_normal() || !(last - first).is_finite() || last - first > 4.0 * wanted as f64 {
        return Vec::new();
    }
    let values: Vec<f64> = (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect();
    let largest = values.iter().fold(0f64, |m, v| m.max(v.abs()));
    let (top, decimals) = (exponent(largest), digits - e);
    let in_powers = (top - e + digits).max(0);
    let powers = largest > 0.0 && !(-3..6).contains(&top) && (in_powers <= 4 || top >= 15 || decimals > 12);
    let label = |v: f64| match powers {
        _ if v == 0.0 => Label::plain("0"),
        true => {
            let mantissa = format!("{:.*}", in_powers as usize, v / power(top));
            Label::power(Some(minus(mantissa)), top)
        }
        false => Label::plain(fixed(v, decimals.max(0) as usize)),
    };
    values.iter().map(|&v| (v, label(v))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    fn texts(low: f64, high: f64, log: bool, wanted: usize) -> Vec<String> {
        let show = |label: Label| label.exponent.map_or(label.text.clone(), |e| format!("{}^{e}", label.text));
        ticks(&Range { low, high, log }, wanted).major.into_iter().map(|(_, label)| show(label)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(texts(0.0, 1.0, false, 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(-3.0, 7.0, false, 3), ["−2.5", "0", "2.5", "5.0"]);
        assert_eq!(texts(0.0, 10_000.0, false, 2), ["0", "5,000", "10,000"]);
        assert_eq!(texts(0.0, 3e-8, false, 3), ["0", "1×10^−8", "2×10^−8", "3×10^−8"]);
        assert_eq!(texts(-2.0, 2.0, true, 5), ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(texts(-9.0, 0.0, true, 4), ["10^−8", "10^−6", "10^−4", "10^−2", "10^0"]);
        assert_eq!(texts(0.0, 0.8, true, 5), ["1", "2", "5"]);
        assert_eq!(texts(0.31, 0.32, true, 3), ["2.06", "2.08"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(7),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn any_range_has_few_ticks_inside_it_with_different_labels(
            a in -1e3..1e3f64, size in 1e-6..1e3f64, e in -280..280i32, log: bool, wanted in 2usize..12,
        ) {
            let (low, high) = if log { (a / 8.0, (a + size) / 8.0) } else { (a * power(e), (a + size) * power(e)) };
            let range = Range { low, high, log };
            let Ticks { major, minor } = ticks(&range, wanted);
            prop_assert!(major.len() <= 2 * wanted + 2, "{} ticks for {wanted}", major.len());
            prop_assert!(log || !major.is_empty(), "no ticks");
            for value in major.iter().map(|m| m.0).chain(minor) {
                prop_assert!(range.part(value).is_some());
                let place = if log { value.log10() } else { value };
                let room = 1e-6 * (high - low);
                prop_assert!(place >= low - room && place <= high + room, "{value} is outside {range:?}");
            }
            for pair in major.windows(2) {
                prop_assert_ne!(&pair[0].1, &pair[1].1);
            }
        }
    }
}
