//! What came out, row by row, beside the paper and the reference.

use super::entries::{ABLATION, Entry, Printed, RMD_FO, column, entries};
use super::work::{Errors, Learned, PlainErrors};
use super::{NAME, Scale, View, entry_label, plain_label};
use crate::spread::Spread;
use crate::studies::deep::{STEPS, Seeds};
use crate::{Finished, Plan, Row, Verdict};
use bilevel::Result;

/// A gain over plain training that differs from the paper's by less is the same, in points.
const TOLERANCE: f64 = 1.5;
/// Errors of plain trainings that differ from the reference's by less are the same, in points: both are of few seeds, each with
/// pictures of its own.
const NEAR: f64 = 3.0;

/// A run whose network ends this many points above plain training has ruined it.
const COLLAPSE: f64 = 8.0;

/// All that came out on one set of pictures.
pub(super) struct Found {
    pub view: View,
    /// Of each seed.
    pub plain: Vec<PlainErrors>,
    /// The same, trained on the validation pictures as well.
    pub both: Vec<PlainErrors>,
    /// Of each entry, over its seeds.
    pub learned: Vec<(Entry, Vec<Learned>)>,
}

impl Found {
    /// Errors over the seeds of an entry that arrived.
    pub fn errors(runs: &[Learned]) -> Vec<Errors> {
        runs.iter().filter_map(|run| run.errors).collect()
    }

    /// Errors of plain trainings at one of the shared penalties.
    pub fn shared(&self, penalty: f64) -> Vec<Errors> {
        let of = |plain: &PlainErrors| plain.shared.iter().find(|(known, _)| *known == penalty)?.1;
        self.plain.iter().filter_map(of).collect()
    }

    /// The penalty of the grid with the least validation error, and its errors, for each seed.
    pub fn tuned(&self) -> Vec<(f64, Errors)> {
        let best = |plain: &PlainErrors| {
            let arrived = plain.shared.iter().filter_map(|(penalty, errors)| Some((*penalty, (*errors)?)));
            arrived.min_by(|a, b| a.1.validation.total_cmp(&b.1.validation))
        };
        self.plain.iter().filter_map(best).collect()
    }

    /// The first entry of a method with this setting.
    pub fn entry(&self, method: &str, setting: &str) -> Option<&(Entry, Vec<Learned>)> {
        self.learned.iter().find(|(entry, _)| entry.method == method && entry.setting == setting)
    }
}

/// Reads back what was done.
pub(super) fn read(scale: &Scale, plan: &Plan, view: View, done: &Finished) -> Result<Found> {
    let main = scale.is_main(view);
    let seeds = || scale.seeds(plan, if main { Seeds::All } else { Seeds::One });
    let plain = |both: bool| -> Result<Vec<PlainErrors>> {
        seeds().map(|seed| done.measured(&plain_label(view, both, seed))).collect()
    };
    let mut learned = vec![];
    for entry in entries(scale, view, &scale.task(view)) {
        // A set beside the main one has its first seed only.
        let seeds = seeds().filter(|seed| scale.seeds(plan, entry.seeds).contains(seed));
        let runs = seeds.map(|seed| done.measured(&entry_label(view, &entry, seed))).collect::<Result<_>>()?;
        learned.push((entry, runs));
    }
    Ok(Found { view, plain: plain(false)?, both: plain(true)?, learned })
}

/// The row of pictures that are not there.
pub(super) fn not_run(view: View, plan: &Plan) -> Row {
    let why = view.set.missing(plan.data.as_deref()).to_string();
    Row::new(NAME, "all", "test error in %", f64::NAN).setting(view.name()).verdict(Verdict::NotRun(why))
}

