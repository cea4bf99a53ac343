//! `bilevel reproduce`: what it prints, what it writes, and what it answers to a name it does not know.

use crate::common::{Place, Said, golden};

#[test]
fn help_and_the_list_of_studies_are_as_stored() {
    let place = Place::new();
    let help = place.run(&["reproduce", "--help"]).done().out;
    assert!(help.contains("a finding, not a failure"));
    golden("help-reproduce.txt", &help);
    let list = place.run(&["reproduce"]).done().out;
    golden("reproduce-studies.txt", &list);
    let registry = bilevel_cli::everything();
    for study in registry.studies() {
        assert!(list.contains(&format!("  {} ", study.name())), "{list}");
    }
    let json = place.run(&["reproduce", "--json"]).done().out;
    assert_eq!(json.lines().count(), registry.studies().len());
    assert!(json.starts_with(r#"{"study":"toy-polynomial","title":""#), "{json}");
}

#[test]
fn a_study_prints_its_table_and_is_kept_under_runs() {
    let place = Place::new();
    let said = place.run(&["reproduce", "toy-polynomial", "--quick"]).done();
    golden("reproduce-toy-polynomial.txt", said.out.split("\nTook ").next().unwrap());
    assert_eq!(said.error, "");
    assert!(place.path("runs/toy-polynomial/report.html").exists());
    let quiet = place.run(&["reproduce", "toy-polynomial", "--quick", "--quiet"]).done();
    assert_eq!((quiet.out.as_str(), quiet.error.as_str()), ("", ""));
    assert_eq!(place.read("runs/toy-polynomial-2/rows.jsonl"), place.read("runs/toy-polynomial/rows.jsonl"));
}

#[test]
fn json_is_one_row_per_line_and_nothing_else_and_a_folder_holds_the_same_rows() {
    let place = Place::new();
    let said = place.run(&["reproduce", "toy-polynomial", "--quick", "--json", "--out", "kept"]).done();
    golden("reproduce-toy-polynomial.jsonl", &said.out);
    for line in said.out.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
        let all = "study method setting metric paper reference ours spread seeds cost verdict reason";
        assert_eq!(keys, all.split(' ').collect::<Vec<_>>());
    }
    assert_eq!(place.read("kept/rows.jsonl"), said.out);
    let page = place.read("kept/report.html");
    assert!(page.contains("Toy polynomial") && page.contains("Two inner optima at λ = 0.1"), "{}", &page[..2000]);
    assert!(place.read("kept/plots/outer-loss-of-every-inner-optimum.svg").starts_with("<svg"));
    assert!(
        std::fs::read(place.path("kept/plots/two-inner-optima-at-lambda-0-1.png")).unwrap().starts_with(b"\x89PNG")
    );
}

#[test]
fn an_unknown_study_is_answered_with_the_nearest_and_code_2() {
    let place = Place::new();
    place.run(&["reproduce", "synht1d"]).refused("there is no study 'synht1d'; did you mean synth1d?");
    place.run(&["reproduce", "al"]).refused("there is no study 'al'; did you mean all?");
    let far = place.run(&["reproduce", "colour"]);
    assert!(far.error.starts_with("bilevel: there is no study 'colour'; the studies are toy-polynomial, "), "{far:?}");
    assert_eq!(far.code, Some(2));
    // A folder that cannot be made is known before any work is done.
    place.write("file", "");
    let blocked = place.run(&["reproduce", "toy-polynomial", "--out", "file"]);
    assert_eq!((blocked.code, blocked.error.lines().count()), (Some(2), 1), "{blocked:?}");
}

/// Short measurements, runs side by side, and runs in stages; the studies' numbers are held by the tests of `bilevel-reproduction`.
#[cfg(unix)]
#[test]
fn studies_interrupted_and_resumed_with_one_job_and_with_two_have_the_same_rows_byte_for_byte() {
    use std::time::{Duration, Instant};
    for study in ["synth1d", "hyper-cleaning", "digits"] {
        let place = Place::new();
        place.run(&["reproduce", study, "--quick", "--quiet", "--jobs", "2", "--out", "whole"]).done();
        let arguments = |jobs: &'static str| ["reproduce", study, "--quick", "--jobs", jobs, "--out", "parts"];
        let done = || std::fs::read_dir(place.path("parts")).map_or(0, |names| names.count());
        for jobs in ["2", "1"] {
            let before = done();
            // Nobody reads its tables, which are more than a pipe holds.
            let mut run = place.start_into(&arguments(jobs), std::process::Stdio::null());
            let since = Instant::now();
            // Its own files come first, then those of its items.
            while done() <= before.max(3) {
                assert!(run.try_wait().unwrap().is_none(), "{study} ended before it could be stopped");
                assert!(since.elapsed() < Duration::from_secs(300), "{study} does not get on");
                std::thread::sleep(Duration::from_millis(2));
            }
            assert!(
                std::process::Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success()
            );
            let said = Said::new(run.wait_with_output().unwrap());
            assert_eq!(said.code, Some(130), "{said:?}");
            let last = said.error.lines().last().unwrap_or_default();
            let sentence = "to continue, give the same command with --out parts";
            assert!(last.starts_with("bilevel: stopped; ") && last.ends_with(sentence), "{said:?}");
            assert!(!place.path("parts/rows.jsonl").exists());
        }
        place.run(&arguments("2")).done();
        assert!(place.read("whole/rows.jsonl").lines().count() > 10);
        assert_eq!(place.read("parts/rows.jsonl"), place.read("whole/rows.jsonl"), "{study}");
    }
}

#[test]
fn the_items_of_a_study_of_networks_are_runs_that_report_and_resume_understand() {
    let place = Place::new();
    for (study, wanted, item) in [
        ("l1-regularisation", &["warm-up", "digits-hpo-sgld-0.01-1e-6"][..], "digits-hpo-sgld-0.01-1e-6-0"),
        ("learned-loss", &["rmd-fo"][..], "rmd-fo-which-keeps-lambda-where-it-starts-0"),
    ] {
        let only = wanted.iter().flat_map(|part| ["--only", part]);
        let arguments = ["reproduce", study, "--quick", "--quiet", "--out", study];
        place.run(&arguments.into_iter().chain(only).collect::<Vec<_>>()).done();
        let folder = format!("{study}/{item}");
        let lines = place.read(&format!("{folder}/metrics.jsonl")).lines().count();
        assert!(lines > 10, "{study}: {lines} lines of metrics");
        for file in ["config.toml", "result.json", "lambda.safetensors", "checkpoint"] {
            assert!(place.path(&format!("{folder}/{file}")).exists(), "{study} has no {file}");
        }
        place.run(&["report", &folder]).done();
        assert!(place.read(&format!("{folder}/report.html")).contains("<svg"), "{study}");
        let more = (lines + 4).to_string();
        place.run(&["resume", &folder, "--iterations", &more, "--quiet"]).done();
        let longer = place.read(&format!("{folder}/metrics.jsonl"));
        assert_eq!(longer.lines().count(), lines + 4, "{study}");
    }
}
