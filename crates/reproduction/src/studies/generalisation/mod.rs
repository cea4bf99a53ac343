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
/// Splits of a case that are computed one after another.
const BLOCK: u64 = 10;
/// A difference of this many standard errors counts.
const ERRORS: f64 = 2.0;

const AT_AN_END: &str = "tuned values at an end of their grid";

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
        let all = cases(plan);
        let most = all.iter().map(|case| case.splits).max().unwrap_or(0);
        // The first splits of all cases come first, so that an interrupted study has them.
        for from in (0..most).step_by(BLOCK as usize) {
            for case in &all {
                for split in from..case.splits.min(from + BLOCK) {
                    for way in ways_of(case) {
                        let work = Work {
                            learned: case.learned.clone(),
                            way: way.name.into(),
                            split: plan.seed + split,
                            iterations: case.iterations,
                            steps: plan.choose(100, 400),
                        };
                        items.push(Item::measure(item(case, way, split), work));
                    }
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
            let (of_case, sentence) = tally.add(case, &scores, &reference);
            rows.extend(of_case);
            said.extend(sentence);
            tables.push(table(case, &scores, &reference));
        }
        tables.insert(0, tally.table(all.len()));
        rows.extend(tally.rows());
        said.extend(tally.sentences(all.len()));
        if !plan.is_quick() && plan.data.is_none() {
            said.push("All but the digits need files: give their folder with --data DIR.".into());
        }
        Ok(Findings { rows, tables, said, ..Findings::default() })
    }
}

/// A number by which a way is judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Metric {
    Loss,
    Error,
}

impl Metric {
    const ALL: [Metric; 2] = [Metric::Loss, Metric::Error];

    fn name(self) -> &'static str {
        match self {
            Metric::Loss => "test loss",
            Metric::Error => "test error",
        }
    }

    fn of(self, scores: &[Score]) -> Vec<f64> {
        let one = |score: &Score| if self == Metric::Loss { score.loss } else { score.error };
        scores.iter().map(one).collect()
    }
}

/// How the best of our ways and the best baseline of a case are chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChosenOn {
    /// By their means over all splits, those they are compared on.
    AllSplits,
    /// For each split by their means over the others.
    OtherSplits,
}

impl ChosenOn {
    const ALL: [ChosenOn; 2] = [ChosenOn::AllSplits, ChosenOn::OtherSplits];

    fn name(self) -> &'static str {
        match self {
            ChosenOn::AllSplits => "chosen on all splits",
            ChosenOn::OtherSplits => "chosen on the other splits",
        }
    }

    /// The score of the best of a kind on each split.
    fn best(self, all: &Scores<'static>, kind: Kind, metric: Metric) -> Vec<f64> {
        let of_kind = all.iter().filter(|(way, _)| way.kind == kind);
        let of_kind: Vec<Vec<f64>> = of_kind.map(|(_, scores)| metric.of(scores)).collect();
        let splits = of_kind.first().map_or(0, Vec::len);
        let at = |split: usize| {
            let sum = |scores: &Vec<f64>| {
                let own = if self == ChosenOn::OtherSplits { scores[split] } else { 0.0 };
                scores.iter().sum::<f64>() - own
            };
            of_kind.iter().min_by(|a, b| sum(a).total_cmp(&sum(b))).map(|scores| scores[split])
        };
        (0..splits).filter_map(at).collect()
    }
}

/// Cases in which one is better and in which it is worse than another by more than two standard errors.
#[derive(Default)]
struct Count {
    better: Vec<&'static str>,
    worse: Vec<&'static str>,
    cases: usize,
}

impl Count {
    fn add(&mut self, case: &Case, difference: (f64, f64)) {
        self.cases += 1;
        match Standing::of(difference) {
            Standing::Better => self.better.push(case.name),
            Standing::Worse => self.worse.push(case.name),
            Standing::Equal => {}
        }
    }
}

/// A way against the reference and against the best baseline that other splits choose.
struct Standings {
    way: &'static Way,
    against: [[Count; 2]; 2],
}

impl Standings {
    const AGAINST: [&str; 2] = ["one tuned by folds", "the best baseline"];
}

/// How often the best of our ways, and each of them, is better or worse than a baseline.
#[derive(Default)]
struct Tally {
    /// The best of our ways against the best baseline: for each choice of both, by loss and by error.
    best: [[Count; 2]; 2],
    each: Vec<Standings>,
    /// Tuned values at an end of their grid, and all.
    ends: usize,
    tuned: usize,
}

