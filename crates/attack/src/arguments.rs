//! The command line of the attack.

use crate::attack::{Part, Plan};
use clap::{Parser, value_parser};
use std::path::PathBuf;

/// Attack the command 'bilevel' and the engine; exit status 1 if anything fails.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "bilevel-attack", max_term_width = 100)]
pub struct Arguments {
    /// Duration in minutes; 1 by default.
    #[arg(long, value_name = "N", value_parser = time, conflicts_with = "seconds")]
    minutes: Option<f64>,
    /// Duration in seconds.
    #[arg(long, value_name = "N", value_parser = time)]
    seconds: Option<f64>,
    /// The seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// One part only.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// The largest number of cases per part.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    cases: Option<u64>,
    /// Attack this command instead of building the workspace's.
    #[arg(long, value_name = "PATH")]
    command: Option<PathBuf>,
}

fn time(word: &str) -> Result<f64, String> {
    let time = word.parse().ok().filter(|time: &f64| *time > 0.0 && time.is_finite());
    time.ok_or_else(|| "it must be a number above 0".into())
}

impl Arguments {
    /// The plan of the arguments.
    pub fn plan(self) -> Plan {
        // If cases are limited, time is not, unless both are given.
        let usual = if self.cases.is_some() { f64::INFINITY } else { 60.0 };
        Plan {
            seconds: self.minutes.map(|minutes| 60.0 * minutes).or(self.seconds).unwrap_or(usual),
            cases: self.cases.unwrap_or(u64::MAX),
            seed: self.seed,
            parts: self.only.map_or(Part::ALL.to_vec(), |part| vec![part]),
            command: self.command,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        let words = std::iter::once("bilevel-attack").chain(text.split_whitespace());
        Arguments::try_parse_from(words).map(Arguments::plan).map_err(|error| error.to_string())
    }

    #[test]
    fn a_case_or_a_time_can_be_asked_for() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
        let again = Plan { seconds: f64::INFINITY, cases: 1, seed: 5, parts: vec![Part::Kills], command: None };
        assert_eq!(plan("--only kills --seed 5 --cases 1"), Ok(again));
        assert_eq!(plan("--minutes 2").unwrap().seconds, 120.0);
        assert_eq!(
            plan("").unwrap(),
            Plan { seconds: 60.0, cases: u64::MAX, seed: 0, parts: Part::ALL.to_vec(), command: None }
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for text in ["--only me", "--minutes 0", "--cases 0", "attack"] {
            assert!(plan(text).is_err(), "{text}");
        }
    }
}
