//! The files of a finished run: `result.json` and `lambda.safetensors`.

use crate::errors::{CliError, Result};
use crate::run::folder::{RunFolder, write_whole};
use bilevel::whole_file::read_regular;
use bilevel::{DType, Outcome, Problem};
use bilevel_tasks::Config;
use bilevel_tasks::run::RunResult;
use safetensors::tensor::{Dtype, TensorView};
use std::io::ErrorKind;

/// A result that was written before.
pub fn read_result(folder: &RunFolder) -> Result<RunResult> {
    let path = folder.result_file();
    let text = read_regular(&path).map_err(|error| CliError::file("read", &path, &error))?;
    serde_json::from_slice(&text).map_err(|error| CliError::File { action: "read", path, reason: error.to_string() })
}

/// Refuses a result that does not belong to the run with this configuration, whatever number of iterations is asked for
/// now.
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

/// Writes `lambda.safetensors` and then `result.json`, so that where there is a result there is its λ, and no report of the run
/// before it was finished.
pub fn write_result(folder: &RunFolder, problem: &Problem, outcome: &Outcome, result: &RunResult) -> Result<()> {
    let path = folder.lambda_file();
    let failed = |error: safetensors::SafeTensorError| CliError::File {
        action: "write",
        path: path.clone(),
        reason: error.to_string(),
    };
    let arrays = outcome.state.lambda.arrays()?;
    let mut views = vec![];
    for (name, array) in problem.lambda_names().into_iter().zip(&arrays) {
        let dtype = if array.dtype() == DType::F32 { Dtype::F32 } else { Dtype::F64 };
        let name = if name.is_empty() { "lambda".to_string() } else { name.to_string() };
        views.push((name, TensorView::new(dtype, array.shape().to_vec(), array.bytes()).map_err(failed)?));
    }
    write_whole(&path, &safetensors::serialize(views, None).map_err(failed)?)?;
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
