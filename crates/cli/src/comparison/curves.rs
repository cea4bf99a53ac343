//! The metrics of several runs of one method as curves: mean and deviation over seeds.

use crate::terminal::readable::sentence;
use bilevel_report::{Axis, Curve, Plot, Section};
use bilevel_run::FinishedRun;
use bilevel_run::price::{Passes, price};
use bilevel_run::run::IterationRow;
use bilevel_run::spread::Spread;

/// The horizontal axis of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Outer iterations.
    Iterations,
    /// Gradients.
    Cost,
}

/// The outer loss of a run, or a measure at the iterations that have it.
fn points(run: &FinishedRun, measure: Option<&str>, over: Over, passes: Passes) -> Vec<(f64, f64)> {
    let point = |row: &IterationRow| {
        let x = if over == Over::Iterations { f64::from(row.iteration) } else { price(row.oracles, passes) };
        let y = match measure {
            None => row.outer_loss.unwrap_or(f64::NAN),
            Some(name) => row.measures.get(name)?.as_f64().unwrap_or(f64::NAN),
        };
        Some((x, y))
    };
    run.history.rows.iter().filter_map(point).collect()
}

/// Mean and deviation over runs, as far as all of them go.
pub fn curve(name: &str, runs: &[&FinishedRun], measure: Option<&str>, over: Over, passes: Passes) -> Curve {
    let all: Vec<Vec<(f64, f64)>> = runs.iter().map(|run| points(run, measure, over, passes)).collect();
    let length = all.iter().map(Vec::len).min().unwrap_or(0);
    let at = |i: usize, pick: fn(&(f64, f64)) -> f64| {
        Spread::of(&all.iter().map(|points| pick(&points[i])).collect::<Vec<_>>())
    };
    let mean: Vec<(f64, Spread)> = (0..length).map(|i| (at(i, |p| p.0).mean, at(i, |p| p.1))).collect();
    let curve = Curve::new(name, mean.iter().map(|(x, y)| (*x, y.mean)));
    if runs.len() < 2 {
        return curve;
    }
    // If the band of a positive quantity reaches below 0, it is cut off a little above 0, for logarithmic axes.
    let low = |y: &Spread| if y.mean > 0.0 { (y.mean - y.sd).max(0.1 * y.mean) } else { y.mean - y.sd };
    curve.with_band(mean.iter().map(|(_, y)| (low(y), y.mean + y.sd)))
}

/// Curves of one quantity.
pub fn plot(measure: Option<&str>, over: Over, seeds: usize, curves: Vec<Curve>) -> Section {
    let what = measure.unwrap_or("outer loss");
    let (x, title) = match over {
        Over::Iterations => ("outer iteration", format!("{what} over iterations")),
        Over::Cost => ("cost in gradients", format!("{what} over cost")),
    };
    let label = if seeds > 1 { format!("{what}, mean ± sd of {seeds} seeds") } else { what.into() };
    let values = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).filter(|y| y.is_finite());
    let (least, most) = values().fold((f64::INFINITY, 0.0_f64), |(least, most), y| (least.min(y), most.max(y)));
    // If values differ by much, equal steps should be equal factors.
    let y = if least > 0.0 && most > 8.0 * least { Axis::logarithmic(label) } else { Axis::linear(label) };
    Section::Plot(Plot { title: sentence(&title), x: Axis::linear(x), y, curves })
}
