//! `bilevel reproduce`: studies, what was printed beside what comes out. `bilevel` alone is `bilevel reproduce digits`.

use crate::arguments::Reproduce;
use crate::errors::{CliError, Result};
use crate::pages::study::{Found, count, unfinished, write_page};
use crate::run::device::{asked, settled};
use crate::run::folder::write_whole;
use crate::run::provenance::{self, Provenance};
use crate::run::study::Conductor;
use crate::run::study_folder::StudyFolder;
use crate::terminal::interrupt::stop_on_interrupt;
use crate::terminal::progress::Progress;
use crate::terminal::readable::{escaped, escaped_path, wrapped};
use bilevel::StopSignal;
use bilevel_tasks::{Finished, Plan, Registry, Study};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Stands for every study.
const ALL: &str = "all";
/// Letters in a line that is easily read.
const LONGEST: usize = 100;

/// How a study is to be done and shown.
pub struct Asked<'a> {
    /// The name of its folder, where it goes under `runs`.
    pub name: &'a str,
    /// What the folder says it is for.
    pub mark: String,
    /// The folder, where the user names one.
    pub out: Option<&'a Path>,
    /// Items at a time; 0 is as many as pay.
    pub jobs: usize,
    /// Print rows.
    pub json: bool,
    /// Print nothing else.
    pub quiet: bool,
}

/// Runs the command.
pub fn reproduce(registry: &Registry, arguments: &Reproduce, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let Some(name) = &arguments.study else { return list(registry, arguments.json, out) };
    let chosen = choose(registry, name)?;
    let device = settled(asked(arguments.device.as_deref())?.unwrap_or_default(), quiet)?;
    let plan = Plan { registry, quick: arguments.quick, seed: arguments.seed, data: arguments.data.clone(), device };
    let asked = Asked {
        name,
        mark: mark(name, &plan),
        out: arguments.out.as_deref(),
        jobs: arguments.jobs,
        json: arguments.json,
        quiet,
    };
    match &chosen[..] {
        [study] if name != ALL => conduct_one(&***study, &plan, &asked, out).map(|_| ()),
        studies => conduct_all(studies, &plan, &asked, out),
    }
}

/// What the folder of a study says it is for.
fn mark(name: &str, plan: &Plan) -> String {
    let data = plan.data.as_ref().map_or(String::new(), |data| format!("data = {}\n", json!(data)));
    format!(
        "# What 'bilevel reproduce' was asked for.\nstudy = {}\nquick = {}\nseed = {}\ndevice = {}\n{data}",
        json!(name),
        plan.quick,
        plan.seed,
        json!(plan.device)
    )
}

/// Conducts one study in its folder, prints what it comes to, and writes it. Where an item fails, it is what is done so far.
pub fn conduct_one(study: &dyn Study, plan: &Plan, asked: &Asked, out: &mut dyn Write) -> Result<Found> {
    let began = Instant::now();
    let path = StudyFolder::choose(asked.out, asked.name, &asked.mark)?;
    let folder = StudyFolder::begin(&path, &asked.mark)?;
    let provenance = begun(&folder, plan)?;
    let (found, failed) = conduct(study, plan, &folder, asked, &stop_on_interrupt()?)?;
    provenance::end(folder.path(), provenance);
    show(&found, asked, out)?;
    if let Some(failed) = failed {
        found.write_report(&folder, plan)?;
        return Err(failed);
    }
    found.write(&folder, plan)?;
    if !asked.json && !asked.quiet {
        let seconds = began.elapsed().as_secs_f64();
        writeln!(out, "\nTook {seconds:.1} s. The report is {}", escaped_path(&folder.report_file()))?;
    }
    Ok(found)
}

/// Conducts all studies, each in a folder of its own in one for all.
fn conduct_all(studies: &[&Arc<dyn Study>], plan: &Plan, asked: &Asked, out: &mut dyn Write) -> Result<()> {
    let began = Instant::now();
    let path = StudyFolder::choose(asked.out, asked.name, &asked.mark)?;
    let whole = StudyFolder::begin(&path, &asked.mark)?;
    let provenance = begun(&whole, plan)?;
    let signal = stop_on_interrupt()?;
    let mut all: Vec<Found> = vec![];
    for study in studies {
        Progress::stderr(asked.quiet).say(&format!("{}: {}", study.name(), study.title()));
        let folder = StudyFolder::begin(&path.join(study.name()), &mark(study.name(), plan))?;
        let own = begun(&folder, plan)?;
        let (found, failed) = match conduct(&***study, plan, &folder, asked, &signal) {
            Err(error) => return Err(error.in_folder(path)),
            Ok(found) => found,
        };
        provenance::end(folder.path(), own);
        show(&found, asked, out)?;
        if let Some(failed) = failed {
            found.write_report(&folder, plan)?;
            all.push(found);
            write_page(&whole.report_file(), "All studies", &all, plan)?;
            return Err(failed.in_folder(path));
        }
        if !asked.json && !asked.quiet {
            writeln!(out)?;
        }
        found.write(&folder, plan)?;
        all.push(found);
        // After every study, so that stopping the command keeps what was done.
        write_page(&whole.report_file(), "All studies", &all, plan)?;
    }
    provenance::end(whole.path(), provenance);
    write_whole(&whole.rows_file(), all.iter().map(Found::rows).collect::<String>().as_bytes())?;
    if !asked.json && !asked.quiet {
        let rows = all.iter().flat_map(|one| &one.findings.rows);
        writeln!(out, "{} studies: {}", all.len(), count(rows))?;
        let (seconds, report) = (began.elapsed().as_secs_f64(), whole.report_file());
        writeln!(out, "Took {seconds:.1} s. The report is {}", escaped_path(&report))?;
    }
    Ok(())
}

