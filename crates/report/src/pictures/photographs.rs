//! Images in their own colours, in rows and columns.

use crate::error::ReportError;
use crate::page::escape::{base64, html};
use std::fmt::Write;
use tiny_skia::{ColorU8, Pixmap};

/// An image of so many columns; one level per pixel for shades of grey, three for colours.
///
/// ```
/// use bilevel_report::Photograph;
/// let levels = vec![255, 0, 0, 255, 255, 255];
/// let red_and_white = Photograph { caption: "18.3 dB".into(), columns: 2, colours: true, levels };
/// assert!(red_and_white.png()?.starts_with(b"\x89PNG"));
/// # Ok::<(), bilevel_report::ReportError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Photograph {
    /// The caption below it.
    pub caption: String,
    /// Pixels in a row.
    pub columns: usize,
    /// Red, green and blue for every pixel; otherwise one level.
    pub colours: bool,
    /// From 0 to 255, row by row. Rows that are not whole are left out.
    pub levels: Vec<u8>,
}

impl Photograph {
    /// As a PNG file, one pixel for each.
    pub fn png(&self) -> Result<Vec<u8>, ReportError> {
        let channels = if self.colours { 3 } else { 1 };
        let rows = self.levels.len().checked_div(channels * self.columns).unwrap_or(0);
        let refused = || ReportError::Encode { reason: format!("{rows} × {} pixels make no image", self.columns) };
        let size = [self.columns, rows].map(|length| u32::try_from(length).unwrap_or(0));
        let mut pixels = Pixmap::new(size[0], size[1]).ok_or_else(refused)?;
        for (pixel, levels) in pixels.pixels_mut().iter_mut().zip(self.levels.chunks(channels)) {
            let level = |channel: usize| levels.get(channel).or(levels.first()).copied().unwrap_or(0);
            *pixel = ColorU8::from_rgba(level(0), level(1), level(2), 255).premultiply();
        }
        pixels.encode_png().map_err(|error| ReportError::Encode { reason: error.to_string() })
    }
}

/// Images in rows, each row with a name, under names of columns.
///
/// ```
/// use bilevel_report::{Photograph, Photographs, Report, Section};
/// let grey = Photograph { caption: "truth".into(), columns: 1, colours: false, levels: vec![128] };
/// let all = Photographs { title: "Held out".into(), columns: vec![], rows: vec![("a lamp".into(), vec![grey])] };
/// let page = Report { sections: vec![Section::Photographs(all)], ..Report::default() }.html();
/// assert!(page.contains("data:image/png;base64,"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Photographs {
    /// The title of the photographs.
    pub title: String,
    /// The headings of the columns; empty if there are none.
    pub columns: Vec<String>,
    /// The rows with their names.
    pub rows: Vec<(String, Vec<Photograph>)>,
}

impl Photographs {
    /// The photographs as a part of a page; an image that cannot be drawn is replaced by the error.
    pub(crate) fn html(&self) -> String {
        let mut out = String::from("<div class=\"scroll\"><table class=\"photographs\">");
        if !self.columns.is_empty() {
            let names: String = self.columns.iter().map(|name| format!("<th>{}</th>", html(name))).collect();
            _ = write!(out, "<thead><tr><th></th>{names}</tr></thead>");
        }
        out.push_str("<tbody>");
        for (name, images) in &self.rows {
            _ = write!(out, "<tr><th>{}</th>", html(name));
            for image in images {
                let caption = html(&image.caption);
                _ = match image.png() {
                    Ok(png) => write!(
                        out,
                        "<td><img alt=\"{}, {caption}\" src=\"data:image/png;base64,{}\"><span>{caption}</span></td>",
                        html(name),
                        base64(&png)
                    ),
                    Err(_) => write!(out, "<td><span>no image {caption}</span></td>"),
                };
            }
            out.push_str("</tr>");
        }
        out + "</tbody></table></div>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_pixels_is_said_to_be_none_and_the_others_are_shown() {
        let odd = Photograph { columns: 4, levels: vec![1, 2, 3], ..Photograph::default() };
        assert!(odd.png().is_err());
        let page = Photographs { rows: vec![("<a>".into(), vec![odd])], ..Photographs::default() }.html();
        assert!(page.contains("no image") && page.contains("&lt;a&gt;"));
    }
}
