//! Files of a run that are pipes, links, cut or of another run: nothing waits for ever, nothing is believed that does not
//! belong together, and nothing is written through a link.

#![cfg(unix)]

use crate::common::{Place, Said};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

/// Twelve iterations, saved every five.
fn run(place: &Place, out: &str, more: &[&str]) {
    let usual = ["run", "synth1d", "--outer", "12", "--set", "checkpoint.every=5", "--quiet", "--out", out];
    place.run(&[&usual, more].concat()).done();
}

/// Runs a command that might wait for ever.
#[track_caller]
fn ends(place: &Place, arguments: &[&str]) -> Said {
    let mut child = place.start(arguments);
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Said::new(child.wait_with_output().unwrap())
}

fn copy(place: &Place, from: &str, to: &str) {
    let copied = Command::new("cp").arg("-R").arg(place.path(from)).arg(place.path(to)).status().unwrap();
    assert!(copied.success());
}

/// Puts a pipe in place of a file.
fn pipe(place: &Place, name: &str) {
    std::fs::remove_file(place.path(name)).unwrap();
    assert!(Command::new("mkfifo").arg(place.path(name)).status().unwrap().success());
}

#[test]
fn a_pipe_in_the_folder_of_a_run_is_never_opened() {
    let place = Place::new();
    run(&place, "whole", &[]);
    let compare = ["compare", "synth1d", "--methods", "rmd", "--seeds", "1", "--outer", "6", "--quiet", "--out"];
    place.run(&[&compare[..], &["compared"]].concat()).done();
    let said = "is a pipe or device, not a regular file, so it was not touched";
    for (number, (name, command, refused)) in [
        ("metrics.jsonl", "resume", true),
        ("metrics.jsonl", "report", true),
        ("checkpoint/configuration", "resume", true),
        ("checkpoint/lock", "resume", true),
        ("result.json", "resume", true),
        ("result.json", "report", true),
        ("lambda.safetensors", "report", true),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = format!("kept-{number}");
        copy(&place, "whole", &folder);
        pipe(&place, &format!("{folder}/{name}"));
        let answer = ends(&place, &[command, &folder, "--quiet"]);
        assert_eq!(answer.code == Some(2), refused, "{command} with {name}: {answer:?}");
        assert!(answer.error.contains(&format!("{folder}/{name}: it {said}")), "{command} with {name}: {answer:?}");
        assert_eq!(answer.error.lines().count(), 1, "{command} with {name}: {answer:?}");
    }
    for (number, name) in ["study.toml", "rmd-s0/metrics.jsonl", "rmd-s0/lambda.safetensors", "rmd-s0/result.json"]
        .into_iter()
        .enumerate()
    {
        let folder = format!("compared-{number}");
        copy(&place, "compared", &folder);
        pipe(&place, &format!("{folder}/{name}"));
        let answer = ends(&place, &[&compare[..], &[&folder]].concat());
        assert!(answer.code == Some(0) || answer.error.lines().count() == 1, "compare with {name}: {answer:?}");
    }
}

#[test]
fn nothing_is_written_through_a_link() {
    let place = Place::new();
    place.write("precious", "mine");
    // A new run in a folder in which one was killed before it began.
    std::fs::create_dir_all(place.path("new/checkpoint")).unwrap();
    symlink("../../precious", place.path("new/checkpoint/lock")).unwrap();
    let said = place.run(&["run", "synth1d", "--outer", "3", "--quiet", "--out", "new"]);
    said.refused("cannot write to new/checkpoint/lock: it is a link, not a regular file, so it was not touched");
    // A run that begins again, as there is no checkpoint yet.
    run(&place, "kept", &[]);
    for name in ["result.json", "lambda.safetensors", "metrics.jsonl"] {
        std::fs::remove_file(place.path(&format!("kept/{name}"))).unwrap();
    }
    for number in ["0000000010", "0000000012"] {
        std::fs::remove_file(place.path(&format!("kept/checkpoint/checkpoint-{number}.bilevel"))).unwrap();
    }
    for target in ["../precious", "../nothing"] {
        symlink(target, place.path("kept/metrics.jsonl")).unwrap();
        let said = place.run(&["resume", "kept", "--quiet"]);
        said.refused("cannot write kept/metrics.jsonl: it is a link, not a regular file, so it was not touched");
        std::fs::remove_file(place.path("kept/metrics.jsonl")).unwrap();
    }
    assert_eq!(place.read("precious"), "mine");
    assert!(!place.path("nothing").exists());
    place.run(&["resume", "kept", "--quiet"]).done();
}

