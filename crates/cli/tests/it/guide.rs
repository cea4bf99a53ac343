//! README, guide and paper: their commands are understood, their links lead to files, and the chapters of the guide are all tested.

use bilevel_cli::arguments::{Arguments, Command, Which};
use bilevel_cli::commands::run::{axes, resolve_with};
use bilevel_cli::config::entries::parse_set;
use bilevel_cli::errors::CliError;
use bilevel_run::Registry;
use clap::Parser;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src")
}

fn chapters() -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let chapters = files.filter(|path| path.extension().is_some_and(|end| end == "md"));
    chapters
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap()
}

/// The folder of the paper.
fn paper() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/paper")
}

/// The chapters, the README and the paper.
fn texts() -> Vec<(String, String)> {
    let paper = std::fs::read_to_string(paper().join("README.md")).unwrap();
    chapters().into_iter().chain([("README.md".to_string(), readme()), ("the paper".to_string(), paper)]).collect()
}

/// The program that a line runs, if it is one of this repository: an example of Cargo or a Python program.
fn program(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |word: &str| words.iter().position(|w| *w == word).and_then(|at| words.get(at + 1)).copied();
    // Python programs also come behind a launcher of several ranks.
    if let Some(program) = words.iter().find(|word| word.ends_with(".py")) {
        return Some(program.to_string());
    }
    match words[..] {
        [script, ..] if script.starts_with(".ci/") => Some(script.into()),
        ["cargo", ..] => {
            let package = after("-p")?.strip_prefix("bilevel-").unwrap_or("bilevel");
            after("--example").map(|name| format!("crates/{package}/examples/{name}.rs"))
        }
        _ => None,
    }
}

#[test]
fn the_guide_says_of_every_method_what_the_truth_suite_found_and_the_library_says() {
    const HEAD: &str =
        "| method | right on | gradients per inner step | peak memory, T = 20 | when |\n|---|---|---|---|---|\n";
    let suite = bilevel_run::advise::Suite::stored().unwrap();
    let row = |m: &bilevel::methods::MethodInfo| {
        let found = suite.summary(m.name);
        assert_eq!(found.broken, 0, "{} breaks a claim", m.name);
        let peak = found.peak.unwrap_or_else(|| panic!("{} has no peak: run the test 'peak' of bilevel", m.name));
        let per_step =
            if found.per_step < 10.0 { format!("{:.1}", found.per_step) } else { format!("{:.0}", found.per_step) };
        format!("| `{}` | {} of {} | {per_step} | {peak} θ | {} |\n", m.name, found.right, found.applies, m.when)
    };
    let table: String = bilevel::methods::all().iter().map(row).collect();
    let text = chapter("methods.md");
    let (before, rest) = text.split_once(HEAD).unwrap();
    let end = rest.find("\n\n").unwrap() + 1;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(folder().join("methods.md"), format!("{before}{HEAD}{table}{}", &rest[end..])).unwrap();
        return;
    }
    assert_eq!(rest[..end], table, "run the tests with UPDATE_GOLDEN=1");
}

#[test]
fn the_readme_counts_the_methods_and_what_the_first_of_them_is_right_on() {
    let found = bilevel_run::advise::Suite::stored().unwrap().summary("langevin-adjoint");
    let right = format!("is right on {} of the {} it applies to", found.right, found.applies);
    const COUNT: &str = "recommends one of ";
    let (before, rest) = readme().split_once(COUNT).map(|(a, b)| (a.to_string(), b.to_string())).unwrap();
    let (stored, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap());
    let count = bilevel::methods::all().len().to_string();
    if std::env::var_os("UPDATE_GOLDEN").is_some() && stored != count {
        std::fs::write(folder().join("../../../README.md"), format!("{before}{COUNT}{count}{after}")).unwrap();
        return;
    }
    assert_eq!(stored, count, "run the tests with UPDATE_GOLDEN=1");
    assert!(readme().contains(&right), "{right}");
}

/// The arguments of a line that calls the command, without what the shell does with its output.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let line = line.split(['>', '|', '#']).next()?.trim();
    let launchers = ["mpirun -n 4 ", "srun -n 4 ", "torchrun --no-python --nproc-per-node 4 "];
    let line = launchers.iter().find_map(|launcher| line.strip_prefix(launcher)).unwrap_or(line);
    let rest = line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("bilevel "));
    rest.map(|rest| ["bilevel"].into_iter().chain(rest.split_whitespace()).collect())
}

#[test]
fn every_command_shown_is_understood() {
    let mut count = 0;
    for (name, text) in texts() {
        for block in text.split("```sh\n").skip(1) {
            for line in block.split("```").next().unwrap().lines() {
                if let Some(arguments) = arguments(line) {
                    let parsed = Arguments::try_parse_from(arguments);
                    parsed.unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
                    count += 1;
                } else if let Some(program) = program(line) {
                    assert!(
                        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(program).exists(),
                        "{name}: {line}"
                    );
                } else {
                    let other = ["cargo ", "pip ", ".ci/"].iter().any(|start| line.starts_with(start));
                    assert!(line.trim().is_empty() || other, "{name}: {line}");
                }
            }
        }
    }
    assert!(count > 20, "{count}");
}

