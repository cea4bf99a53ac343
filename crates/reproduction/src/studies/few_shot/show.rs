//! The study for people: rows with their verdicts, a table for each kind of task, curves and reliability diagrams.

use super::plan::{Entry, Held, Setup};
use super::{NAME, POINTS};
use bilevel::Result;
use bilevel_report::{Axis, Column, Curve, Plot, Section, Table};
use bilevel_run::run::IterationRow;
use bilevel_run::{Findings, Finished, FinishedRun, Plan, Row, Series, Verdict, figure};
use bilevel_tasks::few_shot::Judgement;

/// Within this many points of a published accuracy it counts as the same.
const NEAR: f64 = 1.0;
/// A loss above this is off the plot: guessing among 20 classes has a loss of 3.
const WORST: f64 = 10.0;

/// The outcome of a method on tasks of one kind.
struct Outcome<'a> {
    entry: &'a Entry,
    run: Option<&'a FinishedRun>,
    judged: Option<Judgement>,
}

impl Outcome<'_> {
    fn title(&self) -> String {
        let Entry { name, detail, .. } = self.entry;
        if detail.is_empty() { name.to_string() } else { format!("{name} ({detail})") }
    }

    /// In %.
    fn accuracy(&self) -> Option<f64> {
        self.judged.as_ref().map(|judged| 100.0 * judged.accuracy())
    }

    /// The cost of its training.
    fn cost(&self) -> String {
        let (iterations, tasks) = (self.entry.outer.2, self.entry.task.tasks);
        let planned = format!("{iterations} iterations of {tasks} tasks");
        self.run.map_or(planned.clone(), |run| format!("{planned}, {:.0} gradients, {:.0} s", run.price, run.seconds))
    }
}

/// The method of a setup that others are compared with.
fn maml<'a, 'b>(all: &'a [Outcome<'b>]) -> Option<&'a Outcome<'b>> {
    all.iter().find(|outcome| outcome.entry.name == "MAML")
}

/// A sentence on the difference in cost between a row of HPO-SGLD and MAML's.
fn unequal(outcome: &Outcome, maml: &Outcome) -> String {
    format!("{} and MAML are not compared at equal cost: {} against {}", outcome.title(), outcome.cost(), maml.cost())
}

/// All of it.
pub(super) fn findings(plan: &Plan, setups: &[Setup], done: &Finished) -> Result<Findings> {
    let mut found = Findings { said: vec![how(plan)], ..Findings::default() };
    for setup in setups {
        if let Some(why) = setup.missing(plan) {
            for entry in setup.entries.iter().filter(|entry| entry.paper.is_some() || entry.reference.is_some()) {
                let row = Row::new(NAME, entry.name, "accuracy, %", f64::NAN).setting(&setup.name);
                let row = row.paper(entry.paper).reference(entry.reference);
                found.rows.push(row.verdict(Verdict::NotRun(why.clone())));
            }
            continue;
        }
        let outcomes: Vec<Outcome> = setup
            .entries
            .iter()
            .map(|entry| Outcome {
                entry,
                run: done.run(&entry.label(setup)).ok(),
                judged: done.measured(&entry.test_label(setup)).ok(),
            })
            .collect();
        for outcome in &outcomes {
            found.rows.extend(rows(plan, setup, outcome, &outcomes));
        }
        found.tables.push(table(setup, &outcomes));
        found.said.extend(sentence(setup, &outcomes));
        let claims = outcomes.iter().filter(|outcome| outcome.entry.held == Held::Claim && outcome.judged.is_some());
        let pairs = claims.filter_map(|outcome| Some(unequal(outcome, maml(&outcomes)?)));
        found.said.extend(pairs.map(|said| format!("{}: {said}.", setup.name)));
        found.sections.extend(curves(setup, &outcomes));
        found.sections.push(reliability(setup, &outcomes));
    }
    Ok(found)
}

