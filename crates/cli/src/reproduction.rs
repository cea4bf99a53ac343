//! What a reproduction leaves behind: tables for a terminal, and a folder with a page, rows and figures.

use crate::errors::{CliError, Result};
use crate::folder::{clean, refuse_foreign, write_whole};
use crate::marked_folder::MarkedFolder;
use bilevel_report::{Axis, Column, Curve, Plot, Report, Section, Table};
use bilevel_tasks::{Effort, Experiment, Figure, HEADINGS, Row};
use std::path::Path;

/// What the mark of its folder says.
const COMMAND: &str = "reproduce";
/// Curves of at most so many points get a dot at each.
const FEW: usize = 12;
/// An axis whose numbers are all positive and differ by this factor is logarithmic.
const WIDE: f64 = 50.0;
/// Numbers that differ by more than this are 0 but for rounding.
const ROUNDING: f64 = 1e20;
/// Width of a figure in pixels.
const PIXELS: u32 = 1200;

/// An experiment with what came out of it.
pub struct Found {
    /// The experiment.
    pub experiment: &'static Experiment,
    /// Its rows and figures.
    pub report: bilevel_tasks::Report,
}

/// Rows as a table, and the numbered reasons of what does not agree.
pub fn table(rows: &[Row]) -> (Table, Vec<String>) {
    let columns = HEADINGS.iter().enumerate().map(|(i, name)| match i {
        3..8 => Column::numeric(*name),
        _ => Column::text(*name),
    });
    let mut reasons: Vec<&str> = vec![];
    let mut lines = vec![];
    for row in rows {
        let (mut cells, why) = (row.cells(), row.verdict.why());
        if !why.is_empty() {
            let known = reasons.iter().position(|reason| *reason == why);
            let number = known.unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            cells[8] += &format!(" [{}]", number + 1);
        }
        lines.push(cells.to_vec());
    }
    let numbered = reasons.iter().enumerate().map(|(i, why)| format!("[{}] {why}", i + 1)).collect();
    (Table { columns: columns.collect(), rows: lines, caption: String::new() }, numbered)
}

/// The table for a terminal of so many columns. Where it is too narrow, the spread and the number of seeds are left out, and
/// words give way before verdicts.
pub fn fit(table: &Table, columns: usize) -> String {
    let whole = table.text(usize::MAX);
    if whole.lines().all(|line| line.chars().count() <= columns) {
        return whole;
    }
    let kept = |i: &usize| !["sd", "seeds"].contains(&HEADINGS[*i]);
    let kept: Vec<usize> = (0..HEADINGS.len()).filter(kept).collect();
    let column =
        |i: usize| Column { name: HEADINGS[i].into(), numeric: table.columns[i].numeric || i == HEADINGS.len() - 1 };
    Table {
        columns: kept.iter().map(|i| column(*i)).collect(),
        rows: table.rows.iter().map(|row| kept.iter().map(|i| row[*i].clone()).collect()).collect(),
        caption: String::new(),
    }
    .text(columns)
}

/// A figure as curves; an axis that spans powers of ten is logarithmic.
pub fn plot(figure: &Figure) -> Plot {
    let curve = |(name, points): &bilevel_tasks::Series| {
        if name.ends_with("data") {
            // Points of data have no line between them: a gap after each.
            let apart = points.iter().flat_map(|point| [*point, (f64::NAN, f64::NAN)]);
            return Curve::new(name.clone(), apart).with_markers();
        }
        let curve = Curve::new(name.clone(), points.iter().copied());
        if points.len() <= FEW { curve.with_markers() } else { curve }
    };
    let all = || figure.series.iter().flat_map(|(_, points)| points);
    Plot {
        title: figure.title.clone(),
        x: axis(figure.x, all().map(|(x, _)| *x)),
        y: axis(figure.y, all().map(|(_, y)| *y)),
        curves: figure.series.iter().map(curve).collect(),
    }
}

fn axis(label: &str, values: impl Iterator<Item = f64>) -> Axis {
    let ends = |(low, high): (f64, f64), v: f64| (low.min(v), high.max(v));
    let (low, high) = values.filter(|v| v.is_finite()).fold((f64::INFINITY, f64::NEG_INFINITY), ends);
    if low > 0.0 && (WIDE..ROUNDING).contains(&(high / low)) { Axis::logarithmic(label) } else { Axis::linear(label) }
}

