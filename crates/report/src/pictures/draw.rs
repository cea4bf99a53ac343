//! The layout of pictures: panels in rows of about equal length, and the colour bar below.

use crate::axis::scale::Range;
use crate::axis::ticks::ticks;
use crate::number::short;
use crate::pictures::{Panel, Pictures};
use crate::scene::colour::{Ink, heat};
use crate::scene::font::{Weight, shorten, wrap};
use crate::scene::{Anchor, Mark, Scene, Setting, Stroke};
use std::collections::BTreeMap;

const TITLE: f64 = 17.0;
const NAME: f64 = 13.0;
const NUMBER: f64 = 12.0;
const GAP: f64 = 16.0;
/// Colours are told apart in this many steps.
const STEPS: f64 = 250.0;
/// Larger matrices are drawn as means over blocks.
const MOST_CELLS: usize = 64;

/// The shared scale: the values at its ends.
struct Colours {
    low: f64,
    high: f64,
    diverging: bool,
}

impl Colours {
    fn of(pictures: &Pictures) -> Option<Colours> {
        let finite = pictures.panels.iter().flat_map(|p| &p.values).copied().filter(|v| v.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            return None;
        }
        let diverging = low < 0.0 && high > 0.0;
        let most = high.max(-low);
        // As on an axis: values near zero have a scale from zero.
        let from = |bound: f64, other: f64| if bound.abs() < 0.2 * other.abs() { 0.0 } else { bound };
        Some(match diverging {
            true => Colours { low: -most, high: most, diverging },
            false => Colours { low: from(low, high), high: from(high, low), diverging },
        })
    }

    /// How far along the scale a value is; the middle if all are equal.
    fn part(&self, value: f64) -> f64 {
        if value.is_infinite() {
            return if value > 0.0 { 1.0 } else { 0.0 };
        }
        // Halves, so that no difference overflows.
        let part = (0.5 * value - 0.5 * self.low) / (0.5 * self.high - 0.5 * self.low);
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.5 }
    }
}

/// The pictures as marks.
pub(crate) fn draw(pictures: &Pictures, setting: Setting) -> Scene {
    let count = pictures.panels.len();
    let description = match pictures.title.is_empty() {
        true => format!("{count} pictures"),
        false => format!("{}; {count} pictures", pictures.title),
    };
    let mut scene = Scene { width: setting.width, description, ..Scene::default() };
    let edge = setting.edge();
    let inner = setting.width - 2.0 * edge;
    let mut y = edge;
    if setting.alone {
        for line in wrap(&pictures.title, TITLE, Weight::Bold, inner, 2) {
            y += TITLE;
            scene.bold((edge, y), line, TITLE, Anchor::Start);
            y += 0.35 * TITLE;
        }
        y += 10.0;
    }
    let Some(colours) = Colours::of(pictures) else {
        scene.text((0.5 * setting.width, y + 60.0), "nothing to show", NAME, Anchor::Middle, Ink::Muted);
        scene.height = y + 120.0;
        return scene;
    };
    // Rows of about equal length: ten panels are 5 + 5, on a small screen 3 + 3 + 3 + 1.
    let most: usize = if setting.narrow() { 3 } else { 5 };
    let across = count.div_ceil(count.div_ceil(most).max(1)).max(1);
    let side = (inner - GAP * (across - 1) as f64) / across as f64;
    let side = side.floor().min(if setting.narrow() { 200.0 } else { 240.0 });
    for (row, panels) in pictures.panels.chunks(across).enumerate() {
        let mut tallest: f64 = 0.0;
        for (column, panel) in panels.iter().enumerate() {
            let x = edge + column as f64 * (side + GAP);
            let title = shorten(&panel.title, NAME, Weight::Regular, side);
            scene.text((x, y + NAME), title, NAME, Anchor::Start, Ink::Text);
            tallest = tallest.max(cells(&mut scene, panel, row * across + column, &colours, [x, y + NAME + 7.0, side]));
        }
        y += NAME + 7.0 + tallest + GAP;
    }
    bar(&mut scene, &colours, [edge, y + 4.0, inner.min(360.0)]);
    scene.height = y + 4.0 + 12.0 + 8.0 + NUMBER + edge.max(6.0);
    scene
}

