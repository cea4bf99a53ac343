//! The study for people: tables, sentences, curves, and the learned weights as pictures.

use super::{BOTH, EVIDENCE, NAME, NONE, Outcome, Point, SHARED, Scores};
use bilevel_report::{Axis, Column, Curve, Panel, Pictures, Plot, Section, Table, count};
use bilevel_run::spread::Spread;
use bilevel_run::{Findings, Row, Task, Verdict};
use bilevel_tasks::DigitsL2;
use bilevel_tasks::digits::Score;

type Part = (&'static str, fn(&Scores) -> Score);

/// The three parts of the digits.
const PARTS: [Part; 3] = [("training", |s| s.train), ("validation", |s| s.validation), ("test", |s| s.test)];

/// A number of the scores, by its name.
type Metric = (&'static str, fn(&Scores) -> f64);

/// The quantity of a plot: its name, its value during a run, and that of a finished classifier.
type Look = (&'static str, fn(&Point) -> f64, fn(&Scores) -> f64);

/// All of it.
pub(super) fn findings(outcome: &Outcome) -> Findings {
    let text = |title: &str, text: String| Section::Text { title: title.into(), text };
    let mut sections = vec![text("How the study works", introduction(outcome)), text("During the runs", on_the_way())];
    let by_iteration = Axis::linear("outer iteration");
    let by_cost = || Axis::linear("cost after the grid search, in gradients");
    let validation: Look = ("Validation loss", |p| p.validation_loss, |s| s.validation.loss);
    let test: Look = ("Test loss", |p| p.test_loss, |s| s.test.loss);
    let accuracy: Look = ("Test accuracy, %", |p| 100.0 * p.test_accuracy, |s| 100.0 * s.test.accuracy);
    sections.push(plot(outcome, "over outer iterations", by_iteration, &|p| p.iteration as f64, validation));
    for look in [validation, test, accuracy] {
        sections.push(plot(outcome, "over cost", by_cost(), &|p| p.cost, look));
    }
    sections.push(text("The learned weights", on_pictures()));
    sections.extend(
        outcome.scale.methods.iter().filter_map(|method| pictures(outcome, method.name)).map(Section::Pictures),
    );
    sections.push(Section::Code { title: "Settings".into(), text: settings(outcome) });
    Findings {
        warnings: warnings(outcome),
        rows: rows(outcome),
        tables: vec![losses(outcome), accuracies(outcome)],
        said: sentences(outcome),
        sections,
    }
}

fn rows(outcome: &Outcome) -> Vec<Row> {
    let metrics: [Metric; 4] = [
        ("training loss", |s| s.train.loss),
        ("validation loss", |s| s.validation.loss),
        ("test loss", |s| s.test.loss),
        ("test accuracy", |s| s.test.accuracy),
    ];
    let mut rows = vec![];
    for name in outcome.names().into_iter().chain([BOTH, EVIDENCE]) {
        let mean =
            |pick: fn(&super::Trial) -> f64| Spread::of(&outcome.trials(name).map(pick).collect::<Vec<_>>()).mean;
        for (metric, pick) in metrics {
            let Spread { mean: ours, sd, count } = outcome.spread(name, pick);
            let row = Row::new(NAME, name, metric, ours).over(sd, count as u32).cost(mean(|trial| trial.cost));
            rows.push(row.took(mean(|trial| trial.seconds)));
        }
        for trial in outcome.trials(name) {
            if let Some(why) = &trial.failed {
                let row = Row::new(NAME, name, "classifiers", 0.0).setting(format!("split {}", trial.split));
                rows.push(row.verdict(Verdict::NotRun(why.clone())));
            }
        }
    }
    rows
}

fn over(outcome: &Outcome) -> String {
    match outcome.scale.splits.len() {
        1 => "one split".into(),
        n => format!("mean ± sd of {n} splits"),
    }
}

fn losses(outcome: &Outcome) -> Table {
    let cell = |name: &str, part: &Part| outcome.spread(name, |scores| part.1(scores).loss).fixed(3);
    table(outcome, format!("Loss, {}", over(outcome)), &cell)
}

/// Accuracies, with cost and time.
fn accuracies(outcome: &Outcome) -> Table {
    let cell = |name: &str, part: &Part| outcome.spread(name, |scores| 100.0 * part.1(scores).accuracy).fixed(1);
    let mut table = table(outcome, format!("Accuracy in %, {}", over(outcome)), &cell);
    table.columns.extend([Column::numeric("gradients"), Column::numeric("seconds")]);
    for (row, name) in table.rows.iter_mut().zip(outcome.names()) {
        let mean =
            |pick: fn(&super::Trial) -> f64| Spread::of(&outcome.trials(name).map(pick).collect::<Vec<_>>()).mean;
        row.extend([count(mean(|trial| trial.cost)), format!("{:.1}", mean(|trial| trial.seconds))]);
    }
    table
}

fn table(outcome: &Outcome, caption: String, cell: &dyn Fn(&str, &Part) -> String) -> Table {
    let row = |name: &'static str| {
        std::iter::once(name.to_string()).chain(PARTS.iter().map(|part| cell(name, part))).collect()
    };
    Table {
        columns: std::iter::once(Column::text("weights")).chain(PARTS.map(|part| Column::numeric(part.0))).collect(),
        rows: outcome.names().into_iter().map(row).collect(),
        caption,
    }
}

/// The results in sentences; every number is from this study.
fn sentences(outcome: &Outcome) -> Vec<String> {
    let validation = |name: &str| outcome.spread(name, |scores| scores.validation.loss).mean;
    let test = |name: &str| outcome.spread(name, |scores| scores.test.loss).mean;
    let accuracy = |name: &str| 100.0 * outcome.spread(name, |scores| scores.test.accuracy).mean;
    let least = |of: &dyn Fn(&str) -> f64| {
        let names = outcome.names().into_iter().filter(|name| of(name).is_finite());
        names.min_by(|a, b| of(a).total_cmp(&of(b))).unwrap_or(NONE)
    };
    let (chosen, tested) = (least(&validation), least(&test));
    let mut said = vec![];
    said.push(if chosen == tested {
        format!("Best on validation and on test digits: {chosen}.")
    } else {
        format!("Best on validation digits: {chosen}; on test digits: {tested}.")
    });
    let learned = outcome.scale.methods.iter().map(|method| method.name);
    let better = learned.clone().filter(|name| test(name) < test(SHARED)).count();
    let beaten = match (better, outcome.scale.methods.len()) {
        (0, _) => "no method beats".to_string(),
        (all, count) if all == count => format!("all {count} methods beat"),
        (some, count) => format!("{some} of {count} methods beat"),
    };
    said.push(format!("On test digits {beaten} one tuned weight, whose loss is {:.3}.", test(SHARED)));
    said.push(fit(outcome));
    let pick = |name: &str| losses_on_splits(outcome, name).into_iter().map(|(_, test)| test).collect::<Vec<_>>();
    let better = match Spread::of_differences(&pick(tested), &pick(BOTH)).is_above_zero() {
        true => "Labels are more useful in training",
        false => "For comparison",
    };
    said.push(format!(
        "{better}: one tuned weight, trained on the validation digits as well, has a test loss of {:.3} and an \
         accuracy of {:.1} %.",
        test(BOTH),
        accuracy(BOTH)
    ));
    said.push(format!(
        "With a weight for each parameter by the evidence, which needs no validation digits, training on the same digits gives a \
         test loss of {:.3} and an accuracy of {:.1} %.",
        test(EVIDENCE),
        accuracy(EVIDENCE)
    ));
    said
}

/// Validation and test losses on the splits that have them.
fn losses_on_splits(outcome: &Outcome, name: &str) -> Vec<(f64, f64)> {
    let scores = outcome.trials(name).filter_map(|trial| trial.scores);
    scores.map(|scores| (scores.validation.loss, scores.test.loss)).collect()
}

/// Whether learned weights fit the digits they were chosen on better than others. A method overfits if its test loss exceeds its
/// validation loss by more than two standard errors of the difference over the splits.
fn fit(outcome: &Outcome) -> String {
    let learned = outcome.scale.methods.iter().map(|method| method.name);
    let gap = |name: &str| {
        let (validation, test): (Vec<f64>, Vec<f64>) = losses_on_splits(outcome, name).into_iter().unzip();
        Spread::of_differences(&test, &validation)
    };
    let largest = |(_, a): &(&str, Spread), (_, b): &(&str, Spread)| a.mean.total_cmp(&b.mean);
    let gaps: Vec<(&str, Spread)> =
        learned.map(|name| (name, gap(name))).filter(|(_, gap)| gap.mean.is_finite()).collect();
    let losses = |name: &str| {
        let mean = |pick: fn(&Scores) -> f64| outcome.spread(name, pick).mean;
        format!(
            "{:.3} on validation digits and {:.3} on test digits",
            mean(|s| s.validation.loss),
            mean(|s| s.test.loss)
        )
    };
    let shown = |gap: &Spread| format!("a difference of {:+.3} ± {:.3}", gap.mean, gap.standard_error());
    if let Some((worst, gap)) = gaps.iter().filter(|(_, gap)| gap.is_above_zero()).copied().max_by(largest) {
        return format!(
            "640 weights chosen on 599 digits overfit those digits: {worst} has a loss of {}, {} (standard error over the \
             splits), while one tuned weight has {}. Trust the test column.",
            losses(worst),
            shown(&gap),
            losses(SHARED)
        );
    }
    match gaps.into_iter().max_by(largest) {
        None => "No method gave a classifier, so nothing is known of overfitting.".into(),
        Some((worst, gap)) if gap.count < 2 => format!(
            "Whether 640 weights overfit the 599 digits they were chosen on is not known from one split: {worst} has a loss of {}.",
            losses(worst)
        ),
        Some((worst, gap)) => format!(
            "There is no sign that 640 weights overfit the 599 digits they were chosen on: no test loss exceeds its validation \
             loss by more than two standard errors over the splits. {worst} comes nearest, with {}, {}.",
            losses(worst),
            shown(&gap)
        ),
    }
}

/// Warnings for the top of the page.
fn warnings(outcome: &Outcome) -> Vec<String> {
    let failed = outcome.trials.iter().filter_map(|trial| {
        let why = trial.failed.as_ref()?;
        Some(format!("On split {}, {} gave no classifier: {why}.", trial.split, trial.name))
    });
    failed.collect()
}

fn introduction(outcome: &Outcome) -> String {
    let scale = &outcome.scale;
    format!(
        "A linear classifier is trained on {} digits, with a penalty exp(λ)·w² on each of its 640 parameters w. Three \
        choices of λ are compared. The first has no penalty. The second has one λ for all parameters, the best of {} \
        by the loss on 599 validation digits. The third has one λ per parameter, learned by the derivative of that \
        loss through training. All are scored on 599 test \
         digits.\n\n\
         Each method starts from the best shared λ, as one would in practice. All have the same inner loop of {} steps and \
         the same budget of {} gradients for their hypergradients (a Hessian or mixed product counts as two). With every λ \
         found, a classifier is then trained from scratch for {} steps; the tables show these classifiers. The cost includes \
         the grid search and this training.\n\n\
         Outer rates were chosen by the validation loss on other splits of the same digits; the number of training digits \
         and the budget were chosen by looking at validation and test losses there. The same command gives the same numbers.",
        scale.train,
        scale.grid.len(),
        scale.inner_steps,
        count(scale.budget),
        count(scale.steps as f64)
    )
}

fn on_the_way() -> String {
    "Losses at the current parameters of each run. Bands are one standard deviation over the splits; dashed lines are \
     the classifiers without learned weights. A method uses only the validation digits: if the test loss rises while \
     the validation loss still falls, λ overfits the validation digits."
        .into()
}

fn on_pictures() -> String {
    "One picture per digit: λ of the 64 parameters that detect it, minus the shared λ they started from, averaged over \
     the splits. Above zero a parameter is penalised more than before, below zero less. Pixels that are always blank \
     have no influence and stay at zero."
        .into()
}

fn plot(outcome: &Outcome, over: &str, x: Axis, place: &dyn Fn(&Point) -> f64, (what, value, end): Look) -> Section {
    let mut curves = vec![];
    let mut last: f64 = 0.0;
    for method in &outcome.scale.methods {
        let ways: Vec<&[Point]> = outcome.trials(method.name).map(|trial| trial.curve.as_slice()).collect();
        let length = ways.iter().map(|way| way.len()).min().unwrap_or(0);
        let over_splits = |i: usize, pick: &dyn Fn(&Point) -> f64| {
            Spread::of(&ways.iter().map(|way| pick(&way[i])).collect::<Vec<_>>())
        };
        let at: Vec<(f64, Spread)> =
            (0..length).map(|i| (over_splits(i, place).mean, over_splits(i, &value))).collect();
        last = at.last().map_or(last, |(x, _)| last.max(*x));
        let curve = Curve::new(method.name, at.iter().map(|(x, y)| (*x, y.mean)));
        curves.push(curve.with_band(at.iter().map(|(_, y)| (y.mean - y.sd, y.mean + y.sd))));
    }
    for name in [SHARED, NONE] {
        let level = outcome.spread(name, end).mean;
        curves.push(Curve::new(name, [(0.0, level), (last, level)]).dashed());
    }
    Section::Plot(Plot {
        title: format!("{what} {over}").replace(", % over", " over"),
        x,
        y: Axis::linear(what),
        curves,
    })
}

/// λ minus its starting value, mean over splits.
fn pictures(outcome: &Outcome, name: &str) -> Option<Pictures> {
    let picture = DigitsL2::default().picture()?;
    let learned: Vec<&[f64]> =
        outcome.trials(name).filter(|trial| trial.failed.is_none()).map(|trial| &trial.change[..]).collect();
    let length = learned.iter().map(|change| change.len()).min()?;
    let mean: Vec<f64> =
        (0..length).map(|i| learned.iter().map(|change| change[i]).sum::<f64>() / learned.len() as f64).collect();
    let panel = |digit: usize| Panel {
        title: digit.to_string(),
        rows: picture.rows,
        columns: picture.columns,
        values: picture.panel(&mean, digit),
    };
    Some(Pictures { title: format!("{name}: change of λ"), panels: (0..picture.panels).map(panel).collect() })
}

fn settings(outcome: &Outcome) -> String {
    let scale = &outcome.scale;
    let list = |numbers: Vec<String>| numbers.join(", ");
    let mut lines = vec![
        ("splits", list(scale.splits.iter().map(u64::to_string).collect())),
        ("training digits", scale.train.to_string()),
        ("training", format!("{} gradient steps of size 1 / (largest curvature), from 0", scale.steps)),
        ("shared λ that were tried", list(scale.grid.iter().map(f64::to_string).collect())),
        ("inner steps", format!("{} per hypergradient, continuing from the last", scale.inner_steps)),
        ("budget", format!("{} gradients for hypergradients", scale.budget)),
    ];
    for method in &outcome.scale.methods {
        let iterations = outcome.trials(method.name).map(|trial| trial.iterations).max().unwrap_or(0);
        lines.push((method.name, format!("Adam at rate {}, {iterations} outer iterations", method.rate)));
    }
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    lines.into_iter().map(|(name, text)| format!("{name:<width$}  {text}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Scale, Trial};
    use super::*;

    /// Three splits on which all methods have these validation and test losses, and the references others.
    fn outcome(learned: [(f64, f64); 3], both: f64) -> Outcome {
        let scale = Scale { splits: vec![1, 2, 3], ..Scale::quick() };
        let mut trials = vec![];
        let methods: Vec<&'static str> = scale.methods.iter().map(|method| method.name).collect();
        for (at, &(validation, test)) in learned.iter().enumerate() {
            let mut add = |name: &'static str, validation: f64, test: f64| {
                let score = |loss: f64| Score { loss, accuracy: 0.9 };
                let scores = Scores { train: score(0.1), validation: score(validation), test: score(test) };
                let (split, change, curve) = (at as u64 + 1, vec![], vec![]);
                let (cost, seconds, iterations, failed) = (1.0, 1.0, 1, None);
                let scores = Some(scores);
                trials.push(Trial { name, split, scores, change, cost, seconds, iterations, curve, failed });
            };
            add(NONE, 0.5, 0.5);
            add(SHARED, 0.4, 0.4);
            methods.iter().for_each(|name| add(name, validation, test));
            add(BOTH, 0.3, both);
        }
        Outcome { scale, trials }
    }

    #[test]
    fn a_test_loss_above_the_validation_loss_on_every_split_is_overfitting() {
        let said = sentences(&outcome([(0.20, 0.30), (0.22, 0.31), (0.18, 0.29)], 0.5)).join("\n");
        assert!(said.contains("overfit those digits"), "{said}");
        assert!(said.contains("0.200 on validation digits and 0.300 on test digits"), "{said}");
        assert!(said.contains("a difference of +0.100 ± 0.006"), "{said}");
    }

    #[test]
    fn a_test_loss_below_the_validation_loss_is_no_overfitting() {
        let said = sentences(&outcome([(0.31, 0.29), (0.32, 0.30), (0.31, 0.30)], 0.5)).join("\n");
        assert!(said.contains("no sign that 640 weights overfit"), "{said}");
    }

    #[test]
    fn a_difference_within_the_spread_of_the_splits_is_no_overfitting() {
        let said = sentences(&outcome([(0.20, 0.30), (0.30, 0.22), (0.25, 0.26)], 0.5)).join("\n");
        assert!(said.contains("no sign that 640 weights overfit"), "{said}");
        assert!(said.contains("a difference of +0.010 ± 0.052"), "{said}");
    }

    #[test]
    fn a_setting_stands_apart_from_its_name() {
        let text = settings(&outcome([(0.2, 0.3); 3], 0.5));
        assert!(text.contains("shared λ that were tried  -"), "{text}");
        let starts: Vec<usize> = text
            .lines()
            .map(|line| line.chars().collect::<Vec<_>>().windows(2).position(|w| w == [' ', ' ']).unwrap())
            .collect();
        assert!(starts.iter().all(|at| *at > 0), "{text}");
    }

    #[test]
    fn labels_are_said_to_be_more_useful_in_training_only_if_they_are() {
        let learned = [(0.20, 0.30), (0.22, 0.31), (0.18, 0.29)];
        let said = |both: f64| sentences(&outcome(learned, both)).join("\n");
        assert!(said(0.25).contains("Labels are more useful in training: one tuned weight"), "{}", said(0.25));
        assert!(said(0.35).contains("For comparison: one tuned weight"), "{}", said(0.35));
        assert!(said(0.2995).contains("For comparison: one tuned weight"), "{}", said(0.2995));
    }
}
