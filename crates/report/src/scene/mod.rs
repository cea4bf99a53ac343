//! A picture as a list of marks, which `svg` writes and `raster` paints.

pub(crate) mod colour;
pub(crate) mod font;
pub(crate) mod raster;
pub(crate) mod svg;

use crate::axis::thin::Place;
use crate::number::Label;
use crate::scene::colour::Ink;
use crate::scene::font::Weight;

/// The position of a text relative to its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a line is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stroke {
    pub ink: Ink,
    pub width: f64,
    /// Lengths drawn and left out in turn; empty for an unbroken line.
    pub dashes: &'static [f64],
}

/// A line of text; y is its baseline.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub at: Place,
    pub label: Label,
    pub size: f64,
    pub anchor: Anchor,
    pub ink: Ink,
    pub weight: Weight,
}

/// One thing to draw. Later marks cover earlier ones.
#[derive(Clone, Debug)]
pub(crate) enum Mark {
    /// Axis-parallel boxes (x, y, width, height) of one colour, with sharp edges.
    Boxes { boxes: Vec<[f64; 4]>, ink: Ink },
    /// Lines through these places.
    Lines { runs: Vec<Vec<Place>>, stroke: Stroke },
    /// Filled outlines.
    Areas { outlines: Vec<Vec<Place>>, ink: Ink, opacity: f64 },
    /// Dots with a thin edge of the background's colour.
    Dots { places: Vec<Place>, radius: f64, ink: Ink },
    /// A line of text.
    Text(Text),
    /// Begins a group that a page's script can find by its class and number.
    Begin { class: &'static str, number: usize, title: String },
    /// Ends the group.
    End,
}

/// Marks on a canvas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    pub width: f64,
    pub height: f64,
    pub marks: Vec<Mark>,
    /// The alternative text of the picture.
    pub description: String,
    /// Attributes for a page's script.
    pub data: Vec<(&'static str, String)>,
}

impl Scene {
    /// A straight line of an axis or a grid, in the middle of a row or column of pixels, so that it is sharp.
    pub fn line(&mut self, a: Place, b: Place, ink: Ink) {
        let sharp = |a: f64, b: f64| if a == b { (a.floor() + 0.5, b.floor() + 0.5) } else { (a, b) };
        let ((ax, bx), (ay, by)) = (sharp(a.0, b.0), sharp(a.1, b.1));
        let (a, b, width) = ((ax, ay), (bx, by), 1.0);
        self.marks.push(Mark::Lines { runs: vec![vec![a, b]], stroke: Stroke { ink, width, dashes: &[] } });
    }

    /// A line of regular text.
    pub fn text(&mut self, at: Place, text: impl Into<String>, size: f64, anchor: Anchor, ink: Ink) {
        self.label(at, Label::plain(text), size, anchor, ink);
    }

    /// A number.
    pub fn label(&mut self, at: Place, label: Label, size: f64, anchor: Anchor, ink: Ink) {
        self.marks.push(Mark::Text(Text { at, label, size, anchor, ink, weight: Weight::Regular }));
    }

    /// A title in bold.
    pub fn bold(&mut self, at: Place, text: impl Into<String>, size: f64, anchor: Anchor) {
        let (label, ink) = (Label::plain(text), Ink::Text);
        self.marks.push(Mark::Text(Text { at, label, size, anchor, ink, weight: Weight::Bold }));
    }
}

/// The place of a picture, which decides its layout and its colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Width of the canvas in units; letters are 11 to 16 units high.
    pub width: f64,
    /// Whether it is a separate file: then it has a title and a background.
    pub alone: bool,
}

impl Setting {
    /// Alone, at the width of a page or a wide screen.
    pub const ALONE: Setting = Setting { width: 760.0, alone: true };
    /// Alone and small.
    pub const ALONE_NARROW: Setting = Setting { width: 380.0, alone: true };
    /// On a page.
    pub const PAGE: Setting = Setting { width: 760.0, alone: false };
    /// On a page on a small screen.
    pub const PAGE_NARROW: Setting = Setting { width: 360.0, alone: false };

    /// Alone, drawn with this many pixels: on few of them the letters of the wide layout could not be read.
    pub fn alone(width_px: u32) -> Setting {
        if width_px < 520 { Self::ALONE_NARROW } else { Self::ALONE }
    }

    /// Whether there is little room.
    pub fn narrow(&self) -> bool {
        self.width < 500.0
    }

    /// Room left free at the edges.
    pub fn edge(&self) -> f64 {
        if self.alone { 16.0 } else { 0.0 }
    }
}
