//! One line of a table: the paper's number, a reference, our result, and its cost.

use bilevel_report::{Column, Table};
use serde::Serialize;

/// Whether a number came out as it was printed.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It agrees with the paper, or with the reference if the paper has no number.
    Reproduced,
    /// It does not, with the reason.
    NotReproduced(String),
    /// It is closer to the truth, cheaper or more accurate than the paper's number, or than the reference if the paper
    /// has none.
    Better,
    /// There is not a number to compare it with.
    NotClaimed,
    /// The method does not apply here, or costs too much, and why.
    NotRun(String),
}

impl Verdict {
    /// `Reproduced` if the condition holds, otherwise the reason.
    pub fn when(holds: bool, why: impl Into<String>) -> Self {
        if holds { Verdict::Reproduced } else { Verdict::NotReproduced(why.into()) }
    }

    /// `Reproduced` if both numbers are the same to four decimals, give or take one in the last.
    ///
    /// ```
    /// use bilevel_run::Verdict;
    /// assert_eq!(Verdict::to_four_digits(0.73604, 0.7360, ""), Verdict::Reproduced);
    /// assert_ne!(Verdict::to_four_digits(0.7369, 0.7488, "biased"), Verdict::Reproduced);
    /// ```
    pub fn to_four_digits(ours: f64, printed: f64, why: impl Into<String>) -> Self {
        Self::when((ours - printed).abs() < 1.5e-4, why)
    }

    /// The reason, or an empty text.
    ///
    /// ```
    /// assert_eq!(bilevel_run::Verdict::NotRun("it costs too much".into()).why(), "it costs too much");
    /// ```
    pub fn why(&self) -> &str {
        if let Verdict::NotReproduced(why) | Verdict::NotRun(why) = self { why } else { "" }
    }
}

/// A number of a study with the numbers for comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the study.
    pub study: String,
    /// The method, as the paper calls it.
    pub method: String,
    /// The setting that distinguishes this run: inner iterations, temperature, start.
    pub setting: String,
    /// The quantity that was measured.
    pub metric: String,
    /// The paper's number.
    pub paper: Option<f64>,
    /// The number of an independent program or of the protocol, or the truth if it is known.
    pub reference: Option<f64>,
    /// Our result; the mean if there are several seeds, and nothing if no run converged.
    pub ours: Option<f64>,
    /// Standard deviation over the seeds.
    pub spread: Option<f64>,
    /// Runs it was taken over.
    pub seeds: u32,
    /// The cost of one of them, in gradients.
    pub cost: Option<f64>,
    /// The time of one of them, in seconds; not in the file of rows, which is the same on every machine.
    pub seconds: Option<f64>,
    /// Whether it agrees.
    pub verdict: Verdict,
}

/// A row as in a file.
#[derive(Serialize)]
struct Written<'a> {
    study: &'a str,
    method: &'a str,
    setting: &'a str,
    metric: &'a str,
    paper: Option<f64>,
    reference: Option<f64>,
    ours: Option<f64>,
    spread: Option<f64>,
    seeds: u32,
    cost: Option<f64>,
    verdict: &'a str,
    reason: &'a str,
}

impl Row {
    /// A row of one run with no numbers to compare it with yet.
    pub fn new(study: impl Into<String>, method: impl Into<String>, metric: impl Into<String>, ours: f64) -> Self {
        Row {
            study: study.into(),
            method: method.into(),
            setting: String::new(),
            metric: metric.into(),
            paper: None,
            reference: None,
            ours: ours.is_finite().then_some(ours),
            spread: None,
            seeds: 1,
            cost: None,
            seconds: None,
            verdict: Verdict::NotClaimed,
        }
    }

    /// With the setting that distinguishes the run.
    pub fn setting(mut self, setting: impl Into<String>) -> Self {
        self.setting = setting.into();
        self
    }

    /// With the paper's number.
    pub fn paper(mut self, paper: impl Into<Option<f64>>) -> Self {
        self.paper = paper.into();
        self
    }

    /// With the number of a reference.
    pub fn reference(mut self, reference: impl Into<Option<f64>>) -> Self {
        self.reference = reference.into();
        self
    }

