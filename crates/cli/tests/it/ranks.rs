//! Runs on several ranks, started by `mpirun`: their results, their refusals, and a rank that dies.

// The processes of a launch are found in /proc.
#![cfg(target_os = "linux")]

use crate::common::{Place, Said};
use bilevel_ranks::mpirun::mpirun_for_test;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run of a second or two whose rows are shared out.
const RUN: [&str; 12] = [
    "run",
    "feature-l2",
    "--method",
    "langevin-adjoint",
    "--outer",
    "8",
    "--set",
    "inner.steps=40",
    "--set",
    "checkpoint.every=1",
    "--set",
    "threads=1",
];

/// The command on so many ranks; `None` where there is no `mpirun`.
fn on_ranks(place: &Place, ranks: usize, arguments: &[&str]) -> Option<Command> {
    let mut command = mpirun_for_test(ranks, env!("CARGO_BIN_EXE_bilevel"))?;
    command.args(arguments).current_dir(place.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command)
}

/// What a run found: λ, and the outer loss of every iteration.
fn found(place: &Place, folder: &str) -> (Vec<f64>, Vec<f64>) {
    let file = std::fs::read(place.path(&format!("{folder}/lambda.safetensors"))).unwrap();
    // The length of the header, the header, and the numbers.
    let (length, rest) = file.split_first_chunk::<8>().unwrap();
    let numbers = rest[u64::from_le_bytes(*length) as usize..].as_chunks::<8>().0;
    let lambda = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
    let metrics = place.read(&format!("{folder}/metrics.jsonl"));
    let loss = |line: &str| serde_json::from_str::<Value>(line).unwrap()["outer_loss"].as_f64().unwrap();
    (lambda, metrics.lines().map(loss).collect())
}

/// How far two runs are apart, relative to the first.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert!(a.len() == b.len() && !a.is_empty(), "{a:?} {b:?}");
    let largest = a.iter().fold(f64::MIN_POSITIVE, |m, x| m.max(x.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f64::max)
}

