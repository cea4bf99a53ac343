//! Finds the commit that a release build is made from; without a checkout, or in a debug build, there is none.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A debug build is made many times between two commits, and would be made again after each.
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
    };
    // If another repository holds a copy of this package, its commit would say nothing about it.
    let here = git(&["ls-files", "build.rs"]).is_some_and(|files| files == "build.rs");
    let commit = git(&["describe", "--always", "--dirty", "--abbrev=40", "--match="]);
    if let (true, Some(commit)) = (here, commit) {
        println!("cargo::rustc-env=BILEVEL_COMMIT={commit}");
    }
    // Any source may make the tree differ from its commit.
    println!("cargo::rerun-if-changed=..");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}
