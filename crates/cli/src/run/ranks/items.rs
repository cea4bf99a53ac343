//! The items of a study, shared out over ranks: each is done by one rank, which keeps it in its folder, from which all read it.

use crate::errors::{CliError, Result};
use crate::run::ranks::{agree, follows, threads};
use crate::run::study::{Conductor, lacked_memory};
use bilevel_graph::Link;
use bilevel_ranks::{Jobs, share_out};
use bilevel_run::{Done, Item};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};

/// The outcome of an item that a rank reports to the others.
#[derive(Serialize, Deserialize)]
enum Outcome {
    /// It is in its folder.
    Kept,
    NotApplicable(String),
    /// It did not fit while others ran.
    Crowded,
    Failed {
        sentence: String,
        code: u8,
        is_refusal: bool,
    },
    Stopped,
}

/// Items that are shared out, by job.
struct Shared<'a> {
    conductor: &'a Conductor<'a>,
    items: &'a [Item],
    weights: &'a [f64],
    /// By job: the number of the item.
    jobs: &'a [usize],
    /// Threads of an item.
    threads: usize,
    /// An item that lacks memory is done again, alone.
    is_crowded: bool,
    own_rank: usize,
    found: Mutex<Vec<(usize, Result<Done>)>>,
    elsewhere: Mutex<Vec<usize>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs for Shared<'_> {
    fn work(&self, job: usize) {
        let number = self.jobs[job];
        let done = self.conductor.one(&self.items[number], self.weights[number], self.threads, self.is_crowded);
        if let Some(done) = done {
            locked(&self.found).push((number, done));
        }
    }

    fn is_stopping(&self) -> bool {
        self.conductor.signal.is_set()
    }

    fn stop(&self) {
        self.conductor.signal.stop();
    }

    fn given(&self, job: usize, rank: usize) {
        let number = self.jobs[job];
        if rank != self.own_rank && !follows() {
            self.conductor.progress.begin(&self.items[number].label, self.weights[number]);
            locked(&self.elsewhere).push(number);
        }
    }

    fn between(&self) {
        locked(&self.elsewhere).retain(|&number| {
            let is_done = self.conductor.is_done(&self.items[number]);
            if is_done {
                self.conductor.progress.end(&self.items[number].label, None);
            }
            !is_done
        });
    }
}

impl Conductor<'_> {
    /// Runs the unfinished items on all ranks, and returns the outcome of each.
    pub(crate) fn on_ranks(
        &self,
        link: &Link,
        items: &[Item],
        weights: &[f64],
        found: &mut [Option<Result<Done>>],
    ) -> Result<()> {
        let described = items.iter().map(|item| format!("{} {}\n", item.label, item.hash())).collect::<String>();
        agree("version", env!("CARGO_PKG_VERSION"), "start all ranks with one command")?;
        agree("list of items", &described, "start all ranks with one command, and give them the same files")?;
        let done: String = found.iter().map(|one| if one.is_some() { 'x' } else { '.' }).collect();
        agree("set of finished items", &done, "all ranks must see the folder of the study")?;
        let cores = threads();
        let left = (0..items.len()).filter(|&number| found[number].is_none());
        let (mut alone, together): (Vec<usize>, Vec<usize>) = left.partition(|&number| items[number].alone);
        let jobs = if self.jobs == 0 { cores } else { self.jobs };
        let at_a_time = jobs.min(together.len().div_ceil(link.size())).max(1);
        let shared = |jobs, threads, is_crowded| Shared {
            conductor: self,
            items,
            weights,
            jobs,
            threads,
            is_crowded,
            own_rank: link.rank(),
            found: Mutex::default(),
            elsewhere: Mutex::default(),
        };
        let first = shared(&together, (cores / at_a_time).max(1), true);
        share_out(link, together.len(), at_a_time, &first).map_err(bilevel::Error::from)?;
        alone.extend(self.exchange(link, first, found)?);
        alone.sort_unstable();
        // These run alone: rank 0 runs one after the other.
        let second = shared(&alone, cores, false);
        let hands = usize::from(link.rank() == 0);
        share_out(link, alone.len(), hands, &second).map_err(bilevel::Error::from)?;
        self.exchange(link, second, found)?;
        Ok(())
    }

    /// Exchanges the outcomes of items with the other ranks. Returns the items that did not fit while others ran.
    fn exchange(&self, link: &Link, shared: Shared, found: &mut [Option<Result<Done>>]) -> Result<Vec<usize>> {
        let (items, is_crowded) = (shared.items, shared.is_crowded);
        let own = shared.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let outcomes: Vec<(usize, Outcome)> =
            own.iter().map(|(number, done)| (*number, outcome(done, is_crowded))).collect();
        let all = link.bytes(&serde_json::to_vec(&outcomes).unwrap_or_default()).map_err(bilevel::Error::from)?;
        let mut crowded = vec![];
        for (rank, text) in all.iter().enumerate() {
            let outcomes: Vec<(usize, Outcome)> = serde_json::from_slice(text).unwrap_or_default();
            for (number, outcome) in outcomes {
                found[number] = match outcome {
                    Outcome::Crowded => {
                        crowded.push(number);
                        continue;
                    }
                    _ if rank == link.rank() => continue,
                    Outcome::Kept if !self.is_done(&items[number]) => {
                        return Err(CliError::Usage(format!(
                            "rank {rank} has done {}, which this rank does not see; all ranks must see the folder of the study",
                            items[number].label
                        )));
                    }
                    Outcome::Kept => Some(self.kept(&items[number])),
                    Outcome::NotApplicable(reason) => Some(Ok(Done::NotApplicable(reason))),
                    Outcome::Failed { sentence, code, is_refusal } => {
                        Some(Err(CliError::OnRank { rank, sentence, code, is_refusal }))
                    }
                    Outcome::Stopped => None,
                };
            }
        }
        for (number, done) in own {
            if !crowded.contains(&number) {
                found[number] = Some(done);
            }
        }
        Ok(crowded)
    }
}

fn outcome(done: &Result<Done>, is_crowded: bool) -> Outcome {
    match done {
        Ok(Done::NotApplicable(reason)) => Outcome::NotApplicable(reason.clone()),
        Ok(_) => Outcome::Kept,
        Err(_) if is_crowded && lacked_memory(done) => Outcome::Crowded,
        Err(error) if error.is_a_stop() => Outcome::Stopped,
        Err(error) => {
            Outcome::Failed { sentence: error.to_string(), code: error.exit_code(), is_refusal: error.is_a_refusal() }
        }
    }
}
