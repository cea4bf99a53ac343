//! `bilevel compare`: several methods on several seeds, side by side.

use super::reproduce::{StudyRequest, conduct_one};
use super::run::resolve;
use crate::arguments::{Compare, Which};
use crate::comparison::Comparison;
use crate::config::entries::parse_set;
use crate::errors::{CliError, Result};
use crate::run::device::settled;
use bilevel_run::{Config, Plan, Registry, Study};
use serde_json::json;
use std::io::Write;

/// Runs the command.
pub fn compare(registry: &Registry, arguments: &Compare, quiet: bool, out: &mut dyn Write) -> Result<()> {
    check(registry, arguments)?;
    let resolved = |method: &String, seed: Option<u64>| {
        resolve(
            registry,
            &Which {
                what: arguments.what.clone(),
                method: Some(method.clone()),
                seed,
                iterations: arguments.iterations,
                rate: arguments.rate,
                start: arguments.start.clone(),
                device: arguments.device.clone(),
                precision: arguments.precision.clone(),
                set: arguments.set.clone(),
                data: arguments.data.clone(),
            },
        )
    };
    let Some(first) = arguments.methods.first() else {
        return Err(CliError::Usage("--methods names no method".into()));
    };
    let first = resolved(first, None)?;
    let device = settled(first.device, quiet)?;
    if first.seed > i64::MAX as u64 - u64::from(arguments.seeds - 1) {
        let sentence = format!("seed + seeds is too large: seed is {}, seeds is {}", first.seed, arguments.seeds);
        return Err(CliError::Usage(sentence));
    }
    let seeds: Vec<u64> = (0..u64::from(arguments.seeds)).map(|n| first.seed + n).collect();
    let mut runs = vec![];
    for method in &arguments.methods {
        for &seed in &seeds {
            let mut run = Config { device, ..resolved(method, Some(seed))? };
            // Methods are compared with each other.
            run.held_out.compare = false;
            runs.push(run);
        }
    }
    let task = registry.read_task(&first.task)?;
    let name = format!("compare-{}", task.name());
    let study = Comparison::new(task, arguments.methods.clone(), seeds, runs);
    let plan = Plan { seed: first.seed, device, ..Plan::new(registry) };
    let asked = StudyRequest {
        name: &name,
        mark: mark(&study),
        out: arguments.out.as_deref(),
        jobs: arguments.jobs,
        json: arguments.json,
        quiet,
        ..StudyRequest::default()
    };
    let found = conduct_one(&study, &plan, &asked, out)?;
    if found.findings.rows.iter().any(|row| row.ours.is_some()) {
        return Ok(());
    }
    Err(CliError::CheckFailed("no run has a result to compare; see the report for the reasons".into()))
}

/// The mark of the folder: everything but methods and seeds, which a later command may extend.
fn mark(study: &Comparison) -> String {
    let mut settings = study.runs.first().map(Config::settings).unwrap_or_default();
    for key in ["method", "seed", "threads", "shard_from", "data", "checkpoint", "metrics"] {
        settings.shift_remove(key);
    }
    let mut text = String::from("# The request to 'bilevel compare'; the runs are in the folders next to this file.\n");
    text += &format!("study = {}\ntask = {}\n", json!(study.name()), json!(study.task.name()));
    text + &format!("settings = {}\n", json!(serde_json::Value::Object(settings).to_string()))
}

fn check(registry: &Registry, arguments: &Compare) -> Result<()> {
    for (number, method) in arguments.methods.iter().enumerate() {
        registry.known_method(method)?;
        if arguments.methods[..number].contains(method) {
            return Err(CliError::Usage(format!("--methods names {method} twice")));
        }
    }
    for text in &arguments.set {
        for key in parse_set(text)?.iter().map(|entry| entry.dotted()) {
            let instead = match key.as_str() {
                "method.name" => "--methods",
                "seed" => "--seeds",
                _ => continue,
            };
            return Err(CliError::Usage(format!("--set {text}: a comparison takes {key} from {instead}")));
        }
    }
    Ok(())
}
