//! One measured case as a line of JSON, in the form the peers print.

use crate::timing::statistics::{Seconds, median};
use serde_json::Value;

/// Milliseconds or microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 10⁻³ s.
    Milliseconds,
    /// 10⁻⁶ s.
    Microseconds,
}

impl Unit {
    /// As the lines spell it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Milliseconds => "ms",
            Unit::Microseconds => "us",
        }
    }

    /// How many of it make a second.
    pub fn per_second(self) -> f64 {
        match self {
            Unit::Milliseconds => 1e3,
            Unit::Microseconds => 1e6,
        }
    }
}

/// Bytes in GiB, to two digits, as the peers print memory.
pub fn gib(bytes: u64) -> Value {
    rounded(bytes as f64 / f64::from(1 << 30), 2)
}

/// A number to this many digits after the point.
pub fn rounded(number: f64, digits: i32) -> Value {
    let scale = 10f64.powi(digits);
    ((number * scale).round() / scale).into()
}

/// One measured case.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The peer that ran it.
    pub peer: String,
    /// The case.
    pub case: String,
    /// The unit of the numbers.
    pub unit: Unit,
    /// Median, in that unit.
    pub median: f64,
    /// Best, in that unit.
    pub best: f64,
}

impl Line {
    /// A line of our own.
    pub fn ours(case: &str, unit: Unit, seconds: Seconds) -> Self {
        let (median, best) = (seconds.median * unit.per_second(), seconds.best * unit.per_second());
        Line { peer: "bilevel".into(), case: case.into(), unit, median, best }
    }

    /// The line as that of a bare program, for comparison with ours through the library.
    pub fn bare(self) -> Self {
        Line { peer: "bare".into(), ..self }
    }

    /// Reads a line that a peer printed; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| Some(fields[name].as_str()?.to_string());
        let unit = [Unit::Milliseconds, Unit::Microseconds].into_iter().find(|u| fields[u.name()].is_number())?;
        let (median, best) = (fields[unit.name()].as_f64()?, fields[format!("min_{}", unit.name())].as_f64()?);
        Some(Line { peer: text("peer")?, case: text("case")?, unit, median, best })
    }

    /// The line as JSON.
    pub fn json(&self) -> String {
        let Line { peer, case, unit, median, best } = self;
        let unit = unit.name();
        format!("{{\"peer\": \"{peer}\", \"case\": \"{case}\", \"{unit}\": {median:.3}, \"min_{unit}\": {best:.3}}}")
    }

    /// The line as JSON with these fields after those that every line has.
    pub fn json_with(&self, more: &[(&str, Value)]) -> String {
        let more: String = more.iter().map(|(name, value)| format!(", \"{name}\": {value}")).collect();
        format!("{}{more}}}", self.json().trim_end_matches('}'))
    }

    /// Several rounds of one case by one peer as one: the median of medians, the best of all.
    pub fn merged(lines: &[Line]) -> Option<Line> {
        let mut medians: Vec<f64> = lines.iter().map(|line| line.median).collect();
        let best = lines.iter().map(|line| line.best).fold(f64::INFINITY, f64::min);
        Some(Line { median: median(&mut medians), best, ..lines.first()?.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_line_is_read() {
        let line = Line::parse(r#"{"peer": "jax", "case": "mlp_grad", "ms": 12.345, "min_ms": 11.0}"#).unwrap();
        let expected =
            Line { peer: "jax".into(), case: "mlp_grad".into(), unit: Unit::Milliseconds, median: 12.345, best: 11.0 };
        assert_eq!(line, expected);
        let line = Line::parse("{\"peer\":\"torch\",\"case\":\"synth1d\",\"us\":1e3,\"min_us\":9}\n").unwrap();
        assert_eq!((line.unit, line.median, line.best), (Unit::Microseconds, 1000.0, 9.0));
    }

    #[test]
    fn what_is_written_reads_back() {
        let line = Line::ours("digits", Unit::Microseconds, Seconds { median: 0.5, best: 0.25 });
        assert_eq!(Line::parse(&line.json()), Some(line));
    }

    #[test]
    fn more_fields_do_not_change_how_a_line_reads() {
        let line = Line::ours("l1reg", Unit::Milliseconds, Seconds { median: 0.5, best: 0.25 });
        let more = line.json_with(&[("prec", "tf32".into()), ("peak_gb", gib(3 << 29)), ("norm", f64::NAN.into())]);
        assert!(more.ends_with(r#", "prec": "tf32", "peak_gb": 1.5, "norm": null}"#), "{more}");
        assert_eq!(Line::parse(&more), Some(line));
    }

    #[test]
    fn anything_else_is_left_alone() {
        for text in [
            "",
            "{",
            "{}",
            "WARNING: no GPU",
            r#"{"peer": "jax", "case": "mlp"}"#,
            r#"{"peer": "jax", "case": "mlp", "ms": 1.0}"#,
            r#"{"peer": "jax", "case": "mlp", "ms": fast, "min_ms": 1}"#,
            r#"{"peer": "jax", "case": "mlp", "ms": NaN, "min_ms": 1}"#,
            r#"{"peer": jax, "case": "mlp", "ms": 1, "min_ms": 1}"#,
            r#"{"peer": "jax", "case": "mlp", "ms": 1, "min_ms": 1"#,
        ] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }

    #[test]
    fn rounds_merge_to_the_median_of_medians_and_the_best_of_all() {
        let line = |median, best| Line::ours("mlp", Unit::Milliseconds, Seconds { median, best });
        let merged = Line::merged(&[line(3.0, 2.0), line(1.0, 0.5), line(2.0, 1.0)]).unwrap();
        assert_eq!((merged.median, merged.best), (2000.0, 500.0));
        assert_eq!(Line::merged(&[]), None);
    }
}
