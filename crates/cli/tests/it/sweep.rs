//! Several values for a key: the runs, the table, the best, the page, and going on after a stop.

use crate::common::Place;
use std::time::{Duration, Instant};

const SWEEP: [&str; 8] =
    ["run", "synth1d", "--method", "rmd", "--iterations", "40", "--set", "outer.rate=0.001,0.02,0.1"];

#[test]
fn a_run_for_each_combination_a_table_and_the_best() {
    let place = Place::new();
    let said = place.run(&[&SWEEP[..], &["--set", "seed=0,1", "--out", "s"]].concat()).done();
    let heads: Vec<&str> = said.out.lines().take(2).collect();
    assert_eq!(heads[0], "synth1d by rmd, mean ± sd of 2 seeds");
    assert!(heads[1].starts_with("rate ") && heads[1].contains("  outer loss  "), "{}", said.out);
    assert!(said.out.contains("The best is rate=0.1: outer loss "), "{}", said.out);
    assert!(said.out.replace('\n', " ").contains("(folders rate=0.1_seed=0 to rate=0.1_seed=1)."), "{}", said.out);
    assert_eq!(said.out.lines().filter(|line| line.ends_with("  best")).count(), 1, "{}", said.out);
    for rate in ["0.001", "0.02", "0.1"] {
        for seed in [0, 1] {
            let config = place.read(&format!("s/rate={rate}_seed={seed}/config.toml"));
            assert!(
                config.contains(&format!("rate = {rate} ")) && config.contains(&format!("seed = {seed} ")),
                "{config}"
            );
        }
    }
    let page = place.read("s/report.html");
    for wanted in
        ["a sweep over outer.rate, seed", "Outer loss over rate", "Settings of the best: rate=0.1", "rate=0.02"]
    {
        assert!(page.contains(wanted), "{wanted}");
    }
    // Done again, nothing is computed again, and the rows are the same.
    let rows = place.read("s/rows.jsonl");
    assert_eq!(rows.lines().filter(|row| row.contains("\"outer loss\"")).count(), 3);
    let again = place.run(&[&SWEEP[..], &["--set", "seed=0,1", "--out", "s", "--json"]].concat()).done();
    assert_eq!(again.out, rows);
    assert_eq!(again.error.matches("already done").count(), 6, "{}", again.error);
    // More values of the same keys go into the same folder; other settings do not.
    let more = SWEEP[..7].iter().copied().chain(["outer.rate=0.1,0.2", "--set", "seed=0,1", "--out", "s", "--quiet"]);
    place.run(&more.collect::<Vec<_>>()).done();
    let other = place.run(&[&SWEEP[..], &["--set", "seed=0,1", "--set", "inner.step=0.02", "--out", "s"]].concat());
    assert_eq!(other.code, Some(2));
    assert!(other.error.contains("holds a run with other settings (inner.step is "), "{}", other.error);
}

#[test]
fn a_sweep_that_is_stopped_goes_on_where_it_was() {
    let place = Place::new();
    let sweep = ["run", "digits-l2", "--method", "rmd", "--iterations", "400", "--set", "outer.rate=0.1,0.2"];
    let more = ["--set", "checkpoint.every=5", "--jobs", "1", "--out", "s"];
    let mut child = place.start(&[&sweep[..], &more].concat());
    let begun = Instant::now();
    while !place.path("s/rate=0.1/checkpoint/checkpoint-0000000010.bilevel").exists() {
        assert!(begun.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let interrupted = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let stopped = crate::common::Said::new(child.wait_with_output().unwrap());
    assert_eq!(stopped.code, Some(130), "{stopped:?}");
    assert!(stopped.error.contains("to continue, give the same command with --out s"), "{stopped:?}");
    let short = ["run", "digits-l2", "--method", "rmd", "--iterations", "30", "--set", "outer.rate=0.1,0.2"];
    let whole = place.run(&[&short[..], &["--jobs", "2", "--out", "whole", "--json"]].concat()).done();
    assert_eq!(whole.out.lines().count() % 2, 0);
    // The first run of the stopped sweep continues like any other run.
    let resumed = place.run(&["resume", "s/rate=0.1", "--quiet"]).done();
    assert!(resumed.out.is_empty() && place.path("s/rate=0.1/result.json").is_file());
}

#[test]
fn arrays_are_values_and_what_cannot_be_swept_is_refused() {
    let place = Place::new();
    let invariance = ["run", "invariance", "--dry-run", "--set", "task.ranges=[0, 0, 1, 0, 0, 0]"];
    assert!(place.run(&invariance).done().out.contains("ranges = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]"));
    let two = ["run", "invariance", "--dry-run", "--set", "task.ranges=[0, 0, 1, 0, 0, 0],[0, 0, 0, 0, 0, 0]"];
    assert!(
        place
            .run(&two)
            .done()
            .out
            .starts_with("# The first of 2 runs, one for each combination of\n#   task.ranges = [")
    );
    for (arguments, said) in [
        (
            vec!["--set", "outer.rate=0.1,"],
            "--set outer.rate=0.1,: a value is missing next to a comma; put a text with a comma in quotes",
        ),
        (vec!["--set", "seed=1,1"], "--set seed=1,1: 1 is given twice"),
        (vec!["--set", "seed=1,2", "--set", "seed=3"], "--set gives seed twice; give all its values in one --set"),
        (vec!["--set", "outer.rate=0.1,nan"], "--set outer.rate=nan: outer.rate is NaN but must be finite"),
        (
            vec!["--set", "outer.rat=0.1,0.2"],
            "--set outer.rat=0.1: there is no key 'outer.rat'; did you mean outer.rate?",
        ),
        (vec!["--set", "method.name=rmd,rdm"], "--set method.name=rdm: there is no method 'rdm'; did you mean rmd?"),
    ] {
        let refused = place.run(&[&["run", "synth1d"][..], &arguments].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(
            refused.error.starts_with(&format!("bilevel: {said}"))
                || refused.error.contains("method.name cannot be 'rdm'"),
            "{refused:?}"
        );
    }
    let many: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
    place
        .run(&["run", "synth1d", "--set", &format!("seed={}", many.join(","))])
        .refused("these are 1001 runs, and a sweep has at most 1000; give fewer values");
    place.run(&["check", "synth1d", "--set", "seed=1,2"]).refused(
        "--set seed=1,2: only 'bilevel run' takes several values of a key; give one value, or an array in brackets",
    );
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0, "what is refused leaves nothing");
}

#[test]
fn methods_can_be_swept_and_a_run_that_diverges_has_a_row_that_says_so() {
    let place = Place::new();
    let sweep =
        ["run", "synth1d", "--iterations", "20", "--set", "method.name=rmd,ift-cg", "--set", "outer.rate=0.01,1e6"];
    let said = place.run(&[&sweep[..], &["--out", "m"]].concat()).done();
    assert!(place.path("m/method.name=ift-cg_rate=0.01/result.json").is_file());
    assert_eq!(said.out.lines().filter(|line| line.ends_with("  diverged")).count(), 2, "{}", said.out);
    assert!(said.out.contains("method.name=rmd_rate=1e6 diverged at iteration"), "{}", said.out);
}
