//! Results of a comparison: one line per method, as a table and as rows.

use super::{Comparison, label};
use bilevel_report::{Column, Table, count};
use bilevel_run::run::RunResult;
use bilevel_run::spread::Spread;
use bilevel_run::{Done, Finished, FinishedRun, Row, Verdict};

/// One method on all seeds.
struct Line<'a> {
    method: &'a str,
    /// Its runs, those that diverged included.
    runs: Vec<&'a FinishedRun>,
    /// The reason why it does not apply, if so.
    reason: Option<&'a str>,
}

impl Line<'_> {
    fn arrived(&self) -> impl Iterator<Item = &FinishedRun> {
        self.runs.iter().copied().filter(|run| run.arrived())
    }

    fn spread(&self, pick: impl Fn(&FinishedRun) -> Option<f64>) -> Spread {
        Spread::of(&self.arrived().filter_map(pick).collect::<Vec<_>>())
    }

    /// A leaf of λ that is one number.
    fn lambda(&self, name: &str) -> Spread {
        self.spread(|run| match &run.lambda.iter().find(|leaf| leaf.name == name)?.values[..] {
            [value] => Some(*value),
            _ => None,
        })
    }

    /// A short note if some of this many seeds failed.
    fn note(&self, seeds: usize) -> String {
        let diverged = self.runs.len() - self.arrived().count();
        match (self.reason, diverged) {
            (Some(_), _) => "does not apply".into(),
            (None, 0) if self.runs.len() < seeds => format!("{} of {seeds} seeds", self.runs.len()),
            (None, 0) => String::new(),
            (None, n) if n == self.runs.len() => "diverged".into(),
            (None, n) => format!("{n} of {} diverged", self.runs.len()),
        }
    }
}

/// The results of a comparison.
pub struct Summary<'a> {
    task: &'a str,
    seeds: &'a [u64],
    lines: Vec<Line<'a>>,
}

fn lambda_title(name: &str) -> String {
    if name.is_empty() { "λ".into() } else { format!("λ.{name}") }
}

