//! Curves in one coordinate system.

mod draw;

use crate::axis::thin;
use crate::error::ReportError;
use crate::number;
use crate::page::escape;
use crate::plot::draw::draw;
use crate::scene::Setting;
use crate::scene::raster;
use crate::scene::svg;

/// An axis: its label, and whether its scale is logarithmic.
///
/// ```
/// use bilevel_report::Axis;
/// assert_eq!(Axis::logarithmic("loss"), Axis { label: "loss".into(), log: true });
/// assert!(!Axis::linear("iteration").log);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Its quantity, with the unit.
    pub label: String,
    /// Whether equal steps are equal factors. Values that are not positive are then left out.
    pub log: bool,
}

impl Axis {
    /// Equal steps are equal differences.
    ///
    /// ```
    /// assert!(!bilevel_report::Axis::linear("iteration").log);
    /// ```
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), log: false }
    }

    /// Equal steps are equal factors.
    ///
    /// ```
    /// assert!(bilevel_report::Axis::logarithmic("loss").log);
    /// ```
    pub fn logarithmic(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), log: true }
    }
}

/// A line through points, in their order. A point that is not finite is a gap.
///
/// ```
/// use bilevel_report::Curve;
/// let curve = Curve::new("mean of 5 runs", [(0.0, 1.0), (1.0, 0.5)]).with_band([(0.8, 1.2), (0.4, 0.6)]).dashed();
/// assert_eq!(curve.points[1], (1.0, 0.5));
/// assert_eq!(curve.band.unwrap()[1], (0.4, 0.6));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Its name in the legend; no entry if empty.
    pub name: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
    /// Low and high at each point: its uncertainty, drawn as a pale band.
    pub band: Option<Vec<(f64, f64)>>,
    /// Whether the line is broken: a reference, or a guess.
    pub dashed: bool,
    /// Whether each point gets a dot.
    pub markers: bool,
    /// Which colour it has, so that one thing has the same colour in several plots; by default that of its place among the curves.
    pub series: Option<usize>,
}

impl Curve {
    /// An unbroken line.
    ///
    /// ```
    /// assert_eq!(bilevel_report::Curve::new("λ", [(0.0, 1.0)]).points.len(), 1);
    /// ```
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Curve {
        Curve { name: name.into(), points: points.into_iter().collect(), ..Curve::default() }
    }

    /// With low and high at each point.
    ///
    /// ```
    /// assert!(bilevel_report::Curve::new("λ", [(0.0, 1.0)]).with_band([(0.5, 1.5)]).band.is_some());
    /// ```
    pub fn with_band(self, band: impl IntoIterator<Item = (f64, f64)>) -> Curve {
        Curve { band: Some(band.into_iter().collect()), ..self }
    }

    /// As a broken line.
    ///
    /// ```
    /// assert!(bilevel_report::Curve::new("optimum", [(0.0, 1.0), (9.0, 1.0)]).dashed().dashed);
    /// ```
    pub fn dashed(self) -> Curve {
        Curve { dashed: true, ..self }
    }

    /// With a dot at each point.
    ///
    /// ```
    /// assert!(bilevel_report::Curve::new("cost", [(1.0, 2.0)]).with_markers().markers);
    /// ```
    pub fn with_markers(self) -> Curve {
        Curve { markers: true, ..self }
    }
}

/// Curves in one coordinate system.
///
/// Both axes cover all that can be drawn. Curves take colours in their order; after eight the colours come again with
/// another dash. A long curve is written only in as much detail as is visible.
///
/// ```
/// use bilevel_report::{Axis, Curve, Plot};
/// let plot = Plot {
///     title: "Distance to the optimum".into(),
///     x: Axis::linear("outer iteration"),
///     y: Axis::logarithmic("|λ − λ*|"),
///     curves: vec![
///         Curve::new("Langevin adjoint", (0..100_000).map(|i| (i as f64, 1.0 / (1.0 + i as f64)))),
///         Curve::new("never positive", [(0.0, -1.0)]),
///     ],
/// };
/// assert!(plot.svg().len() < 50_000);
/// assert!(plot.png(800)?.starts_with(b"\x89PNG"));
/// # Ok::<(), bilevel_report::ReportError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// The title of the curves.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves, first below.
    pub curves: Vec<Curve>,
}

impl Plot {
    /// As a picture for any browser or drawing program, in light colours.
    ///
    /// ```
    /// let empty = bilevel_report::Plot::default();
    /// assert!(empty.svg().contains("nothing to show"));
    /// ```
    pub fn svg(&self) -> String {
        svg::write(&draw(self, Setting::ALONE), Setting::ALONE)
    }

    /// As pixels, this many wide. Below 520 the layout is that of a small screen, so that text stays readable.
    ///
    /// ```
    /// use bilevel_report::{Axis, Curve, Plot};
    /// let plot = Plot { curves: vec![Curve::new("θ", [(0.0, 0.0), (1.0, 1.0)])], ..Plot::default() };
    /// assert!(plot.png(400)?.starts_with(b"\x89PNG"));
    /// # Ok::<(), bilevel_report::ReportError>(())
    /// ```
    pub fn png(&self, width_px: u32) -> Result<Vec<u8>, ReportError> {
        raster::png(&draw(self, Setting::alone(width_px)), width_px)
    }

    /// For a page: at full width and for a small screen.
    pub(crate) fn on_page(&self) -> [String; 2] {
        [Setting::PAGE, Setting::PAGE_NARROW].map(|setting| svg::write(&draw(self, setting), setting))
    }

    /// The data of the page's read-out: names and thinned points, as JSON.
    pub(crate) fn data(&self) -> String {
        // Places are indices here, so that thinning gives back the points themselves.
        let curve = |(number, curve): (usize, &Curve)| {
            let columns = curve.points.len().div_ceil(500).max(1) as f64 * 2.0;
            let places = curve.points.iter().enumerate().map(|(i, p)| Some((i as f64 / columns, p.1)));
            let kept = thin::runs(places).concat();
            let pair = |(place, _): &thin::Place| {
                let (x, y) = curve.points.get((place * columns).round() as usize)?;
                Some(format!("[{},{}]", number::json(*x), number::json(*y)))
            };
            let points: Vec<String> = kept.iter().filter_map(pair).collect();
            let (name, series) = (escape::json(&curve.name), curve.series.unwrap_or(number));
            format!("{{\"name\":{name},\"series\":{series},\"points\":[{}]}}", points.join(","))
        };
        let curves: Vec<String> = self.curves.iter().enumerate().map(curve).collect();
        format!("{{\"x\":{},\"curves\":[{}]}}", escape::json(&self.x.label), curves.join(","))
    }
}
