//! Digits at equal cost: a penalty for each of 640 weights, learned by every method of the library with the same budget.
//!
//! The budget is in gradients, by the list in [`price`](bilevel_run::price). All methods train full batch from the same start, keep
//! θ warm, take the same inner step by one rule, and move λ by plain descent. The rate, T, and i if there is a solve,
//! are the best of one grid for all methods, by the validation loss on one split. Other splits are then run with that
//! choice. The final θ of a run is judged. Rates above 1e5 are not in the grid, because they throw λ from bound to
//! bound.
//!
//! It is compared with numbers found before on another split, with settings that are not known, so it is the order of
//! the methods that can agree or not.

mod candidates;
mod order;
mod race;
mod references;
mod scores;

use bilevel::Result;
use bilevel::optimizers::InnerOptimizer;
use bilevel_run::{Config, Findings, Finished, Item, Plan, Row, Series, Study, Verdict, figure, label};
use candidates::{Candidate, Choices, candidates};
use order::Entry;
use race::{Choice, Chosen, Race, Run, Tuning};
use references::{Plain, References, references};
use scores::score_rows;

const NAME: &str = "digits-equal-cost";

struct Scale {
    budget: f64,
    rates: &'static [f64],
    choices: Choices,
    splits: u64,
}

fn scale(plan: &Plan) -> Scale {
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
    plan.choose(quick, full)
}

/// A run on a split, but for its method, rate and length.
fn config(plan: &Plan, split: u64) -> Result<Config> {
    let mut config = plan.run(&race::task())?.seeded(plan.seed + split);
    config.outer.optimizer = bilevel_run::Settings::new("sgd", &InnerOptimizer::Sgd);
    config.metrics.diagnose = 0;
    Ok(config)
}

fn tuning(candidate: &Candidate) -> String {
    label(&format!("{} tuning", candidate.name))
}

fn racing(candidate: &Candidate, split: u64) -> String {
    label(&format!("{} split {split}", candidate.name))
}

fn plain(split: u64) -> String {
    format!("plain-training-split-{split}")
}

/// All methods, with the step of the split that settings are chosen on.
fn field(plan: &Plan) -> Vec<Candidate> {
    candidates(race::step(plan.seed), &scale(plan).choices)
}

/// The study.
pub(super) struct DigitsEqualCost;

impl Study for DigitsEqualCost {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Beyond the paper: a penalty for each weight of a digit classifier, at equal cost"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let Scale { budget, rates, choices, splits } = scale(plan);
        let mut items = vec![];
        for split in 1..=splits {
            let references = References { config: config(plan, split)?, steps: budget as usize };
            items.push(Item::measure(plain(split), references));
        }
        for (number, candidate) in field(plan).iter().enumerate() {
            let rates = rates.to_vec();
            let tuned = Tuning { config: config(plan, 0)?, candidate: number, choices, rates, budget };
            items.push(Item::measure(tuning(candidate), tuned));
        }
        Ok(items)
    }

    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        let Scale { choices, splits, .. } = scale(plan);
        let mut items = vec![];
        for (number, candidate) in field(plan).iter().enumerate() {
            let Chosen::Choice(choice) = done.measured(&tuning(candidate))? else { continue };
            for split in (1..=splits).filter(|split| done.get(&racing(candidate, *split)).is_none()) {
                let race = Race { config: config(plan, split)?, candidate: number, choices, choice: choice.clone() };
                items.push(Item::measure(racing(candidate, split), race));
            }
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let scale = scale(plan);
        let found =
            (1..=scale.splits).map(|split| done.measured::<Plain>(&plain(split))).collect::<Result<Vec<_>>>()?;
        let mut rows = references(&found, scale.budget as usize);
        let (mut learned, mut entries, mut series): (Vec<Row>, Vec<Entry>, Vec<Series>) = (vec![], vec![], vec![]);
        for candidate in field(plan) {
            let (name, expected) = (candidate.name, candidate.expected);
            let Choice { variant, rate, iterations, price } = match done.measured(&tuning(&candidate))? {
                Chosen::Choice(choice) => choice,
                Chosen::NotRun(why) => {
                    let row = Row::new(NAME, name, "validation loss", f64::NAN);
                    learned.push(row.without_runs(Verdict::NotRun(why)));
                    continue;
                }
            };
            let runs = (1..=scale.splits).map(|split| done.measured::<Run>(&racing(&candidate, split)));
            let mut runs = runs.collect::<Result<Vec<_>>>()?;
            let scores: Vec<_> = runs.iter().map(|run| run.scores).collect();
            let setting = format!("{}, rate {rate}", candidate.variants[variant].setting);
            learned.extend(score_rows(name, &setting, &scores, (expected, f64::from(iterations) * price)));
            let losses = scores.iter().map(|s| s.map(|[validation, _]| validation.loss)).collect();
            entries.push(Entry { method: name.to_string(), expected, losses });
            series.push((name.to_string(), std::mem::take(&mut runs[0].curve)));
        }
        for row in learned.iter_mut().filter(|row| row.metric == "validation loss") {
            if let Some(entry) = entries.iter().find(|entry| entry.method == row.method) {
                row.verdict = order::verdict(entry, &entries);
            }
        }
        rows.extend(learned);
        let title = "Digits: validation loss over cost, one split";
        Ok(Findings::new(rows, [figure(title, "cost in gradients", "validation loss", series)]))
    }
}