impl Tally {
    /// Takes in a case: its rows, and a sentence on it.
    fn add(&mut self, case: &Case, scores: &Scores<'static>, reference: &[Score]) -> (Vec<Row>, Option<String>) {
        let mut rows = vec![];
        for (way, found) in scores.iter().filter(|(way, _)| way.kind != Kind::Variation && way.name != REFERENCE) {
            if !self.each.iter().any(|known| known.way.name == way.name) {
                self.each.push(Standings { way, against: Default::default() });
            }
            for known in self.each.iter_mut().filter(|known| known.way.name == way.name) {
                for (place, metric) in Metric::ALL.into_iter().enumerate() {
                    let baseline = ChosenOn::OtherSplits.best(scores, Kind::Baseline, metric);
                    for (against, theirs) in [metric.of(reference), baseline].into_iter().enumerate() {
                        known.against[against][place].add(case, paired(&metric.of(found), &theirs));
                    }
                }
            }
        }
        for (at, chosen) in ChosenOn::ALL.into_iter().enumerate() {
            for (place, metric) in Metric::ALL.into_iter().enumerate() {
                let [ours, theirs] = [Kind::Ours, Kind::Baseline].map(|kind| chosen.best(scores, kind, metric));
                let (mean, error) = paired(&ours, &theirs);
                self.best[at][place].add(case, (mean, error));
                let method = format!("the best of our ways, {}", chosen.name());
                let name = format!("{} less that of the best baseline", metric.name());
                let row = |name: String, number: f64| Row::new(NAME, method.clone(), name, number).setting(case.name);
                rows.push(row(format!("standard error of {name}"), error));
                rows.push(row(name, mean));
            }
        }
        for (way, found) in scores.iter() {
            let ends: Vec<bool> = found.iter().filter_map(|score| score.at_an_end).collect();
            if !ends.is_empty() {
                let count = ends.iter().filter(|is_at_an_end| **is_at_an_end).count();
                self.ends += count;
                self.tuned += ends.len();
                rows.push(Row::new(NAME, way.name, AT_AN_END, count as f64).setting(case.name));
            }
        }
        let sentence = || {
            let (ours, ours_scores) = least(scores, Kind::Ours)?;
            let (base, base_scores) = least(scores, Kind::Baseline)?;
            let (mean, error) = paired(&Metric::Loss.of(ours_scores), &Metric::Loss.of(base_scores));
            Some(format!(
                "{}: the best of our ways is '{}', its test loss differs by {mean:+.4} ± {error:.4} from that of the best \
                 baseline, '{}'.",
                case.name, ours.name, base.name
            ))
        };
        (rows, sentence())
    }

    fn sentences(&self, count: usize) -> Vec<String> {
        let named = |names: &[&str]| if names.is_empty() { String::new() } else { format!(" ({})", names.join("; ")) };
        let mut said = vec![];
        for (chosen, counts) in ChosenOn::ALL.into_iter().zip(&self.best) {
            for (metric, Count { better, worse, .. }) in Metric::ALL.into_iter().zip(counts) {
                said.push(format!(
                    "The {} of the best of our ways is better than that of the best baseline by more than two standard errors on \
                     {} of {count} cases{}, and worse on {}{}. Both are {}, case by case.",
                    metric.name(),
                    better.len(),
                    named(better),
                    worse.len(),
                    named(worse),
                    chosen.name()
                ));
            }
        }
        said.push(format!("Of {} tuned values {} are at an end of their grid.", self.tuned, self.ends));
        said
    }

    fn table(&self, count: usize) -> Table {
        let row = |Standings { way, against }: &Standings| {
            let counts = against.iter().flatten().flat_map(|Count { better, worse, .. }| [better.len(), worse.len()]);
            let cases = against[0][0].cases;
            [vec![way.name.to_string()], counts.map(|count| count.to_string()).collect(), vec![cases.to_string()]]
                .concat()
        };
        let of = |metric: Metric, against: &str| {
            ["better", "worse"].map(|word| Column::numeric(format!("{}: {word} than {against}", metric.name())))
        };
        let numbers = Standings::AGAINST
            .iter()
            .flat_map(|against| Metric::ALL.into_iter().flat_map(|metric| of(metric, against)));
        Table {
            columns: [Column::text("λ")].into_iter().chain(numbers).chain([Column::numeric("cases")]).collect(),
            rows: self.each.iter().map(row).collect(),
            caption: format!(
                "Cases, of {count}, on which a way is better or worse by more than two standard errors; the best baseline is chosen \
                 on the other splits"
            ),
        }
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = vec![];
        for (chosen, counts) in ChosenOn::ALL.into_iter().zip(&self.best) {
            for (metric, Count { better, worse, .. }) in Metric::ALL.into_iter().zip(counts) {
                let method = format!("the best of our ways, {}", chosen.name());
                for (word, cases) in [("better", better), ("worse", worse)] {
                    let name = format!("cases {word} than the best baseline{}", by(metric));
                    rows.push(Row::new(NAME, method.clone(), name, cases.len() as f64));
                }
            }
        }
        for Standings { way, against } in &self.each {
            for (other, counts) in Standings::AGAINST.iter().zip(against) {
                for (metric, Count { better, worse, .. }) in Metric::ALL.into_iter().zip(counts) {
                    for (word, cases) in [("better", better), ("worse", worse)] {
                        let name = format!("cases {word} than {other}{}", by(metric));
                        rows.push(Row::new(NAME, way.name, name, cases.len() as f64));
                    }
                }
            }
        }
        rows.push(Row::new(NAME, "all baselines", AT_AN_END, self.ends as f64));
        rows.push(Row::new(NAME, "all baselines", "tuned values", self.tuned as f64));
        rows
    }
}