#[test]
fn a_finished_run_whose_metrics_are_a_link_to_nothing_is_refused_in_one_sentence() {
    let place = Place::new();
    run(&place, "kept", &[]);
    std::fs::remove_file(place.path("kept/metrics.jsonl")).unwrap();
    symlink("nowhere", place.path("kept/metrics.jsonl")).unwrap();
    place
        .run(&["resume", "kept", "--quiet"])
        .refused("cannot write kept/metrics.jsonl: it is a link, not a regular file, so it was not touched");
}

#[test]
fn a_report_is_not_drawn_of_files_that_do_not_belong_together() {
    let place = Place::new();
    run(&place, "whole", &[]);
    run(&place, "other", &["--seed", "1"]);
    let seed = "kept/result.json does not belong to the run in kept: it belongs to seed 1, not to seed 0; put the \
                right file back, or move this one away";
    let refused = |name: &str, text: &str, sentence: &str| {
        copy(&place, "whole", "kept");
        place.write(&format!("kept/{name}"), text);
        let said = place.run(&["report", "kept"]);
        said.refused(sentence);
        std::fs::remove_dir_all(place.path("kept")).unwrap();
    };
    refused("result.json", &place.read("other/result.json"), seed);
    let settings = seed.replace("it belongs to seed 1, not to seed 0", "it was computed with other settings");
    refused("config.toml", &place.read("whole/config.toml").replace("rate = 0.005", "rate = 0.006"), &settings);
    refused(
        "metrics.jsonl",
        &place.read("other/metrics.jsonl"),
        "kept/metrics.jsonl does not belong to the run in kept: line 1 belongs to another run; put the right file \
         back, or move this one away",
    );
    // An unfinished run has no result to compare with; there the configuration is that which it was begun with.
    copy(&place, "whole", "kept");
    std::fs::remove_file(place.path("kept/result.json")).unwrap();
    place.write("kept/config.toml", &place.read("whole/config.toml").replace("rate = 0.005", "rate = 0.006"));
    let said = place.run(&["report", "kept"]);
    assert!(said.error.starts_with("bilevel: kept/config.toml was changed after the run started; "), "{said:?}");
    // λ of another run.
    place.write("kept/config.toml", &place.read("whole/config.toml"));
    std::fs::copy(place.path("whole/result.json"), place.path("kept/result.json")).unwrap();
    std::fs::copy(place.path("other/lambda.safetensors"), place.path("kept/lambda.safetensors")).unwrap();
    place.run(&["report", "kept"]).refused(
        "cannot read kept/lambda.safetensors: damaged: lambda does not match result.json; put the right file back, or \
         move it away",
    );
}

#[test]
fn a_report_of_a_finished_run_whose_metrics_were_cut_shows_its_result_and_says_that_lines_are_missing() {
    let place = Place::new();
    run(&place, "kept", &[]);
    let metrics = place.read("kept/metrics.jsonl");
    for lines in [7, 0] {
        let cut: String = metrics.split_inclusive('\n').take(lines).collect();
        place.write("kept/metrics.jsonl", &cut);
        place.run(&["report", "kept"]).done();
        let page = place.read("kept/report.html");
        assert!(page.contains(&format!(
            "{} of the 12 iterations are missing in <code>metrics.jsonl</code>: the curves",
            12 - lines
        )));
        assert!(page.contains("all iterations are done") && !page.contains("The run is not finished"));
    }
}

#[test]
fn a_configuration_that_was_cut_is_refused_even_where_the_defaults_are_those_of_the_run() {
    let place = Place::new();
    run(&place, "kept", &[]);
    let config = place.read("kept/config.toml");
    let (before, _) = config.split_once("iterations = ").unwrap();
    place.write("kept/config.toml", before);
    for command in ["resume", "report"] {
        place.run(&[command, "kept"]).refused(
            "cannot read kept/config.toml: it is incomplete: outer.iterations is missing; put the right file back",
        );
    }
}

