//! Counts of cases and failures, and the commands that repeat failures.

use super::Part;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The answer to one case of an attack.
#[derive(Clone, Debug, Default)]
pub struct Tried {
    /// The attacked part, in a word or two.
    pub what: String,
    /// Everything that went wrong.
    pub failures: Vec<String>,
}

impl Tried {
    /// An attack on this part, without failures yet.
    pub fn new(what: impl Into<String>) -> Self {
        Tried { what: what.into(), failures: vec![] }
    }

    /// Adds the faults of an answer.
    pub fn blame(&mut self, whom: &str, faults: impl IntoIterator<Item = String>) {
        self.failures.extend(faults.into_iter().map(|fault| format!("{whom} {fault}")));
    }
}

/// Counts of tries and failures.
#[derive(Debug, Default)]
pub struct Tally {
    counts: BTreeMap<(Part, String), (u64, u64)>,
    /// The command under attack, if it was named.
    command: Option<PathBuf>,
}

impl Tally {
    /// Nothing tried yet, on the command that was named.
    pub fn new(command: Option<PathBuf>) -> Self {
        Tally { counts: BTreeMap::new(), command }
    }

    /// Counts a case. Returns a line for each failure, and one with the command that repeats it.
    pub fn count(&mut self, part: Part, seed: u64, tried: &Tried) -> Vec<String> {
        let (cases, failed) = self.counts.entry((part, tried.what.clone())).or_default();
        *cases += 1;
        if tried.failures.is_empty() {
            return vec![];
        }
        *failed += 1;
        let failure = |failure: &String| format!("FAILED  {} (seed {seed}): {failure}", tried.what);
        let mut lines: Vec<String> = tried.failures.iter().map(failure).collect();
        let command = self.command.as_ref().map_or(String::new(), |path| format!(" --command {}", path.display()));
        lines.push(format!(
            "        again: cargo run --release -p bilevel-attack -- --only {} --seed {seed} --cases 1{command}",
            part.name()
        ));
        lines
    }

    /// How many cases failed.
    pub fn failed(&self) -> u64 {
        self.counts.values().map(|(_, failed)| failed).sum()
    }

    /// All counts, a row for each thing that was attacked.
    pub fn table(&self) -> String {
        let mut text = format!("{:<10}{:<34}{:>8}{:>10}\n", "part", "attacked", "tried", "failures");
        for ((part, what), (cases, failed)) in &self.counts {
            text += &format!("{:<10}{what:<34}{cases:>8}{failed:>10}\n", part.name());
        }
        let cases: u64 = self.counts.values().map(|(cases, _)| cases).sum();
        text + &format!("{:<10}{:<34}{cases:>8}{:>10}", "all", "", self.failed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_what_was_tried_and_what_failed() {
        let mut tally = Tally::default();
        assert!(tally.count(Part::Files, 1, &Tried::new("resume")).is_empty());
        let bad = Tried { what: "resume".into(), failures: vec!["it lies".into(), "it steals".into()] };
        let lines = tally.count(Part::Files, 2, &bad);
        assert_eq!(lines[..2], ["FAILED  resume (seed 2): it lies", "FAILED  resume (seed 2): it steals"]);
        assert!(lines[2].ends_with(" -- --only files --seed 2 --cases 1"), "{lines:?}");
        tally.count(Part::Graphs, 3, &Tried::new("derivatives"));
        assert_eq!(tally.failed(), 1);
        let table = tally.table();
        let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["files", "resume", "2", "1"]);
        assert_eq!(rows[1], ["graphs", "derivatives", "1", "0"]);
        assert_eq!(rows[2], ["all", "3", "1"]);
    }
}
