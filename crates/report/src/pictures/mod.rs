//! Matrices as pictures, with one scale of colours for all.

mod draw;
pub(crate) mod photographs;

use crate::error::ReportError;
use crate::number;
use crate::page::escape;
use crate::pictures::draw::draw;
use crate::scene::Setting;
use crate::scene::raster;
use crate::scene::svg;

/// A matrix, row by row.
///
/// ```
/// use bilevel_report::Panel;
/// let panel = Panel { title: "digit 3".into(), rows: 2, columns: 3, values: vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0] };
/// assert_eq!(panel.value(1, 0), Some(3.0));
/// assert_eq!(panel.value(0, 3), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// The title above it.
    pub title: String,
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// The values, row by row. Missing ones and NaNs are left blank, infinite ones get the scale's last colour.
    pub values: Vec<f64>,
}

impl Panel {
    /// The value at a place; `None` outside, and for missing values.
    ///
    /// ```
    /// assert_eq!(bilevel_report::Panel::default().value(0, 0), None);
    /// ```
    pub fn value(&self, row: usize, column: usize) -> Option<f64> {
        if row >= self.rows || column >= self.columns {
            return None;
        }
        row.checked_mul(self.columns)?.checked_add(column).and_then(|i| self.values.get(i)).copied()
    }
}

/// Matrices side by side with one scale of colours.
///
/// The scale is sequential; if values have both signs it is diverging, with zero in the middle. A matrix of more
/// than 64 rows or columns is drawn as means over blocks.
///
/// ```
/// use bilevel_report::{Panel, Pictures};
/// let panel = |digit: usize| Panel {
///     title: digit.to_string(),
///     rows: 8,
///     columns: 8,
///     values: (0..64).map(|i| (i * digit) as f64).collect(),
/// };
/// let pictures = Pictures { title: "Learned penalty of each pixel".into(), panels: (0..10).map(panel).collect() };
/// assert!(pictures.svg().contains("Learned penalty"));
/// assert!(pictures.png(800)?.starts_with(b"\x89PNG"));
/// # Ok::<(), bilevel_report::ReportError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pictures {
    /// The title of the pictures.
    pub title: String,
    /// The matrices.
    pub panels: Vec<Panel>,
}

impl Pictures {
    /// As a picture for any browser or drawing program, in light colours.
    ///
    /// ```
    /// assert!(bilevel_report::Pictures::default().svg().contains("nothing to show"));
    /// ```
    pub fn svg(&self) -> String {
        svg::write(&draw(self, Setting::ALONE), Setting::ALONE)
    }

    /// As pixels, this many wide. Below 520 the layout is that of a small screen.
    ///
    /// ```
    /// assert!(bilevel_report::Pictures::default().png(300)?.starts_with(b"\x89PNG"));
    /// # Ok::<(), bilevel_report::ReportError>(())
    /// ```
    pub fn png(&self, width_px: u32) -> Result<Vec<u8>, ReportError> {
        raster::png(&draw(self, Setting::alone(width_px)), width_px)
    }

    /// For a page: at full width and for a small screen.
    pub(crate) fn on_page(&self) -> [String; 2] {
        [Setting::PAGE, Setting::PAGE_NARROW].map(|setting| svg::write(&draw(self, setting), setting))
    }

    /// The data of the page's read-out, as JSON. Large matrices have none, to keep the page small.
    pub(crate) fn data(&self) -> String {
        let panel = |panel: &Panel| {
            let small = panel.rows.saturating_mul(panel.columns) <= 4096;
            let values = panel.values.iter().take(if small { panel.rows * panel.columns } else { 0 });
            let values: Vec<String> = values.map(|&v| number::json(v)).collect();
            let (title, rows, columns) = (escape::json(&panel.title), panel.rows, panel.columns);
            format!("{{\"title\":{title},\"rows\":{rows},\"columns\":{columns},\"values\":[{}]}}", values.join(","))
        };
        let panels: Vec<String> = self.panels.iter().map(panel).collect();
        format!("{{\"panels\":[{}]}}", panels.join(","))
    }
}
