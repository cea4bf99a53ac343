//! Numbers for people: few digits, a true minus sign, powers of ten if plain digits would be long.

/// A number as it is drawn: text, and a power of ten's exponent to be raised after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Label {
    pub text: String,
    pub exponent: Option<String>,
}

impl Label {
    /// Without an exponent.
    pub fn plain(text: impl Into<String>) -> Label {
        Label { text: text.into(), exponent: None }
    }

    /// `text` and then 10 to this power.
    pub fn power(mantissa: Option<String>, exponent: i32) -> Label {
        let text = mantissa.map_or("10".to_string(), |m| format!("{m}×10"));
        Label { text, exponent: Some(minus(exponent.to_string())) }
    }
}

/// With a minus sign as wide as a plus sign.
pub(crate) fn minus(text: String) -> String {
    text.replace('-', "−")
}

/// The exponent e with 10^e ≤ |value| < 10^(e+1); 0 for numbers without one.
pub(crate) fn exponent(value: f64) -> i32 {
    if value == 0.0 || !value.is_finite() {
        return 0;
    }
    // Printing is exact, while log10 may round up to the next power.
    format!("{:e}", value.abs()).split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0)
}

/// With this many decimals and a comma between thousands.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    if value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('−');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// To four significant digits, in plain digits if that is short: for colour bars and read-outs.
pub(crate) fn short(value: f64) -> Label {
    if !value.is_finite() {
        return Label::plain(if value.is_nan() { "not a number" } else { ["∞", "−∞"][usize::from(value < 0.0)] });
    }
    let e = exponent(value);
    if value == 0.0 || (-4..6).contains(&e) {
        let text = fixed(value, (3 - e).max(0) as usize);
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        return Label::plain(text);
    }
    let printed = format!("{value:.3e}");
    let (mantissa, e) = printed.split_once('e').unwrap_or((&printed, "0"));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.').to_string();
    Label::power(Some(minus(mantissa)), e.parse().unwrap_or(0))
}

/// To five significant digits, with a power of ten if plain digits would be long, for tables and sentences.
///
/// ```
/// use bilevel_report::number;
/// assert_eq!([0.234567, -1234.5678, 1.5e-7].map(number), ["0.23457", "−1,234.6", "1.500×10⁻⁷"]);
/// assert_eq!([f64::NAN, f64::NEG_INFINITY].map(number), ["–", "−∞"]);
/// ```
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "–" } else { ["∞", "−∞"][usize::from(value < 0.0)] }.into();
    }
    let e = exponent(value);
    if value == 0.0 {
        return "0".into();
    }
    if (-3..6).contains(&e) {
        return fixed(value, (4 - e).max(0) as usize);
    }
    let printed = format!("{value:.3e}");
    let (mantissa, power) = printed.split_once('e').unwrap_or((&printed, "0"));
    let raised = |c: char| match c.to_digit(10) {
        Some(digit) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize],
        None => '⁻',
    };
    minus(format!("{mantissa}×10{}", power.chars().map(raised).collect::<String>()))
}

/// A whole number with a comma between thousands.
///
/// ```
/// assert_eq!(bilevel_report::count(1234567.0), "1,234,567");
/// ```
pub fn count(value: f64) -> String {
    fixed(value, 0)
}

/// As a JSON number of six significant digits, or `null`.
pub(crate) fn json(value: f64) -> String {
    if !value.is_finite() {
        return "null".to_string();
    }
    let plain = format!("{value}");
    if plain.len() <= 8 {
        return plain;
    }
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    let (a, b) = (format!("{rounded}"), format!("{rounded:e}"));
    if a.len() <= b.len() { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(fixed(-1234567.891, 1), "−1,234,567.9");
        assert_eq!(fixed(-0.001, 1), "0.0");
        assert_eq!(short(0.12345).text, "0.1235");
        assert_eq!(short(1500.0).text, "1,500");
        assert_eq!(short(-2.5e-9), Label { text: "−2.5×10".into(), exponent: Some("−9".into()) });
        assert_eq!(short(f64::NEG_INFINITY).text, "−∞");
        assert_eq!(json(1.0 / 3.0), "0.333333");
        assert_eq!(json(1.0e-20 / 3.0), "3.33333e-21");
        assert_eq!(json(f64::NAN), "null");
        assert_eq!((exponent(1000.0), exponent(999.9), exponent(1e-5), exponent(0.0)), (3, 2, -5, 0));
    }
}
