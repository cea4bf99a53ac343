//! Whether our losses, gradients and Hessian-vector products are those of JAX on the same numbers.

use crate::case::Case;
use crate::derivatives::{self, inputs, program};
use crate::differences::{Differences, Products};
use crate::error::{BenchError, Result};
use crate::losses::{conv64, mlp};
use crate::npy;
use crate::peers::{failed, output};
use crate::vision::{residual, warp};
use crate::vit::vit_block;
use bilevel_cpu::Cpu;
use bilevel_graph::{Array, DType, Graph, Runnable};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names of the compared cases.
pub const NAMES: [&str; 5] = ["mlp", "conv64", "vit_block", "residual", "warp"];

const PROGRAM: &str = include_str!("../peers/agree.py");

/// The largest difference allowed in a type.
fn goal(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-10 } else { 2e-5 }
}

fn build(name: &str) -> fn(&Graph, DType) -> Case {
    match name {
        "mlp" => mlp,
        "conv64" => conv64,
        "vit_block" => vit_block,
        "residual" => residual,
        _ => warp,
    }
}

/// Compares each case in each type and prints a JSON line for each; true when all are within the goals.
///
/// In f32, JAX rounds too. Where the two differ by more than the goal, both are held against f64; if ours is within the
/// goal of that and JAX is farther, the difference is JAX's and does not count.
pub fn run(python: &Path, cases: &[String], dtypes: &[DType], threads: usize) -> Result<bool> {
    let cpu = Cpu::with_threads(threads);
    let mut all_met = true;
    for name in cases {
        for &dtype in dtypes {
            let (ours, theirs) = both(&cpu, python, name, dtype)?;
            let apart = Differences::between(&ours, &theirs);
            let excess = apart.named().into_iter().filter(|(_, d)| *d > goal(dtype)).map(|(what, _)| what);
            let excess: Vec<&str> = excess.collect();
            let mut met = excess.is_empty();
            let mut note = String::new();
            if !met && dtype == DType::F32 {
                let exact = ours_alone(&cpu, name, DType::F64)?;
                let [of_ours, of_theirs] = [&ours, &theirs].map(|found| Differences::between(found, &exact).named());
                met = true;
                for (i, (what, _)) in apart.named().into_iter().enumerate().filter(|(_, (w, _))| excess.contains(w)) {
                    let (a, b) = (of_ours[i].1, of_theirs[i].1);
                    let jax = a <= goal(dtype) && b > a;
                    met &= jax;
                    let whose = if jax { "the difference is JAX's rounding" } else { "the difference is ours" };
                    note += &format!(
                        ", \"{what}_from_f64\": {{\"bilevel\": {a:.2e}, \"jax\": {b:.2e}, \"so\": \"{whose}\"}}"
                    );
                }
            }
            all_met &= met;
            println!(
                "{{\"case\": \"{name}\", \"dtype\": \"{dtype}\", \"loss\": {:.2e}, \"gradient\": {:.2e}, \"hvp\": {:.2e}, \
                 \"goal\": {:e}, \"met\": {met}{note}}}",
                apart.loss,
                apart.gradient,
                apart.product,
                goal(dtype),
            );
        }
    }
    Ok(all_met)
}

/// Ours and JAX's, from the same inputs.
fn both(cpu: &Cpu, python: &Path, name: &str, dtype: DType) -> Result<(Products, Products)> {
    let folder = Folder::new()?;
    let (ours, given) = evaluate(cpu, name, dtype)?;
    for (input, value) in &given {
        npy::write(&folder.0.join(format!("{input}.npy")), value)?;
    }
    let script = folder.0.join("agree.py");
    std::fs::write(&script, PROGRAM).map_err(BenchError::file(&script))?;
    let said = output(Command::new(python).arg(&script).arg(&folder.0).arg(name))?;
    if !said.status.success() {
        return Err(failed(&format!("JAX on {name} in {dtype}"), &said));
    }
    let count = ours.gradient.len();
    let read = |output: String| npy::read(&folder.0.join(format!("{output}.npy")));
    let theirs = Products {
        loss: read("loss".into())?,
        gradient: (0..count).map(|i| read(format!("g{i}"))).collect::<Result<_>>()?,
        product: (0..count).map(|i| read(format!("h{i}"))).collect::<Result<_>>()?,
    };
    Ok((ours, theirs))
}

fn ours_alone(cpu: &Cpu, name: &str, dtype: DType) -> Result<Products> {
    Ok(evaluate(cpu, name, dtype)?.0)
}

/// Our results, with the inputs they came from.
fn evaluate(cpu: &Cpu, name: &str, dtype: DType) -> Result<(Products, Vec<(String, Array)>)> {
    let g = Graph::new();
    let case = build(name)(&g, dtype);
    let program = program(&g, &case, derivatives::Products::GradientAndHessian)?;
    let mut run = cpu.plan(&program)?;
    let given = inputs(&case, &program)?;
    for (input, value) in &given {
        run.set(program.input(input)?, value)?;
    }
    run.run(0..1)?;
    let read = |output: String| Ok(run.output(program.output(&output)?)?);
    let count = case.parameters.len();
    let ours = Products {
        loss: read("loss".into())?,
        gradient: (0..count).map(|i| read(format!("g{i}"))).collect::<Result<_>>()?,
        product: (0..count).map(|i| read(format!("h{i}"))).collect::<Result<_>>()?,
    };
    Ok((ours, given))
}

/// A temporary folder, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bilevel-agree-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(BenchError::file(&path))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover in the temporary folder harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
