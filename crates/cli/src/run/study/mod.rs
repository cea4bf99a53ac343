//! Conducts a study in its folder: runs items concurrently, skips finished ones, and resumes the others.

pub mod folder;
#[cfg(feature = "packs")]
pub mod pack;
#[cfg(not(feature = "packs"))]
#[path = "pack_absent.rs"]
pub mod pack;
pub mod progress;
pub mod side_by_side;

use crate::config::text::keys;
use crate::errors::{CliError, Result};
use crate::run::device::executor;
use crate::run::execute::execute;
use crate::run::folder::{RunFolder, clean, write_whole};
use crate::run::ranks;
use crate::run::record::found_lambda;
use crate::run::result::{check_is_of, read_result};
use crate::run::study::folder::StudyFolder;
use crate::run::study::progress::{StudyProgress, Teller, weights};
use crate::run::study::side_by_side::{cores, side_by_side};
use bilevel::files::whole_file::{open_regular, read_regular};
use bilevel::observers::StopSignal;
use bilevel_graph::ErrorKind;
use bilevel_run::run::{History, RunResult};
use bilevel_run::{AnyMeasure, Config, Device, Done, Finished, FinishedRun, Item, Place, Plan, Study, Work, conduct};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::BufReader;
use std::sync::Arc;
use std::time::Instant;

/// Items on a GPU at a time. Small networks leave most of it idle, and an item that runs out of memory is retried on
/// its own.
const ON_A_GPU: usize = 4;

/// How a study is done.
pub struct Conductor<'a> {
    /// The requested study.
    pub plan: Plan<'a>,
    /// The folder of the study.
    pub folder: &'a StudyFolder,
    /// Items at a time; 0 is as many as pay.
    pub jobs: usize,
    /// Parts of the labels of the items to do; all of them if there are none.
    pub only: &'a [String],
    /// If true, finished items are read and nothing is computed.
    pub report: bool,
    /// Stops it.
    pub signal: StopSignal,
    /// The progress of the item.
    pub progress: Arc<StudyProgress>,
}

/// A measurement as in its file.
#[derive(Serialize, Deserialize)]
struct Record {
    /// The hash of its settings.
    hash: String,
    /// The device that computed it.
    device: Device,
    /// Seconds it took.
    seconds: f64,
    /// The measured value.
    value: Value,
}

