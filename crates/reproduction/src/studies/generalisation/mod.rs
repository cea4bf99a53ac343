//! Do learned hyperparameters generalise? Ways to choose thousands of penalties, on the same number of labelled rows.
//!
//! Every row of a table is trained and tuned on the same n labelled rows of a dataset, and judged on other rows; what is shown is the mean
//! over splits of its difference to *one penalty tuned by five folds, trained on all n rows*, with its standard error.

mod ways;

use bilevel::Result;
use bilevel_report::{Column, Table};
use bilevel_run::statistics::mean_sd;
use bilevel_run::{Findings, Finished, Item, Plan, Row, Study, Verdict, label};
use bilevel_tasks::{FewRows, RowSource};
use ways::{BASELINES, OURS, WAYS, Way, Work};

const NAME: &str = "generalisation";
/// What all are compared with.
const REFERENCE: &str = "one tuned by folds, all rows";

/// A dataset with few labelled rows.
struct Case {
    name: &'static str,
    task: FewRows,
}

/// All cases; in quick form those on embedded digits, with fewer rows.
fn cases(plan: &Plan) -> Vec<Case> {
    let case = |name, source, rows, hidden| {
        let task = FewRows { source, rows, hidden, test: 1000, start: -5.0 };
        Case { name, task }
    };
    let digits = plan.choose(60, 200);
    let mut all = vec![case("digits, 640 λ", RowSource::Digits, digits, 0)];
    if !plan.is_quick() {
        all.push(case("digits, network, 1200 λ", RowSource::Digits, 300, 16));
    }
    if !plan.is_quick() && plan.data.is_some() {
        all.extend([
            case("a9a, 123 λ", RowSource::A9a, 400, 0),
            case("ijcnn1, 22 λ", RowSource::Ijcnn1, 300, 0),
            case("heart, 13 λ", RowSource::Heart, 80, 0),
            case("abalone, 8 λ", RowSource::Abalone, 100, 0),
            case("breast cancer, 30 λ", RowSource::BreastCancer, 100, 0),
            case("wine, 39 λ", RowSource::Wine, 60, 0),
            case("MNIST, 7840 λ", RowSource::Mnist, 300, 0),
        ]);
    }
    all
}

fn splits(plan: &Plan) -> u64 {
    plan.choose(2, 5)
}

fn item(case: &Case, way: &Way, split: u64) -> String {
    label(&format!("{} {} {split}", case.name, way.name))
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
            for split in 0..splits(plan) {
                for way in &WAYS {
                    let work = Work {
                        task: case.task.clone(),
                        way: way.name.into(),
                        split: plan.seed + split,
                        iterations: plan.choose(60, 200),
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
        let (mut wins, mut losses) = (vec![], vec![]);
        for case in cases(plan) {
            let of = |way: &Way| -> Result<Vec<ways::Score>> {
                (0..splits(plan)).map(|split| done.measured(&item(&case, way, split))).collect()
            };
            let all: Vec<(&Way, Vec<ways::Score>)> =
                WAYS.iter().map(|way| Ok((way, of(way)?))).collect::<Result<_>>()?;
            let reference = all.iter().find(|(way, _)| way.name == REFERENCE).map(|(_, scores)| scores.clone());
            let reference = reference.unwrap_or_default();
            for (way, scores) in &all {
                rows.extend(shown(&case, way, scores, &reference, plan));
            }
            let (best, base) = (least(&all, &OURS), least(&all, &BASELINES));
            if let (Some((ours, ours_scores)), Some((base, base_scores))) = (best, base) {
                let (mean, error) = paired(&losses_of(ours_scores), &losses_of(base_scores));
                said.push(format!(
                    "{}: the best of our ways is {}, its test loss differs by {mean:+.4} ± {error:.4} from that of the \
                     best baseline, {}.",
                    case.name, ours.name, base.name
                ));
                match () {
                    _ if mean < -2.0 * error => wins.push(case.name),
                    _ if mean > 2.0 * error => losses.push(case.name),
                    _ => {}
                }
            }
            tables.push(table(&case, &all, &reference));
        }
        let count = cases(plan).len();
        said.push(format!(
            "Better than the best baseline by more than two standard errors on {} of {count} tasks, worse on {}. Both bests are chosen \
             by test loss.",
            wins.len(),
            losses.len()
        ));
        if !plan.is_quick() && plan.data.is_none() {
            said.push("All but the digits need files: say where they are with --data DIR.".into());
        }
        Ok(Findings { rows, tables, said, ..Findings::default() })
    }
}

fn losses_of(scores: &[ways::Score]) -> Vec<f64> {
    scores.iter().map(|score| score.loss).collect()
}

fn errors_of(scores: &[ways::Score]) -> Vec<f64> {
    scores.iter().map(|score| score.error).collect()
}

/// The mean of paired differences over splits, and its standard error.
fn paired(ours: &[f64], theirs: &[f64]) -> (f64, f64) {
    let off: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a - b).collect();
    let (mean, sd) = mean_sd(&off);
    (mean, sd / (off.len() as f64).sqrt())
}

/// The way of these with the least mean test loss.
fn least<'a>(all: &'a [(&'a Way, Vec<ways::Score>)], names: &[&str]) -> Option<(&'a Way, &'a [ways::Score])> {
    let mean = |scores: &[ways::Score]| mean_sd(&losses_of(scores)).0;
    let known = all.iter().filter(|(way, _)| names.contains(&way.name));
    let best = known.min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)))?;
    Some((best.0, &best.1))
}

fn shown(case: &Case, way: &Way, scores: &[ways::Score], reference: &[ways::Score], plan: &Plan) -> Vec<Row> {
    let seeds = scores.len() as u32;
    let mut rows = vec![];
    for (metric, of) in [("test loss", losses_of as fn(&[ways::Score]) -> Vec<f64>), ("test error", errors_of)] {
        let (ours, theirs) = (of(scores), of(reference));
        let (mean, sd) = mean_sd(&ours);
        rows.push(Row::new(NAME, way.name, metric, mean).setting(case.name).over(sd, seeds));
        let (difference, error) = paired(&ours, &theirs);
        let row = Row::new(NAME, way.name, format!("{metric} less that of {REFERENCE}"), difference);
        let verdict = match () {
            _ if plan.is_quick() || way.name == REFERENCE || metric != "test loss" => Verdict::NotClaimed,
            _ if difference < -2.0 * error => Verdict::Better,
            _ => Verdict::NotClaimed,
        };
        // Spread over splits, so that it has the standard error that is said.
        rows.push(row.setting(case.name).over(error * f64::from(seeds).sqrt(), seeds).verdict(verdict));
    }
    rows
}

fn table(case: &Case, all: &[(&Way, Vec<ways::Score>)], reference: &[ways::Score]) -> Table {
    let line = |(way, scores): &(&Way, Vec<ways::Score>)| {
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
        caption: format!("{}, {} labelled rows; differences to {REFERENCE}", case.name, case.task.rows),
    }
}