#[test]
fn a_run_on_several_ranks_is_that_of_one_to_rounding_and_repeats_its_bits() {
    let place = Place::new();
    place.run(&[&RUN[..], &["--out", "alone"]].concat()).done();
    let alone = found(&place, "alone");
    for (ranks, folder) in [(2, "two"), (2, "again"), (4, "four")] {
        let Some(mut command) = on_ranks(&place, ranks, &[&RUN[..], &["--out", folder]].concat()) else { return };
        let said = Said::new(command.output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
        // Rank 0 alone speaks.
        assert_eq!(said.out.matches(&format!("saved in {folder}")).count(), 1, "{said:?}");
        let shared = found(&place, folder);
        // Sums of a few hundred terms in f64, through 320 steps that contract.
        assert!(distance(&alone.0, &shared.0) < 1e-9 && distance(&alone.1, &shared.1) < 1e-9, "{alone:?} {shared:?}");
        assert_ne!(alone.1, shared.1, "the rows were not shared out");
    }
    assert_eq!(found(&place, "two"), found(&place, "again"));
}

#[test]
fn a_run_with_sharded_state_is_that_of_one_rank_and_is_resumed_on_another_number() {
    let place = Place::new();
    place.run(&[&RUN[..], &["--out", "alone"]].concat()).done();
    let alone = found(&place, "alone");
    let sharded = [&RUN[..], &["--shard-from", "10", "--out", "two"]].concat();
    let Some(mut command) = on_ranks(&place, 2, &sharded) else { return };
    let said = Said::new(command.output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(place.read("two/config.toml").contains("shard_from = 10"));
    let two = found(&place, "two");
    assert!(distance(&alone.0, &two.0) < 1e-9 && distance(&alone.1, &two.1) < 1e-9, "{alone:?} {two:?}");
    assert_ne!(alone.1, two.1, "nothing was shared out");
    // Half of it on two ranks, and the rest on three, on one, or on all as before.
    let half = sharded.iter().map(|word| if *word == "8" { "4" } else { *word }).collect::<Vec<_>>();
    for ranks in [3, 1] {
        let folder = format!("half{ranks}");
        let half = half.iter().map(|word| if *word == "two" { &folder } else { *word }).collect::<Vec<_>>();
        assert_eq!(Said::new(on_ranks(&place, 2, &half).unwrap().output().unwrap()).code, Some(0));
        let resumed = on_ranks(&place, ranks, &["resume", &folder, "--outer", "8"]).unwrap().output().unwrap();
        assert_eq!(Said::new(resumed).code, Some(0));
        let whole = found(&place, &folder);
        assert!(distance(&alone.0, &whole.0) < 1e-9 && distance(&alone.1, &whole.1) < 1e-9, "{alone:?} {whole:?}");
    }
}

#[test]
fn ranks_with_other_configurations_are_refused_before_the_first_step() {
    let place = Place::new();
    let Some(mut command) = on_ranks(&place, 1, &[&RUN[..], &["--out", "a"]].concat()) else { return };
    // Another program block of the same launch, with another seed.
    command.args([":", "-n", "1", env!("CARGO_BIN_EXE_bilevel")]);
    command.args([&RUN[..], &["--seed", "7", "--out", "a"]].concat());
    let said = Said::new(command.output().unwrap());
    assert_ne!(said.code, Some(0));
    let expected = "rank 1 has another configuration than rank 0: 'seed = 7' instead of 'seed = 0'; start all ranks with one command";
    assert!(said.error.contains(expected), "{said:?}");
    assert!(!place.path("a/metrics.jsonl").exists());
}

/// Six short runs.
const COMPARE: [&str; 9] =
    ["compare", "feature-l2", "--methods", "langevin-adjoint,rmd", "--seeds", "3", "--outer", "4", "--quiet"];
const ITEMS: [&str; 6] =
    ["langevin-adjoint-s0", "langevin-adjoint-s1", "langevin-adjoint-s2", "rmd-s0", "rmd-s1", "rmd-s2"];

#[test]
fn a_comparison_on_several_ranks_has_the_items_of_one_to_the_bit_and_one_report() {
    let place = Place::new();
    place.run(&[&COMPARE[..], &["--out", "alone"]].concat()).done();
    for ranks in [2, 3] {
        let folder = format!("on{ranks}");
        let Some(mut command) = on_ranks(&place, ranks, &[&COMPARE[..], &["--out", &folder]].concat()) else { return };
        let said = Said::new(command.output().unwrap());
        assert_eq!(said.code, Some(0), "{said:?}");
        for item in ITEMS {
            let of = |folder: &str| found(&place, &format!("{folder}/{item}"));
            assert_eq!(of(&folder), of("alone"), "{item}");
        }
        assert!(
            place.path(&format!("{folder}/report.html")).exists()
                && place.path(&format!("{folder}/rows.jsonl")).exists()
        );
        // Nothing is left to do, on any number of ranks.
        let again = place.run(&[&COMPARE[..8], &["--out", &folder]].concat());
        assert_eq!(again.error.matches("already done").count(), 6, "{again:?}");
    }
}

#[test]
fn a_sweep_whose_rank_is_killed_ends_and_the_same_command_finishes_it() {
    let place = Place::new();
    let sweep = [
        "run",
        "feature-l2",
        "--outer",
        "60",
        "--set",
        "seed=1,2,3,4",
        "--set",
        "checkpoint.every=1",
        "--out",
        "sweep",
    ];
    let Some(mut command) = on_ranks(&place, 2, &sweep) else { return };
    let mut run = command.spawn().unwrap();
    wait_until(&mut run, || place.path("sweep/seed=2/metrics.jsonl").exists());
    let process = ranks_of(&run)[1];
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
    let (said, _) = ended(run);
    assert_ne!(said.code, Some(0), "{said:?}");
    assert!(!place.path("sweep/rows.jsonl").exists());
    let said = Said::new(on_ranks(&place, 3, &sweep).unwrap().output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    place.run(&["run", "feature-l2", "--outer", "60", "--seed", "2", "--out", "alone"]).done();
    assert_eq!(found(&place, "sweep/seed=2"), found(&place, "alone"));
}

#[test]
fn an_item_that_fails_on_any_rank_is_named_once_by_rank_0_and_the_others_are_kept() {
    let place = Place::new();
    let few = COMPARE.map(|word| if word == "3" { "1" } else { word });
    place.run(&[&few[..], &["--out", "both"]].concat()).done();
    // A file where the folder of an item should be.
    std::fs::write(place.path("both/rmd-s1"), "in the way").unwrap();
    let Some(mut command) = on_ranks(&place, 2, &[&COMPARE[..], &["--out", "both"]].concat()) else { return };
    let said = Said::new(command.output().unwrap());
    assert_ne!(said.code, Some(0), "{said:?}");
    assert_eq!(said.error.matches("rmd-s1 failed: ").count(), 1, "{said:?}");
    assert!(place.path("both/rmd-s0/result.json").exists());
    std::fs::remove_file(place.path("both/rmd-s1")).unwrap();
    let said = Said::new(on_ranks(&place, 2, &[&COMPARE[..], &["--out", "both"]].concat()).unwrap().output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn chains_on_several_ranks_have_the_bits_of_one() {
    let place = Place::new();
    let run = ["run", "synth1d", "--outer", "20", "--set", "chains=5", "--quiet"];
    place.run(&[&run[..], &["--out", "alone"]].concat()).done();
    let Some(mut command) = on_ranks(&place, 2, &[&run[..], &["--out", "two"]].concat()) else { return };
    let said = Said::new(command.output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(found(&place, "two"), found(&place, "alone"));
}

#[test]
fn a_command_that_ranks_cannot_share_is_refused_once() {
    let place = Place::new();
    let Some(mut command) = on_ranks(&place, 2, &["check", "synth1d"]) else { return };
    let said = Said::new(command.output().unwrap());
    assert_ne!(said.code, Some(0));
    let sentence = "bilevel: only 'bilevel run', 'resume', 'compare' and 'reproduce' run on several ranks";
    assert_eq!(said.error.matches(sentence).count(), 1, "{said:?}");
}

/// The processes that a launcher has started.
fn ranks_of(launcher: &Child) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok());
        parent == Some(launcher.id()) && stat.contains("(bilevel)")
    };
    processes.filter(is_child).collect()
}

fn wait_until(run: &mut Child, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(run.try_wait().unwrap().is_none(), "the run ended too soon");
        assert!(since.elapsed() < Duration::from_secs(120), "the run does not get on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the launcher to end after a rank has; fails where it hangs.
fn ended(mut run: Child) -> (Said, Duration) {
    let since = Instant::now();
    while run.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < Duration::from_secs(120), "the other ranks do not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    (Said::new(run.wait_with_output().unwrap()), since.elapsed())
}

/// Kills a rank after so many iterations, and resumes on so many ranks; the run must be the one that was not killed.
fn kill_and_resume(place: &Place, folder: &str, (ranks, victim): (usize, usize), on: usize, after: usize) -> Duration {
    let mut command = on_ranks(place, ranks, &[&RUN[..], &["--out", folder]].concat()).unwrap();
    let mut run = command.spawn().unwrap();
    let metrics = place.path(&format!("{folder}/metrics.jsonl"));
    let lines = || std::fs::read_to_string(&metrics).map_or(0, |text| text.lines().count());
    wait_until(&mut run, || lines() >= after);
    if let Some(process) = ranks_of(&run).get(victim) {
        let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
    }
    let (said, took) = ended(run);
    // The run may have been faster than the kill.
    if !place.path(&format!("{folder}/result.json")).exists() {
        assert_ne!(said.code, Some(0), "{said:?}");
        let said = match on {
            1 => place.run(&["resume", folder]),
            _ => Said::new(on_ranks(place, on, &["resume", folder]).unwrap().output().unwrap()),
        };
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    took
}

#[test]
fn a_killed_rank_ends_the_others_and_the_run_resumes_on_any_number_of_ranks() {
    let place = Place::new();
    let Some(mut command) = on_ranks(&place, 2, &[&RUN[..], &["--out", "whole"]].concat()) else { return };
    assert!(command.output().unwrap().status.success());
    let whole = found(&place, "whole");
    for (number, (victim, on, after)) in [(0, 2, 1), (1, 2, 3), (1, 1, 2), (0, 4, 4)].into_iter().enumerate() {
        let folder = format!("killed{number}");
        kill_and_resume(&place, &folder, (2, victim), on, after);
        let resumed = found(&place, &folder);
        match on {
            2 => assert_eq!(resumed, whole, "resumed on as many ranks, the bits are the same"),
            _ => assert!(distance(&whole.0, &resumed.0) < 1e-9 && distance(&whole.1, &resumed.1) < 1e-9),
        }
    }
}

/// `BILEVEL_KILLS=100 cargo test --release -p bilevel-cli --test it ranks::killed -- --ignored --nocapture`
#[test]
#[ignore = "kills a rank as often as BILEVEL_KILLS says; run it by hand"]
fn killed_at_random_moments_a_run_always_ends_and_resumes() {
    let kills: usize = std::env::var("BILEVEL_KILLS").map_or(20, |text| text.parse().unwrap());
    let place = Place::new();
    let mut command = on_ranks(&place, 2, &[&RUN[..], &["--out", "whole"]].concat()).expect("there is no mpirun");
    assert!(command.output().unwrap().status.success());
    let whole = found(&place, "whole");
    let mut slowest = Duration::ZERO;
    let mut dice = bilevel_graph::conformance::Dice::new(39);
    for kill in 0..kills {
        let folder = format!("killed{kill}");
        let took = kill_and_resume(&place, &folder, (2, dice.below(2)), 2, dice.below(8));
        slowest = slowest.max(took);
        assert_eq!(found(&place, &folder), whole, "kill {kill}");
    }
    println!(
        "{kills} kills: every run resumed to the same bits; the launch ended within {:.1} s",
        slowest.as_secs_f64()
    );
}

#[test]
fn a_request_to_stop_is_followed_by_all_ranks_and_leaves_a_checkpoint() {
    let place = Place::new();
    let many = RUN.map(|word| if word == "8" { "100000" } else { word });
    let Some(mut command) = on_ranks(&place, 2, &[&many[..], &["--out", "a"]].concat()) else { return };
    let mut run = command.spawn().unwrap();
    wait_until(&mut run, || place.path("a/metrics.jsonl").exists());
    // One rank alone is asked; the others follow it.
    let process = ranks_of(&run)[1];
    assert!(Command::new("kill").args(["-INT", &process.to_string()]).status().unwrap().success());
    let (said, _) = ended(run);
    assert!(said.error.contains("continue with 'bilevel resume a'"), "{said:?}");
    let done = place.read("a/metrics.jsonl").lines().count();
    let further = (done + 2).to_string();
    place.run(&["resume", "a", "--outer", &further]).done();
    assert_eq!(place.read("a/metrics.jsonl").lines().count(), done + 2);
}
