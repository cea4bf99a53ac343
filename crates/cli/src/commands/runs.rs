//! `bilevel runs`: lists runs, finds the best, and removes some.

use crate::arguments::{Chosen, Runs, RunsCommand};
use crate::errors::{CliError, Result};
use crate::runs::differences::differences;
use crate::runs::find::is_run;
use crate::runs::select::{Filter, check_key, filter, order, sort};
use crate::runs::{Overview, Status, find};
use crate::terminal::readable::{counted, duration, escaped, escaped_lines, escaped_path, number_or_dash};
use bilevel_report::{Column, Table};
use serde_json::Value;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Runs the command.
pub fn runs(arguments: &Runs, quiet: bool, out: &mut dyn Write) -> Result<()> {
    match &arguments.command {
        None => list(arguments, quiet, out),
        Some(RunsCommand::Best { chosen, by, highest, json }) => best(chosen, (by, *highest), *json, quiet, out),
        Some(RunsCommand::Remove { folders, yes }) => remove(folders, *yes, quiet, out),
    }
}

/// The selected runs.
fn choose(chosen: &Chosen) -> Result<Vec<Overview>> {
    let all = find(&chosen.folder)?.iter().map(|path| Overview::read(path, &chosen.folder)).collect::<Vec<_>>();
    let mut filters: Vec<Filter> = chosen.filter.iter().map(|text| Filter::parse(text)).collect::<Result<_>>()?;
    filters.extend(chosen.task.iter().map(|task| Filter::is("task", task)));
    filters.extend(chosen.tag.iter().map(|tag| Filter::is("tag", tag)));
    filter(all, &filters)
}

fn list(arguments: &Runs, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let mut runs = choose(&arguments.chosen)?;
    if let Some(key) = &arguments.sort {
        check_key("--sort", key, &runs)?;
        sort(&mut runs, key, arguments.reverse);
    } else if arguments.reverse {
        runs.reverse();
    }
    if arguments.json {
        for run in &runs {
            writeln!(out, "{}", json(run))?;
        }
    } else if quiet {
        // A path is for another command, so it is printed as it is.
        for run in &runs {
            writeln!(out, "{}", run.path.display())?;
        }
    } else if runs.is_empty() {
        writeln!(out, "no runs in {}", escaped_path(&arguments.chosen.folder))?;
    } else {
        let columns = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0).max(20));
        write!(out, "{}", escaped_lines(&table(&runs).text(columns.unwrap_or(400))))?;
    }
    Ok(())
}

/// A run as a line of JSON.
fn json(run: &Overview) -> Value {
    let mut value = serde_json::to_value(run).unwrap_or_default();
    value["path"] = run.path.to_string_lossy().into();
    value
}

/// One run per row; values that all runs share have no column.
fn table(runs: &[Overview]) -> Table {
    let differ = |of: fn(&Overview) -> &str| runs.iter().any(|run| of(run) != of(&runs[0]));
    let any = |has: fn(&Overview) -> bool| runs.iter().any(has);
    let settings = differences(runs);
    let (task, method) = (differ(|run| &run.task), differ(|run| &run.method));
    let (name, tags) = (any(|run| !run.name.is_empty()), any(|run| !run.tags.is_empty()));
    let settled = settings.iter().any(|own| !own.is_empty());
    let mut columns = vec![Column::text("run")];
    let mut add = |shown: bool, column: Column| columns.extend(shown.then_some(column));
    add(name, Column::text("name"));
    add(task, Column::text("task"));
    add(method, Column::text("method"));
    add(settled, Column::text("settings"));
    add(true, Column::text("status"));
    ["iterations", "outer loss", "least", "time"].into_iter().for_each(|title| add(true, Column::numeric(title)));
    add(true, Column::text("begun (UTC)"));
    add(tags, Column::text("tags"));
    let row = |(run, settings): (&Overview, &Vec<String>)| {
        let mut cells = vec![run.run.clone()];
        cells.extend(name.then(|| run.name.clone()));
        cells.extend(task.then(|| run.task.clone()));
        cells.extend(method.then(|| run.method.clone()));
        cells.extend(settled.then(|| settings.join(" ")));
        cells.push(run.status.word().into());
        cells.push(run.until.map_or(String::new(), |until| format!("{}/{until}", run.iterations)));
        cells.extend([run.outer_loss, run.best_outer_loss].map(number_or_dash));
        cells.push(run.seconds.map_or("–".into(), duration));
        cells.push(run.started.as_deref().map_or("–".into(), day_and_minute));
        cells.extend(tags.then(|| run.tags.join(" ")));
        cells
    };
    let rows = runs.iter().zip(&settings).map(row).collect();
    let same = |shown: bool, what: &str| if shown || what.is_empty() { String::new() } else { format!(", {what}") };
    let caption =
        format!("{}{}{}", counted(runs.len() as u64, "run"), same(task, &runs[0].task), same(method, &runs[0].method));
    Table { columns, rows, caption }
}

