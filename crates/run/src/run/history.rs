//! The metrics of a run, read back. A last line torn by a crash is passed over; any other damage is named with its line.

use bilevel::diagnostics::Diagnostics;
use bilevel::methods::Oracles;
use bilevel::observers::{Iteration, LONGEST_LINE, iteration_fields};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::io::{BufRead, Read};

/// The numbers of one outer iteration. One that was not finite was not written.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct IterationRow {
    /// Its number, from 1.
    pub iteration: u32,
    /// The identity of its run; lines of older versions do not have it.
    #[serde(default)]
    pub run: Option<String>,
    /// The inner loss.
    #[serde(default)]
    pub inner_loss: Option<f64>,
    /// The outer loss.
    #[serde(default)]
    pub outer_loss: Option<f64>,
    /// Norm of the hypergradient.
    #[serde(default)]
    pub hypergradient_norm: Option<f64>,
    /// Norm of its standard error.
    #[serde(default)]
    pub standard_error: Option<f64>,
    /// Time of all iterations so far.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// The diagnostics of the hypergradient.
    #[serde(default)]
    pub diagnostics: Diagnostics,
    /// The task's own measures, in iterations in which they were taken.
    #[serde(default)]
    pub measures: Map<String, Value>,
    /// How often each kind of derivative was computed so far.
    #[serde(flatten)]
    pub oracles: Oracles,
}

/// Why metrics cannot be read back.
#[derive(Debug)]
pub enum Damage {
    /// The system refused.
    Unread(std::io::Error),
    /// A line, by its number from 1, and its damage.
    Line(usize, String),
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Unread(error) => error.fmt(f),
            Damage::Line(number, what) => write!(f, "line {number} {what}"),
        }
    }
}

/// All lines of metrics, in order.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// One a line.
    pub rows: Vec<IterationRow>,
}

impl History {
    /// The history of iterations in memory.
    pub fn of(iterations: &[Iteration]) -> Self {
        let row = |iteration| serde_json::from_value(Value::Object(iteration_fields(iteration))).ok();
        History { rows: iterations.iter().filter_map(row).collect() }
    }

    /// From the contents of a file.
    pub fn parse(mut from: impl BufRead) -> std::result::Result<Self, Damage> {
        let mut rows: Vec<IterationRow> = vec![];
        let mut line = vec![];
        for number in 1.. {
            line.clear();
            if from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(Damage::Unread)? == 0 {
                break;
            }
            let torn = !line.ends_with(b"\n");
            if line.trim_ascii().is_empty() {
                continue;
            }
            let damaged = |what: String| Damage::Line(number, what);
            if torn && line.len() as u64 == LONGEST_LINE {
                return Err(damaged("is too long to be the metrics of an iteration".into()));
            }
            match serde_json::from_slice::<IterationRow>(&line) {
                Ok(row) if rows.last().is_some_and(|last| last.iteration >= row.iteration) => {
                    let before = rows.last().map_or(0, |last| last.iteration);
                    return Err(damaged(format!("has iteration {} after iteration {before}", row.iteration)));
                }
                Ok(row) => rows.push(row),
                Err(_) if torn => {}
                Err(_) => return Err(damaged("is not the metrics of an iteration".into())),
            }
        }
        Ok(History { rows })
    }

    /// The description of the first line that belongs to another run.
    pub fn foreign_line(&self, run: &str) -> Option<String> {
        let at = self.rows.iter().position(|row| row.run.as_ref().is_some_and(|found| found != run))?;
        Some(format!("line {} belongs to another run", at + 1))
    }

    /// The description of the line of an iteration whose numbers differ from these.
    pub fn other_losses(&self, iteration: u32, expected: [Option<f64>; 3], whose: &str) -> Option<String> {
        let (at, row) = self.rows.iter().enumerate().find(|(_, row)| row.iteration == iteration)?;
        let found = [row.inner_loss, row.outer_loss, row.hypergradient_norm];
        (found != expected).then(|| format!("the losses in line {} are not those of {whose}", at + 1))
    }

    /// The last line.
    pub fn last(&self) -> Option<&IterationRow> {
        self.rows.last()
    }

    /// A number over the iterations that have it.
    pub fn points(&self, of: impl Fn(&IterationRow) -> Option<f64>) -> Vec<(f64, f64)> {
        self.rows.iter().filter_map(|row| Some((f64::from(row.iteration), of(row)?))).collect()
    }

    /// Names of the measures that were taken, in their order.
    pub fn measures(&self) -> Vec<&str> {
        let mut names: Vec<&str> = vec![];
        for name in self.rows.iter().flat_map(|row| row.measures.keys()) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// A measure over the iterations in which it was taken.
    pub fn measure(&self, name: &str) -> Vec<(f64, f64)> {
        self.points(|row| row.measures.get(name)?.as_f64())
    }

    /// The value a measure had when it was last taken.
    pub fn last_measure(&self, name: &str) -> Option<f64> {
        self.rows.iter().rev().find_map(|row| row.measures.get(name)?.as_f64())
    }

    /// The lowest outer loss.
    pub fn best_outer_loss(&self) -> Option<f64> {
        self.rows.iter().filter_map(|row| row.outer_loss).min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(iteration: u32) -> String {
        format!(
            "{{\"iteration\":{iteration},\"inner_loss\":1.5,\"outer_loss\":0.25,\"hypergradient_norm\":1e-3,\
             \"seconds\":0.5,\"inner_gradients\":{iteration}0,\"diagnostics\":{{\"horizon\":0.8,\
             \"curvature\":0.1}},\"measures\":{{\"test loss\":0.5,\"accuracy\":null}}}}\n"
        )
    }

    fn parse(text: &[u8]) -> std::result::Result<History, Damage> {
        History::parse(text)
    }

    #[test]
    fn what_a_run_writes_is_read_back() {
        let history = parse((line(1) + &line(2)).as_bytes()).unwrap();
        assert_eq!(history.points(|row| row.outer_loss), [(1.0, 0.25), (2.0, 0.25)]);
        assert_eq!(history.last().unwrap().oracles.inner_gradients, 20);
        assert_eq!(history.points(|row| row.diagnostics.horizon)[1], (2.0, 0.8));
        assert_eq!(history.measures(), ["test loss", "accuracy"]);
        assert_eq!((history.measure("test loss").len(), history.measure("accuracy").len()), (2, 0));
        assert_eq!(history.last_measure("test loss"), Some(0.5));
        assert_eq!(history.points(|row| row.standard_error), []);
    }

    #[test]
    fn a_torn_last_line_is_passed_over() {
        let whole = line(1) + &line(2);
        for cut in line(1).len() + 1..whole.len() - 1 {
            assert_eq!(parse(&whole.as_bytes()[..cut]).unwrap().rows.len(), 1, "{cut}");
        }
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let said = |text: String| parse(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(said(line(1) + "garbage\n" + &line(2)), "line 2 is not the metrics of an iteration");
        assert_eq!(said(line(2) + &line(2)), "line 2 has iteration 2 after iteration 2");
        assert!(parse(b"\xff\xfe\n").is_err() && parse(b"[1]\n").is_err() && parse(b"{}\n").is_err());
        let endless = History::parse(std::io::BufReader::new(std::io::repeat(0))).unwrap_err();
        assert!(endless.to_string().contains("line 1 is too long to be the metrics of an iteration"), "{endless}");
        assert!(parse(b"").unwrap().rows.is_empty());
    }
}