/// The configurations that a command asks for: one, or one for each method of a comparison.
fn configurations(command: Option<Command>) -> Vec<Which> {
    match command {
        Some(Command::Run(run)) => vec![run.which],
        Some(Command::Check(check)) => vec![check.which],
        Some(Command::Advise(advise)) => vec![advise.which],
        Some(Command::Compare(compare)) => {
            let which = |method: &String| Which {
                what: compare.what.clone(),
                method: Some(method.clone()),
                seed: None,
                iterations: compare.iterations,
                rate: compare.rate,
                start: compare.start.clone(),
                device: compare.device.clone(),
                precision: compare.precision.clone(),
                set: compare.set.clone(),
                data: compare.data.clone(),
            };
            compare.methods.iter().map(which).collect()
        }
        _ => vec![],
    }
}

/// Resolves a configuration with the first value of every key, with the second, and so on.
fn every_value_resolves(registry: &Registry, which: &Which) -> Result<(), CliError> {
    let axes = axes(which)?;
    let most = axes.iter().map(|axis| axis.values.len()).max().unwrap_or(1);
    (0..most).try_for_each(|number| {
        let sets = axes.iter().flat_map(|axis| axis.values[number.min(axis.values.len() - 1)].1.clone()).collect();
        resolve_with(registry, which, sets).map(drop)
    })
}

#[test]
fn every_setting_of_a_command_shown_exists_and_takes_its_value() {
    let registry = bilevel_cli::everything();
    let mut settings = 0;
    for (name, text) in texts() {
        for line in text.split("```sh\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines()) {
            let Some(arguments) = arguments(line) else { continue };
            for which in configurations(Arguments::try_parse_from(arguments).unwrap().command) {
                settings += which.set.len();
                // A file of the reader's own is not there to be read.
                let checked = match which.what.ends_with(".toml") {
                    true => which.set.iter().try_for_each(|set| parse_set(set).map(drop)).map_err(|e| e.to_string()),
                    false => every_value_resolves(&registry, &which).map_err(|error| error.to_string()),
                };
                checked.unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
            }
        }
    }
    assert!(settings >= 8, "{settings} settings");
}

#[test]
fn every_task_and_study_named_in_a_command_exists() {
    let registry = bilevel_cli::everything();
    for (name, text) in texts() {
        for line in text.split("```sh\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines()) {
            let Some(arguments) = arguments(line) else { continue };
            let known = match arguments[1..] {
                ["run" | "check" | "advise" | "compare", what, ..] => {
                    what.ends_with(".toml") || registry.known_task(what).is_ok()
                }
                ["reproduce", study, ..] => {
                    study == "all" || study.ends_with(".toml") || registry.known_study(study).is_ok()
                }
                _ => true,
            };
            assert!(known, "{name}: {line}");
        }
    }
}

/// Every Markdown file of the repository but the generated list of files, whose links are those of rustdoc.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "runs", "node_modules"].contains(&name.as_str()) {
            documents(&path, found);
        } else if name.ends_with(".md") && name != "files.md" {
            found.push(path);
        }
    }
}

/// The lines outside blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The anchors of the headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> Vec<String> {
    let anchor = |heading: &str| -> String {
        let kept = heading.trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    prose(text).filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn every_link_leads_to_a_file_and_to_one_of_its_headings() {
    let (root, mut all, mut count) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), vec![], 0);
    documents(&root, &mut all);
    for path in &all {
        let text = std::fs::read_to_string(path).unwrap();
        let text = prose(&text).collect::<Vec<_>>().join("\n");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(file.exists(), "{}: there is no {target}", path.display());
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&file).unwrap();
                let there = anchors(&text).iter().any(|anchor| anchor == heading);
                assert!(there, "{}: {target} has no such heading", path.display());
            }
            count += 1;
        }
    }
    assert!(count > 150, "{count}");
}

#[test]
fn every_chapter_is_in_the_summary_and_among_the_tests() {
    let summary = std::fs::read_to_string(folder().join("SUMMARY.md")).unwrap();
    let tested = include_str!("../../src/guide.rs");
    for (name, _) in chapters().into_iter().filter(|(name, _)| name != "SUMMARY.md") {
        assert!(summary.contains(&format!("({name})")), "{name}");
        assert!(tested.contains(&format!("\"{name}\"")), "{name}");
    }
}

fn chapter(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

#[test]
fn every_method_has_its_place_in_the_tables() {
    for (name, mark) in [("methods.md", "`"), ("mathematics.md", "| ")] {
        let text = chapter(name);
        for method in bilevel::methods::all() {
            assert!(text.contains(&format!("{mark}{}", method.name)), "{name}: {}", method.name);
        }
    }
}

#[test]
fn every_number_of_the_diagnosis_is_explained() {
    let text = chapter("diagnostics.md");
    // One line per field: its name, a colon and its value.
    let printed = format!("{:#?}", bilevel::diagnostics::Diagnostics::default());
    let fields: Vec<&str> =
        printed.lines().filter_map(|line| line.trim().split_once(": ")).map(|(name, _)| name).collect();
    assert!(fields.len() >= 20 && fields.contains(&"curvature"), "{printed}");
    for field in fields {
        assert!(text.contains(&format!("| `{field}` |")), "{field}");
    }
}
