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
    for known in runs {
        let overview = &*known.overview;
        let title = if overview.name.is_empty() { overview.run.clone() } else { overview.name.clone() };
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
                records.push((distinct(title, &records), record));
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
    fragment(&all)
}

/// A name that no other run of the selection has.
fn distinct(title: String, others: &[(String, RunRecord)]) -> String {
    let taken = |name: &str| others.iter().any(|(other, _)| other == name);
    let numbered = (2..).map(|n| format!("{title} ({n})"));
    std::iter::once(title.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(title)
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
