//! Every measured number of README, guide and paper is that of a stored result, and stored results are what the studies give.
//!
//! `docs/results/README.md` says what is stored, and which commands write it.

use crate::common::Place;
use serde_json::Value;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Studies that take seconds, so that every run of the tests computes them again.
const FAST: [&str; 5] = ["chain-length", "digits", "synth1d", "toy-polynomial", "wrong-labels"];

/// Studies of files, in the folder that BILEVEL_DATA names.
const READS_DATA: [&str; 1] = ["generalisation"];

/// A number computed today may differ from the stored one by this much of its size, because processors round differently …
const RELATIVE: f64 = 1e-4;
/// … or by this much of its spread over seeds, because chains with other roundings draw apart …
const OF_SPREAD: f64 = 0.1;
/// … or by this much: an error of the size of rounding is known no better.
const OF_ROUNDING: f64 = 1e-12;

/// Held while a document is read and written, by tests that run side by side.
static DOCUMENTS: Mutex<()> = Mutex::new(());

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn results() -> PathBuf {
    root().join("docs/results")
}

fn updating() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The peaks of memory as rows.
fn peaks(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let (method, peak) = line.split_once('\t')?;
        let peak: f64 = peak.parse().ok()?;
        Some(serde_json::json!({ "method": method, "setting": "", "metric": "peak", "ours": peak }))
    };
    text.lines().filter_map(row).collect()
}

