//! Random command lines, good and bad, on every command.

use super::answer::{Answer, CODES};
use super::command::Bilevel;
use super::keys::Known;
use super::place::Place;
use super::tally::Tried;
use super::{Attack, finished, words};
use crate::error::{AttackError, Result};
use bilevel_graph::conformance::Dice;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The part.
pub struct Commands {
    bilevel: Bilevel,
    known: Known,
    /// Folders and files that command lines can name.
    stock: Place,
}

/// A command line, and the file of its answer, if it names one.
#[derive(Default)]
struct Line {
    words: Vec<OsString>,
    out: Option<OsString>,
    json: bool,
    dry: bool,
    /// Whether anything in it may be wrong on purpose.
    wild: bool,
    /// Whether an inserted word can turn it into another command.
    strange: bool,
}

impl Line {
    fn add(&mut self, word: impl Into<OsString>) {
        self.words.push(word.into());
    }
}

impl Commands {
    /// Reads the names and keys of the command, and makes runs to be resumed and reported.
    pub fn new(bilevel: &Bilevel) -> Result<Self> {
        let stock = Place::new()?;
        let known = Known::ask(bilevel, &stock)?;
        bilevel.prepare(&stock, &["run", "synth1d", "--outer", "4", "--out", "finished", "--quiet"])?;
        let config = bilevel.prepare(&stock, &["run", "quadratics", "--outer", "3", "--dry-run"])?;
        let write = |name: &str, bytes: &[u8]| {
            let path = stock.seen().join(name);
            std::fs::write(&path, bytes).map_err(AttackError::file(&path))
        };
        write("good.toml", config.as_bytes())?;
        write("plain-file", b"somebody's own words\n")?;
        write("empty.toml", b"")?;
        write("noise.toml", &(0..4000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>())?;
        write("escape.toml", b"task.name = \"\x1b[31msynth1d\"\n\"\x1b[2J\" = 1\n")?;
        Ok(Commands { bilevel: bilevel.clone(), known, stock })
    }

    /// A separate place with everything that a line can name.
    fn place(&self, dice: &mut Dice, wild: bool) -> Result<Place> {
        let place = Place::new()?;
        let path = place.seen().join("random.toml");
        std::fs::write(&path, self.known.file(dice, wild)).map_err(AttackError::file(&path))?;
        for name in ["finished", "good.toml", "plain-file", "empty.toml", "noise.toml", "escape.toml"] {
            place.copy(&self.stock.seen().join(name), name)?;
        }
        let seen = place.seen();
        let made = std::os::unix::fs::symlink("nowhere", seen.join("dangling"))
            .and_then(|()| std::os::unix::fs::symlink("loop", seen.join("loop")))
            .and_then(|()| std::fs::create_dir(seen.join("folder.toml")));
        made.map_err(AttackError::file(&seen))?;
        Ok(place)
    }

    fn line(&self, dice: &mut Dice, command: &str) -> Line {
        let mut line = Line { wild: dice.one_in(2), ..Line::default() };
        line.add(command);
        match command {
            "run" | "check" => self.which(dice, &mut line, command == "run"),
            "compare" => self.compare(dice, &mut line),
            "resume" => {
                line.add(self.folder(dice));
                if dice.one_in(3) {
                    line.add("--outer");
                    line.add(if dice.one_in(3) { words::number(dice) } else { words::count(dice) });
                }
                if dice.one_in(4) {
                    line.add("--tensorboard");
                }
            }
            "report" => {
                for _ in 0..1 + dice.below(3) {
                    line.add(self.folder(dice));
                }
                if dice.one_in(3) {
                    line.add("--out");
                    line.add(if dice.one_in(2) { "page.html".into() } else { words::path(dice) });
                }
            }
            "reproduce" => {
                line.add("--quick");
                if !dice.one_in(5) {
                    // Those that take longer than a second are left to their own tests.
                    let slow =
                        ["noisy-synth1d", "evolutionary-search", "finite-temperature", "digits", "digits-equal-cost"];
                    let quick: Vec<&String> =
                        self.known.items.iter().filter(|item| !slow.contains(&item.as_str())).collect();
                    let good = quick.get(dice.below(quick.len())).map_or("all".into(), |item| item.to_string());
                    line.add(if dice.one_in(3) { words::word(dice, &self.known.items) } else { good });
                }
                self.out(dice, &mut line);
            }
            "completions" if !dice.one_in(3) => {
                line.add(dice.pick(&["bash", "zsh", "fish", "elvish", "powershell"]));
            }
            "completions" => line.add(words::word(dice, &["bash".into()])),
            _ => {}
        }
        if ["run", "resume", "compare", "check", "reproduce", "list"].contains(&command) && dice.one_in(3) {
            line.add("--json");
            line.json = true;
        }
        if dice.one_in(4) {
            line.add(dice.pick(&["-q", "--quiet"]));
        }
        // Something that does not belong there.
        if line.wild && dice.one_in(5) {
            let odd = match dice.below(3) {
                0 => words::word(dice, &["--quick".into(), "--outer".into(), "--out".into()]),
                1 => dice.pick(&["--help", "--version", "--json", "--quick", "--seed", "-m", "--", "--set"]).into(),
                _ => words::number(dice),
            };
            let at = 1 + dice.below(line.words.len());
            line.words.insert(at, odd.into());
            line.strange = true;
        }
        line
    }

    /// A task or a file, and changes to it.
    fn which(&self, dice: &mut Dice, line: &mut Line, run: bool) {
        let method = dice.below(self.known.methods.len());
        line.add(self.what(dice, line.wild));
        if !dice.one_in(4) {
            line.add("--method");
            line.add(match line.wild && dice.one_in(8) {
                true => words::word(dice, &self.known.methods),
                false => self.known.methods[method].clone(),
            });
        }
        // Always, so that no run is long.
        line.add("--outer");
        line.add(if line.wild && dice.one_in(8) { words::number(dice) } else { words::count(dice) });
        if dice.one_in(3) {
            line.add("--seed");
            line.add(if line.wild { words::number(dice) } else { words::count(dice) });
        }
        self.settings(dice, line, method);
        if line.wild && dice.one_in(10) {
            line.add("--data");
            line.add(words::path(dice));
        }
        if run {
            self.out(dice, line);
            if dice.one_in(8) {
                line.add("--dry-run");
                line.dry = true;
            }
            if dice.one_in(8) {
                line.add("--tensorboard");
            }
        } else if dice.one_in(4) {
            line.add("--tolerance");
            line.add(words::number(dice));
        }
    }

    fn compare(&self, dice: &mut Dice, line: &mut Line) {
        let method = dice.below(self.known.methods.len());
        line.add(self.what(dice, line.wild));
        line.add("--methods");
        let good = |dice: &mut Dice| self.known.methods[dice.below(self.known.methods.len())].clone();
        line.add(match dice.below(6) {
            0 if line.wild => words::word(dice, &self.known.methods),
            1 if line.wild => format!("{},", good(dice)),
            2 => good(dice),
            _ => format!("{},{}", good(dice), self.known.methods[method]),
        });
        for (flag, most) in [("--outer", 5), ("--seeds", 2)] {
            line.add(flag);
            line.add(if line.wild && dice.one_in(8) {
                words::number(dice)
            } else {
                (1 + dice.below(most)).to_string()
            });
        }
        self.settings(dice, line, method);
        self.out(dice, line);
    }

    fn what(&self, dice: &mut Dice, wild: bool) -> OsString {
        match if wild { dice.below(14) } else { 4 + dice.below(10) } {
            0 => words::word(dice, &self.known.tasks).into(),
            1 => dice
                .pick(&["empty.toml", "noise.toml", "escape.toml", "folder.toml", "missing.toml", "dangling"])
                .into(),
            2 => words::path(dice),
            3 | 4 => "good.toml".into(),
            5 | 6 => "random.toml".into(),
            7 => "finished/config.toml".into(),
            _ => self.known.tasks[dice.below(self.known.tasks.len())].clone().into(),
        }
    }

    fn settings(&self, dice: &mut Dice, line: &mut Line, method: usize) {
        for _ in 0..dice.below(4) {
            line.add("--set");
            line.add(self.known.setting(dice, method, line.wild));
        }
    }

    fn out(&self, dice: &mut Dice, line: &mut Line) {
        if dice.one_in(3) {
            return;
        }
        let path = if line.wild { words::path(dice) } else { "new".into() };
        line.add("--out");
        line.add(&path);
        line.out = Some(path);
    }

    fn folder(&self, dice: &mut Dice) -> OsString {
        match dice.below(5) {
            0 => words::path(dice),
            1 => dice.pick(&[".", "good.toml", "finished/checkpoint", "folder.toml", "dangling", "loop"]).into(),
            _ => "finished".into(),
        }
    }

    /// The files missing after a command that reports success.
    fn broken_promises(&self, command: &str, line: &Line, answer: &Answer, place: &Place) -> Vec<String> {
        let mut faults = vec![];
        let help = answer.out_text().contains("Usage: bilevel") || answer.out_text().starts_with("bilevel ");
        if !answer.done() || line.strange || help {
            return faults;
        }
        let out = answer.out_text();
        let parses = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        let is_json = match command {
            _ if line.dry => true,
            "schema" => parses(&out),
            "reproduce" | "compare" if line.json => out.lines().all(parses),
            _ if line.json => parses(&out),
            _ => true,
        };
        if !is_json {
            faults.push("prints something that is no JSON".into());
        }
        let seen = place.seen();
        let below = |line: &Line, otherwise: &str| -> Option<PathBuf> {
            let path = line.out.as_ref().map_or(Path::new(otherwise), Path::new);
            Some(seen.join(path))
        };
        match command {
            "run" if !line.dry => {
                let newest = || super::place::listed(&seen.join("runs")).ok()?.pop();
                match line.out.is_some().then(|| below(line, "")).flatten().or_else(newest) {
                    Some(folder) => faults.extend(finished::faults(&folder)),
                    None => faults.push("says success but leaves no folder".into()),
                }
            }
            "reproduce" if line.out.is_some() => {
                let rows = below(line, "").map(|folder| folder.join("rows.jsonl"));
                // Without a study it names the studies and writes nothing.
                let listed = out.starts_with("Studies ") || out.starts_with("{\"study\"") && out.contains("\"title\"");
                if !listed && !rows.is_some_and(|path| path.is_file()) {
                    faults.push("says success but has no rows".into());
                }
            }
            "resume" => faults.extend(finished::faults(&seen.join("finished"))),
            _ => {}
        }
        faults
    }
}

/// Every command with how often it is taken.
const COMMANDS: [(&str, usize); 12] = [
    ("run", 30),
    ("check", 12),
    ("compare", 8),
    ("resume", 10),
    ("report", 10),
    ("list", 3),
    ("schema", 2),
    ("completions", 4),
    ("reproduce", 5),
    ("tour", 1),
    ("--help", 1),
    ("", 4),
];

impl Attack for Commands {
    fn attack(&self, seed: u64) -> Result<Tried> {
        let mut dice = Dice::new(seed);
        let mut number = dice.below(COMMANDS.iter().map(|(_, often)| often).sum());
        let mut command = "";
        for (name, often) in COMMANDS {
            command = name;
            if number < often {
                break;
            }
            number -= often;
        }
        let names: Vec<String> = COMMANDS.iter().map(|(name, _)| name.to_string()).collect();
        // A word that may be a command with a slip in it; alone, so that it cannot begin a long one.
        let line = match command {
            "" => Line { words: vec![words::word(&mut dice, &names).into()], strange: true, ..Line::default() },
            command => self.line(&mut dice, command),
        };
        let place = self.place(&mut dice, line.wild)?;
        let answer = self.bilevel.run(&place, &line.words)?;
        let end = match answer.code() {
            Some(0) => "done",
            Some(1) => "failed",
            _ => "refused",
        };
        let name = if command.is_empty() { "no command" } else { command };
        let mut tried = Tried::new(format!("{name}, {end}"));
        // Only a run or a check can fail in a way that is not a refusal.
        let can_fail = ["run", "resume", "compare", "check"].contains(&command);
        let mut faults = answer.faults(if can_fail { &CODES } else { &[0, 2] });
        faults.extend(self.broken_promises(command, &line, &answer, &place));
        let words = std::fs::read(place.seen().join("plain-file"));
        if words.ok().as_deref() != Some(b"somebody's own words\n") {
            faults.push("writes over a file that is not its own".into());
        }
        tried.blame(&answer.words(), faults);
        Ok(tried)
    }
}
