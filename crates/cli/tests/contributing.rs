//! The steps of CONTRIBUTING.md, followed to the letter: a method, a model, a task, a study and a dataset are added to a copy of
//! this repository, which touches the files that are named there and no others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is added.
struct Addition {
    /// The heading of its steps.
    heading: &'static str,
    /// The new file.
    file: &'static str,
    /// What is in it.
    text: String,
    /// Lines that go into files there are: the file, the line they come after, and the line.
    lines: Vec<(&'static str, &'static str, &'static str)>,
    /// Rows of documents, in the same form.
    rows: Vec<(&'static str, &'static str, &'static str)>,
}

fn additions() -> Vec<Addition> {
    vec![
        Addition {
            heading: "## How to add an estimator",
            file: "crates/bilevel/src/hypergradient/methods/t1_t2.rs",
            text: include_str!("contributing/t1_t2.rs").into(),
            lines: vec![
                ("crates/bilevel/src/hypergradient/methods/mod.rs", "pub(crate) mod stocbio;", "pub(crate) mod t1_t2;"),
                (
                    "crates/bilevel/src/hypergradient/registry.rs",
                    "register! {",
                    r#"    t1_t2::T1T2 "t1-t2": "one step back through training"; "T inner gradients, one mixed product"; "a few θ";
        "a cheap baseline for penalties"; step = "inner step"; steps = "inner steps of a hypergradient""#,
                ),
            ],
            rows: vec![
                (
                    "docs/guide/src/methods.md",
                    "| `soba` |",
                    "| `t1-t2` | T inner gradients, one outer, one mixed product | a few θ | H = 1/γ | anywhere else |",
                ),
                ("docs/guide/src/mathematics.md", "| soba |", "| t1-t2 | h = f_λ − γ·f_θᵀ·C | `t1_t2.rs` |"),
            ],
        },
        Addition {
            heading: "## How to add a model",
            file: "crates/models/src/maxout.rs",
            text: include_str!("contributing/maxout.rs").into(),
            lines: vec![
                ("crates/models/src/lib.rs", "pub mod layers;", "pub mod maxout;"),
                ("crates/models/src/lib.rs", "pub use layers::", "pub use maxout::{Maxout, MaxoutConfig};"),
            ],
            rows: vec![],
        },
        Addition {
            heading: "## How to add a task",
            file: "crates/tasks/src/tasks/weight_decay.rs",
            text: task(),
            lines: vec![
                ("crates/tasks/src/tasks/mod.rs", "mod synth1d;", "mod weight_decay;"),
                ("crates/tasks/src/tasks/mod.rs", "pub use synth1d::", "pub use weight_decay::WeightDecay;"),
                ("crates/tasks/src/tasks/mod.rs", "        .task::<Synth1d>()", "        .task::<WeightDecay>()"),
            ],
            rows: vec![],
        },
        Addition {
            heading: "## How to add a study",
            file: "crates/tasks/src/studies/two_methods.rs",
            text: include_str!("contributing/two_methods.rs").into(),
            lines: vec![
                ("crates/tasks/src/studies/mod.rs", "mod toy_polynomial;", "mod two_methods;"),
                (
                    "crates/tasks/src/studies/mod.rs",
                    "        .study(toy_polynomial::ToyPolynomial)",
                    "        .study(two_methods::TwoMethods)",
                ),
            ],
            rows: vec![],
        },
        Addition {
            heading: "## How to add a dataset",
            file: "crates/data/src/datasets/iris.rs",
            text: include_str!("contributing/iris.rs").into(),
            lines: vec![
                ("crates/data/src/datasets/mod.rs", "pub mod ijcnn1;", "pub mod iris;"),
                ("crates/data/src/datasets/mod.rs", "    &ijcnn1::DATASET,", "    &iris::DATASET,"),
            ],
            rows: vec![],
        },
    ]
}

/// The task of `examples/own-task` as a file of the crate of tasks, with a test.
fn task() -> String {
    let example = std::fs::read_to_string(root().join("examples/own-task/src/main.rs")).unwrap();
    let (task, _) = example.split_once("fn main()").unwrap();
    let task = task.replace("use bilevel_tasks::", "use crate::").replace("Registry, ", "");
    let task =
        task.replace("struct WeightDecay {", "pub struct WeightDecay {").replace("    pull: f64", "    pub pull: f64");
    task + "#[cfg(test)]\n#[test]\nfn added_task_is_registered() {\n    \
            assert!(crate::Registry::everything().known_task(\"weight-decay\").is_ok());\n}\n"
}

/// What the commands of the steps write.
const STORED: [&str; 7] = [
    "README.md",
    "crates/tasks/data/peak.tsv",
    "crates/cli/schema.json",
    "crates/cli/tests/golden/list.txt",
    "crates/cli/tests/golden/reproduce-studies.txt",
    "crates/tasks/tests/golden/applicability.txt",
    "docs/files.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn contributing() -> String {
    std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap()
}

/// The steps below a heading.
fn steps(heading: &str) -> String {
    let text = contributing();
    let start = text.find(heading).unwrap_or_else(|| panic!("there is no {heading}")) + heading.len();
    text[start..].split("\n## ").next().unwrap().into()
}

#[test]
fn the_steps_name_the_new_file_the_changed_files_and_the_number_of_lines() {
    for Addition { heading, file, lines, rows, .. } in additions() {
        let steps = steps(heading);
        let sentence = steps.split("**").nth(1).unwrap().replace('\n', " ");
        let folder = file.rsplit_once('/').unwrap().0;
        assert!(sentence.starts_with(&format!("one file in `{folder}`")), "{heading}: {sentence}");
        let changed: BTreeSet<&str> = lines.iter().map(|(path, ..)| *path).collect();
        for path in &changed {
            let count = lines.iter().filter(|(changed, ..)| changed == path).count();
            let name = path.rsplit('/').next().unwrap();
            let said = match count {
                1 => {
                    sentence.contains(&format!("line in `{name}`"))
                        || sentence.contains(&format!("one line of registration in `{name}`"))
                }
                2 => sentence.contains(&format!("two lines in its `{name}`")),
                _ => sentence.contains(&format!("three lines in its `{name}`")),
            };
            assert!(said, "{heading}: {count} in {name}, but: {sentence}");
        }
        assert_eq!(sentence.matches(".rs`").count(), changed.len(), "{heading}: {sentence}");
        for (path, ..) in rows {
            let name = path.rsplit('/').next().unwrap();
            assert!(steps.contains(name), "{heading}: {name}");
        }
    }
}

/// Writes a file unless it has this text already, so that nothing is compiled for no reason.
fn write(path: &Path, text: &[u8]) {
    if std::fs::read(path).is_ok_and(|there| there == text) {
        return;
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The text with a line more, after the first one that starts like this.
fn with_line(text: &str, after: &str, line: &str) -> String {
    let at = text.lines().position(|there| there.starts_with(after)).unwrap_or_else(|| panic!("no line '{after}'"));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.insert(at + 1, line);
    lines.join("\n") + "\n"
}

#[test]
#[ignore = "compiles a copy of the whole repository, which takes minutes"]
fn what_is_added_by_the_steps_works_and_touches_no_other_file() {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("contributing");
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let files: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    let (mut touched, mut changes) = (BTreeSet::new(), vec![]);
    for addition in additions() {
        touched.insert(addition.file);
        write(&copy.join(addition.file), addition.text.as_bytes());
        changes.extend(addition.lines.into_iter().chain(addition.rows));
    }
    touched.extend(changes.iter().map(|(path, ..)| *path).chain(STORED));
    for path in &files {
        let mut text = std::fs::read(root().join(path)).unwrap();
        for (_, after, line) in changes.iter().filter(|(changed, ..)| changed == path) {
            text = with_line(std::str::from_utf8(&text).unwrap(), after, line).into_bytes();
        }
        write(&copy.join(path), &text);
    }

    let run = |line: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(&copy).env("CARGO_TARGET_DIR", copy.join("target"));
        assert!(command.status().unwrap().success(), "{line}");
    };
    run("cargo test -p bilevel -p bilevel-models -p bilevel-tasks -p bilevel-data --lib added_");
    let peak = "UPDATE_GOLDEN=1 cargo test -p bilevel --test peak";
    assert!(steps("## How to add an estimator").contains(peak));
    run(peak);
    let estimator = steps("## How to add an estimator").replace("\n   ", " ");
    let written = estimator.split('`').find(|code| code.starts_with("UPDATE_GOLDEN=1 ")).unwrap().to_string();
    run(&format!("{written} --test reproduce"));
    run(&format!("{} --test reproduce", written.trim_start_matches("UPDATE_GOLDEN=1 ")));

    let same = |path: &&str| std::fs::read(root().join(path)).unwrap() == std::fs::read(copy.join(path)).unwrap();
    let mut changed: BTreeSet<&str> = files.into_iter().filter(|path| !same(path)).collect();
    changed.extend(additions().iter().map(|addition| addition.file));
    assert_eq!(changed, touched);
}
