//! The files of a finished run: `result.json` and `lambda.safetensors`.

use crate::errors::{CliError, Result};
use crate::run::folder::{RunFolder, write_whole};
use bilevel::Outcome;
use bilevel::files::whole_file::read_regular;
use bilevel::files::{TreeFileError, save_tree};
use bilevel_run::Config;
use bilevel_run::run::{RunResult, save_lambda};
use std::io::ErrorKind;
use std::path::Path;

/// A result that was written before.
pub fn read_result(folder: &RunFolder) -> Result<RunResult> {
    let path = folder.result_file();
    let text = read_regular(&path).map_err(|error| CliError::file("read", &path, &error))?;
    serde_json::from_slice(&text).map_err(|error| CliError::File { action: "read", path, reason: error.to_string() })
}

/// Refuses a result that does not belong to the run with this configuration, for any present number of iterations.
pub fn check_is_of(result: &RunResult, config: &Config, folder: &RunFolder) -> Result<()> {
    let (task, method) = (config.task.name(), config.method.name());
    let mut as_asked_for = config.clone();
    as_asked_for.outer.iterations = result.iterations;
    let what = if result.task != task {
        format!("it belongs to {}, not to {task}", result.task)
    } else if result.method != method {
        format!("it was computed by {}, not by {method}", result.method)
    } else if result.seed != config.seed {
        format!("it belongs to seed {}, not to seed {}", result.seed, config.seed)
    } else if ![config.hash(), as_asked_for.hash()].contains(&result.config_hash) {
        "it was computed with other settings".into()
    } else {
        return Ok(());
    };
    Err(CliError::foreign(folder, "result.json", what, ""))
}

/// Writes `lambda.safetensors` and then `result.json`, so that a result never lacks its λ, and removes the report of the unfinished run.
pub fn write_result(folder: &RunFolder, config: &Config, outcome: &Outcome, result: &RunResult) -> Result<()> {
    let (lambda, theta) = (folder.lambda_file(), folder.theta_file());
    save_lambda(&outcome.lambda, &lambda).map_err(|error| of_file("write", &lambda, error))?;
    if config.checkpoint.theta {
        save_tree(&outcome.theta, &theta).map_err(|error| of_file("write", &theta, error))?;
    }
    let (page, text) = (folder.report_file(), result.to_json());
    match read_regular(&folder.result_file()) {
        Ok(before) if before == text.as_bytes() => {}
        _ => match std::fs::remove_file(&page) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory) => {
                return Err(CliError::file("remove", &page, &error));
            }
            _ => {}
        },
    }
    write_whole(&folder.result_file(), text.as_bytes())
}

/// The error about a file of arrays.
pub fn of_file(action: &'static str, path: &Path, error: bilevel::Error) -> CliError {
    let reason = match error {
        bilevel::Error::TreeFile(TreeFileError::Io { source, .. }) => source.to_string(),
        bilevel::Error::TreeFile(TreeFileError::Unreadable { reason, .. }) => format!("damaged: {reason}"),
        other => other.to_string(),
    };
    CliError::File { action, path: path.to_path_buf(), reason }
}
