//! Invariance learning (the paper's table of transformed MNIST): does a network find out what its images may undergo?
//!
//! Beside the paper's rows: ranges that are known, the direct term of the hypergradient alone, other hypergradients, and networks
//! retrained on all images with the ranges that were found.

mod entries;
mod lila;

use crate::statistics::mean_sd;
use crate::tasks::invariance::{ACCURACY, Transformation, pictures};
use crate::{Context, Done, Findings, Finished, FinishedRun, Item, Plan, Row, Study, Verdict, figure, label};
use bilevel::Result;
use bilevel_report::Section;
use entries::{DIRECT, ENTRIES, Entry, HPO_SGLD, Kind, LILA, NON_INVARIANT, SETS, retrained, task_of};
use lila::Found;

const NAME: &str = "invariance";
/// The rotation among the generators.
const ROTATION: usize = 2;
/// Whose ranges a network is retrained with.
const RETRAINED: [&str; 2] = [DIRECT, HPO_SGLD];
/// Whose ranges are shown as views of a digit.
const DRAWN: [&str; 2] = [HPO_SGLD, LILA];
/// How far from the paper a network that is not invariant may be, and how far the best method from the paper's, in points.
const NEAR: [f64; 2] = [0.5, 0.7];

/// The least range at which a generator counts as found, in radians for the rotation.
const FOUND: f64 = 0.3;

/// The study.
pub(super) struct InvarianceTable;

fn sets(plan: &Plan) -> &'static [(&'static str, Transformation)] {
    plan.choose(&SETS[1..2], &SETS[..])
}

fn place(set: &str, entry: &str, seed: u64) -> String {
    label(&format!("{set} {entry} {seed}"))
}

fn afresh(set: &str, entry: &str, seed: u64) -> String {
    label(&format!("{set} {entry} {seed} afresh"))
}

impl Study for InvarianceTable {
    fn name(&self) -> &str {
        NAME
    }

    fn title(&self) -> &str {
        "Invariance learning on transformed MNIST"
    }

    fn items(&self, plan: &Plan) -> Result<Vec<Item>> {
        let mut items = vec![];
        if !can_run(plan) {
            return Ok(items);
        }
        for &(set, transformation) in sets(plan) {
            for entry in &ENTRIES {
                for seed in 0..entry.seeds(plan) {
                    items.push(entry.item(place(set, entry.name, seed), plan, transformation, seed)?);
                }
            }
        }
        Ok(items)
    }

    fn next(&self, plan: &Plan, done: &Finished) -> Result<Vec<Item>> {
        let mut items = vec![];
        for &(set, transformation) in sets(plan) {
            for entry in ENTRIES.iter().filter(|entry| RETRAINED.contains(&entry.name)) {
                for seed in 0..entry.seeds(plan) {
                    let Some(Done::Run(run)) = done.get(&place(set, entry.name, seed)) else { continue };
                    if run.arrived() && done.get(&afresh(set, entry.name, seed)).is_none() {
                        let config = retrained(plan, transformation, seed, ranges(run))?;
                        items.push(Item::run(afresh(set, entry.name, seed), config));
                    }
                }
            }
        }
        Ok(items)
    }

