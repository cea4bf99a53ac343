//! Everything the command does, it does for a task that is registered elsewhere.

use std::path::Path;
use std::process::Command;

fn say(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let said = Command::new(env!("CARGO_BIN_EXE_own-task")).args(arguments).current_dir(folder).output().unwrap();
    (said.status.code(), String::from_utf8(said.stdout).unwrap() + &String::from_utf8(said.stderr).unwrap())
}

#[test]
fn a_task_registered_elsewhere_is_listed_run_resumed_compared_checked_and_reported() {
    let folder = std::env::temp_dir().join(format!("bilevel-own-task-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let done = |arguments: &[&str]| {
        let (code, said) = say(&folder, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        said
    };
    assert!(done(&["list"]).contains("  weight-decay  "));
    assert!(!done(&["list"]).contains("synth1d"));
    let config = done(&["run", "weight-decay", "--set", "task.pull=3", "--dry-run"]);
    assert!(config.contains("pull = 3.0             # the target of the parameter"), "{config}");
    // Training towards 3 ends at 1 where the decay is twice the pull.
    done(&["run", "weight-decay", "--set", "task.pull=3", "--out", "kept", "--quiet"]);
    let result = std::fs::read_to_string(folder.join("kept/result.json")).unwrap();
    let lambda = result.split("\"values\": [").nth(1).unwrap().split(']').next().unwrap().trim();
    assert!((lambda.parse::<f64>().unwrap() - 2.0).abs() < 0.05, "{result}");
    done(&["resume", "kept", "--outer", "320", "--quiet"]);
    done(&["report", "kept"]);
    done(&["check", "weight-decay"]);
    let compared = done(&["compare", "weight-decay", "--methods", "rmd,ift-cg", "--seeds", "1", "--out", "both"]);
    assert!(compared.contains("ift-cg"), "{compared}");
    let (code, said) = say(&folder, &["run", "weight-decay", "--set", "task.pul=3"]);
    assert_eq!(
        (code, said.trim()),
        (Some(2), "bilevel: --set task.pul=3: there is no key 'task.pul'; did you mean task.pull?")
    );
    assert!(done(&[]).contains("Usage: "));
    std::fs::remove_dir_all(folder).unwrap();
}
