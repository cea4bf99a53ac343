//! What the metrics of runs look like: one plot a quantity, with a curve for each run that has it.

use crate::readable::{sentence, stem};
use crate::run_history::{History, Row};
use bilevel_report::{Axis, Curve, Pictures, Plot, ReportError, Section};

/// Something to look at, and the name of its files.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What its files are called, without what says their kind.
    pub stem: String,
    /// What is drawn.
    pub drawing: Drawing,
}

/// What can be drawn.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Curves.
    Plot(Plot),
    /// Heat maps.
    Pictures(Pictures),
}

impl Figure {
    /// Of curves.
    pub fn plot(stem: impl Into<String>, plot: Plot) -> Self {
        Figure { stem: stem.into(), drawing: Drawing::Plot(plot) }
    }

    /// For a page.
    pub fn section(self) -> Section {
        match self.drawing {
            Drawing::Plot(plot) => Section::Plot(plot),
            Drawing::Pictures(pictures) => Section::Pictures(pictures),
        }
    }

    /// For a drawing program.
    pub fn svg(&self) -> String {
        match &self.drawing {
            Drawing::Plot(plot) => plot.svg(),
            Drawing::Pictures(pictures) => pictures.svg(),
        }
    }

    /// As pixels.
    pub fn png(&self, width: u32) -> Result<Vec<u8>, ReportError> {
        match &self.drawing {
            Drawing::Plot(plot) => plot.png(width),
            Drawing::Pictures(pictures) => pictures.png(width),
        }
    }
}

/// A run's name in legends, and its metrics.
pub type Named<'a> = (&'a str, &'a History);

/// A range this many times its least value is easier to read on a logarithmic axis.
const WIDE: f64 = 30.0;
/// Two curves share axes where neither looks flat: where together they need no more than so many times its own range.
const SHARED: f64 = 6.0;

const X: &str = "outer iteration";

fn range(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let finite = points.iter().map(|point| point.1).filter(|y| y.is_finite());
    finite.fold(None, |range, y| Some(range.map_or((y, y), |(low, high): (f64, f64)| (low.min(y), high.max(y)))))
}

/// Logarithmic where values are positive and far apart.
fn fitting_axis(label: &str, curves: &[Curve]) -> Axis {
    let all: Vec<(f64, f64)> = curves.iter().flat_map(|curve| curve.points.iter().copied()).collect();
    match range(&all) {
        Some((low, high)) if low > 0.0 && high / low > WIDE => Axis::logarithmic(label),
        _ => Axis::linear(label),
    }
}

/// One quantity of all runs; `None` where no run has it.
fn quantity(title: &str, runs: &[Named], of: impl Fn(&History) -> Vec<(f64, f64)>) -> Option<Plot> {
    let curves: Vec<Curve> =
        runs.iter().map(|(name, history)| Curve::new(*name, of(history))).filter(|c| !c.points.is_empty()).collect();
    if curves.is_empty() {
        return None;
    }
    // A title says what the curves are; the axis need not say it again.
    let y = fitting_axis("", &curves);
    Some(Plot { title: title.into(), x: Axis::linear(X), y, curves })
}

/// Both losses: of one run on shared axes where both can be read there, else in two plots.
pub fn losses(runs: &[Named]) -> Vec<Figure> {
    let outer = quantity("Outer loss", runs, |history| history.points(|row| row.outer_loss));
    let inner = quantity("Inner loss", runs, |history| history.points(|row| row.inner_loss));
    if let (1, Some(outer), Some(inner)) = (runs.len(), &outer, &inner) {
        let curves: Vec<Curve> = [("outer loss", outer), ("inner loss", inner)]
            .into_iter()
            .flat_map(|(name, plot)| plot.curves.iter().map(|curve| Curve { name: name.into(), ..curve.clone() }))
            .collect();
        let spans: Vec<f64> = curves.iter().filter_map(|c| range(&c.points)).map(|(low, high)| high - low).collect();
        let all: Vec<(f64, f64)> = curves.iter().flat_map(|curve| curve.points.iter().copied()).collect();
        let together = range(&all).map_or(0.0, |(low, high)| high - low);
        if spans.iter().all(|span| together <= SHARED * span) {
            let y = fitting_axis("", &curves);
            return vec![Figure::plot("losses", Plot { title: "Losses".into(), x: Axis::linear(X), y, curves })];
        }
    }
    let figures = [("outer-loss", outer), ("inner-loss", inner)];
    figures.into_iter().filter_map(|(stem, plot)| Some(Figure::plot(stem, plot?))).collect()
}

