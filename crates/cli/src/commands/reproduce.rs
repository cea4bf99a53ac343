//! `bilevel reproduce`: runs studies, and shows published numbers next to the computed ones. `bilevel` alone is
//! `bilevel reproduce wrong-labels`.

use crate::arguments::Reproduce;
use crate::errors::{CliError, Result};
use crate::pages::study::{Found, count, partial, unfinished, write_page};
use crate::run::device::{asked, settled};
use crate::run::folder::write_whole;
use crate::run::provenance::{self, Provenance};
use crate::run::ranks;
use crate::run::study::Conductor;
use crate::run::study::folder::StudyFolder;
use crate::run::study::pack::{pack, unpack};
use crate::run::study::progress::StudyProgress;
use crate::terminal::interrupt::stop_on_interrupt;
use crate::terminal::progress::Progress;
use crate::terminal::readable::{duration, escaped, escaped_path, wrapped};
use bilevel::observers::StopSignal;
use bilevel_run::manifest::Manifest;
use bilevel_run::{Finished, Plan, Registry, Scale, Study};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Stands for every study.
const ALL: &str = "all";
/// Letters in a line that is easily read.
const MAX_COLUMNS: usize = 100;

/// How a study is to be done and shown.
#[derive(Clone, Default)]
pub struct StudyRequest<'a> {
    /// The name of its folder under `runs`.
    pub name: &'a str,
    /// The mark of the folder: the request that it belongs to.
    pub mark: String,
    /// The folder named by the user.
    pub out: Option<&'a Path>,
    /// Items at a time; 0 is as many as pay.
    pub jobs: usize,
    /// Print rows.
    pub json: bool,
    /// Print only the results.
    pub quiet: bool,
    /// Parts of the labels of the items to do; all of them if there are none.
    pub only: &'a [String],
    /// Only report finished items.
    pub report: bool,
    /// How long it may take.
    pub time_limit: Option<Duration>,
    /// The folder to pack into at the end.
    pub pack: Option<&'a Path>,
    /// The folder to unpack first.
    pub unpack: Option<&'a Path>,
}

impl StudyRequest<'_> {
    /// The same with another limit.
    fn within(&self, time_limit: Option<Duration>) -> Self {
        StudyRequest { time_limit, ..self.clone() }
    }
}

/// How the work on a study ended.
enum Ended {
    /// All is done.
    Whole,
    /// The requested part is done; the sentence describes the rest.
    Partly(String),
    /// An item failed.
    Failed(CliError),
}

/// Runs the command.
pub fn reproduce(registry: &Registry, arguments: &Reproduce, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let Some(name) = &arguments.study else { return list(registry, arguments.json, out) };
    let chosen = choose(registry, name)?;
    let device = asked(arguments.device.as_deref())?.unwrap_or_default();
    // A report needs no device: finished items record theirs.
    let device = if arguments.report { device } else { settled(device, quiet)? };
    let scale = if arguments.quick { Scale::Quick } else { arguments.scale.unwrap_or_default() };
    let plan = Plan { scale, seed: arguments.seed, data: arguments.data.clone(), device, ..Plan::new(registry) };
    let name = match &chosen[..] {
        [study] if name != ALL => study.name(),
        _ => name,
    };
    let asked = StudyRequest {
        name,
        mark: mark(name, &plan),
        out: arguments.out.as_deref(),
        jobs: arguments.jobs,
        json: arguments.json,
        quiet,
        only: &arguments.only,
        report: arguments.report,
        time_limit: arguments.time_limit,
        pack: arguments.pack.as_deref(),
        unpack: arguments.unpack.as_deref(),
    };
    match &chosen[..] {
        [study] if name != ALL => conduct_one(&**study, &plan, &asked, out).map(|_| ()),
        _ if arguments.pack.is_some() || arguments.unpack.is_some() || !arguments.only.is_empty() => {
            Err(CliError::Usage("--only, --pack and --unpack are of one study; name one instead of 'all'".into()))
        }
        studies => conduct_all(studies, &plan, &asked, out),
    }
}

/// The mark of a study's folder: the request that it belongs to.
fn mark(name: &str, plan: &Plan) -> String {
    let data = plan.data.as_ref().map_or(String::new(), |data| format!("data = {}\n", json!(data)));
    format!(
        "# The request to 'bilevel reproduce'.\nstudy = {}\nscale = \"{}\"\nseed = {}\ndevice = {}\n{data}",
        json!(name),
        plan.scale,
        plan.seed,
        json!(plan.device)
    )
}

