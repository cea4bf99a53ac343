//! Digits at equal cost: a penalty for each of 640 weights, learned by every method of the library with the same budget.
//!
//! The budget is in gradients, by the list in [`price`](crate::price). All methods train full batch from the same start, keep
//! θ warm, take the same inner step by one rule, and move λ by plain descent. The rate, T, and i where there is a solve, are
//! the best of one grid, the same for all, by the validation loss on one split; other splits are then run with that choice.
//! θ as the run leaves it is what is judged. Rates above 1e5 are not in the grid: they throw λ from bound to bound.
//!
//! It is held against numbers found before on another split, with settings that are not known, so it is the order of the
//! methods that can agree or not.

mod candidates;
mod order;
mod race;
mod references;
mod scores;

use crate::experiment::{Effort, Progress, Report};
use crate::prepared::Prepared;
use crate::{Figure, Row, Series, Verdict};
use bilevel::Result;
use candidates::{Candidate, Choices, candidates};
use order::Entry;
use race::{Ground, Probe, choose, probe, run};
use references::references;
use scores::score_rows;

const NAME: &str = "digits-equal-cost";

struct Scale {
    budget: f64,
    rates: &'static [f64],
    choices: Choices,
    splits: u64,
}

fn scale(effort: Effort) -> Scale {
    let quick = Scale {
        budget: 4000.0,
        rates: &[300.0, 3000.0, 3e4],
        choices: Choices { steps: &[10], solve: &[3] },
        splits: 1,
    };
    let full = Scale {
        budget: 8000.0,
        rates: &[30.0, 100.0, 300.0, 1000.0, 3000.0, 1e4, 3e4, 1e5],
        choices: Choices { steps: &[3, 10, 30, 100], solve: &[3, 10] },
        splits: 5,
    };
    effort.choose(quick, full)
}

/// A row that says why there are no numbers.
fn no_row(method: &str, setting: impl Into<String>, why: String) -> Row {
    let row = Row::new(NAME, method, "validation loss", f64::NAN).setting(setting);
    Row { seeds: 0, ..row.verdict(Verdict::NotRun(why)) }
}

/// A method's rows, its losses for the order, and its curve on the first split.
struct Found {
    rows: Vec<Row>,
    losses: Vec<Option<f64>>,
    curve: Vec<(f64, f64)>,
}

impl Found {
    fn nothing(row: Row) -> Self {
        Found { rows: vec![row], losses: vec![], curve: vec![] }
    }
}

fn compete(number: usize, candidate: &Candidate, tuning: &Ground, grounds: &[Ground], scale: &Scale) -> Result<Found> {
    let first = &candidate.variants[0];
    match probe(tuning, &*first.method, candidate.passes)? {
        Probe::DoesNotApply(why) => return Ok(Found::nothing(no_row(candidate.name, "", why))),
        Probe::Runs { price, .. } if price > scale.budget => {
            let why = format!("one hypergradient costs {price} gradients, more than the budget of {}", scale.budget);
            return Ok(Found::nothing(no_row(candidate.name, &first.setting, why)));
        }
        Probe::Runs { .. } => {}
    }
    let Some(choice) = choose(tuning, candidate, scale.rates, scale.budget)? else {
        return Ok(Found::nothing(no_row(candidate.name, "", "every rate of the grid diverges".into())));
    };
    let (mut scores, mut curve) = (vec![], vec![]);
    for (index, ground) in grounds.iter().enumerate() {
        // γ belongs to the split, so the method is made anew.
        let candidate = &candidates(ground.step, &scale.choices)[number];
        let method = Prepared::new(&*candidate.variants[choice.variant].method, &ground.session)?;
        let run = run(ground, &method, candidate.passes, choice.outer)?;
        scores.push(run.scores);
        if index == 0 {
            curve = run.curve;
        }
    }
    let setting = format!(
        "{}, rate {}, {} × {}",
        candidate.variants[choice.variant].setting, choice.outer.rate, choice.outer.iterations, choice.price
    );
    let rows = score_rows(candidate.name, &setting, &scores, candidate.expected);
    let losses = scores.iter().map(|s| s.map(|[validation, _]| validation.loss)).collect();
    Ok(Found { rows, losses, curve })
}

pub(crate) fn work(effort: Effort, progress: &mut Progress) -> Result<Report> {
    let scale = scale(effort);
    let tuning = Ground::new(0)?;
    let grounds = (1..=scale.splits).map(Ground::new).collect::<Result<Vec<_>>>()?;
    progress("plain training");
    let mut rows = references(&grounds, scale.budget)?;
    let (mut found, mut entries) = (vec![], vec![]);
    let mut series: Vec<Series> = vec![];
    for (number, candidate) in candidates(tuning.step, &scale.choices).iter().enumerate() {
        progress(candidate.name);
        let mut result = compete(number, candidate, &tuning, &grounds, &scale)?;
        let (method, expected) = (candidate.name.to_string(), candidate.expected);
        if !result.curve.is_empty() {
            series.push((method.clone(), std::mem::take(&mut result.curve)));
        }
        if !result.losses.is_empty() {
            entries.push(Entry { method, expected, losses: std::mem::take(&mut result.losses) });
        }
        found.extend(result.rows);
    }
    for row in found.iter_mut().filter(|row| row.metric == "validation loss") {
        if let Some(entry) = entries.iter().find(|entry| entry.method == row.method) {
            row.verdict = order::verdict(entry, &entries);
        }
    }
    rows.extend(found);
    let title = "Digits: validation loss over cost, one split".into();
    let figure = Figure { title, x: "cost in gradients", y: "validation loss", series };
    Ok(Report { rows, figures: vec![figure] })
}