/// Says in the folder of a study what works on it.
fn begun(folder: &StudyFolder, plan: &Plan) -> Result<Provenance> {
    let provenance = Provenance::begin(plan.device, 0, None);
    provenance::write(folder.path(), &provenance)?;
    Ok(provenance)
}

/// What a study comes to; where an item fails after others are done, what these come to, and the error.
fn conduct(
    study: &dyn Study,
    plan: &Plan,
    folder: &StudyFolder,
    asked: &Asked,
    signal: &StopSignal,
) -> Result<(Found, Option<CliError>)> {
    let (board, signal) = (Progress::stderr(asked.quiet), signal.clone());
    let conductor = Conductor { plan: plan.clone(), folder, jobs: asked.jobs, signal, board };
    let mut done = Finished::default();
    let (findings, failed) = match conductor.conduct(study, &mut done) {
        Ok(()) => (study.findings(plan, &done)?, None),
        Err(CliError::Item { item, error, missing, path }) if !done.is_empty() => {
            let findings = unfinished(study.findings(plan, &done).ok(), &done, (&item, &error), &missing);
            (findings, Some(CliError::Item { item, error, missing, path }))
        }
        Err(error) => return Err(error),
    };
    Ok((Found { name: study.name().into(), title: study.title().into(), findings }, failed))
}

fn show(found: &Found, asked: &Asked, out: &mut dyn Write) -> Result<()> {
    if asked.json {
        write!(out, "{}", found.rows())?;
        return Ok(out.flush()?);
    }
    if asked.quiet {
        return Ok(());
    }
    // In a file or a pipe nothing has to be shortened.
    let columns = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0).max(20));
    if found.findings.tables.is_empty() {
        writeln!(out, "{} ({})\n", found.title, found.name)?;
    }
    write!(out, "{}", found.text(columns.unwrap_or(400)))?;
    let width = columns.unwrap_or(if std::io::stdout().is_terminal() { 80 } else { LONGEST }).min(LONGEST);
    for (number, sentence) in found.findings.warnings.iter().chain(&found.findings.said).enumerate() {
        writeln!(out, "{}{}", if number == 0 { "\n" } else { "" }, wrapped(&escaped(sentence), width))?;
    }
    Ok(out.flush()?)
}

fn list(registry: &Registry, json: bool, out: &mut dyn Write) -> Result<()> {
    let studies = registry.studies();
    if json {
        for study in studies {
            writeln!(out, "{}", json!({ "study": study.name(), "title": study.title() }))?;
        }
        return Ok(());
    }
    let width = studies.iter().map(|study| study.name().len()).max().unwrap_or(0);
    writeln!(out, "Studies (bilevel reproduce STUDY):\n")?;
    for study in studies {
        writeln!(out, "  {:width$}  {}", study.name(), study.title())?;
    }
    writeln!(out, "  {ALL:width$}  all of the above; with --quick, about a minute on two cores")?;
    Ok(())
}

fn choose<'a>(registry: &'a Registry, name: &str) -> Result<Vec<&'a Arc<dyn Study>>> {
    if name == ALL {
        return Ok(registry.studies().iter().collect());
    }
    if bilevel::nearest(name, registry.studies().iter().map(|study| study.name()).chain([ALL])) == Some(ALL) {
        return Err(CliError::Usage(format!("there is no study '{name}'; did you mean {ALL}?")));
    }
    Ok(vec![registry.known_study(name)?])
}

/// `bilevel` alone.
pub fn bare(registry: &Registry, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let arguments = Reproduce { study: Some("digits".into()), ..Reproduce::default() };
    reproduce(registry, &arguments, quiet, out)?;
    if !quiet {
        write!(out, "\nWhat to try next:\n{}", next(program()))?;
    }
    Ok(())
}

/// Three commands to try next with this program.
fn next(program: &str) -> String {
    let commands = [
        ("compare digits-l2 --seeds 2", "more training digits, with settings you can change"),
        ("run hyper-cleaning", "learn which training labels are wrong"),
        ("tour", "how a loss is written, differentiated and run"),
    ];
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let line = |(command, what): (&str, &str)| format!("  {program} {command:<width$}  {what}\n");
    commands.map(line).concat()
}

/// How this program is called: as cargo does it, where cargo did.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "bilevel" }
}
