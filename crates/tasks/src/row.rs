//! One line of a table: what the paper printed, what the protocol should give, what came out.

use std::fmt::Write as _;

/// Whether a number came out as it was printed.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It agrees with the paper; where the paper has no number, with the expected one.
    Reproduced,
    /// It does not, and why.
    NotReproduced(String),
    /// It is closer to the truth, or cheaper, than what the paper printed or claims for its own method.
    Better,
    /// There is no number to hold it against.
    NotClaimed,
    /// The method does not apply here, or is too dear, and why.
    NotRun(String),
}

impl Verdict {
    /// `Reproduced` where the condition holds, else the reason.
    pub fn when(holds: bool, why: impl Into<String>) -> Self {
        if holds { Verdict::Reproduced } else { Verdict::NotReproduced(why.into()) }
    }

    /// `Reproduced` where both numbers are the same to four decimals, give or take one in the last.
    ///
    /// ```
    /// use bilevel_tasks::Verdict;
    /// assert_eq!(Verdict::to_four_digits(0.73604, 0.7360, ""), Verdict::Reproduced);
    /// assert_ne!(Verdict::to_four_digits(0.7369, 0.7488, "biased"), Verdict::Reproduced);
    /// ```
    pub fn to_four_digits(ours: f64, printed: f64, why: impl Into<String>) -> Self {
        Self::when((ours - printed).abs() < 1.5e-4, why)
    }

    /// It in a word or two.
    ///
    /// ```
    /// assert_eq!(bilevel_tasks::Verdict::Better.word(), "better");
    /// ```
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::NotReproduced(_) => "not reproduced",
            Verdict::Better => "better",
            Verdict::NotClaimed => "no claim",
            Verdict::NotRun(_) => "not run",
        }
    }

    /// The reason, where there is one; else nothing.
    ///
    /// ```
    /// assert_eq!(bilevel_tasks::Verdict::NotRun("too dear".into()).why(), "too dear");
    /// ```
    pub fn why(&self) -> &str {
        if let Verdict::NotReproduced(why) | Verdict::NotRun(why) = self { why } else { "" }
    }
}

/// What stands above the cells of a row: words, then numbers from the fourth to the eighth, then the verdict.
pub const HEADINGS: [&str; 9] = ["method", "setting", "metric", "paper", "expected", "ours", "sd", "seeds", "verdict"];

/// A number of an experiment beside the numbers it is held against.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// The method, as the paper calls it.
    pub method: String,
    /// What distinguishes this run: inner iterations, temperature, start.
    pub setting: String,
    /// What was measured.
    pub metric: &'static str,
    /// What the paper printed.
    pub paper: Option<f64>,
    /// What the protocol is known to give, or the truth where it is known independently.
    pub expected: Option<f64>,
    /// What came out; the mean where there are several seeds, and nothing where no run arrived.
    pub ours: Option<f64>,
    /// Standard deviation over the seeds.
    pub sd: Option<f64>,
    /// Runs it was taken over.
    pub seeds: u32,
    /// Whether it agrees.
    pub verdict: Verdict,
}

impl Row {
    /// A row of one run with no numbers to hold it against yet.
    pub fn new(experiment: &'static str, method: impl Into<String>, metric: &'static str, ours: f64) -> Self {
        Row {
            experiment,
            method: method.into(),
            setting: String::new(),
            metric,
            paper: None,
            expected: None,
            ours: ours.is_finite().then_some(ours),
            sd: None,
            seeds: 1,
            verdict: Verdict::NotClaimed,
        }
    }

    /// With what distinguishes the run.
    pub fn setting(mut self, setting: impl Into<String>) -> Self {
        self.setting = setting.into();
        self
    }

    /// With the paper's number.
    pub fn paper(mut self, paper: impl Into<Option<f64>>) -> Self {
        self.paper = paper.into();
        self
    }

    /// With the number it should be.
    pub fn expected(mut self, expected: impl Into<Option<f64>>) -> Self {
        self.expected = expected.into();
        self
    }

    /// With the spread over a number of runs.
    pub fn over(mut self, sd: f64, seeds: u32) -> Self {
        (self.sd, self.seeds) = (sd.is_finite().then_some(sd), seeds);
        self
    }

