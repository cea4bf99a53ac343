//! The parts of the attack, tried in turn: random command lines, damaged files, kills at random moments, random graphs.
//!
//! Every case follows from a separate seed, which a failure prints, so that it can be repeated alone.

/// Prints a line, or ends quietly once its output is closed, as by `| head`.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        if writeln!(std::io::stdout(), $($part)*).is_err() {
            std::process::exit(0);
        }
    }};
}

mod answer;
mod command;
mod commands;
mod damage;
mod files;
mod finished;
mod graphs;
mod keys;
mod kills;
mod place;
mod tally;
mod words;

use crate::error::Result;
use command::Bilevel;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tally::{Tally, Tried};

/// A part of the attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Part {
    /// Random command lines.
    Commands,
    /// Damaged files of runs.
    Files,
    /// Commands killed and interrupted at random moments.
    Kills,
    /// Random programs and their derivatives.
    Graphs,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 4] = [Part::Commands, Part::Files, Part::Kills, Part::Graphs];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Part::Commands => "commands",
            Part::Files => "files",
            Part::Kills => "kills",
            Part::Graphs => "graphs",
        }
    }
}

/// The parts to attack, and the duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// No case is begun after this many seconds.
    pub seconds: f64,
    /// No more than this many cases of each part.
    pub cases: u64,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The parts.
    pub parts: Vec<Part>,
    /// The command under attack, if it is not the one next to this program.
    pub command: Option<PathBuf>,
}

/// One part, ready to be tried with any seed from several threads.
trait Attack: Sync {
    fn attack(&self, seed: u64) -> Result<Tried>;
}

/// How far the attack is.
struct Progress {
    /// Cases begun and time spent, part by part.
    spent: Vec<(u64, Duration)>,
    tally: Tally,
    /// Why the attack itself could not go on.
    broken: Option<crate::error::AttackError>,
}

/// Attacks, and returns true if nothing failed.
pub fn run(plan: &Plan) -> Result<bool> {
    let mut parts: Vec<Box<dyn Attack>> = vec![];
    let needed = plan.parts.iter().any(|&part| part != Part::Graphs);
    let bilevel = if needed { Some(Bilevel::find(plan.command.as_deref())?) } else { None };
    for part in &plan.parts {
        parts.push(match (part, &bilevel) {
            (Part::Commands, Some(bilevel)) => Box::new(commands::Commands::new(bilevel)?),
            (Part::Files, Some(bilevel)) => Box::new(files::Files::new(bilevel)?),
            (Part::Kills, Some(bilevel)) => Box::new(kills::Kills::new(bilevel)?),
            _ => Box::new(graphs::Graphs::new()),
        });
    }
    let began = Instant::now();
    let progress = Mutex::new(Progress {
        spent: vec![(0, Duration::ZERO); parts.len()],
        tally: Tally::new(plan.command.clone()),
        broken: None,
    });
    let lock = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    // The part that had the least time is next.
    let next = || {
        let mut progress = lock();
        if progress.broken.is_some() || began.elapsed().as_secs_f64() >= plan.seconds {
            return None;
        }
        let open = (0..parts.len()).filter(|&number| progress.spent[number].0 < plan.cases);
        let number = open.min_by_key(|&number| progress.spent[number].1)?;
        progress.spent[number].0 += 1;
        Some((number, nth_seed(plan.seed, progress.spent[number].0 - 1)))
    };
    let work = || {
        while let Some((number, seed)) = next() {
            let since = Instant::now();
            let tried = parts[number].attack(seed);
            let mut progress = lock();
            progress.spent[number].1 += since.elapsed();
            match tried {
                Ok(tried) => {
                    for line in progress.tally.count(plan.parts[number], seed, &tried) {
                        say!("{line}");
                    }
                }
                Err(error) => progress.broken = Some(error),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |cores| cores.get()) {
            scope.spawn(work);
        }
    });
    let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = progress.broken {
        return Err(error);
    }
    say!("{}", progress.tally.table());
    Ok(progress.tally.failed() == 0)
}

/// The seed of a case; that of the first is the seed itself, so that any case can be the first of another attack.
fn nth_seed(seed: u64, number: u64) -> u64 {
    if number == 0 {
        return seed;
    }
    let mixed = (seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // Short enough to be typed.
    (mixed ^ (mixed >> 29)) >> 24
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_the_first_of_an_attack() {
        let case = nth_seed(7, 12);
        assert_eq!(nth_seed(case, 0), case);
        let all: std::collections::BTreeSet<u64> = (0..2000).map(|number| nth_seed(7, number)).collect();
        assert_eq!(all.len(), 2000);
    }
}
