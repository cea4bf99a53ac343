//! `bilevel run` with several values for a key: one run for each combination, side by side, as a study.

use super::reproduce::{StudyRequest, conduct_one};
use super::run::resolve_with;
use crate::arguments::Run;
use crate::config::entries::Entry;
use crate::config::sweep::{Axis, combinations};
use crate::config::text::to_toml;
use crate::errors::{CliError, Result};
use crate::run::device::settled;
use crate::sweep::{Sweep, Variant};
use bilevel_run::{Config, Plan, Registry};
use serde_json::json;
use std::io::Write;

/// The most runs of a sweep: more are usually a slip.
const MAX_RUNS: usize = 1000;

/// Runs the command. `about` are the settings that name the runs.
pub fn sweep(
    registry: &Registry,
    arguments: &Run,
    axes: &[Axis],
    about: Vec<Entry>,
    quiet: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let (swept, fixed): (Vec<&Axis>, Vec<&Axis>) = axes.iter().partition(|axis| axis.is_sweep());
    check(axes)?;
    let mut variants = vec![];
    let lengths: Vec<usize> = swept.iter().map(|axis| axis.values.len()).collect();
    for chosen in combinations(&lengths) {
        let values = swept.iter().zip(chosen).map(|(axis, number)| &axis.values[number]);
        let (words, own): (Vec<String>, Vec<Vec<Entry>>) = values.cloned().unzip();
        let sets = fixed.iter().flat_map(|axis| &axis.values).flat_map(|(_, entries)| entries.clone());
        let sets = sets.chain(own.concat()).chain(about.clone()).collect();
        let mut config = resolve_with(registry, &arguments.which, sets)?;
        config.metrics.tensorboard |= arguments.tensorboard;
        // The runs are compared with each other.
        config.held_out.compare = false;
        variants.push(Variant { words, config });
    }
    let keys: Vec<String> = swept.iter().map(|axis| axis.key.clone()).collect();
    let Some(first) = variants.first().map(|variant| variant.config.clone()) else { return Ok(()) };
    if arguments.dry_run {
        return show(registry, &swept, variants.len(), &first, out);
    }
    let device = settled(first.device, quiet)?;
    for variant in &mut variants {
        variant.config = Config { device, ..variant.config.clone().sealed()? };
    }
    let task = registry.read_task(&first.task)?;
    let name = format!("sweep-{}", task.name());
    let mark = mark(&first, &keys);
    let study = Sweep::new(task, keys, variants);
    let plan = Plan { seed: first.seed, device, ..Plan::new(registry) };
    let asked = StudyRequest {
        name: &name,
        mark,
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
    Err(CliError::CheckFailed("no run of the sweep has a result; see the report for the reasons".into()))
}

/// Refuses keys that are set twice, and too many runs.
fn check(axes: &[Axis]) -> Result<()> {
    for (number, axis) in axes.iter().enumerate() {
        if axes[..number].iter().any(|other| other.key == axis.key) {
            return Err(CliError::Usage(format!("--set gives {} twice; give all its values in one --set", axis.key)));
        }
    }
    let runs = axes.iter().fold(1_usize, |runs, axis| runs.saturating_mul(axis.values.len()));
    if runs > MAX_RUNS {
        return Err(CliError::Usage(format!(
            "these are {runs} runs, and a sweep has at most {MAX_RUNS}; give fewer values"
        )));
    }
    Ok(())
}

/// Prints the configuration of the first run, and which others there are.
fn show(registry: &Registry, swept: &[&Axis], runs: usize, first: &Config, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "# The first of {runs} runs, one for each combination of")?;
    for axis in swept {
        let words: Vec<&str> = axis.values.iter().map(|(word, _)| &word[..]).collect();
        writeln!(out, "#   {} = {}", axis.key, words.join(", "))?;
    }
    Ok(write!(out, "\n{}", to_toml(registry, first))?)
}

/// The mark of the folder: the task, the keys, and the settings that all runs share.
fn mark(first: &Config, keys: &[String]) -> String {
    let mut settings = first.settings();
    for key in ["threads", "shard_from", "data", "checkpoint", "metrics", "about"] {
        settings.shift_remove(key);
    }
    for key in keys {
        let (table, rest) = key.split_once('.').unwrap_or((key, ""));
        // Another task, method or optimizer has other settings.
        match settings.get_mut(table).and_then(|table| table.as_object_mut()).filter(|_| !rest.ends_with("name")) {
            Some(inside) if !rest.is_empty() => _ = inside.shift_remove(rest.split('.').next().unwrap_or(rest)),
            _ => _ = settings.shift_remove(table),
        }
    }
    let mut text = String::from("# The sweep of 'bilevel run'; the runs are in the folders next to this file.\n");
    text += &format!("study = \"sweep\"\ntask = {}\nkeys = {}\n", json!(first.task.name()), json!(keys));
    text + &format!("settings = {}\n", json!(serde_json::Value::Object(settings).to_string()))
}
