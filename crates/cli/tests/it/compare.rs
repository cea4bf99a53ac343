//! Comparing methods: what is printed and kept, what is refused, and going on after a kill.

use crate::common::{Place, golden};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A table with its times masked: the last number of two decimals in each line.
fn without_times(table: &str) -> String {
    let is_time = |word: &&str| {
        word.parse::<f64>().is_ok() && word.split_once('.').is_some_and(|(_, decimals)| decimals.len() == 2)
    };
    let mask = |line: &str| match line.split_whitespace().rev().find(is_time) {
        Some(time) => {
            let (before, after) = line.rsplit_once(time).unwrap();
            format!("{before}{}{after}\n", "_".repeat(time.len()))
        }
        None => format!("{line}\n"),
    };
    table.lines().map(mask).collect()
}

fn rows(place: &Place, folder: &str) -> Vec<Value> {
    let text = place.read(&format!("{folder}/rows.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_table_has_a_row_for_every_method_also_where_it_fails() {
    let place = Place::new();
    let methods = "rmd,ift-cg,imaml";
    let arguments = ["compare", "synth1d", "--methods", methods, "--seeds", "2", "--outer", "20", "--out", "kept"];
    let said = place.run(&arguments).done();
    golden("compare.txt", &without_times(said.out.split("\nTook ").next().unwrap()));
    let mut lines: Vec<&str> = said.error.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 6, "{said:?}");
    assert!(lines[0].starts_with("ift-cg-s0: outer loss ") && lines[0].ends_with(" after 20 iterations"), "{said:?}");
    assert_eq!(lines[2], "imaml-s0: does not apply");

    // All numbers, no times.
    let rows = rows(&place, "kept");
    assert_eq!((rows[0]["method"].as_str(), rows[0]["metric"].as_str()), (Some("rmd"), Some("outer loss")));
    assert!(rows[0]["seeds"] == 2 && rows[0]["spread"].is_f64() && rows[0]["cost"].is_f64(), "{rows:?}");
    let last = rows.last().unwrap();
    assert!(last["reason"].as_str().unwrap().starts_with("imaml does not apply: "), "{last}");
    assert!(!place.read("kept/rows.jsonl").contains("seconds"));
    let page = place.read("kept/report.html");
    for part in ["Outer loss over iterations", "Outer loss over cost", "imaml does not apply", "Settings"] {
        assert!(page.contains(part), "{part}");
    }

    // Every run is one that can be resumed, and one that is done is not done again.
    place.run(&["resume", "kept/rmd-s1", "--quiet"]).done();
    let before = place.read("kept/rows.jsonl");
    let again = place.run(&[&arguments[..], &["--json"]].concat()).done();
    assert_eq!((again.out.as_str(), place.read("kept/rows.jsonl").as_str()), (before.as_str(), before.as_str()));
    assert_eq!(again.error.matches(": already done").count(), 4, "{again:?}");
    // More seeds go into the same folder.
    let more = ["compare", "synth1d", "--methods", "rmd", "--seeds", "3", "--outer", "20", "--out", "kept"];
    let said = place.run(&more).done();
    assert_eq!(said.error.matches(": already done").count(), 2, "{said:?}");
    // A method with other settings would not be comparable.
    let other = ["compare", "synth1d", "--methods", "rmd", "--seeds", "1", "--outer", "21", "--out", "kept"];
    place.run(&other).refused(
        "kept/rmd-s0 holds a run with other settings (outer.iterations is 20 there and 21 here); choose another folder with \
         --out",
    );
}

#[test]
fn a_method_that_diverges_has_a_row_that_says_so() {
    let place = Place::new();
    let set = ["--set", "inner.step=3", "--set", "outer.rate=100"];
    let arguments = ["compare", "synth1d", "--methods", "rmd", "--seeds", "3", "--outer", "40", "--out", "a"];
    let said = place.run(&[&arguments[..], &set].concat());
    // Without any result there is nothing to compare.
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.error.ends_with("bilevel: no run has a result to compare; see the report for the reasons\n"),
        "{said:?}"
    );
    // The diagnosis stands there once, not once per run.
    assert_eq!(
        (said.out.matches("diverged at iteration").count(), said.out.matches("so did rmd with seeds 1 and 2").count()),
        (1, 1)
    );
    assert!(said.error.contains("rmd-s0: diverged at iteration "), "{said:?}");
    assert!(!said.error.contains("learning rate") && !said.error.contains("inner step"), "{said:?}");
    let rows = rows(&place, "a");
    assert_eq!((&rows[0]["ours"], &rows[0]["reason"]), (&Value::Null, &"every run diverged".into()));
    let page = place.read("a/report.html");
    assert!(page.contains("rmd with seed 0 diverged at ") && !page.contains("<figure"), "{page}");
}

