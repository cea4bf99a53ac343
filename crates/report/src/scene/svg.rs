//! A scene written as SVG.

use crate::axis::thin::Place;
use crate::page::escape::html;
use crate::scene::colour::Ink;
use crate::scene::font::Weight;
use crate::scene::{Anchor, Mark, Scene, Setting, Text};
use std::fmt::Write;

const FONTS: &str = "'Noto Sans',system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif";

/// The whole element. Alone it brings its colours; on a page it uses the page's, so that it follows light and dark.
pub(crate) fn write(scene: &Scene, setting: Setting) -> String {
    let colour = |ink: Ink| if setting.alone { ink.light() } else { ink.on_page() };
    let (w, h) = (n(scene.width), n(scene.height));
    let size = if setting.alone { format!(" width=\"{w}\" height=\"{h}\"") } else { String::new() };
    let mut out = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\"{size} role=\"img\"");
    _ = write!(out, " aria-label=\"{}\" font-family=\"{FONTS}\"", html(&scene.description));
    for (name, value) in scene.data.iter().filter(|_| !setting.alone) {
        _ = write!(out, " data-{name}=\"{}\"", html(value));
    }
    out.push('>');
    if setting.alone {
        // A page has its own heading, and a title here would hide the read-out.
        _ = write!(out, "<title>{}</title>", html(&scene.description));
        _ = write!(out, "<rect width=\"{w}\" height=\"{h}\" fill=\"{}\"/>", colour(Ink::Surface));
    }
    for mark in &scene.marks {
        write_mark(&mut out, mark, &colour);
    }
    out.push_str("</svg>");
    out
}

fn write_mark(out: &mut String, mark: &Mark, colour: &dyn Fn(Ink) -> String) {
    _ = match mark {
        Mark::Boxes { boxes, ink } => {
            let d: String =
                boxes.iter().map(|&[x, y, w, h]| format!("M{} {}h{}v{}h-{}z", n(x), n(y), n(w), n(h), n(w))).collect();
            write!(out, "<path d=\"{d}\" fill=\"{}\" shape-rendering=\"crispEdges\"/>", colour(*ink))
        }
        Mark::Lines { runs, stroke } => {
            let (ink, width) = (colour(stroke.ink), n(stroke.width));
            _ = write!(out, "<path d=\"{}\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"{width}\"", path(runs, ""));
            if !stroke.dashes.is_empty() {
                let dashes: Vec<String> = stroke.dashes.iter().map(|&d| n(d)).collect();
                _ = write!(out, " stroke-dasharray=\"{}\"", dashes.join(" "));
            }
            write!(out, " stroke-linejoin=\"round\"/>")
        }
        Mark::Areas { outlines, ink, opacity } => {
            write!(out, "<path d=\"{}\" fill=\"{}\" fill-opacity=\"{opacity}\"/>", path(outlines, "z"), colour(*ink))
        }
        Mark::Dots { places, radius, ink } => {
            _ = write!(out, "<g fill=\"{}\" stroke=\"{}\">", colour(*ink), colour(Ink::Surface));
            for (x, y) in places {
                _ = write!(out, "<circle cx=\"{}\" cy=\"{}\" r=\"{}\"/>", n(*x), n(*y), n(*radius));
            }
            write!(out, "</g>")
        }
        Mark::Text(text) => write_text(out, text, &colour(text.ink)),
        Mark::Begin { class, number, title } => {
            _ = write!(out, "<g class=\"{class}\" data-number=\"{number}\">");
            if title.is_empty() { Ok(()) } else { write!(out, "<title>{}</title>", html(title)) }
        }
        Mark::End => write!(out, "</g>"),
    };
}

fn write_text(out: &mut String, text: &Text, ink: &str) -> std::fmt::Result {
    let anchor = match text.anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let weight = if text.weight == Weight::Bold { " font-weight=\"600\"" } else { "" };
    let (x, y, size) = (n(text.at.0), n(text.at.1), n(text.size));
    write!(
        out,
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{ink}\"{anchor}{weight}>{}",
        html(&text.label.text)
    )?;
    if let Some(exponent) = &text.label.exponent {
        write!(
            out,
            "<tspan dy=\"-{}\" font-size=\"{}\">{}</tspan>",
            n(0.4 * text.size),
            n(0.75 * text.size),
            html(exponent)
        )?;
    }
    write!(out, "</text>")
}

/// The runs in whole tenths of a unit: the beginning of each, then steps, which are shorter than positions.
fn path(runs: &[Vec<Place>], end: &str) -> String {
    let tenths = |&(x, y): &Place| ((10.0 * x).round() as i64, (10.0 * y).round() as i64);
    let mut d = String::new();
    for run in runs {
        let mut pen: Option<(i64, i64)> = None;
        for (x, y) in run.iter().map(tenths) {
            match pen {
                None => d += &format!("M{} {}", n(x as f64 / 10.0), n(y as f64 / 10.0)),
                Some(old) if old == (x, y) => continue,
                Some((a, b)) => step(&mut d, x - a, y - b),
            }
            pen = Some((x, y));
        }
        d.push_str(end);
    }
    d
}

fn step(d: &mut String, dx: i64, dy: i64) {
    let short = |tenths: i64| n(tenths as f64 / 10.0).replacen("0.", ".", usize::from(tenths.abs() < 10));
    let (x, y) = (short(dx), short(dy));
    let between = if y.starts_with('-') { "" } else { " " };
    _ = match (dx, dy) {
        (0, _) => write!(d, "v{y}"),
        (_, 0) => write!(d, "h{x}"),
        _ => write!(d, "l{x}{between}{y}"),
    };
}

/// A coordinate to a tenth of a unit.
fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0").unwrap_or(&text) {
        "-0" => "0".to_string(),
        text => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_short() {
        let runs = [vec![(0.0, 1.04), (0.5, 0.96), (0.5, 3.0), (10.0, 3.0)], vec![(2.0, 2.0), (1.5, 1.0)]];
        assert_eq!(path(&runs, "z"), "M0 1h.5v2h9.5zM2 2l-.5-1z");
    }
}