/// Makes the folder and the one for figures in it. One that an earlier reproduction made, or was killed in, may be written
/// again.
pub fn prepare(folder: &Path) -> Result<MarkedFolder> {
    let own = ["rows.jsonl", "report.html"].iter().all(|name| folder.join(name).is_file());
    refuse_foreign(folder, "reproduction", own || MarkedFolder::was_left(folder, COMMAND))?;
    let marked = MarkedFolder::begin(folder, COMMAND)?;
    let figures = folder.join("figures");
    std::fs::create_dir_all(&figures).map_err(|error| CliError::file("create", &figures, &error))?;
    clean(&figures)?;
    Ok(marked)
}

/// Writes page, rows and figures of everything found so far; the figures of the last item alone, as the others are there.
pub fn write(folder: &Path, found: &[Found], effort: Effort) -> Result<()> {
    let rows: String = found.iter().flat_map(|one| &one.report.rows).map(|row| row.to_json() + "\n").collect();
    write_whole(&folder.join("rows.jsonl"), rows.as_bytes())?;
    if let Some(last) = found.last() {
        for (number, figure) in last.report.figures.iter().enumerate() {
            let plot = plot(figure);
            let file =
                |end: &str| folder.join("figures").join(format!("{}-{}.{end}", last.experiment.name, number + 1));
            write_whole(&file("svg"), plot.svg().as_bytes())?;
            let png = plot.png(PIXELS).map_err(|error| CliError::Unwritten(error.to_string()))?;
            write_whole(&file("png"), &png)?;
        }
    }
    write_whole(&folder.join("report.html"), page(found, effort).html().as_bytes())
}

/// Puts spread and number of seeds into one column, so that the verdict fits on the page.
fn together(table: &mut Table) {
    let (sd, seeds) = (6, 7);
    table.columns.remove(seeds);
    table.columns[sd].name = "sd (seeds)".into();
    for row in &mut table.rows {
        let count = row.remove(seeds);
        if row[sd] != "–" {
            row[sd] += &format!(" ({count})");
        }
    }
}

fn page(found: &[Found], effort: Effort) -> Report {
    let mut sections = vec![Section::Text {
        title: String::new(),
        text: "Every number stands beside the one the paper prints and the one its protocol is known to give. A number that is \
               not reproduced has its reason below the table. `bilevel reproduce ITEM` computes a table again."
            .into(),
    }];
    for Found { experiment, report } in found {
        let (mut table, reasons) = table(&report.rows);
        together(&mut table);
        table.caption = format!("{} ({})", experiment.title, experiment.name);
        sections.push(Section::Table(table));
        if !reasons.is_empty() {
            sections.push(Section::Text { title: String::new(), text: reasons.join("\n\n") });
        }
        sections.extend(report.figures.iter().map(|figure| Section::Plot(plot(figure))));
    }
    let subtitle = match effort {
        Effort::Quick => "few seeds and low caps (--quick)",
        Effort::Full => "enough seeds for the printed digits",
    };
    Report { title: "Reproducing the paper".into(), subtitle: subtitle.into(), sections }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bilevel_tasks::Verdict;

    #[test]
    fn rows_with_the_same_reason_share_its_number() {
        let row = |why: &str| Row::new("synth1d", "RMD", "λ", 1.0).verdict(Verdict::NotReproduced(why.into()));
        let (table, reasons) = table(&[row("biased"), row("noisy"), row("biased")]);
        let verdicts: Vec<&str> = table.rows.iter().map(|cells| cells[8].as_str()).collect();
        assert_eq!(verdicts, ["not reproduced [1]", "not reproduced [2]", "not reproduced [1]"]);
        assert_eq!(reasons, ["[1] biased", "[2] noisy"]);
    }

    #[test]
    fn a_narrow_terminal_loses_the_spread_before_the_verdict() {
        let row = Row::new("synth1d", "Evolutionary search", "λ", 1.0).setting("as printed, λ kept in [0, 1]");
        let (table, _) = table(&[row.verdict(Verdict::NotReproduced("noisy".into()))]);
        assert_eq!(fit(&table, 200), table.text(usize::MAX));
        let narrow = fit(&table, 80);
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(narrow.contains("not reproduced [1]") && !narrow.contains("seeds"), "{narrow}");
    }

    #[test]
    fn an_axis_is_logarithmic_where_its_numbers_span_powers_of_ten() {
        assert!(axis("error", [1e-4, 1.0].into_iter()).log);
        assert!(!axis("error", [1.0, 2.0].into_iter()).log);
        assert!(!axis("error", [0.0, 1000.0].into_iter()).log);
        assert!(!axis("error", [1e-33, 1.0].into_iter()).log, "a rounding error is no power of ten");
        assert!(!axis("error", std::iter::empty()).log);
    }
}
