//! Conducts a study in its folder: items side by side, none of them twice, each from where it stopped.

use crate::config::text::keys;
use crate::errors::{CliError, Result};
use crate::run::device::executor;
use crate::run::execute::execute;
use crate::run::folder::{clean, write_whole};
use crate::run::record::found_lambda;
use crate::run::result::{check_is_of, read_result};
use crate::run::side_by_side::{cores, side_by_side};
use crate::run::study_folder::StudyFolder;
use crate::terminal::progress::Progress;
use bilevel::whole_file::{open_regular, read_regular};
use bilevel::{Beginning, Iteration, Observer, State, StopSignal};
use bilevel_graph::ErrorKind;
use bilevel_tasks::price::price;
use bilevel_tasks::run::{History, RunResult};
use bilevel_tasks::{AnyMeasure, Config, Device, Done, Finished, FinishedRun, Item, Place, Plan, Study, Work, conduct};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Items on a GPU at a time. Small networks leave most of it idle, and what does not fit beside others is done again alone.
const ON_A_GPU: usize = 4;

/// How a study is done.
pub struct Conductor<'a> {
    /// What was asked for.
    pub plan: Plan<'a>,
    /// Where it is kept.
    pub folder: &'a StudyFolder,
    /// Items at a time; 0 is as many as pay.
    pub jobs: usize,
    /// Stops it.
    pub signal: StopSignal,
    /// Shows how far it is.
    pub board: Progress,
}

/// A measurement as in its file.
#[derive(Serialize, Deserialize)]
struct Record {
    /// What it was taken with.
    hash: String,
    /// Where.
    device: Device,
    /// Seconds it took.
    seconds: f64,
    /// What was found.
    value: Value,
}

impl Conductor<'_> {
    /// Does what is not done yet, and adds all items that are done to these: also those before an error.
    pub fn conduct(&self, study: &dyn Study, done: &mut Finished) -> Result<()> {
        let seen = Arc::new(Seen { board: self.board.clone(), state: Mutex::default() });
        let conducted = conduct(study, &self.plan, done, |items, done| self.stage(items, done, &seen));
        self.board.end();
        conducted
    }

    /// Does the items of one stage.
    fn stage(&self, items: &[Item], finished: &mut Finished, seen: &Arc<Seen>) -> Result<()> {
        seen.change(|state| state.total += items.len());
        // Items that may use all cores share them: one beside the other scales better than threads within one.
        let usual = if self.plan.device == Device::Cpu { cores() } else { ON_A_GPU };
        let jobs = if self.jobs == 0 { usual } else { self.jobs };
        // It may fit where nothing runs beside it.
        let crowded = |done: &Result<Done>, at_a_time: usize| at_a_time > 1 && lacked_memory(done);
        let work = |item: &&Item, at_a_time: usize| {
            if self.signal.is_set() {
                return None;
            }
            let threads = (cores() / at_a_time).max(1);
            let done = self.item(item, threads, seen);
            if done.is_err() && !crowded(&done, at_a_time) {
                // The others stop where they are; they can continue later.
                self.signal.stop();
            }
            Some(done)
        };
        let (alone, together): (Vec<&Item>, Vec<&Item>) = items.iter().partition(|item| item.alone);
        let at_a_time = jobs.min(together.len()).max(1);
        let beside = side_by_side(&together, at_a_time, |item| work(item, at_a_time));
        let mut found: Vec<(&str, Option<Result<Done>>)> = vec![];
        for (item, done) in together.iter().zip(beside) {
            let again = done.as_ref().is_some_and(|done| crowded(done, at_a_time));
            found.push((&item.label, if again { work(item, 1) } else { done }));
        }
        found.extend(alone.iter().map(|item| (item.label.as_str(), work(item, 1))));
        // In the order of the items.
        let place = |label: &str| items.iter().position(|item| item.label == label);
        found.sort_by_key(|(label, _)| place(label));
        let (mut failed, mut missing) = (None, vec![]);
        for (label, one) in found {
            match one {
                Some(Ok(one)) => finished.add(label, one),
                Some(Err(error)) if failed.is_none() && !error.is_a_stop() => failed = Some((label.to_string(), error)),
                // Others that failed are done again with it, and fail again if they must.
                _ => missing.push(label.to_string()),
            }
        }
        let path = self.folder.path().to_path_buf();
        match failed {
            // What was asked for cannot be; nothing failed.
            Some((_, error)) if error.is_a_refusal() => Err(error),
            Some((item, error)) => Err(CliError::Item { item, error: Box::new(error), missing, path }),
            None if !missing.is_empty() => Err(CliError::StoppedStudy { path, done: seen.counts().0 }),
            None => Ok(()),
        }
    }

    fn item(&self, item: &Item, threads: usize, seen: &Arc<Seen>) -> Result<Done> {
        match &item.work {
            Work::Run(config) => {
                let threads = if config.threads == 0 { threads } else { config.threads };
                self.run(&item.label, &Config { threads, ..(**config).clone() }, seen)
            }
            Work::Measure(measure) => self.measurement(item, &**measure, threads, seen),
        }
    }

    fn measurement(&self, item: &Item, measure: &dyn AnyMeasure, threads: usize, seen: &Arc<Seen>) -> Result<Done> {
        let (path, hash, device) = (self.folder.measurement(&item.label), item.hash(), self.plan.device);
        let folder = self.folder.path().join(&item.label);
        if folder.is_dir() {
            clean(&folder)?;
        }
        if path.is_file() {
            let text = read_regular(&path).map_err(|error| CliError::file("read", &path, &error))?;
            let damaged = |error: serde_json::Error| CliError::File {
                action: "read",
                path: path.clone(),
                reason: format!("{error}; remove it to measure again"),
            };
            let found: Record = serde_json::from_slice(&text).map_err(damaged)?;
            if (&found.hash, found.device) != (&hash, device) {
                return Err(CliError::Usage(format!(
                    "{} was measured with other settings; choose another folder with --out",
                    path.display()
                )));
            }
            seen.end(&item.label, None);
            return Ok(Done::Measured { value: found.value, seconds: found.seconds });
        }
        let (label, watcher) = (item.label.clone(), seen.clone());
        seen.begin(&label);
        let place = Place {
            registry: self.plan.registry,
            executor: executor(device, threads)?,
            signal: self.signal.clone(),
            data: self.plan.data.clone(),
            progress: Arc::new(move |part| watcher.part(&label, part)),
        };
        let began = Instant::now();
        let taken = measure.take(&place);
        // What comes after the signal was set may be half of it.
        if self.signal.is_set() {
            return Err(CliError::StoppedStudy { path: self.folder.path().to_path_buf(), done: 0 });
        }
        let value = match taken {
            Err(error @ bilevel::Error::NotApplicable { .. }) => {
                seen.end(&item.label, None);
                return Ok(Done::NotApplicable(error.to_string()));
            }
            taken => taken?,
        };
        let record = Record { hash, device, seconds: began.elapsed().as_secs_f64(), value };
        std::fs::create_dir_all(&folder).map_err(|error| CliError::file("make", &folder, &error))?;
        write_whole(&path, serde_json::to_string(&record).unwrap_or_default().as_bytes())?;
        seen.end(&item.label, None);
        // As it will be read the next time.
        Ok(Done::Measured { value: record.value, seconds: record.seconds })
    }

    fn run(&self, label: &str, config: &Config, seen: &Arc<Seen>) -> Result<Done> {
        let (folder, registry) = (self.folder.run(label), self.plan.registry);
        if folder.config_file().is_file() {
            let there = folder.config(registry)?;
            if there.hash() != config.hash() {
                return Err(other_settings(&folder.path().display().to_string(), &there, config));
            }
            folder.check_unchanged(&there)?;
        }
        // A result without its λ is that of a folder somebody changed: the run continues from its last checkpoint and
        // writes both.
        let result = if folder.result_file().is_file() && folder.lambda_file().is_file() {
            let result = read_result(&folder)?;
            check_is_of(&result, config, &folder)?;
            folder.clean()?;
            seen.end(label, Some(format!("{label}: already done")));
            result
        } else {
            seen.begin(label);
            let teller = Teller { label: label.into(), until: 1, seen: seen.clone() };
            let result = match execute(config, registry, &folder, true, Some(teller), self.signal.clone()) {
                Ok(result) => result,
                Err(CliError::Diverged { .. }) => read_result(&folder)?,
                Err(CliError::Library(error @ bilevel::Error::NotApplicable { .. })) => {
                    seen.end(label, Some(format!("{label}: does not apply")));
                    return Ok(Done::NotApplicable(error.to_string()));
                }
                Err(error) => return Err(error),
            };
            seen.end(label, Some(line(label, &result)));
            result
        };
        let file = open_regular(&folder.metrics_file()).ok();
        let history = file.and_then(|file| History::parse(BufReader::new(file)).ok()).unwrap_or_default();
        let passes = registry.known_method(config.method.name())?.passes;
        Ok(Done::Run(Box::new(FinishedRun {
            config: config.clone(),
            price: price(result.oracles, passes),
            lambda: found_lambda(&folder.lambda_file(), &result)?,
            seconds: history.last().and_then(|row| row.seconds).unwrap_or(f64::NAN),
            history,
            result,
        })))
    }
}