#[test]
fn a_result_that_is_a_link_to_itself_is_not_taken_for_a_run_without_one() {
    let place = Place::new();
    run(&place, "kept", &[]);
    for name in ["result.json", "metrics.jsonl"] {
        let file = place.path(&format!("kept/{name}"));
        let before = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink(name, &file).unwrap();
        let said = place.run(&["report", "kept"]);
        assert!(said.error.starts_with(&format!("bilevel: cannot read kept/{name}: ")), "{said:?}");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, before).unwrap();
    }
    place.run(&["report", "kept", "--quiet"]).done();
}

#[test]
fn a_run_that_goes_on_from_an_older_checkpoint_drops_the_result_it_had_of_later_iterations() {
    let place = Place::new();
    run(&place, "kept", &[]);
    let before = place.read("kept/result.json");
    std::fs::remove_file(place.path("kept/checkpoint/checkpoint-0000000012.bilevel")).unwrap();
    // It cannot write its event files, so that it ends before it has done anything.
    place.write("kept/tensorboard", "in the way");
    assert_eq!(place.run(&["resume", "kept", "--tensorboard", "--quiet"]).code, Some(2));
    assert!(!place.path("kept/result.json").exists());
    let said = place.run(&["report", "kept"]).done();
    assert!(place.read("kept/report.html").contains("The run is not finished: 10 of 12 iterations"), "{said:?}");
    std::fs::remove_file(place.path("kept/tensorboard")).unwrap();
    place.run(&["resume", "kept", "--quiet"]).done();
    assert_eq!(place.read("kept/result.json"), before);
}

#[test]
fn plots_that_a_longer_run_does_not_have_are_taken_away() {
    let place = Place::new();
    let run = |outer: &str, out: &str| place.run(&["run", "synth1d", "--outer", outer, "--quiet", "--out", out]).done();
    let names = |folder: &str| {
        let entries = std::fs::read_dir(place.path(&format!("{folder}/plots"))).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    run("60", "long");
    run("3", "short");
    assert!(names("short") != names("long"), "the runs were chosen because their plots differ");
    std::fs::write(place.path("short/plots/my-own.svg"), "a file of the user's").unwrap();
    place.run(&["resume", "short", "--outer", "60", "--quiet"]).done();
    std::fs::remove_file(place.path("short/plots/my-own.svg")).unwrap();
    assert_eq!(names("short"), names("long"));
}

#[test]
fn metrics_of_another_run_that_were_also_cut_are_named_as_foreign() {
    let place = Place::new();
    run(&place, "kept", &[]);
    run(&place, "other", &["--seed", "1"]);
    let foreign: String = place.read("other/metrics.jsonl").split_inclusive('\n').take(4).collect();
    place.write("kept/metrics.jsonl", &foreign);
    place.run(&["resume", "kept", "--outer", "20"]).refused(
        "kept/metrics.jsonl does not belong to the run in kept: line 1 belongs to another run; put the right file \
         back, or move this one away and the run continues without it",
    );
    assert_eq!(place.read("kept/metrics.jsonl"), foreign);
}

#[test]
fn a_comparison_clears_away_what_a_kill_left_half_written_in_its_runs() {
    let place = Place::new();
    let line = ["compare", "synth1d", "--methods", "rmd", "--seeds", "1", "--outer", "6", "--quiet", "--out", "kept"];
    place.run(&line).done();
    let rows = place.read("kept/rows.jsonl");
    place.write("kept/rmd-s0/.result.json.aB3dE6gH9jK2.unfinished", "{");
    place.run(&line).done();
    assert_eq!(place.read("kept/rows.jsonl"), rows);
    assert!(!place.path("kept/rmd-s0/.result.json.aB3dE6gH9jK2.unfinished").exists());
}

#[test]
fn a_comparison_does_not_take_a_result_of_another_run() {
    let place = Place::new();
    let line = ["compare", "synth1d", "--methods", "rmd", "--seeds", "2", "--outer", "6", "--quiet", "--out", "kept"];
    place.run(&line).done();
    place.write("kept/rmd-s0/result.json", &place.read("kept/rmd-s1/result.json"));
    place.run(&line).refused(
        "kept/rmd-s0/result.json does not belong to the run in kept/rmd-s0: it belongs to seed 1, not to seed 0; put \
         the right file back, or move this one away",
    );
}
