//! Runs whose files were damaged: continuing, drawing and comparing them must be refused in one sentence, or end with
//! the result of an undamaged run.

use super::answer::Answer;
use super::command::Bilevel;
use super::damage::Way;
use super::place::{Place, files_below};
use super::tally::Tried;
use super::{Attack, finished};
use crate::error::{AttackError, Result};
use bilevel_graph::conformance::Dice;
use std::path::{Path, PathBuf};

/// Iterations of a whole run, of the part of it that a stopped one has done, and between checkpoints.
const WHOLE: &str = "12";
const PART: &str = "7";
const EVERY: &str = "checkpoint.every=3";

/// The runs to damage, which differ in the state that they keep between iterations.
const RUNS: [&[&str]; 4] = [
    &["synth1d"],
    &["synth1d", "--set", "task.noise=0.3", "--method", "hpo-sgld"],
    &["quadratics", "--set", "outer.optimizer.name=\"adam\""],
    &["sine-initialisation", "--tensorboard"],
];

/// The arguments of the comparison.
const COMPARE: [&str; 10] =
    ["compare", "synth1d", "--methods", "rmd,ift-cg", "--seeds", "1", "--outer", "6", "--out", "kept"];

/// The part.
pub struct Files {
    bilevel: Bilevel,
    stock: Place,
}

fn named(what: &str, number: usize) -> String {
    format!("{what}-{number}")
}

impl Files {
    /// Makes the runs.
    pub fn new(bilevel: &Bilevel) -> Result<Self> {
        let stock = Place::new()?;
        for (number, run) in RUNS.iter().enumerate() {
            for (what, outer) in [("whole", WHOLE), ("stopped", PART)] {
                let out = named(what, number);
                let more = ["--outer", outer, "--out", &out, "--set", EVERY, "--quiet"];
                bilevel.prepare(&stock, &[&["run"], *run, &more].concat())?;
            }
            as_if_stopped(&stock.seen().join(named("stopped", number)))?;
        }
        bilevel.prepare(&stock, &[&COMPARE[..], &["--quiet"]].concat())?;
        Ok(Files { bilevel: bilevel.clone(), stock })
    }

    fn whole(&self, run: usize) -> PathBuf {
        self.stock.seen().join(named("whole", run))
    }

    /// Damages one or two files below a folder; returns the damage and the files.
    fn damage(&self, dice: &mut Dice, place: &Place, folder: &Path, other: &Path) -> Result<Vec<(PathBuf, Way)>> {
        let mut done: Vec<(PathBuf, Way)> = vec![];
        // Pictures are written and never read.
        let all: Vec<PathBuf> = files_below(folder)?.into_iter().filter(|path| !is_picture(path)).collect();
        for number in 0..1 + dice.below(2) {
            let file = &all[dice.below(all.len())];
            let way = dice.pick(&Way::ALL);
            let below = file.strip_prefix(folder).unwrap_or(file);
            if done.iter().any(|(damaged, _)| damaged == below) {
                continue;
            }
            way.apply(dice, file, &other.join(below), &place.beside(&format!("aside-{number}")))?;
            done.push((below.to_path_buf(), way));
        }
        Ok(done)
    }

    fn resume(&self, dice: &mut Dice) -> Result<Tried> {
        let (run, is_whole) = (dice.below(RUNS.len()), dice.one_in(3));
        let place = Place::new()?;
        let from = if is_whole { self.whole(run) } else { self.stock.seen().join(named("stopped", run)) };
        let folder = place.copy(&from, "kept")?;
        let damage = self.damage(dice, &place, &folder, &self.whole((run + 1) % RUNS.len()))?;
        let answer = self.bilevel.say(&place, &["resume", "kept"])?;
        let mut tried = Tried::new(if is_whole { "resume, finished" } else { "resume, stopped" });
        let mut faults = answer.faults(&[0, 2]);
        let what = described(&answer, &damage);
        // A damaged configuration may still be valid but different; then the difference must be detected.
        let other_wish = damage.iter().any(|(file, way)| named_as(file, "config.toml") && *way == Way::FlipBits);
        if answer.done() && !other_wish {
            // A digit that was flipped in a line of metrics cannot be told from another, and lines that are lost are lost: it
            // is enough to say so.
            let flipped = damage.iter().any(|(file, way)| named_as(file, "metrics.jsonl") && *way == Way::FlipBits);
            let gap = answer.error_text().contains("its curves have a gap");
            faults.extend(finished::differences(&folder, &self.whole(run), !flipped && !gap));
        }
        tried.blame(&what, faults);
        Ok(tried)
    }