/// Draws one matrix into a square (left, top, side); returns its height.
fn cells(scene: &mut Scene, panel: &Panel, number: usize, colours: &Colours, [left, top, side]: [f64; 3]) -> f64 {
    let (rows, columns) = (panel.rows.min(MOST_CELLS), panel.columns.min(MOST_CELLS));
    if rows == 0 || columns == 0 {
        return 0.0;
    }
    // The shape is that of the matrix, within reason.
    let shape = (panel.rows as f64 / panel.columns as f64).clamp(0.05, 2.0);
    let height = side * shape;
    let (w, h) = (side / columns as f64, height / rows as f64);
    // Large cells are whole pixels with one between them; small ones touch.
    let (w, h, gap) = if w.min(h) > 7.0 { (w.floor(), h.floor(), 1.0) } else { (w, h, 0.0) };
    let (side, height) = (w * columns as f64, h * rows as f64);
    let mut by_colour: BTreeMap<i32, Vec<[f64; 4]>> = BTreeMap::new();
    // The place after the last cell, and that cell's colour.
    let mut last = None;
    for row in 0..rows {
        for column in 0..columns {
            let step =
                mean(panel, (row, rows), (column, columns)).map_or(-1, |v| (colours.part(v) * STEPS).round() as i32);
            let (x, y) = (left + column as f64 * w, top + row as f64 * h);
            let boxes = by_colour.entry(step).or_default();
            // Cells of one colour that touch are one box; those that are missing are struck out one by one.
            match boxes.last_mut().filter(|_| gap == 0.0 && step >= 0 && last == Some((row, column, step))) {
                Some(before) => before[2] += w,
                None => boxes.push([x, y, w - gap, h - gap]),
            }
            last = Some((row, column + 1, step));
        }
    }
    let title = String::new();
    scene.marks.push(Mark::Begin { class: "panel", number, title });
    // One box under all, for a read-out that does not flicker between cells.
    scene.marks.push(Mark::Boxes { boxes: vec![[left, top, side - gap, height - gap]], ink: Ink::Surface });
    for (step, boxes) in by_colour {
        let colour = |step| Ink::Rgb(heat(f64::from(step) / STEPS, colours.diverging));
        if step < 0 {
            // Missing values are struck out: no colour, not even white, could be told from a value.
            let strokes = boxes.iter().map(|&[x, y, w, h]| vec![(x + 1.0, y + h - 1.0), (x + w - 1.0, y + 1.0)]);
            let stroke = Stroke { ink: Ink::Muted, width: 1.0, dashes: &[] };
            scene.marks.push(Mark::Lines { runs: strokes.collect(), stroke });
        } else {
            scene.marks.push(Mark::Boxes { boxes, ink: colour(step) });
        }
    }
    scene.marks.push(Mark::End);
    height
}

/// Mean over the block of a matrix that a cell stands for; NaNs do not count.
fn mean(panel: &Panel, (row, rows): (usize, usize), (column, columns): (usize, usize)) -> Option<f64> {
    let block = |i: usize, drawn: usize, all: usize| i * all / drawn..(i + 1) * all / drawn;
    let (mut sum, mut count) = (0.0, 0.0);
    for r in block(row, rows, panel.rows) {
        for c in block(column, columns, panel.columns) {
            if let Some(value) = panel.value(r, c).filter(|v| !v.is_nan()) {
                sum += value;
                count += 1.0;
            }
        }
    }
    (count > 0.0).then(|| sum / count)
}

/// The scale as a bar (left, top, length) with round numbers below.
fn bar(scene: &mut Scene, colours: &Colours, [left, top, length]: [f64; 3]) {
    let steps = 90;
    let step = length / f64::from(steps);
    for i in 0..steps {
        let part = f64::from(i) / f64::from(steps - 1);
        let ink = Ink::Rgb(heat(if colours.low == colours.high { 0.5 } else { part }, colours.diverging));
        // Each a little too long, so that no seam shows.
        let wide = if i + 1 < steps { step + 0.5 } else { step };
        scene.marks.push(Mark::Boxes { boxes: vec![[left + f64::from(i) * step, top, wide, 12.0]], ink });
    }
    let y = top + 12.0 + 7.0 + NUMBER;
    let range = Range { low: colours.low.max(-1e300), high: colours.high.min(1e300), log: false };
    let marks = if range.low < range.high { ticks(&range, 4).major } else { Vec::new() };
    if marks.len() < 2 {
        return scene.label((left, y), short(colours.low), NUMBER, Anchor::Start, Ink::Muted);
    }
    for (value, label) in marks {
        let part = colours.part(value);
        let x = left + part * length;
        scene.line((x, top + 12.0), (x, top + 16.0), Ink::Axis);
        // Numbers at the ends stay under the bar.
        let anchor = if part < 0.06 {
            Anchor::Start
        } else if part > 0.94 {
            Anchor::End
        } else {
            Anchor::Middle
        };
        scene.label((x, y), label, NUMBER, anchor, Ink::Muted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boxes of the first panel, without the one below all cells.
    fn boxes(values: Vec<f64>) -> Vec<[f64; 4]> {
        let panel = Panel { title: String::new(), rows: 40, columns: 40, values };
        let scene = draw(&Pictures { title: String::new(), panels: vec![panel] }, Setting::PAGE);
        let end = scene.marks.iter().position(|mark| matches!(mark, Mark::End)).unwrap();
        let boxes = scene.marks[..end].iter().filter_map(|mark| match mark {
            Mark::Boxes { boxes, .. } => Some(boxes.clone()),
            _ => None,
        });
        boxes.skip(1).flatten().collect()
    }

    #[test]
    fn small_cells_of_one_colour_that_touch_are_one_box_and_cover_what_they_covered() {
        let mut values = vec![0.0; 1600];
        values[5 * 40 + 7] = 1.0;
        let found = boxes(values.clone());
        // A box for each row, but three for the row with another colour in it.
        assert_eq!(found.len(), 42);
        let area = |boxes: &[[f64; 4]]| boxes.iter().map(|[_, _, w, h]| w * h).sum::<f64>();
        let all: Vec<f64> = (0..1600).map(|i| f64::from(i % 2)).collect();
        let single = boxes(all);
        assert_eq!(single.len(), 1600);
        assert!((area(&found) - area(&single)).abs() < 1e-6 * area(&single));
        // The last of a row does not join the first of the next.
        values[6 * 40 - 1] = 1.0;
        values[6 * 40] = 1.0;
        assert_eq!(boxes(values).len(), 44);
    }
}
