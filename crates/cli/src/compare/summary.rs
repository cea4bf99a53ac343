//! What a comparison found: a row a method, as a table and as JSON.

use super::plan::Plan;
use super::work::End;
use crate::result::RunResult;
use crate::spread::{Spread, thousands};
use bilevel::Oracles;
use bilevel_report::{Column, Table};
use bilevel_tasks::price::{Passes, price};
use serde_json::{Map, Value, json};

/// One method on all seeds.
#[derive(Clone, Debug)]
pub struct Row {
    /// The method.
    pub method: String,
    /// Its runs, those that diverged included.
    pub runs: Vec<RunResult>,
    /// Why it does not apply, where it does not.
    pub reason: Option<String>,
    /// Seconds of each run.
    pub seconds: Vec<f64>,
}

/// What a comparison found.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The experiment.
    pub experiment: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// The methods.
    pub rows: Vec<Row>,
}

/// The price of a run, in gradients.
pub fn cost(run: &RunResult) -> f64 {
    let count = |name: &str| run.oracles.get(name).and_then(Value::as_u64).unwrap_or(0);
    let oracles = Oracles {
        inner_gradients: count("inner_gradients"),
        outer_gradients: count("outer_gradients"),
        hessian_products: count("hessian_products"),
        mixed_products: count("mixed_products"),
        losses: count("losses"),
    };
    price(oracles, Passes::of(&run.method))
}

impl Row {
    /// The runs that did not diverge.
    pub fn arrived(&self) -> impl Iterator<Item = &RunResult> {
        self.runs.iter().filter(|run| run.stopped != "diverged")
    }

    fn spread(&self, pick: impl Fn(&RunResult) -> Option<f64>) -> Spread {
        Spread::of(&self.arrived().filter_map(pick).collect::<Vec<_>>())
    }

    fn measure(&self, name: &str) -> Spread {
        self.spread(|run| run.measures.get(name)?.as_f64())
    }

    /// A leaf of λ that is one number.
    fn lambda(&self, name: &str) -> Spread {
        self.spread(|run| match run.lambda.iter().find(|leaf| leaf.name == name)?.values.as_deref()? {
            [value] => Some(*value),
            _ => None,
        })
    }

    /// In a word or two, where not all of so many seeds went well.
    fn note(&self, seeds: usize) -> String {
        let diverged = self.runs.len() - self.arrived().count();
        match (&self.reason, diverged) {
            (Some(_), _) => "does not apply".into(),
            (None, 0) if self.runs.len() < seeds => format!("{} of {seeds} seeds", self.runs.len()),
            (None, 0) => String::new(),
            (None, n) if n == self.runs.len() => "diverged".into(),
            (None, n) => format!("{n} of {} diverged", self.runs.len()),
        }
    }
}

impl Summary {
    /// Of a comparison whose runs ended so; `seconds` is how long each took.
    pub fn new(plan: &Plan, ends: &[End], seconds: &[f64]) -> Self {
        let row = |method: &String| {
            let mut row = Row { method: method.clone(), runs: vec![], reason: None, seconds: vec![] };
            for (number, _) in plan.runs.iter().enumerate().filter(|(_, run)| run.method() == method) {
                match &ends[number] {
                    End::Done(result) => {
                        row.runs.push((**result).clone());
                        row.seconds.push(seconds[number]);
                    }
                    End::DoesNotApply(reason) => row.reason = Some(reason.clone()),
                }
            }
            row
        };
        Summary {
            experiment: plan.experiment.clone(),
            seeds: plan.seeds.clone(),
            rows: plan.methods.iter().map(row).collect(),
        }
    }

    /// Names of the experiment's own measures.
    pub fn measures(&self) -> Vec<String> {
        let first = self.rows.iter().flat_map(|row| &row.runs).next();
        first.map_or(vec![], |run| run.measures.keys().cloned().collect())
    }