/// The end of a row's name: losses need none.
fn by(metric: Metric) -> &'static str {
    if metric == Metric::Error { ", by error" } else { "" }
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

/// The mean of paired differences over splits, and its standard error.
fn paired(ours: &[f64], theirs: &[f64]) -> (f64, f64) {
    let off: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a - b).collect();
    let (mean, sd) = mean_sd(&off);
    (mean, sd / (off.len() as f64).sqrt())
}

/// The way of this kind with the least mean test loss.
fn least<'a>(all: &'a Scores<'static>, kind: Kind) -> Option<(&'static Way, &'a [Score])> {
    let mean = |scores: &[Score]| mean_sd(&Metric::Loss.of(scores)).0;
    let known = all.iter().filter(|(way, _)| way.kind == kind);
    let best = known.min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)))?;
    Some((best.0, &best.1))
}

fn shown(case: &Case, way: &Way, scores: &[Score], reference: &[Score], plan: &Plan) -> Vec<Row> {
    let seeds = scores.len() as u32;
    let mut rows = vec![];
    for metric in Metric::ALL {
        let (ours, theirs, metric) = (metric.of(scores), metric.of(reference), metric.name());
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
        let [loss, error] = Metric::ALL.map(|metric| metric.of(scores));
        let cell = |of: (f64, f64), digits: usize| format!("{:+.digits$} ± {:.digits$}", of.0, of.1);
        let seconds = scores.iter().map(|score| score.seconds).sum::<f64>() / scores.len().max(1) as f64;
        vec![
            way.name.to_string(),
            format!("{:.4}", mean_sd(&loss).0),
            cell(paired(&loss, &Metric::Loss.of(reference)), 4),
            format!("{:.2}", 100.0 * mean_sd(&error).0),
            cell(
                paired(
                    &error.iter().map(|e| 100.0 * e).collect::<Vec<_>>(),
                    &Metric::Error.of(reference).iter().map(|e| 100.0 * e).collect::<Vec<_>>(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(losses: [f64; 3]) -> Vec<Score> {
        losses.map(|loss| Score { loss, error: 1.0 - loss, seconds: 0.0, at_an_end: None }).to_vec()
    }

    #[test]
    fn the_best_chosen_on_other_splits_is_not_chosen_by_the_split_it_is_judged_on() {
        let of = |kind: Kind| WAYS.iter().filter(move |way| way.kind == kind);
        let [one, other]: [&'static Way; 2] = [of(Kind::Ours).next().unwrap(), of(Kind::Ours).nth(1).unwrap()];
        // The first is the best by its mean, and the worst on the splits other than its best one.
        let all: Scores = vec![(one, scores([0.0, 0.6, 0.6])), (other, scores([0.5, 0.5, 0.5]))];
        let best = |chosen: ChosenOn| chosen.best(&all, Kind::Ours, Metric::Loss);
        assert_eq!(best(ChosenOn::AllSplits), [0.0, 0.6, 0.6]);
        assert_eq!(best(ChosenOn::OtherSplits), [0.5, 0.6, 0.6]);
    }

    #[test]
    fn a_difference_counts_from_two_standard_errors() {
        let difference = paired(&[1.0, 2.0, 3.0], &[2.0, 3.0, 3.0]);
        assert!((difference.0 + 2.0 / 3.0).abs() < 1e-12 && (difference.1 - 1.0 / 3.0).abs() < 1e-12, "{difference:?}");
        assert!(Standing::of((-0.21, 0.1)) == Standing::Better && Standing::of((0.21, 0.1)) == Standing::Worse);
        assert!(Standing::of((-0.19, 0.1)) == Standing::Equal && Standing::of((f64::NAN, 0.1)) == Standing::Equal);
    }
}
