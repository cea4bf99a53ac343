//! How a run divides the rows that have labels, in place of the task's own division.
//!
//! | keys of `[split]` | the division |
//! |---|---|
//! | none | the task's own |
//! | `train`, `validation`, `held_out` | fractions or counts of the rows with labels, drawn by the seed |
//! | … and `stratified = true` | every label in every part as often as among all |
//! | … and `groups = "FILE"` | all rows of a group in one part |
//! | `rows = "FILE"` | the numbers of the rows of each part |
//!
//! Test rows stay as the task has them, unless a file gives others.

use super::start::checksum;
use bilevel::errors::nearest;
use bilevel::splits::{Part, Rows, Share, Split};
use bilevel::{Error, Problem, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The division of a run's rows: `[split]` of a configuration.
///
/// ```
/// use bilevel::splits::Part;
/// use bilevel_run::{Division, Registry};
/// let registry = bilevel_tasks::register(Registry::new());
/// let mut config = registry.usual("few-rows")?;
/// config.split = Division { train: 0.6.into(), stratified: true, ..Division::default() };
/// let problem = config.problem(&registry)?;
/// // A fifth of the 80 rows that are left is held out.
/// assert_eq!([Part::Train, Part::Validation, Part::HeldOut].map(|part| problem.rows_of(part)), [120, 64, 16]);
/// # Ok::<(), bilevel::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Division {
    /// Rows to train on.
    pub train: Share,
    /// Rows to choose λ by; 0 is all that are left.
    pub validation: Share,
    /// Rows that no method sees; 0 leaves them to `held_out.share`.
    pub held_out: Share,
    /// Every label in every part as often as among all rows.
    pub stratified: bool,
    /// The file of groups, one per line for each row of the tables; empty for none.
    pub groups: String,
    /// The JSON file of the rows of each part; empty for none.
    pub rows: String,
    /// The checksum of the files: empty until the run begins, and checked whenever it continues.
    pub checksum: String,
}

impl Default for Division {
    /// The task's own.
    fn default() -> Self {
        let none = Share::Fraction(0.0);
        let [groups, rows, checksum] = Default::default();
        Division { train: none, validation: none, held_out: none, stratified: false, groups, rows, checksum }
    }
}

