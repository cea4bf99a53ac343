//! ARCHITECTURE.md and CONTRIBUTING.md name the files that there are.

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

/// A row of a crate's table: the files and folders in its first column, and what it says of them.
struct Row<'a> {
    names: Vec<&'a str>,
    idea: &'a str,
}

/// Every crate with the rows of its tables.
fn crates(text: &str) -> Vec<(&str, Vec<Row<'_>>)> {
    let chapter = text.split("\n## Crates\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let sections = chapter.split("\n### ").skip(1).map(|section| {
        let rows = section.lines().filter(|line| line.starts_with("| `")).map(|line| {
            let (names, idea) = line.trim_start_matches("| ").split_once(" | ").unwrap();
            Row { names: quoted(names), idea }
        });
        (section.split(' ').next().unwrap(), rows.collect())
    });
    sections.collect()
}

/// True for the files that no table needs: roots of crates and of folders, and tests beside the code they test.
fn is_plain(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap();
    ["lib.rs", "main.rs"].contains(&file) || file.contains('/') && (name == "mod.rs" || name.starts_with("tests"))
}

#[test]
fn architecture_lists_every_source_file_and_no_other() {
    let text = read("ARCHITECTURE.md");
    let crates = crates(&text);
    let folders: BTreeSet<String> = std::fs::read_dir(repository().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(crates.iter().map(|(name, _)| name.to_string()).collect::<BTreeSet<_>>(), folders);
    let mut wrong = vec![];
    for (name, rows) in &crates {
        let folder = repository().join("crates").join(name);
        let source = folder.join("src");
        let listed: Vec<&str> = rows.iter().flat_map(|row| &row.names).copied().collect();
        for entry in &listed {
            // Tests that others share may be listed as well.
            let root = if entry.starts_with("tests/") { &folder } else { &source };
            let path = root.join(entry);
            if !(if entry.ends_with('/') { path.is_dir() } else { path.is_file() }) {
                wrong.push(format!("{name}: there is no {entry}"));
            }
        }
        // A folder is listed as such, or belongs to the file with its name.
        let is_covered = |file: &str| {
            let parents = file.match_indices('/').map(|(at, _)| &file[..at]);
            listed.contains(&file)
                || parents
                    .flat_map(|parent| [format!("{parent}/"), format!("{parent}.rs")])
                    .any(|of| listed.contains(&&of[..]))
        };
        let all = files(&source);
        for file in all.iter().filter(|file| !is_plain(file) && !is_covered(file)) {
            wrong.push(format!("{name}: {file} is in no table"));
        }
        for row in rows {
            let in_folder = |file: &str| row.names.iter().any(|entry| entry.ends_with('/') && file.starts_with(entry));
            let Some(entry) = row.names.iter().find(|entry| entry.ends_with('/') && !entry.starts_with("tests/"))
            else {
                continue;
            };
            // What lies in a folder, by its name there and without its ending.
            let parts = |file: &str| {
                let entry = row.names.iter().find(|entry| entry.ends_with('/') && file.starts_with(**entry)).unwrap();
                file[entry.len()..].split(['/', '.']).next().unwrap().to_string()
            };
            let there: BTreeSet<String> = all.iter().filter(|file| in_folder(file)).map(|file| parts(file)).collect();
            let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            let said: BTreeSet<String> = quoted(row.idea).into_iter().filter(is_name).map(String::from).collect();
            for word in said.difference(&there) {
                wrong.push(format!("{name}: {entry} has no {word}"));
            }
            // Either a folder holds one of a kind per file, or each file is named.
            let by_others = |file: &str| listed.iter().any(|other| *other != *entry && file.starts_with(other));
            let named = all.iter().filter(|file| in_folder(file) && !is_plain(file) && !by_others(file));
            for file in named.filter(|file| !row.idea.contains("per file") && !said.contains(&parts(file))) {
                wrong.push(format!("{name}: the row of {entry} does not name {file}"));
            }
        }
    }
    assert!(wrong.is_empty(), "ARCHITECTURE.md:\n{}", wrong.join("\n"));
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
    let steps = text.split("## How to add a primitive").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let named = quoted(steps);
    // Primitives that nothing treats specially, as Rust and as CUDA C name them.
    const PRIMITIVES: [&str; 4] = ["Log1p", "Cos", "op_log1p", "op_cos"];
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = 0;
    for name in ["graph", "plan", "cpu", "cuda"] {
        let source = repository().join("crates").join(name).join("src");
        for file in files(&source).iter().filter(|file| !file.starts_with("conformance/") && !is_plain(file)) {
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
