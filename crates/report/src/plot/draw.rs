//! The layout of a plot: title, legend, axes, bands, curves, from top to bottom.

use crate::axis::scale::Range;
use crate::axis::thin::{Place, band_runs, runs};
use crate::axis::ticks::{Ticks, ticks};
use crate::number::Label;
use crate::plot::{Curve, Plot};
use crate::scene::colour::{COLOURS, Ink};
use crate::scene::font::{Weight, shorten, width, wrap};
use crate::scene::{Anchor, Mark, Scene, Setting, Stroke};

const NAME: f64 = 13.0;
const TICK: f64 = 12.0;
const TITLE: f64 = 17.0;
/// Length of a line in the legend.
const SAMPLE: f64 = 20.0;

/// The rectangle of the curves, with the ranges along its sides.
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Range,
    y: Range,
}

impl Area {
    fn across(&self, part: f64) -> f64 {
        self.left + part * (self.right - self.left)
    }

    fn up(&self, part: f64) -> f64 {
        self.bottom - part * (self.bottom - self.top)
    }

    fn place(&self, (x, y): (f64, f64)) -> Option<Place> {
        Some((self.across(self.x.part(x)?), self.up(self.y.part(y)?)))
    }
}

/// The plot as marks.
pub(crate) fn draw(plot: &Plot, setting: Setting) -> Scene {
    let mut scene = Scene { width: setting.width, description: describe(plot), ..Scene::default() };
    let edge = setting.edge();
    let mut y = edge;
    if setting.alone {
        for line in wrap(&plot.title, TITLE, Weight::Bold, setting.width - 2.0 * edge, 2) {
            y += TITLE;
            scene.bold((edge, y), line, TITLE, Anchor::Start);
            y += 0.35 * TITLE;
        }
        y += 6.0;
    }
    y = legend(&mut scene, plot, setting, y);
    let values = |of: fn(&(f64, f64)) -> f64| plot.curves.iter().flat_map(move |c| c.points.iter().map(of));
    let bands = plot.curves.iter().flat_map(|c| c.band.iter().flatten()).flat_map(|&(low, high)| [low, high]);
    let x_range = Range::of(values(|p| p.0), plot.x.log, 0.015);
    let y_range = Range::of(values(|p| p.1).chain(bands), plot.y.log, 0.06);
    let height = if setting.narrow() { 230.0 } else { 310.0 };
    let drawable = plot
        .curves
        .iter()
        .flat_map(|c| &c.points)
        .any(|p| x_range.is_some_and(|r| r.part(p.0).is_some()) && y_range.is_some_and(|r| r.part(p.1).is_some()));
    let (Some(x_range), Some(y_range), true) = (x_range, y_range, drawable) else {
        return nothing(scene, setting, y);
    };
    let y_ticks = ticks(&y_range, if setting.narrow() { 4 } else { 5 });
    let widest = y_ticks.major.iter().map(|(_, label)| label_width(label)).fold(0.0, f64::max);
    if !plot.y.label.is_empty() {
        y += NAME;
        let room = setting.width - 2.0 * edge;
        scene.text((edge, y), shorten(&plot.y.label, NAME, Weight::Regular, room), NAME, Anchor::Start, Ink::Muted);
    }
    let left = edge + widest + 8.0;
    let right = setting.width - edge - 8.0;
    let area = Area { left, right, top: y + 10.0, bottom: y + 10.0 + height, x: x_range, y: y_range };
    y_axis(&mut scene, &area, &y_ticks);
    x_axis(&mut scene, &area, setting);
    let mut bottom = area.bottom + 8.0 + TICK;
    if !plot.x.label.is_empty() {
        bottom += 8.0 + NAME;
        let text = shorten(&plot.x.label, NAME, Weight::Regular, area.right - area.left);
        scene.text((area.across(0.5), bottom), text, NAME, Anchor::Middle, Ink::Muted);
    }
    scene.height = bottom + edge.max(6.0);
    for (number, curve) in plot.curves.iter().enumerate() {
        draw_curve(&mut scene, &area, curve, number, stroke(plot, number));
    }
    let bounds = [area.left, area.top, area.right, area.bottom].map(|v| format!("{v:.1}")).join(" ");
    let range = |r: &Range| format!("{:e} {:e} {}", r.low, r.high, u8::from(r.log));
    scene.data = vec![("area", bounds), ("x", range(&area.x)), ("y", range(&area.y))];
    scene
}