/// Whether it did not fit in the memory that others had left.
fn lacked_memory(done: &Result<Done>) -> bool {
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
        let left_out =
            ["threads", "data"].contains(&key.as_str()) || key.starts_with("checkpoint") || key.starts_with("metrics");
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

/// Items that are done, all that are known of, and those that continue with how much of each is done.
#[derive(Default)]
struct SeenState {
    done: usize,
    total: usize,
    current: Vec<(String, f64)>,
}

/// All there is to see.
struct Seen {
    board: Progress,
    state: Mutex<SeenState>,
}

impl Seen {
    fn change(&self, change: impl FnOnce(&mut SeenState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let SeenState { done, total, current } = &*state;
        let part: f64 = current.iter().map(|(_, part)| part).sum();
        self.board.show((*done as f64 + part) / (*total).max(1) as f64, || {
            let going = current.iter().map(|(label, part)| format!("{label} {:.0} %", 100.0 * part));
            format!("{done} of {total} done  {}", going.collect::<Vec<_>>().join("  "))
        });
    }

    fn counts(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.done, state.total)
    }

    fn begin(&self, label: &str) {
        self.change(|state| {
            // An item that lacked memory begins a second time.
            state.current.retain(|(known, _)| known != label);
            state.current.push((label.into(), 0.0));
        });
    }

    fn part(&self, label: &str, part: f64) {
        self.change(|state| {
            if let Some(item) = state.current.iter_mut().find(|(known, _)| known == label) {
                item.1 = part.clamp(0.0, 1.0);
            }
        });
    }

    fn end(&self, label: &str, line: Option<String>) {
        self.change(|state| {
            state.done += 1;
            state.current.retain(|(known, _)| known != label);
        });
        if let Some(line) = line {
            self.board.say(&line);
        }
    }
}

/// Tells how one run goes.
struct Teller {
    label: String,
    until: u32,
    seen: Arc<Seen>,
}

impl Observer for Teller {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        self.until = beginning.until;
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        self.seen.part(&self.label, f64::from(iteration.number) / f64::from(self.until.max(1)));
        ControlFlow::Continue(())
    }
}