fn how(plan: &Plan) -> String {
    let tests = plan.choose("20 tasks and few iterations: to see that it works", "600 tasks");
    format!(
        "Accuracy on classes never seen before, {tests}; batch norms take the statistics of the images at hand, queries included, as \
         MAML does."
    )
}

fn rows(plan: &Plan, setup: &Setup, outcome: &Outcome, all: &[Outcome]) -> Vec<Row> {
    let entry = outcome.entry;
    let setting = match entry.detail {
        "" => setup.name.clone(),
        detail => format!("{}, {detail}", setup.name),
    };
    let row = |metric: &str, ours: Option<f64>| {
        let row = Row::new(NAME, entry.name, metric, ours.unwrap_or(f64::NAN)).setting(&setting);
        row.cost(outcome.run.map(|run| run.price)).took(outcome.run.map(|run| run.seconds))
    };
    let accuracy = row("accuracy, %", outcome.accuracy()).paper(entry.paper).reference(entry.reference);
    let interval = outcome.judged.as_ref().map(|judged| 100.0 * judged.interval());
    let error = outcome.judged.as_ref().map(|judged| 100.0 * judged.calibration_error());
    vec![
        accuracy.verdict(verdict(plan, outcome, all)),
        row("95 % interval of the accuracy, ± %", interval),
        row("expected calibration error, %", error).paper(entry.paper_error),
    ]
}

fn verdict(plan: &Plan, outcome: &Outcome, all: &[Outcome]) -> Verdict {
    let entry = outcome.entry;
    if plan.is_quick() {
        return Verdict::NotClaimed;
    }
    let Some(ours) = outcome.accuracy() else {
        let lost = outcome.run.map_or("the method does not apply".into(), |run| run.result.because.clone());
        return Verdict::NotReproduced(format!("no λ came out of it: {lost}"));
    };
    let iterations = entry.outer.2;
    if entry.held == Held::Claim {
        let Some((maml, best)) = maml(all).and_then(|maml| Some((maml, maml.accuracy()?))) else {
            return Verdict::NotReproduced("the paper has it above MAML, of which there is no result here".into());
        };
        let why = format!(
            "the paper has it above MAML, which reaches {best:.1} here. {}. The printed recursion replaces the \
            contraction by the curvature with a Taylor term, and with batch norms the inner step times the curvature \
            is far above 1",
            unequal(outcome, maml)
        );
        return Verdict::when(ours > best, why);
    }
    let held = match (entry.held, entry.paper) {
        (_, Some(paper)) => paper,
        (Held::Published, None) => match entry.reference {
            Some(reference) => reference,
            None => return Verdict::NotClaimed,
        },
        _ => return Verdict::NotClaimed,
    };
    if ours > held + NEAR {
        return Verdict::Better;
    }
    let why = format!(
        "{:.1} points below the published number, after {iterations} iterations of {} tasks; the publication has tens \
        of thousands",
        held - ours,
        entry.task.tasks
    );
    Verdict::when(ours >= held - NEAR, why)
}

fn table(setup: &Setup, outcomes: &[Outcome]) -> Table {
    let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.1}"));
    let row = |outcome: &Outcome| {
        let judged = |of: fn(&Judgement) -> f64| outcome.judged.as_ref().map(|judged| 100.0 * of(judged));
        let interval = judged(Judgement::interval).map_or(String::new(), |interval| format!(" ± {interval:.1}"));
        vec![
            outcome.title(),
            number(outcome.entry.paper),
            number(outcome.entry.reference),
            number(outcome.accuracy()) + &interval,
            number(judged(Judgement::calibration_error)),
            outcome.run.map_or("–".into(), |run| run.result.iterations.to_string()),
            number(outcome.run.map(|run| run.seconds)),
        ]
    };
    let numeric = ["paper", "reference", "accuracy, %", "ECE, %", "iterations", "seconds"].map(Column::numeric);
    Table {
        columns: [Column::text("method")].into_iter().chain(numeric).collect(),
        rows: outcomes.iter().map(row).collect(),
        caption: format!("{}, {} test tasks, 95 % intervals", setup.name, setup.tests),
    }
}

