//! Commands killed and interrupted at random moments: when continued, they must end with the same results as
//! undisturbed ones.

use super::answer::Answer;
use super::command::{Bilevel, Started};
use super::place::Place;
use super::tally::Tried;
use super::{Attack, finished};
use crate::error::{AttackError, Result};
use bilevel_graph::conformance::Dice;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most kills of one case.
const KILLS: usize = 6;

/// A command to kill, its continuation, and the files that must be the same in the end.
struct Target {
    name: &'static str,
    line: &'static [&'static str],
    end: End,
    /// How long it takes when it is left alone.
    takes: Duration,
}

/// The continuation of a command, and its required end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// By `resume`; with the files of a run.
    Run,
    /// By the same command; with this file.
    Same(&'static str),
}

const EVERY: &str = "checkpoint.every=50";

/// The commands to kill; each writes to the folder `kept`.
const TARGETS: [(&str, &[&str], End); 7] = [
    (
        "run, noisy",
        &["run", "synth1d", "--set", "task.noise=0.3", "--outer", "2500", "--set", EVERY, "--out", "kept"],
        End::Run,
    ),
    (
        "run, saved every time",
        &["run", "synth1d", "--outer", "60", "--set", "checkpoint.every=1", "--out", "kept"],
        End::Run,
    ),
    (
        "run, events",
        &["run", "quadratics", "--outer", "150", "--set", EVERY, "--tensorboard", "--out", "kept"],
        End::Run,
    ),
    (
        "compare",
        &["compare", "synth1d", "--methods", "rmd,ift-cg", "--seeds", "2", "--outer", "200", "--out", "kept"],
        End::Same("rows.jsonl"),
    ),
    ("digits", &["reproduce", "digits", "--quick", "--out", "kept"], End::Same("rows.jsonl")),
    ("reproduce", &["reproduce", "synth1d", "--quick", "--out", "kept"], End::Same("rows.jsonl")),
    ("report", &["report", "kept"], End::Same("report.html")),
];

/// The part.
pub struct Kills {
    bilevel: Bilevel,
    targets: Vec<Target>,
    /// The undisturbed result of each target, in a folder of its number.
    stock: Place,
    /// A finished run to report, of the target before the last.
    run: usize,
}

fn words(line: &[&str]) -> Vec<OsString> {
    line.iter().map(OsString::from).collect()
}

impl Kills {
    /// Lets every target run to its end once.
    pub fn new(bilevel: &Bilevel) -> Result<Self> {
        let stock = Place::new()?;
        let kept = stock.seen().join("kept");
        let mut targets = vec![];
        for (number, (name, line, end)) in TARGETS.into_iter().enumerate() {
            if name == "report" {
                super::place::copy(&stock.seen().join("0"), &kept)?;
            }
            let since = Instant::now();
            bilevel.prepare(&stock, line)?;
            targets.push(Target { name, line, end, takes: since.elapsed() });
            let to = stock.seen().join(number.to_string());
            std::fs::rename(&kept, &to).map_err(AttackError::file(&to))?;
        }
        Ok(Kills { bilevel: bilevel.clone(), targets, stock, run: 0 })
    }

    /// Starts it and ends it at a random moment. Returns its output, unless it was killed.
    fn cut(&self, dice: &mut Dice, place: &Place, line: &[OsString], takes: Duration) -> Result<Option<Answer>> {
        let mut started: Started = self.bilevel.start(place, line)?;
        let whole = takes.as_micros() as usize;
        // The first files are written in the first milliseconds.
        let moment = if dice.one_in(3) { dice.below(20_000) } else { dice.below(whole + whole / 10) };
        if !started.goes_on_for(Duration::from_micros(moment as u64))? {
            return started.end().map(Some);
        }
        match dice.below(5) {
            0..=2 => {
                started.kill()?;
                return Ok(None);
            }
            3 => started.interrupt()?,
            // An impatient user.
            _ => {
                started.interrupt()?;
                started.goes_on_for(Duration::from_micros(dice.below(10_000) as u64))?;
                started.interrupt()?;
            }
        }
        started.end().map(Some)
    }
}

impl Attack for Kills {
    fn attack(&self, seed: u64) -> Result<Tried> {
        let mut dice = Dice::new(seed);
        let number = dice.pick(&[0, 0, 1, 1, 2, 3, 4, 5, 6]);
        let target = &self.targets[number];
        let place = Place::new()?;
        if target.name == "report" {
            place.copy(&self.stock.seen().join(self.run.to_string()), "kept")?;
        }
        let mut tried = Tried::new(target.name);
        let mut line = words(target.line);
        let mut ended = false;
        for _ in 0..1 + dice.below(KILLS) {
            if let Some(answer) = self.cut(&mut dice, &place, &line, target.takes)? {
                tried.blame(&answer.words(), answer.faults(&[0]));
                ended = answer.done();
            }
            if ended || !tried.failures.is_empty() {
                break;
            }
            line = target.next(&place);
        }
        if !ended && tried.failures.is_empty() {
            let answer = self.bilevel.run(&place, &line)?;
            tried.blame(&answer.words(), answer.faults(&[0]).into_iter().map(|fault| format!("{fault} after a kill")));
        }
        if tried.failures.is_empty() {
            let (found, expected) = (place.seen().join("kept"), self.stock.seen().join(number.to_string()));
            tried.blame(&format!("{:?}", target.line.join(" ")), target.differences(&found, &expected));
        }
        Ok(tried)
    }
}

impl Target {
    /// The line that continues: a run that had not begun is begun again.
    fn next(&self, place: &Place) -> Vec<OsString> {
        let begun = place.seen().join("kept/config.toml").exists();
        if self.end == End::Run && begun { words(&["resume", "kept"]) } else { words(self.line) }
    }

    fn differences(&self, found: &Path, expected: &Path) -> Vec<String> {
        match self.end {
            End::Run => {
                let faults = finished::faults(found).into_iter();
                faults.chain(finished::differences(found, expected, true)).collect()
            }
            End::Same(name) => finished::differences_in(found, expected, name),
        }
    }
}
