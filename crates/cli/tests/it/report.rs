//! Reports of real runs: what is in the folder, what a browser shows, and what is said where there is nothing to draw.

#[path = "../../../report/tests/it/browser/drive.rs"]
pub mod drive;

use crate::common::{Place, golden};
use std::path::Path;

/// A run of a moment.
fn run(place: &Place, experiment: &str, out: &str, more: &[&str]) {
    place.run(&[&["run", experiment, "--outer", "12", "--out", out, "--quiet"], more].concat()).done();
}

fn names(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn its_help_is_as_stored() {
    golden("help-report.txt", &Place::new().run(&["report", "--help"]).done().out);
}

#[test]
fn every_run_has_a_report_and_its_figures_as_files() {
    let place = Place::new();
    // After twelve iterations λ does not win against one tuned value, which the page would warn of.
    run(&place, "digits-l2", "kept", &["--set", "metrics.every=3", "--set", "held_out.compare=false"]);
    let page = place.read("kept/report.html");
    for wanted in [
        "<h1>digits-l2 by langevin-adjoint</h1>",
        "12 outer iterations in ",
        "640 penalties",
        "<caption><span>Results</span></caption>",
        "test accuracy",
        "all iterations are done",
        "The learned λ.log_strength",
        "name = &quot;digits-l2&quot;",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("class=\"warnings\"><h2>"), "a run that went well warns of something");
    let stems = [
        "adjoint-growth",
        "effective-samples",
        "growth-rate",
        "horizon",
        "hypergradient",
        "lambda",
        "losses",
        "losses-by-rows",
        "test-accuracy",
    ];
    let mut wanted: Vec<String> = stems.iter().flat_map(|stem| ["png", "svg"].map(|e| format!("{stem}.{e}"))).collect();
    wanted.sort();
    assert_eq!(names(&place, "kept/plots"), wanted);
    for name in wanted {
        let bytes = std::fs::read(place.path(&format!("kept/plots/{name}"))).unwrap();
        assert!(bytes.starts_with(b"\x89PNG") || bytes.starts_with(b"<svg"), "{name}");
    }
    // Drawn again, it is the same page.
    assert_eq!(place.run(&["report", "kept"]).done().out, "the report is in kept/report.html\n");
    assert_eq!(place.read("kept/report.html"), page);
    assert_eq!(place.run(&["report", "kept", "--out", "one.html", "--quiet"]).done().out, "");
    assert_eq!(place.read("one.html"), page);
}

#[test]
fn a_run_that_diverged_says_why_in_its_report() {
    let place = Place::new();
    // A short chain has a small indirect term.
    let short = ["--set", "inner.burn_in=50", "--set", "inner.samples=50"];
    let run = ["run", "synth1d", "--method", "hpo-sgld", "--set", "outer.rate=50", "--out", "kept", "--quiet"];
    let said = place.run(&[&run[..], &short].concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    let page = place.read("kept/report.html");
    assert!(page.contains("The run diverged at iteration 2: ") && page.contains("smaller outer learning rate"));
    assert!(
        page.contains("Iteration 1: this method&#39;s indirect term is about "),
        "the warning of the last iterations is missing"
    );
}

#[test]
fn a_run_that_diverged_is_shown_as_it_was_at_its_last_good_state() {
    let place = Place::new();
    let rate = ["--set", "outer.rate=50", "--method", "hpo-sgld"];
    let said = place.run(&[&["run", "synth1d", "--out", "kept", "--quiet"], &rate[..]].concat());
    assert_eq!(said.code, Some(1), "{said:?}");
    // Iterations that were suspect before the run was given up have left their lines.
    let metrics = place.read("kept/metrics.jsonl");
    let last: serde_json::Value = serde_json::from_str(metrics.lines().last().unwrap()).unwrap();
    let mut more = metrics.clone();
    for n in 1..3 {
        let mut line = last.clone();
        line["iteration"] = (last["iteration"].as_u64().unwrap() + n).into();
        line["outer_loss"] = 7.5e77.into();
        more += &format!("{line}\n");
    }
    place.write("kept/metrics.jsonl", &more);
    place.run(&["report", "kept"]).done();
    let page = place.read("kept/report.html");
    assert!(page.contains("The run diverged at iteration 2: ") && page.contains("· diverged at iteration 2</p>"));
    assert!(!page.contains("not finished") && !page.contains("<td>7.500×10⁷⁷</td>"), "{page}");
    run(&place, "synth1d", "other", &[]);
    place.run(&["report", "kept", "other", "--out", "all.html"]).done();
    let page = place.read("all.html");
    assert!(page.contains("kept: The run diverged at") || page.contains("hpo-sgld: The run diverged at"));
    assert!(page.contains("<td>diverged</td>") && !page.contains("not finished"));
}

#[test]
fn a_finished_run_without_its_metrics_still_has_a_report() {
    let place = Place::new();
    run(&place, "digits-l2", "kept", &[]);
    std::fs::remove_file(place.path("kept/metrics.jsonl")).unwrap();
    place.run(&["report", "kept"]).done();
    let page = place.read("kept/report.html");
    assert!(page.contains("12 outer iterations · all iterations are done") && page.contains("test accuracy"));
    assert!(page.contains("The learned λ.log_strength") && !page.contains("Outer loss</"));
    // Resumed, it has an empty file of metrics.
    place.run(&["resume", "kept", "--quiet"]).done();
    assert_eq!(place.read("kept/metrics.jsonl"), "");
    place.run(&["report", "kept"]).done();
}

#[test]
fn a_run_that_is_not_finished_shows_how_far_it_is() {
    let place = Place::new();
    run(&place, "hyper-cleaning", "kept", &[]);
    // As a killed run leaves it: no result, a torn line, a checkpoint.
    std::fs::remove_file(place.path("kept/result.json")).unwrap();
    std::fs::remove_file(place.path("kept/lambda.safetensors")).unwrap();
    let metrics = place.read("kept/metrics.jsonl");
    place.write("kept/metrics.jsonl", &(metrics + "{\"iteration\":13,\"inn"));
    place.write("kept/config.toml", &place.read("kept/config.toml").replace("iterations = 12", "iterations = 50"));
    place.run(&["report", "kept"]).done();
    let page = place.read("kept/report.html");
    assert!(page.contains("The run is not finished: 12 of 50 iterations are done. <code>bilevel resume kept</code>"));
    assert!(page.contains("The learned λ.examples, sorted"), "λ of the checkpoint is missing");
}

#[test]
fn several_runs_are_one_page_with_a_curve_and_a_row_for_each() {
    let place = Place::new();
    for seed in ["0", "1"] {
        run(&place, "digits-l2", &format!("s{seed}"), &["--seed", seed]);
    }
    run(&place, "digits-l2", "other", &["--method", "ift-cg"]);
    assert_eq!(place.run(&["report", "s0", "s1"]).done().out, "the report is in report.html\n");
    let page = place.read("report.html");
    assert!(page.contains("2 runs compared") && page.contains("<td>seed 0</td>") && page.contains("<td>seed 1</td>"));
    assert!(page.contains("9 · seed 0") && page.contains("0 · seed 1"));
    assert_eq!(page.matches("\"name\":\"seed 1\"").count(), page.matches("<figure class=\"plot\">").count());
    place.run(&["report", "s0", "s1", "other", "--out", "all.html"]).done();
    assert!(place.read("all.html").contains("<td>langevin-adjoint, seed 1</td>"));
    place.run(&["report", "s0", "other", "--out", "all.html"]).done();
    assert!(place.read("all.html").contains("<td>ift-cg</td>"));
    // The same run twice is told apart all the same.
    place.run(&["report", "s0", "s0", "--out", "all.html"]).done();
    assert!(place.read("all.html").contains("<td>2. s0</td>"));
}

#[test]
fn among_several_folders_those_without_a_run_are_passed_over() {
    let place = Place::new();
    run(&place, "synth1d", "kept", &[]);
    std::fs::create_dir(place.path("study")).unwrap();
    place.write("all.html", "");
    let said = place.run(&["report", "all.html", "kept", "study", "--out", "all.html"]).done();
    assert_eq!(
        said.error,
        "skipped: all.html holds no run: there is no config.toml in it\n\
         skipped: study holds no run: there is no config.toml in it\n"
    );
    assert!(place.read("all.html").contains("<h1>synth1d by "));
    place.run(&["report", "study", "all.html", "--quiet"]).refused("none of these 2 folders holds a run");
    assert_eq!(place.run(&["report", "kept", "nowhere"]).code, Some(2));
}

#[test]
fn what_cannot_be_drawn_is_refused_with_one_sentence() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    place.run(&["report", "empty"]).refused("empty holds no run: there is no config.toml in it");
    let said = place.run(&["report", "nowhere"]);
    assert_eq!((said.code, said.error.lines().count()), (Some(2), 1), "{said:?}");
    assert!(said.error.starts_with("bilevel: cannot open nowhere: "), "{said:?}");
    assert_eq!(place.run(&["report"]).code, Some(2));

    run(&place, "synth1d", "kept", &[]);
    let metrics = place.read("kept/metrics.jsonl");
    place.write("kept/metrics.jsonl", &metrics.replacen("{\"iteration\":5", "{iteration:5", 1));
    place.run(&["report", "kept"]).refused(
        "cannot read kept/metrics.jsonl: line 5 is not the metrics of an iteration; remove that line to draw the rest",
    );
    place.write("kept/metrics.jsonl", &metrics);
    let lambda = std::fs::read(place.path("kept/lambda.safetensors")).unwrap();
    std::fs::write(place.path("kept/lambda.safetensors"), &lambda[..lambda.len() - 3]).unwrap();
    let said = place.run(&["report", "kept"]);
    assert!(
        said.code == Some(2) && said.error.starts_with("bilevel: cannot read kept/lambda.safetensors: "),
        "{said:?}"
    );
    std::fs::write(place.path("kept/lambda.safetensors"), lambda).unwrap();
    std::fs::remove_file(place.path("kept/result.json")).unwrap();
    place.write("kept/metrics.jsonl", "");
    place.run(&["report", "kept"]).refused("cannot draw kept: no iteration of its run has finished yet");
    std::fs::remove_file(place.path("kept/metrics.jsonl")).unwrap();
    let said = place.run(&["report", "kept"]);
    assert!(said.code == Some(2) && said.error.starts_with("bilevel: cannot read kept/metrics.jsonl: "), "{said:?}");
    let said = place.run(&["report", "kept", "--out", "no/such/folder.html"]);
    assert_eq!((said.code, said.error.lines().count()), (Some(2), 1), "{said:?}");
}

#[test]
fn a_report_that_cannot_be_drawn_does_not_fail_a_finished_run() {
    let place = Place::new();
    place.run(&["run", "synth1d", "--outer", "5", "--out", "kept", "--quiet"]).done();
    std::fs::remove_dir_all(place.path("kept/plots")).unwrap();
    place.write("kept/plots", "in the way");
    let said = place.run(&["resume", "kept", "--outer", "8", "--quiet"]).done();
    assert!(said.error.starts_with("bilevel: the run has no report: cannot make kept/plots: "), "{said:?}");
    assert_eq!(said.error.lines().count(), 1, "{said:?}");
    assert!(place.path("kept/result.json").is_file());
    assert_eq!(place.run(&["report", "kept"]).code, Some(2));
}

#[test]
fn reports_of_real_runs_read_well_wide_and_narrow() {
    let Some(browser) = drive::chromium() else { return };
    let place = Place::new();
    let see = |name: &str, page: &Path| {
        let page = std::fs::read_to_string(page).unwrap();
        let windows = [(1280, 5600, false), (400, 6600, false), (1280, 5600, true)];
        drive::check(&browser, &place.path(name), &page, &windows);
    };
    for seed in ["0", "1", "2"] {
        let out = format!("digits-{seed}");
        place.run(&["run", "digits-l2", "--outer", "60", "--seed", seed, "--out", &out, "--quiet"]).done();
    }
    see("seen-one", &place.path("digits-0/report.html"));
    place.run(&["report", "digits-0", "digits-1", "digits-2"]).done();
    see("seen-three", &place.path("report.html"));
    // Noise, a standard error, one number as λ.
    place
        .run(&[
            "run",
            "synth1d",
            "--set",
            "task.noise=0.3",
            "--outer",
            "900",
            "--set",
            "chains=3",
            "--out",
            "noisy",
            "--quiet",
        ])
        .done();
    assert!(place.read("noisy/report.html").contains("one standard error"));
    see("seen-noisy", &place.path("noisy/report.html"));
}
