//! A run that was cut, stopped or killed and then resumed ends with the files of one that never was, byte for byte.

use crate::common::{Place, Said};
use std::process::Child;
use std::time::{Duration, Instant};

/// A run of about two seconds with noise in it, saved often.
const LONG: [&str; 10] = [
    "run",
    "synth1d",
    "--set",
    "task.noise=0.3",
    "--outer",
    "20000",
    "--set",
    "checkpoint.every=100",
    "--set",
    "metrics.every=50",
];

/// The metrics without the one thing that differs from run to run.
fn timeless(metrics: &str) -> Vec<serde_json::Value> {
    let line = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        line.as_object_mut().unwrap().remove("seconds").unwrap();
        line
    };
    metrics.lines().map(line).collect()
}

#[track_caller]
fn same(place: &Place, a: &str, b: &str) {
    for name in ["result.json", "config.toml"] {
        assert_eq!(place.read(&format!("{a}/{name}")), place.read(&format!("{b}/{name}")), "{name}");
    }
    let bytes = |folder: &str| std::fs::read(place.path(&format!("{folder}/lambda.safetensors"))).unwrap();
    assert_eq!(bytes(a), bytes(b));
    let metrics = |folder: &str| timeless(&place.read(&format!("{folder}/metrics.jsonl")));
    assert_eq!(metrics(a), metrics(b));
}