type Metric = (&'static str, fn(&Errors) -> f64);

/// By which λ was chosen, and which nobody has seen.
const METRICS: [Metric; 2] = [("test error in %", |e| e.test), ("validation error in %", |e| e.validation)];

/// All rows of a set.
pub(super) fn rows(scale: &Scale, found: &Found) -> Vec<Row> {
    let mut rows = vec![];
    let referred = found.view.is_of_reference();
    let mut plain = |method: &str, errors: &[Errors], reference: Option<f64>, steps: u32| {
        for (metric, pick) in METRICS {
            let row = row(found, method, "", metric, errors, pick).cost(f64::from(steps));
            let reference = reference.filter(|_| referred && metric.starts_with("test"));
            let verdict = match reference.zip(row.ours) {
                Some((reference, ours)) => Verdict::when(
                    (ours - reference).abs() <= NEAR,
                    format!("{:+.1} points from the reference, which drew other pictures", ours - reference),
                ),
                None => Verdict::NotClaimed,
            };
            rows.push(row.reference(reference).verdict(verdict));
        }
    };
    let steps = STEPS as u32 * scale.iterations(found.view, Seeds::All);
    let warm: Vec<Errors> = found.plain.iter().filter_map(|plain| plain.warm).collect();
    plain("warm-up", &warm, Some(35.3), 0);
    for &penalty in &scale.grid {
        let reference = if penalty == 0.0 { Some(36.1) } else { Some(36.3).filter(|_| penalty == 1e-4) };
        plain(&format!("λ = {penalty} for all weights"), &found.shared(penalty), reference, steps);
    }
    let tuned: Vec<Errors> = found.tuned().iter().map(|(_, errors)| *errors).collect();
    plain("one λ, the best of a grid", &tuned, None, steps * scale.grid.len() as u32);
    let both: Vec<Errors> = found.both.iter().filter_map(|plain| plain.shared.first()?.1).collect();
    plain("trained on the validation pictures too", &both, Some(30.1), steps);
    let constant = found.shared(scale.task(found.view).start);
    for (metric, pick) in METRICS {
        let row = row(found, "RMD-FO", "which keeps λ where it starts", metric, &constant, pick).cost(f64::from(steps));
        let printed = column(found.view.set).map(|column| RMD_FO[column]).filter(|_| metric.starts_with("test"));
        rows.push(row.paper(printed));
    }
    for (entry, runs) in &found.learned {
        rows.extend(of_entry(found, &constant, entry, runs));
    }
    rows
}

fn row(found: &Found, method: &str, setting: &str, metric: &str, errors: &[Errors], pick: fn(&Errors) -> f64) -> Row {
    let spread = Spread::of(&errors.iter().map(pick).collect::<Vec<_>>());
    let setting = match setting {
        "" => found.view.name(),
        setting => format!("{}, {setting}", found.view.name()),
    };
    let row = Row::new(NAME, method, metric, spread.mean).setting(setting);
    if errors.len() > 1 { row.over(spread.sd, spread.count as u32) } else { row }
}

/// The rows of an entry: at the end of its runs, where the second validation set would have stopped them, and after retraining.
fn of_entry(found: &Found, constant: &[Errors], entry: &Entry, runs: &[Learned]) -> Vec<Row> {
    let errors = Found::errors(runs);
    let mean = |pick: fn(&Learned) -> Option<f64>| Spread::of(&runs.iter().filter_map(pick).collect::<Vec<_>>()).mean;
    let mut rows = vec![];
    for (metric, pick) in METRICS {
        let row = row(found, entry.method, &entry.setting, metric, &errors, pick).cost(mean(|run| Some(run.price)));
        if metric.starts_with("test") {
            let paper = if let Printed::Error(error) = entry.paper { Some(error) } else { None };
            let verdict = verdict(found, constant, entry, runs, row.ours);
            rows.push(row.paper(paper).reference(entry.reference).verdict(verdict));
        } else {
            rows.push(row);
        }
    }
    if entry.seeds == Seeds::All && runs.iter().any(|run| run.way.len() > 1) {
        let best = |run: &Learned| {
            let way = run.way.iter().map(|(_, errors)| *errors);
            way.min_by(|a, b| a.second.total_cmp(&b.second)).filter(|_| run.errors.is_some())
        };
        let stopped: Vec<Errors> = runs.iter().filter_map(best).collect();
        let setting = format!("{}, stopped by a second validation set", entry.setting);
        rows.extend(METRICS.map(|(metric, pick)| row(found, entry.method, &setting, metric, &stopped, pick)));
    }
    if entry.retrain {
        let retrained: Vec<Errors> = runs.iter().filter_map(|run| run.retrained).collect();
        let setting = format!("{}, retrained with λ", entry.setting);
        rows.extend(METRICS.map(|(metric, pick)| row(found, entry.method, &setting, metric, &retrained, pick)));
    }
    rows.retain(|row| row.ours.is_some() || row.verdict != Verdict::NotClaimed);
    rows
}

/// Networks and pictures are not the paper's, so it is the gain over plain training that is held against the paper's gain: in the
/// paper and here, RMD-FO is plain training with λ where it starts, as its hypergradient is exactly 0 (`constant` are its errors).
fn verdict(found: &Found, constant: &[Errors], entry: &Entry, runs: &[Learned], ours: Option<f64>) -> Verdict {
    let lost: Vec<&str> = runs.iter().filter_map(|run| run.diverged.as_deref()).collect();
    if let Some(why) = lost.first() {
        if entry.paper == Printed::Diverged {
            return Verdict::Reproduced;
        }
        return Verdict::NotReproduced(format!("{} of {} runs {why}", lost.len(), runs.len()));
    }
    let (Some(ours), Some(column)) = (ours, column(found.view.set)) else { return Verdict::NotClaimed };
    let printed = match entry.paper {
        Printed::Error(error) => error,
        Printed::Diverged => return Verdict::NotReproduced("it diverged in the paper and does not here".into()),
        Printed::Nothing => return Verdict::NotClaimed,
    };
    let fewest = || found.entry("HPO-SGLD", "M = 1, B = 5").map(|(_, runs)| Found::errors(runs));
    let (beside, base, paper_base) = match entry.ablation {
        Some(_) => ("M = 1", fewest().unwrap_or_default(), ABLATION[0].1),
        None => ("plain training", constant.to_vec(), RMD_FO[column]),
    };
    let our_base = Spread::of(&base.iter().map(|errors| errors.test).collect::<Vec<_>>()).mean;
    if base.is_empty() {
        return Verdict::NotClaimed;
    }
    let (gain, claimed) = (our_base - ours, paper_base - printed);
    if gain > claimed + TOLERANCE {
        return Verdict::Better;
    }
    let collapse = collapse(constant, runs).map_or(String::new(), |why| format!("; {why}"));
    let why = format!(
        "beside {beside} it changes the error by {:+.1} points here and by {:+.1} in the paper, whose network is a \
         ViT-B/16{collapse}",
        -gain, -claimed
    );
    Verdict::when((gain - claimed).abs() <= TOLERANCE, why)
}

/// What became of a network whose run did not diverge, but ends far above plain training: how large its penalties are, and how many
/// weights they hold at 0.
pub(super) fn collapse(constant: &[Errors], runs: &[Learned]) -> Option<String> {
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| Spread::of(&values).mean);
    let plain = mean(constant.iter().map(|errors| errors.test).collect())?;
    let ours = mean(Found::errors(runs).iter().map(|errors| errors.test).collect())?;
    if ours < plain + COLLAPSE {
        return None;
    }
    let run = runs.iter().find(|run| run.errors.is_some())?;
    let (count, sum) = run
        .layers
        .iter()
        .fold((0, 0.0), |(count, sum), layer| (count + layer.count, sum + layer.mean * layer.count as f64));
    let held = run.held.map_or(String::new(), |held| format!(" and hold {held:.0} % of the weights at 0"));
    let size = sum / count.max(1) as f64;
    Some(format!("its penalties grew to {size:.2e} on average{held}: the outer rate is too large for it"))
}
