//! Short attacks: that the command withstands them, and that they find what is wrong.

#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command to attack, where it was built together with these tests. Else it is built when it is needed, which takes minutes.
fn bilevel() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_bilevel-attack")).with_file_name("bilevel")
}

/// Attacks; the answer is the exit code and what was printed.
fn attack(words: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bilevel-attack"));
    command.args(words.split_whitespace());
    if bilevel().is_file() && !words.contains("--command") {
        command.arg("--command").arg(bilevel());
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout) + &text(output.stderr))
}

fn withstands(words: &str) {
    let (code, said) = attack(words);
    assert_eq!(code, Some(0), "attack {words}:\n{said}");
    assert!(said.lines().any(|line| line.starts_with("all ") && line.ends_with(" 0")), "{said}");
}

#[test]
fn the_command_withstands_a_short_attack_by_command_lines() {
    withstands("--only commands --seed 1 --cases 40");
}

#[test]
fn the_command_withstands_a_short_attack_on_files() {
    withstands("--only files --seed 1 --cases 10");
}

#[test]
fn the_engine_withstands_a_short_attack_by_graphs() {
    withstands("--only graphs --seed 1 --cases 120");
}

#[test]
fn the_command_withstands_a_short_attack_by_kills() {
    withstands("--only kills --seed 1 --cases 4");
}

#[test]
fn a_command_that_crashes_is_found_and_the_case_can_be_tried_again_alone() {
    // Builds the command, if nothing has.
    withstands("--only commands --seed 2 --cases 1");
    let folder = std::env::temp_dir().join(format!("bilevel-attack-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let script = folder.join("bilevel");
    let text = format!("#!/bin/sh\n[ \"$1\" = report ] && kill -SEGV $$\nexec {} \"$@\"\n", bilevel().display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();

    let (code, said) = attack(&format!("--only commands --seed 1 --cases 40 --command {}", script.display()));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("was ended by signal 11"), "{said}");
    let again = said.lines().find_map(|line| line.strip_prefix("        again: ")).unwrap();
    let (_, words) = again.split_once(" -- ").unwrap();
    let (code, said) = attack(words);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("was ended by signal 11"), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn without_a_command_to_attack_it_says_what_is_missing() {
    let (code, said) = attack("--only commands --command no/such/command");
    assert_eq!((code, said.as_str()), (Some(1), "no/such/command: No such file or directory (os error 2)\n"));
    let (code, said) = attack("--only kills --command /bin/false");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("nothing can be attacked, since 'bilevel run synth1d "), "{said}");
}
