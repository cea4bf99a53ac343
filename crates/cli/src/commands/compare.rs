//! `bilevel compare`: several methods on several seeds, side by side.

use crate::arguments::Compare;
use crate::board::Board;
use crate::compare::curves::Way;
use crate::compare::page::page;
use crate::compare::plan::Plan;
use crate::compare::summary::Summary;
use crate::compare::work::work;
use crate::errors::{CliError, Result};
use crate::folder::write_whole;
use crate::interrupt::stop_on_interrupt;
use crate::readable::{escaped, escaped_lines, escaped_path};
use std::io::Write;

/// Runs the command.
pub fn compare(arguments: &Compare, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let plan = Plan::new(arguments, quiet)?;
    plan.begin()?;
    let ends = work(&plan, Board::stderr(quiet), &stop_on_interrupt()?)?;
    let ways: Vec<Way> = plan.runs.iter().map(|run| Way::read(&run.folder, run.method())).collect();
    let seconds: Vec<f64> = ways.iter().map(|way| way.seconds).collect();
    let summary = Summary::new(&plan, &ends, &seconds);
    write_whole(&plan.folder.join("compare.json"), summary.json().as_bytes())?;
    write_whole(&plan.folder.join("report.html"), page(&plan, &summary, &ways).html().as_bytes())?;
    if arguments.json {
        write!(out, "{}", summary.json())?;
    } else if !quiet {
        // In a file or a pipe nothing has to be shortened.
        let columns =
            terminal_size::terminal_size_of(std::io::stdout()).map_or(400, |(width, _)| (width.0 as usize).max(80));
        write!(out, "{}", escaped_lines(&summary.table().text(columns)))?;
        for warning in summary.warnings() {
            writeln!(out, "{}", escaped(&warning))?;
        }
        writeln!(out, "kept in {0}; the report is {0}/report.html", escaped_path(&plan.folder))?;
    }
    if summary.has_results() {
        return Ok(());
    }
    Err(CliError::CheckFailed(format!(
        "no run has a result to compare; {}/report.html says why",
        plan.folder.display()
    )))
}