/// Each measure of the experiment.
pub fn measures(runs: &[Named]) -> Vec<Figure> {
    let mut names: Vec<&str> = vec![];
    for name in runs.iter().flat_map(|(_, history)| history.measures()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let figure = |name: &str| {
        let plot = quantity(&sentence(name), runs, |history| history.measure(name))?;
        Some(Figure::plot(format!("measure-{}", stem(name)), plot))
    };
    names.into_iter().filter_map(figure).collect()
}

/// The hypergradient's norm with its standard error, on a logarithmic axis.
pub fn hypergradient(runs: &[Named]) -> Option<Figure> {
    let mut plot = quantity("Norm of the hypergradient", runs, |history| history.points(|row| row.hypergradient_norm))?;
    plot.y = Axis::logarithmic("");
    let with_any: Vec<&Named> =
        runs.iter().filter(|(_, h)| !h.points(|row| row.hypergradient_norm).is_empty()).collect();
    for (curve, (_, history)) in plot.curves.iter_mut().zip(with_any) {
        if history.rows.iter().any(|row| row.standard_error.is_some()) {
            let edges = |row: &Row| {
                let (norm, error) = (row.hypergradient_norm?, row.standard_error.unwrap_or(0.0));
                Some((norm - error, norm + error))
            };
            curve.band = Some(history.rows.iter().filter_map(edges).collect());
            plot.y.label = "the band is one standard error".into();
        }
    }
    Some(Figure::plot("hypergradient", plot))
}

/// What was seen beside the hypergradient, where it was looked for.
pub fn diagnostics(runs: &[Named]) -> Vec<Figure> {
    let mut figures = vec![];
    if let Some(mut plot) = quantity("How far the inner loop comes: γ·T·curvature", runs, |history| {
        history.points(|row| row.diagnostics.horizon)
    }) {
        let ends = plot.curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0));
        let (first, last) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        if plot.curves.len() == 1 && plot.curves[0].name.is_empty() {
            plot.curves[0].name = "γ·T·curvature".into();
        }
        plot.curves.push(Curve::new("1: the start is about to be forgotten", [(first, 1.0), (last, 1.0)]).dashed());
        plot.y = fitting_axis("", &plot.curves);
        figures.push(Figure::plot("horizon", plot));
    }
    let growth = |history: &History| history.points(|row| row.diagnostics.adjoint_growth);
    if let Some(plot) =
        quantity("Growth of the adjoint within a hypergradient: ‖z‖ at its end over ‖z‖ at its start", runs, growth)
    {
        figures.push(Figure::plot("adjoint-growth", plot));
    }
    let effective = |history: &History| history.points(|row| row.diagnostics.effective_samples);
    if let Some(plot) = quantity("Effective samples of a chain", runs, effective) {
        figures.push(Figure::plot("effective-samples", plot));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn history(lines: &[&str]) -> History {
        let text: String =
            lines.iter().enumerate().map(|(i, line)| format!("{{\"iteration\":{},{line}}}\n", i + 1)).collect();
        History::parse(text.as_bytes(), Path::new("metrics.jsonl")).unwrap()
    }

    fn drawn(figure: &Figure) -> &Plot {
        match &figure.drawing {
            Drawing::Plot(plot) => plot,
            Drawing::Pictures(_) => panic!("{} has no curves", figure.stem),
        }
    }

    #[test]
    fn losses_of_one_run_share_axes_only_where_both_can_be_read() {
        let alike = history(&["\"outer_loss\":1,\"inner_loss\":0.8", "\"outer_loss\":0.5,\"inner_loss\":0.4"]);
        let figures = losses(&[("", &alike)]);
        assert_eq!((figures.len(), drawn(&figures[0]).curves.len()), (1, 2));
        let apart = history(&["\"outer_loss\":1,\"inner_loss\":800", "\"outer_loss\":0.5,\"inner_loss\":4"]);
        let figures = losses(&[("", &apart)]);
        assert_eq!(figures.iter().map(|f| f.stem.as_str()).collect::<Vec<_>>(), ["outer-loss", "inner-loss"]);
        assert!(!drawn(&figures[0]).y.log && drawn(&figures[1]).y.log);
    }

    #[test]
    fn a_quantity_of_several_runs_is_one_plot_and_a_run_without_it_is_left_out() {
        let [a, b] =
            ["0.5", "0.7"].map(|y| history(&[&format!("\"outer_loss\":{y},\"measures\":{{\"test loss\":{y}}}")]));
        let none = history(&["\"inner_loss\":1"]);
        let runs = [("a", &a), ("none", &none), ("b", &b)];
        let names = |plot: &Plot| plot.curves.iter().map(|curve| curve.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(drawn(&losses(&runs)[0])), ["a", "b"]);
        let figures = measures(&runs);
        assert_eq!((figures.len(), figures[0].stem.as_str()), (1, "measure-test-loss"));
        assert_eq!(
            (drawn(&figures[0]).title.as_str(), names(drawn(&figures[0]))),
            ("Test loss", vec!["a".into(), "b".into()])
        );
        assert!(hypergradient(&runs).is_none() && diagnostics(&runs).is_empty());
    }

    #[test]
    fn a_standard_error_is_a_band() {
        let h = history(&["\"hypergradient_norm\":1,\"standard_error\":0.25", "\"hypergradient_norm\":0.5"]);
        let figure = hypergradient(&[("", &h)]).unwrap();
        assert_eq!(drawn(&figure).curves[0].band.as_deref(), Some(&[(0.75, 1.25), (0.5, 0.5)][..]));
        assert!(drawn(&figure).y.log && figure.svg().contains("one standard error"));
    }
}