/// Conducts one study in its folder, then prints and writes its findings. If an item fails, those of the finished
/// items.
pub fn conduct_one(study: &dyn Study, plan: &Plan, asked: &StudyRequest, out: &mut dyn Write) -> Result<Found> {
    let began = Instant::now();
    // Before anything is written, so that an early Ctrl-C leaves a folder that the same command continues.
    let signal = stop_on_interrupt()?;
    let mut provenance = None;
    let mut begun = || -> Result<StudyFolder> {
        let path = StudyFolder::choose(asked.out, asked.name, &asked.mark)?;
        let folder = StudyFolder::begin(&path, &asked.mark)?;
        if let Some(from) = asked.unpack {
            unpack(from, folder.path())?;
        }
        provenance = Some(begun(&folder, plan)?);
        Ok(folder)
    };
    let folder = common(&mut begun)?;
    let conducted = conduct(study, plan, &folder, asked, &signal);
    if ranks::follows() {
        let (found, ended) = conducted?;
        ranks::meet()?;
        return match ended {
            Ended::Failed(error) => Err(error),
            _ => Ok(found),
        };
    }
    if let Some(provenance) = provenance {
        provenance::end(folder.path(), provenance);
    }
    let (found, ended) = match conducted {
        Err(error) => {
            packed(&folder, asked)?;
            return Err(error);
        }
        Ok(conducted) => conducted,
    };
    show(&found, asked, out)?;
    match &ended {
        Ended::Whole => found.write(&folder, plan)?,
        _ => found.write_report(&folder, plan)?,
    }
    packed(&folder, asked)?;
    ranks::meet()?;
    if !asked.quiet
        && let Ended::Partly(sentence) = &ended
    {
        crate::complain(sentence);
    }
    if let Ended::Failed(error) = ended {
        return Err(error);
    }
    if !asked.json && !asked.quiet {
        let seconds = began.elapsed().as_secs_f64();
        writeln!(out, "\nTook {seconds:.1} s. The report is {}", escaped_path(&folder.report_file()))?;
    }
    Ok(found)
}

/// The folder that rank 0 begins, for all ranks.
fn common(begin: &mut dyn FnMut() -> Result<StudyFolder>) -> Result<StudyFolder> {
    let mut own = None;
    let path = ranks::of_the_first(|| Ok(own.insert(begin()?).path().to_path_buf()))?;
    Ok(own.unwrap_or_else(|| StudyFolder::of_the_first(&path)))
}

/// Packs a study, if requested.
fn packed(folder: &StudyFolder, asked: &StudyRequest) -> Result<()> {
    let Some(to) = asked.pack else { return Ok(()) };
    let parts = pack(folder.path(), to)?;
    if !asked.quiet {
        let files = if parts == 1 { "file" } else { "files" };
        crate::complain(&format!("the study is packed in {parts} {files} in {}", to.display()));
    }
    Ok(())
}