/// The date and the time of a moment that is written as RFC 3339 has it.
fn day_and_minute(moment: &str) -> String {
    moment.get(..16).unwrap_or(moment).replace('T', " ")
}

fn best(chosen: &Chosen, (by, highest): (&str, bool), as_json: bool, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let mut runs = choose(chosen)?;
    check_key("--by", by, &runs)?;
    runs.retain(|run| run.status == Status::Finished && run.get(by).is_some_and(|value| value.as_f64().is_some()));
    let Some(first) = runs.first() else {
        let folder = chosen.folder.display();
        return Err(CliError::Usage(format!(
            "no finished run in {folder} has a number for {by}; 'bilevel runs' lists all"
        )));
    };
    if let Some(other) = runs.iter().find(|run| run.task != first.task) {
        let sentence = "losses of different tasks cannot be compared; choose one with --task";
        return Err(CliError::Usage(format!("there are runs of {} and of {}: {sentence}", first.task, other.task)));
    }
    let sign = |run: &&Overview| {
        run.get(by).and_then(|value| value.as_f64()).map(|v| Value::from(if highest { -v } else { v }))
    };
    let Some(best) = runs.iter().min_by(|a, b| order(&sign(a), &sign(b))) else { return Ok(()) };
    if as_json {
        writeln!(out, "{}", json(best))?;
    } else if quiet {
        writeln!(out, "{}", best.path.display())?;
    } else {
        let settings = differences(&runs);
        let own = runs.iter().position(|run| run.run == best.run).map_or(String::new(), |at| settings[at].join(" "));
        writeln!(out, "{}", escaped_path(&best.path))?;
        let value = number_or_dash(best.get(by).and_then(|value| value.as_f64()));
        let of = counted(runs.len() as u64, "finished run");
        let side = if highest { "highest" } else { "lowest" };
        let task = &best.task;
        writeln!(
            out,
            "  {}",
            escaped(&format!("{by} {value}, the {side} of {of} of {task} by {}  {own}", best.method)).trim_end()
        )?;
    }
    Ok(())
}

/// The files and folders that a run writes.
const OWN: [&str; 11] = [
    "config.toml",
    "metrics.jsonl",
    "checkpoint",
    "result.json",
    "provenance.json",
    "lambda.safetensors",
    "theta.safetensors",
    "report.html",
    "plots",
    "tensorboard",
    "measurement.json",
];

/// Deletes the folders of these runs, after asking. All of them are checked before the first is deleted.
fn remove(folders: &[PathBuf], yes: bool, quiet: bool, out: &mut dyn Write) -> Result<()> {
    folders.iter().try_for_each(|folder| check_removable(folder))?;
    if !yes {
        if !std::io::stdin().is_terminal() {
            let sentence = "there is no terminal for a confirmation; use --yes to remove them without one";
            return Err(CliError::Usage(format!("these are {}: {sentence}", counted(folders.len() as u64, "run"))));
        }
        for folder in folders {
            writeln!(out, "  {}", escaped_path(folder))?;
        }
        write!(out, "Remove {}? They cannot be restored. [y/N] ", counted(folders.len() as u64, "run"))?;
        out.flush()?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            writeln!(out, "nothing was removed")?;
            return Ok(());
        }
    }
    for folder in folders {
        std::fs::remove_dir_all(folder).map_err(|error| CliError::file("remove", folder, &error))?;
        if !quiet {
            writeln!(out, "removed {}", escaped_path(folder))?;
        }
    }
    Ok(())
}

/// Refuses a folder that is not that of a run, that is at work, or that holds anything a run does not write.
fn check_removable(folder: &Path) -> Result<()> {
    let data = folder.symlink_metadata().map_err(|error| CliError::file("remove", folder, &error))?;
    let usage = |sentence: String| Err(CliError::Usage(format!("{} {sentence}", escaped_path(folder))));
    if data.is_symlink() {
        return usage("is a link; remove the link itself, or give the folder it points to".into());
    }
    if !is_run(folder) {
        return usage("holds no run; 'bilevel runs' lists the runs".into());
    }
    let inside = std::fs::read_dir(folder).map_err(|error| CliError::file("search", folder, &error))?;
    let foreign = inside
        .flatten()
        .map(|entry| entry.file_name())
        .find(|name| !OWN.iter().any(|own| name == own) && !bilevel::files::whole_file::is_unfinished(name));
    if let Some(name) = foreign {
        let name = name.to_string_lossy();
        return usage(format!("contains {name}, which is not part of a run; move it away first"));
    }
    match Overview::read(folder, folder).status {
        Status::Running => usage("is running; stop it first, with Ctrl-C in its terminal".into()),
        _ => Ok(()),
    }
}