    /// With the verdict, once numbers and spread are known. A mean whose standard error is half of what it is held against
    /// agrees with anything, and so with nothing: it is not called reproduced.
    ///
    /// ```
    /// use bilevel_tasks::{Row, Verdict};
    /// let row = |sd| Row::new("synth1d", "ES", "error", 0.08).paper(0.0275).over(sd, 100).verdict(Verdict::Reproduced);
    /// assert_eq!(row(0.05).verdict, Verdict::Reproduced);
    /// assert_eq!(row(0.3).verdict.word(), "not reproduced");
    /// ```
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        let error = self.sd.map_or(0.0, |sd| sd / f64::from(self.seeds.max(1)).sqrt());
        self.verdict = match self.paper.or(self.expected) {
            Some(held) if verdict == Verdict::Reproduced && held != 0.0 && error > 0.5 * held.abs() => {
                Verdict::NotReproduced(format!("undecided: the standard error over the runs is {error:.2}"))
            }
            _ => verdict,
        };
        self
    }

    /// The row as one line of JSON.
    ///
    /// ```
    /// let row = bilevel_tasks::Row::new("synth1d", "RMD", "lambda", 0.736).paper(0.736);
    /// assert!(row.to_json().starts_with(r#"{"experiment":"synth1d","method":"RMD","setting":"","metric":"lambda","paper":0.736,"#));
    /// ```
    pub fn to_json(&self) -> String {
        let number = |n: Option<f64>| n.filter(|n| n.is_finite()).map_or("null".into(), |n| format!("{n}"));
        format!(
            "{{\"experiment\":{},\"method\":{},\"setting\":{},\"metric\":{},\"paper\":{},\"expected\":{},\"ours\":{},\
             \"sd\":{},\"seeds\":{},\"verdict\":{},\"why\":{}}}",
            quoted(self.experiment),
            quoted(&self.method),
            quoted(&self.setting),
            quoted(self.metric),
            number(self.paper),
            number(self.expected),
            number(self.ours),
            number(self.sd),
            self.seeds,
            quoted(self.verdict.word()),
            quoted(self.verdict.why()),
        )
    }

    /// The row as a person reads it, under [`HEADINGS`].
    ///
    /// ```
    /// let row = bilevel_tasks::Row::new("synth1d", "RMD", "λ", 0.736).paper(0.736);
    /// assert_eq!(row.cells(), ["RMD", "", "λ", "0.7360", "–", "0.7360", "–", "1", "no claim"]);
    /// ```
    pub fn cells(&self) -> [String; 9] {
        [
            self.method.clone(),
            self.setting.clone(),
            self.metric.into(),
            number(self.paper),
            number(self.expected),
            number(self.ours),
            number(self.sd),
            self.seeds.to_string(),
            self.verdict.word().into(),
        ]
    }
}

/// A string as JSON writes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => _ = write!(out, "\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

/// Four decimals for what is of the size of 1, whole numbers for counts, powers of ten for the very small.
fn number(n: Option<f64>) -> String {
    match n {
        None => "–".into(),
        Some(n) if n.abs() >= 100.0 => format!("{n:.0}"),
        Some(n) if n != 0.0 && n.abs() < 5e-4 => format!("{n:.1e}"),
        Some(n) => format!("{n:.4}"),
    }
}

/// Rows as an aligned table, with the reasons of what does not agree under it.
///
/// ```
/// let rows = [bilevel_tasks::Row::new("synth1d", "RMD", "lambda", 0.736).paper(0.736)];
/// assert!(bilevel_tasks::table(&rows).contains("0.7360"));
/// ```
pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEADINGS.map(String::from)];
    let mut reasons: Vec<&str> = vec![];
    for row in rows {
        let mut cells = row.cells();
        if !row.verdict.why().is_empty() {
            let found = reasons.iter().position(|reason| *reason == row.verdict.why());
            let index = found.unwrap_or_else(|| {
                reasons.push(row.verdict.why());
                reasons.len() - 1
            });
            _ = write!(cells[8], " [{}]", index + 1);
        }
        lines.push(cells);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 9] = std::array::from_fn(width);
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (i, (cell, width)) in line.iter().zip(widths).enumerate() {
            _ = if (3..8).contains(&i) { write!(text, "{cell:>width$}  ") } else { write!(text, "{cell:<width$}  ") };
        }
        out += text.trim_end();
        out.push('\n');
    }
    for (i, reason) in reasons.iter().enumerate() {
        _ = writeln!(out, "[{}] {reason}", i + 1);
    }
    out
}
