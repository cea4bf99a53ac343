//! Options that a run takes: short names for common keys, what decides when it stops and what it returns, and what is said of it.

use crate::common::Place;
use serde_json::Value;

fn json(place: &Place, arguments: &[&str]) -> Value {
    serde_json::from_str(&place.run(&[arguments, &["--json"]].concat()).done().out).unwrap()
}

#[test]
fn iterations_rate_and_start_are_short_for_their_keys_and_outer_for_iterations() {
    let place = Place::new();
    let dry = |more: &[&str]| place.run(&[&["run", "synth1d", "--dry-run"], more].concat()).done().out;
    let short = dry(&["--iterations", "7", "--rate", "0.5", "--start", "l.safetensors"]);
    let set = ["--set", "outer.iterations=7", "--set", "outer.rate=0.5", "--set", "start.lambda=l.safetensors"];
    assert_eq!(short, dry(&set));
    assert_eq!(dry(&["--outer", "7"]), dry(&["--iterations", "7"]));
    for (arguments, said) in [
        (vec!["--rate", "nan"], "--rate NaN: outer.rate is NaN but must be finite"),
        (vec!["--rate", "inf"], "--rate inf: outer.rate is inf but must be finite"),
        (vec!["--rate", "-1"], "--rate -1: outer.rate is -1 but must be above 0"),
        (vec!["--rate", "0"], "--rate 0: outer.rate is 0 but must be above 0"),
        (vec!["--iterations", "0"], "--iterations 0: outer.iterations is 0 but must be at least 1"),
    ] {
        place.run(&[&["run", "synth1d"], &arguments[..]].concat()).refused(said);
    }
    for nonsense in [["--rate", "fast"], ["--iterations", "-3"], ["--iterations", "many"]] {
        let said = place.run(&["run", "synth1d", nonsense[0], nonsense[1]]);
        assert_eq!((said.code, said.error.lines().count()), (Some(2), 1), "{said:?}");
    }
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0, "a refused run leaves nothing");
}

#[test]
fn a_run_starts_from_the_lambda_of_another_and_a_comparison_and_a_check_do_too() {
    let place = Place::new();
    let quiet = ["--method", "rmd", "--quiet"];
    place.run(&[&["run", "synth1d", "--iterations", "5", "--out", "a"], &quiet[..]].concat()).done();
    let start = ["--start", "a/lambda.safetensors"];
    let go = ["run", "synth1d", "--iterations", "1", "--rate", "1e-12", "--out", "b"];
    place.run(&[&go[..], &quiet, &start].concat()).done();
    let lambda = |run: &str| -> Value {
        let result: Value = serde_json::from_str(&place.read(&format!("{run}/result.json"))).unwrap();
        result["lambda"][0]["values"][0].clone()
    };
    let [a, b] = ["a", "b"].map(|run| lambda(run).as_f64().unwrap());
    assert!((a - b).abs() < 1e-9 && (a - 0.1).abs() > 1e-4, "{a} {b}");
    place.run(&[&["check", "synth1d", "--method", "rmd", "--quiet"][..], &start].concat()).done();
    let compare =
        ["compare", "synth1d", "--methods", "rmd", "--seeds", "1", "--iterations", "2", "--quiet", "--out", "c"];
    place.run(&[&compare[..], &start].concat()).done();
    assert!(place.read("c/rmd-s0/config.toml").contains("lambda = \"a/lambda.safetensors\""));
    // What is no λ, or not this one's.
    let missing = place.run(&["run", "synth1d", "--start", "gone.safetensors"]);
    assert_eq!((missing.code, missing.error.lines().count()), (Some(2), 1), "{missing:?}");
    assert!(missing.error.contains("cannot start from gone.safetensors"), "{missing:?}");
    let bytes = std::fs::read(place.path("a/lambda.safetensors")).unwrap();
    std::fs::write(place.path("cut.safetensors"), &bytes[..bytes.len() / 2]).unwrap();
    for wrong in ["cut.safetensors", "a/config.toml"] {
        let said = place.run(&["run", "synth1d", "--start", wrong, "--out", "wrong"]);
        assert_eq!((said.code, said.error.lines().count()), (Some(2), 1), "{said:?}");
    }
    let other =
        place.run(&["run", "digits-l2", "--iterations", "1", "--start", "a/lambda.safetensors", "--out", "other"]);
    assert_eq!((other.code, other.error.lines().count()), (Some(2), 1), "{other:?}");
}

