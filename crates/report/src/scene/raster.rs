//! A scene painted into pixels and encoded as PNG.

use crate::axis::thin::Place;
use crate::error::ReportError;
use crate::scene::colour::Ink;
use crate::scene::font::{advance, face, glyph};
use crate::scene::{Anchor, Mark, Scene, Text};
use tiny_skia::{Color, FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, Stroke, StrokeDash, Transform};
use ttf_parser::{Face, OutlineBuilder};

const LEAST: u32 = 16;
const MOST: u32 = 10_000;

/// The scene at this width, in light colours.
pub(crate) fn png(scene: &Scene, width: u32) -> Result<Vec<u8>, ReportError> {
    let refused = ReportError::Width { given: width, least: LEAST, most: MOST };
    if !(LEAST..=MOST).contains(&width) {
        return Err(refused);
    }
    let scale = f64::from(width) / scene.width;
    let height = (scene.height * scale).ceil().clamp(1.0, 4.0 * f64::from(MOST)) as u32;
    let mut pixels = Pixmap::new(width, height).ok_or(refused)?;
    let [r, g, b] = Ink::Surface.rgb();
    pixels.fill(Color::from_rgba8(r, g, b, 255));
    let mut canvas = Canvas { pixels, transform: Transform::from_scale(scale as f32, scale as f32) };
    for mark in &scene.marks {
        canvas.paint(mark);
    }
    canvas.pixels.encode_png().map_err(|error| ReportError::Encode { reason: error.to_string() })
}

struct Canvas {
    pixels: Pixmap,
    transform: Transform,
}

impl Canvas {
    fn paint(&mut self, mark: &Mark) {
        match mark {
            Mark::Boxes { boxes, ink } => {
                let mut builder = PathBuilder::new();
                for &[x, y, w, h] in boxes {
                    if let Some(rect) = tiny_skia::Rect::from_xywh(x as f32, y as f32, w as f32, h as f32) {
                        builder.push_rect(rect);
                    }
                }
                // Anti-aliasing would leave seams between neighbours.
                self.fill(builder.finish(), &Paint { anti_alias: false, ..paint(*ink, 1.0) });
            }
            Mark::Lines { runs, stroke } => {
                let dashes = stroke.dashes.iter().map(|&d| d as f32).collect();
                let style = Stroke {
                    width: stroke.width as f32,
                    line_join: LineJoin::Round,
                    line_cap: LineCap::Butt,
                    dash: if stroke.dashes.is_empty() { None } else { StrokeDash::new(dashes, 0.0) },
                    ..Stroke::default()
                };
                if let Some(path) = polygon(runs, false) {
                    self.pixels.stroke_path(&path, &paint(stroke.ink, 1.0), &style, self.transform, None);
                }
            }
            Mark::Areas { outlines, ink, opacity } => self.fill(polygon(outlines, true), &paint(*ink, *opacity)),
            Mark::Dots { places, radius, ink } => {
                for &(x, y) in places {
                    for (r, ink) in [(radius + 0.5, Ink::Surface), (radius - 0.5, *ink)] {
                        let circle = PathBuilder::from_circle(x as f32, y as f32, r.max(0.1) as f32);
                        self.fill(circle, &paint(ink, 1.0));
                    }
                }
            }
            Mark::Text(text) => self.text(text),
            Mark::Begin { .. } | Mark::End => {}
        }
    }

    fn fill(&mut self, path: Option<Path>, paint: &Paint) {
        if let Some(path) = path {
            self.pixels.fill_path(&path, paint, FillRule::Winding, self.transform, None);
        }
    }

    fn text(&mut self, text: &Text) {
        let Some(face) = face(text.weight) else { return };
        let small = 0.75 * text.size;
        let exponent = text.label.exponent.as_deref().unwrap_or("");
        let length = length(face, &text.label.text) * text.size + length(face, exponent) * small;
        let left = match text.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5 * length,
            Anchor::End => length,
        };
        let mut pen = Pen { builder: PathBuilder::new(), x: text.at.0 - left, y: text.at.1, size: 0.0, flip: None };
        pen.write(face, &text.label.text, text.size);
        pen.y -= 0.4 * text.size;
        pen.write(face, exponent, small);
        let path = pen.builder.finish();
        self.fill(path, &paint(text.ink, 1.0));
    }
}

fn length(face: &Face, text: &str) -> f64 {
    text.chars().map(|c| advance(face, c)).sum()
}

fn paint(ink: Ink, opacity: f64) -> Paint<'static> {
    let [r, g, b] = ink.rgb();
    let mut paint = Paint::default();
    paint.set_color_rgba8(r, g, b, (255.0 * opacity).round() as u8);
    paint
}

fn polygon(runs: &[Vec<Place>], closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for run in runs.iter().filter(|run| run.len() > 1) {
        for (i, &(x, y)) in run.iter().enumerate() {
            let (x, y) = (x as f32, y as f32);
            if i == 0 { builder.move_to(x, y) } else { builder.line_to(x, y) }
        }
        if closed {
            builder.close();
        }
    }
    builder.finish()
}

/// Draws glyphs one after the other into one path.
struct Pen {
    builder: PathBuilder,
    x: f64,
    y: f64,
    /// Units of the page for one unit of the font.
    size: f64,
    /// Height about which the glyph is turned upside down.
    flip: Option<f64>,
}

impl Pen {
    fn write(&mut self, face: &Face, text: &str, size: f64) {
        self.size = size / f64::from(face.units_per_em());
        for c in text.chars() {
            let (id, flipped) = glyph(face, c);
            self.flip = flipped.then(|| face.capital_height().map_or(0.0, f64::from));
            face.outline_glyph(id, self);
            self.x += size * advance(face, c);
        }
    }

    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        let y = self.flip.map_or(f64::from(y), |height| height - f64::from(y));
        ((self.x + self.size * f64::from(x)) as f32, (self.y - self.size * y) as f32)
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.builder.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.builder.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.builder.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.builder.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.builder.close();
    }
}