    fn findings(&self, plan: &Plan, done: &Finished) -> Result<Findings> {
        let (mut rows, mut sections, mut said) = (vec![], vec![], vec![]);
        if !can_run(plan) {
            let why = "needs MNIST: say where it is with --data DIR, or get it with 'bilevel data fetch mnist'";
            rows.push(Row::new(NAME, "all", METRIC, f64::NAN).verdict(Verdict::NotRun(why.into())));
            return Ok(Findings::new(rows, []));
        }
        for (number, &(set, transformation)) in sets(plan).iter().enumerate() {
            let mut curves = vec![];
            let mut best: Option<(f64, String)> = None;
            for entry in &ENTRIES {
                let runs = finished(done, |seed| place(set, entry.name, seed), entry.seeds(plan));
                let row = accuracy_row(entry.name, set, &runs);
                let (paper, reference) = (entry.paper[number], entry.reference[number]);
                let held = if plan.quick { row } else { judged(row.paper(paper).reference(reference), entry) };
                best = better(best, &held);
                rows.push(held);
                if learned(entry) {
                    rows.extend(range_rows(plan, entry, set, &runs));
                }
                if entry.kind == Kind::Lila {
                    let found = evidence(done, set, entry.seeds(plan));
                    rows.extend(evidence_rows(set, &found));
                    let series =
                        found.into_iter().enumerate().map(|(seed, run)| (format!("seed {seed}"), run.evidence));
                    sections.push(Section::Plot(figure(
                        format!("{set}: the marginal likelihood of the training images by LILA"),
                        "outer iteration",
                        EVIDENCE,
                        series.collect(),
                    )));
                }
                if let Some(run) = runs.first() {
                    curves.push((entry.name.to_string(), percent(&run.way)));
                }
            }
            for name in RETRAINED {
                let seeds = ENTRIES.iter().find(|entry| entry.name == name).map_or(0, |entry| entry.seeds(plan));
                let runs = finished(done, |seed| afresh(set, name, seed), seeds);
                let row = accuracy_row(&format!("{name}, retrained"), set, &runs);
                best = better(best, &row);
                rows.push(row);
            }
            if let Some((accuracy, name)) = best {
                let claim = ENTRIES.iter().find(|entry| entry.name == HPO_SGLD).and_then(|entry| entry.paper[number]);
                let claim = claim.filter(|_| !plan.quick);
                let row = Row::new(NAME, format!("best: {name}"), METRIC, accuracy).setting(set).paper(claim);
                rows.push(row.verdict(claim.map_or(Verdict::NotClaimed, |claim| match accuracy - claim {
                    gain if gain > 0.0 => Verdict::Better,
                    gain => Verdict::when(gain >= -NEAR[1], format!("{:.2} points below the paper's HPO-SGLD", -gain)),
                })));
                said.push(format!("{set}: {name} is best, with {accuracy:.2} % of test images."));
            }
            sections.push(Section::Plot(figure(
                format!("{set}: accuracy on test images"),
                "outer iteration",
                "test accuracy, %",
                curves,
            )));
            for name in DRAWN {
                if let Some(run) = finished(done, |seed| place(set, name, seed), 1).first() {
                    let whose = format!("{set}, ranges of {name}: ");
                    let context = Context { seed: plan.seed, data: plan.data.clone(), ..Context::default() };
                    let drawn = pictures(&task_of(plan, transformation), &run.ranges, &context, &whose);
                    sections.extend(drawn.map(Section::Pictures));
                }
            }
        }
        Ok(Findings { rows, sections, said, ..Findings::default() })
    }
}

const METRIC: &str = "test accuracy, %";

/// The full table needs MNIST.
fn can_run(plan: &Plan) -> bool {
    plan.quick || plan.data.is_some()
}

/// What a run or a measurement came to.
struct Outcome {
    /// The share of test images that are recognised.
    accuracy: Option<f64>,
    /// The same on the way.
    way: Vec<(f64, f64)>,
    ranges: Vec<f64>,
    price: f64,
    seconds: Option<f64>,
}

impl Outcome {
    /// Of the item with this label; none where it diverged.
    fn of(done: &Finished, label: &str) -> Option<Self> {
        let seconds = done.seconds(label);
        if let Ok(run) = done.run(label) {
            let (accuracy, way) = (run.measure(ACCURACY), run.history.measure(ACCURACY));
            let arrived = Outcome { accuracy, way, ranges: ranges(run).to_vec(), price: run.price, seconds };
            return run.arrived().then_some(arrived);
        }
        let Found { accuracy, way, ranges, price, .. } = done.measured(label).ok()?;
        accuracy.map(|_| Outcome { accuracy, way, ranges, price, seconds })
    }
}

fn finished(done: &Finished, place: impl Fn(u64) -> String, seeds: u64) -> Vec<Outcome> {
    (0..seeds).filter_map(|seed| Outcome::of(done, &place(seed))).collect()
}

fn ranges(run: &FinishedRun) -> &[f64] {
    run.lambda.first().map_or(&[], |leaf| &leaf.values)
}

fn percent(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    points.iter().map(|(x, y)| (*x, 100.0 * y)).collect()
}

fn learned(entry: &Entry) -> bool {
    !matches!(entry.kind, Kind::NonInvariant | Kind::Known)
}

fn accuracy_row(name: &str, set: &str, runs: &[Outcome]) -> Row {
    let found: Vec<f64> = runs.iter().filter_map(|run| run.accuracy).map(|a| 100.0 * a).collect();
    let (mean, sd) = mean_sd(&found);
    let row = Row::new(NAME, name, METRIC, mean).setting(set).over(sd, found.len() as u32);
    let row = row.cost(runs.first().map(|run| run.price)).took(runs.first().and_then(|run| run.seconds));
    match found.is_empty() {
        true => row.verdict(Verdict::NotRun("no run arrived".into())),
        false => row,
    }
}

