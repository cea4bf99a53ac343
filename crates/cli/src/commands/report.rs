//! `bilevel report`: draws the report of a run again, or several runs on one page.

use crate::arguments::Report;
use crate::errors::Result;
use crate::folder::{RunFolder, write_whole};
use crate::run_report;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Runs the command.
pub fn report(arguments: &Report, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let folders = arguments.folders.iter().map(|path| RunFolder::of_run(path)).collect::<Result<Vec<_>>>()?;
    let written: PathBuf = match (&arguments.out, &folders[..]) {
        (None, [folder]) => {
            run_report::write_one(folder)?;
            folder.report_file()
        }
        (path, _) => {
            let path = path.clone().unwrap_or_else(|| Path::new("report.html").into());
            write_whole(&path, run_report::html(&folders)?.as_bytes())?;
            path
        }
    };
    if !quiet {
        writeln!(out, "the report is in {}", written.display())?;
    }
    Ok(())
}
