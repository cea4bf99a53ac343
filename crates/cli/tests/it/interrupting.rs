//! Ctrl-C: every command answers it at once, says what is kept and ends with code 130.

// Whether a command listens yet is read from /proc.
#![cfg(target_os = "linux")]

use crate::common::{Place, Said};
use std::io::Write;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A hypergradient of about a minute.
const LONG: [&str; 4] = ["--set", "inner.steps=2000000000", "--set", "checkpoint.every=1"];

/// Waits until this holds, while the command runs.
fn wait_until(run: &mut Child, holds: impl Fn(u32) -> bool) {
    let since = Instant::now();
    while !holds(run.id()) {
        assert!(run.try_wait().unwrap().is_none(), "the command ended too soon");
        assert!(since.elapsed() < Duration::from_secs(60), "the command does not get on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// True once the command listens for Ctrl-C: it has a thread for that.
fn listens(process: u32) -> bool {
    let names = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    names.flat_map(|task| std::fs::read_to_string(task.path().join("comm"))).any(|name| name.starts_with("ctrl-c"))
}

fn interrupt(run: &Child) {
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
}

/// What the command says of itself, without its progress.
fn own_lines(said: &Said) -> Vec<&str> {
    said.error.lines().filter(|line| line.starts_with("bilevel: ")).collect()
}

#[test]
fn a_check_ends_at_once() {
    let place = Place::new();
    let mut check = place.start(&[&["check", "synth1d", "--set", "task.noise=0.3"][..], &LONG].concat());
    wait_until(&mut check, listens);
    interrupt(&check);
    let said = Said::new(check.wait_with_output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(130), ""), "{said:?}");
    assert_eq!(own_lines(&said), ["bilevel: stopped before the check was done"]);
}

#[test]
fn a_study_ends_in_the_middle_of_its_items_and_the_same_command_finishes_it() {
    for study in ["digits", "synth1d", "quadratics"] {
        let place = Place::new();
        let mut all = place.start(&["reproduce", study, "--out", "kept"]);
        wait_until(&mut all, listens);
        interrupt(&all);
        let said = Said::new(all.wait_with_output().unwrap());
        assert_eq!((said.code, said.out.as_str()), (Some(130), ""), "{said:?}");
        let own = own_lines(&said);
        assert_eq!(own[0], "bilevel: stopping; press Ctrl-C again to stop at once", "{said:?}");
        assert!(own[1].starts_with("bilevel: stopped; ") && own[1].ends_with(" with --out kept"), "{said:?}");
        assert!(!place.path("kept/rows.jsonl").exists());
    }
}

/// A run that is done and hangs, for it cannot say so: its answer goes to a pipe that is full and that nobody reads.
fn hanging(place: &Place) -> (Child, std::io::PipeReader) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // As much as a pipe of Linux holds.
    writer.write_all(&[b' '; 1 << 16]).unwrap();
    let run = place.start_into(&["run", "synth1d", "--outer", "3", "--out", "a"], writer);
    let since = Instant::now();
    while !place.path("a/report.html").exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "the command does not get on");
        std::thread::sleep(Duration::from_millis(2));
    }
    (run, reader)
}

#[test]
fn a_second_ctrl_c_ends_a_run_that_does_not_answer_the_first_and_says_how_to_go_on() {
    let place = Place::new();
    let (run, _reader) = hanging(&place);
    for _ in 0..2 {
        interrupt(&run);
        std::thread::sleep(Duration::from_millis(300));
    }
    let said = Said::new(run.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    let again = "bilevel: stopped at once; 'bilevel resume a' continues from its last checkpoint";
    assert_eq!(own_lines(&said), ["bilevel: stopping; press Ctrl-C again to stop at once", again]);
}

#[test]
fn a_run_that_hangs_is_ended_by_a_single_request() {
    let place = Place::new();
    let (run, _reader) = hanging(&place);
    assert!(Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap().success());
    let said = Said::new(run.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
}

#[test]
fn a_run_ends_in_the_middle_of_a_hypergradient_and_can_be_resumed() {
    let place = Place::new();
    let mut run = place.start(&[&["run", "synth1d", "--set", "task.noise=0.3", "--out", "kept"][..], &LONG].concat());
    wait_until(&mut run, |process| listens(process) && place.path("kept/metrics.jsonl").exists());
    interrupt(&run);
    let said = Said::new(run.wait_with_output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(130), ""), "{said:?}");
    let stopped = "bilevel: stopped after 0 of 2000 iterations; continue with 'bilevel resume kept'";
    assert_eq!(own_lines(&said), ["bilevel: stopping; press Ctrl-C again to stop at once", stopped]);
    // It continues where it was, and is stopped there again.
    let mut again = place.start(&["resume", "kept"]);
    wait_until(&mut again, listens);
    interrupt(&again);
    let said = Said::new(again.wait_with_output().unwrap());
    assert_eq!(own_lines(&said), ["bilevel: stopping; press Ctrl-C again to stop at once", stopped]);
}

#[test]
fn a_comparison_ends_in_the_middle_of_its_hypergradients_and_says_how_to_go_on() {
    let place = Place::new();
    let methods = [
        "compare",
        "synth1d",
        "--set",
        "task.noise=0.3",
        "--methods",
        "hpo-sgld,langevin-adjoint",
        "--seeds",
        "2",
        "--out",
        "kept",
    ];
    let mut compare = place.start(&[&methods[..], &LONG].concat());
    wait_until(&mut compare, |process| listens(process) && place.path("kept/hpo-sgld-s0/metrics.jsonl").exists());
    interrupt(&compare);
    let said = Said::new(compare.wait_with_output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (Some(130), ""), "{said:?}");
    let stopped = "bilevel: stopped; 0 items are done; to continue, give the same command with --out kept";
    assert_eq!(own_lines(&said), ["bilevel: stopping; press Ctrl-C again to stop at once", stopped]);
}
