//! `bilevel run`: one run, kept in a folder.

use crate::arguments::{Run, Which};
use crate::config::Config;
use crate::config_entries::{Entry, Given, parse_set};
use crate::display::Display;
use crate::errors::{CliError, Result};
use crate::folder::{RunFolder, read_entries};
use crate::interrupt::stop_run_on_interrupt;
use crate::readable::{escaped_lines, escaped_path};
use crate::result::RunResult;
use crate::runner::execute;
use std::io::Write;
use std::path::Path;

/// The configuration that the command line asks for.
pub fn resolve(which: &Which) -> Result<Config> {
    let Which { what, method, seed, outer, device, precision, set, data } = which;
    // A name has no point and no slash in it; a file that is there is meant even so.
    let is_file = what.ends_with(".toml") || what.contains(['/', '\\']) || Path::new(what).is_file();
    let mut entries = if is_file {
        read_entries(Path::new(what))?
    } else {
        // A name that is not known is refused here, where there is no place to name but the name itself.
        bilevel_tasks::task(what)?;
        vec![Entry::argument(&["experiment"], Given::Text(what.clone()), what.clone())]
    };
    let sets = set.iter().map(|text| parse_set(text)).collect::<std::result::Result<Vec<_>, _>>()?.concat();
    for Entry { key, value, place } in &sets {
        let Given::Text(word) = value else { continue };
        if key[..] == ["experiment"] && !is_file && word != what {
            return Err(CliError::Usage(format!("{place}: the experiment is {what} already; name one of the two")));
        }
        if let Some(name) = method.as_ref().filter(|name| key[..] == ["method", "name"] && *name != word) {
            return Err(CliError::Usage(format!("{place}: the method is {name} by --method; name one of the two")));
        }
    }
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
    if let Some(outer) = outer {
        argument(&["outer", "iterations"], Given::Whole(*outer as i64), format!("--outer {outer}"));
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
    let config = Config::resolve(&entries)?;
    // None of the experiments does; one that will has to say so.
    if let (false, Some(given)) = (config.data.is_empty(), entries.iter().rfind(|entry| entry.dotted() == "data")) {
        let Config { experiment, data, .. } = &config;
        return Err(CliError::Usage(format!(
            "{}: {experiment} reads no data files, so {data} is of no use",
            given.place
        )));
    }
    Ok(config)
}

/// Runs the command.
pub fn run(arguments: &Run, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let mut config = resolve(&arguments.which)?;
    config.metrics.tensorboard |= arguments.tensorboard;
    if arguments.dry_run {
        write!(out, "{}", config.to_toml())?;
        return Ok(());
    }
    // A device that cannot be used is better known before anything is written.
    config.device = config.device.settled(quiet)?;
    let folder = RunFolder::for_new_run(arguments.out.as_deref(), &config)?;
    let display = (!quiet).then(Display::stderr);
    let result = execute(&config, &folder, false, display, stop_run_on_interrupt(folder.path())?);
    if result.is_err() && arguments.out.is_none() {
        folder.remove_if_empty();
    }
    let result = result?;
    tell(&result, &folder, arguments.json, quiet, out)
}

/// Prints what a run found.
pub fn tell(result: &RunResult, folder: &RunFolder, json: bool, quiet: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        write!(out, "{}", result.to_json())?;
    } else if !quiet {
        write!(out, "{}", escaped_lines(&result.summary()))?;
        writeln!(out, "kept in {}", escaped_path(folder.path()))?;
    }
    Ok(())
}
