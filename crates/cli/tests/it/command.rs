//! The command as a person meets it: what it prints, and what it answers to bad input.

use crate::common::{Place, golden};

#[test]
fn help_is_as_stored_and_names_the_exit_codes() {
    let place = Place::new();
    let help = place.run(&["--help"]).done().out;
    assert!(help.contains("Exit codes:") && help.contains("130"));
    golden("help.txt", &help);
    for command in ["list", "devices", "data", "run", "resume", "compare", "check", "advise", "runs", "export", "serve"]
    {
        golden(&format!("help-{command}.txt"), &place.run(&[command, "--help"]).done().out);
    }
    let version = place.run(&["--version"]).done().out;
    assert_eq!(version, format!("bilevel {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_list_is_as_stored_and_its_json_names_the_same() {
    let place = Place::new();
    golden("list.txt", &place.run(&["list"]).done().out);
    let json: serde_json::Value = serde_json::from_str(&place.run(&["list", "--json"]).done().out).unwrap();
    let names = |kind: &str| json[kind].as_array().unwrap().iter().map(|e| e["name"].to_string()).collect::<Vec<_>>();
    assert_eq!(names("tasks").len(), bilevel_cli::everything().tasks().len());
    assert_eq!(names("methods").len(), bilevel::methods::all().len());
}

#[test]
fn a_dry_run_shows_every_key_and_writes_nothing() {
    let place = Place::new();
    let arguments = ["run", "synth1d", "--method", "rmd", "--seed", "3", "--outer", "7", "--set", "inner.step=0.01"];
    let shown = place.run(&[&arguments[..], &["--dry-run"]].concat()).done().out;
    golden("dry-run.toml", &shown);
    assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
    // What it shows is a file that asks for the same.
    place.write("same.toml", &shown);
    assert_eq!(place.run(&["run", "same.toml", "--dry-run"]).done().out, shown);
    // Another method takes its own settings, not those the file has for the first; the inner loop is the run's.
    let other = place.run(&["run", "same.toml", "--method", "hpo-sgld", "--dry-run"]).done().out;
    assert!(other.contains("step = 0.01") && other.contains("seed = 3") && !other.contains("storage"), "{other}");
}

/// The same JSON with numbers to six digits: what is stored was computed on another machine.
fn rounded(json: &str) -> String {
    fn round(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Number(n) if n.is_f64() => {
                *value = format!("{:.5e}", n.as_f64().unwrap()).parse::<f64>().unwrap().into();
            }
            serde_json::Value::Array(all) => all.iter_mut().for_each(round),
            serde_json::Value::Object(all) => all.values_mut().for_each(round),
            _ => {}
        }
    }
    let mut value: serde_json::Value = serde_json::from_str(json).unwrap();
    round(&mut value);
    format!("{value:#}\n")
}

#[test]
fn known_datasets_are_listed_checked_and_refused_in_one_sentence() {
    let place = Place::new();
    let list = place.run(&["data", "list"]).done().out;
    assert!(list.contains("  mnist ") && list.contains("by hand  "), "{list}");
    let json: serde_json::Value = serde_json::from_str(&place.run(&["data", "list", "--json"]).done().out).unwrap();
    assert_eq!(json.as_array().unwrap().len(), bilevel_data::registry::list().len());
    assert!(json[0]["licence"].is_string(), "{json:#}");
    let none = place.run(&["data", "check"]).done();
    assert!(none.out.lines().all(|line| line.ends_with(": not present")), "{none:?}");
    std::fs::create_dir_all(place.path("data/mnist")).unwrap();
    place.write("data/mnist/train-images-idx3-ubyte.gz", "not the digits");
    let damaged = place.run(&["data", "check", "mnist"]);
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    assert!(damaged.out.contains("damaged: it has 14 bytes") && damaged.out.contains(": missing"), "{damaged:?}");
    assert!(damaged.error.ends_with("'bilevel data fetch NAME --data data' downloads them\n"), "{damaged:?}");
    place.run(&["data", "fetch", "mnits"]).refused("there is no dataset 'mnits'; did you mean 'mnist'?");
    let by_hand = place.run(&["data", "fetch", "mini-imagenet"]);
    assert_eq!((by_hand.code, by_hand.error.lines().count()), (Some(2), 1), "{by_hand:?}");
    assert!(by_hand.error.contains("has to be downloaded by hand"), "{by_hand:?}");
}

#[test]
fn a_run_keeps_its_files_and_says_what_it_found() {
    let place = Place::new();
    let said = place.run(&["run", "synth1d", "--method", "rmd", "--outer", "40", "--out", "kept"]).done();
    golden("run.txt", &said.out);
    let lines: Vec<&str> = said.error.lines().collect();
    assert!(lines[0].starts_with("iteration 1/40  outer "), "{said:?}");
    assert!(lines[lines.len() - 1].starts_with("iteration 40/40  outer "), "{said:?}");
    golden("result.json", &rounded(&place.read("kept/result.json")));
    golden("config.toml", &place.read("kept/config.toml"));
    let metrics = place.read("kept/metrics.jsonl");
    assert_eq!(metrics.lines().count(), 40);
    for (number, line) in metrics.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["iteration"], number + 1);
        assert!(line["outer_loss"].is_f64() && line["seconds"].is_f64() && line["inner_gradients"].is_u64());
        assert_eq!(line.get("measures").is_some(), (number + 1) % 20 == 0);
    }
    assert!(place.path("kept/lambda.safetensors").is_file());
}