/// The rows of a study; those of the truth suite and the peaks of memory are where `bilevel advise` reads them.
fn stored(study: &str) -> Vec<Value> {
    let advice = root().join("crates/run/data");
    let path = match study {
        "peak" => return peaks(&advice.join("peak.tsv")),
        "truth" => advice.join("truth.jsonl"),
        _ => results().join(format!("{study}.jsonl")),
    };
    rows(&std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The studies whose rows are stored.
fn studies() -> Vec<String> {
    let names = std::fs::read_dir(results()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut studies: Vec<String> = names.filter_map(|name| name.strip_suffix(".jsonl").map(String::from)).collect();
    studies.sort();
    studies
}

// ---- Passages ----

/// A part of a document, with a slot for each number.
#[derive(Debug)]
struct Passage {
    file: String,
    study: String,
    /// What stands before, between and after the numbers.
    literals: Vec<String>,
    slots: Vec<String>,
}

/// The passages of `passages.txt`: a line `@ FILE STUDY`, and then text with slots `{method; setting; metric; column; decimals}`.
/// A setting `*` is any, for those that the study itself chooses.
fn passages() -> Vec<Passage> {
    let text = std::fs::read_to_string(results().join("passages.txt")).unwrap();
    let mut all = vec![];
    for part in text.split("\n@ ").skip(1) {
        let (head, body) = part.split_once('\n').unwrap();
        let (file, study) = head.split_once(' ').unwrap();
        let (mut literals, mut slots) = (vec![], vec![]);
        let mut rest = body.trim_end_matches('\n');
        while let Some((before, after)) = rest.split_once('{') {
            let (slot, after) = after.split_once('}').unwrap();
            literals.push(before.to_string());
            slots.push(slot.to_string());
            rest = after;
        }
        literals.push(rest.to_string());
        all.push(Passage { file: file.into(), study: study.into(), literals, slots });
    }
    all
}

/// The number of a slot as the document writes it.
fn filled(slot: &str, rows: &[Value]) -> String {
    let parts: Vec<&str> = slot.split(';').map(str::trim).collect();
    let [method, setting, metric, column, decimals] = parts[..] else { panic!("a slot has five parts: {slot}") };
    let of_row = |row: &&Value| {
        row["method"] == method && (setting == "*" || row["setting"] == setting) && row["metric"] == metric
    };
    let row = rows.iter().find(of_row).unwrap_or_else(|| panic!("there is no row for {slot}"));
    let decimals: usize = decimals.parse().unwrap_or_else(|_| panic!("no number of decimals in {slot}"));
    let number = row[column].as_f64().unwrap_or_else(|| panic!("there is no number for {slot}: {row}"));
    format!("{number:.decimals$}").replace('-', "−")
}

impl Passage {
    fn rendered(&self, rows: &[Value]) -> String {
        let numbers = self.slots.iter().map(|slot| filled(slot, rows)).chain([String::new()]);
        self.literals.iter().zip(numbers).map(|(literal, number)| literal.clone() + &number).collect()
    }

    /// Where it stands in a document, whatever its numbers are there.
    fn place(&self, document: &str) -> Option<Range<usize>> {
        let is_part = |c: char| c.is_ascii_digit() || "−-+.".contains(c);
        document.match_indices(&self.literals[0]).find_map(|(start, first)| {
            let mut at = start + first.len();
            for literal in &self.literals[1..] {
                let rest = &document[at..];
                let number = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                // A point that ends a sentence belongs to what follows.
                let number = (0..=number)
                    .rev()
                    .filter(|end| rest.is_char_boundary(*end))
                    .find(|end| rest[*end..].starts_with(literal.as_str()))?;
                at += number + literal.len();
            }
            Some(start..at)
        })
    }
}

#[test]
fn every_number_of_a_passage_is_that_of_a_stored_result() {
    let _held = DOCUMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut wrong = vec![];
    for passage in passages() {
        let path = root().join(&passage.file);
        let document = std::fs::read_to_string(&path).unwrap();
        let place = passage.place(&document);
        let place = place.unwrap_or_else(|| panic!("{} has no passage like {:?}", passage.file, passage.literals));
        let rendered = passage.rendered(&stored(&passage.study));
        if document[place.clone()] == rendered {
            continue;
        }
        if updating() {
            std::fs::write(&path, format!("{}{rendered}{}", &document[..place.start], &document[place.end..])).unwrap();
        } else {
            wrong.push(format!("{}:\n{}\nshould be\n{rendered}", passage.file, &document[place]));
        }
    }
    assert!(wrong.is_empty(), "run the test with UPDATE_GOLDEN=1:\n\n{}", wrong.join("\n\n"));
}

// ---- What the command prints ----

/// The excerpt of the bare command's answer that the README shows: the first table and the sentences.
fn excerpt(answer: &str) -> String {
    let table: String = answer.lines().take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
    let said = answer.lines().skip_while(|line| !line.starts_with("If mistakes are systematic"));
    let said: String = said.take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
    format!("{table}…\n{said}")
}

#[test]
fn the_readme_shows_what_the_bare_command_prints() {
    let _held = DOCUMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once("```text\n").unwrap();
    let (shown, after) = rest.split_once("```").unwrap();
    let printed = std::fs::read_to_string(results().join("wrong-labels.txt")).unwrap();
    if updating() {
        std::fs::write(&path, format!("{before}```text\n{printed}```{after}")).unwrap();
        return;
    }
    assert_eq!(shown, printed, "run the test with UPDATE_GOLDEN=1");
}

#[test]
fn documents_show_what_programs_printed() {
    let [paper, existence] = ["docs/paper/README.md", "docs/guide/src/existence.md"];
    for (file, output) in
        [(paper, "whole-trainings.txt"), (paper, "gallery/evidence.txt"), (existence, "whole-trainings.txt")]
    {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let printed = std::fs::read_to_string(results().join(output)).unwrap();
        assert!(!printed.is_empty() && text.contains(&printed), "docs/results/{output} is not in {file}");
    }
}

// ---- Stored results ----

/// Computes a study and compares it with what is stored; with UPDATE_GOLDEN in the environment, stores it.
fn computes_as_stored(study: &str) {
    let place = Place::new();
    let mut words = vec!["reproduce", study, "--out", "study"];
    let data = std::env::var("BILEVEL_DATA");
    if READS_DATA.contains(&study) {
        words.extend(["--data", data.as_deref().expect("BILEVEL_DATA names the folder of the data files")]);
    }
    let answer = place.run(&words).done().out;
    let today = place.read("study/rows.jsonl");
    if updating() {
        std::fs::write(results().join(format!("{study}.jsonl")), &today).unwrap();
        if study == "wrong-labels" {
            std::fs::write(results().join("wrong-labels.txt"), excerpt(&answer)).unwrap();
        }
        return;
    }
    let (before, today) = (stored(study), rows(&today));
    assert_eq!(before.len(), today.len(), "{study} has another number of rows");
    for (before, today) in before.iter().zip(&today) {
        for key in ["method", "setting", "metric", "seeds"] {
            assert_eq!(before[key], today[key], "{before} was stored and {today} is computed");
        }
        let near = match (before["ours"].as_f64(), today["ours"].as_f64()) {
            (Some(a), Some(b)) => {
                let spread = before["spread"].as_f64().unwrap_or(0.0);
                (a - b).abs() <= (RELATIVE * a.abs()).max(OF_SPREAD * spread).max(OF_ROUNDING)
            }
            (a, b) => a == b,
        };
        assert!(near, "{before} was stored and {today} is computed; run the test with UPDATE_GOLDEN=1 if it should be");
    }
}

#[test]
fn stored_results_of_fast_studies_are_what_they_give() {
    FAST.iter().for_each(|study| computes_as_stored(study));
}

#[test]
#[ignore = "minutes: the full studies behind the numbers of the documents"]
fn stored_results_of_all_other_studies_are_what_they_give() {
    let others = studies().into_iter().filter(|study| !FAST.contains(&study.as_str()));
    others.for_each(|study| computes_as_stored(&study));
}

/// The tally of the study `generalisation`, way by way, as `bilevel advise` reads it.
fn tally(rows: &[Value]) -> String {
    let mut text = "way\tbetter\tworse\tcases\n".to_string();
    for row in rows.iter().filter(|row| row["metric"] == "cases better than one tuned by folds") {
        let worse = |other: &&Value| {
            other["method"] == row["method"] && other["metric"] == "cases worse than one tuned by folds"
        };
        let cases = |other: &&Value| other["method"] == row["method"] && other["metric"] == "test loss";
        let worse = rows.iter().find(worse).unwrap()["ours"].as_f64().unwrap();
        let cases = rows.iter().filter(cases).count();
        text += &format!("{}\t{}\t{worse}\t{cases}\n", row["method"].as_str().unwrap(), row["ours"].as_f64().unwrap());
    }
    text
}

#[test]
fn the_tally_that_advice_is_given_by_is_that_of_the_stored_study() {
    let path = root().join("crates/run/data/generalisation.tsv");
    let found = tally(&stored("generalisation"));
    if updating() {
        std::fs::write(path, found).unwrap();
        return;
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), found, "run the test with UPDATE_GOLDEN=1");
}

// ---- Numbers that no passage holds ----

/// The parts of a document, each with its heading; programs, commands and their outputs are left out.
fn sections(text: &str) -> Vec<(String, Vec<(usize, &str)>)> {
    let mut all = vec![(String::new(), vec![])];
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced && line.starts_with('#') {
            all.push((line.trim_start_matches('#').trim().to_string(), vec![]));
        } else if !fenced {
            all.last_mut().unwrap().1.push((number + 1, line));
        }
    }
    all
}

/// Whether a line has a number with one decimal point: a version or an address has more.
fn has_decimal(line: &str) -> bool {
    line.split(|c: char| !c.is_ascii_digit() && c != '.').any(|word| {
        let mut parts = word.trim_matches('.').split('.');
        parts.by_ref().take(2).filter(|part| !part.is_empty()).count() == 2 && parts.next().is_none()
    })
}

#[test]
fn a_number_has_one_decimal_point_and_an_address_or_a_version_has_more() {
    assert!(has_decimal("a loss of 0.107.") && has_decimal("(3.2×)") && has_decimal("at 127.0.0.1 in 0.5 s"));
    assert!(
        !has_decimal("listens on 127.0.0.1 alone.")
            && !has_decimal("version 0.2.0, 17 of 20")
            && !has_decimal("1..2, a.b")
    );
}

/// Sections with numbers that no passage holds: file, heading, and the command that prints them, or "settings" if nothing was measured.
fn unchecked() -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(results().join("unchecked.tsv")).unwrap();
    let line = |line: &str| {
        let parts: Vec<&str> = line.split('\t').collect();
        let [file, heading, how] = parts[..] else { panic!("three parts in: {line}") };
        (file.to_string(), heading.to_string(), how.to_string())
    };
    text.lines().skip(1).map(line).collect()
}