/// Conducts all studies, each in its own subfolder.
fn conduct_all(studies: &[Arc<dyn Study>], plan: &Plan, asked: &StudyRequest, out: &mut dyn Write) -> Result<()> {
    let began = Instant::now();
    let signal = stop_on_interrupt()?;
    let path = StudyFolder::choose(asked.out, asked.name, &asked.mark)?;
    let whole = StudyFolder::begin(&path, &asked.mark)?;
    let provenance = begun(&whole, plan)?;
    let mut all: Vec<Found> = vec![];
    for study in studies {
        Progress::stderr(asked.quiet).say(&format!("{}: {}", study.name(), study.title()));
        let folder = StudyFolder::begin(&path.join(study.name()), &mark(study.name(), plan))?;
        let own = begun(&folder, plan)?;
        let left = asked.time_limit.map(|limit| limit.saturating_sub(began.elapsed()));
        let (found, ended) = match conduct(&**study, plan, &folder, &asked.within(left), &signal) {
            Err(error) => return Err(error.in_folder(path)),
            Ok(found) => found,
        };
        provenance::end(folder.path(), own);
        show(&found, asked, out)?;
        if !matches!(ended, Ended::Whole) {
            found.write_report(&folder, plan)?;
            all.push(found);
            write_page(&whole.report_file(), "All studies", &all, plan)?;
            match ended {
                Ended::Failed(failed) => return Err(failed.in_folder(path)),
                Ended::Partly(sentence) if asked.report => crate::complain(&sentence),
                Ended::Partly(sentence) => {
                    crate::complain(&sentence);
                    return Ok(());
                }
                Ended::Whole => {}
            }
            continue;
        }
        if !asked.json && !asked.quiet {
            writeln!(out)?;
        }
        found.write(&folder, plan)?;
        all.push(found);
        // After every study, so that stopping the command keeps the finished ones.
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

/// Records in the folder of a study which process works on it.
fn begun(folder: &StudyFolder, plan: &Plan) -> Result<Provenance> {
    let provenance = Provenance::begin(plan.device, 0, None);
    provenance::write(folder.path(), &provenance)?;
    Ok(provenance)
}

/// The findings of a study; those of the finished items if an item fails or if only a part was requested.
fn conduct(
    study: &dyn Study,
    plan: &Plan,
    folder: &StudyFolder,
    asked: &StudyRequest,
    interrupted: &StopSignal,
) -> Result<(Found, Ended)> {
    // As an absolute path, so that an item can be resumed from anywhere.
    let path = std::path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_path_buf());
    let plan = &Plan { folder: path, ..plan.clone() };
    let progress = StudyProgress::new(Progress::stderr(asked.quiet));
    let expired = asked.time_limit.map(|limit| stop_after(limit, interrupted.clone()));
    let (jobs, only, report, signal) = (asked.jobs, asked.only, asked.report, interrupted.clone());
    let conductor = Conductor { plan: plan.clone(), folder, jobs, only, report, signal, progress: progress.clone() };
    let mut done = Finished::default();
    let conducted = conductor.conduct(study, &mut done);
    let expired = expired.is_some_and(|expired| expired.load(Ordering::SeqCst));
    let (count, total, left) = progress.counts();
    let left = left.map_or(String::new(), |left| format!(", and about {} are left at this pace", duration(left)));
    let partly = |why: String| {
        let findings = partial(study.findings(plan, &done).ok(), &done, why.clone());
        (findings, Ended::Partly(why))
    };
    let (findings, ended) = match conducted {
        Ok(()) if report => partly(format!("finished items are reported: {count}")),
        Ok(()) if !only.is_empty() => partly(format!("{count} items selected by --only are done")),
        Ok(()) => (study.findings(plan, &done)?, Ended::Whole),
        Err(CliError::StoppedStudy { .. }) if expired => partly(format!(
            "the time limit is reached: {count} of the {total} items known so far are done{left}; to continue, give \
                the same command again"
        )),
        Err(CliError::Item { item, error, missing, path }) if !done.is_empty() => {
            let findings = unfinished(study.findings(plan, &done).ok(), &done, (&item, &error), &missing);
            (findings, Ended::Failed(CliError::Item { item, error, missing, path }))
        }
        Err(error) => return Err(error),
    };
    Ok((Found { name: study.name().into(), title: study.title().into(), findings }, ended))
}

/// Sets the signal after this time; the answer is set before it.
fn stop_after(limit: Duration, signal: StopSignal) -> Arc<AtomicBool> {
    let expired = Arc::new(AtomicBool::new(false));
    let shared = expired.clone();
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        shared.store(true, Ordering::SeqCst);
        signal.stop();
    });
    expired
}

fn show(found: &Found, asked: &StudyRequest, out: &mut dyn Write) -> Result<()> {
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
    let width = columns.unwrap_or(if std::io::stdout().is_terminal() { 80 } else { MAX_COLUMNS }).min(MAX_COLUMNS);
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

fn choose(registry: &Registry, name: &str) -> Result<Vec<Arc<dyn Study>>> {
    if name == ALL {
        return Ok(registry.studies().to_vec());
    }
    if name.ends_with(".toml") {
        return Ok(vec![Arc::new(Manifest::read(registry, name.as_ref())?)]);
    }
    if bilevel::errors::nearest(name, registry.studies().iter().map(|study| study.name()).chain([ALL])) == Some(ALL) {
        return Err(CliError::Usage(format!("there is no study '{name}'; did you mean {ALL}?")));
    }
    Ok(vec![registry.known_study(name)?.clone()])
}

/// The study that `bilevel` alone runs.
pub const FIRST_STUDY: &str = "wrong-labels";

/// `bilevel` alone.
pub fn bare(registry: &Registry, quiet: bool, out: &mut dyn Write) -> Result<()> {
    let arguments = Reproduce { study: Some(FIRST_STUDY.into()), ..Reproduce::default() };
    reproduce(registry, &arguments, quiet, out)?;
    if !quiet {
        write!(out, "\nNext steps:\n{}", next(program()))?;
    }
    Ok(())
}

/// Three commands to try next with this program.
fn next(program: &str) -> String {
    let commands = [
        ("run hyper-cleaning", "learn a weight for each training label, with settings you can change"),
        ("reproduce digits", "learn 640 penalties, and compare with one tuned penalty and none"),
        ("tour", "how a loss is written, differentiated and run"),
    ];
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let line = |(command, what): (&str, &str)| format!("  {program} {command:<width$}  {what}\n");
    commands.map(line).concat()
}

/// The command line that starts this program: by cargo, if cargo started it.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run --release --" } else { "bilevel" }
}