impl<'a> Summary<'a> {
    /// Summarises the finished runs.
    pub fn new(comparison: &'a Comparison, done: &'a Finished) -> Self {
        let line = |method: &'a String| {
            let mut line = Line { method, runs: vec![], reason: None };
            for seed in &comparison.seeds {
                match done.get(&label(method, *seed)) {
                    Some(Done::Run(run)) => line.runs.push(run),
                    Some(Done::NotApplicable(reason)) => line.reason = Some(reason),
                    _ => {}
                }
            }
            line
        };
        let lines = comparison.methods.iter().map(line).collect();
        Summary { task: comparison.task.name(), seeds: &comparison.seeds, lines }
    }

    /// Names of the task's own measures.
    pub fn measures(&self) -> Vec<String> {
        let first = self.lines.iter().flat_map(|line| &line.runs).next();
        first.map_or(vec![], |run| run.result.measures.keys().cloned().collect())
    }

    /// Names of the leaves of λ that are one number.
    fn scalars(&self) -> Vec<String> {
        let first = self.lines.iter().flat_map(|line| &line.runs).next();
        let single = |run: &&FinishedRun| {
            run.lambda.iter().filter(|leaf| leaf.values.len() == 1).map(|leaf| leaf.name.clone()).collect()
        };
        first.map_or(vec![], single)
    }

    /// One row per method.
    pub fn table(&self) -> Table {
        let (measures, scalars) = (self.measures(), self.scalars());
        let noted = self.lines.iter().any(|line| !line.note(self.seeds.len()).is_empty());
        let mut columns = vec![Column::text("method"), Column::numeric("outer loss")];
        columns.extend(measures.iter().map(Column::numeric));
        columns.extend(scalars.iter().map(|name| Column::numeric(lambda_title(name))));
        columns.extend([Column::numeric("gradients"), Column::numeric("seconds")]);
        columns.extend(noted.then(|| Column::text("note")));
        let row = |line: &Line| {
            let mut cells = vec![line.method.to_string(), line.spread(|run| run.result.outer_loss).text()];
            cells.extend(measures.iter().map(|name| line.spread(|run| run.measure(name)).text()));
            cells.extend(scalars.iter().map(|name| line.lambda(name).text()));
            let cost = line.spread(|run| Some(run.price));
            let seconds = line.spread(|run| Some(run.seconds).filter(|seconds| seconds.is_finite()));
            cells.push(if cost.count == 0 { "–".into() } else { count(cost.mean) });
            cells.push(if seconds.count == 0 { "–".into() } else { format!("{:.2}", seconds.mean) });
            cells.extend(noted.then(|| line.note(self.seeds.len())));
            cells
        };
        let caption = match self.seeds {
            [seed] => format!("{}, seed {seed}", self.task),
            seeds => format!("{}, mean ± sd of {} seeds", self.task, seeds.len()),
        };
        Table { columns, rows: self.lines.iter().map(row).collect(), caption }
    }

    /// One row per method and number.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = vec![];
        for line in &self.lines {
            let cost = line.spread(|run| Some(run.price)).mean;
            let seconds = line.spread(|run| Some(run.seconds)).mean;
            let verdict = match line.reason {
                Some(reason) => Verdict::NotRun(reason.into()),
                None if line.arrived().next().is_none() => Verdict::NotRun("every run diverged".into()),
                None => Verdict::NotClaimed,
            };
            let mut add = |metric: String, found: Spread| {
                let row = Row::new("compare", line.method, metric, found.mean).setting(self.task);
                let sd = if found.count > 1 { found.sd } else { f64::NAN };
                rows.push(row.over(sd, found.count as u32).cost(cost).took(seconds).verdict(verdict.clone()));
            };
            add("outer loss".into(), line.spread(|run| run.result.outer_loss));
            add("lowest outer loss".into(), line.spread(|run| run.result.best_outer_loss));
            for name in self.measures() {
                let found = line.spread(|run| run.measure(&name));
                add(name, found);
            }
            for name in self.scalars() {
                add(lambda_title(&name), line.lambda(&name));
            }
        }
        rows
    }

    /// Warnings about failed runs: one per cause, for any number of runs.
    pub fn warnings(&self) -> Vec<String> {
        let mut said: Vec<String> = self.lines.iter().filter_map(|line| Some(line.reason?.to_string())).collect();
        // The text after the symptom distinguishes causes, except for its numbers, which differ from run to run.
        let mut causes: Vec<(String, Vec<&RunResult>)> = vec![];
        let diverged = self.lines.iter().flat_map(|line| &line.runs).filter(|run| !run.arrived());
        for run in diverged.map(|run| &run.result) {
            let cause = run.because.split_once("; ").map_or(run.because.as_str(), |(_, cause)| cause);
            let cause: String = cause.chars().filter(|c| !c.is_ascii_digit()).collect();
            match causes.iter_mut().find(|(known, _)| known == &cause) {
                Some((_, runs)) => runs.push(run),
                None => causes.push((cause, vec![run])),
            }
        }
        for (_, runs) in causes {
            let Some((first, others)) = runs.split_first() else { continue };
            let with = format!("{} with seed {} {}", first.method, first.seed, first.because);
            said.push(match others {
                [] => format!("{with}; the means leave it out"),
                others => format!("{with}; so did {}; the means leave them out", by_method(others)),
            });
        }
        said
    }
}

/// Runs of one method after the other: its name and the seeds.
fn by_method(runs: &[&RunResult]) -> String {
    let one = |runs: &[&RunResult]| {
        let seeds: Vec<String> = runs.iter().map(|run| run.seed.to_string()).collect();
        let seeds = match &seeds[..] {
            [seed] => format!("seed {seed}"),
            [seeds @ .., last] => format!("seeds {} and {last}", seeds.join(", ")),
            [] => "no seed".into(),
        };
        format!("{} with {seeds}", runs[0].method)
    };
    runs.chunk_by(|a, b| a.method == b.method).map(one).collect::<Vec<_>>().join(", ")
}