/// A setting outside its range: its key, its value and the condition.
pub(crate) type OutOfRange = (&'static str, String, String);

impl Division {
    /// Returns true if the task divides its rows.
    pub fn is_the_tasks(&self) -> bool {
        *self == Division { checksum: self.checksum.clone(), ..Division::default() }
    }

    /// Refuses settings that contradict each other.
    pub(crate) fn check(&self) -> std::result::Result<(), OutOfRange> {
        let shares =
            [("split.train", self.train), ("split.validation", self.validation), ("split.held_out", self.held_out)];
        let refuse = |key, value: &dyn ToString, must: &str| Err((key, value.to_string(), must.to_string()));
        let mut sum = 0.0;
        for (key, share) in shares {
            let Share::Fraction(fraction) = share else { continue };
            if !(0.0..=1.0).contains(&fraction) {
                return refuse(key, &fraction, "a fraction from 0 to 1, or a whole number of rows");
            }
            sum += fraction;
            if sum > 1.0 + 1e-9 {
                let left = format!("{:.3}", (1.0 + fraction - sum).max(0.0));
                let must =
                    format!("at most {}, since fractions add up to at most 1", left.trim_end_matches(['0', '.']));
                return refuse(
                    key,
                    &fraction,
                    if left == "0.000" { "0, since the other fractions add up to 1" } else { &must },
                );
            }
        }
        let shares_given = shares.iter().find(|(_, share)| !is_none(*share));
        if self.rows.is_empty() {
            if is_none(self.train) && !self.is_the_tasks() {
                return refuse("split.train", &"0", "above 0 if another key of [split] is given");
            }
            if self.stratified && !self.groups.is_empty() {
                return refuse("split.stratified", &true, "false if split.groups is given");
            }
            return Ok(());
        }
        if let Some((key, share)) = shares_given {
            return refuse(key, &written(*share), "left out if split.rows is given");
        }
        match () {
            _ if self.stratified => refuse("split.stratified", &true, "false if split.rows is given"),
            _ if !self.groups.is_empty() => refuse("split.groups", &self.groups, "empty if split.rows is given"),
            _ => Ok(()),
        }
    }

    /// The same with the checksum of its files. Files that differ from an earlier checksum are refused.
    pub fn sealed(self) -> Result<Self> {
        if self.groups.is_empty() && self.rows.is_empty() {
            return Ok(Division { checksum: String::new(), ..self });
        }
        let found = checksum([&self.groups, &self.rows], "read the split in")?;
        if !self.checksum.is_empty() && self.checksum != found {
            return Err(Error::other(format!(
                "{}{} changed after the run was begun; put the right file back, or begin another run",
                self.groups, self.rows
            )));
        }
        Ok(Division { checksum: found, ..self })
    }

    /// The problem with its rows divided so. The evidence trains on all rows with labels, however they are divided.
    pub fn divide(&self, problem: Problem, seed: u64) -> Result<Problem> {
        if self.is_the_tasks() || problem.is_judged_by_evidence() {
            return Ok(problem);
        }
        if problem.table_rows() == 0 {
            let reason = "[split] divides the rows of a task, but this task has none to divide; leave it out";
            return Err(Error::Conflict { reason: reason.into() });
        }
        let rows = match self.rows.is_empty() {
            true => self.drawn(&problem, seed)?,
            false => given(&self.rows, &problem)?,
        };
        rows.check(problem.table_rows())?;
        if rows.of(Part::Validation).is_empty() {
            return Err(split("leaves no validation rows; make another part smaller".into()));
        }
        let trained = rows.of(Part::Train).len();
        let divided = problem.with_rows(|_| Ok(rows.clone())).map_err(|error| {
            let reason = format!("[split] has {trained} training rows, which do not fit the task's losses: {error}");
            Error::Conflict { reason }
        })?;
        Ok(divided.into())
    }

    /// Rows that are drawn.
    fn drawn(&self, problem: &Problem, seed: u64) -> Result<Rows> {
        let mut labelled = problem.rows().all_for_training().of(Part::Train).to_vec();
        labelled.sort_unstable();
        let validation = if is_none(self.validation) { self.rest(labelled.len()) } else { self.validation };
        let Division { train, held_out, .. } = *self;
        let one = Split { train, validation, held_out, test: 0.into(), seed };
        let of = |all: &dyn Fn(usize) -> i64| labelled.iter().map(|row| all(*row)).collect::<Vec<_>>();
        let rows = match (self.stratified, self.groups.is_empty()) {
            (true, _) => {
                let missing =
                    || split("cannot be stratified: the task has no table with one whole number for each row".into());
                let labels = problem.labels().ok_or_else(missing)?;
                one.stratified(&of(&|row| labels[row].into()))?
            }
            (false, false) => {
                let groups = groups(&self.groups, problem.table_rows())?;
                one.grouped(&of(&|row| groups[row]))?
            }
            (false, true) => one.rows(labelled.len())?,
        };
        let part = |part: Part| rows.of(part).iter().map(|place| labelled[*place]).collect::<Vec<_>>();
        let divided = Rows::given(part(Part::Train), part(Part::Validation)).with_held_out(part(Part::HeldOut));
        Ok(divided.with_test(problem.rows().of(Part::Test).to_vec()))
    }

    /// The rows that are left for validation.
    fn rest(&self, count: usize) -> Share {
        match (self.train, self.held_out) {
            (Share::Fraction(train), Share::Fraction(held_out)) => (1.0 - train - held_out).max(0.0).into(),
            (train, held_out) => {
                let rows = |share| match share {
                    Share::Rows(rows) => rows,
                    Share::Fraction(fraction) => (fraction * count as f64).ceil() as usize,
                };
                count.saturating_sub(rows(train)).saturating_sub(rows(held_out)).into()
            }
        }
    }
}

fn is_none(share: Share) -> bool {
    matches!(share, Share::Rows(0) | Share::Fraction(0.0))
}

fn written(share: Share) -> String {
    match share {
        Share::Rows(rows) => rows.to_string(),
        Share::Fraction(fraction) => fraction.to_string(),
    }
}

fn split(reason: String) -> Error {
    Error::Data { what: "the split".into(), reason }
}

fn text(path: &str) -> Result<String> {
    let cannot = |error: std::io::Error| Error::other(format!("cannot read the split in {path}: {error}"));
    let bytes = bilevel::files::whole_file::read_regular(path.as_ref()).map_err(cannot)?;
    String::from_utf8(bytes).map_err(|_| Error::Data { what: path.into(), reason: "is not UTF-8 text".into() })
}

/// The groups of all rows, numbered: equal lines are one group.
fn groups(path: &str, count: usize) -> Result<Vec<i64>> {
    let text = text(path)?;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    if lines.len() != count {
        let reason = format!("has {} groups, but there must be one line for each of the {count} rows", lines.len());
        return Err(Error::Data { what: path.into(), reason });
    }
    let mut known = lines.clone();
    known.sort_unstable();
    known.dedup();
    Ok(lines.iter().map(|line| known.partition_point(|other| other < line) as i64).collect())
}

/// The rows of a file: lists of whole numbers, counted from 0, by the names of parts.
fn given(path: &str, problem: &Problem) -> Result<Rows> {
    const PARTS: [&str; 4] = ["train", "validation", "held_out", "test"];
    let damaged = |reason: String| Error::Data { what: path.to_string(), reason };
    let all: Value = serde_json::from_str(&text(path)?).map_err(|error| damaged(format!("is not JSON: {error}")))?;
    let parts = all.as_object().ok_or_else(|| damaged("must be an object with a list of rows for each part".into()))?;
    if let Some(name) = parts.keys().find(|name| !PARTS.contains(&name.as_str())) {
        let instead = match nearest(name, PARTS) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("there are {}", PARTS.join(", ")),
        };
        return Err(damaged(format!("has an unknown part '{name}'; {instead}")));
    }
    let rows: Rows = serde_json::from_value(all.clone())
        .map_err(|error| damaged(format!("must have lists of row numbers, counted from 0: {error}")))?;
    match parts.contains_key("test") {
        true => Ok(rows),
        false => Ok(rows.with_test(problem.rows().of(Part::Test).to_vec())),
    }
}
