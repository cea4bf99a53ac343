//! Runs the peers' Python programs and reads the lines they print.

use crate::error::{BenchError, Result};
use crate::line::Line;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A peer's program.
#[derive(Clone, Debug)]
pub struct Peer {
    python: PathBuf,
    program: PathBuf,
    cases: &'static [&'static str],
}

/// What PyTorch's program times; it stops at a case it does not know.
const TORCH_CASES: &[&str] = &["synth1d", "mlp", "conv64", "vit_block"];

/// Where the peers' programs lie unless told otherwise: beside the workspace.
pub fn default_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peers")
}

/// The peers this Python can run: JAX always, PyTorch where it is installed.
pub fn find(python: &Path, folder: &Path) -> Result<Vec<Peer>> {
    if !imports(python, "jax")? {
        let sentence = format!("'import jax' fails in {}; give --peer a Python that has jax", python.display());
        return Err(BenchError::Peer(sentence));
    }
    let jax = Peer { python: python.into(), program: program(folder, "cpu_jax.py")?, cases: &crate::cases::NAMES };
    if !imports(python, "torch")? {
        eprintln!("this Python has no torch, so JAX is the only peer");
        return Ok(vec![jax]);
    }
    let torch = Peer { python: python.into(), program: program(folder, "cpu_torch.py")?, cases: TORCH_CASES };
    Ok(vec![jax, torch])
}

fn program(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    if path.is_file() {
        return Ok(path);
    }
    let sentence = format!("there is no {name} in {}; pass its folder with --peers-dir", folder.display());
    Err(BenchError::Peer(sentence))
}

fn imports(python: &Path, module: &str) -> Result<bool> {
    Ok(output(Command::new(python).arg("-c").arg(format!("import {module}")))?.status.success())
}

/// Runs a program to its end; an error where it cannot be started.
pub fn output(command: &mut Command) -> Result<Output> {
    command.output().map_err(|cause| {
        let program = command.get_program().to_string_lossy().into_owned();
        BenchError::Peer(format!("{program} cannot be started ({cause}); give --peer the path of a Python"))
    })
}

/// An error for a program that ended badly, with the last thing it said.
pub fn failed(what: &str, output: &Output) -> BenchError {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    BenchError::Peer(format!("{what} ended with {}; it said: {last}", output.status))
}

impl Peer {
    /// The lines this peer prints for a case; none where it does not have it.
    pub fn run(&self, case: &str) -> Result<Vec<Line>> {
        if !self.cases.contains(&case) {
            return Ok(vec![]);
        }
        let output = output(Command::new(&self.python).arg(&self.program).arg(case))?;
        if !output.status.success() {
            return Err(failed(&format!("{} {case}", self.program.display()), &output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(Line::parse).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_flag_that_helps() {
        let error = find(Path::new("no-such-python"), Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("no-such-python") && error.contains("--peer"), "{error}");
        let error = program(Path::new("no-such-folder"), "cpu_jax.py").unwrap_err().to_string();
        assert!(error.contains("cpu_jax.py") && error.contains("--peers-dir"), "{error}");
    }
}
