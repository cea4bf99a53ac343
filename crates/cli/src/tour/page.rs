//! The output of the tour: headings, lines, tables, sparklines. Plain text; headings are bold on a terminal.

use std::io::{Result, Write};

/// A place to write text for people.
pub struct TourPage<'a> {
    out: &'a mut dyn Write,
    bold: bool,
}

impl<'a> TourPage<'a> {
    /// Writes to `out`, with headings in bold if asked.
    pub fn new(out: &'a mut dyn Write, bold: bool) -> Self {
        TourPage { out, bold }
    }

    /// A heading with an empty line before and after.
    pub fn heading(&mut self, text: &str) -> Result<()> {
        let (on, off) = if self.bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        writeln!(self.out, "\n{on}{text}{off}\n")?;
        self.out.flush()
    }

    /// One line.
    pub fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "{text}")
    }

    /// Lines set in by four columns, such as code.
    pub fn inset(&mut self, text: &str) -> Result<()> {
        text.lines().try_for_each(|line| writeln!(self.out, "    {line}"))
    }

    /// Rows of cells in columns, the first row their names. Cells stand at the left in the first column, else at the right.
    pub fn table<const N: usize>(&mut self, rows: &[[String; N]]) -> Result<()> {
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        for row in rows {
            let cells = row.iter().zip(widths).enumerate().map(|(i, (cell, width))| match i {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            writeln!(self.out, "    {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// At most `width` characters whose heights are the values, from the smallest to the largest.
pub fn sparkline(values: &[f64], width: usize) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
    let height = |value: f64| (((value - low) / (high - low).max(f64::MIN_POSITIVE)) * 7.0).round() as usize;
    let count = width.min(values.len());
    (0..count).map(|i| HEIGHTS[height(values[i * (values.len() - 1) / (count - 1).max(1)]).min(7)]).collect()
}

/// Seconds in the unit that suits them.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_runs_from_the_lowest_to_the_highest_mark() {
        let rising: Vec<f64> = (0..100).map(f64::from).collect();
        let line = sparkline(&rising, 8);
        assert_eq!(line, "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[1.0, 1.0], 8), "▁▁");
        assert_eq!(sparkline(&[], 8), "");
        assert_eq!(sparkline(&[2.0], 8), "▁");
    }

    #[test]
    fn durations_are_said_in_the_unit_that_suits_them() {
        assert_eq!([2e-6, 0.0034, 1.5].map(duration), ["2.0 µs", "3.40 ms", "1.50 s"]);
    }

    #[test]
    fn escape_codes_are_written_only_where_asked_for() {
        for bold in [false, true] {
            let mut out = vec![];
            TourPage::new(&mut out, bold).heading("A heading").unwrap();
            assert_eq!(out.contains(&0x1b), bold);
        }
    }
}
