//! Rows and columns, for a page, a terminal or a Markdown file.

use crate::page::escape::html;
use std::fmt::Write;

/// A column: its name, and whether its cells are numbers, which are aligned at the right.
///
/// ```
/// use bilevel_report::Column;
/// assert_eq!(Column::text("estimator"), Column { name: "estimator".into(), numeric: false });
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// The heading of the column.
    pub name: String,
    /// Whether its cells are numbers.
    pub numeric: bool,
}

impl Column {
    /// A column of words.
    ///
    /// ```
    /// assert!(!bilevel_report::Column::text("estimator").numeric);
    /// ```
    pub fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), numeric: false }
    }

    /// A column of numbers.
    ///
    /// ```
    /// assert!(bilevel_report::Column::numeric("error").numeric);
    /// ```
    pub fn numeric(name: impl Into<String>) -> Column {
        Column { name: name.into(), numeric: true }
    }
}

/// Rows under named columns. Cells that a row lacks are empty; cells beyond the last column get one without a name.
///
/// ```
/// use bilevel_report::{Column, Table};
/// let table = Table {
///     columns: vec![Column::text("method"), Column::numeric("error")],
///     rows: vec![vec!["adjoint".into(), "0.5".into()], vec!["Neumann | CG".into(), "12.25".into()]],
///     caption: "Errors".into(),
/// };
/// assert_eq!(table.text(80), "Errors\nmethod        error\nadjoint         0.5\nNeumann | CG  12.25\n");
/// assert!(table.markdown().contains("| Neumann \\| CG | 12.25 |"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
    /// The caption of the table; may be empty.
    pub caption: String,
}

impl Table {
    /// As an HTML table in a box that scrolls by itself if it is too wide for the page.
    ///
    /// ```
    /// use bilevel_report::{Column, Table};
    /// let table = Table { columns: vec![Column::text("<b>")], ..Table::default() };
    /// assert!(table.html().contains("<th scope=\"col\">&lt;b&gt;</th>"));
    /// ```
    pub fn html(&self) -> String {
        let label = if self.caption.is_empty() { "Table" } else { &self.caption };
        // The box can be focused, so that it can be scrolled without a mouse.
        let mut out =
            format!("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>", html(label));
        if !self.caption.is_empty() {
            // In a separate box, which stays in place while the table is scrolled.
            _ = write!(out, "<caption><span>{}</span></caption>", html(&self.caption));
        }
        let cell = |out: &mut String, tag: &str, scope: &str, column: usize, text: &str| {
            let class = if self.numeric(column) { " class=\"number\"" } else { "" };
            _ = write!(out, "<{tag}{scope}{class}>{}</{tag}>", html(text));
        };
        let width = self.width();
        out.push_str("<thead><tr>");
        for column in 0..width {
            cell(&mut out, "th", " scope=\"col\"", column, self.name(column));
        }
        out.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            out.push_str("<tr>");
            for column in 0..width {
                cell(&mut out, "td", "", column, row.get(column).map_or("", String::as_str));
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>");
        out
    }

    /// Aligned for a terminal of this many columns. If it is too narrow, cells of the widest columns are shortened,
    /// those of words first.
    ///
    /// ```
    /// use bilevel_report::{Column, Table};
    /// let table = Table {
    ///     columns: vec![Column::text("what"), Column::numeric("n")],
    ///     rows: vec![vec!["a very long story".into(), "1234".into()]],
    ///     ..Table::default()
    /// };
    /// assert_eq!(table.text(14), "what         n\na very …  1234\n");
    /// ```
    pub fn text(&self, width: usize) -> String {
        let lines: Vec<Vec<String>> = std::iter::once((0..self.width()).map(|c| self.name(c).to_string()).collect())
            .chain(self.rows.iter().cloned())
            .map(|row: Vec<String>| row.iter().map(|cell| one_line(cell)).collect())
            .collect();
        let longest = |c: usize| lines.iter().filter_map(|row| row.get(c)).map(|cell| letters(cell)).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..self.width()).map(longest).collect();
        self.shrink(&mut widths, width);
        let mut out = String::new();
        if !self.caption.is_empty() {
            _ = writeln!(out, "{}", one_line(&self.caption));
        }
        for row in &lines {
            let cells = widths.iter().enumerate().map(|(c, &wide)| {
                let cell = shorten(row.get(c).map_or("", String::as_str), wide);
                let fill = " ".repeat(wide - letters(&cell));
                if self.numeric(c) { fill + &cell } else { cell + &fill }
            });
            let line = cells.collect::<Vec<_>>().join("  ");
            _ = writeln!(out, "{}", line.trim_end());
        }
        out
    }

    /// For a Markdown file.
    ///
    /// ```
    /// use bilevel_report::{Column, Table};
    /// let table = Table { columns: vec![Column::text("a"), Column::numeric("b")], ..Table::default() };
    /// assert_eq!(table.markdown(), "| a | b |\n|---|--:|\n");
    /// ```
    pub fn markdown(&self) -> String {
        let width = self.width();
        let escape = |text: &str| one_line(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;");
        let line = |cell: &dyn Fn(usize) -> String| (0..width).map(|c| format!(" {} |", cell(c))).collect::<String>();
        let mut out = String::new();
        if !self.caption.is_empty() {
            _ = writeln!(out, "{}\n", one_line(&self.caption).replace('<', "&lt;"));
        }
        _ = writeln!(out, "|{}", line(&|c| escape(self.name(c))));
        let rules: String = (0..width).map(|c| if self.numeric(c) { "--:|" } else { "---|" }).collect();
        _ = writeln!(out, "|{rules}");
        for row in &self.rows {
            _ = writeln!(out, "|{}", line(&|c| row.get(c).map_or(String::new(), |cell| escape(cell))));
        }
        out
    }

    fn width(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0).max(self.columns.len())
    }

    fn name(&self, column: usize) -> &str {
        self.columns.get(column).map_or("", |c| &c.name)
    }

    fn numeric(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(|c| c.numeric)
    }

    /// Takes from the widest columns until all fit, or nothing more can be taken.
    fn shrink(&self, widths: &mut [usize], room: usize) {
        let mut total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let cells =
            |c: usize| self.rows.iter().filter_map(|row| row.get(c)).map(|cell| letters(cell)).max().unwrap_or(0);
        let widest_cell: Vec<usize> = (0..widths.len()).map(cells).collect();
        // First names above short numbers, then long words, then more important cells; numbers only if nothing else
        // helps.
        for (numeric, least, keep_cells) in
            [(true, 4, true), (false, 12, false), (false, 6, false), (false, 1, false), (true, 1, false)]
        {
            let floor = |c: usize| if keep_cells { widest_cell[c].max(least) } else { least };
            while total > room {
                let these = (0..widths.len()).filter(|&c| self.numeric(c) == numeric && widths[c] > floor(c));
                let Some(widest) = these.max_by_key(|&c| widths[c]) else { break };
                widths[widest] -= 1;
                total -= 1;
            }
        }
    }
}

fn letters(text: &str) -> usize {
    text.chars().count()
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn shorten(text: &str, room: usize) -> String {
    if letters(text) <= room {
        return text.to_string();
    }
    text.chars().take(room.saturating_sub(1)).chain((room > 0).then_some('…')).collect()
}
