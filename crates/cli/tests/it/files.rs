//! Folders that a kill, a careless hand or somebody else left in a bad state, and files the command must not touch.

use crate::common::{Place, Said};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// All files below a folder.
fn below(folder: &Path) -> Vec<String> {
    let mut all = vec![];
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => all.extend(below(&entry.path())),
            false => all.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    all.sort();
    all
}

#[track_caller]
fn nothing_unfinished(place: &Place, folder: &str) {
    let left: Vec<String> = below(&place.path(folder)).into_iter().filter(|name| name.contains("unfinished")).collect();
    assert_eq!(left, [""; 0], "{folder}");
}

/// Removes the checkpoints of a run and what it found, and leaves this many lines of metrics: as if it had been killed
/// there.
fn cut_back(place: &Place, folder: &str, lines: usize) {
    for file in ["result.json", "lambda.safetensors"] {
        std::fs::remove_file(place.path(&format!("{folder}/{file}"))).unwrap();
    }
    for file in std::fs::read_dir(place.path(&format!("{folder}/checkpoint"))).unwrap().map(|file| file.unwrap().path())
    {
        if file.extension().is_some_and(|end| end == "bilevel") {
            std::fs::remove_file(file).unwrap();
        }
    }
    let metrics = place.read(&format!("{folder}/metrics.jsonl"));
    place.write(&format!("{folder}/metrics.jsonl"), &metrics.split_inclusive('\n').take(lines).collect::<String>());
}

/// Thirty iterations, saved every ten.
fn run(place: &Place, out: &str) {
    place.run(&["run", "synth1d", "--outer", "30", "--set", "checkpoint.every=10", "--quiet", "--out", out]).done();
}

#[test]
fn a_run_killed_while_its_first_checkpoint_is_written_goes_on() {
    let place = Place::new();
    run(&place, "kept");
    let before = place.read("kept/result.json");
    cut_back(&place, "kept", 10);
    let left = "checkpoint/.checkpoint-0000000010.bilevel.aB3dE6gH9jK2.unfinished";
    place.write(&format!("kept/{left}"), "BILEV");
    let said = place.run(&["resume", "kept"]).done();
    assert!(said.error.starts_with("no checkpoint was finished in 10 iterations; starting again\n"), "{said:?}");
    assert_eq!(place.read("kept/result.json"), before);
    nothing_unfinished(&place, "kept");
    // One iteration more, and there has been a checkpoint.
    cut_back(&place, "kept", 11);
    place.run(&["resume", "kept"]).refused(
        "there is no checkpoint in kept, but metrics.jsonl has 11 iterations; start again with 'bilevel run \
         kept/config.toml --out DIR'",
    );
}

#[test]
fn metrics_of_another_run_are_refused_when_a_run_goes_on() {
    let place = Place::new();
    run(&place, "kept");
    let own = place.read("kept/metrics.jsonl");
    place
        .run(&["run", "synth1d", "--seed", "1", "--method", "rmd", "--outer", "30", "--quiet", "--out", "other"])
        .done();
    let advice = "put the right file back, or move this one away and the run continues without it";
    let refused = |text: &str, what: &str| {
        place.write("kept/metrics.jsonl", text);
        let sentence = format!("kept/metrics.jsonl does not belong to the run in kept: {what}; {advice}");
        place.run(&["resume", "kept", "--outer", "40"]).refused(&sentence);
        assert_eq!(place.read("kept/metrics.jsonl"), text, "nothing is written over it");
    };
    refused(&place.read("other/metrics.jsonl"), "line 1 belongs to another run");
    let (before, last) = own.trim_end().rsplit_once('\n').unwrap();
    let (_, tail) = last.split_once(",\"outer_loss\"").unwrap();
    let other = format!("{before}\n{{\"iteration\":30,\"inner_loss\":0.5,\"outer_loss\"{tail}\n");
    refused(&other, "the losses in line 30 are not those of the checkpoint");
    refused("Dear diary,\nnothing was learned today.\n", "line 1 is not the metrics of an iteration");
    let twice = own.clone() + &own;
    refused(&twice, "line 31 has iteration 1 after iteration 30");
    // Before the first checkpoint, too, nothing foreign is written over.
    cut_back(&place, "kept", 0);
    refused("Dear diary,\nnothing was learned today.\n", "line 1 is not the metrics of an iteration");
    place.write("kept/metrics.jsonl", "");
    place.run(&["resume", "kept", "--quiet"]).done();
    assert_eq!(place.read("kept/metrics.jsonl").lines().count(), 30);
}

#[test]
fn metrics_that_were_cut_emptied_or_lost_are_noticed_when_a_run_goes_on() {
    let place = Place::new();
    for (kept, lacks) in [(Some(12), "18"), (Some(0), "30"), (None, "30")] {
        let folder = format!("kept-{lacks}-{}", kept.is_some());
        run(&place, &folder);
        let path = format!("{folder}/metrics.jsonl");
        match kept {
            Some(lines) => {
                let text = place.read(&path).split_inclusive('\n').take(lines).collect::<String>();
                place.write(&path, &text);
            }
            None => std::fs::remove_file(place.path(&path)).unwrap(),
        }
        let said = place.run(&["resume", &folder, "--outer", "40", "--quiet"]).done();
        let sentence = format!(
            "bilevel: {lacks} of the 30 finished iterations are missing in {path}; the run continues, but its curves \
             have a gap\n"
        );
        assert_eq!(said.error, sentence);
        assert_eq!(place.read(&path).lines().count(), kept.unwrap_or(0) + 10);
    }
}

