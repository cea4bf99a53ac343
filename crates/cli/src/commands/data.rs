//! `bilevel data`: known datasets, whether they are there and intact, and how to get them.

use crate::arguments::{Data, DataCommand};
use crate::errors::{CliError, Result};
use crate::terminal::progress::Progress;
use crate::terminal::readable::bytes;
use bilevel_data::registry::{self, Access, Dataset};
use serde_json::{Value, json};
use std::io::Write;

/// Runs the command.
pub fn data(arguments: &Data, quiet: bool, out: &mut dyn Write) -> Result<()> {
    match &arguments.command {
        DataCommand::List { json } => list(*json, out),
        DataCommand::Check { name, data } => {
            let chosen = match name {
                Some(name) => vec![registry::find(name)?],
                None => registry::list().to_vec(),
            };
            let mut missing = false;
            for dataset in &chosen {
                let files = registry::check(dataset, data)?;
                let there = files.iter().any(|(_, state)| *state != registry::FileState::Missing);
                missing |= files.iter().any(|(_, state)| !state.is_fine()) && (there || name.is_some());
                match there || name.is_some() {
                    true => {
                        for (file, state) in files {
                            writeln!(out, "{}/{file}: {state}", dataset.folder)?;
                        }
                    }
                    false => writeln!(out, "{}: not present", dataset.name)?,
                }
            }
            match missing {
                true => Err(CliError::CheckFailed(format!(
                    "{} has missing or damaged files; 'bilevel data fetch NAME --data {}' downloads them",
                    data.display(),
                    data.display()
                ))),
                false => Ok(()),
            }
        }
        DataCommand::Fetch { name, data } => {
            let dataset = registry::find(name)?;
            let board = Progress::stderr(quiet);
            let fetched = registry::fetch(dataset, data, &mut |progress| {
                let part = progress.done as f64 / progress.bytes.max(1) as f64;
                board.show(part, || format!("{} {} of {}", progress.file, bytes(progress.done), bytes(progress.bytes)));
            });
            board.end();
            fetched?;
            if !quiet {
                writeln!(out, "{name} is in {}", data.join(dataset.folder).display())?;
            }
            Ok(())
        }
    }
}

fn list(as_json: bool, out: &mut dyn Write) -> Result<()> {
    let all = registry::list();
    if as_json {
        let one = |dataset: &&Dataset| {
            let how = if let Access::ByHand { how, .. } = dataset.access { Some(how) } else { None };
            let Dataset { name, summary, licence, home, folder, .. } = **dataset;
            json!({
                "name": name, "summary": summary, "licence": licence, "home": home, "folder": folder,
                "bytes": dataset.bytes(), "by_hand": how,
            })
        };
        writeln!(out, "{:#}", all.iter().map(one).collect::<Vec<Value>>().into_iter().collect::<Value>())?;
        return Ok(());
    }
    writeln!(out, "Datasets (bilevel data fetch NAME --data DIR):\n")?;
    let width = all.iter().map(|dataset| dataset.name.len()).max().unwrap_or(0);
    for dataset in all {
        let size = dataset.bytes().map_or("by hand".into(), bytes);
        writeln!(out, "  {:width$}  {size:>10}  {}; {}", dataset.name, dataset.summary, dataset.licence)?;
    }
    Ok(())
}