    fn scalars(&self) -> Vec<String> {
        let first = self.rows.iter().flat_map(|row| &row.runs).next();
        let single = |run: &RunResult| {
            let leaves = run.lambda.iter().filter(|leaf| leaf.values.as_ref().is_some_and(|values| values.len() == 1));
            leaves.map(|leaf| leaf.name.clone()).collect()
        };
        first.map_or(vec![], single)
    }

    /// A row a method.
    pub fn table(&self) -> Table {
        let (measures, scalars) = (self.measures(), self.scalars());
        let noted = self.rows.iter().any(|row| !row.note(self.seeds.len()).is_empty());
        let mut columns = vec![Column::text("method"), Column::numeric("outer loss")];
        columns.extend(measures.iter().map(Column::numeric));
        let lambda = |name: &String| if name.is_empty() { "λ".into() } else { format!("λ.{name}") };
        columns.extend(scalars.iter().map(|name| Column::numeric(lambda(name))));
        columns.extend([Column::numeric("gradients"), Column::numeric("seconds")]);
        columns.extend(noted.then(|| Column::text("note")));
        let row = |row: &Row| {
            let mut cells = vec![row.method.clone(), row.spread(|run| run.outer_loss).text()];
            cells.extend(measures.iter().map(|name| row.measure(name).text()));
            cells.extend(scalars.iter().map(|name| row.lambda(name).text()));
            let cost = row.spread(|run| Some(cost(run)));
            let seconds = Spread::of(&row.seconds);
            cells.push(if cost.count == 0 { "–".into() } else { thousands(cost.mean) });
            cells.push(if seconds.count == 0 { "–".into() } else { format!("{:.2}", seconds.mean) });
            cells.extend(noted.then(|| row.note(self.seeds.len())));
            cells
        };
        let caption = match self.seeds.len() {
            1 => format!("{}, seed {}", self.experiment, self.seeds[0]),
            n => format!("{}, mean ± sd of {n} seeds", self.experiment),
        };
        Table { columns, rows: self.rows.iter().map(row).collect(), caption }
    }

    /// Whether any run arrived.
    pub fn has_results(&self) -> bool {
        self.rows.iter().any(|row| row.arrived().next().is_some())
    }

    /// Sentences on what did not go well: one a cause, however many runs it ended.
    pub fn warnings(&self) -> Vec<String> {
        let mut said: Vec<String> = self.rows.iter().filter_map(|row| row.reason.clone()).collect();
        // What stands after what was seen tells causes apart, but for the numbers, which are others in every run.
        let mut causes: Vec<(String, Vec<&RunResult>)> = vec![];
        for run in self.rows.iter().flat_map(|row| &row.runs).filter(|run| run.stopped == "diverged") {
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
                [] => format!("{with}; it is in no mean"),
                others => format!("{with}; so did {}; they are in no mean", by_method(others)),
            });
        }
        said
    }

    /// The text of `compare.json`: all numbers but times.
    pub fn json(&self) -> String {
        let row = |row: &Row| {
            let named = |names: Vec<String>, spread: &dyn Fn(&str) -> Spread| {
                names.into_iter().map(|name| (name.clone(), spread(&name).json())).collect::<Map<_, _>>()
            };
            let run = |run: &RunResult| {
                let mut value = serde_json::to_value(run).unwrap_or_default();
                value["gradients"] = Value::from(cost(run));
                value
            };
            json!({
                "method": row.method,
                "note": row.note(self.seeds.len()),
                "reason": row.reason,
                "outer_loss": row.spread(|run| run.outer_loss).json(),
                "best_outer_loss": row.spread(|run| run.best_outer_loss).json(),
                "measures": named(self.measures(), &|name| row.measure(name)),
                "lambda": named(self.scalars(), &|name| row.lambda(name)),
                "gradients": row.spread(|run| Some(cost(run))).json(),
                "runs": row.runs.iter().map(run).collect::<Vec<_>>(),
            })
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        format!("{:#}\n", json!({ "experiment": self.experiment, "seeds": self.seeds, "methods": rows }))
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
