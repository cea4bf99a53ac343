//! The steps of CONTRIBUTING.md, followed to the letter: a primitive, a method, a model, a task, a study, a row and a dataset are added to a
//! copy of this repository, which touches the files that are named there and no others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is added.
#[derive(Clone)]
struct Addition {
    /// The heading of its steps.
    heading: &'static str,
    /// The new file and what is in it, if there is one.
    file: Option<(&'static str, String)>,
    /// Lines that go into files there are: the file, the line they come after, and the line.
    lines: Vec<(&'static str, &'static str, &'static str)>,
    /// Rows of documents, in the same form.
    rows: Vec<(&'static str, &'static str, &'static str)>,
}

fn primitive() -> Addition {
    Addition {
        heading: "## How to add an elementwise primitive",
        file: None,
        lines: vec![
            ("crates/graph/src/ir/op.rs", "        Sqrt =", "        /// The cube root\n        Cbrt = \"cbrt\","),
            ("crates/graph/src/scalar.rs", "        UnaryOp::Sqrt =>", "        UnaryOp::Cbrt => x.cbrt(),"),
            (
                "crates/graph/src/autodiff/vjp_rules.rs",
                "        UnaryOp::Sqrt =>",
                "        UnaryOp::Cbrt => g / (y * y * 3.0),",
            ),
            ("crates/graph/src/tensor/mod.rs", "    sqrt => Sqrt;", "    /// The cube root.\n    cbrt => Cbrt;"),
            (
                "crates/gpu/src/codegen/library/base.h",
                "DEVICE double op_sqrt",
                "template <typename T> DEVICE T op_cbrt(T x) { return cbrt(x); }",
            ),
            (
                "crates/graph/src/conformance/domain.rs",
                "            UnaryOp::Recip",
                "            UnaryOp::Cbrt => Some([0.7, 2.5]),",
            ),
        ],
        rows: vec![],
    }
}

fn additions() -> Vec<Addition> {
    vec![
        Addition {
            heading: "## How to add an estimator",
            file: Some((
                "crates/bilevel/src/hypergradient/methods/unrolled/t1_t2.rs",
                include_str!("contributing/t1_t2.rs").into(),
            )),
            lines: vec![
                (
                    "crates/bilevel/src/hypergradient/methods/unrolled/mod.rs",
                    "pub(crate) mod rmd_fo;",
                    "pub(crate) mod t1_t2;",
                ),
                (
                    "crates/bilevel/src/hypergradient/registry.rs",
                    "register! {",
                    r#"    unrolled::t1_t2::T1T2 "t1-t2": "one step back through training"; "T inner gradients, one mixed product"; "a few θ";
        "a cheap baseline for penalties""#,
                ),
            ],
            rows: vec![
                (
                    "docs/guide/src/methods.md",
                    "| `soba` |",
                    "| `t1-t2` | T inner gradients, one outer, one mixed product | a few θ | H = 1/γ | anywhere else |",
                ),
                ("docs/guide/src/mathematics.md", "| soba |", "| t1-t2 | h = f_λ − γ·f_θᵀ·C | `unrolled/t1_t2.rs` |"),
            ],
        },
        Addition {
            heading: "## How to add a model",
            file: Some(("crates/models/src/maxout.rs", include_str!("contributing/maxout.rs").into())),
            lines: vec![
                ("crates/models/src/lib.rs", "pub mod layers;", "pub mod maxout;"),
                ("crates/models/src/lib.rs", "pub use layers::", "pub use maxout::{Maxout, MaxoutConfig};"),
            ],
            rows: vec![],
        },
        Addition {
            heading: "## How to add a task",
            file: Some(("crates/tasks/src/weight_decay.rs", task())),
            lines: vec![
                ("crates/tasks/src/lib.rs", "mod synth1d;", "mod weight_decay;"),
                ("crates/tasks/src/lib.rs", "pub use synth1d::", "pub use weight_decay::WeightDecay;"),
                ("crates/tasks/src/lib.rs", "        .task::<Synth1d>()", "        .task::<WeightDecay>()"),
            ],
            rows: vec![],
        },
        Addition {
            heading: "## How to add a study",
            file: Some((
                "crates/reproduction/studies/two-methods.toml",
                include_str!("contributing/two-methods.toml").into(),
            )),
            lines: vec![(
                "crates/reproduction/src/studies/mod.rs",
                "        .study(toy_polynomial::ToyPolynomial)",
                "        .study(manifest!(\"two-methods\"))",
            )],
            rows: vec![],
        },
        Addition {
            heading: "## How to add a dataset",
            file: Some(("crates/data/src/datasets/iris.rs", include_str!("contributing/iris.rs").into())),
            lines: vec![
                ("crates/data/src/datasets/mod.rs", "pub mod ijcnn1;", "pub mod iris;"),
                ("crates/data/src/datasets/mod.rs", "    &ijcnn1::DATASET,", "    &iris::DATASET,"),
            ],
            rows: vec![],
        },
    ]
}

/// A row of a table, which is a file that there is.
fn study_row() -> Addition {
    let row = "\n[[row]]\nmethod = \"Added\"\nsettings.method.name = \"rmd\"\nmeasure = \"seed-runs\"";
    Addition {
        heading: "## How to add a study row",
        file: None,
        lines: vec![("crates/reproduction/studies/amigo.toml", "held = true", row)],
        rows: vec![],
    }
}

/// The task of `examples/own-task` as a file of the crate of tasks, with a test.
fn task() -> String {
    let example = std::fs::read_to_string(root().join("examples/own-task/src/main.rs")).unwrap();
    let (task, _) = example.split_once("fn main()").unwrap();
    let task = task.replace("Registry, ", "");
    let task =
        task.replace("struct WeightDecay {", "pub struct WeightDecay {").replace("    pull: f64", "    pub pull: f64");
    task + "#[cfg(test)]\n#[test]\nfn added_task_is_registered() {\n    \
            assert!(crate::register(bilevel_run::Registry::new()).known_task(\"weight-decay\").is_ok());\n}\n"
}

/// What the commands of the steps write.
const STORED: [&str; 7] = [
    "README.md",
    "crates/run/data/peak.tsv",
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
    for Addition { heading, file, lines, rows } in additions().into_iter().chain([primitive()]) {
        let steps = steps(heading);
        let sentence = steps.split("**").nth(1).unwrap().replace('\n', " ");
        let changed: BTreeSet<&str> = lines.iter().map(|(path, ..)| *path).collect();
        let Some((file, _)) = file else {
            assert!(sentence.starts_with("one line each in") && changed.len() <= 6, "{heading}: {sentence}");
            let named = |path: &&str| sentence.split('`').any(|word| path.ends_with(&format!("/{word}")));
            assert!(changed.iter().all(named) && sentence.matches('`').count() == 2 * changed.len(), "{sentence}");
            assert!(changed.iter().all(|path| steps.contains(&format!("`{path}`"))), "{heading}: a step for each file");
            continue;
        };
        let folder = file.rsplit_once('/').unwrap().0;
        // A method is in its family's folder.
        let is_named = |folder: &str| sentence.contains(&format!("`{folder}`"));
        let parent = folder.rsplit_once('/').unwrap().0;
        assert!(
            sentence.starts_with("one file in ") && (is_named(folder) || is_named(parent)),
            "{heading}: {sentence}"
        );
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

/// A copy of this repository with some additions.
struct Copied {
    folder: PathBuf,
    /// The files of this repository.
    files: Vec<String>,
    /// Those that the steps name.
    touched: BTreeSet<String>,
}

impl Copied {
    fn with(name: &str, additions: &[Addition]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().unwrap().stdout;
        let listed = String::from_utf8(listed).unwrap();
        let files: Vec<String> = listed.split('\0').filter(|path| !path.is_empty()).map(String::from).collect();
        let mut touched = BTreeSet::new();
        let mut changes: Vec<&(&str, &str, &str)> = vec![];
        for addition in additions {
            if let Some((file, text)) = &addition.file {
                touched.insert(file.to_string());
                write(&folder.join(file), text.as_bytes());
            }
            changes.extend(addition.lines.iter().chain(&addition.rows));
        }
        touched.extend(changes.iter().map(|(path, ..)| path.to_string()));
        for path in &files {
            let mut text = std::fs::read(root().join(path)).unwrap();
            for (_, after, line) in changes.iter().filter(|(changed, ..)| changed == path) {
                text = with_line(std::str::from_utf8(&text).unwrap(), after, line).into_bytes();
            }
            write(&folder.join(path), &text);
        }
        Copied { folder, files, touched }
    }

    fn run(&self, line: &str) {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(&self.folder).env("CARGO_TARGET_DIR", self.folder.join("target"));
        assert!(command.status().unwrap().success(), "{line}");
    }

    /// The files of this repository that differ in the copy.
    fn changed(&self) -> BTreeSet<String> {
        let read = |folder: &Path, path: &String| std::fs::read(folder.join(path)).unwrap();
        self.files.iter().filter(|path| read(&root(), path) != read(&self.folder, path)).cloned().collect()
    }
}

#[test]
#[ignore = "compiles a copy of four crates, which takes minutes"]
fn a_primitive_that_is_added_by_the_steps_works_and_touches_six_files() {
    let copy = Copied::with("contributing-primitive", &[primitive()]);
    copy.run("cargo test -p bilevel-graph --test it -- elementwise:: special_functions::");
    copy.run("cargo test -p bilevel-graph --lib every_primitive_has_a_case");
    // The CPU against the reference, and, where NVRTC is there, kernels for a GPU.
    copy.run("cargo test -p bilevel-cpu --test it scalars::");
    copy.run("cargo test -p bilevel-cuda --test it elementwise_primitives_compile");
    let changed = copy.changed();
    assert_eq!(changed, copy.touched);
    assert_eq!(changed.len(), 6);
}

#[test]
#[ignore = "compiles a copy of the whole repository, which takes minutes"]
fn what_is_added_by_the_steps_works_and_touches_no_other_file() {
    assert!(steps(study_row().heading).contains("crates/reproduction/studies"));
    let mut copy = Copied::with("contributing", &[additions(), vec![study_row()]].concat());
    copy.touched.extend(STORED.map(String::from));
    copy.run("cargo test -p bilevel -p bilevel-models -p bilevel-tasks -p bilevel-data --lib added_");
    for (study, row) in [("two-methods", "RMD"), ("amigo", "Added")] {
        let command = format!("cargo run -p bilevel-cli -- reproduce {study} --quick --json --out $(mktemp -d)");
        copy.run(&format!("{command} | grep '\"method\":\"{row}\"'"));
    }
    let peak = "UPDATE_GOLDEN=1 cargo test -p bilevel --test memory peak";
    assert!(steps("## How to add an estimator").contains(peak));
    copy.run(peak);
    let estimator = steps("## How to add an estimator").replace("\n   ", " ");
    let written = estimator.split('`').find(|code| code.starts_with("UPDATE_GOLDEN=1 ")).unwrap().to_string();
    copy.run(&format!("{written} reproduce::"));
    copy.run(&format!("{} reproduce::", written.trim_start_matches("UPDATE_GOLDEN=1 ")));

    let mut changed = copy.changed();
    changed.extend(additions().into_iter().filter_map(|addition| addition.file.map(|(file, _)| file.into())));
    assert_eq!(changed, copy.touched);
}
