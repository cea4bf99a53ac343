//! The command as a person meets it.

use std::process::{Command, Output};

fn bilevel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bilevel")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn without_arguments_it_shows_all_three_parts_as_plain_text() {
    let output = bilevel(&[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for heading in ["1. A loss", "2. A bi-level problem", "3. A network"] {
        assert!(shown.contains(heading), "{shown}");
    }
    assert!(!shown.contains('\x1b'), "escape codes in a pipe");
    assert!(shown.contains("λ.bias cannot influence"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 120), "a line is too long:\n{shown}");
}

#[test]
fn help_and_version_are_answered() {
    let help = bilevel(&["--help"]);
    assert!(help.status.success() && text(&help.stdout).contains("Usage: bilevel"));
    let version = bilevel(&["--version"]);
    assert_eq!(text(&version.stdout), format!("bilevel {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn an_unknown_argument_is_named_in_one_sentence_and_ends_with_code_2() {
    let output = bilevel(&["--fast"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(said.contains("'--fast'") && said.lines().count() == 1, "{said}");
}
