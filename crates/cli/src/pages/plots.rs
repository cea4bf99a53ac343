//! Plots of the metrics of runs: one per quantity, with a curve for each run that has it.

use crate::pages::calm::{calm, is_noisy};
use crate::terminal::readable::sentence;
use bilevel_report::{Axis, Curve, Pictures, Plot, ReportError, Section, file_stem};
use bilevel_run::run::{History, IterationRow};

/// A drawing, and the name of its files.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name of its files, without their extension.
    pub stem: String,
    /// The drawing itself.
    pub drawing: Drawing,
}

/// A curve plot or an image.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Curves.
    Plot(Plot),
    /// Heat maps.
    Pictures(Pictures),
}

impl Drawing {
    /// The title above it.
    pub fn title(&self) -> &str {
        match self {
            Drawing::Plot(plot) => &plot.title,
            Drawing::Pictures(pictures) => &pictures.title,
        }
    }

    /// The figure as SVG.
    pub fn svg(&self) -> String {
        match self {
            Drawing::Plot(plot) => plot.svg(),
            Drawing::Pictures(pictures) => pictures.svg(),
        }
    }

    /// As pixels.
    pub fn png(&self, width: u32) -> Result<Vec<u8>, ReportError> {
        match self {
            Drawing::Plot(plot) => plot.png(width),
            Drawing::Pictures(pictures) => pictures.png(width),
        }
    }
}

/// A section that is a drawing.
pub fn as_drawing(section: &Section) -> Option<Drawing> {
    match section {
        Section::Plot(plot) => Some(Drawing::Plot(plot.clone())),
        Section::Pictures(pictures) => Some(Drawing::Pictures(pictures.clone())),
        _ => None,
    }
}

/// Pixels across a PNG.
pub const PNG_WIDTH: u32 = 1280;

impl Figure {
    /// A figure of curves.
    pub fn plot(stem: impl Into<String>, plot: Plot) -> Self {
        Figure { stem: stem.into(), drawing: Drawing::Plot(calmed(plot)) }
    }

    /// The figure as a section of a page.
    pub fn section(self) -> Section {
        match self.drawing {
            Drawing::Plot(plot) => Section::Plot(plot),
            Drawing::Pictures(pictures) => Section::Pictures(pictures),
        }
    }
}

/// A run's name in legends, and its metrics.
pub type Named<'a> = (&'a str, &'a History);

/// A range this many times its least value is easier to read on a logarithmic axis.
const WIDE: f64 = 30.0;
/// Two curves share axes if neither looks flat: if their joint range is at most this many times the range of each.
const SHARED: f64 = 6.0;

const X: &str = "outer iteration";

fn range(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let finite = points.iter().map(|point| point.1).filter(|y| y.is_finite());
    finite.fold(None, |range, y| Some(range.map_or((y, y), |(low, high): (f64, f64)| (low.min(y), high.max(y)))))
}

/// A logarithmic axis if values are positive and far apart.
fn fitting_axis(label: &str, curves: &[Curve]) -> Axis {
    let all: Vec<(f64, f64)> = curves.iter().flat_map(|curve| curve.points.iter().copied()).collect();
    match range(&all) {
        Some((low, high)) if low > 0.0 && high / low > WIDE => Axis::logarithmic(label),
        _ => Axis::linear(label),
    }
}

/// One quantity of all runs; `None` if no run has it.
fn quantity(title: &str, runs: &[Named], of: impl Fn(&History) -> Vec<(f64, f64)>) -> Option<Plot> {
    // A run has the same colour in all figures, whichever runs are missing from one.
    let curve = |(place, (name, history)): (usize, &Named)| {
        let series = if runs.len() > 1 { Some(place) } else { None };
        Curve { series, ..Curve::new(*name, of(history)) }
    };
    let curves: Vec<Curve> = runs.iter().enumerate().map(curve).filter(|c| !c.points.is_empty()).collect();
    // A single point is a number in the table, not a curve.
    if curves.iter().all(|curve| curve.points.len() < 2) {
        return None;
    }
    // The title names the curves, so the axis need not.
    let y = fitting_axis("", &curves);
    Some(Plot { title: title.into(), x: Axis::linear(X), y, curves })
}

/// Smooths all curves if one of them is noisy, so that their order is unchanged.
fn calmed(mut plot: Plot) -> Plot {
    let bare = |curve: &&mut Curve| curve.band.is_none();
    let log = plot.y.log;
    if plot.curves.iter_mut().filter(bare).any(|curve| is_noisy(&curve.points, log)) {
        plot.y.label = "median, and the middle 80 %, of nearby iterations".into();
        for curve in plot.curves.iter_mut().filter(bare) {
            if let Some((points, band)) = calm(&curve.points) {
                (curve.points, curve.band) = (points, Some(band));
            }
        }
    }
    plot
}

