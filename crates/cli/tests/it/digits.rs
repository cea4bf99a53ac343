//! What the command does alone: its tables, its words and its files.

use crate::common::{Place, golden};

#[test]
fn the_study_prints_its_tables_and_writes_its_files_the_same_every_time() {
    let place = Place::new();
    let first = place.run(&["reproduce", "digits", "--quick"]).done();
    let masked: String = first.out.lines().map(|line| mask(line) + "\n").collect();
    golden("digits.txt", &masked);
    assert!(first.error.contains("hpo-sgld-split-1: outer loss "), "{first:?}");

    // What is finished is not gone on with: the next one is new.
    let said = place.run(&["reproduce", "digits", "--quick", "--json", "--quiet"]).done();
    assert_eq!((said.out.as_str(), said.error.as_str()), (place.read("runs/digits/rows.jsonl").as_str(), ""));
    assert_eq!(said.out, place.read("runs/digits-2/rows.jsonl"));
    let lambda = |folder: &str| {
        std::fs::read(place.path(&format!("runs/{folder}/amigo-cg-split-2/lambda.safetensors"))).unwrap()
    };
    assert_eq!(lambda("digits"), lambda("digits-2"));

    assert_eq!(said.out.lines().count(), 7 * 4);
    let page = place.read("runs/digits/report.html");
    for part in ["Results", "Validation loss over cost", "langevin-adjoint: change of λ", "Settings"] {
        assert!(page.contains(part), "{part}");
    }
    // Every run is one that can be drawn and resumed.
    place.run(&["report", "runs/digits/hpo-sgld-split-1", "--quiet"]).done();
    place.run(&["resume", "runs/digits/hpo-sgld-split-1", "--quiet"]).done();
}

/// A line without times, and with every digit as 0: another machine may round otherwise. What the digits are is held by a test
/// of the study.
fn mask(line: &str) -> String {
    let line = match line.strip_prefix("Took ").and_then(|line| line.split_once(" s. ")) {
        Some((_, rest)) => format!("Took TIME s. {rest}"),
        None => line.to_string(),
    };
    line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

#[test]
fn a_folder_with_something_in_it_is_not_written_to() {
    let place = Place::new();
    place.write("mine", "a file");
    place
        .run(&["reproduce", "digits", "--quick", "--out", "mine"])
        .refused("mine holds something other than a study; choose another folder with --out");
    assert_eq!(place.read("mine"), "a file");
}

#[test]
fn a_folder_that_cannot_be_made_is_refused_before_the_work() {
    let place = Place::new();
    place.write("mine", "a file");
    let said = place.run(&["reproduce", "digits", "--quick", "--out", "mine/below"]);
    assert_eq!((said.code, said.out.as_str(), said.error.lines().count()), (Some(2), "", 1), "{said:?}");
    assert!(said.error.starts_with("bilevel: cannot make mine/below: "), "{said:?}");
}
