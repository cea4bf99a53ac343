//! `bilevel reproduce`: what it prints, what it writes, and what it answers to a name it does not know.

mod common;

use common::{Place, Said, golden};

#[test]
fn help_and_the_list_of_items_are_as_stored() {
    let place = Place::new();
    let help = place.run(&["reproduce", "--help"]).done().out;
    assert!(help.contains("a finding, not a failure"));
    golden("help-reproduce.txt", &help);
    let list = place.run(&["reproduce"]).done().out;
    golden("reproduce-items.txt", &list);
    for experiment in bilevel_tasks::experiments() {
        assert!(list.contains(&format!("  {} ", experiment.name)), "{list}");
    }
    let json = place.run(&["reproduce", "--json"]).done().out;
    assert_eq!(json.lines().count(), bilevel_tasks::experiments().len());
    assert!(json.starts_with(r#"{"item":"toy-polynomial","title":""#), "{json}");
}

#[test]
fn an_item_prints_its_table_and_writes_nothing() {
    let place = Place::new();
    let said = place.run(&["reproduce", "toy-polynomial", "--quick"]).done();
    golden("reproduce-toy-polynomial.txt", &said.out);
    let lines: Vec<&str> = said.error.lines().collect();
    assert_eq!(lines[0], "toy-polynomial: tabulating 21 × 11 inner optima");
    assert!(lines[lines.len() - 1].starts_with("toy-polynomial: took "), "{said:?}");
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
    let quiet = place.run(&["reproduce", "toy-polynomial", "--quick", "--quiet"]).done();
    assert_eq!((quiet.out, quiet.error.as_str()), (said.out, ""));
}

#[test]
fn json_is_a_row_a_line_and_nothing_else_and_a_folder_holds_the_same_rows() {
    let place = Place::new();
    let said = place.run(&["reproduce", "toy-polynomial", "--quick", "--json", "--out", "kept"]).done();
    golden("reproduce-toy-polynomial.jsonl", &said.out);
    for line in said.out.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
        let all = "experiment method setting metric paper expected ours sd seeds verdict why";
        assert_eq!(keys, all.split(' ').collect::<Vec<_>>());
    }
    assert_eq!(place.read("kept/rows.jsonl"), said.out);
    let page = place.read("kept/report.html");
    assert!(page.contains("Toy polynomial") && page.contains("Two inner optima at λ = .1"), "{}", &page[..2000]);
    assert!(place.read("kept/figures/toy-polynomial-1.svg").starts_with("<svg"));
    assert!(std::fs::read(place.path("kept/figures/toy-polynomial-2.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn an_unknown_item_is_answered_with_the_nearest_and_code_2() {
    let place = Place::new();
    place.run(&["reproduce", "synht1d"]).refused("there is no item 'synht1d'; did you mean synth1d?");
    place.run(&["reproduce", "al"]).refused("there is no item 'al'; did you mean all?");
    let far = place.run(&["reproduce", "colour"]);
    assert!(far.error.starts_with("bilevel: there is no item 'colour'; the items are toy-polynomial, "), "{far:?}");
    assert_eq!(far.code, Some(2));
    // A folder that cannot be made is known before any work is done.
    place.write("file", "");
    let blocked = place.run(&["reproduce", "toy-polynomial", "--out", "file"]);
    assert_eq!((blocked.code, blocked.error.lines().count()), (Some(2), 1), "{blocked:?}");
}

#[test]
fn a_folder_of_a_reproduction_may_be_written_again() {
    let place = Place::new();
    for _ in 0..2 {
        place.run(&["reproduce", "toy-polynomial", "--quick", "--quiet", "--out", "kept"]).done();
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_says_how_many_items_are_done_and_where_they_are() {
    use std::time::{Duration, Instant};
    let place = Place::new();
    let run = place.start(&["reproduce", "all", "--out", "kept"]);
    let since = Instant::now();
    while !place.path("kept/report.html").exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "the first item does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(std::process::Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let said = Said::new(run.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    let last = said.error.lines().last().unwrap_or_default();
    assert!(last.starts_with("bilevel: stopped after ") && last.ends_with("; what is done is in kept"), "{said:?}");
    assert!(said.error.lines().all(|line| line.trim_end() == line), "{said:?}");
}
