//! What the command does alone: its tables, its words and its files.

mod common;

use common::{Place, golden};
use serde_json::Value;

#[test]
fn the_study_prints_its_tables_and_writes_its_files_the_same_every_time() {
    let place = Place::new();
    let first = place.run(&["digits", "--quick"]).done();
    // It names itself as it was called, and cargo calls the tests.
    let said = first.out.replace("cargo run --release --", "bilevel");
    let masked: String = said.lines().map(|line| mask(line) + "\n").collect();
    golden("digits.txt", &masked);
    assert!(first.error.starts_with("Learning a regularisation weight for each of the 640 parameters"), "{first:?}");
    assert!(first.error.contains("split 1: test loss no regularisation "), "{first:?}");

    let said = place.run(&["digits", "--quick", "--json", "--quiet"]).done();
    assert_eq!((said.out.as_str(), said.error.as_str()), (place.read("runs/digits/result.json").as_str(), ""));
    let lambda = |folder: &str| std::fs::read(place.path(&format!("runs/{folder}/lambda.safetensors"))).unwrap();
    assert_eq!(lambda("digits"), lambda("digits-2"));

    let json: Value = serde_json::from_str(&said.out).unwrap();
    let trials = json["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2 * 6);
    assert!(trials.iter().all(|trial| trial["scores"]["test"]["accuracy"].as_f64().unwrap() > 0.7), "{json:#}");
    let page = place.read("runs/digits/report.html");
    for part in
        ["What came out", "Validation loss over cost", "langevin-adjoint: change of λ", "Settings", "To try next"]
    {
        assert!(page.contains(part), "{part}");
    }
}

/// A line without times, and with every digit as 0: another machine may round otherwise.
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
        .run(&["digits", "--quick", "--out", "mine"])
        .refused("mine is there already and is not empty; choose another folder with --out");
    assert_eq!(place.read("mine"), "a file");
}

#[test]
fn a_folder_that_cannot_be_made_is_refused_before_the_work() {
    let place = Place::new();
    place.write("mine", "a file");
    let said = place.run(&["digits", "--quick", "--out", "mine/below"]);
    assert_eq!((said.code, said.out.as_str(), said.error.lines().count()), (Some(2), "", 1), "{said:?}");
    assert!(said.error.starts_with("bilevel: cannot make mine/below: "), "{said:?}");
}