/// For a reader who cannot see the plot.
fn describe(plot: &Plot) -> String {
    let names: Vec<&str> = plot.curves.iter().map(|c| c.name.as_str()).filter(|n| !n.is_empty()).take(12).collect();
    let mut text = if plot.title.is_empty() { "Plot".to_string() } else { plot.title.clone() };
    for (what, said) in [("against", &plot.x.label), ("shown:", &plot.y.label)] {
        if !said.is_empty() {
            text += &format!("; {what} {said}");
        }
    }
    if !names.is_empty() {
        text += &format!("; curves: {}", names.join(", "));
    }
    text
}

fn nothing(mut scene: Scene, setting: Setting, top: f64) -> Scene {
    let height = 120.0;
    let box_width = setting.width - 2.0 * setting.edge();
    let (x, y) = (setting.edge(), top);
    let corners = vec![(x, y), (x + box_width, y), (x + box_width, y + height), (x, y + height), (x, y)];
    scene
        .marks
        .push(Mark::Lines { runs: vec![corners], stroke: Stroke { ink: Ink::Axis, width: 1.0, dashes: &[4.0, 4.0] } });
    scene.text((0.5 * setting.width, y + 0.55 * height), "nothing to show", NAME, Anchor::Middle, Ink::Muted);
    scene.height = top + height + setting.edge().max(6.0);
    scene
}

fn label_width(label: &Label) -> f64 {
    let exponent = label.exponent.as_deref().unwrap_or("");
    // A minus sign differs more between fonts than letters do.
    let sign = if exponent.starts_with('−') { 2.0 } else { 0.0 };
    width(&label.text, TICK, Weight::Regular) + width(exponent, 0.75 * TICK, Weight::Regular) + sign
}

/// Rows of samples and names above the curves, outside the plot area. Returns their lower end.
fn legend(scene: &mut Scene, plot: &Plot, setting: Setting, top: f64) -> f64 {
    let (edge, row) = (setting.edge(), 21.0);
    let most = if setting.narrow() { 8 } else { 6 };
    let (mut x, mut y, mut rows) = (edge, top + 15.0, 1);
    let named = || plot.curves.iter().enumerate().filter(|(_, c)| !c.name.is_empty());
    for (done, (number, curve)) in named().enumerate() {
        let name = shorten(&curve.name, NAME, Weight::Regular, (setting.width - 2.0 * edge - 32.0).min(320.0));
        let entry = SAMPLE + 7.0 + width(&name, NAME, Weight::Regular);
        if x > edge && x + entry > setting.width - edge {
            if rows == most {
                let text = format!("… and {} more", named().count() - done);
                scene.text((edge, y + row), text, NAME, Anchor::Start, Ink::Muted);
                return y + row + 12.0;
            }
            (x, y, rows) = (edge, y + row, rows + 1);
        }
        let title = if name == curve.name { String::new() } else { curve.name.clone() };
        scene.marks.push(Mark::Begin { class: "key", number, title });
        let middle = y - 0.35 * NAME;
        scene.marks.push(Mark::Lines {
            runs: vec![vec![(x, middle), (x + SAMPLE, middle)]],
            stroke: Stroke { width: 2.5, ..stroke(plot, number) },
        });
        if curve.markers {
            let places = vec![(x + 0.5 * SAMPLE, middle)];
            scene.marks.push(Mark::Dots { places, radius: 4.0, ink: stroke(plot, number).ink });
        }
        scene.text((x + SAMPLE + 7.0, y), name, NAME, Anchor::Start, Ink::Text);
        scene.marks.push(Mark::End);
        x += entry + 18.0;
    }
    if named().next().is_some() { y + 14.0 } else { top }
}