impl Conductor<'_> {
    /// Computes the unfinished items and adds all finished ones to `done`, even if an error follows.
    pub fn conduct(&self, study: &dyn Study, done: &mut Finished) -> Result<()> {
        let conducted =
            conduct(study, &self.plan, done, |item| self.is_wanted(item), |items, done| self.stage(items, done));
        self.progress.close();
        conducted
    }

    /// Whether an item is to be done, or read.
    fn is_wanted(&self, item: &Item) -> bool {
        let chosen = self.only.is_empty() || self.only.iter().any(|part| item.label.contains(part.as_str()));
        chosen && (!self.report || self.is_done(item))
    }

    /// Whether the folder has the outcome of an item. A result without its λ means that the folder was changed: the run
    /// continues from its last checkpoint and writes both.
    pub(crate) fn is_done(&self, item: &Item) -> bool {
        match &item.work {
            Work::Run(_) => {
                let folder = self.folder.run(&item.label);
                folder.result_file().is_file() && folder.lambda_file().is_file()
            }
            Work::Measure(_) => self.folder.measurement(&item.label).is_file(),
        }
    }

    /// Does the items of one stage: those that are done are read first.
    fn stage(&self, items: &[Item], finished: &mut Finished) -> Result<()> {
        let weights = weights(items);
        self.progress.expect(items.iter().zip(&weights).map(|(item, weight)| (*weight, self.is_done(item))));
        let mut found: Vec<Option<Result<Done>>> =
            items.iter().map(|item| self.is_done(item).then(|| self.read(item))).collect();
        if found.iter().flatten().any(Result::is_err) {
            self.signal.stop();
        }
        match ranks::link() {
            Some(link) => self.on_ranks(link, items, &weights, &mut found)?,
            None => self.here(items, &weights, &mut found),
        }
        self.take(items, found, finished)
    }

    /// Does the unfinished items on this machine, concurrently.
    fn here(&self, items: &[Item], weights: &[f64], found: &mut [Option<Result<Done>>]) {
        // Items that may use all cores share them: concurrent items scale better than threads within one.
        let usual = if self.plan.device == Device::Cpu { cores() } else { ON_A_GPU };
        let jobs = if self.jobs == 0 { usual } else { self.jobs };
        let work = |&number: &usize, at_a_time: usize| {
            self.one(&items[number], weights[number], (cores() / at_a_time).max(1), at_a_time > 1)
        };
        let left = (0..items.len()).filter(|number| found[*number].is_none());
        let (alone, together): (Vec<usize>, Vec<usize>) = left.partition(|number| items[*number].alone);
        let at_a_time = jobs.min(together.len()).max(1);
        let beside = side_by_side(&together, at_a_time, |number| work(number, at_a_time));
        for (number, done) in together.iter().zip(beside) {
            // It may fit if nothing else runs.
            let again = done.as_ref().is_some_and(|done| at_a_time > 1 && lacked_memory(done));
            found[*number] = if again { work(number, 1) } else { done };
        }
        for number in alone {
            found[number] = work(&number, 1);
        }
    }

    /// Does one item, unless the study is stopping. A failure stops the study, unless a concurrent item lacked memory.
    pub(crate) fn one(&self, item: &Item, weight: f64, threads: usize, is_crowded: bool) -> Option<Result<Done>> {
        if self.signal.is_set() {
            return None;
        }
        self.progress.begin(&item.label, weight);
        let done = self.item(item, threads);
        if done.is_err() && !(is_crowded && lacked_memory(&done)) {
            // The others stop now and can be continued later.
            self.signal.stop();
        }
        Some(done)
    }

    /// Adds the outcomes to the finished items; returns an error for a failed item, or for missing ones.
    fn take(&self, items: &[Item], found: Vec<Option<Result<Done>>>, finished: &mut Finished) -> Result<()> {
        let (mut failed, mut missing) = (None, vec![]);
        for (Item { label, .. }, one) in items.iter().zip(found) {
            match one {
                Some(Ok(one)) => finished.add(label, one),
                Some(Err(error)) if failed.is_none() && !error.is_a_stop() => failed = Some((label.to_string(), error)),
                // Others that failed are done again with it, and fail again if they must.
                _ => missing.push(label.to_string()),
            }
        }
        let path = self.folder.path().to_path_buf();
        match failed {
            // The request is impossible; no item failed.
            Some((_, error)) if error.is_a_refusal() => Err(error),
            Some((item, error)) => Err(CliError::Item { item, error: Box::new(error), missing, path }),
            None if !missing.is_empty() => Err(CliError::StoppedStudy { path, done: self.progress.counts().0 }),
            None => Ok(()),
        }
    }

    /// Reads an item that is done.
    fn read(&self, item: &Item) -> Result<Done> {
        match &item.work {
            Work::Run(config) => {
                let (folder, config) = (self.folder.run(&item.label), &(**config).clone().sealed()?);
                self.check_is_of(&folder, config)?;
                let result = read_result(&folder)?;
                check_is_of(&result, config, &folder)?;
                if !ranks::follows() {
                    folder.clean()?;
                }
                self.progress.say(&format!("{}: already done", item.label));
                self.finished(&folder, config, result)
            }
            Work::Measure(_) => {
                if !ranks::follows() {
                    clean(&self.folder.path().join(&item.label))?;
                }
                self.read_measurement(item)
            }
        }
    }

    /// Reads an item that another rank has just done.
    pub(crate) fn kept(&self, item: &Item) -> Result<Done> {
        match &item.work {
            Work::Run(config) => {
                let (folder, config) = (self.folder.run(&item.label), &(**config).clone().sealed()?);
                let result = read_result(&folder)?;
                check_is_of(&result, config, &folder)?;
                self.finished(&folder, config, result)
            }
            Work::Measure(_) => self.read_measurement(item),
        }
    }

    fn item(&self, item: &Item, threads: usize) -> Result<Done> {
        match &item.work {
            Work::Run(config) => {
                let threads = if config.threads == 0 { threads } else { config.threads };
                self.run(&item.label, &Config { threads, ..(**config).clone() })
            }
            Work::Measure(measure) => self.measurement(item, &**measure, threads),
        }
    }

    fn read_measurement(&self, item: &Item) -> Result<Done> {
        let path = self.folder.measurement(&item.label);
        let text = read_regular(&path).map_err(|error| CliError::file("read", &path, &error))?;
        let damaged = |error: serde_json::Error| CliError::File {
            action: "read",
            path: path.clone(),
            reason: format!("{error}; remove it to repeat the measurement"),
        };
        let found: Record = serde_json::from_slice(&text).map_err(damaged)?;
        if (&found.hash, found.device) != (&item.hash(), self.plan.device) {
            return Err(CliError::Usage(format!(
                "{} was measured with other settings; choose another folder with --out",
                path.display()
            )));
        }
        Ok(Done::Measured { value: found.value, seconds: found.seconds })
    }

    fn measurement(&self, item: &Item, measure: &dyn AnyMeasure, threads: usize) -> Result<Done> {
        let (path, hash, device) = (self.folder.measurement(&item.label), item.hash(), self.plan.device);
        let folder = self.folder.path().join(&item.label);
        if folder.is_dir() {
            clean(&folder)?;
        }
        let (label, watcher) = (item.label.clone(), self.progress.clone());
        let place = Place {
            folder: folder.clone(),
            registry: self.plan.registry,
            executor: executor(device, threads)?,
            signal: self.signal.clone(),
            data: self.plan.data.clone(),
            progress: Arc::new(move |part| watcher.part(&label, part)),
        };
        let began = Instant::now();
        let taken = measure.take(&place);
        // A measurement that ends after the signal may be incomplete.
        if self.signal.is_set() {
            return Err(CliError::StoppedStudy { path: self.folder.path().to_path_buf(), done: 0 });
        }
        let value = match taken {
            Err(error @ bilevel::Error::NotApplicable { .. }) => {
                self.progress.end(&item.label, None);
                return Ok(Done::NotApplicable(error.to_string()));
            }
            taken => taken?,
        };
        let record = Record { hash, device, seconds: began.elapsed().as_secs_f64(), value };
        std::fs::create_dir_all(&folder).map_err(|error| CliError::file("make", &folder, &error))?;
        write_whole(&path, serde_json::to_string(&record).unwrap_or_default().as_bytes())?;
        self.progress.end(&item.label, None);
        // As it will be read the next time.
        Ok(Done::Measured { value: record.value, seconds: record.seconds })
    }

    /// Refuses the folder of another run.
    fn check_is_of(&self, folder: &RunFolder, config: &Config) -> Result<()> {
        if folder.config_file().is_file() {
            let there = folder.config(self.plan.registry)?;
            if there.hash() != config.hash() {
                return Err(other_settings(&folder.path().display().to_string(), &there, config));
            }
            folder.check_unchanged(&there)?;
        }
        Ok(())
    }

    fn run(&self, label: &str, config: &Config) -> Result<Done> {
        let (folder, config) = (self.folder.run(label), &config.clone().sealed()?);
        self.check_is_of(&folder, config)?;
        let teller = Teller { label: label.into(), until: 1, progress: self.progress.clone() };
        let result = match execute(config, self.plan.registry, &folder, true, Some(teller), self.signal.clone()) {
            Ok(result) => result,
            Err(CliError::Diverged { .. }) => read_result(&folder)?,
            Err(CliError::Library(error @ bilevel::Error::NotApplicable { .. })) => {
                self.progress.end(label, Some(format!("{label}: does not apply")));
                return Ok(Done::NotApplicable(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        self.progress.end(label, Some(line(label, &result)));
        self.finished(&folder, config, result)
    }

    /// A finished run with the contents of its folder.
    fn finished(&self, folder: &RunFolder, config: &Config, result: RunResult) -> Result<Done> {
        let file = open_regular(&folder.metrics_file()).ok();
        let history = file.and_then(|file| History::parse(BufReader::new(file)).ok()).unwrap_or_default();
        let lambda = found_lambda(&folder.lambda_file(), &result)?;
        Ok(Done::Run(Box::new(FinishedRun::new(self.plan.registry, config, result, history, lambda)?)))
    }
}

/// Whether it did not fit in the memory that others had left.
pub(crate) fn lacked_memory(done: &Result<Done>) -> bool {
    let kind = match done {
        Err(CliError::Library(bilevel::Error::Graph(error))) => &error.kind,
        _ => return false,
    };
    matches!(kind, ErrorKind::OutOfMemory { .. })
}

/// How a run ended, in a line.
fn line(label: &str, result: &RunResult) -> String {
    match (result.stopped.as_str(), result.outer_loss) {
        // Its diagnosis is said once, after all runs.
        ("diverged", _) => format!("{label}: {}", result.because.split(':').next().unwrap_or("diverged")),
        (_, None) => format!("{label}: {}", result.because),
        (_, Some(loss)) => format!("{label}: outer loss {loss:.4e} after {} iterations", result.iterations),
    }
}

/// The error for a folder with a run that differs from the one that should go there.
fn other_settings(path: &str, there: &Config, here: &Config) -> CliError {
    let (old, new) = (there.settings(), here.settings());
    let differs = keys(&new).into_iter().chain(keys(&old)).find_map(|key| {
        let (old, new) = (at(&old, &key), at(&new, &key));
        let leaf = |value: Option<&Value>| value.is_none_or(|value| !value.is_object());
        let left_out = ["threads", "data", "start", "start.lambda", "start.theta"].contains(&key.as_str())
            || key.starts_with("checkpoint")
            || key.starts_with("about")
            || key == "outer.time_limit"
            || key.starts_with("metrics");
        (old != new && leaf(old) && leaf(new) && !left_out).then(|| {
            let word = |value: Option<&Value>| value.map_or("not there".to_string(), Value::to_string);
            format!("{key} is {} there and {} here", word(old), word(new))
        })
    });
    CliError::Usage(format!(
        "{path} holds a run with other settings ({}); choose another folder with --out",
        differs.unwrap_or_default()
    ))
}

fn at<'a>(settings: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let mut parts = key.split('.');
    let first = settings.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}
