//! The index of files is up to date, and ARCHITECTURE.md and CONTRIBUTING.md name files that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).unwrap()
}

/// All files below a folder, as paths from there with `/` between their parts.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            if !["target", ".git"].contains(&&name[..]) {
                found.extend(files(&entry.path()).into_iter().map(|file| format!("{name}/{file}")));
            }
        } else {
            found.insert(name);
        }
    }
    found
}

/// The words of a text between single backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The crates in the order in which they depend on each other.
const CRATES: [&str; 19] = [
    "derive",
    "graph",
    "ranks",
    "plan",
    "cpu",
    "gpu",
    "cuda",
    "bilevel",
    "truth",
    "models",
    "data",
    "report",
    "run",
    "tasks",
    "reproduction",
    "cli",
    "python",
    "bench",
    "attack",
];

/// The first sentence of a file's head comment.
fn first_sentence(text: &str, file: &str) -> String {
    let mark = if file.ends_with(".rs") { "//!" } else { "//" };
    let lines = text.lines().map_while(|line| line.strip_prefix(mark)).map(str::trim);
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").unwrap_or(paragraph.len());
    paragraph[..end].trim_end_matches(['.', ':']).replace('|', "\\|")
}

/// True for tests beside the code they test, which no index needs.
fn is_test(file: &str) -> bool {
    file.rsplit('/').any(|part| part.starts_with("tests"))
}

fn is_source(file: &str) -> bool {
    [".rs", ".cu", ".h"].iter().any(|end| file.ends_with(end))
}

fn index() -> String {
    let mut text = String::from(
        "# Files\n\nThe first sentence of every source file, written by `UPDATE_GOLDEN=1 cargo test -p bilevel-cli --test it architecture`.\n",
    );
    for name in CRATES {
        text += &format!("\n## {name}\n\n| file | its one idea |\n|---|---|\n");
        let source = repository().join("crates").join(name).join("src");
        let all = files(&source);
        // The files of a folder before its subfolders.
        let mut sorted: Vec<&String> = all.iter().filter(|file| is_source(file) && !is_test(file)).collect();
        sorted.sort_by_key(|file| file.rsplit_once('/').map_or(("", &file[..]), |(folder, name)| (folder, name)));
        for file in sorted {
            let idea = first_sentence(&std::fs::read_to_string(source.join(file)).unwrap(), file);
            assert!(!idea.is_empty(), "crates/{name}/src/{file} has no head comment");
            text += &format!("| `{file}` | {idea} |\n");
        }
    }
    text
}

#[test]
fn the_index_of_files_has_the_first_sentence_of_every_source_file() {
    let folders = std::fs::read_dir(repository().join("crates")).unwrap();
    let there: BTreeSet<String> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(CRATES.map(String::from).into_iter().collect::<BTreeSet<_>>(), there);
    let path = repository().join("docs/files.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, index()).unwrap();
    }
    assert!(read("docs/files.md") == index(), "docs/files.md is out of date; run this test with UPDATE_GOLDEN=1");
}

#[test]
fn every_file_of_tests_is_compiled_into_a_test_program() {
    let mut programs = 0;
    for name in CRATES {
        let folder = repository().join("crates").join(name).join("tests");
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for program in entries.map(|entry| entry.unwrap().path()).filter(|path| path.join("main.rs").is_file()) {
            let main = std::fs::read_to_string(program.join("main.rs")).unwrap();
            programs += 1;
            for file in files(&program).iter().filter(|file| !file.contains('/') && *file != "main.rs") {
                let module = file.trim_end_matches(".rs");
                assert!(main.contains(&format!("mod {module};")), "{}: no 'mod {module};'", program.display());
            }
        }
    }
    assert!(programs > 10, "{programs}");
}

#[test]
fn architecture_fits_on_a_few_screens_and_names_only_files_that_exist() {
    let text = read("ARCHITECTURE.md");
    assert!(text.len() <= 12 << 10, "ARCHITECTURE.md has {} bytes; decisions belong in docs/decisions", text.len());
    let all = files(&repository());
    let ends = [".rs", ".md", ".toml", "/"];
    for word in quoted(&text).into_iter().filter(|word| ends.iter().any(|end| word.ends_with(end))) {
        let path = word.trim_end_matches('/');
        let exists = all.iter().any(|file| file.ends_with(path) || file.contains(&format!("{path}/")));
        assert!(exists, "ARCHITECTURE.md names {word}, which does not exist");
    }
}

