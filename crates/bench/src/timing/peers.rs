//! Runs the peers' Python programs, which are part of this one, and reads the lines they print.

use crate::error::{BenchError, Result};
use crate::timing::line::Line;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program of the folder `peers`.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The file.
    name: &'static str,
    /// Its text.
    text: &'static str,
    /// The Python modules it needs.
    modules: &'static str,
    /// The cases it has; it stops at one it does not know.
    cases: &'static [&'static str],
}

/// The programs that time the cases of the CPU, JAX's first.
pub const CPU: [Program; 2] = [
    Program {
        name: "cpu_jax.py",
        text: include_str!("../../peers/cpu_jax.py"),
        modules: "jax",
        cases: &crate::cases::timed::NAMES,
    },
    Program {
        name: "cpu_torch.py",
        text: include_str!("../../peers/cpu_torch.py"),
        modules: "torch",
        cases: &["synth1d", "mlp", "conv64", "vit_block"],
    },
];

/// Those that time the cases of the GPU.
pub const GPU: [Program; 2] = [
    Program {
        name: "gpu_jax.py",
        text: include_str!("../../peers/gpu_jax.py"),
        modules: "jax",
        cases: crate::gpu::NAMES.split_at(crate::gpu::USUAL).0,
    },
    Program {
        name: "gpu_torch.py",
        text: include_str!("../../peers/gpu_torch.py"),
        modules: "torch, torchvision",
        cases: &["l1reg"],
    },
];

/// The program for the comparisons of `agree`: models, losses of tasks, and their derivatives.
pub const AGREE: Program = Program {
    name: "agree.py",
    text: concat!(
        include_str!("../../peers/agree_models.py"),
        include_str!("../../peers/agree_tasks.py"),
        include_str!("../../peers/agree.py")
    ),
    modules: "jax",
    cases: &crate::agree::NAMES,
};

/// A program with the Python that runs it.
#[derive(Clone, Debug)]
pub struct Peer {
    python: PathBuf,
    program: Program,
}

/// The programs this Python can run: JAX's always, PyTorch's if it is installed.
pub fn find(python: &Path, [jax, torch]: [Program; 2]) -> Result<Vec<Peer>> {
    let peer = |program| Peer { python: python.into(), program };
    let (jax, torch) = (peer(jax), peer(torch));
    if !jax.can_run()? {
        let sentence = format!("'import jax' fails in {}; give --peer a Python that has jax", python.display());
        return Err(BenchError::Peer(sentence));
    }
    if !torch.can_run()? {
        eprintln!("this Python cannot import {}, so JAX is the only peer", torch.program.modules);
        return Ok(vec![jax]);
    }
    Ok(vec![jax, torch])
}

/// Runs a program to its end; an error if it cannot be started.
pub fn output(command: &mut Command) -> Result<Output> {
    command.output().map_err(|cause| {
        let program = command.get_program().to_string_lossy().into_owned();
        BenchError::Peer(format!("{program} cannot be started ({cause}); give --peer the path of a Python"))
    })
}

/// An error for a failed program, with its last line.
pub fn failed(what: &str, output: &Output) -> BenchError {
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    BenchError::Peer(format!("{what} ended with {}; it said: {last}", output.status))
}

impl Peer {
    /// This Python with the program that `agree` compares with.
    pub fn agreeing(python: &Path) -> Self {
        Peer { python: python.into(), program: AGREE }
    }

    fn can_run(&self) -> Result<bool> {
        Ok(self.python(&format!("import {}", self.program.modules), &[])?.status.success())
    }

    fn python(&self, program: &str, words: &[&str]) -> Result<Output> {
        output(Command::new(&self.python).arg("-c").arg(program).args(words))
    }

    /// Whether the program has this case.
    pub fn has(&self, case: &str) -> bool {
        self.program.cases.contains(&case)
    }

    /// Runs the program with these arguments to its end, and returns its output.
    pub fn said(&self, words: &[&str]) -> Result<String> {
        let output = self.python(self.program.text, words)?;
        if !output.status.success() {
            return Err(failed(&format!("{} {}", self.program.name, words.join(" ")), &output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The lines this peer prints for a case; none if it lacks it.
    pub fn run(&self, case: &str) -> Result<Vec<Line>> {
        if !self.has(case) {
            return Ok(vec![]);
        }
        Ok(self.said(&[case])?.lines().filter_map(Line::parse).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_that_cannot_be_started_is_named_with_the_flag_that_helps() {
        let error = find(Path::new("no-such-python"), CPU).unwrap_err().to_string();
        assert!(error.contains("no-such-python") && error.contains("--peer"), "{error}");
    }

    #[test]
    fn every_case_has_a_function_in_the_programs_that_list_it() {
        for program in CPU.into_iter().chain(GPU).chain([AGREE]) {
            for case in program.cases {
                // Its own function, or that of another case, in a table.
                let names = [format!("def {case}("), format!("\"{case}\": ")];
                assert!(names.iter().any(|name| program.text.contains(name)), "{} has no {case}", program.name);
            }
        }
    }
}
