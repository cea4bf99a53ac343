//! `bilevel run`: one run, kept in a folder.

use super::sweep::sweep;
use crate::arguments::{Run, Which};
use crate::config::entries::{Entry, Given};
use crate::config::sweep::Axis;
use crate::config::text::to_toml;
use crate::errors::{CliError, Result};
use crate::run::device::settled;
use crate::run::execute::execute_and_draw;
use crate::run::folder::{RunFolder, read_entries};
use crate::run::ranks;
use crate::terminal::interrupt::stop_run_on_interrupt;
use crate::terminal::progress::RunProgress;
use crate::terminal::readable::{escaped_lines, escaped_path};
use bilevel_run::run::RunResult;
use bilevel_run::{Config, Registry};
use std::io::Write;
use std::path::Path;

/// The configuration given by the command line. A key with several values is refused: only `bilevel run` makes a sweep
/// of it.
pub fn resolve(registry: &Registry, which: &Which) -> Result<Config> {
    let mut sets = vec![];
    for axis in axes(which)? {
        if axis.is_sweep() {
            let values = axis.values.iter().map(|(word, _)| &word[..]).collect::<Vec<_>>().join(",");
            return Err(CliError::Usage(format!(
                "--set {}={values}: only 'bilevel run' takes several values of a key; give one value, or an array in brackets",
                axis.key
            )));
        }
        sets.extend(axis.values.into_iter().flat_map(|(_, entries)| entries));
    }
    resolve_with(registry, which, sets)
}

/// The keys that `--set` sets, each with its values.
pub fn axes(which: &Which) -> Result<Vec<Axis>> {
    Ok(which.set.iter().map(|text| Axis::parse(text)).collect::<std::result::Result<_, _>>()?)
}

/// The configuration with these settings of `--set` in place of the command line's.
pub fn resolve_with(registry: &Registry, which: &Which, sets: Vec<Entry>) -> Result<Config> {
    let Which { what, method, seed, iterations, rate, start, device, precision, data, set: _ } = which;
    // A name has no point and no slash in it; a file that is there is meant even so.
    let is_file = what.ends_with(".toml") || what.contains(['/', '\\']) || Path::new(what).is_file();
    let mut entries = if is_file {
        read_entries(Path::new(what))?
    } else {
        // An unknown name is refused here, because the error has no other place to point to.
        registry.known_task(what)?;
        vec![Entry::argument(&["task", "name"], Given::Text(what.clone()), what.clone())]
    };
    refuse_contradictions(which, is_file, &sets)?;
    let chosen = sets.iter().rev().find_map(|entry| match &entry.value {
        Given::Text(name) if entry.dotted() == "method.name" => Some(name),
        _ => None,
    });
    if let Some(name) = chosen.or(method.as_ref()) {
        let same = entries.iter().any(|e| e.dotted() == "method.name" && e.value == Given::Text(name.clone()));
        if !same {
            entries.retain(|entry| entry.key[0] != "method");
        }
    }
    let mut argument = |key: &[&str], value: Given, text: String| entries.push(Entry::argument(key, value, text));
    if let Some(name) = method {
        argument(&["method", "name"], Given::Text(name.clone()), format!("--method {name}"));
    }
    if let Some(seed) = seed {
        argument(&["seed"], Given::Whole(*seed as i64), format!("--seed {seed}"));
    }
    if let Some(iterations) = iterations {
        let text = format!("--iterations {iterations}");
        argument(&["outer", "iterations"], Given::Whole(i64::from(*iterations)), text);
    }
    if let Some(rate) = rate {
        argument(&["outer", "rate"], Given::Number(*rate), format!("--rate {rate}"));
    }
    if let Some(file) = start {
        argument(&["start", "lambda"], Given::Text(file.clone()), format!("--start {file}"));
    }
    if let Some(name) = device {
        argument(&["device"], Given::Text(name.clone()), "--device".into());
    }
    if let Some(word) = precision {
        argument(&["precision"], Given::Text(word.clone()), format!("--precision {word}"));
    }
    if let Some(data) = data {
        argument(&["data"], Given::Text(data.clone()), format!("--data {data}"));
    }
    entries.extend(sets);
    let config = crate::config::resolve(registry, &entries)?;
    if let (false, Some(given)) = (config.data.is_empty(), entries.iter().rfind(|entry| entry.dotted() == "data"))
        && !registry.read_task(&config.task)?.reads_data()
    {
        let (place, task, data) = (&given.place, config.task.name(), &config.data);
        return Err(CliError::Usage(format!("{place}: {task} reads no data files; leave out {data}")));
    }
    Ok(config)
}