/// Waits until a run has written this many bytes of metrics.
fn wait_for_metrics(place: &Place, folder: &str, run: &mut Child) {
    let since = Instant::now();
    let path = place.path(&format!("{folder}/metrics.jsonl"));
    while std::fs::metadata(&path).map_or(0, |m| m.len()) < 100_000 {
        assert!(run.try_wait().unwrap().is_none(), "the run ended before it could be stopped");
        assert!(since.elapsed() < Duration::from_secs(60), "the run does not get on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_run_that_was_cut_short_goes_on_to_the_result_of_a_longer_one() {
    let place = Place::new();
    for (task, cut, whole) in
        [("synth1d", "30", "80"), ("hyper-cleaning", "3", "6"), ("sine-initialisation", "7", "20")]
    {
        let run = |outer, out: &str| place.run(&["run", task, "--outer", outer, "--out", out, "--quiet"]).done();
        let (a, b) = (format!("{task}-a"), format!("{task}-b"));
        run(whole, &a);
        run(cut, &b);
        let said = place.run(&["resume", &b, "--outer", whole]).done();
        assert!(said.error.starts_with(&format!("continuing after iteration {cut} of {whole}\n")), "{said:?}");
        assert!(said.out.contains(&format!(": {whole} iterations\n")), "{said:?}");
        same(&place, &a, &b);
    }
}

#[test]
fn a_finished_run_that_is_resumed_says_the_same_again_and_cannot_be_shortened() {
    let place = Place::new();
    place.run(&["run", "quadratics", "--outer", "20", "--out", "kept", "--quiet"]).done();
    let before = place.read("kept/result.json");
    let said = place.run(&["resume", "kept", "--json", "--quiet"]).done();
    assert_eq!((said.out.as_str(), place.read("kept/result.json").as_str()), (before.as_str(), before.as_str()));
    place
        .run(&["resume", "kept", "--outer", "5"])
        .refused("kept has already done 20 iterations, so --iterations 5 leaves nothing to do; choose more than 20");
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_run_that_can_be_resumed_and_says_how() {
    let place = Place::new();
    place.run(&[&LONG[..], &["--out", "a", "--quiet"]].concat()).done();
    let mut run = place.start(&[&LONG[..], &["--out", "b"]].concat());
    wait_for_metrics(&place, "b", &mut run);
    let killed = std::process::Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let said = Said::new(run.wait_with_output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(130), ""), "{said:?}");
    let last = said.error.lines().last().unwrap_or_default();
    assert!(said.error.contains("bilevel: stopping; press Ctrl-C again to stop at once\n"), "{said:?}");
    assert!(last.starts_with("bilevel: stopped after "), "{said:?}");
    assert!(last.ends_with(" of 20000 iterations; continue with 'bilevel resume b'"), "{said:?}");
    assert!(!place.path("b/result.json").exists(), "a run that was stopped has no result");
    assert!(place.read("b/report.html").contains("The run is not finished: "), "a run that was stopped has a report");
    place.run(&["resume", "b", "--quiet"]).done();
    same(&place, "a", "b");
}

#[test]
fn a_run_that_was_killed_goes_on_from_its_last_checkpoint() {
    let place = Place::new();
    place.run(&[&LONG[..], &["--out", "a", "--quiet"]].concat()).done();
    let mut run = place.start(&[&LONG[..], &["--out", "b", "--quiet"]].concat());
    wait_for_metrics(&place, "b", &mut run);
    run.kill().unwrap();
    run.wait().unwrap();
    // A line torn in the middle, as a crash may leave one.
    let metrics = place.read("b/metrics.jsonl");
    place.write("b/metrics.jsonl", &(metrics + "{\"iteration\":1,\"inner"));
    place.run(&["resume", "b", "--quiet"]).done();
    same(&place, "a", "b");
}

#[test]
fn a_truncated_checkpoint_is_passed_over_or_refused() {
    let place = Place::new();
    let run = |out: &str| {
        let every = ["--set", "checkpoint.every=10"];
        place.run(&[&["run", "synth1d", "--outer", "40", "--out", out, "--quiet"][..], &every].concat()).done();
    };
    run("a");
    run("b");
    let mut files: Vec<_> = std::fs::read_dir(place.path("b/checkpoint"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "bilevel"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 2);
    let truncate = |path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    truncate(&files[1]);
    let said = place.run(&["resume", "b"]).done();
    assert!(
        said.error.contains("is damaged: ") && said.error.contains("continuing after iteration 30 of 40"),
        "{said:?}"
    );
    same(&place, "a", "b");

    truncate(&files[0]);
    truncate(&files[1]);
    let said = place.run(&["resume", "b", "--quiet"]);
    assert_eq!((said.code, said.error.lines().count()), (Some(2), 1), "{said:?}");
    assert!(said.error.contains("bilevel: checkpoint b/checkpoint/") && said.error.contains("is damaged"), "{said:?}");
}

#[test]
fn a_configuration_changed_by_hand_is_refused_where_it_is_another_run() {
    let place = Place::new();
    place.run(&["run", "synth1d", "--outer", "10", "--out", "kept", "--quiet"]).done();
    let begun = place.read("kept/config.toml");
    for (old, new) in [("seed = 0", "seed = 1"), ("rate = 0.005", "rate = 0.006")] {
        place.write("kept/config.toml", &begun.replace(old, new));
        place.run(&["resume", "kept", "--quiet"]).refused(
            "kept/config.toml was changed after the run started; change it back, or start a new run with 'bilevel run \
             kept/config.toml'",
        );
    }
    // How often to save, and on how many threads to run, is not what makes a run.
    place.write("kept/config.toml", &begun.replace("every = 200", "every = 3").replace("threads = 0", "threads = 1"));
    place.run(&["resume", "kept", "--outer", "20", "--quiet"]).done();
}

#[test]
fn a_run_keeps_its_precision() {
    let place = Place::new();
    let run = |outer, out| {
        place.run(&["run", "digits-l2", "--precision", "bf16", "--outer", outer, "--out", out, "--quiet"]).done();
    };
    run("2", "kept");
    assert!(place.read("kept/config.toml").contains("precision = \"bf16\""));
    assert!(place.read("kept/report.html").contains("products in bf16"));
    place.run(&["resume", "kept", "--precision", "full", "--quiet"]).refused(
        "kept was started with precision bf16 and cannot continue with full; start a new run with 'bilevel run \
         kept/config.toml --precision full --out DIR'",
    );
    place
        .run(&["resume", "kept", "--precision", "half"])
        .refused("--precision: 'half' is not a precision; use full, tf32 or bf16");
    let begun = place.read("kept/config.toml");
    place.write("kept/config.toml", &begun.replace("\"bf16\"", "\"tf32\""));
    place.run(&["resume", "kept", "--quiet"]).refused(
        "kept/config.toml was changed after the run started; change it back, or start a new run with 'bilevel run \
         kept/config.toml'",
    );
    place.write("kept/config.toml", &begun);
    place.run(&["resume", "kept", "--precision", "bf16", "--outer", "4", "--quiet"]).done();
    run("4", "whole");
    same(&place, "kept", "whole");
    place.run(&["run", "digits-l2", "--outer", "4", "--out", "full", "--quiet"]).done();
    assert_ne!(place.read("full/result.json"), place.read("whole/result.json"));
}

#[test]
fn without_a_checkpoint_a_run_is_not_begun_again_over_what_it_did() {
    let place = Place::new();
    place.run(&["run", "synth1d", "--outer", "10", "--out", "kept", "--quiet"]).done();
    let before = place.read("kept/metrics.jsonl");
    std::fs::remove_dir_all(place.path("kept/checkpoint")).unwrap();
    let refused = |there: &str| {
        place.run(&["resume", "kept"]).refused(&format!(
            "there is no checkpoint in kept, but {there}; start again with 'bilevel run kept/config.toml --out DIR'"
        ));
    };
    refused("metrics.jsonl has 10 iterations");
    assert_eq!(place.read("kept/metrics.jsonl"), before);
    std::fs::remove_file(place.path("kept/metrics.jsonl")).unwrap();
    refused("there is a result.json");
    // Nothing was done yet.
    std::fs::remove_file(place.path("kept/result.json")).unwrap();
    place.run(&["resume", "kept", "--quiet"]).done();
    // Killed before the first checkpoint was due.
    std::fs::remove_file(place.path("kept/result.json")).unwrap();
    for file in std::fs::read_dir(place.path("kept/checkpoint")).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|e| e == "bilevel") {
            std::fs::remove_file(file).unwrap();
        }
    }
    let said = place.run(&["resume", "kept"]).done();
    assert!(said.error.starts_with("no checkpoint was finished in 10 iterations; starting again\n"), "{said:?}");
    assert_eq!(timeless(&place.read("kept/metrics.jsonl")), timeless(&before));
}

#[test]
fn a_configuration_with_fewer_iterations_than_are_done_is_refused() {
    let place = Place::new();
    place.run(&["run", "synth1d", "--outer", "10", "--out", "kept", "--quiet"]).done();
    place.write("kept/config.toml", &place.read("kept/config.toml").replace("iterations = 10", "iterations = 4"));
    place.run(&["resume", "kept"]).refused(
        "kept has already done 10 iterations, so outer.iterations = 4 in kept/config.toml leaves nothing to do; \
         choose more than 10",
    );
}

/// A date and time as RFC 3339 writes it in UTC, to the second.
fn is_time(value: &serde_json::Value) -> bool {
    let mask: String = value.as_str().unwrap_or("").chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    mask == "0000-00-00T00:00:00Z"
}

#[test]
fn what_computed_a_run_stands_beside_its_result_and_every_resumption_adds_to_it() {
    let place = Place::new();
    let run = |folder: &str| place.run(&["run", "synth1d", "--outer", "12", "--out", folder, "--quiet"]).done();
    run("one");
    run("two");
    same(&place, "one", "two");
    let read = |folder: &str| -> Vec<serde_json::Value> {
        serde_json::from_str(&place.read(&format!("{folder}/provenance.json"))).unwrap()
    };
    let entries = read("one");
    assert_eq!(entries.len(), 1);
    let first = &entries[0];
    assert_eq!((first["version"].as_str(), first["device"].as_str()), (Some(env!("CARGO_PKG_VERSION")), Some("cpu")));
    assert_eq!((first["resumed_after"].as_u64(), first["threads"].as_u64().is_some()), (Some(0), true));
    assert!(is_time(&first["started"]) && is_time(&first["ended"]), "{first}");
    let command: Vec<&str> = first["command"].as_array().unwrap().iter().skip(1).map(|a| a.as_str().unwrap()).collect();
    assert_eq!(command, ["run", "synth1d", "--outer", "12", "--out", "one", "--quiet"]);
    let is_commit = |text: &str| text.trim_end_matches("-dirty").chars().all(|c| c.is_ascii_hexdigit());
    assert!(first["commit"].is_null() || first["commit"].as_str().is_some_and(is_commit), "{first}");

    place.run(&["resume", "one", "--outer", "20", "--quiet"]).done();
    let entries = read("one");
    assert_eq!((entries.len(), &entries[0]), (2, first));
    assert_eq!(entries[1]["resumed_after"], 12);
    assert_eq!(entries[1]["command"][1], "resume");

    let head = format!("# Written by bilevel {}; provenance.json has the details.\n", env!("CARGO_PKG_VERSION"));
    assert!(place.read("one/config.toml").starts_with(&head));
    let page = place.read("one/report.html");
    let footer = page.split("<footer>").nth(1).unwrap();
    for part in
        [&format!("bilevel {}", env!("CARGO_PKG_VERSION")), "cpu", "resume one --outer 20", "resumed once since"]
    {
        assert!(footer.contains(part), "{part}: {footer}");
    }
    // Nothing is computed from it: a run continues without it.
    std::fs::remove_file(place.path("one/provenance.json")).unwrap();
    place.run(&["resume", "one", "--outer", "21", "--quiet"]).done();
    assert_eq!(read("one").len(), 1);
    place.run(&["report", "two", "--quiet"]).done();
}

#[test]
fn the_folder_of_a_study_says_what_computed_it() {
    let place = Place::new();
    place.run(&["reproduce", "toy-polynomial", "--quick", "--quiet", "--out", "study"]).done();
    let entries: Vec<serde_json::Value> = serde_json::from_str(&place.read("study/provenance.json")).unwrap();
    assert_eq!(entries.len(), 1);
    assert!(is_time(&entries[0]["ended"]) && entries[0]["command"][2] == "toy-polynomial", "{}", entries[0]);
    assert!(place.read("study/report.html").contains(&format!("<footer>bilevel {}", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_run_from_the_lambda_and_theta_of_another_goes_on_with_them_and_refuses_files_that_changed() {
    let place = Place::new();
    let run = |more: &[&str]| place.run(&[&["run", "synth1d", "--method", "rmd", "--quiet"], more].concat());
    run(&["--outer", "30", "--out", "first", "--set", "checkpoint.theta=true"]).done();
    let from = ["--set", "start.lambda=first/lambda.safetensors", "--set", "start.theta=first/theta.safetensors"];
    let go = |iterations: &str, out: &str| run(&[&["--outer", iterations, "--out", out], &from[..]].concat());
    go("1", "next").done();
    // The next iteration of plain descent from there, whose rate does not depend on the iteration.
    let outer_loss = |folder: &str, line: usize| {
        let line = place.read(&format!("{folder}/metrics.jsonl")).lines().nth(line).unwrap().to_string();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["outer_loss"].as_f64().unwrap()
    };
    let (last, next) = (outer_loss("first", 29), outer_loss("next", 0));
    assert!((next - last).abs() < 0.05 * (outer_loss("first", 0) - last).abs(), "{last} {next}");

    // The contents of the files decide which run it is, and their place does not.
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    for name in ["lambda.safetensors", "theta.safetensors"] {
        std::fs::copy(place.path(&format!("first/{name}")), place.path(&format!("elsewhere/{name}"))).unwrap();
    }
    let moved =
        ["--set", "start.lambda=elsewhere/lambda.safetensors", "--set", "start.theta=elsewhere/theta.safetensors"];
    run(&[&["--outer", "1", "--out", "moved"], &moved[..]].concat()).done();
    assert_eq!(place.read("moved/result.json"), place.read("next/result.json"));

    std::fs::copy(place.path("first/theta.safetensors"), place.path("first/lambda.safetensors")).unwrap();
    let said = place.run(&["resume", "next", "--outer", "2"]);
    assert!(said.code == Some(2) && said.error.contains("changed after the run started"), "{said:?}");
    let said = run(&["--out", "none", "--set", "start.lambda=nowhere.safetensors"]);
    assert!(said.error.starts_with("bilevel: cannot start from nowhere.safetensors: "), "{said:?}");
    assert!(!place.path("none").exists());
}
