//! A study of one's own in a file: what it prints, what it refuses and where, and a study done in parts.

use crate::common::Place;
use serde_json::Value;

const MINE: &str = r#"title = "Two methods and a baseline"
about = "On the one-dimensional problem."

[settings]
task.name = "synth1d"
outer.iterations = 200

[scale.full]
seeds = 2

[scale.quick]
settings.outer.iterations = 10

[[group]]
name = "still"

[[group]]
name = "noisy"
settings.task.noise = 0.3

[[metric]]
name = "λ"
lambda = 0

[[metric]]
name = "distance"
lambda = 0
minus = 0.7489
absolute = true
better = "lower"
rule.beats = "plain training"

[[metric]]
name = "loss"
of = "outer loss"
curve = true

[[row]]
method = "plain training"
settings.method.name = "plain"
metrics = ["distance"]
number = [{ metric = "distance", rule.none = true }]

[[row]]
method = "RMD"
setting = "100 steps"
argument = true
follow = ["trained with it"]
settings.method.name = "rmd"
settings.inner.steps = 100
paper = { still = 0.7360, noisy = 0.7363 }
rule.within = 0.2
why = "it has not arrived"

[[follow]]
name = "trained with it"
start = true
settings.method.name = "plain"
settings.outer.iterations = 5
"#;

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn find<'a>(rows: &'a [Value], method: &str, setting: &str, metric: &str) -> &'a Value {
    let is = |row: &&Value| row["method"] == method && row["setting"] == setting && row["metric"] == metric;
    rows.iter().find(is).unwrap_or_else(|| panic!("{method}, {setting}, {metric}: {rows:#?}"))
}

#[test]
fn a_study_in_a_file_has_rows_by_group_with_verdicts_and_what_is_trained_with_the_lambda_it_found() {
    let place = Place::new();
    place.write("mine.toml", MINE);
    let said = place.run(&["reproduce", "mine.toml", "--json", "--out", "kept"]).done();
    let rows = rows(&said.out);
    assert_eq!(place.read("kept/rows.jsonl"), said.out);
    assert!(rows.iter().all(|row| row["study"] == "mine"));
    let rmd = find(&rows, "RMD", "still, 100 steps", "λ");
    assert_eq!((&rmd["paper"], &rmd["verdict"], &rmd["seeds"]), (&0.736.into(), &"reproduced".into(), &2.into()));
    let closer = find(&rows, "RMD", "noisy, 100 steps", "distance");
    assert_eq!(closer["verdict"], "better than the reference", "{closer}");
    assert_eq!(closer["reference"], find(&rows, "plain training", "noisy", "distance")["ours"]);
    // λ stays where it was found, so that it is as far away.
    let follow = find(&rows, "RMD, trained with it", "still, 100 steps", "distance");
    assert_eq!((&follow["ours"], &follow["seeds"]), (&found(&place, "kept/still-rmd-100-steps-0"), &1.into()));
    let page = place.read("kept/report.html");
    assert!(
        page.contains("On the one-dimensional problem.") && page.contains("still: loss"),
        "no curves over iterations"
    );
    let quick = place.run(&["reproduce", "mine.toml", "--quick", "--json"]).done();
    let held = quick.out.contains("0.736");
    assert!(!held, "a quick study is held against nothing: {}", quick.out);
}

