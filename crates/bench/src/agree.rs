//! Whether our losses, gradients and Hessian-vector products are those of JAX on the same numbers.

use crate::case::Case;
use crate::choices::{self, Choice};
use crate::derivatives::{self, inputs, program};
use crate::differences::{Differences, Products};
use crate::error::{BenchError, Result};
use crate::losses::{conv64, mlp};
use crate::npy;
use crate::peers::Peer;
use crate::vision::{residual, warp};
use crate::vit::vit_block;
use crate::whole;
use bilevel_cpu::{Cpu, CpuRun};
use bilevel_graph::{Array, DType, Graph, Program, Runnable};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names of the compared cases.
pub const NAMES: [&str; 10] =
    ["mlp", "conv64", "vit_block", "residual", "warp", "vit", "alexnet", "wide_resnet", "efficientnet", "nerf"];

/// The largest difference allowed in a type.
fn goal(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-10 } else { 2e-5 }
}

fn build(name: &str) -> fn(&Graph, DType) -> Result<Case> {
    match name {
        "mlp" => mlp,
        "conv64" => conv64,
        "vit_block" => vit_block,
        "residual" => residual,
        "vit" => whole::vit,
        "alexnet" => whole::alexnet,
        "wide_resnet" => whole::wide_resnet,
        "efficientnet" => whole::efficientnet,
        "nerf" => whole::nerf,
        _ => warp,
    }
}

/// How near to a tie a choice must be to be left to rounding, relative to the largest number compared there.
const NEAR: f64 = 1e-5;

/// What is compared with what.
pub struct Comparison {
    /// Ours.
    pub cpu: Cpu,
    /// JAX's.
    pub jax: Peer,
    /// The seed of the inputs.
    pub seed: u32,
}

impl Comparison {
    /// Compares each case in each type and prints a JSON line for each; true when all are within the goals.
    ///
    /// In f32, JAX rounds too, and rounding decides near ties. Where the two differ by more than the goal, both are held
    /// against f64, and ours also against f64 that chooses as ours did; what that explains does not count.
    pub fn run(&self, cases: &[String], dtypes: &[DType]) -> Result<bool> {
        let mut all_met = true;
        for name in cases {
            for &dtype in dtypes {
                let (ours, theirs) = self.both(name, dtype)?;
                let apart = Differences::between(&ours, &theirs);
                let mut met = apart.named().iter().all(|(_, difference)| *difference <= goal(dtype));
                let mut note = String::new();
                if !met && dtype == DType::F32 {
                    (met, note) = self.explained(name, apart, &ours, &theirs)?;
                }
                all_met &= met;
                say!(
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

    /// Whether f64 explains every f32 difference above the goal, and the fields that say how.
    fn explained(&self, name: &str, apart: Differences, ours: &Products, theirs: &Products) -> Result<(bool, String)> {
        let limit = goal(DType::F32);
        let (exact, exact_choices) = self.choosing(name, DType::F64, None)?;
        let (_, our_choices) = self.choosing(name, DType::F32, None)?;
        let flips = choices::flips(&exact_choices, &our_choices);
        drop(exact_choices);
        let near = flips.count > 0 && flips.margin <= NEAR;
        let same = if near { Some(self.choosing(name, DType::F64, Some(&our_choices))?.0) } else { None };
        let same = same.as_ref().unwrap_or(&exact);
        let [of_ours, of_theirs, of_same] = [(ours, &exact), (theirs, &exact), (ours, same)]
            .map(|(found, expected)| Differences::between(found, expected).named());
        let mut met = true;
        let mut note = format!(
            ", \"choices_rounded_otherwise\": {{\"bilevel\": {}, \"of\": {}, \"margin\": {:.1e}}}",
            flips.count, flips.total, flips.margin
        );
        for (i, (what, difference)) in apart.named().into_iter().enumerate() {
            if difference <= limit {
                continue;
            }
            let (a, b, c) = (of_ours[i].1, of_theirs[i].1, of_same[i].1);
            let why = if a <= limit && b > a {
                "JAX's rounding"
            } else if near && c <= limit {
                "near ties that rounding decides; with the same choices ours agrees with f64"
            } else {
                met = false;
                "ours"
            };
            note += &format!(
                ", \"{what}_from_f64\": {{\"bilevel\": {a:.2e}, \"jax\": {b:.2e}, \"bilevel_same_choices\": {c:.2e}, \
             \"cause\": \"{why}\"}}"
            );
        }
        Ok((met, note))
    }

    /// Ours and JAX's, from the same inputs.
    fn both(&self, name: &str, dtype: DType) -> Result<(Products, Products)> {
        let folder = Folder::new()?;
        let (ours, given) = self.evaluate(name, dtype)?;
        for (input, value) in &given {
            npy::write(&folder.0.join(format!("{input}.npy")), value)?;
        }
        self.jax.said(&[&folder.0.to_string_lossy(), name])?;
        let count = ours.gradient.len();
        let read = |output: String| npy::read(&folder.0.join(format!("{output}.npy")));
        let theirs = Products {
            loss: read("loss".into())?,
            gradient: (0..count).map(|i| read(format!("g{i}"))).collect::<Result<_>>()?,
            product: (0..count).map(|i| read(format!("h{i}"))).collect::<Result<_>>()?,
        };
        Ok((ours, theirs))
    }

    /// Our results, with the inputs they came from.
    fn evaluate(&self, name: &str, dtype: DType) -> Result<(Products, Vec<(String, Array)>)> {
        let g = Graph::new();
        let case = build(name)(&g, dtype)?;
        let program = program(&g, &case, derivatives::Products::GradientAndHessian)?;
        let given = inputs(&case, &program, self.seed)?;
        let run = ran(&self.cpu, &program, &given)?;
        Ok((products(&run, case.parameters.len())?, given))
    }

    /// Our results with the choices made on the way, or under these choices.
    fn choosing(&self, name: &str, dtype: DType, under: Option<&[Choice]>) -> Result<(Products, Vec<Choice>)> {
        let g = Graph::new();
        let case = build(name)(&g, dtype)?;
        let program = program(&g, &case, derivatives::Products::GradientAndHessian)?;
        let mut given = inputs(&case, &program, self.seed)?;
        let count = case.parameters.len();
        if let Some(choices) = under {
            given.extend(choices::converted(choices, dtype)?);
            return Ok((products(&ran(&self.cpu, &choices::imposed(&program), &given)?, count)?, vec![]));
        }
        let program = choices::revealed(&program);
        let run = ran(&self.cpu, &program, &given)?;
        let made = choices::made(&program, |output| run.output(program.output(output)?))?;
        Ok((products(&run, count)?, made))
    }
}

fn ran(cpu: &Cpu, program: &Program, given: &[(String, Array)]) -> Result<CpuRun> {
    let mut run = cpu.plan(program)?;
    for (input, value) in given {
        run.set(program.input(input)?, value)?;
    }
    run.run(0..1)?;
    Ok(run)
}

fn products(run: &CpuRun, count: usize) -> Result<Products> {
    let read = |output: String| Ok(run.output(run.program().output(&output)?)?);
    Ok(Products {
        loss: read("loss".into())?,
        gradient: (0..count).map(|i| read(format!("g{i}"))).collect::<Result<_>>()?,
        product: (0..count).map(|i| read(format!("h{i}"))).collect::<Result<_>>()?,
    })
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