/// How a curve is drawn: after eight curves the colours come again with other dashes.
fn stroke(plot: &Plot, number: usize) -> Stroke {
    const DASHES: [&[f64]; 4] = [&[], &[9.0, 3.0, 2.0, 3.0], &[2.0, 3.0], &[12.0, 4.0]];
    // A crowd is seen as a whole: thin lines without dashes, which would be illegible.
    let crowd = plot.curves.len() > COLOURS * DASHES.len();
    let series = plot.curves.get(number).and_then(|curve| curve.series).unwrap_or(number);
    let dashes: &[f64] = match plot.curves.get(number) {
        Some(curve) if curve.dashed => &[6.0, 4.0],
        _ if crowd => &[],
        _ => DASHES[series / COLOURS % DASHES.len()],
    };
    Stroke { ink: Ink::Series(series), width: if crowd { 1.0 } else { 1.8 }, dashes }
}

fn y_axis(scene: &mut Scene, area: &Area, ticks: &Ticks) {
    for (value, label) in &ticks.major {
        let Some(y) = area.y.part(*value).map(|part| area.up(part)) else { continue };
        let zero = *value == 0.0 && !area.y.log;
        scene.line((area.left, y), (area.right, y), if zero { Ink::Axis } else { Ink::Grid });
        scene.label((area.left - 8.0, y + 0.35 * TICK), label.clone(), TICK, Anchor::End, Ink::Muted);
    }
    for y in ticks.minor.iter().filter_map(|v| area.y.part(*v)).map(|part| area.up(part)) {
        scene.line((area.left - 4.0, y), (area.left, y), Ink::Grid);
    }
}

fn x_axis(scene: &mut Scene, area: &Area, setting: Setting) {
    let wanted = if setting.narrow() { 4 } else { 7 };
    let ticks = ticks(&area.x, wanted);
    let y = area.bottom;
    for x in ticks.minor.iter().filter_map(|v| area.x.part(*v)).map(|part| area.across(part)) {
        scene.line((x, y), (x, y + 3.0), Ink::Axis);
    }
    let mut free_from = 0.0;
    for (value, label) in ticks.major {
        let Some(x) = area.x.part(value).map(|part| area.across(part)) else { continue };
        scene.line((x, area.top), (x, y), Ink::Grid);
        scene.line((x, y), (x, y + 5.0), Ink::Axis);
        // Long numbers leave out neighbours rather than touch them, and stay on the canvas.
        let half = 0.5 * label_width(&label);
        let middle = x.min(setting.width - half);
        if middle - half >= free_from {
            scene.label((middle, y + 8.0 + TICK), label, TICK, Anchor::Middle, Ink::Muted);
            free_from = middle + half + 6.0;
        }
    }
    scene.line((area.left, y), (area.right, y), Ink::Axis);
}

fn draw_curve(scene: &mut Scene, area: &Area, curve: &Curve, number: usize, stroke: Stroke) {
    let ink = stroke.ink;
    scene.marks.push(Mark::Begin { class: "curve", number, title: String::new() });
    if let Some(band) = &curve.band {
        let edges = curve.points.iter().zip(band).map(|(point, &(low, high))| {
            let (low, high) = (low.min(high), low.max(high));
            let x = area.across(area.x.part(point.0)?);
            // From page bottom to top, y falls: the high edge has the smaller y.
            Some((x, area.up(area.y.part_or_end(high)?), area.up(area.y.part_or_end(low)?)))
        });
        let outline = |run: Vec<(f64, f64, f64)>| {
            let back = run.iter().rev().map(|&(x, _, low)| (x, low));
            run.iter().map(|&(x, high, _)| (x, high)).chain(back).collect()
        };
        let outlines = band_runs(edges).into_iter().map(outline).collect();
        scene.marks.push(Mark::Areas { outlines, ink, opacity: 0.16 });
    }
    let runs = runs(curve.points.iter().map(|&point| area.place(point)));
    // A point alone has no line through it, so it is a dot in any case.
    let dots: Vec<Place> = match curve.markers {
        true => runs.iter().flatten().copied().collect(),
        false => runs.iter().filter(|run| run.len() == 1).flatten().copied().collect(),
    };
    scene.marks.push(Mark::Lines { runs, stroke });
    if !dots.is_empty() {
        scene.marks.push(Mark::Dots { places: dots, radius: 4.0, ink });
    }
    scene.marks.push(Mark::End);
}
