//! The study of regularisation weights on the digits: run on all cores, and shown as tables, words, files and a page.

pub mod files;
pub mod page;
pub mod tables;
pub mod words;

use crate::board::Board;
use crate::device::Device;
use crate::errors::{CliError, Result};
use crate::side_by_side::{cores, side_by_side};
use crate::spread::Spread;
use bilevel::StopSignal;
use bilevel_tasks::digits::study::{self, METHODS, NONE, Plan, Progress, SHARED, Scores, Trial, Watch};
use std::sync::{Arc, Mutex, PoisonError};

/// What was done and what came out.
pub struct Study {
    /// What was to be done.
    pub plan: Plan,
    /// Where it was done.
    pub device: Device,
    /// Everything on each split, in the order of the plan.
    pub splits: Vec<Vec<Trial>>,
}

impl Study {
    /// Runs the splits side by side, on one thread each, or one after the other on a GPU.
    pub fn run(plan: &Plan, device: Device, signal: &StopSignal, board: &Board) -> Result<Self> {
        let total = plan.price_of_split() * plan.splits.len() as f64;
        // A watch outlives this call as far as the compiler knows, so what it is told is read from a shared place.
        let told: Arc<Mutex<(f64, Option<Progress>)>> = Arc::default();
        let tell = told.clone();
        let watch: Watch = Arc::new(move |progress: Progress| {
            let mut told = tell.lock().unwrap_or_else(PoisonError::into_inner);
            *told = (told.0 + progress.gradients, Some(progress));
        });
        let look = || {
            let (done, last) = *told.lock().unwrap_or_else(PoisonError::into_inner);
            let what = || last.map_or(String::new(), |last| format!("split {}: {}", last.split, last.name));
            board.show(done / total, what);
        };
        let over = Mutex::new(false);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !*over.lock().unwrap_or_else(PoisonError::into_inner) {
                    look();
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            });
            let work = |seed: &u64| {
                let executor = device.executor(1)?;
                let found = study::trials(plan, *seed, &executor, signal, &watch).map_err(CliError::from);
                if let Ok(Some(trials)) = &found {
                    board.say(&words::split_done(*seed, trials));
                }
                found
            };
            let at_a_time = if device == Device::Cpu { cores() } else { 1 };
            let found = side_by_side(&plan.splits, at_a_time, work);
            *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
            found
        });
        board.end();
        let mut splits = vec![];
        for trials in found {
            let stopped = || CliError::StoppedRuns("stopped before it was done; nothing was written".into());
            splits.push(trials?.ok_or_else(stopped)?);
        }
        Ok(Study { plan: plan.clone(), device, splits })
    }

    /// Names of the rows of a table.
    pub fn names(&self) -> Vec<&'static str> {
        [NONE, SHARED].into_iter().chain(METHODS.iter().map(|method| method.name)).collect()
    }

    /// The trials of this name, one a split.
    pub fn trials<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Trial> {
        self.splits.iter().flatten().filter(move |trial| trial.name == name)
    }

    /// A number of the scores over all splits that have them.
    pub fn spread(&self, name: &str, pick: impl Fn(&Scores) -> f64) -> Spread {
        Spread::of(&self.trials(name).filter_map(|trial| trial.scores.as_ref().map(&pick)).collect::<Vec<_>>())
    }
}