#[test]
fn without_a_folder_runs_are_numbered_under_runs() {
    let place = Place::new();
    for _ in 0..2 {
        let said = place.run(&["run", "quadratics", "--outer", "2", "--quiet"]).done();
        assert_eq!((said.out.as_str(), said.error.as_str()), ("", ""));
    }
    let mut names: Vec<_> =
        std::fs::read_dir(place.path("runs")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["quadratics-amigo-cg-s0", "quadratics-amigo-cg-s0-2"]);
}

#[test]
fn a_file_and_json_say_the_same_as_arguments_and_the_folder() {
    let place = Place::new();
    place.write("my.toml", "task.name = \"quadratics\"\nseed = 2\nchains = 2\n[outer]\niterations = 3\n");
    let said = place.run(&["run", "my.toml", "--out", "a", "--json", "--quiet"]).done();
    assert_eq!(said.out, place.read("a/result.json"));
    let arguments = ["run", "quadratics", "--seed", "2", "--outer", "3", "--set", "chains=2", "--out", "b", "--quiet"];
    place.run(&arguments).done();
    assert_eq!(place.read("a/result.json"), place.read("b/result.json"));
}

#[test]
fn a_result_does_not_depend_on_the_number_of_threads() {
    let place = Place::new();
    for task in ["digits-l2", "sine-initialisation"] {
        let result = |threads: &str| {
            let folder = format!("{task}-{threads}");
            let set = format!("threads={threads}");
            place.run(&["run", task, "--outer", "4", "--set", &set, "--out", &folder, "--quiet", "--json"]).done().out
        };
        assert_eq!(result("1"), result("3"), "{task}");
    }
}

#[test]
fn a_check_shows_derivatives_curvature_and_advice() {
    let place = Place::new();
    let said = place.run(&["check", "quadratics"]).done().out;
    assert!(said.starts_with("quadratics by amigo-cg: 50 hyperparameters, 50 parameters\n"), "{said}");
    assert!(said.contains("Every hyperparameter can influence the outer loss."), "{said}");
    assert!(said.contains("Hessian products: 2.000e-1 to 2.000e0, a condition number of 10.0."), "{said}");
    assert!(said.contains("times the largest curvature is 0.100: stable (below 2) and well chosen."), "{said}");
    assert!(said.contains("The first 10 iterations of a run go well; the outer loss falls from "), "{said}");
    let bold = place.run(&["check", "quadratics", "--set", "inner.step=1.5"]);
    assert!(bold.out.contains("diverges above 2: take a step of at most 5.00e-1"), "{bold:?}");
    let said = place.run(&["check", "sine-initialisation"]).done().out;
    assert!(said.contains("not convex here, so a solve with its Hessian may fail"), "{said}");
    let json = place.run(&["check", "sine-initialisation", "--json"]).done().out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["passed"], &json["idle"]), (&serde_json::json!(true), &serde_json::json!([])));
    assert!(json["curvature"]["largest"].as_f64().unwrap() > 1.0);
    // A tolerance nothing can keep stands for a derivative that is wrong.
    let failed = place.run(&["check", "synth1d", "--tolerance", "1e-300"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.error.starts_with("bilevel: the inner loss has a wrong derivative: "), "{failed:?}");
}