/// Refuses a task or a method that is given in two ways.
fn refuse_contradictions(which: &Which, is_file: bool, sets: &[Entry]) -> Result<()> {
    for Entry { key, value, place } in sets {
        let Given::Text(word) = value else { continue };
        if key[..] == ["task", "name"] && !is_file && *word != which.what {
            let what = &which.what;
            return Err(CliError::Usage(format!("{place}: the task is already {what}; give only one of the two")));
        }
        if let Some(name) = which.method.as_ref().filter(|name| key[..] == ["method", "name"] && *name != word) {
            return Err(CliError::Usage(format!(
                "{place}: the method is already {name} by --method; give only one of the two"
            )));
        }
    }
    Ok(())
}

/// The name, tags and note of the arguments, as settings.
fn about(arguments: &Run) -> Vec<Entry> {
    let text = |key: &str, given: &Option<String>| {
        given.as_ref().map(|text| Entry::argument(&["about", key], Given::Text(text.clone()), format!("--{key}")))
    };
    let tags = || Given::Array(arguments.tag.iter().cloned().map(Given::Text).collect());
    let tags = (!arguments.tag.is_empty()).then(|| Entry::argument(&["about", "tags"], tags(), "--tag".into()));
    [text("name", &arguments.name), tags, text("note", &arguments.note)].into_iter().flatten().collect()
}

/// Runs the command.
pub fn run(registry: &Registry, arguments: &Run, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let shard_from = arguments.shard_from.map(|from| format!("shard_from={from}"));
    let axes = axes(&arguments.which)?.into_iter().chain(shard_from.map(|text| Axis::parse(&text)).transpose()?);
    let axes: Vec<Axis> = axes.collect();
    if axes.iter().any(Axis::is_sweep) {
        return sweep(registry, arguments, &axes, about(arguments), quiet, out);
    }
    let sets = axes.into_iter().flat_map(|axis| axis.values).flat_map(|(_, entries)| entries);
    let mut config = resolve_with(registry, &arguments.which, sets.chain(about(arguments)).collect())?;
    config.metrics.tensorboard |= arguments.tensorboard;
    if arguments.dry_run {
        write!(out, "{}", to_toml(registry, &config))?;
        return Ok(());
    }
    // Files and a device that cannot be used are better known before anything is written.
    config = config.sealed()?;
    config.device = settled(config.device, quiet)?;
    let folder = match (ranks::follows(), &arguments.out) {
        // Rank 0 makes the folder, and no other rank writes to it.
        (true, out) => RunFolder::at(out.as_deref().unwrap_or(Path::new("runs"))),
        (false, out) => RunFolder::for_new_run(out.as_deref(), &config)?,
    };
    let display = (!quiet).then(RunProgress::stderr);
    let signal = stop_run_on_interrupt(folder.path())?;
    let result = execute_and_draw(&config, registry, &folder, false, display, signal);
    if result.is_err() && arguments.out.is_none() && !ranks::follows() {
        folder.remove_if_empty();
    }
    let result = result?;
    tell(&result, &folder, arguments.json, quiet, out)
}

/// Prints the result of a run.
pub fn tell(result: &RunResult, folder: &RunFolder, json: bool, quiet: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        write!(out, "{}", result.to_json())?;
    } else if !quiet {
        write!(out, "{}", escaped_lines(&result.summary()))?;
        writeln!(out, "saved in {}", escaped_path(folder.path()))?;
    }
    Ok(())
}