#[test]
fn what_cannot_be_compared_is_refused_in_one_sentence() {
    let place = Place::new();
    let refused = |arguments: &[&str], sentence: &str| {
        place.run(&[&["compare", "synth1d", "--outer", "5"], arguments].concat()).refused(sentence);
    };
    refused(&["--methods", "rmd,amigo-gc"], "there is no method 'amigo-gc'; did you mean amigo-cg?");
    refused(&["--methods", "rmd,rmd"], "--methods names rmd twice");
    refused(&["--seeds", "0"], "invalid value '0' for '--seeds <N>': 0 is not in 1..=1000; see 'bilevel --help'");
    refused(&["--set", "seed=3"], "--set seed=3: a comparison takes seed from --seeds");
    refused(&["--set", "method.name=rmd"], "--set method.name=rmd: a comparison takes method.name from --methods");
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);

    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/notes.txt", "mine");
    let sentence = "mine holds something other than a study; choose another folder with --out";
    refused(&["--out", "mine"], sentence);

    let kept = ["--methods", "rmd", "--seeds", "1", "--out", "kept"];
    place.run(&[&["compare", "synth1d", "--outer", "5", "--quiet"], &kept[..]].concat()).done();
    place.run(&[&["compare", "synth1d", "--outer", "6"], &kept[..]].concat()).refused(
        "kept/rmd-s0 holds a run with other settings (outer.iterations is 5 there and 6 here); choose another folder with \
         --out",
    );
}

/// Runs of about half a second each, with noise in them, saved often.
const LONG: [&str; 15] = [
    "compare",
    "synth1d",
    "--methods",
    "hpo-sgld,langevin-adjoint",
    "--seeds",
    "2",
    "--outer",
    "4000",
    "--set",
    "checkpoint.every=100",
    "--set",
    "metrics.every=50",
    "--set",
    "task.noise=0.3",
    "--out",
];

#[test]
fn a_comparison_has_one_precision() {
    let place = Place::new();
    let compare = |precision| {
        let arguments = ["compare", "digits-l2", "--methods", "rmd", "--seeds", "1", "--outer", "2", "--out", "kept"];
        place.run(&[&arguments[..], &["--precision", precision, "--quiet"]].concat())
    };
    compare("tf32").done();
    assert!(place.read("kept/rmd-s0/config.toml").contains("precision = \"tf32\""));
    compare("full").refused(
        "kept/rmd-s0 holds a run with other settings (precision is \"tf32\" there and \"full\" here); choose another \
         folder with --out",
    );
}

fn wait_for_metrics(place: &Place, run: &mut std::process::Child) {
    let since = Instant::now();
    while std::fs::metadata(place.path("b/hpo-sgld-s1/metrics.jsonl")).map_or(0, |m| m.len()) < 100_000 {
        assert!(run.try_wait().unwrap().is_none(), "the comparison ended before it could be stopped");
        assert!(since.elapsed() < Duration::from_secs(60), "the comparison does not get on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_comparison_that_was_killed_goes_on_to_the_same_numbers() {
    let place = Place::new();
    place.run(&[&LONG[..], &["a", "--quiet"]].concat()).done();
    let mut run = place.start(&[&LONG[..], &["b", "--quiet"]].concat());
    wait_for_metrics(&place, &mut run);
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(!place.path("b/rows.jsonl").exists());
    place.run(&[&LONG[..], &["b", "--quiet"]].concat()).done();
    assert_eq!(place.read("a/rows.jsonl"), place.read("b/rows.jsonl"));
}

#[cfg(unix)]
#[test]
fn a_comparison_that_is_interrupted_says_how_to_go_on() {
    let place = Place::new();
    let mut run = place.start(&[&LONG[..], &["b", "--quiet"]].concat());
    wait_for_metrics(&place, &mut run);
    assert!(std::process::Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let said = crate::common::Said::new(run.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.error.ends_with(" done; to continue, give the same command with --out b\n"), "{said:?}");
    let said = place.run(&[&LONG[..], &["b", "--json", "--quiet"]].concat()).done();
    assert_eq!(said.out, place.read("b/rows.jsonl"));
}

#[test]
fn a_finished_run_that_lost_its_lambda_is_finished_again_to_the_same_rows() {
    let place = Place::new();
    let line =
        ["compare", "synth1d", "--methods", "rmd,ift-cg", "--seeds", "1", "--outer", "6", "--out", "kept", "--quiet"];
    place.run(&line).done();
    let rows = std::fs::read(place.path("kept/rows.jsonl")).unwrap();
    for run in ["rmd-s0", "ift-cg-s0"] {
        std::fs::remove_file(place.path(&format!("kept/{run}/lambda.safetensors"))).unwrap();
    }
    place.run(&line).done();
    assert_eq!(std::fs::read(place.path("kept/rows.jsonl")).unwrap(), rows);
    assert!(place.path("kept/rmd-s0/lambda.safetensors").is_file());
}
