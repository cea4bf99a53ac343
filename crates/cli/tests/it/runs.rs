//! Many runs at once: the list, filters, the best, removal, and tables for other programs.

use crate::common::Place;
use serde_json::Value;

/// Three short runs and one inside a sweep's folder, with names and tags.
fn some() -> Place {
    let place = Place::new();
    let run = |arguments: &[&str]| {
        place.run(&[&["run", "synth1d", "--method", "rmd", "--quiet"][..], arguments].concat()).done();
    };
    run(&["--iterations", "5", "--rate", "0.01", "--out", "runs/a", "--tag", "base", "--name", "first"]);
    run(&["--iterations", "5", "--rate", "0.1", "--out", "runs/b", "--tag", "base", "--tag", "fast"]);
    run(&["--iterations", "5", "--rate", "0.1", "--seed", "2", "--out", "runs/deep/er/c"]);
    place
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(place: &Place, arguments: &[&str]) -> Vec<String> {
    let listed = place.run(&[&["runs", "--json"][..], arguments].concat()).done();
    lines(&listed.out).iter().map(|run| run["run"].as_str().unwrap().to_string()).collect()
}

#[test]
fn the_list_has_what_differs_and_no_more() {
    let place = some();
    let text = place.run(&["runs"]).done().out;
    let head: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(head[0], "3 runs, synth1d, rmd");
    for column in ["run", "name", "settings", "status", "iterations", "outer loss", "begun (UTC)", "tags"] {
        assert!(head[1].contains(column), "{column}: {text}");
    }
    assert!(!head[1].contains("method") && text.contains("rate=0.01") && text.contains("seed=2"), "{text}");
    assert!(text.contains("finished") && text.contains("5/5") && text.contains("base fast"), "{text}");
    let all = lines(&place.run(&["runs", "--json"]).done().out);
    assert_eq!(all[0]["settings"]["outer.rate"], 0.01);
    assert_eq!(
        (&all[0]["name"], &all[0]["status"], &all[0]["iterations"]),
        (&"first".into(), &"finished".into(), &5.into())
    );
    assert_eq!(place.run(&["runs", "-q"]).done().out, "runs/a\nruns/b\nruns/deep/er/c\n");
    std::fs::create_dir(place.path("empty")).unwrap();
    assert_eq!(place.run(&["runs", "empty"]).done().out, "no runs in empty\n");
    let gone = place.run(&["runs", "gone"]);
    assert_eq!((gone.code, gone.error.lines().count()), (Some(2), 1), "{gone:?}");
}

#[test]
fn runs_are_filtered_and_sorted_by_any_key() {
    let place = some();
    assert_eq!(names(&place, &["--filter", "outer.rate=0.1"]), ["b", "deep/er/c"]);
    assert_eq!(names(&place, &["--filter", "outer.rate<0.05"]), ["a"]);
    assert_eq!(names(&place, &["--filter", "seed!=0"]), ["deep/er/c"]);
    assert_eq!(names(&place, &["--tag", "base"]), ["a", "b"]);
    assert_eq!(names(&place, &["--tag", "base", "--tag", "fast"]), ["b"]);
    assert_eq!(names(&place, &["--filter", "tag!=base"]), ["deep/er/c"]);
    assert_eq!(names(&place, &["--task", "synth1d", "--filter", "name=first"]), ["a"]);
    assert_eq!(names(&place, &["--task", "digits-l2"]), [""; 0]);
    assert_eq!(names(&place, &["--sort", "outer.rate"])[0], "a");
    assert_eq!(names(&place, &["--sort", "seed", "--reverse"])[0], "deep/er/c");
    let by_loss = lines(&place.run(&["runs", "--json", "--sort", "outer_loss"]).done().out);
    let losses: Vec<f64> = by_loss.iter().map(|run| run["outer_loss"].as_f64().unwrap()).collect();
    assert!(losses.is_sorted(), "{losses:?}");
    place
        .run(&["runs", "--sort", "outer.rat"])
        .refused("--sort outer.rat: no run has this key; did you mean outer.rate?");
    place
        .run(&["runs", "--filter", "nonsense"])
        .refused("--filter nonsense: it must have the form KEY=VALUE, KEY!=VALUE, KEY<VALUE or KEY>VALUE");
    place.run(&["runs", "--filter", "seed<x"]).refused("--filter seed<x: \"x\" is not a number");
}

#[test]
fn the_best_is_named_and_losses_of_different_tasks_are_not_compared() {
    let place = some();
    let all = lines(&place.run(&["runs", "--json"]).done().out);
    let least = all
        .iter()
        .min_by(|a, b| a["outer_loss"].as_f64().unwrap().total_cmp(&b["outer_loss"].as_f64().unwrap()))
        .unwrap();
    let best = place.run(&["runs", "best", "-q"]).done().out;
    assert_eq!(best.trim(), least["path"].as_str().unwrap());
    let said = place.run(&["runs", "best"]).done().out;
    assert!(said.contains("the lowest of 3 finished runs of synth1d by rmd"), "{said}");
    let highest =
        place.run(&["runs", "best", "--by", "outer.rate", "--highest", "--filter", "seed=2", "--json"]).done().out;
    assert_eq!(lines(&highest)[0]["run"], "deep/er/c");
    place.run(&["run", "quadratics", "--iterations", "1", "--out", "runs/q", "--quiet"]).done();
    let two = place.run(&["runs", "best"]);
    assert_eq!(two.code, Some(2));
    assert!(two.error.contains("losses of different tasks cannot be compared; choose one with --task"), "{two:?}");
    place.run(&["runs", "best", "--task", "synth1d", "-q"]).done();
    place
        .run(&["runs", "best", "--filter", "seed=77"])
        .refused("no finished run in runs has a number for outer_loss; 'bilevel runs' lists all");
}

#[test]
fn only_runs_are_removed_and_nothing_that_no_run_wrote() {
    let place = some();
    place
        .run(&["runs", "remove", "runs/a"])
        .refused("these are 1 run: there is no terminal for a confirmation; use --yes to remove them without one");
    place.run(&["runs", "remove", "runs", "--yes"]).refused("runs holds no run; 'bilevel runs' lists the runs");
    place.write("runs/b/thesis.tex", "years of work");
    place
        .run(&["runs", "remove", "runs/a", "runs/b", "--yes"])
        .refused("runs/b contains thesis.tex, which is not part of a run; move it away first");
    assert!(place.path("runs/a/result.json").is_file(), "all are looked at before the first is removed");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(place.path("runs/a"), place.path("link")).unwrap();
        let link = place.run(&["runs", "remove", "link", "--yes"]);
        assert!(link.error.contains("link is a link"), "{link:?}");
    }
    assert_eq!(place.run(&["runs", "remove", "runs/a", "--yes"]).done().out, "removed runs/a\n");
    assert!(!place.path("runs/a").exists() && place.path("runs/b/thesis.tex").is_file());
    assert_eq!(place.run(&["runs", "remove", "runs/a", "--yes"]).code, Some(2));
}

