//! `bilevel report`: draws the report of a run again, or several runs on one page.

use crate::arguments::Report;
use crate::errors::{CliError, Result};
use crate::pages;
use crate::run::folder::{RunFolder, write_whole};
use crate::terminal::readable::{escaped_path, one_line};
use bilevel::files::whole_file::remove_unfinished_of;
use bilevel_run::Registry;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Runs the command.
pub fn report(registry: &Registry, arguments: &Report, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let several = arguments.folders.len() > 1;
    let mut folders = vec![];
    for path in &arguments.folders {
        match RunFolder::of_run(path) {
            Ok(folder) => folders.push(folder),
            // Among all that a pattern names there may be comparisons and pages.
            Err(error @ (CliError::NoRun(_) | CliError::NotBegun(_))) if several => {
                if !quiet {
                    let _ = writeln!(std::io::stderr(), "skipped: {}", one_line(&error.to_string()));
                }
            }
            Err(error) => return Err(error),
        }
    }
    if folders.is_empty() {
        return Err(CliError::Usage(format!("none of these {} folders holds a run", arguments.folders.len())));
    }
    let written: PathBuf = match (&arguments.out, &folders[..]) {
        (None, [folder]) if !several => {
            pages::run::write_one(folder, registry)?;
            folder.report_file()
        }
        (path, _) => {
            let path = path.clone().unwrap_or_else(|| Path::new("report.html").into());
            refuse_other_files(&path)?;
            remove_unfinished_of(&path).map_err(|error| CliError::file("clean up next to", &path, &error))?;
            write_whole(&path, pages::run::html(&folders, registry)?.as_bytes())?;
            path
        }
    };
    if !quiet {
        writeln!(out, "the report is in {}", escaped_path(&written))?;
    }
    Ok(())
}

/// Refuses to overwrite anything but a page.
fn refuse_other_files(path: &Path) -> Result<()> {
    let named = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("html") || end.eq_ignore_ascii_case("htm"));
    let begins = |file: File| {
        let mut start = vec![];
        let _ = file.take(15).read_to_end(&mut start);
        start.is_empty() || start.eq_ignore_ascii_case(b"<!doctype html>")
    };
    if named || !path.is_file() || File::open(path).is_ok_and(begins) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "{} already exists and is not a report; choose another file with --out",
        path.display()
    )))
}