/// The best, the best calibrated, and how often learning was lost.
fn sentence(setup: &Setup, outcomes: &[Outcome]) -> Option<String> {
    let judged: Vec<(&Outcome, &Judgement)> =
        outcomes.iter().filter_map(|outcome| Some((outcome, outcome.judged.as_ref()?))).collect();
    let (best, accuracy) = judged.iter().max_by(|a, b| a.1.accuracy().total_cmp(&b.1.accuracy()))?;
    let (calm, error) = judged.iter().min_by(|a, b| a.1.calibration_error().total_cmp(&b.1.calibration_error()))?;
    Some(format!(
        "{}: the most accurate is {} with {:.1} %, the best calibrated {} with an error of {:.1} %.",
        setup.name,
        best.title(),
        100.0 * accuracy.accuracy(),
        calm.title(),
        100.0 * error.calibration_error()
    ))
}

/// The loss on the queries of the training tasks over the iterations, each curve as a share of its whole, averaged over stretches of it.
fn curves(setup: &Setup, outcomes: &[Outcome]) -> Option<Section> {
    let one = |outcome: &Outcome| -> Option<Series> {
        let rows = &outcome.run?.history.rows;
        let stretch = rows.len().div_ceil(POINTS as usize).max(1);
        let whole = f64::from(outcome.entry.outer.2);
        let point = |rows: &[IterationRow]| {
            let losses: Vec<f64> = rows.iter().filter_map(|row| row.outer_loss).collect();
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            (mean.is_finite() && mean < WORST).then_some((f64::from(rows.last()?.iteration) / whole, mean))
        };
        let points: Vec<(f64, f64)> = rows.chunks(stretch).filter_map(point).collect();
        (!points.is_empty()).then(|| (outcome.title(), points))
    };
    let series: Vec<Series> = outcomes.iter().filter_map(one).collect();
    let title = format!("{}: loss on the queries of the training tasks", setup.name);
    (!series.is_empty()).then(|| Section::Plot(figure(title, "share of the training", "outer loss", series)))
}

fn reliability(setup: &Setup, outcomes: &[Outcome]) -> Section {
    let curve =
        |outcome: &Outcome| Some(Curve::new(outcome.title(), outcome.judged.as_ref()?.reliability()).with_markers());
    let perfect = Curve::new("as confident as right", [(0.0, 0.0), (1.0, 1.0)]).dashed();
    Section::Plot(Plot {
        title: format!("{}: how often predictions are right, by their confidence", setup.name),
        x: Axis::linear("mean confidence of the bin"),
        y: Axis::linear("share that is right"),
        curves: [perfect].into_iter().chain(outcomes.iter().filter_map(curve)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::setups;
    use super::*;
    use bilevel_run::Registry;

    #[test]
    fn the_verdict_of_hpo_sgld_says_that_it_is_not_at_equal_cost_with_maml_and_what_both_cost() {
        let registry = crate::register(bilevel_tasks::register(Registry::new()));
        let plan = Plan::new(&registry);
        let all = setups(&plan);
        let outcome = |entry| Outcome { entry, run: None, judged: Some(Judgement::default()) };
        let outcomes: Vec<Outcome> = all[0].entries.iter().map(outcome).collect();
        let claims: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.entry.held == Held::Claim).collect();
        assert_eq!(claims.len(), 2);
        for claim in claims {
            let verdict = verdict(&plan, claim, &outcomes);
            let why = verdict.why();
            assert!(why.contains("not compared at equal cost"), "{why}");
            assert!(why.contains("300 iterations of 16 tasks against 6000 iterations of 32 tasks"), "{why}");
        }
        let alone = verdict(&plan, &outcomes[9], &outcomes[9..]);
        assert!(alone.why().contains("no result here"), "{alone:?}");
    }
}
