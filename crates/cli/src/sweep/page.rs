//! The page of a sweep: its keys and values, the criterion over a key, curves of the best, λ of the best, its settings.

use super::Sweep;
use super::groups::{Group, Groups};
use crate::comparison::curves::{Over, curve, plot};
use crate::config::text::to_toml;
use crate::terminal::readable::sentence;
use bilevel_report::{Axis, Curve, Panel, Pictures, Plot, Section};
use bilevel_run::{FinishedRun, Plan};

/// Curves in one plot: as many as there are colours that can be told apart.
const MAX_CURVES: usize = 8;
/// A range this many times its least value is easier to read on a logarithmic axis.
const WIDE: f64 = 8.0;

impl Sweep {
    /// The methods of the runs.
    pub fn methods(&self) -> String {
        let mut names: Vec<&str> = vec![];
        for variant in &self.variants {
            if !names.contains(&variant.config.method.name()) {
                names.push(variant.config.method.name());
            }
        }
        names.join(", ")
    }
}

/// The keys and values of the sweep, in a sentence.
pub fn introduction(sweep: &Sweep, groups: &Groups) -> String {
    let mut keys = vec![];
    for (n, key) in sweep.keys.iter().enumerate() {
        let mut words: Vec<&str> = vec![];
        for variant in &sweep.variants {
            if !words.contains(&&variant.words[n][..]) {
                words.push(&variant.words[n]);
            }
        }
        keys.push(format!("`{key}` = {}", words.join(", ")));
    }
    let shown = groups.ranked().len();
    let only = if shown > MAX_CURVES { format!(" Curves are those of the {MAX_CURVES} best.") } else { String::new() };
    format!(
        "The task: {}.\n\n{} runs by {}, one for each combination of {}. The best is chosen by the {}.{only}",
        sweep.task.summary(),
        sweep.variants.len(),
        sweep.methods(),
        keys.join(" and "),
        groups.criterion.name
    )
}

/// The criterion over a key, curves over iterations, and λ of the best.
pub fn figures(sweep: &Sweep, groups: &Groups, plan: &Plan) -> Vec<Section> {
    let mut sections: Vec<Section> = over_a_key(groups).into_iter().collect();
    let shown: Vec<&Group> = groups.ranked().into_iter().take(MAX_CURVES).map(|n| &groups.all[n]).collect();
    let seeds = shown.iter().map(|group| group.runs.len()).max().unwrap_or(1);
    for measure in std::iter::once(None).chain(groups.measures().iter().map(|name| Some(name.as_str()))) {
        let of = |group: &&Group| {
            let runs: Vec<&FinishedRun> = group.runs.iter().map(|(_, run)| *run).collect();
            let passes = plan.registry.known_method(runs.first()?.config.method.name()).ok()?.passes;
            Some(curve(&group.name, &runs, measure, Over::Iterations, passes)).filter(|curve| curve.points.len() > 1)
        };
        let curves: Vec<Curve> = shown.iter().filter_map(of).collect();
        if !curves.is_empty() {
            sections.push(plot(measure, Over::Iterations, seeds, curves));
        }
    }
    sections.extend(best_lambda(sweep, groups).map(Section::Pictures));
    sections
}

/// The criterion over the first key whose values are numbers, with a curve for each combination of the other keys.
fn over_a_key(groups: &Groups) -> Option<Section> {
    let numbers =
        |n: usize| groups.all.iter().map(|group| group.words.get(n)?.parse::<f64>().ok()).collect::<Option<Vec<_>>>();
    let distinct = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        sorted.len()
    };
    let key = (0..groups.keys.len()).find(|&n| numbers(n).is_some_and(|values| distinct(&values) > 2))?;
    let values = numbers(key)?;
    let mut curves: Vec<(String, Vec<(f64, f64)>)> = vec![];
    for (group, x) in groups.all.iter().zip(&values) {
        let others = |n: &usize| *n != key;
        let name: Vec<String> =
            (0..groups.keys.len()).filter(others).map(|n| format!("{}={}", groups.keys[n], group.words[n])).collect();
        let name = name.join(", ");
        let at = curves.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            curves.push((name, vec![]));
            curves.len() - 1
        });
        let found = groups.judged(group);
        if found.count > 0 {
            curves[at].1.push((*x, found.mean));
        }
    }
    let fitting = |label: &str, values: Vec<f64>| {
        let (least, most) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
        if least > 0.0 && most > WIDE * least { Axis::logarithmic(label) } else { Axis::linear(label) }
    };
    let ys = curves.iter().flat_map(|(_, points)| points.iter().map(|point| point.1)).collect();
    let title = sentence(&format!("{} over {}", groups.criterion.name, groups.keys[key]));
    let (x, y) = (fitting(&groups.keys[key], values), fitting(&groups.criterion.name, ys));
    let curves = curves.into_iter().filter(|(_, points)| points.len() > 1).take(MAX_CURVES);
    let sorted = |(name, mut points): (String, Vec<(f64, f64)>)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve::new(name, points)
    };
    let curves: Vec<Curve> = curves.map(sorted).collect();
    if curves.is_empty() { None } else { Some(Section::Plot(Plot { title, x, y, curves })) }
}

/// λ of the best run as images, if the task defines them.
fn best_lambda(sweep: &Sweep, groups: &Groups) -> Option<Pictures> {
    let group = &groups.all[groups.best?];
    let (_, run) = group.runs.first()?;
    let picture = sweep.task.picture()?;
    let leaf = run.lambda.iter().find(|leaf| leaf.name == picture.leaf)?;
    let panel = |number: usize| Panel {
        title: number.to_string(),
        rows: picture.rows,
        columns: picture.columns,
        values: picture.panel(&leaf.values, number),
    };
    Some(Pictures {
        title: format!("λ of the best: {}", group.name), panels: (0..picture.panels).map(panel).collect()
    })
}

/// The configuration of the best run, or of the first.
pub fn settings(groups: &Groups, plan: &Plan) -> Option<Section> {
    let group = &groups.all[groups.best?];
    let (_, run) = group.runs.first()?;
    let title = format!("Settings of the best: {}", group.name);
    Some(Section::Code { title, text: to_toml(plan.registry, &run.config) })
}