#[test]
fn what_a_kill_left_half_written_is_taken_away_at_the_next_start() {
    let place = Place::new();
    run(&place, "kept");
    let left = |folder: &str, name: &str| {
        place.write(&format!("{folder}/.{name}.aB3dE6gH9jK2.unfinished"), "half");
    };
    for (folder, name) in [
        ("kept", "config.toml"),
        ("kept", "result.json"),
        ("kept/plots", "a.svg"),
        ("kept/checkpoint", "configuration"),
    ] {
        left(folder, name);
    }
    place.write("kept/my.unfinished", "a file of the user's");
    place.run(&["resume", "kept", "--quiet"]).done();
    assert_eq!(place.read("kept/my.unfinished"), "a file of the user's");
    std::fs::remove_file(place.path("kept/my.unfinished")).unwrap();
    nothing_unfinished(&place, "kept");
    left("kept", "report.html");
    left("kept/plots", "b.png");
    place.run(&["report", "kept", "--quiet"]).done();
    nothing_unfinished(&place, "kept");
    left(".", "page.html");
    place.run(&["report", "kept", "--out", "page.html", "--quiet"]).done();
    assert!(!place.path(".page.html.aB3dE6gH9jK2.unfinished").exists());
    for (folder, command) in [
        ("study", &["reproduce", "digits", "--quick"][..]),
        ("figures", &["reproduce", "toy-polynomial", "--quick"]),
        ("compared", &["compare", "synth1d", "--methods", "rmd", "--seeds", "1", "--outer", "3"]),
        ("run", &["run", "synth1d", "--outer", "3"]),
    ] {
        std::fs::create_dir(place.path(folder)).unwrap();
        left(folder, "any.toml");
        place.run(&[command, &["--quiet", "--out", folder]].concat()).done();
        nothing_unfinished(&place, folder);
    }
}

