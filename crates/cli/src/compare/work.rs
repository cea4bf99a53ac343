//! The runs of a comparison, side by side; what is done already is not done again.

use super::plan::{Plan, Planned};
use crate::board::Board;
use crate::errors::{CliError, Result};
use crate::result::RunResult;
use crate::runner::{execute, report};
use crate::side_by_side::side_by_side;
use bilevel::{Beginning, Iteration, Observer, State, StopSignal};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// With a result, which may be that it diverged.
    Done(Box<RunResult>),
    /// The method cannot work on this problem, for this reason.
    DoesNotApply(String),
}

/// A run that goes on.
#[derive(Clone, Debug)]
struct Current {
    name: String,
    done: u32,
    until: u32,
}

/// All there is to see: runs done, and those that go on.
struct Seen {
    board: Board,
    state: Mutex<(usize, Vec<Current>)>,
    total: usize,
}

impl Seen {
    fn change(&self, change: impl FnOnce(&mut (usize, Vec<Current>))) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let (done, current) = &*state;
        let part: f64 = current.iter().map(|run| run.done as f64 / run.until.max(1) as f64).sum();
        self.board.show((*done as f64 + part) / self.total.max(1) as f64, || {
            let run = |run: &Current| format!("{} {}/{}", run.name, run.done, run.until);
            let going = current.iter().map(run).collect::<Vec<_>>().join("  ");
            format!("{done}/{} runs  {going}", self.total)
        });
    }

    fn end(&self, name: &str, line: &str) {
        self.change(|(done, current)| {
            *done += 1;
            current.retain(|run| run.name != name);
        });
        self.board.say(line);
    }
}

/// Tells how one run goes.
struct Teller {
    name: String,
    seen: Arc<Seen>,
}

impl Observer for Teller {
    fn on_start(&mut self, beginning: &Beginning) -> ControlFlow<String> {
        let current = Current { name: self.name.clone(), done: beginning.done, until: beginning.until };
        self.seen.change(|(_, all)| all.push(current));
        ControlFlow::Continue(())
    }

    fn on_iteration(&mut self, iteration: &Iteration, _: &State) -> ControlFlow<String> {
        self.seen.change(|(_, all)| {
            if let Some(run) = all.iter_mut().find(|run| run.name == self.name) {
                run.done = iteration.number;
            }
        });
        ControlFlow::Continue(())
    }
}

/// Runs what is not done yet. An end for each run of the plan, in its order.
pub fn work(plan: &Plan, board: Board, signal: &StopSignal) -> Result<Vec<End>> {
    let seen = Arc::new(Seen { board, state: Mutex::default(), total: plan.runs.len() });
    let ends = side_by_side(&plan.runs, plan.at_a_time, |planned| {
        if signal.is_set() {
            return None;
        }
        let end = one(planned, &seen, signal);
        if end.is_err() {
            // The others stop where they are; they can go on later.
            signal.stop();
        }
        Some(end)
    });
    seen.board.end();
    let mut done = vec![];
    let mut stopped = 0;
    for end in ends {
        match end {
            Some(Ok(end)) => done.push(end),
            None | Some(Err(CliError::Stopped { .. })) => stopped += 1,
            Some(Err(error)) => return Err(error),
        }
    }
    if stopped > 0 {
        return Err(CliError::StoppedRuns(format!(
            "stopped after {} of {} runs; to go on, give the same command again with --out {}",
            done.len(),
            plan.runs.len(),
            plan.folder.display()
        )));
    }
    Ok(done)
}

fn one(planned: &Planned, seen: &Arc<Seen>, signal: &StopSignal) -> Result<End> {
    let name = format!("{} seed {}", planned.method(), planned.config.seed);
    if planned.folder.result_file().is_file() {
        let result = RunResult::read(&planned.folder)?;
        result.check_is_of(&planned.config, &planned.folder)?;
        // It may have been killed while it drew.
        planned.folder.clean()?;
        if !planned.folder.report_file().exists() {
            report(&planned.folder);
        }
        seen.end(&name, &format!("{name}: done before"));
        return Ok(End::Done(Box::new(result)));
    }
    let teller = Teller { name: name.clone(), seen: seen.clone() };
    let result = match execute(&planned.config, &planned.folder, true, Some(teller), signal.clone()) {
        Ok(result) => result,
        Err(CliError::Diverged { .. }) => RunResult::read(&planned.folder)?,
        Err(CliError::Library(error @ bilevel::Error::NotApplicable { .. })) => {
            seen.end(&name, &format!("{name}: does not apply"));
            return Ok(End::DoesNotApply(error.to_string()));
        }
        Err(error) => return Err(error),
    };
    let line = match (result.stopped.as_str(), result.outer_loss) {
        // Its diagnosis is said once, after all runs.
        ("diverged", _) => format!("{name}: {}", result.because.split(':').next().unwrap_or("diverged")),
        (_, None) => format!("{name}: {}", result.because),
        (_, Some(loss)) => format!("{name}: outer loss {loss:.4e} after {} iterations", result.iterations),
    };
    seen.end(&name, &line);
    Ok(End::Done(Box::new(result)))
}