#[test]
fn every_file_that_contributing_names_exists() {
    let text = read("CONTRIBUTING.md");
    let all = files(&repository());
    let folders: BTreeSet<&str> =
        all.iter().filter_map(|file| file.rsplit_once('/').map(|(folder, _)| folder)).collect();
    let ends_with = |path: &str, end: &str| path == end || path.ends_with(&format!("/{end}"));
    // Only whole paths where commands are shown: these also name what they make.
    let in_commands = text.lines().filter(|line| line.starts_with("    ") && !line.contains('`'));
    let whole = in_commands.flat_map(str::split_whitespace).filter(|word| word.starts_with("crates/"));
    let in_prose =
        text.lines().filter(|line| !line.starts_with("    ") || line.contains('`')).collect::<Vec<_>>().join("\n");
    let named = quoted(&in_prose)
        .into_iter()
        .chain(in_prose.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()));
    const ENDS: [&str; 9] = [".rs", ".md", ".py", ".cu", ".tsv", ".json", ".jsonl", ".toml", "/"];
    let named = named.filter(|word| ENDS.iter().any(|end| word.ends_with(end)) || word.starts_with("crates/"));
    let (mut count, mut wrong) = (0, vec![]);
    for word in named.chain(whole).filter(|word| !word.contains([' ', '*', ':'])) {
        let path = word.trim_end_matches('/');
        count += 1;
        let exists =
            all.iter().any(|file| ends_with(file, path)) || folders.iter().any(|folder| ends_with(folder, path));
        if !exists {
            wrong.push(word);
        }
    }
    assert!(wrong.is_empty(), "CONTRIBUTING.md names what is not there: {wrong:?}");
    assert!(count > 60, "{count}");
}

#[test]
fn the_steps_for_a_primitive_name_every_file_in_which_an_elementwise_one_stands() {
    let text = read("CONTRIBUTING.md");
    let steps = text
        .split("## How to add an elementwise primitive")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next())
        .unwrap();
    let named = quoted(steps);
    // Primitives that nothing treats specially, as Rust and as CUDA C name them.
    const PRIMITIVES: [&str; 4] = ["Log1p", "Cos", "op_log1p", "op_cos"];
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = 0;
    for name in ["graph", "plan", "cpu", "gpu", "cuda"] {
        let source = repository().join("crates").join(name).join("src");
        for file in files(&source).iter().filter(|file| !file.starts_with("conformance/") && !is_test(file)) {
            let text = std::fs::read_to_string(source.join(file)).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            if !code.split(|c| !is_word(c)).any(|word| PRIMITIVES.contains(&word)) {
                continue;
            }
            found += 1;
            let path = format!("/crates/{name}/src/{file}");
            let is_named = |word: &&str| match word.strip_suffix('/') {
                Some(folder) => path.contains(&format!("/{folder}/")),
                None => path.ends_with(&format!("/{word}")),
            };
            assert!(named.iter().any(is_named), "CONTRIBUTING.md: no step names {path}");
        }
    }
    assert!(found >= 9, "{found}");
}

/// The names that `bilevel` gives on, each with the module that has it: "" for the root. The prelude repeats names and is left out.
fn public_names() -> Vec<(String, String)> {
    let (mut names, mut module) = (vec![], String::new());
    for line in read("crates/bilevel/src/lib.rs").lines() {
        match line.strip_prefix("pub mod ") {
            Some(name) => module = name.trim_end_matches([';', '{', ' ']).into(),
            None if line.starts_with('}') => module.clear(),
            None => {}
        }
        let Some((_, last)) = line.trim().strip_prefix("pub use ").and_then(|path| path.rsplit_once("::")) else {
            continue;
        };
        let inside = if line.starts_with(' ') { module.clone() } else { String::new() };
        let last = last.trim_end_matches(';').trim_matches(['{', '}']);
        names.extend(last.split(", ").map(|name| (name.to_string(), inside.clone())));
    }
    names.retain(|(_, module)| module != "prelude");
    names
}

#[test]
fn every_public_name_of_bilevel_has_one_home_and_few_are_at_the_root() {
    let names = public_names();
    let root = names.iter().filter(|(_, module)| module.is_empty()).count();
    assert!((20..=26).contains(&root), "{root} names at the root: {names:?}");
    assert!(names.len() > 80, "{names:?}");
    for (number, (name, module)) in names.iter().enumerate() {
        let twice = names[..number].iter().find(|(other, _)| other == name);
        assert!(twice.is_none(), "{name} is in {module} and in {twice:?}");
    }
}

/// The crates that this one is built from, itself included.
fn crates_of(arguments: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--offline", "--locked", "--edges", "normal", "--prefix", "none"];
    let mut command = std::process::Command::new(env!("CARGO"));
    let output = command.args(tree).args(arguments).current_dir(repository()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    listed.lines().map(|line| line.trim_end_matches(" (*)").to_string()).collect()
}

#[test]
fn the_library_and_a_command_of_ones_own_are_built_from_few_crates() {
    let library = crates_of(&["--package", "bilevel", "--no-default-features"]);
    assert!((5..=20).contains(&library.len()), "{library:#?}");
    let command = crates_of(&["--package", "own-task"]);
    assert!((20..=90).contains(&command.len()), "{command:#?}");
}