/// The distance of λ in the folder of a run.
fn found(place: &Place, folder: &str) -> Value {
    let result: Value = serde_json::from_str(&place.read(&format!("{folder}/result.json"))).unwrap();
    let lambda = result["lambda"][0]["values"][0].as_f64().unwrap();
    (lambda - 0.7489).abs().into()
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_line_and_key() {
    let place = Place::new();
    let refused = |from: &str, to: &str, sentence: &str| {
        assert!(MINE.contains(from), "{from}");
        place.write("mine.toml", &MINE.replacen(from, to, 1));
        place.run(&["reproduce", "mine.toml", "--out", "none"]).refused(&format!("mine.toml, {sentence}"));
        assert!(!place.path("none").exists(), "nothing is begun");
    };
    refused("title =", "titel =", "line 1: title is missing");
    refused(
        "argument = true",
        "argumnet = true",
        "line 47: there is no key 'row.argumnet'; did you mean row.argument?",
    );
    refused(
        "seeds = 2",
        "seeds = \"two\"",
        "line 9: scale.full.seeds takes a whole number, at least 0, not the string \"two\"",
    );
    refused("task.noise", "task.nosie", "line 19: there is no key 'task.nosie'; did you mean task.noise?");
    refused("steps = 100", "steps = 1.5", "line 50: inner.steps takes a whole number, not the number 1.5");
    refused("\"rmd\"", "\"rdm\"", "line 49: there is no method 'rdm'; did you mean rmd?");
    refused(
        "follow = [\"trained with it\"]",
        "follow = [\"trained\"]",
        "line 48: row.follow cannot be 'trained'; did you mean trained with it?",
    );
    refused(
        "metric = \"distance\"",
        "metric = \"distnace\"",
        "line 42: row.number.metric cannot be 'distnace'; did you mean distance?",
    );
    refused(
        "rule.within = 0.2",
        "rule.witin = 0.2",
        "line 52: there is no key 'row.rule.witin'; did you mean row.rule.within?",
    );
    refused("noisy = 0.7363", "nosiy = 0.7363", "line 51: row.paper cannot be 'nosiy'; did you mean noisy?");
    refused(
        "lambda = 0",
        "lambda = 0\nof = \"outer loss\"",
        "line 21: a metric has one of: of = MEASURE, best = MEASURE, lambda = NUMBER, lambda_but = NUMBER, diverged = true",
    );
    refused("title", "[[title", "line 1: this is not TOML: unclosed array table, expected `]]`");
    place
        .run(&["reproduce", "other.toml"])
        .refused("other.toml, line 1: it cannot be read: No such file or directory (os error 2)");
}

#[test]
fn a_study_in_parts_that_are_packed_and_unpacked_has_the_rows_of_one_that_was_not_interrupted_byte_for_byte() {
    let place = Place::new();
    // Long enough that a second is not enough.
    place.write("mine.toml", &MINE.replace("outer.iterations = 200", "outer.iterations = 8_000"));
    place.run(&["reproduce", "mine.toml", "--quiet", "--jobs", "2", "--out", "whole"]).done();
    let mut parts = 0;
    while !place.path(&format!("part-{parts}/rows.jsonl")).exists() {
        parts += 1;
        assert!(parts < 200, "it does not get on");
        let (out, before, after) = (format!("part-{parts}"), format!("pack-{}", parts - 1), format!("pack-{parts}"));
        let limit = if parts < 3 { "1s" } else { "1h" };
        let arguments = ["reproduce", "mine.toml", "--time-limit", limit, "--jobs", "2", "--json"];
        let said =
            place.run(&[&arguments[..], &["--out", &out, "--unpack", &before, "--pack", &after]].concat()).done();
        assert!(said.error.contains("the study is packed in 1 file in "), "{said:?}");
        let ended = said.error.contains("the time limit is reached: ");
        assert_eq!(ended, !place.path(&format!("{out}/rows.jsonl")).exists(), "{said:?}");
        assert!(place.path(&format!("{out}/report.html")).exists(), "what is done is reported");
    }
    assert!(parts > 1, "a second was enough for all of it");
    assert_eq!(place.read(&format!("part-{parts}/rows.jsonl")), place.read("whole/rows.jsonl"));
}

#[test]
fn rows_can_be_chosen_and_what_is_done_is_reported_without_more_work() {
    let place = Place::new();
    place.write("mine.toml", MINE);
    let said = place.run(&["reproduce", "mine.toml", "--only", "still-rmd", "--json", "--out", "kept"]).done();
    assert!(said.error.contains("3 items selected by --only are done"), "{said:?}");
    let rows = rows(&said.out);
    assert!(find(&rows, "RMD", "still, 100 steps", "λ")["ours"].is_number());
    let noisy = find(&rows, "RMD", "noisy, 100 steps", "λ");
    assert_eq!((&noisy["verdict"], &noisy["reason"]), (&"not run".into(), &"not done yet".into()));
    assert!(!place.path("kept/rows.jsonl").exists() && !place.path("kept/noisy-rmd-100-steps-0").exists());
    let report = place.run(&["reproduce", "mine.toml", "--report", "--json", "--out", "kept"]).done();
    assert_eq!(report.out, said.out);
    place.run(&["reproduce", "mine.toml", "--json", "--quiet", "--out", "kept"]).done();
    assert!(place.path("kept/rows.jsonl").exists());
    place
        .run(&["reproduce", "all", "--only", "rmd"])
        .refused("--only, --pack and --unpack are of one study; name one instead of 'all'");
    let scale = place.run(&["reproduce", "mine.toml", "--scale", "papr"]);
    assert_eq!(
        scale.error,
        "bilevel: invalid value 'papr' for '--scale <quick|full|paper>': 'papr' is not a scale; use quick, full or paper; see 'bilevel --help'\n"
    );
}