#[test]
fn the_best_measurement_is_returned_if_it_is_asked_for() {
    let place = Place::new();
    // At this rate λ passes its optimum and comes back.
    let run = ["run", "digits-l2", "--method", "ift-cg", "--iterations", "30", "--set", "metrics.every=2"];
    let more = ["--set", "held_out.compare=false", "--set", "outer.keep_best=lowest outer loss"];
    let found = json(&place, &[&run[..], &more, &["--out", "best", "--quiet"]].concat());
    let best = &found["best"];
    assert_eq!(best["measure"], "outer", "{found:#}");
    assert!((1..=15).any(|n| best["iteration"] == 2 * n), "{best}");
    assert!(found["guard"].is_null(), "the measure decides, not held-out rows");
    // The measures are those at the best.
    let last = json(&place, &[&run[..], &more[..2], &["--out", "last", "--quiet"]].concat());
    assert!(last["best"].is_null());
    let metrics = place.read("best/metrics.jsonl");
    let line = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let at_best = line.into_iter().find(|line| line["iteration"] == best["iteration"]).unwrap();
    assert_eq!(found["measures"]["test accuracy"], at_best["measures"]["test accuracy"]);
    // Stopped and resumed, it returns the same.
    place.run(&[&run[..4], &["--iterations", "10"], &run[6..], &more, &["--out", "part", "--quiet"]].concat()).done();
    place.run(&["resume", "part", "--iterations", "30", "--quiet"]).done();
    assert_eq!(place.read("part/result.json"), place.read("best/result.json"));
    let bytes = |run: &str| std::fs::read(place.path(&format!("{run}/lambda.safetensors"))).unwrap();
    assert_eq!(bytes("part"), bytes("best"));
    let said =
        place.run(&["run", "digits-l2", "--iterations", "1", "--set", "outer.keep_best=highest acuracy", "--out", "x"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.error.contains("there is no measure 'acuracy'"), "{said:?}");
}

#[test]
fn patience_can_follow_a_measure() {
    let place = Place::new();
    let run =
        ["run", "digits-l2", "--method", "ift-cg", "--iterations", "200", "--set", "metrics.every=1", "--out", "p"];
    let patience = ["--set", "outer.patience=3", "--set", "outer.patience_on=highest test accuracy"];
    let less = ["--set", "outer.improvement=0.5", "--set", "held_out.compare=false", "--quiet"];
    let found = json(&place, &[&run[..], &patience, &less].concat());
    assert_eq!((&found["stopped"], &found["iterations"]), (&"patience".into(), &4.into()), "{found:#}");
    assert_eq!(found["because"], "the metric 'test accuracy' no longer improves");
}

#[test]
fn a_time_limit_ends_a_run_with_its_results_and_a_resumed_run_goes_on() {
    let place = Place::new();
    let run =
        ["run", "synth1d", "--method", "rmd", "--iterations", "4000000", "--set", "outer.time_limit=1s", "--out", "t"];
    let found = json(&place, &[&run[..], &["--quiet"]].concat());
    assert_eq!((&found["stopped"], &found["because"]), (&"time".into(), &"the time limit was reached".into()));
    let done = found["iterations"].as_u64().unwrap();
    assert!(place.path("t/lambda.safetensors").is_file() && done < 4_000_000);
    // A longer run with another limit is the same run.
    let text = place.read("t/config.toml").replace("time_limit = \"1s\"", "time_limit = \"\"");
    place.write("t/config.toml", &text);
    let more = (done + 5).to_string();
    let resumed = json(&place, &["resume", "t", "--iterations", &more, "--quiet"]);
    assert_eq!((&resumed["iterations"], &resumed["stopped"]), (&(done + 5).into(), &"iterations".into()));
}

#[test]
fn keys_that_cannot_be_are_refused_with_what_they_must_be() {
    let place = Place::new();
    let aim = "'lowest' or 'highest' and a measure, such as 'highest accuracy' or 'lowest outer loss', or empty";
    for (set, said) in [
        (
            "outer.time_limit=9",
            "outer.time_limit takes a string such as '90s', '9m' or '1h30m', not the whole number 9".to_string(),
        ),
        ("outer.keep_best=true", "outer.keep_best takes a string such as 'highest accuracy', not true".into()),
        (
            "outer.time_limit=soon",
            "outer.time_limit is \"soon\" but must be a time such as 90s, 9m or 1h30m, or empty".into(),
        ),
        ("outer.keep_best=accuracy", format!("outer.keep_best is \"accuracy\" but must be {aim}")),
        ("outer.keep_bets=x", "there is no key 'outer.keep_bets'; did you mean outer.keep_best?".into()),
        ("about.nmae=x", "there is no key 'about.nmae'; did you mean about.name?".into()),
        ("about.tags=[1]", "about.tags[0] takes a string, not the whole number 1".into()),
        (
            "include=base.toml",
            "only a configuration file can include another; name the file instead of the task".into(),
        ),
    ] {
        place.run(&["run", "synth1d", "--dry-run", "--set", set]).refused(&format!("--set {set}: {said}"));
    }
    let both = ["--set", "outer.patience_on=lowest outer loss"];
    let said = place.run(&[&["run", "synth1d", "--dry-run"][..], &both].concat());
    said.refused("outer.patience is 0 but must be at least 1 if outer.patience_on is given");
    let guard = ["--set", "held_out.patience=2", "--set", "outer.keep_best=lowest outer loss"];
    let said = place.run(&[&["run", "digits-l2", "--dry-run"][..], &guard].concat());
    said.refused("--set held_out.patience=2: held_out.patience is 2 but must be 0 if outer.keep_best is given");
}

#[test]
fn name_tags_and_note_are_kept_and_may_be_changed_without_making_another_run_of_it() {
    let place = Place::new();
    let about = ["--name", "first try", "--tag", "baseline", "--tag", "λ", "--note", "two\nlines \"quoted\""];
    place.run(&[&["run", "synth1d", "--iterations", "3", "--out", "a", "--quiet"][..], &about].concat()).done();
    let kept = place.read("a/config.toml");
    assert!(kept.contains("name = \"first try\"") && kept.contains("tags = [\"baseline\", \"λ\"]"), "{kept}");
    place.run(&["run", "synth1d", "--iterations", "3", "--out", "b", "--quiet"]).done();
    assert_eq!(place.read("a/result.json"), place.read("b/result.json"), "a name changes no result");
    place.write("a/config.toml", &kept.replace("first try", "renamed"));
    place.run(&["resume", "a", "--iterations", "5", "--quiet"]).done();
    assert!(place.read("a/config.toml").contains("name = \"renamed\""));
    let said = place.run(&["run", "synth1d", "--name", &"x".repeat(200)]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.error.contains("about.name is a text of 200 characters but must be at most 120 characters"),
        "{said:?}"
    );
    assert_eq!(place.run(&["run", "synth1d", "--tag", "", "--dry-run"]).code, Some(2));
}

#[test]
fn a_log_without_a_terminal_says_the_rate_and_the_time_left() {
    let place = Place::new();
    let run =
        ["run", "synth1d", "--method", "rmd", "--iterations", "4000000", "--set", "outer.time_limit=3s", "--out", "t"];
    let said = place.run(&run).done().error;
    let line = said.lines().find(|line| line.contains(" left")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.starts_with("iteration ") && line.contains("/4000000") && line.contains("/s  about "), "{line}");
}