#[test]
fn damaged_folders_are_listed_as_such_and_stop_nothing() {
    let place = some();
    let result = place.read("runs/a/result.json");
    place.write("runs/a/result.json", &result[..result.len() / 2]);
    place.write("runs/b/config.toml", "task.name = ");
    let metrics = place.read("runs/deep/er/c/metrics.jsonl");
    std::fs::remove_file(place.path("runs/deep/er/c/result.json")).unwrap();
    // A line that is being written is not seen.
    place.write("runs/deep/er/c/metrics.jsonl", &metrics[..metrics.len() - 5]);
    let all = lines(&place.run(&["runs", "--json"]).done().out);
    let states: Vec<&str> = all.iter().map(|run| run["status"].as_str().unwrap()).collect();
    assert_eq!(states, ["damaged", "damaged", "unfinished"]);
    assert_eq!(all[2]["iterations"], 4);
    assert!(place.run(&["runs"]).done().out.contains("damaged"));
}

#[test]
fn metrics_are_exported_as_one_table() {
    let place = some();
    let said = place.run(&["export", "runs", "--csv", "all.csv"]).done();
    assert_eq!(said.out, "15 rows of 3 runs are in all.csv\n");
    let csv = place.read("all.csv");
    let mut rows = csv.lines();
    let heading: Vec<&str> = rows.next().unwrap().split(',').collect();
    assert_eq!(heading[..6], ["run", "name", "task", "method", "seed", "iteration"]);
    let at =
        |name: &str| heading.iter().position(|column| *column == name).unwrap_or_else(|| panic!("{name}: {heading:?}"));
    let first: Vec<&str> = rows.next().unwrap().split(',').collect();
    assert_eq!(first[..6], ["a", "first", "synth1d", "rmd", "0", "1"]);
    // Floats are those of the metrics, to the bit.
    let line: Value = serde_json::from_str(place.read("runs/a/metrics.jsonl").lines().next().unwrap()).unwrap();
    for column in ["outer_loss", "inner_loss", "seconds"] {
        assert_eq!(
            first[at(column)].parse::<f64>().unwrap().to_bits(),
            line[column].as_f64().unwrap().to_bits(),
            "{column}"
        );
    }
    assert_eq!(first[at("inner_gradients")], line["inner_gradients"].to_string());
    let out = place.run(&["export", "runs/b", "--csv", "-", "--quiet"]).done().out;
    assert_eq!(out.lines().count(), 6);
    place.run(&["export", "runs", "--parquet", "all.parquet", "--quiet"]).done();
    let parquet = std::fs::read(place.path("all.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    place.write("runs/a/metrics.jsonl", "garbage\n");
    let damaged = place.run(&["export", "runs", "--csv", "no.csv"]);
    assert!(damaged.error.contains("runs/a/metrics.jsonl: line 1 is not the metrics of an iteration"), "{damaged:?}");
    place.run(&["export", "runs"]).refused("name a file for the table with --csv FILE or --parquet FILE");
    std::fs::create_dir(place.path("none")).unwrap();
    place.run(&["export", "none", "--csv", "x.csv"]).refused("none holds no run: there is no config.toml in it");
}
