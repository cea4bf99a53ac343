//! `bilevel export`: the metrics of runs as one table, in CSV or Parquet.

use crate::arguments::Export;
use crate::errors::{CliError, Result};
use crate::export::{Metrics, csv, parquet};
use crate::run::folder::write_whole;
use crate::runs::{Overview, find};
use crate::terminal::readable::{counted, escaped_path};
use std::io::Write;
use std::path::Path;

/// Runs the command.
pub fn export(arguments: &Export, quiet: bool, out: &mut dyn Write) -> Result<()> {
    if arguments.csv.is_none() && arguments.parquet.is_none() {
        return Err(CliError::Usage("name a file for the table with --csv FILE or --parquet FILE".into()));
    }
    if arguments.csv.is_some() && arguments.csv == arguments.parquet {
        return Err(CliError::Usage("--csv and --parquet name the same file; give each its own".into()));
    }
    let mut runs: Vec<Overview> = vec![];
    for folder in &arguments.folders {
        let found = find(folder)?;
        if found.is_empty() {
            return Err(CliError::NoRun(folder.clone()));
        }
        for path in found.iter().filter(|path| runs.iter().all(|known| known.path != **path)).collect::<Vec<_>>() {
            // Several runs are named relative to the folder they share; a single run is named after its folder.
            let root = if path == folder { folder.parent().unwrap_or(folder) } else { folder };
            runs.push(Overview::read(path, root));
        }
    }
    let table = Metrics::read(&runs)?;
    let told = |path: &Path, out: &mut dyn Write| -> Result<()> {
        if !quiet {
            let (rows, runs) = (counted(table.rows.len() as u64, "row"), counted(runs.len() as u64, "run"));
            writeln!(out, "{rows} of {runs} are in {}", escaped_path(path))?;
        }
        Ok(())
    };
    if let Some(path) = &arguments.csv {
        if path == Path::new("-") {
            out.write_all(csv(&table).as_bytes())?;
        } else {
            write_whole(path, csv(&table).as_bytes())?;
            told(path, out)?;
        }
    }
    if let Some(path) = &arguments.parquet {
        write_whole(path, &parquet(&table)?)?;
        told(path, out)?;
    }
    Ok(())
}