    /// With the cost of a run, in gradients.
    pub fn cost(mut self, cost: impl Into<Option<f64>>) -> Self {
        self.cost = cost.into().filter(|cost| cost.is_finite());
        self
    }

    /// With the time of a run, in seconds.
    pub fn took(mut self, seconds: impl Into<Option<f64>>) -> Self {
        self.seconds = seconds.into().filter(|seconds| seconds.is_finite());
        self
    }

    /// With the spread over a number of runs.
    pub fn over(mut self, sd: f64, seeds: u32) -> Self {
        (self.spread, self.seeds) = (sd.is_finite().then_some(sd), seeds);
        self
    }

    /// With a verdict without a finished run: the method was not run, or did not finish.
    ///
    /// ```
    /// use bilevel_run::{Row, Verdict};
    /// let row = Row::new("study", "fmd", "loss", f64::NAN).without_runs(Verdict::NotRun("it costs too much".into()));
    /// assert_eq!((row.seeds, row.ours), (0, None));
    /// ```
    pub fn without_runs(self, verdict: Verdict) -> Self {
        Row { seeds: 0, ..self.verdict(verdict) }
    }

    /// Sets the verdict, once numbers and spread are known. A mean is not called reproduced if its standard error is
    /// half of the number for comparison, because it would agree with almost anything.
    ///
    /// ```
    /// use bilevel_run::{Row, Verdict};
    /// let row = |sd| Row::new("synth1d", "ES", "error", 0.08).paper(0.0275).over(sd, 100).verdict(Verdict::Reproduced);
    /// assert_eq!(row(0.05).verdict, Verdict::Reproduced);
    /// assert_eq!(row(0.3).word(), "not reproduced");
    /// ```
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        let error = self.spread.map_or(0.0, |sd| sd / f64::from(self.seeds.max(1)).sqrt());
        self.verdict = match self.paper.or(self.reference) {
            Some(held) if verdict == Verdict::Reproduced && held != 0.0 && error > 0.5 * held.abs() => {
                Verdict::NotReproduced(format!("undecided: the standard error over the runs is {error:.2}"))
            }
            _ => verdict,
        };
        self
    }

    /// The verdict in a few words, which name the comparison: the paper, or else the reference.
    ///
    /// ```
    /// use bilevel_run::{Row, Verdict};
    /// let row = |verdict| Row::new("study", "fmd", "loss", 0.1).verdict(verdict);
    /// assert_eq!(row(Verdict::Better).paper(0.2).word(), "better than the paper");
    /// assert_eq!(row(Verdict::Better).reference(0.2).word(), "better than the reference");
    /// assert_eq!(row(Verdict::NotReproduced("it diverges".into())).word(), "no published number");
    /// ```
    pub fn word(&self) -> &'static str {
        match (&self.verdict, self.paper.is_some(), self.reference.is_some()) {
            (Verdict::NotRun(_), ..) => "not run",
            (Verdict::NotClaimed, true, _) => "not compared",
            (Verdict::Reproduced, true, _) => "reproduced",
            (Verdict::NotReproduced(_), true, _) => "not reproduced",
            (Verdict::Better, true, _) => "better than the paper",
            (Verdict::Reproduced, false, true) => "agrees with the reference",
            (Verdict::NotReproduced(_), false, true) => "differs from the reference",
            (Verdict::Better, false, true) => "better than the reference",
            // The truth suite compares with its own truths, which are no column of the table.
            (Verdict::Reproduced, false, false) => "reproduced",
            (Verdict::NotClaimed | Verdict::NotReproduced(_) | Verdict::Better, false, _) => "no published number",
        }
    }

    /// The row as one line of JSON: the same for the same study on every machine.
    ///
    /// ```
    /// let row = bilevel_run::Row::new("synth1d", "RMD", "lambda", 0.736).paper(0.736);
    /// assert!(row.to_json().starts_with(r#"{"study":"synth1d","method":"RMD","setting":"","metric":"lambda","paper":0.736,"#));
    /// ```
    pub fn to_json(&self) -> String {
        let finite = |number: Option<f64>| number.filter(|number| number.is_finite());
        let written = Written {
            study: &self.study,
            method: &self.method,
            setting: &self.setting,
            metric: &self.metric,
            paper: finite(self.paper),
            reference: finite(self.reference),
            ours: finite(self.ours),
            spread: finite(self.spread),
            seeds: self.seeds,
            cost: finite(self.cost),
            verdict: self.word(),
            reason: self.verdict.why(),
        };
        // Numbers and words can always be written down.
        serde_json::to_string(&written).unwrap_or_default()
    }
}

