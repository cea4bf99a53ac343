//! Do learned hyperparameters generalise? Ways to choose penalties, weights of rows, ranges and rates, on the same labelled rows.
//!
//! Every row of a table is trained and tuned on the same n labelled rows of a dataset, and judged on other rows. Tables
//! show its difference to *one value tuned by five folds, trained on all n rows*: the mean over splits, with its
//! standard error.

mod cases;
mod ways;

use bilevel::Result;
use bilevel_report::{Column, Table};
use bilevel_run::statistics::mean_sd;
use bilevel_run::{Findings, Finished, Item, Plan, Row, Study, Verdict, label};
use cases::{Case, cases};
use ways::{Kind, REFERENCE, Score, WAYS, Way, Work};

const NAME: &str = "generalisation";
/// A difference of this many standard errors counts.
const ERRORS: f64 = 2.0;

/// The scores of each applicable way, split by split.
type Scores<'a> = Vec<(&'a Way, Vec<Score>)>;

fn item(case: &Case, way: &Way, split: u64) -> String {
    label(&format!("{} {} {split}", case.name, way.name))
}

/// The ways that apply to a case.
fn ways_of(case: &Case) -> impl Iterator<Item = &'static Way> {
    WAYS.iter().filter(|way| way.applies(&case.learned, case.variations))
}

/// The study.
pub(super) struct Generalisation;

impl Study for Generalisation {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Beyond the paper: hyperparameters that generalise, on the same labelled rows"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let mut items = vec![];
        for case in cases(plan) {
            for split in 0..case.splits {
                for way in ways_of(&case) {
                    let work = Work {
                        learned: case.learned.clone(),
                        way: way.name.into(),
                        split: plan.seed + split,
                        iterations: case.iterations,
                        steps: plan.choose(100, 400),
                    };
                    items.push(Item::measure(item(&case, way, split), work));
                }
            }
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let (mut rows, mut tables, mut said) = (vec![], vec![], vec![]);
        let mut tally = Tally::default();
        let all = cases(plan);
        for case in &all {
            let of = |way: &Way| -> Result<Vec<Score>> {
                (0..case.splits).map(|split| done.measured(&item(case, way, split))).collect()
            };
            let scores: Scores = ways_of(case).map(|way| Ok((way, of(way)?))).collect::<Result<_>>()?;
            let reference = scores.iter().find(|(way, _)| way.name == REFERENCE).map(|(_, scores)| scores.clone());
            let reference = reference.unwrap_or_default();
            for (way, found) in &scores {
                rows.extend(shown(case, way, found, &reference, plan));
            }
            said.extend(tally.add(case, &scores, &reference));
            tables.push(table(case, &scores, &reference));
        }
        tables.insert(0, tally.table(all.len()));
        rows.extend(tally.rows());
        said.push(tally.sentence(all.len()));
        if !plan.is_quick() && plan.data.is_none() {
            said.push("All but the digits need files: give their folder with --data DIR.".into());
        }
        Ok(Findings { rows, tables, said, ..Findings::default() })
    }
}

/// How often the best of our ways, and each of them, is better or worse than a baseline by more than two standard errors.
#[derive(Default)]
struct Tally {
    /// The best of our ways against the best baseline.
    best: [Vec<&'static str>; 2],
    /// Each of the others against the reference.
    each: Vec<(&'static Way, [usize; 2], usize)>,
}

impl Tally {
    /// Takes in a case; a sentence on it.
    fn add(&mut self, case: &Case, scores: &Scores<'static>, reference: &[Score]) -> Option<String> {
        for (way, found) in scores.iter().filter(|(way, _)| way.kind != Kind::Variation && way.name != REFERENCE) {
            let verdict = Standing::of(paired(&losses_of(found), &losses_of(reference)));
            if !self.each.iter().any(|(known, ..)| known.name == way.name) {
                self.each.push((way, [0, 0], 0));
            }
            for (_, counts, of) in self.each.iter_mut().filter(|(known, ..)| known.name == way.name) {
                counts[0] += usize::from(verdict == Standing::Better);
                counts[1] += usize::from(verdict == Standing::Worse);
                *of += 1;
            }
        }
        let (ours, ours_scores) = least(scores, Kind::Ours)?;
        let (base, base_scores) = least(scores, Kind::Baseline)?;
        let (mean, error) = paired(&losses_of(ours_scores), &losses_of(base_scores));
        match Standing::of((mean, error)) {
            Standing::Better => self.best[0].push(case.name),
            Standing::Worse => self.best[1].push(case.name),
            Standing::Equal => {}
        }
        Some(format!(
            "{}: the best of our ways is '{}', its test loss differs by {mean:+.4} ± {error:.4} from that of the best baseline, \
             '{}'.",
            case.name, ours.name, base.name
        ))
    }

    fn sentence(&self, count: usize) -> String {
        let [better, worse] = &self.best;
        let named = |names: &[&str]| if names.is_empty() { String::new() } else { format!(" ({})", names.join("; ")) };
        format!(
            "The best of our ways is better than the best baseline by more than two standard errors on {} of {count} cases{}, and \
             worse on {}{}. Both are chosen by their mean test loss, case by case.",
            better.len(),
            named(better),
            worse.len(),
            named(worse)
        )
    }

    fn table(&self, count: usize) -> Table {
        let row = |(way, [better, worse], of): &(&'static Way, [usize; 2], usize)| {
            vec![way.name.to_string(), better.to_string(), worse.to_string(), of.to_string()]
        };
        Table {
            columns: vec![
                Column::text("λ"),
                Column::numeric("better"),
                Column::numeric("worse"),
                Column::numeric("cases"),
            ],
            rows: self.each.iter().map(row).collect(),
            caption: format!(
                "Test loss of each way against that of {REFERENCE}: cases, of {count}, on which it is better or worse by more \
                 than two standard errors"
            ),
        }
    }

    fn rows(&self) -> Vec<Row> {
        let [better, worse] = self.best.each_ref().map(|names| names.len() as f64);
        let mut rows = vec![
            Row::new(NAME, "the best of our ways", "cases better than the best baseline", better),
            Row::new(NAME, "the best of our ways", "cases worse than the best baseline", worse),
        ];
        for (way, [better, worse], _) in &self.each {
            rows.push(Row::new(NAME, way.name, "cases better than one tuned by folds", *better as f64));
            rows.push(Row::new(NAME, way.name, "cases worse than one tuned by folds", *worse as f64));
        }
        rows
    }
}

/// Whether a difference of losses is no chance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Better,
    Equal,
    Worse,
}

impl Standing {
    fn of((mean, error): (f64, f64)) -> Self {
        match () {
            _ if mean < -ERRORS * error => Standing::Better,
            _ if mean > ERRORS * error => Standing::Worse,
            _ => Standing::Equal,
        }
    }
}

fn losses_of(scores: &[Score]) -> Vec<f64> {
    scores.iter().map(|score| score.loss).collect()
}

fn errors_of(scores: &[Score]) -> Vec<f64> {
    scores.iter().map(|score| score.error).collect()
}

/// The mean of paired differences over splits, and its standard error.
fn paired(ours: &[f64], theirs: &[f64]) -> (f64, f64) {
    let off: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a - b).collect();
    let (mean, sd) = mean_sd(&off);
    (mean, sd / (off.len() as f64).sqrt())
}

