//! The guide's gallery: each section has a picture, a program in Rust and one in Python, and shows the stored text of the first.
//!
//! `.ci/gallery` holds the stored texts to those that the programs print.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn chapter() -> PathBuf {
    root().join("docs/guide/src/gallery.md")
}

/// The names of the examples whose texts are stored, in order.
fn stored() -> Vec<String> {
    let files = std::fs::read_dir(root().join("docs/results/gallery")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> =
        files.filter_map(|name| name.to_str().unwrap().strip_suffix(".txt").map(String::from)).collect();
    names.sort();
    names
}

/// What stands between two marks.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split_once(after).map(|(found, _)| found)
}

/// The sections with an example, each with the example's name.
fn sections(text: &str) -> Vec<(String, &str)> {
    let all = text.split("\n## ").skip(1);
    all.filter_map(|section| Some((between(section, "](images/gallery/", ".svg)")?.to_string(), section))).collect()
}

#[test]
fn each_section_shows_what_its_program_printed() {
    let mut text = std::fs::read_to_string(chapter()).unwrap();
    for (name, section) in sections(&text.clone()) {
        let path = root().join(format!("docs/results/gallery/{name}.txt"));
        let printed = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let shown = between(section, "```text\n", "```").unwrap_or_else(|| panic!("{name} shows no text"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            text = text.replacen(section, &section.replacen(shown, &printed, 1), 1);
        } else {
            assert_eq!(shown, printed, "{name}: run the test with UPDATE_GOLDEN=1");
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(chapter(), text).unwrap();
    }
}

#[test]
fn each_of_ten_sections_has_a_picture_and_a_program_in_both_languages() {
    let text = std::fs::read_to_string(chapter()).unwrap();
    let mut shown = vec![];
    for (name, section) in sections(&text) {
        let picture =
            std::fs::read_to_string(root().join(format!("docs/guide/src/images/gallery/{name}.svg"))).unwrap();
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{name}");
        assert!(section.contains(&format!("](../../../crates/bilevel/examples/{name}.rs)")), "{name} has no Rust");
        let python = between(section, "](../../../crates/python/examples/", ")").unwrap_or("no Python");
        let program = std::fs::read_to_string(root().join("crates/python/examples").join(python)).unwrap();
        assert!(program.contains(&format!("python crates/python/examples/{python} [PICTURE.svg]")), "{python}");
        let tested = std::fs::read_to_string(root().join("crates/python/tests/test_examples.py")).unwrap();
        let module = python.trim_end_matches(".py");
        assert!(tested.contains(&format!("loaded(\"{module}\"")), "{module} is not tested");
        shown.push(name);
    }
    shown.sort();
    assert_eq!((shown.len(), &shown), (10, &stored()));
}