#[test]
fn a_check_does_not_call_it_going_well_where_the_outer_loss_rises() {
    let said = Place::new().run(&["check", "synth1d"]).done().out;
    assert!(!said.contains("go well"), "{said}");
    assert!(said.contains("The first 10 iterations of a run do not diverge, but the outer loss rises from "), "{said}");
    assert!(said.contains("It follows θ as well as λ, so it may rise until training has settled"), "{said}");
}

#[test]
fn check_and_advise_say_the_same_of_the_inner_loss_and_of_the_method() {
    let place = Place::new();
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&place.run(&[arguments, &["--json"]].concat()).done().out).unwrap()
    };
    for task in ["synth1d", "quadratics", "sine-initialisation", "feature-l2"] {
        for method in ["rmd", "langevin-adjoint"] {
            if (task, method) == ("sine-initialisation", "langevin-adjoint") {
                continue;
            }
            let arguments = [task, "--method", method];
            let check = json(&[&["check"], &arguments[..]].concat());
            let advise = json(&[&["advise"], &arguments[..]].concat());
            assert_eq!(check["curvature"], advise["advice"]["situation"]["curvature"], "{task}");
            let sentences = advise["sentences"].as_array().unwrap();
            assert!(sentences.len() >= 2, "{advise:#}");
            let mut said = check["advice"].as_array().unwrap().clone();
            said.push(check["methods"][0]["verdict"].clone());
            for sentence in sentences {
                assert!(said.contains(sentence), "{task} by {method}: {sentence} is not in {said:#?}");
            }
            let [check, advise] =
                ["check", "advise"].map(|command| place.run(&[&[command], &arguments[..]].concat()).done());
            let curvature = |text: &str| text.lines().find(|line| line.starts_with("Curvature of")).map(String::from);
            assert!(curvature(&check.out).is_some() && curvature(&check.out) == curvature(&advise.out), "{task}");
        }
    }
}

#[test]
fn advice_names_a_method_that_then_runs_with_the_settings_it_names() {
    let place = Place::new();
    let said = place.run(&["advise", "quadratics"]).done().out;
    assert!(said.contains("Its gradients have no noise.") && said.contains("Begin with "), "{said}");
    let command = said.lines().find_map(|line| line.trim().strip_prefix("bilevel ")).unwrap();
    let mut arguments: Vec<&str> = command.split_whitespace().collect();
    arguments.extend(["--outer", "2", "--quiet"]);
    place.run(&arguments).done();
    let json = place.run(&["advise", "sine-initialisation", "--json"]).done().out;
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    // Training starts from λ here, which only methods that differentiate through the start can see.
    assert_eq!(found["question"], "the outer loss after 5 steps of training");
    assert_eq!(found["advice"]["ranked"][0]["method"], "rmd");
    let noisy = place.run(&["advise", "feature-l2", "--question", "minimum"]).done().out;
    assert!(noisy.contains("differ from draw to draw"), "{noisy}");
}