    fn report(&self, dice: &mut Dice) -> Result<Tried> {
        let run = dice.below(RUNS.len());
        let (place, untouched) = (Place::new()?, Place::new()?);
        let folder = place.copy(&self.whole(run), "kept")?;
        let expected = untouched.copy(&self.whole(run), "kept")?;
        let damage = self.damage(dice, &place, &folder, &self.whole((run + 1) % RUNS.len()))?;
        let answer = self.bilevel.say(&place, &["report", "kept"])?;
        self.bilevel.prepare(&untouched, &["report", "kept"])?;
        let mut tried = Tried::new("report");
        let mut faults = answer.faults(&[0, 2]);
        if answer.done() {
            let page = |folder: &Path| std::fs::read_to_string(folder.join("report.html")).unwrap_or_default();
            let (found, undamaged) = (page(&folder), page(&expected));
            if !found.starts_with("<!doctype html>") || !found.trim_end().ends_with("</html>") {
                faults.push("says success but leaves no whole page".into());
            } else if found != undamaged
                && !found.contains("the curves have a gap")
                && !found.contains("provenance.json is damaged")
                && !damage.iter().any(|(file, way)| shows(file, *way))
            {
                faults.push("draws another page than of the undamaged run and does not say so".into());
            }
        }
        tried.blame(&described(&answer, &damage), faults);
        Ok(tried)
    }

    fn compare(&self, dice: &mut Dice) -> Result<Tried> {
        let place = Place::new()?;
        let folder = place.copy(&self.stock.seen().join("kept"), "kept")?;
        let other = self.whole(1);
        let part = folder.join(dice.pick(&["", "rmd-s0", "ift-cg-s0"]));
        let damage = self.damage(dice, &place, &part, &other)?;
        let answer = self.bilevel.say(&place, &COMPARE)?;
        let mut tried = Tried::new("compare");
        let mut faults = answer.faults(&[0, 2]);
        // A digit that was flipped in a result that was kept cannot be told from another.
        let flipped = damage.iter().any(|(_, way)| *way == Way::FlipBits);
        if answer.done() && !flipped {
            faults.extend(finished::differences_in(&folder, &self.stock.seen().join("kept"), "rows.jsonl"));
        }
        tried.blame(&described(&answer, &damage), faults);
        Ok(tried)
    }
}

impl Attack for Files {
    fn attack(&self, seed: u64) -> Result<Tried> {
        let mut dice = Dice::new(seed);
        match dice.below(8) {
            0..=4 => self.resume(&mut dice),
            5 => self.report(&mut dice),
            _ => self.compare(&mut dice),
        }
    }
}

/// Turns a finished short run into the state of a longer run after a kill: no result, and metrics beyond the
/// checkpoint.
fn as_if_stopped(folder: &Path) -> Result<()> {
    for name in ["result.json", "lambda.safetensors", "report.html"] {
        let path = folder.join(name);
        std::fs::remove_file(&path).map_err(AttackError::file(&path))?;
    }
    let plots = folder.join("plots");
    std::fs::remove_dir_all(&plots).map_err(AttackError::file(&plots))?;
    // The checkpoint at the end is one that a killed run would not have.
    let last = folder.join(format!("checkpoint/checkpoint-{PART:0>10}.bilevel"));
    std::fs::remove_file(&last).map_err(AttackError::file(&last))?;
    let config = folder.join("config.toml");
    let text = std::fs::read_to_string(&config).map_err(AttackError::file(&config))?;
    let text = text.replace(&format!("iterations = {PART}"), &format!("iterations = {WHOLE}"));
    std::fs::write(&config, text).map_err(AttackError::file(&config))
}

fn is_picture(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "png" || end == "svg")
}

fn named_as(file: &Path, name: &str) -> bool {
    file.file_name().is_some_and(|found| found == name)
}

/// Returns true for damage that a page has to show: a digit that is another, or a part of the run that is not there.
fn shows(file: &Path, way: Way) -> bool {
    let read =
        ["config.toml", "metrics.jsonl", "result.json", "lambda.safetensors"].iter().any(|name| named_as(file, name));
    // Another run's provenance is whole, and shown as it is.
    let provenance = named_as(file, "provenance.json") && matches!(way, Way::FlipBits | Way::Remove | Way::Swap);
    provenance || read && matches!(way, Way::FlipBits | Way::Remove | Way::DanglingLink)
}

fn described(answer: &Answer, damage: &[(PathBuf, Way)]) -> String {
    let parts: Vec<String> = damage.iter().map(|(file, way)| format!("{} {}", file.display(), way.words())).collect();
    let said = answer.complaint().unwrap_or_else(|| "no complaint".into());
    format!("{} on a run with {} ({})", answer.words(), parts.join(" and "), said.escape_debug())
}