/// The way of this kind with the least mean test loss.
fn least<'a>(all: &'a Scores<'static>, kind: Kind) -> Option<(&'static Way, &'a [Score])> {
    let mean = |scores: &[Score]| mean_sd(&losses_of(scores)).0;
    let known = all.iter().filter(|(way, _)| way.kind == kind);
    let best = known.min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)))?;
    Some((best.0, &best.1))
}

fn shown(case: &Case, way: &Way, scores: &[Score], reference: &[Score], plan: &Plan) -> Vec<Row> {
    let seeds = scores.len() as u32;
    let mut rows = vec![];
    for (metric, of) in [("test loss", losses_of as fn(&[Score]) -> Vec<f64>), ("test error", errors_of)] {
        let (ours, theirs) = (of(scores), of(reference));
        let (mean, sd) = mean_sd(&ours);
        rows.push(Row::new(NAME, way.name, metric, mean).setting(case.name).over(sd, seeds));
        let (difference, error) = paired(&ours, &theirs);
        let row = Row::new(NAME, way.name, format!("{metric} less that of {REFERENCE}"), difference);
        let verdict = match () {
            _ if plan.is_quick() || way.name == REFERENCE || metric != "test loss" => Verdict::NotClaimed,
            _ if difference < -ERRORS * error => Verdict::Better,
            _ => Verdict::NotClaimed,
        };
        // Spread over splits, so that it has the standard error that is said.
        rows.push(row.setting(case.name).over(error * f64::from(seeds).sqrt(), seeds).verdict(verdict));
        let name = format!("standard error of the difference in {metric}");
        rows.push(Row::new(NAME, way.name, name, error).setting(case.name));
    }
    rows
}

fn table(case: &Case, all: &Scores, reference: &[Score]) -> Table {
    let line = |(way, scores): &(&Way, Vec<Score>)| {
        let (loss, error) = (losses_of(scores), errors_of(scores));
        let cell = |of: (f64, f64), digits: usize| format!("{:+.digits$} ± {:.digits$}", of.0, of.1);
        let seconds = scores.iter().map(|score| score.seconds).sum::<f64>() / scores.len().max(1) as f64;
        vec![
            way.name.to_string(),
            format!("{:.4}", mean_sd(&loss).0),
            cell(paired(&loss, &losses_of(reference)), 4),
            format!("{:.2}", 100.0 * mean_sd(&error).0),
            cell(
                paired(
                    &error.iter().map(|e| 100.0 * e).collect::<Vec<_>>(),
                    &errors_of(reference).iter().map(|e| 100.0 * e).collect::<Vec<_>>(),
                ),
                2,
            ),
            format!("{seconds:.1}"),
        ]
    };
    Table {
        columns: vec![
            Column::text("λ"),
            Column::numeric("test loss"),
            Column::numeric("difference"),
            Column::numeric("error, %"),
            Column::numeric("difference"),
            Column::numeric("seconds"),
        ],
        rows: all.iter().map(line).collect(),
        caption: format!(
            "{}, {} labelled rows, {} splits; differences to {REFERENCE}",
            case.name,
            case.learned.rows(),
            case.splits
        ),
    }
}
