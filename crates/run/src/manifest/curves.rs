//! Metrics over outer iterations, a curve for each row, and over the setting that distinguishes groups.

use super::Metric;
use super::findings::Outcomes;
use crate::spread::Spread;
use crate::{Series, figure};
use bilevel_report::Plot;

/// The most curves in a figure that can be told apart.
const MAX_CURVES: usize = 8;

/// The figures of a group: of each metric that is drawn, the first seed of every row.
pub(super) fn of<'a>(group: &'a str, metrics: &'a [Metric], all: &'a [Outcomes]) -> impl Iterator<Item = Plot> + 'a {
    metrics.iter().filter(|metric| metric.curve).flat_map(move |metric| {
        let series: Vec<Series> = all
            .iter()
            .filter_map(|outcomes| {
                let way = metric.way(outcomes.all.first()?);
                let name = format!("{} {}", outcomes.piece.method(), outcomes.piece.row.setting);
                (!way.is_empty()).then(|| (name.trim().to_string(), way))
            })
            .collect();
        let figures = series.len().div_ceil(MAX_CURVES);
        let plots: Vec<Plot> = series
            .chunks(MAX_CURVES)
            .enumerate()
            .map(|(number, some)| {
                let count = if figures > 1 { format!(", {} of {figures}", number + 1) } else { String::new() };
                let title = format!("{group}{}{}{count}", if group.is_empty() { "" } else { ": " }, metric.name);
                figure(title, "outer iteration", &metric.name, some.to_vec())
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
                let name = format!("{} {}", outcomes.piece.method(), outcomes.piece.row.setting).trim().to_string();
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
    metrics.iter().filter_map(of).collect()
}