fn better(best: Option<(f64, String)>, row: &Row) -> Option<(f64, String)> {
    match (best, row.ours) {
        (Some(best), Some(ours)) if ours > best.0 => Some((ours, row.method.clone())),
        (None, Some(ours)) => Some((ours, row.method.clone())),
        (best, _) => best,
    }
}

/// Held against the paper.
fn judged(row: Row, entry: &Entry) -> Row {
    let (Some(ours), Some(paper)) = (row.ours, row.paper) else { return row };
    let near = if entry.name == NON_INVARIANT { NEAR[0] } else { NEAR[1] };
    let verdict = match ours - paper {
        gain if gain > near => Verdict::Better,
        gain => Verdict::when(
            gain >= -near,
            format!(
                "{:.2} points below: {}",
                -gain,
                match entry.kind {
                    Kind::Lila => "its authors train for 1000 epochs, this row for 36",
                    _ => "the paper does not say how images are scaled nor for how long θ is trained",
                }
            ),
        ),
    };
    row.verdict(verdict)
}

const EVIDENCE: &str = "−log p(D)/N";

/// What LILA's runs say beside their ranges.
fn evidence(done: &Finished, set: &str, seeds: u64) -> Vec<Found> {
    let found = (0..seeds).filter_map(|seed| done.measured::<Found>(&place(set, LILA, seed)).ok());
    found.filter(|run| run.accuracy.is_some()).collect()
}

/// The marginal likelihood of the last fit, and the precisions of the prior.
fn evidence_rows(set: &str, runs: &[Found]) -> Vec<Row> {
    let row = |metric: String, of: &dyn Fn(&Found) -> Option<f64>| {
        let found: Vec<f64> = runs.iter().filter_map(of).collect();
        let (mean, sd) = mean_sd(&found);
        (!found.is_empty()).then(|| Row::new(NAME, LILA, metric, mean).setting(set).over(sd, found.len() as u32))
    };
    let mut rows = vec![row(EVIDENCE.into(), &|run| run.evidence.last().map(|(_, value)| *value))];
    rows.extend(
        [0, 1].map(|layer| row(format!("δ of layer {}", layer + 1), &|run| run.precisions.get(layer).copied())),
    );
    rows.into_iter().flatten().collect()
}

/// What λ says: the range of the rotation, and the largest of the others.
fn range_rows(plan: &Plan, entry: &Entry, set: &str, runs: &[Outcome]) -> Vec<Row> {
    let of = |what: &dyn Fn(&[f64]) -> f64| runs.iter().map(|run| what(&run.ranges)).collect::<Vec<f64>>();
    let rotation = of(&|l| l.get(ROTATION).map_or(f64::NAN, |range| range.abs()));
    let largest = |l: &[f64]| {
        let others = l.iter().enumerate().filter(|(i, _)| *i != ROTATION);
        others.map(|(_, range)| range.abs()).fold(0.0, f64::max)
    };
    let others = of(&largest);
    if rotation.is_empty() {
        return vec![];
    }
    let (paper, reference) = match (entry.name == HPO_SGLD && !plan.quick, set) {
        (true, "Rot-180") => (Some(10.0), Some(30.2)),
        (true, "Rot-90") => (Some(1.04), Some(1.27)),
        _ => (None, None),
    };
    let row = |metric: &str, found: &[f64]| {
        let (mean, sd) = mean_sd(found);
        Row::new(NAME, entry.name, metric, mean).setting(set).over(sd, found.len() as u32)
    };
    let (turn, other) = (mean_sd(&rotation).0, mean_sd(&others).0);
    let alone = turn > FOUND && other < 0.2 * turn;
    let verdict = match set {
        "Rot-180" | "Rot-90" if !plan.quick => Verdict::when(
            alone,
            if turn > FOUND {
                format!("beside the rotation, {turn:.2}, another generator has the range {other:.2}")
            } else {
                format!("the rotation has the range {turn:.2}, which is next to none")
            },
        ),
        _ => Verdict::NotClaimed,
    };
    vec![
        row("range of the rotation", &rotation).paper(paper).reference(reference).verdict(verdict),
        row("largest other range", &others),
    ]
}
