//! The page of a selection of runs: the sections of a report, from metrics that are thinned and may still grow.

use super::catalogue::Known;
use super::curves::Curves;
use crate::pages::run::sections;
use crate::run::folder::RunFolder;
use crate::run::record::{RunRecord, found_lambda, saved_lambda};
use crate::run::result::{check_is_of, read_result};
use crate::runs::{Overview, Status};
use bilevel_report::{Section, fragment};
use bilevel_run::{LambdaLeaf, Registry};
use std::path::Path;

/// A file with λ that is larger than this, in bytes, is not read: a page shows nothing of ten million numbers.
const LARGEST_LAMBDA: u64 = 64 << 20;

/// The selection as HTML. A run that cannot be read is said and left out.
pub fn comparison(runs: &[&Known], curves: &Curves, registry: &Registry) -> String {
    let (mut warnings, mut notes, mut records) = (vec![], vec![], vec![]);
    let mut drawn = vec![];
    for (place, known) in runs.iter().enumerate() {
        let overview = &*known.overview;
        let title = title(overview, runs);
        if !overview.note.is_empty() {
            notes.push(format!("{title}: {}", overview.note));
        }
        match record(overview, curves, registry) {
            Ok((_, said)) if overview.iterations == 0 && said.is_none() => {
                warnings.push(format!("{title}: no iteration has finished yet."));
            }
            Ok((record, said)) => {
                warnings.extend(said.map(|said| format!("{title}: {said}.")));
                let of_record = if overview.status == Status::Running { vec![] } else { record.warnings() };
                let several = runs.len() > 1;
                warnings
                    .extend(of_record.into_iter().map(|said| if several { format!("{title}: {said}") } else { said }));
                drawn.push(place.to_string());
                records.push((title, record));
            }
            Err(said) => warnings.push(format!("{title}: {said}.")),
        }
    }
    let mut all = vec![Section::Warnings(warnings)];
    if !notes.is_empty() {
        all.push(Section::Text { title: "Notes".into(), text: notes.join("\n\n").replace('`', "'") });
    }
    if !records.is_empty() {
        all.extend(sections(records, registry));
    }
    // The page marks the chosen runs in the colours of their curves.
    format!("<div hidden id=\"drawn\" data-places=\"{}\"></div>{}", drawn.join(" "), fragment(&all))
}

/// The name of a run; with its folder if another run of the selection has the same name.
fn title(run: &Overview, runs: &[&Known]) -> String {
    let namesakes = runs.iter().filter(|known| known.overview.name == run.name).count();
    match (run.name.is_empty(), namesakes) {
        (true, _) => run.run.clone(),
        (false, 0 | 1) => run.name.clone(),
        (false, _) => format!("{} ({})", run.name, run.run),
    }
}

/// A run in the form of a report, and the damage of its metrics.
fn record(overview: &Overview, curves: &Curves, registry: &Registry) -> Result<(RunRecord, Option<String>), String> {
    let folder = RunFolder::at(&overview.path);
    let said = |error: crate::errors::CliError| error.to_string();
    let config = folder.config(registry).map_err(said)?;
    let task = registry.read_task(&config.task).map_err(|error| error.to_string())?;
    let is_over = matches!(overview.status, Status::Finished | Status::Diverged);
    let result = if is_over { Some(read_result(&folder).map_err(said)?) } else { None };
    if let Some(result) = &result {
        check_is_of(result, &config, &folder).map_err(said)?;
    }
    let (history, mut damage) = curves.of(&overview.path);
    let lambda: Vec<LambdaLeaf> = match &result {
        Some(result) if is_small(&folder.lambda_file()) => {
            found_lambda(&folder.lambda_file(), result).unwrap_or_else(|error| {
                damage.get_or_insert(error.to_string());
                vec![]
            })
        }
        None if newest_is_small(&folder.checkpoints()) => saved_lambda(&folder),
        _ => vec![],
    };
    Ok((RunRecord { folder, config, task, history, result, lambda }, damage))
}

fn is_small(path: &Path) -> bool {
    path.metadata().map_or(true, |data| data.len() <= LARGEST_LAMBDA)
}

/// Whether every checkpoint of a run may be read.
fn newest_is_small(folder: &Path) -> bool {
    let Ok(inside) = std::fs::read_dir(folder) else { return false };
    inside.flatten().all(|entry| is_small(&entry.path()))
}
