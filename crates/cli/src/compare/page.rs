//! A comparison as a page.

use super::curves::{Over, Way, curve};
use super::lambda::pictures;
use super::plan::{Plan, Planned};
use super::summary::Summary;
use crate::config_text::to_toml;
use bilevel_report::{Axis, Curve, Plot, Report, Section};

/// The page; `ways` are those of the runs of the plan.
pub fn page(plan: &Plan, summary: &Summary, ways: &[Way]) -> Report {
    let seeds = plan.seeds.len();
    let mut sections = vec![
        Section::Text { title: String::new(), text: introduction(plan) },
        Section::Warnings(summary.warnings()),
        Section::Table(summary.table()),
    ];
    let by_method: Vec<(&str, Vec<Way>)> =
        plan.methods.iter().map(|method| (method.as_str(), arrived(plan, summary, ways, method))).collect();
    for measure in std::iter::once(None).chain(summary.measures().iter().map(|name| Some(name.as_str()))) {
        for over in [Over::Iterations, Over::Cost] {
            let with_runs = by_method.iter().filter(|(_, ways)| !ways.is_empty());
            let curves = with_runs.map(|(method, ways)| curve(method, ways, measure, over));
            let curves: Vec<Curve> = curves.filter(|curve| !curve.points.is_empty()).collect();
            if !curves.is_empty() {
                sections.push(plot(measure, over, seeds, curves));
            }
        }
    }
    if let Some(picture) = plan.runs.first().and_then(|run| run.config.task().ok()?.picture) {
        for method in &plan.methods {
            let folders: Vec<_> = good_runs(plan, summary, method).map(|(_, run)| &run.folder).collect();
            sections.extend(pictures(method, &folders, picture).map(Section::Pictures));
        }
    }
    sections.push(Section::Code { title: "Settings".into(), text: settings(plan) });
    let summary_of_task = plan.runs.first().and_then(|run| Some(run.config.task().ok()?.summary)).unwrap_or_default();
    Report { title: format!("{}: methods side by side", plan.experiment), subtitle: summary_of_task.into(), sections }
}

fn introduction(plan: &Plan) -> String {
    let seeds = match plan.seeds.as_slice() {
        [seed] => format!("seed {seed}"),
        [first, .., last] => format!("seeds {first} to {last}"),
        [] => "no seed".into(),
    };
    format!(
        "{} with {seeds}. Curves are means over seeds with bands of one standard deviation. Cost is in gradients of the inner \
         or outer loss; a Hessian or mixed product counts as two, and one reverse pass that gives both counts once. Times \
         are those of runs side by side on one machine.",
        plan.methods.join(", ")
    )
}

/// The runs of a method that did not diverge, with their places in the plan.
fn good_runs<'a>(plan: &'a Plan, summary: &'a Summary, method: &'a str) -> impl Iterator<Item = (usize, &'a Planned)> {
    let row = summary.rows.iter().find(move |row| row.method == method);
    let good = move |run: &Planned| row.is_some_and(|row| row.arrived().any(|result| result.seed == run.config.seed));
    plan.runs.iter().enumerate().filter(move |(_, run)| run.method() == method && good(run))
}

/// Their ways.
fn arrived(plan: &Plan, summary: &Summary, ways: &[Way], method: &str) -> Vec<Way> {
    good_runs(plan, summary, method).map(|(number, _)| ways[number].clone()).collect()
}

fn plot(measure: Option<&str>, over: Over, seeds: usize, curves: Vec<Curve>) -> Section {
    let what = measure.unwrap_or("outer loss");
    let (x, title) = match over {
        Over::Iterations => ("outer iteration", format!("{what} over iterations")),
        Over::Cost => ("cost in gradients", format!("{what} over cost")),
    };
    let label = if seeds > 1 { format!("{what}, mean ± sd of {seeds} seeds") } else { what.into() };
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).filter(|y| y.is_finite());
    let (least, most) = values().fold((f64::INFINITY, 0.0_f64), |(least, most), y| (least.min(y), most.max(y)));
    // Where values differ by much, equal steps should be equal factors.
    let y = if least > 0.0 && most > 8.0 * least { Axis::logarithmic(label) } else { Axis::linear(label) };
    let mut letters = title.chars();
    let title = letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect());
    Section::Plot(Plot { title, x: Axis::linear(x), y, curves })
}

/// The settings of the first method, and of the others what is their own.
fn settings(plan: &Plan) -> String {
    let mut text = String::new();
    for (number, method) in plan.methods.iter().enumerate() {
        let Some(run) = plan.runs_of(method).next() else { continue };
        let mut settings = run.config.settings();
        if number == 0 {
            settings.shift_remove("seed");
        } else {
            settings.retain(|key, _| key == "method");
        }
        text += &to_toml(&settings);
    }
    text.trim_start().to_string()
}
