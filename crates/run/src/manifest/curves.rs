//! Metrics over outer iterations, a curve for each row, and over the setting that distinguishes groups.

use super::Metric;
use super::findings::Outcomes;
use crate::spread::Spread;
use crate::{Series, figure};
use bilevel_report::Plot;

/// The most curves in a figure that can be told apart.
const MAX_CURVES: usize = 10;
/// The most points of a curve; of a longer one, means over stretches are drawn.
const MAX_POINTS: usize = 400;

/// The means of a curve over stretches of it, if it is long.
fn thinned(way: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let mean = |stretch: &[(f64, f64)]| {
        let sum: f64 = stretch.iter().map(|(_, y)| y).sum();
        Some((stretch.last()?.0, sum / stretch.len() as f64)).filter(|(_, y)| y.is_finite())
    };
    way.chunks(way.len().div_ceil(MAX_POINTS).max(1)).filter_map(mean).collect()
}

/// The figures of a group: of each metric that is drawn, the first seed of every row.
pub(super) fn of<'a>(group: &'a str, metrics: &'a [Metric], all: &'a [Outcomes]) -> impl Iterator<Item = Plot> + 'a {
    metrics.iter().filter_map(|metric| Some((metric, metric.curve.as_ref()?))).flat_map(move |(metric, over)| {
        let series: Vec<Series> = all
            .iter()
            .filter_map(|outcomes| {
                let way = thinned(outcomes.way(metric));
                (!way.is_empty()).then(|| (outcomes.name(), way))
            })
            .collect();
        let figures = series.len().div_ceil(MAX_CURVES);
        let plots: Vec<Plot> = series
            .chunks(MAX_CURVES)
            .enumerate()
            .map(|(number, some)| {
                let count = if figures > 1 { format!(", {} of {figures}", number + 1) } else { String::new() };
                let title = format!("{group}{}{}{count}", if group.is_empty() { "" } else { ": " }, metric.id());
                figure(title, over, &metric.name, some.to_vec())
            })
            .collect();
        plots
    })
}

/// Each metric over the setting that distinguishes groups: the means of every row, group by group.
pub(super) fn sweep(over: &str, metrics: &[Metric], groups: &[(f64, Vec<Outcomes>)]) -> Vec<Plot> {
    let of = |metric: &Metric| {
        let mut series: Vec<Series> = vec![];
        for (x, all) in groups {
            for outcomes in all {
                let values = outcomes.values(metric, None);
                let name = outcomes.name();
                if values.is_empty() {
                    continue;
                }
                let point = (*x, Spread::of(&values).mean);
                match series.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, points)) => points.push(point),
                    None => series.push((name, vec![point])),
                }
            }
        }
        (!series.is_empty()).then(|| figure(format!("{} over {over}", metric.name), over, &metric.name, series))
    };
    metrics.iter().filter(|metric| !metric.drawn).filter_map(of).collect()
}