/// Four decimals for numbers around 1, whole numbers for counts, powers of ten for very small numbers.
fn number(n: Option<f64>) -> String {
    match n {
        None => "–".into(),
        Some(n) if n.abs() >= 100.0 => format!("{n:.0}"),
        Some(n) if n != 0.0 && n.abs() < 5e-4 => format!("{n:.1e}"),
        Some(n) => format!("{n:.4}"),
    }
}

/// Rows as a table, and numbered reasons for those that do not agree. Empty columns are left out.
///
/// ```
/// let rows = [bilevel_run::Row::new("synth1d", "RMD", "λ", 0.736).paper(0.736)];
/// let (table, reasons) = bilevel_run::row_table(&rows);
/// assert_eq!(table.rows[0], ["RMD", "λ", "0.7360", "0.7360", "not compared"]);
/// assert!(reasons.is_empty());
/// ```
pub fn row_table(rows: &[Row]) -> (Table, Vec<String>) {
    let mut reasons: Vec<&str> = vec![];
    let mut lines: Vec<Vec<String>> = vec![];
    for row in rows {
        let mut verdict = row.word().to_string();
        let why = row.verdict.why();
        if !why.is_empty() {
            let known = reasons.iter().position(|reason| *reason == why);
            let number = known.unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            verdict += &format!(" [{}]", number + 1);
        }
        lines.push(vec![
            row.method.clone(),
            row.setting.clone(),
            row.metric.clone(),
            number(row.paper),
            number(row.reference),
            number(row.ours),
            match row.spread {
                Some(_) => format!("{} ({})", number(row.spread), row.seeds),
                None => "–".into(),
            },
            number(row.cost),
            number(row.seconds),
            verdict,
        ]);
    }
    let (text, numeric) = (Column::text, Column::numeric);
    let columns = [
        text("method"),
        text("setting"),
        text("metric"),
        numeric("paper"),
        numeric("reference"),
        numeric("ours"),
        numeric("spread (seeds)"),
        numeric("cost"),
        numeric("seconds"),
        text("verdict"),
    ];
    let stands = |column: usize| lines.iter().any(|line| !["", "–"].contains(&line[column].as_str()));
    let kept: Vec<usize> = (0..columns.len()).filter(|column| stands(*column)).collect();
    let table = Table {
        columns: kept.iter().map(|column| columns[*column].clone()).collect(),
        rows: lines.iter().map(|line| kept.iter().map(|column| line[*column].clone()).collect()).collect(),
        caption: String::new(),
    };
    (table, reasons.iter().enumerate().map(|(i, why)| format!("[{}] {why}", i + 1)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_a_verdict_says_what_the_number_was_compared_with() {
        let why = || "a reason".to_string();
        let words = |verdict: Verdict| {
            let row = || Row { verdict: verdict.clone(), ..Row::new("study", "method", "metric", 1.0) };
            [row().paper(1.0).reference(1.0), row().paper(1.0), row().reference(1.0), row()].map(|row| row.word())
        };
        let (paper, reference) = ("better than the paper", "better than the reference");
        assert_eq!(words(Verdict::Better), [paper, paper, reference, "no published number"]);
        assert_eq!(words(Verdict::Reproduced), ["reproduced", "reproduced", "agrees with the reference", "reproduced"]);
        assert_eq!(
            words(Verdict::NotReproduced(why())),
            ["not reproduced", "not reproduced", "differs from the reference", "no published number"]
        );
        assert_eq!(
            words(Verdict::NotClaimed),
            ["not compared", "not compared", "no published number", "no published number"]
        );
        assert_eq!(words(Verdict::NotRun(why())), ["not run"; 4]);
    }
}
