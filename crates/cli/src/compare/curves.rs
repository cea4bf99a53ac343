//! The metrics of several runs of one method as curves: mean and deviation over seeds.

use crate::folder::RunFolder;
use crate::spread::Spread;
use bilevel::Oracles;
use bilevel::whole_file::read_regular;
use bilevel_report::Curve;
use bilevel_tasks::price::{Passes, price};
use serde_json::Value;

/// What a curve is drawn over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Outer iterations.
    Iterations,
    /// Gradients.
    Cost,
}

/// A line of metrics.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    iteration: f64,
    cost: f64,
    fields: Value,
}

/// The way of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    lines: Vec<Line>,
    /// Seconds it took.
    pub seconds: f64,
}

impl Way {
    /// Of a run in this folder; what cannot be read is not there.
    pub fn read(folder: &RunFolder, method: &str) -> Self {
        let text = read_regular(&folder.metrics_file()).unwrap_or_default();
        let text = String::from_utf8(text).unwrap_or_default();
        let mut way = Way::default();
        for fields in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let count = |name: &str| fields[name].as_u64().unwrap_or(0);
            let oracles = Oracles {
                inner_gradients: count("inner_gradients"),
                outer_gradients: count("outer_gradients"),
                hessian_products: count("hessian_products"),
                mixed_products: count("mixed_products"),
                losses: count("losses"),
            };
            way.seconds = fields["seconds"].as_f64().unwrap_or(way.seconds);
            let iteration = count("iteration") as f64;
            way.lines.push(Line { iteration, cost: price(oracles, Passes::of(method)), fields });
        }
        way
    }

    /// The outer loss, or a measure where it was taken.
    fn points(&self, measure: Option<&str>, over: Over) -> Vec<(f64, f64)> {
        let point = |line: &Line| {
            let x = if over == Over::Iterations { line.iteration } else { line.cost };
            let y = match measure {
                None => line.fields["outer_loss"].as_f64().unwrap_or(f64::NAN),
                Some(name) => line.fields.get("measures")?[name].as_f64().unwrap_or(f64::NAN),
            };
            Some((x, y))
        };
        self.lines.iter().filter_map(point).collect()
    }
}

/// Mean and deviation over runs, as far as all of them go.
pub fn curve(name: &str, ways: &[Way], measure: Option<&str>, over: Over) -> Curve {
    let all: Vec<Vec<(f64, f64)>> = ways.iter().map(|way| way.points(measure, over)).collect();
    let length = all.iter().map(Vec::len).min().unwrap_or(0);
    let at = |i: usize, pick: fn(&(f64, f64)) -> f64| {
        Spread::of(&all.iter().map(|points| pick(&points[i])).collect::<Vec<_>>())
    };
    let mean: Vec<(f64, Spread)> = (0..length).map(|i| (at(i, |p| p.0).mean, at(i, |p| p.1))).collect();
    let curve = Curve::new(name, mean.iter().map(|(x, y)| (*x, y.mean)));
    if ways.len() < 2 {
        return curve;
    }
    // Where the deviation reaches below 0 a band of what is positive is cut off a little above it, for logarithmic axes.
    let low = |y: &Spread| if y.mean > 0.0 { (y.mean - y.sd).max(0.1 * y.mean) } else { y.mean - y.sd };
    curve.with_band(mean.iter().map(|(_, y)| (low(y), y.mean + y.sd)))
}
