//! `bilevel reproduce`: the paper's tables and figures, what was printed beside what comes out.

use crate::arguments::Reproduce;
use crate::errors::{CliError, Result};
use crate::interrupt::end_on_interrupt;
use crate::readable::escaped_path;
use crate::reproduction::{self, Found};
use bilevel_tasks::{Effort, Experiment, Row, experiments};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Stands for every item.
const ALL: &str = "all";

/// Runs the command.
pub fn reproduce(arguments: &Reproduce, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let Some(item) = &arguments.item else { return list(arguments.json, out) };
    let chosen = choose(item)?;
    // A folder that cannot be written is better known before the work than after it.
    let marked = arguments.out.as_deref().map(reproduction::prepare).transpose()?;
    let effort = if arguments.quick { Effort::Quick } else { Effort::Full };
    let (progress, began) = (Progress::new(quiet), Instant::now());
    // How many items are done; held while one is printed and written.
    let done = Arc::new(Mutex::new(0));
    let (all, kept) = (chosen.len(), arguments.out.clone());
    // There is no way out of an item but the end of the process; what was done before is written.
    end_on_interrupt(done.clone(), move |done| match &kept {
        Some(folder) if *done > 0 => {
            format!("stopped after {done} of {all} items; what is done is in {}", folder.display())
        }
        _ => format!("stopped after {done} of {all} items"),
    })?;
    let mut found: Vec<Found> = vec![];
    for experiment in &chosen {
        let start = Instant::now();
        let report = experiment.report(effort, &mut |line| progress.say(experiment.name, line.trim_end()))?;
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        progress.took(experiment.name, start);
        progress.clear();
        found.push(Found { experiment, report });
        print(&found[found.len() - 1], arguments.json, out)?;
        if let Some(folder) = &arguments.out {
            // After every item, so that whoever stops the command keeps what was done.
            reproduction::write(folder, &found, effort)?;
        }
        *done = found.len();
    }
    if let Some(marked) = marked {
        marked.done()?;
    }
    if !arguments.json && chosen.len() > 1 {
        let rows = found.iter().flat_map(|one| &one.report.rows);
        writeln!(out, "{} items: {}", chosen.len(), count(rows))?;
        progress.took(ALL, began);
        progress.end();
    }
    if let (Some(folder), false) = (&arguments.out, arguments.json || quiet) {
        writeln!(out, "kept in {}", escaped_path(folder))?;
    }
    Ok(())
}

fn list(json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        for experiment in experiments() {
            writeln!(out, "{}", json!({ "item": experiment.name, "title": experiment.title }))?;
        }
        return Ok(());
    }
    let width = experiments().iter().map(|e| e.name.len()).max().unwrap_or(0);
    writeln!(out, "Items (bilevel reproduce ITEM):\n")?;
    for experiment in experiments() {
        writeln!(out, "  {:width$}  {}", experiment.name, experiment.title)?;
    }
    writeln!(out, "  {ALL:width$}  Every one of them; with --quick, under a minute on two cores")?;
    Ok(())
}

fn choose(item: &str) -> Result<Vec<&'static Experiment>> {
    if item == ALL {
        return Ok(experiments().iter().collect());
    }
    if let Some(experiment) = experiments().iter().find(|e| e.name == item) {
        return Ok(vec![experiment]);
    }
    let known = || experiments().iter().map(|e| e.name).chain([ALL]);
    Err(CliError::Usage(match bilevel::nearest(item, known()) {
        Some(near) => format!("there is no item '{item}'; did you mean {near}?"),
        None => format!("there is no item '{item}'; the items are {}", known().collect::<Vec<_>>().join(", ")),
    }))
}

fn print(found: &Found, json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        found.report.rows.iter().try_for_each(|row| writeln!(out, "{}", row.to_json()))?;
        return Ok(out.flush()?);
    }
    let size = terminal_size::terminal_size_of(std::io::stdout());
    let (table, reasons) = reproduction::table(&found.report.rows);
    writeln!(out, "{} ({})\n", found.experiment.title, found.experiment.name)?;
    write!(out, "{}", reproduction::fit(&table, size.map_or(usize::MAX, |(width, _)| width.0 as usize)))?;
    reasons.iter().try_for_each(|reason| writeln!(out, "{reason}"))?;
    Ok(writeln!(out)?)
}

/// How many rows have which verdict.
fn count<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut counts: Vec<(&str, usize)> = vec![];
    for row in rows {
        match counts.iter_mut().find(|(word, _)| *word == row.verdict.word()) {
            Some((_, n)) => *n += 1,
            None => counts.push((row.verdict.word(), 1)),
        }
    }
    counts.iter().map(|(word, n)| format!("{n} {word}")).collect::<Vec<_>>().join(", ")
}

/// What is being done, on standard error: one line that is written over in a terminal, a line each anywhere else.
struct Progress {
    quiet: bool,
    columns: Option<usize>,
}

impl Progress {
    fn new(quiet: bool) -> Self {
        let stderr = std::io::stderr();
        let size = || terminal_size::terminal_size_of(&stderr).map_or(80, |(width, _)| width.0 as usize);
        Progress { quiet, columns: stderr.is_terminal().then(size) }
    }

    fn say(&self, item: &str, line: &str) {
        if self.quiet {
            return;
        }
        // Progress is a courtesy: where it cannot be written, the work goes on.
        let _ = match self.columns {
            Some(columns) => {
                let line: String = format!("{item}: {line}").chars().take(columns.saturating_sub(1)).collect();
                write!(std::io::stderr(), "\r{line}\x1b[K")
            }
            None => writeln!(std::io::stderr(), "{item}: {line}"),
        };
    }

    fn took(&self, item: &str, since: Instant) {
        self.say(item, &format!("took {:.1} s", since.elapsed().as_secs_f64()));
    }

    /// Takes the line away before something else is printed.
    fn clear(&self) {
        if self.columns.is_some() && !self.quiet {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn end(&self) {
        if self.columns.is_some() && !self.quiet {
            let _ = writeln!(std::io::stderr());
        }
    }
}
