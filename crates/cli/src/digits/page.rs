//! The study as a page: what was done, tables, curves, the learned weights as pictures, settings.

use super::{Study, files, tables, words};
use crate::spread::{Spread, thousands};
use bilevel_report::{Axis, Curve, Panel, Pictures, Plot, Report, Section};
use bilevel_tasks::digits::study::{METHODS, NONE, Point, SHARED, Scores};

/// What a plot shows: its name, its value on the way, and that of a finished classifier.
type Look = (&'static str, fn(&Point) -> f64, fn(&Scores) -> f64);

/// The page.
pub fn page(study: &Study) -> Report {
    let plan = &study.plan;
    let text = |title: &str, text: String| Section::Text { title: title.into(), text };
    let mut sections = vec![
        text("", introduction(study)),
        Section::Warnings(words::warnings(study)),
        text("What came out", words::outcome(study).join("\n\n")),
        Section::Table(tables::losses(study)),
        Section::Table(tables::accuracies(study)),
        text("On the way", on_the_way()),
    ];
    let iteration = |point: &Point| point.iteration as f64;
    let cost = |point: &Point| point.cost;
    let by_iteration = Axis::linear("outer iteration");
    let by_cost = || Axis::linear("cost after the grid search, in gradients");
    let validation: Look = ("Validation loss", |p| p.validation.loss, |s| s.validation.loss);
    let test: Look = ("Test loss", |p| p.test.loss, |s| s.test.loss);
    let accuracy: Look = ("Test accuracy, %", |p| 100.0 * p.test.accuracy, |s| 100.0 * s.test.accuracy);
    sections.push(plot(study, "over outer iterations", by_iteration, &iteration, validation));
    for look in [validation, test, accuracy] {
        sections.push(plot(study, "over cost", by_cost(), &cost, look));
    }
    sections.push(text("The learned weights", on_pictures()));
    sections.extend(METHODS.iter().filter_map(|method| pictures(study, method.name)).map(Section::Pictures));
    sections.push(Section::Code { title: "Settings".into(), text: files::settings_text(study) });
    sections.push(Section::Code { title: "To try next".into(), text: words::next("bilevel") });
    Report {
        title: "A regularisation weight for every parameter".into(),
        subtitle: format!(
            "Digits of 8 × 8 pixels · 640 parameters · {} to train on, 599 to choose by, 599 to test · {} splits",
            plan.train,
            plan.splits.len()
        ),
        sections,
    }
}

fn introduction(study: &Study) -> String {
    let plan = &study.plan;
    format!(
        "A linear classifier is trained on few digits, with a penalty exp(λ)·w² for each of its 640 parameters w. Which λ? \
         None at all; one for all parameters, the best of {} by the loss on validation digits; or one for each parameter, \
         learned by following the derivative of that loss through training.\n\n\
         Each method goes on from the best shared λ, as one would in practice. All have the same inner loop of {} steps and \
         the same budget of {} gradients for their hypergradients (a Hessian or mixed product counts as two). With every λ \
         found, a classifier is then trained afresh for {} steps, and that one is in the tables. Their cost includes the \
         grid search and that training.\n\n\
         Outer rates were chosen by the validation loss on other splits of the same digits; the number of training digits \
         and the budget by looking at validation and test losses there. The same command gives the same numbers.",
        plan.grid.len(),
        plan.inner_steps,
        thousands(plan.budget),
        thousands(plan.steps as f64)
    )
}

fn on_the_way() -> String {
    "Losses at the parameters each run has at the time: bands are one standard deviation over the splits, broken lines the \
     classifiers without learned weights. A method sees the validation digits only; where the test loss rises while the \
     validation loss still falls, λ fits the validation digits and nothing else."
        .into()
}

fn on_pictures() -> String {
    "One picture for each digit: λ of the 64 parameters that look for it, less the shared λ they started from, mean over \
     the splits. Above zero a parameter is held back more than before, below zero less. Pixels that are never inked have no \
     influence and stay at zero."
        .into()
}

fn plot(study: &Study, over: &str, x: Axis, place: &dyn Fn(&Point) -> f64, (what, value, end): Look) -> Section {
    let mut curves = vec![];
    let mut last: f64 = 0.0;
    for method in &METHODS {
        let ways: Vec<&[Point]> = study.trials(method.name).map(|trial| trial.curve.as_slice()).collect();
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
        let level = study.spread(name, end).mean;
        curves.push(Curve::new(name, [(0.0, level), (last, level)]).dashed());
    }
    Section::Plot(Plot {
        title: format!("{what} {over}").replace(", % over", " over"),
        x,
        y: Axis::linear(what),
        curves,
    })
}

/// λ less what it was at the start, mean over splits.
fn pictures(study: &Study, name: &str) -> Option<Pictures> {
    let picture = bilevel_tasks::task("digits-l2").ok()?.picture?;
    let mut sum = vec![0.0; picture.panels * picture.rows * picture.columns];
    let mut count = 0.0;
    for (learned, shared) in study.trials(name).zip(study.trials(SHARED)).filter(|(trial, _)| trial.failed.is_none()) {
        for (sum, (new, old)) in sum.iter_mut().zip(learned.lambda.iter().zip(&shared.lambda)) {
            *sum += new - old;
        }
        count += 1.0;
    }
    let mean: Vec<f64> = sum.into_iter().map(|sum| sum / count).collect();
    let panel = |digit: usize| Panel {
        title: digit.to_string(),
        rows: picture.rows,
        columns: picture.columns,
        values: picture.panel(&mean, digit),
    };
    let title = format!("{name}: change of λ");
    (count > 0.0).then(|| Pictures { title, panels: (0..picture.panels).map(panel).collect() })
}