/// File names of the figures of one run, apart from those of measures.
const STEMS: [&str; 11] = [
    "losses-by-rows",
    "losses",
    "outer-loss",
    "inner-loss",
    "lambda",
    "lambda-sorted",
    "hypergradient",
    "horizon",
    "adjoint-growth",
    "growth-rate",
    "effective-samples",
];

/// Stems of all figures that a report of this run can have; which of them it has changes as it continues.
pub fn possible_stems(history: &History) -> Vec<String> {
    STEMS.iter().map(|stem| stem.to_string()).chain(history.measures().into_iter().map(file_stem)).collect()
}

/// Losses and the task's measures. The losses of a single run share axes if all remain readable.
pub fn losses_and_measures(runs: &[Named]) -> Vec<Figure> {
    let mut names: Vec<&str> = vec![];
    for name in runs.iter().flat_map(|(_, history)| history.measures()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut figures = vec![
        ("outer loss", quantity("Outer loss", runs, |history| history.points(|row| row.outer_loss))),
        ("inner loss", quantity("Inner loss", runs, |history| history.points(|row| row.inner_loss))),
    ];
    figures.extend(names.into_iter().map(|name| (name, quantity(&sentence(name), runs, |h| h.measure(name)))));
    let by_rows = match runs {
        [(_, history)] => by_rows(history, &mut figures),
        _ => None,
    };
    let shared = if runs.len() == 1 { share(&mut figures) } else { None };
    let apart = figures.into_iter().filter_map(|(name, plot)| Some(Figure::plot(file_stem(name), plot?)));
    let by_rows = by_rows.into_iter().map(|plot| Figure::plot("losses-by-rows", plot));
    by_rows.chain(shared.into_iter().map(|plot| Figure::plot("losses", plot))).chain(apart).collect()
}

/// The name of the metric of a run's guard.
const HELD_OUT: &str = "held-out loss";

/// The losses on training, validation and held-out rows in one plot, with the iteration at which held-out rows were best; taken out of the
/// others. `None` for a run without held-out rows.
fn by_rows(history: &History, figures: &mut [(&str, Option<Plot>)]) -> Option<Plot> {
    let held_out = history.measure(HELD_OUT);
    let best = held_out.iter().filter(|(_, loss)| loss.is_finite()).min_by(|a, b| a.1.total_cmp(&b.1)).copied()?;
    let mut curves = vec![];
    for (quantity, name) in [("inner loss", "training loss"), ("outer loss", "validation loss"), (HELD_OUT, HELD_OUT)] {
        let found = figures.iter_mut().find(|(known, _)| *known == quantity).and_then(|(_, plot)| plot.take());
        let curve = found.and_then(|plot| plot.curves.into_iter().next());
        curves.extend(curve.map(|curve| Curve { name: name.into(), ..curve }));
    }
    let all: Vec<(f64, f64)> = curves.iter().flat_map(|curve| curve.points.iter().copied()).collect();
    let (low, high) = range(&all)?;
    let y = fitting_axis("", &curves);
    let line = [(best.0, low), (best.0, high)];
    curves.push(Curve::new(format!("iteration {}, the lowest held-out loss", best.0), line).dashed());
    Some(Plot { title: "Loss on training, validation and held-out rows".into(), x: Axis::linear(X), y, curves })
}

/// Takes the losses out that can be read on the axes of the first, and puts them into one plot.
fn share(figures: &mut [(&str, Option<Plot>)]) -> Option<Plot> {
    let mut curves: Vec<Curve> = vec![];
    for (name, plot) in figures.iter_mut().filter(|(name, _)| name.ends_with("loss")) {
        let Some(curve) = plot.as_ref().and_then(|plot| plot.curves.first()) else { continue };
        let with = || curves.iter().chain([curve]);
        let spans: Vec<f64> = with().filter_map(|c| range(&c.points)).map(|(low, high)| high - low).collect();
        let all: Vec<(f64, f64)> = with().flat_map(|curve| curve.points.iter().copied()).collect();
        let together = range(&all).map_or(0.0, |(low, high)| high - low);
        if spans.iter().all(|span| together <= SHARED * span) {
            curves.push(Curve { name: name.to_string(), ..curve.clone() });
            *plot = None;
        }
    }
    match &curves[..] {
        [] => None,
        // A single curve is named in the title.
        [one] => {
            let curves = vec![Curve { name: String::new(), ..one.clone() }];
            Some(Plot { title: sentence(&one.name), x: Axis::linear(X), y: fitting_axis("", &curves), curves })
        }
        _ => Some(Plot { title: "Losses".into(), x: Axis::linear(X), y: fitting_axis("", &curves), curves }),
    }
}

/// The norm of the hypergradient, or of the update that methods return instead, with its standard error, on a
/// logarithmic axis.
pub fn hypergradient(runs: &[Named], returned: &str) -> Option<Figure> {
    let norms = |history: &History| history.points(|row| row.hypergradient_norm);
    let mut plot = quantity(&format!("Norm of the {returned}"), runs, norms)?;
    plot.y = Axis::logarithmic("");
    let noisy = plot.curves.iter().any(|curve| is_noisy(&curve.points, true));
    let with_norms = runs.iter().filter(|(_, history)| !norms(history).is_empty());
    for (curve, (_, history)) in plot.curves.iter_mut().zip(with_norms) {
        if history.rows.iter().all(|row| row.standard_error.is_none()) {
            continue;
        }
        // One for each norm, so that both have the same places.
        let error = |row: &IterationRow| row.hypergradient_norm.map(|_| row.standard_error.unwrap_or(0.0));
        let mut errors = history.points(error);
        plot.y.label = "the band is one standard error".into();
        if noisy && let (Some((medians, _)), Some((spread, _))) = (calm(&curve.points), calm(&errors)) {
            (curve.points, errors) = (medians, spread);
            plot.y.label = "median of nearby iterations; the band is one standard error".into();
        }
        let edges = curve.points.iter().zip(&errors).map(|((_, norm), (_, error))| (norm - error, norm + error));
        curve.band = Some(edges.collect());
    }
    Some(Figure::plot("hypergradient", plot))
}

/// The diagnostics at the iterations that have them.
pub fn diagnostics(runs: &[Named]) -> Vec<Figure> {
    let mut figures = vec![];
    let horizon = |history: &History| history.points(|row| row.diagnostics.horizon);
    if let Some(plot) = quantity("Progress of the inner loop", runs, horizon) {
        let mut plot = calmed(plot);
        if let [curve] = &mut plot.curves[..]
            && curve.name.is_empty()
        {
            curve.name = "γ·T·curvature".into();
        }
        // At the places of a curve, so that both are read out together.
        let longest = plot.curves.iter().max_by_key(|curve| curve.points.len());
        let ones: Vec<(f64, f64)> =
            longest.into_iter().flat_map(|c| c.points.iter().map(|point| (point.0, 1.0))).collect();
        let series = if runs.len() > 1 { Some(runs.len()) } else { None };
        let line = Curve::new("1: the initial error has shrunk by 1/e", ones).dashed();
        plot.curves.push(Curve { series, ..line });
        plot.y = Axis { label: plot.y.label, ..fitting_axis("", &plot.curves) };
        figures.push(Figure::plot("horizon", plot));
    }
    let growth = |history: &History| history.points(|row| row.diagnostics.adjoint_growth);
    if let Some(mut plot) = quantity("Growth of the adjoint within a hypergradient", runs, growth) {
        plot.y.label = "‖z‖ at the end divided by ‖z‖ at the start".into();
        figures.push(Figure::plot("adjoint-growth", plot));
    }
    let rate = |history: &History| history.points(|row| row.diagnostics.growth_rate);
    if let Some(mut plot) = quantity("Growth of sensitivities: above 0 there is no hypergradient", runs, rate) {
        plot.y.label = "growth rate, per inner step".into();
        figures.push(Figure::plot("growth-rate", plot));
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
    use proptest::prelude::*;

    fn history(lines: &[&str]) -> History {
        let text: String =
            lines.iter().enumerate().map(|(i, line)| format!("{{\"iteration\":{},{line}}}\n", i + 1)).collect();
        History::parse(text.as_bytes()).unwrap()
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
        let figures = losses_and_measures(&[("", &alike)]);
        assert_eq!((figures.len(), drawn(&figures[0]).curves.len()), (1, 2));
        let apart = history(&["\"outer_loss\":1,\"inner_loss\":800", "\"outer_loss\":0.5,\"inner_loss\":4"]);
        let figures = losses_and_measures(&[("", &apart)]);
        assert_eq!(figures.iter().map(|f| f.stem.as_str()).collect::<Vec<_>>(), ["losses", "inner-loss"]);
        assert_eq!(figures.iter().map(|f| drawn(f).title.as_str()).collect::<Vec<_>>(), ["Outer loss", "Inner loss"]);
        assert!(!drawn(&figures[0]).y.log && drawn(&figures[1]).y.log);
    }

    #[test]
    fn held_out_rows_have_a_curve_beside_training_and_validation_rows_and_their_best_iteration_a_line() {
        let line = |outer: f64, held: f64| {
            format!("\"inner_loss\":0.1,\"outer_loss\":{outer},\"measures\":{{\"held-out loss\":{held}}}")
        };
        let lines = [line(0.5, 0.6), line(0.4, 0.45), line(0.3, 0.5)];
        let history = history(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let figures = losses_and_measures(&[("", &history)]);
        assert_eq!(figures.iter().map(|f| f.stem.as_str()).collect::<Vec<_>>(), ["losses-by-rows"]);
        let curves = &drawn(&figures[0]).curves;
        let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
        let line = "iteration 2, the lowest held-out loss";
        assert_eq!(names, ["training loss", "validation loss", "held-out loss", line]);
        assert!(curves[3].dashed && curves[3].points.iter().all(|point| point.0 == 2.0));
        assert!(possible_stems(&history).contains(&figures[0].stem));
    }

    #[test]
    fn a_quantity_of_several_runs_is_one_plot_and_a_run_without_it_is_left_out() {
        let [a, b] = ["0.5", "0.7"]
            .map(|y| history(&[format!("\"outer_loss\":{y},\"measures\":{{\"test loss\":{y}}}").as_str(); 2]));
        let none = history(&["\"inner_loss\":1"; 2]);
        let runs = [("a", &a), ("none", &none), ("b", &b)];
        let names = |plot: &Plot| plot.curves.iter().map(|curve| curve.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(drawn(&losses_and_measures(&runs)[0])), ["a", "b"]);
        let figures = losses_and_measures(&runs);
        assert_eq!(
            figures.iter().map(|f| f.stem.as_str()).collect::<Vec<_>>(),
            ["outer-loss", "inner-loss", "test-loss"]
        );
        assert_eq!((drawn(&figures[2]).title.as_str(), names(drawn(&figures[2])).len()), ("Test loss", 2));
        assert!(hypergradient(&runs, "hypergradient").is_none() && diagnostics(&runs).is_empty());
    }

    #[test]
    fn a_standard_error_is_a_band() {
        let h = history(&["\"hypergradient_norm\":1,\"standard_error\":0.25", "\"hypergradient_norm\":0.5"]);
        let figure = hypergradient(&[("", &h)], "step").unwrap();
        assert_eq!(drawn(&figure).curves[0].band.as_deref(), Some(&[(0.75, 1.25), (0.5, 0.5)][..]));
        assert!(drawn(&figure).y.log && figure.drawing.svg().contains("one standard error"));
    }

    fn line(iteration: u32) -> String {
        format!(
            "{{\"iteration\":{iteration},\"inner_loss\":1.5,\"outer_loss\":0.25,\"hypergradient_norm\":1e-3,\
             \"seconds\":0.5,\"inner_gradients\":{iteration}0,\"diagnostics\":{{\"horizon\":0.8,\
             \"curvature\":0.1}},\"measures\":{{\"test loss\":0.5,\"accuracy\":null}}}}\n"
        )
    }

    proptest! {
        #[test]
        fn random_damage_is_an_error_or_fewer_lines_but_never_a_panic(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..12),
        ) {
            let mut bytes: Vec<u8> = (1..8).flat_map(|i| line(i).into_bytes()).collect();
            for (place, byte, kind) in edits {
                if bytes.is_empty() {
                    break;
                }
                let at = place.index(bytes.len());
                match kind {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    2 => _ = bytes.remove(at),
                    _ => bytes.truncate(at),
                }
            }
            if let Ok(history) = History::parse(&bytes[..]) {
                prop_assert!(history.rows.windows(2).all(|two| two[0].iteration < two[1].iteration));
                _ = history.best_outer_loss();
                let runs = [("", &history)];
                let mut figures = losses_and_measures(&runs);
                figures.extend(hypergradient(&runs, "hypergradient"));
                figures.extend(diagnostics(&runs));
                prop_assert!(figures.iter().all(|figure| figure.drawing.svg().starts_with("<svg")));
                let possible = possible_stems(&history);
                prop_assert!(figures.iter().all(|figure| possible.contains(&figure.stem)));
            }
        }
    }
}