#[test]
fn every_section_with_numbers_is_checked_or_listed_as_unchecked_with_its_command() {
    let _held = DOCUMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = unchecked();
    let mut files = vec!["README.md".to_string(), "docs/paper/README.md".to_string()];
    let guide = std::fs::read_dir(root().join("docs/guide/src")).unwrap();
    let names = guide.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    files.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/guide/src/{name}")));
    let (passages, mut used) = (passages(), vec![]);
    for file in files {
        let text = std::fs::read_to_string(root().join(&file)).unwrap();
        let covered: Vec<Range<usize>> =
            passages.iter().filter(|passage| passage.file == file).filter_map(|passage| passage.place(&text)).collect();
        for (heading, lines) in sections(&text) {
            let free = lines.iter().find(|(number, line)| {
                let start: usize = text.lines().take(number - 1).map(|line| line.len() + 1).sum();
                let inside = covered.iter().any(|range| range.start < start + line.len() && start < range.end);
                has_decimal(line) && !inside
            });
            let Some((number, line)) = free else { continue };
            let known = listed.iter().position(|(in_file, under, _)| *in_file == file && *under == heading);
            let known = known.unwrap_or_else(|| {
                panic!("{file}:{number}: no passage and no line of unchecked.tsv is about this number: {line}")
            });
            used.push(known);
        }
    }
    for (number, (file, heading, _)) in listed.iter().enumerate() {
        assert!(used.contains(&number), "unchecked.tsv lists {file}, {heading}, which needs no entry any more");
    }
}

#[test]
fn every_command_that_prints_unchecked_numbers_is_named() {
    for (file, heading, how) in unchecked() {
        let command = ["bilevel ", "bilevel-bench ", "cargo run ", "checked by crates/"]
            .iter()
            .any(|start| how.starts_with(start));
        assert!(command || how == "settings", "{file}, {heading}: {how}");
    }
}

#[test]
fn a_passage_is_found_whatever_its_numbers_are_and_filled_with_those_of_its_rows() {
    let rows = rows(r#"{"method":"RMD","setting":"","metric":"λ","ours":-0.73604,"spread":0.00123}"#);
    let literals = vec!["It is ".to_string(), " (sd ".into(), "). The".into()];
    let slots = vec!["RMD; ; λ; ours; 3".to_string(), "RMD;;λ;spread;1".into()];
    let passage = Passage { file: String::new(), study: String::new(), literals, slots };
    assert_eq!(passage.rendered(&rows), "It is −0.736 (sd 0.0). The");
    let document = "Before. It is 12 (sd −3.5). The end.";
    assert_eq!(&document[passage.place(document).unwrap()], "It is 12 (sd −3.5). The");
    assert_eq!(passage.place("It is 12 (se 3). The end."), None);
}