#[test]
fn a_check_says_what_a_precision_costs() {
    let place = Place::new();
    let arguments = ["check", "digits-l2", "--precision", "bf16"];
    let said = place.run(&arguments).done().out;
    assert!(said.contains("Derivatives with products in bf16, compared with full precision in 32 bits:\n"), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&place.run(&[&arguments[..], &["--json"]].concat()).done().out).unwrap();
    assert_eq!(json["precision"]["precision"], "bf16");
    let rows = json["precision"]["rows"].as_array().unwrap();
    let quantities: Vec<String> = rows.iter().map(|row| row["quantity"].to_string()).collect();
    let method = r#"{"hypergradient":"langevin-adjoint"}"#;
    assert_eq!(quantities, [r#""gradient""#, r#""hessian_product""#, r#""mixed_product""#, method]);
    for row in rows {
        let (error, cosine) = (row["error"].as_f64().unwrap(), row["cosine"].as_f64().unwrap());
        // The mixed product is elementwise: nothing of it is rounded.
        let range = if row["quantity"] == "mixed_product" { 0.0..1e-6 } else { 1e-5..0.1 };
        assert!(range.contains(&error) && cosine > 0.99, "{row}");
    }
    let full = place.run(&["check", "digits-l2", "--json"]).done().out;
    assert!(full.contains("\"precision\": null"), "{full}");
}

#[test]
fn a_check_says_that_a_run_diverges_where_it_does() {
    let place = Place::new();
    for (task, setting, at) in [("synth1d", "inner.step=3", 1), ("quadratics", "inner.step=1.5", 7)] {
        let run = place.run(&["run", task, "--set", setting, "--quiet", "--out", task]);
        assert!(run.error.starts_with(&format!("bilevel: the run diverged at iteration {at}: ")), "{run:?}");
        let check = place.run(&["check", task, "--set", setting]);
        assert_eq!(check.code, Some(1), "{check:?}");
        assert!(check.out.ends_with(&format!("A run with these settings diverges at iteration {at}.\n")), "{check:?}");
        assert!(!check.out.contains("well chosen") && !check.out.contains("come close to the minimum"), "{check:?}");
        // In the words of the run.
        let (_, seen) = run.error.split_once("diverged at ").unwrap();
        let (seen, _) = seen.split_once("; its last good state").unwrap();
        assert_eq!(check.error, format!("bilevel: a run with these settings diverges at {seen}\n"));
        let json = place.run(&["check", task, "--set", setting, "--json"]);
        let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!((&value["passed"], &value["first_iterations"]["diverged"]), (&false.into(), &seen.into()));
    }
}

#[test]
fn a_run_that_diverges_ends_with_code_1_and_advice() {
    let place = Place::new();
    let wild = ["run", "quadratics", "--method", "rmd", "--set", "inner.step=3", "--outer", "20"];
    let said = place.run(&[&wild[..], &["--out", "far", "--quiet"]].concat());
    assert_eq!((said.code, said.error.lines().count()), (Some(1), 1), "{said:?}");
    assert!(said.error.starts_with("bilevel: the run diverged at iteration "), "{said:?}");
    assert!(said.error.contains("take a smaller"), "{said:?}");
    assert!(place.read("far/result.json").contains("\"stopped\": \"diverged\""));
}

#[test]
fn bad_arguments_are_answered_in_one_sentence_and_code_2() {
    let place = Place::new();
    place.write("wrong.toml", "task.name = \"synth1d\"\n\n[inner]\nstpe = 0.1\n");
    place.write("empty.toml", "");
    place.write("big.toml", &format!("task.name = \"synth1d\"\nseed = {}\n", i64::MAX));
    std::fs::create_dir(place.path("hollow")).unwrap();
    place.write("hollow/config.toml", "");
    std::fs::create_dir(place.path("old")).unwrap();
    place.write("old/config.toml", "task.name = \"synth1d\"\n[method]\nname = \"rmd\"\nstep = 0.1\n");
    place.write("broken.toml", "task.name = synth1d\n");
    let registry = bilevel_cli::everything();
    let tasks = registry.tasks().iter().map(|task| task.name).collect::<Vec<_>>().join(", ");
    for (arguments, sentence) in [
        (
            &["resume", "old"][..],
            "cannot read old/config.toml: it was written by version 0.1, whose runs this version cannot read; start \
                the run again",
        ),
        (&["run", "synht1d"], "there is no task 'synht1d'; did you mean synth1d?"),
        (&["run", "colour"], &format!("there is no task 'colour'; the tasks are {tasks}")),
        (&["run", "synth1d", "--method", "rdm"], "--method rdm: there is no method 'rdm'; did you mean rmd?"),
        (
            &["run", "synth1d", "--set", "inner.stpe=0.1"],
            "--set inner.stpe=0.1: there is no key 'inner.stpe'; did you mean inner.step?",
        ),
        (
            &["run", "synth1d", "--set", "inner.step=fast"],
            "--set inner.step=fast: inner.step takes a number, not the string \"fast\"",
        ),
        (
            &["run", "synth1d", "--set", "method.steps=5"],
            "--set method.steps=5: there is no key 'method.steps'; steps belongs to [inner]: use inner.steps",
        ),
        (
            &["run", "synth1d", "--method", "soba", "--set", "inner.temperature=0.1"],
            "--set inner.temperature=0.1: soba cannot use the temperature of the inner loop: its steps have no \
                Langevin noise; set it to 0",
        ),
        (&["run", "synth1d", "--set", "seed"], "--set seed: it must have the form key=value"),
        (&["run", "synth1d", "--outer", "0"], "--iterations 0: outer.iterations is 0 but must be at least 1"),
        (&["run", "synth1d", "--set", "inner.step=-1"], "--set inner.step=-1: inner.step is -1 but must be above 0"),
        (
            &["run", "synth1d", "--method", "ift-cg", "--set", "method.curvature=gauss"],
            "--set method.curvature=gauss: method.curvature cannot be 'gauss'; did you mean gauss-newton?",
        ),
        (&["run", "wrong.toml"], "wrong.toml, line 4: there is no key 'inner.stpe'; did you mean inner.step?"),
        (
            &["run", "empty.toml"],
            "empty.toml, line 1: it does not say which task to run; add a line such as: task.name = \"synth1d\"",
        ),
        (&["check", "synth1d", "--tolerance", "nan"], "--tolerance is NaN but must be finite and above 0"),
        (&["check", "synth1d", "--tolerance", "inf"], "--tolerance is inf but must be finite and above 0"),
        (&["check", "synth1d", "--tolerance", "0"], "--tolerance is 0 but must be finite and above 0"),
        (
            &["compare", "big.toml", "--seeds", "2"],
            "seed + seeds is too large: seed is 9223372036854775807, seeds is 2",
        ),
        (&["run", "synth1d", "--data", "x"], "--data x: synth1d reads no data files; leave out x"),
        (
            &["run", "synth1d", "-m", "rmd", "--set", "method.name=ift-cg"],
            "--set method.name=ift-cg: the method is already rmd by --method; give only one of the two",
        ),
        (
            &["run", "synth1d", "--set", "task.name=quadratics"],
            "--set task.name=quadratics: the task is already synth1d; give only one of the two",
        ),
        (
            &["resume", "hollow"],
            "hollow/config.toml, line 1: it does not say which task to run; add a line such as: task.name = \
             \"synth1d\"",
        ),
        (&["run", "a\x1b[31m\nb"], &format!("there is no task 'a\\u{{1b}}[31m\\nb'; the tasks are {tasks}")),
        (&["run", &"x".repeat(100_000)], "an argument of 100000 bytes is too long; at most 4096 are allowed"),
        (&["run", "none.toml"], "cannot read none.toml: No such file or directory (os error 2)"),
        (&["check", "synht1d"], "there is no task 'synht1d'; did you mean synth1d?"),
        (&["resume", "nowhere"], "cannot open nowhere: No such file or directory (os error 2)"),
        (&["resume", "."], ". holds no run: there is no config.toml in it"),
        (&["run"], "the following required arguments were not provided: <TASK|CONFIG.toml>; see 'bilevel --help'"),
        (
            &["run", "synth1d", "--sed", "1"],
            "unexpected argument '--sed' found; a similar argument exists: '--seed'; \
                                            see 'bilevel --help'",
        ),
        (&["--fast"], "unexpected argument '--fast' found; see 'bilevel --help'"),
        (
            &["run", "synth1d", "--seed", "x"],
            "invalid value 'x' for '--seed <N>': invalid digit found in string; \
                                             see 'bilevel --help'",
        ),
    ] {
        place.run(arguments).refused(sentence);
    }
    let broken = place.run(&["run", "broken.toml"]);
    assert_eq!((broken.code, broken.error.lines().count()), (Some(2), 1), "{broken:?}");
    assert!(broken.error.starts_with("bilevel: broken.toml, line 1: this is not TOML: "), "{broken:?}");
    let reptile = place.run(&["run", "synth1d", "--method", "reptile"]);
    assert_eq!(reptile.code, Some(2), "{reptile:?}");
    assert!(reptile.error.starts_with("bilevel: reptile does not apply: "), "{reptile:?}");
    assert!(!place.path("runs").exists(), "a run that was refused leaves no folder");
}

#[test]
fn a_folder_that_holds_a_run_or_cannot_be_written_is_refused() {
    let place = Place::new();
    let run = |out: &str| place.run(&["run", "synth1d", "--outer", "5", "--quiet", "--out", out]);
    run("kept").done();
    let before = place.read("kept/result.json");
    run("kept").refused(
        "kept already holds a run; continue it with 'bilevel resume kept', or choose another folder with --out",
    );
    assert_eq!(place.read("kept/result.json"), before);
    place.write("file", "");
    run("file").refused("file holds something other than a run; choose another folder with --out");
    std::fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/result.json", "precious");
    run("mine").refused("mine holds something other than a run; choose another folder with --out");
    place
        .run(&["reproduce", "toy-polynomial", "--quick", "--out", "mine"])
        .refused("mine holds something other than a study; choose another folder with --out");
    place
        .run(&["report", "kept", "--out", "mine/result.json"])
        .refused("mine/result.json already exists and is not a report; choose another file with --out");
    assert_eq!(place.read("mine/result.json"), "precious");
    for _ in 0..2 {
        place.run(&["report", "kept", "--out", "page"]).done();
    }
    std::fs::create_dir(place.path("empty")).unwrap();
    run("empty").done();
    run("file/kept").refused("cannot make the folder file/kept/checkpoint: Not a directory (os error 20)");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_a_run_with_one_sentence() {
    let place = Place::new();
    // No file may have more than 16 blocks, which the metrics come to need, and writing more is an error.
    let line = format!(
        "ulimit -f 16; trap '' XFSZ; exec {} run synth1d --outer 100 --quiet --out full",
        env!("CARGO_BIN_EXE_bilevel")
    );
    let mut shell = std::process::Command::new("sh");
    let said = crate::common::Said::new(shell.args(["-c", &line]).current_dir(place.path(".")).output().unwrap());
    said.refused("cannot write full/metrics.jsonl: File too large (os error 27)");
    // With space on the disk it continues.
    place.run(&["resume", "full", "--quiet"]).done();
}

#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bilevel"));
    let said = crate::common::Said::new(command.arg("--help").stdout(full).output().unwrap());
    said.refused("cannot write to standard output: No space left on device (os error 28)");
}

#[test]
fn a_long_word_is_not_echoed_in_full() {
    let place = Place::new();
    let said = place.run(&["run", &"x".repeat(3000)]);
    assert!(said.error.starts_with("bilevel: there is no task 'xxx") && said.error.len() < 500, "{said:?}");
    place.write("long.toml", &format!("task.name = \"{}\"", "x".repeat(1_000_000)));
    place.run(&["run", "long.toml"]).refused("long.toml, line 1: a value is too long; at most 4096 bytes are allowed");
}

#[test]
fn the_schema_and_the_completions_are_printed() {
    let place = Place::new();
    let schema: serde_json::Value = serde_json::from_str(&place.run(&["schema"]).done().out).unwrap();
    assert_eq!(schema["required"], serde_json::json!(["task"]));
    for shell in ["bash", "zsh", "fish"] {
        assert!(place.run(&["completions", shell]).done().out.contains("resume"), "{shell}");
    }
}

#[test]
fn the_tour_shows_all_three_parts_as_plain_text() {
    let shown = Place::new().run(&["tour"]).done().out;
    for heading in ["1. A loss", "2. A bilevel problem", "3. A network"] {
        assert!(shown.contains(heading), "{shown}");
    }
    assert!(shown.contains("λ.bias cannot influence"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 120), "a line is too long:\n{shown}");
}
