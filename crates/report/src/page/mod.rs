//! One self-contained page: no network, light and dark, wide and narrow, with or without scripts.

pub(crate) mod escape;
pub(crate) mod table;

use crate::file_stem::file_stem;
use crate::page::escape::{data_uri, html};
use crate::page::table::Table;
use crate::pictures::Pictures;
use crate::pictures::photographs::Photographs;
use crate::plot::Plot;
use crate::scene::colour::properties;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A part of a report.
///
/// ```
/// use bilevel_report::{Report, Section};
/// let section = Section::Text { title: "Method".into(), text: "Runs with `seed = 7`.\n\nTwice.".into() };
/// let page = Report { sections: vec![section], ..Report::default() }.html();
/// assert!(page.contains("<h2>Method</h2><p>Runs with <code>seed = 7</code>.</p><p>Twice.</p>"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Section {
    /// A heading and paragraphs.
    Text {
        /// The heading; none if empty.
        title: String,
        /// Paragraphs with empty lines between them; text between backticks is set as code.
        text: String,
    },
    /// Warnings that qualify the rest. Nothing is shown if there are none.
    Warnings(Vec<String>),
    /// Curves.
    Plot(Plot),
    /// Heat maps.
    Pictures(Pictures),
    /// Images in their own colours.
    Photographs(Photographs),
    /// A table.
    Table(Table),
    /// A configuration, a program, an output.
    Code {
        /// The title of the section.
        title: String,
        /// Shown as it is.
        text: String,
    },
}

/// A page of sections.
///
/// ```
/// use bilevel_report::{Report, Section};
/// let report = Report {
///     title: "Hyper-cleaning".into(),
///     subtitle: "seed 7".into(),
///     sections: vec![Section::Warnings(vec!["3 of 200 iterations diverged & were repeated".into()])],
///     footer: "made by version 1.2".into(),
/// };
/// let page = report.html();
/// assert!(page.contains("<h1>Hyper-cleaning</h1>"));
/// assert!(page.contains("diverged &amp; were repeated"));
/// assert!(!page.contains("https://"), "a page asks for nothing from the network");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The heading of the page.
    pub title: String,
    /// A line below it; none if empty.
    pub subtitle: String,
    /// The sections, in order.
    pub sections: Vec<Section>,
    /// The last line: the origin and date of the page. None if empty.
    pub footer: String,
}

impl Report {
    /// The whole page as one file.
    ///
    /// ```
    /// assert!(bilevel_report::Report::default().html().ends_with("</html>\n"));
    /// ```
    pub fn html(&self) -> String {
        let title = if self.title.is_empty() { "Report" } else { &self.title };
        let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        out.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
        out.push_str("<meta name=\"color-scheme\" content=\"light dark\">");
        // An icon in the page, so that a browser does not ask a server for one.
        out.push_str("<link rel=\"icon\" href=\"data:,\">");
        _ = write!(out, "<title>{}</title><style>{}</style></head>\n<body>", html(title), style());
        _ = write!(out, "<header><h1>{}</h1>", html(title));
        if !self.subtitle.is_empty() {
            _ = write!(out, "<p class=\"subtitle\">{}</p>", html(&self.subtitle));
        }
        _ = write!(out, "</header><main>\n{}</main>", fragment(&self.sections));
        if !self.footer.is_empty() {
            _ = write!(out, "<footer>{}</footer>", html(&self.footer));
        }
        _ = writeln!(out, "<script>{SCRIPT}</script></body></html>");
        out
    }
}

/// Sections as HTML without the page around them, for your own page with [`style`] and [`script`].
///
/// ```
/// use bilevel_report::{Section, fragment};
/// let code = Section::Code { title: "Output".into(), text: "1 < 2".into() };
/// assert!(fragment(&[code]).starts_with("<section><h2>Output</h2><pre"));
/// ```
pub fn fragment(sections: &[Section]) -> String {
    let mut out = String::new();
    for section in sections {
        write_section(&mut out, section);
        out.push('\n');
    }
    out
}

/// The style sheet of a page: its colours in light and dark as custom properties, and its rules.
///
/// ```
/// assert!(bilevel_report::style().starts_with(":root{--surface:#ffffff;"));
/// ```
pub fn style() -> String {
    // On paper colours are the light ones.
    let dark = format!("@media screen and (prefers-color-scheme:dark){{:root{{{}}}}}", properties(true));
    format!(":root{{{}}}{dark}\n{STYLE}", properties(false))
}

/// The script of a page. Its function `enliven(figure)` gives a figure that was added later its read-outs and its legend.
///
/// ```
/// assert!(bilevel_report::script().contains("const enliven = (figure) =>"));
/// ```
pub fn script() -> &'static str {
    SCRIPT
}

fn write_section(out: &mut String, section: &Section) {
    _ = match section {
        Section::Text { title, text } => {
            write!(out, "<section class=\"text\">{}{}</section>", heading(title), paragraphs(text))
        }
        Section::Warnings(warnings) if warnings.is_empty() => Ok(()),
        Section::Warnings(warnings) => {
            let title =
                if warnings.len() == 1 { "Warning".to_string() } else { format!("{} warnings", warnings.len()) };
            let items: String = warnings.iter().map(|warning| format!("<li>{}</li>", inline(warning))).collect();
            write!(out, "<section class=\"warnings\"><h2>{title}</h2><ul>{items}</ul></section>")
        }
        Section::Plot(plot) => figure(out, "plot", &plot.title, plot.on_page(), &plot.data(), &plot.svg()),
        Section::Pictures(p) => figure(out, "pictures", &p.title, p.on_page(), &p.data(), &p.svg()),
        Section::Photographs(p) => write!(out, "<section>{}{}</section>", heading(&p.title), p.html()),
        Section::Table(table) => write!(out, "<section>{}</section>", table.html()),
        Section::Code { title, text } => {
            write!(out, "<section>{}<pre tabindex=\"0\"><code>{}</code></pre></section>", heading(title), html(text))
        }
    };
}

fn heading(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<h2>{}</h2>", html(title)) }
}

/// Both drawings, of which the style sheet shows one; the data of the read-out; the drawing to keep.
fn figure(out: &mut String, class: &str, title: &str, drawn: [String; 2], data: &str, kept: &str) -> std::fmt::Result {
    let [wide, narrow] = drawn;
    let stem = file_stem(title);
    let file = if stem.is_empty() { "picture" } else { &stem };
    write!(out, "<section><figure class=\"{class}\">{}", heading(title))?;
    write!(out, "<div class=\"wide\">{wide}</div><div class=\"narrow\">{narrow}</div>")?;
    write!(out, "<a class=\"keep\" download=\"{file}.svg\" href=\"{}\">Save as SVG</a>", data_uri(kept))?;
    write!(out, "<script type=\"application/json\">{data}</script></figure></section>")
}

fn paragraphs(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let parts = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| format!("<p>{}</p>", inline(part))).collect()
}

/// Text with code between backticks; a backtick without a partner is one.
fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, code, after)) =
        rest.split_once('`').and_then(|(before, tail)| tail.split_once('`').map(|(code, after)| (before, code, after)))
    {
        _ = write!(out, "{}<code>{}</code>", html(before), html(code));
        rest = after;
    }
    out + &html(rest)
}
