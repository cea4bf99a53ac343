//! Medians and minima, printed one JSON line a case in the form the peers use.

use std::time::Instant;

/// Median and best seconds of a call.
#[derive(Clone, Copy, Debug)]
pub struct Seconds {
    /// Median over repetitions.
    pub median: f64,
    /// Best repetition.
    pub best: f64,
}

/// Times `call`: one call to warm up, then `reps` repetitions of `inner` calls.
pub fn timed(reps: usize, inner: usize, mut call: impl FnMut()) -> Seconds {
    call();
    let mut times: Vec<f64> = (0..reps)
        .map(|_| {
            let start = Instant::now();
            (0..inner).for_each(|_| call());
            start.elapsed().as_secs_f64() / inner as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Seconds { median: times[reps / 2], best: times[0] }
}

/// One measured case.
#[derive(Clone, Debug)]
pub struct Line {
    /// Who ran it.
    pub peer: String,
    /// Which case.
    pub case: String,
    /// ms or us.
    pub unit: String,
    /// Median, in that unit.
    pub median: f64,
    /// Best, in that unit.
    pub best: f64,
}

impl Line {
    /// A line of our own.
    pub fn ours(case: &str, unit: &str, seconds: Seconds) -> Self {
        let scale = if unit == "ms" { 1e3 } else { 1e6 };
        Line {
            peer: "bilevel".into(),
            case: case.into(),
            unit: unit.into(),
            median: seconds.median * scale,
            best: seconds.best * scale,
        }
    }

    /// Reads a line a peer printed; `None` for anything else it says.
    pub fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let start = text.find(&format!("\"{name}\":"))? + name.len() + 3;
            let rest = text[start..].trim_start();
            Some(rest[..rest.find([',', '}'])?].trim().trim_matches('"').to_string())
        };
        let unit = if text.contains("\"ms\":") { "ms" } else { "us" };
        Some(Line {
            peer: field("peer")?,
            case: field("case")?,
            unit: unit.into(),
            median: field(unit)?.parse().ok()?,
            best: field(&format!("min_{unit}"))?.parse().ok()?,
        })
    }

    /// The line as JSON.
    pub fn json(&self) -> String {
        let Line { peer, case, unit, median, best } = self;
        format!("{{\"peer\": \"{peer}\", \"case\": \"{case}\", \"{unit}\": {median:.3}, \"min_{unit}\": {best:.3}}}")
    }
}