/// Waits until this holds, while the command runs.
fn wait_until(run: &mut Child, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(run.try_wait().unwrap().is_none(), "the command ended too soon");
        assert!(since.elapsed() < Duration::from_secs(60), "the command does not get on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_study_finishes_the_folder_it_was_killed_in() {
    let place = Place::new();
    for (study, first) in [("digits", "prices/measurement.json"), ("toy-polynomial", "study.toml")] {
        let arguments = ["reproduce", study, "--quick", "--quiet", "--out", study];
        let mut killed = place.start(&arguments);
        wait_until(&mut killed, || place.path(&format!("{study}/{first}")).exists());
        killed.kill().unwrap();
        killed.wait().unwrap();
        place.run(&arguments).done();
        nothing_unfinished(&place, study);
        assert!(place.path(&format!("{study}/rows.jsonl")).exists());
    }
    // What is done is not done again, and what was asked for otherwise does not go into the same folder.
    let again = place.run(&["reproduce", "toy-polynomial", "--quick", "--json", "--out", "toy-polynomial"]).done();
    assert_eq!(again.out, place.read("toy-polynomial/rows.jsonl"));
    place
        .run(&["reproduce", "toy-polynomial", "--out", "toy-polynomial"])
        .refused("toy-polynomial/twenty-runs/measurement.json was measured with other settings; choose another folder with --out");
    let mut running = place.start(&["reproduce", "digits", "--out", "mine"]);
    wait_until(&mut running, || place.path("mine/study.toml").exists());
    place
        .run(&["reproduce", "digits", "--quick", "--out", "mine"])
        .refused("another command is writing to mine; wait for it, or choose another folder with --out");
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn a_folder_in_which_a_run_was_killed_before_it_began_can_be_run_in() {
    let place = Place::new();
    run(&place, "whole");
    for files in [&[][..], &["lock"], &["lock", "configuration"], &["lock", ".configuration.aB3dE6gH9jK2.unfinished"]] {
        let folder = format!("kept-{}", files.len());
        std::fs::create_dir_all(place.path(&format!("{folder}/checkpoint"))).unwrap();
        files.iter().for_each(|file| place.write(&format!("{folder}/checkpoint/{file}"), ""));
        place
            .run(&["resume", &folder])
            .refused(&format!("the run in {folder} never started; start it with 'bilevel run TASK --out {folder}'"));
        run(&place, &folder);
        assert_eq!(place.read(&format!("{folder}/result.json")), place.read("whole/result.json"));
        std::fs::remove_dir_all(place.path(&folder)).unwrap();
    }
    // With a file of somebody else's beside the lock it is no folder of ours.
    std::fs::create_dir_all(place.path("mine/checkpoint")).unwrap();
    place.write("mine/checkpoint/lock", "");
    place.write("mine/thesis.tex", "precious");
    place
        .run(&["run", "synth1d", "--outer", "3", "--out", "mine"])
        .refused("mine holds something other than a run; choose another folder with --out");
}

#[test]
fn a_configuration_file_is_read_up_to_a_limit() {
    let place = Place::new();
    place.write("huge.toml", &"# nothing\n".repeat(200_000));
    let too_large = "cannot read huge.toml: it has more than 1048576 bytes, which is too large for a configuration \
                     file";
    place.run(&["run", "huge.toml"]).refused(too_large);
    place.run(&["check", "huge.toml"]).refused(too_large);
    place.run(&["compare", "huge.toml"]).refused(too_large);
    run(&place, "kept");
    std::fs::rename(place.path("huge.toml"), place.path("kept/config.toml")).unwrap();
    let too_large = too_large.replace("huge.toml", "kept/config.toml");
    place.run(&["resume", "kept"]).refused(&too_large);
    place.run(&["report", "kept"]).refused(&too_large);
    if cfg!(target_os = "linux") {
        // A device that never ends.
        place.run(&["run", "/dev/zero"]).refused(&too_large.replace("kept/config.toml", "/dev/zero"));
    }
}

#[cfg(unix)]
#[test]
fn a_report_replaces_nothing_that_is_no_regular_file() {
    let place = Place::new();
    run(&place, "kept");
    assert!(std::process::Command::new("mkfifo").arg(place.path("pipe.html")).status().unwrap().success());
    place.write("precious.html", "mine");
    std::os::unix::fs::symlink("precious.html", place.path("link.html")).unwrap();
    std::fs::create_dir(place.path("folder.html")).unwrap();
    for (name, what) in [("pipe.html", "a pipe or device"), ("link.html", "a link"), ("folder.html", "a folder")] {
        let before = std::fs::symlink_metadata(place.path(name)).unwrap().file_type();
        place
            .run(&["report", "kept", "--out", name])
            .refused(&format!("cannot write {name}: it is {what}, not a regular file, so it was not touched"));
        assert_eq!(std::fs::symlink_metadata(place.path(name)).unwrap().file_type(), before);
    }
    assert_eq!(place.read("precious.html"), "mine");
    std::fs::remove_file(place.path("kept/report.html")).unwrap();
    std::os::unix::fs::symlink("../precious.html", place.path("kept/report.html")).unwrap();
    place
        .run(&["report", "kept"])
        .refused("cannot write kept/report.html: it is a link, not a regular file, so it was not touched");
}

#[cfg(unix)]
#[test]
fn a_path_with_escape_sequences_is_printed_escaped_by_every_command() {
    let place = Place::new();
    let (odd, shown) = ("a\x1b[31m\n\u{9b}b", "a\\u{1b}[31m\\n\\u{9b}b");
    let holds = |said: &Said, sentence: &str| {
        let text = format!("{}{}", said.out, said.error);
        assert!(text.contains(sentence), "{sentence}: {said:?}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{said:?}");
    };
    let run = ["run", "synth1d", "--outer", "3", "--out"];
    holds(&place.run(&[&run[..], &[odd]].concat()), &format!("saved in {shown}\n"));
    holds(&place.run(&["resume", odd]), &format!("saved in {shown}\n"));
    holds(&place.run(&["report", odd]), &format!("the report is in {shown}/report.html\n"));
    let page = format!("{odd}.html");
    holds(&place.run(&["report", odd, "--out", &page]), &format!("the report is in {shown}.html\n"));
    std::fs::create_dir(place.path(&format!("{odd}2"))).unwrap();
    holds(&place.run(&["report", odd, &format!("{odd}2")]), &format!("skipped: {shown}2 holds no run"));
    holds(
        &place.run(&["reproduce", "digits", "--quick", "--out", &format!("{odd}3")]),
        &format!("The report is {shown}3/report.html"),
    );
    let item = ["reproduce", "toy-polynomial", "--quick", "--out"];
    holds(&place.run(&[&item[..], &[&format!("{odd}4")]].concat()), &format!("The report is {shown}4/report.html"));
    let compare = ["compare", "synth1d", "--methods", "rmd", "--seeds", "1", "--outer", "3", "--out"];
    let compared = format!("{odd}5");
    holds(&place.run(&[&compare[..], &[&compared]].concat()), &format!("The report is {shown}5/report.html"));
    // Words that come from a file of results are no safer than a path.
    let result = format!("{compared}/rmd-s0/result.json");
    place.write(
        &result,
        &place
            .read(&result)
            .replace("all iterations are done", "\\u001b[2Jdiverged")
            .replace("\"stopped\": \"iterations\"", "\"stopped\": \"diverged\""),
    );
    holds(&place.run(&[&compare[..], &[&compared]].concat()), "\\u{1b}[2J");
    // A note on a damaged checkpoint names its path.
    let newest = place.path(odd).join("checkpoint/checkpoint-0000000003.bilevel");
    std::fs::copy(&newest, place.path(odd).join("checkpoint/checkpoint-0000000009.bilevel")).unwrap();
    holds(&place.run(&["resume", odd]), &format!("note: checkpoint {shown}/checkpoint/"));
}
