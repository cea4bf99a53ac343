//! Agreement of our losses, gradients and Hessian-vector products with JAX on the same numbers. It covers parts of
//! networks and small networks in f64 and f32. In f64 it covers every model at its real size, and both losses of every
//! task of the deep experiments.

mod models;
mod posed;
mod table;
mod tasks;

use crate::cases::case::Case;
use crate::cases::choices::{self, Choice};
use crate::cases::derivatives;
use crate::cases::losses::{conv64, mlp};
use crate::cases::vision::{residual, warp};
use crate::cases::vit::vit_block;
use crate::cases::whole;
use crate::differences::{Differences, Products};
use crate::error::{BenchError, Result};
use crate::npy;
use crate::timing::peers::Peer;
use bilevel_cpu::Cpu;
use bilevel_graph::{Array, DType, Graph, Runnable};
use bilevel_run::Context;
use posed::{Level, Posed, products, ran};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use table::{Row, goal};
use tasks::{TASKS, TaskCase};

/// A loss of inputs with values from a seed.
struct Known {
    name: &'static str,
    about: &'static str,
    /// In f32 too; a model of real size only in f64.
    both_types: bool,
    build: fn(&Graph, DType) -> Result<Case>,
}

const fn small(name: &'static str, about: &'static str, build: fn(&Graph, DType) -> Result<Case>) -> Known {
    Known { name, about, both_types: true, build }
}

const fn of_real_size(name: &'static str, about: &'static str, build: fn(&Graph, DType) -> Result<Case>) -> Known {
    Known { name, about, both_types: false, build }
}

/// Parts and small networks first.
const LOSSES: [Known; 18] = [
    small("mlp", "784-1000-10, batch 1000", mlp),
    small("conv64", "Conv4 without norms, 84 px, batch 25", conv64),
    small("vit_block", "one block of ViT-B/16, batch 8", vit_block),
    small("residual", "one residual block", residual),
    small("warp", "images through exponentials of matrices", warp),
    small("vit", "two blocks, width 48", whole::vit),
    small("alexnet", "whole, 32 px, batch 4", whole::alexnet),
    small("wide_resnet", "WRN-10-2, 16 px, batch 6", whole::wide_resnet),
    small("efficientnet", "Lite0's first three stages, 24 px", whole::efficientnet),
    small("nerf", "2 × 16, 12 rays of 8 samples", whole::nerf),
    of_real_size("logistic", "whole, 784-10, batch 100", models::logistic),
    of_real_size("conv4", "whole, with norms, 84 px, batch 5", models::conv4),
    of_real_size("wrn_28_10", "whole, 16 px, batch 3", models::wrn_28_10),
    of_real_size("vit_b16", "whole, 224 px, batch 1", models::vit_b16),
    of_real_size("efficientnet_lite0", "whole, 64 px, batch 2", models::efficientnet_lite0),
    of_real_size("siren", "whole, 4 × 256, ω = 30", models::siren),
    of_real_size("fourier", "whole, 256 frequencies, 3 × 256", models::fourier),
    of_real_size("nerf_whole", "whole, 6 × 256, 8 rays of 64 samples", models::nerf_whole),
];

/// Names of all that can be compared.
pub const NAMES: [&str; LOSSES.len() + TASKS.len()] = {
    let (mut names, mut i) = ([""; LOSSES.len() + TASKS.len()], 0);
    while i < names.len() {
        names[i] = if i < LOSSES.len() { LOSSES[i].name } else { TASKS[i - LOSSES.len()].name };
        i += 1;
    }
    names
};

/// Names of the default comparisons: all, or all that read no files.
pub fn usual(with_data: bool) -> Vec<&'static str> {
    let tasks = TASKS.iter().filter(|task| with_data || !task.reads_data).map(|task| task.name);
    LOSSES.iter().map(|known| known.name).chain(tasks).collect()
}

/// How near to a tie a choice must be to be left to rounding, relative to the largest number compared there.
const NEAR: f64 = 1e-5;

/// A comparison and its peers.
pub struct Comparison {
    /// Ours.
    pub cpu: Cpu,
    /// JAX's.
    pub jax: Peer,
    /// The seed of the inputs.
    pub seed: u32,
    /// The folder of files that some tasks read.
    pub data: Option<PathBuf>,
}

impl Comparison {
    /// Compares each case in each type it has and prints a line of a table for each; true when there are some and all are
    /// within the goals.
    ///
    /// In f32, JAX rounds too, and rounding decides near ties. If the two differ by more than the goal, both are
    /// compared with f64, and ours also with f64 under our choices; differences explained by these do not count.
    pub fn run(&self, cases: &[String], dtypes: &[DType]) -> Result<bool> {
        let mut rows = vec![];
        let mut add = |row: Row| {
            say!("{}", row.line());
            rows.push(row);
        };
        say!("{}", table::header());
        for name in cases {
            let known = LOSSES.iter().find(|known| known.name == name);
            let both = known.is_some_and(|known| known.both_types);
            for &dtype in dtypes.iter().filter(|dtype| both || **dtype == DType::F64) {
                match (known, tasks::find(name)) {
                    (Some(known), _) => add(self.loss(known, dtype)?),
                    (None, Some(task)) => {
                        for level in [Level::Inner, Level::Outer] {
                            add(self.level(task, level)?);
                        }
                    }
                    // The arguments refuse all other names.
                    (None, None) => {}
                }
            }
        }
        say!("{}", table::sentence(&rows));
        Ok(!rows.is_empty() && rows.iter().all(Row::met))
    }

    fn loss(&self, known: &Known, dtype: DType) -> Result<Row> {
        let graph = Graph::new();
        let posed = Posed::case(&graph, &(known.build)(&graph, dtype)?, self.seed)?;
        let parameters = posed.parameters;
        let (ours, theirs) = self.both(posed, &[known.name])?;
        let apart = Differences::between(&ours, &theirs);
        let (case, about) = (known.name.into(), known.about.into());
        let row = Row { case, about, parameters, dtype, apart, explained: None };
        if row.met() || dtype == DType::F64 {
            return Ok(row);
        }
        Ok(Row { explained: Some(self.explained(known, apart, &ours, &theirs)?), ..row })
    }

    fn level(&self, task: &TaskCase, level: Level) -> Result<Row> {
        let (graph, dtype) = (Graph::new(), DType::F64);
        let context = Context { seed: self.seed.into(), data: self.data.clone(), dtype, ..Context::default() };
        let posed = Posed::task(&graph, task, level, &self.cpu, &context)?;
        let parameters = posed.parameters;
        let (ours, theirs) = self.both(posed, &[task.name, level.word()])?;
        let apart = Differences::between(&ours, &theirs);
        let case = format!("{}, {}", task.name, level.word());
        Ok(Row { case, about: task.about.into(), parameters, dtype, apart, explained: None })
    }

    /// Whether f64 explains every f32 difference above the goal, and sentences that explain it.
    fn explained(
        &self,
        known: &Known,
        apart: Differences,
        ours: &Products,
        theirs: &Products,
    ) -> Result<(bool, Vec<String>)> {
        let limit = goal(DType::F32);
        let (exact, exact_choices) = self.choosing(known, DType::F64, None)?;
        let (_, our_choices) = self.choosing(known, DType::F32, None)?;
        let flips = choices::flips(&exact_choices, &our_choices);
        drop(exact_choices);
        let near = flips.count > 0 && flips.margin <= NEAR;
        let same = if near { Some(self.choosing(known, DType::F64, Some(&our_choices))?.0) } else { None };
        let same = same.as_ref().unwrap_or(&exact);
        let [of_ours, of_theirs, of_same] = [(ours, &exact), (theirs, &exact), (ours, same)]
            .map(|(found, expected)| Differences::between(found, expected).named());
        let mut met = true;
        let mut said = vec![format!(
            "{} of {} choices are others than in f64, at most {:.1e} from a tie",
            flips.count, flips.total, flips.margin
        )];
        for (i, (what, difference)) in apart.named().into_iter().enumerate() {
            if difference <= limit {
                continue;
            }
            let (a, b, c) = (of_ours[i].1, of_theirs[i].1, of_same[i].1);
            let why = if a <= limit && b > a {
                "JAX's rounding"
            } else if near && c <= limit {
                "near ties that rounding decides"
            } else {
                met = false;
                "ours"
            };
            said.push(format!(
                "{what}: ours is {a:.1e} from f64, and {c:.1e} with the same choices; JAX's is {b:.1e} from f64: {why}"
            ));
        }
        Ok((met, said))
    }

    /// Ours and JAX's, from the same inputs; the words name the case to the peer.
    fn both(&self, mut posed: Posed, words: &[&str]) -> Result<(Products, Products)> {
        let folder = Folder::new()?;
        let ours = posed.run(&self.cpu)?;
        let count = posed.arrays;
        let names: String = posed.given.iter().map(|given| format!("{}\t{}\n", given.file, given.name)).collect();
        let path = folder.0.join("names.txt");
        std::fs::write(&path, names).map_err(BenchError::file(&path))?;
        for given in &posed.given {
            npy::write(&folder.0.join(format!("{}.npy", given.file)), &given.value)?;
        }
        // A large model should not be in memory twice.
        drop(posed);
        self.jax.said(&[&[&*folder.0.to_string_lossy()], words].concat())?;
        let read = |output: String| npy::read(&folder.0.join(format!("{output}.npy")));
        let theirs = Products {
            loss: read("loss".into())?,
            gradient: (0..count).map(|i| read(format!("g{i}"))).collect::<Result<_>>()?,
            product: (0..count).map(|i| read(format!("h{i}"))).collect::<Result<_>>()?,
        };
        Ok((ours, theirs))
    }

    /// Our results with the choices made on the way, or under these choices.
    fn choosing(&self, known: &Known, dtype: DType, under: Option<&[Choice]>) -> Result<(Products, Vec<Choice>)> {
        let g = Graph::new();
        let case = (known.build)(&g, dtype)?;
        let program = derivatives::program(&g, &case, derivatives::Products::GradientAndHessian)?;
        let mut given = derivatives::given(&case, self.seed)?;
        let count = case.parameters.len();
        let run = |program, given: &[(String, Array)]| {
            let given: Vec<(&str, &Array)> = given.iter().map(|(name, value)| (&name[..], value)).collect();
            ran(&self.cpu, program, &given)
        };
        if let Some(choices) = under {
            given.extend(choices::converted(choices, dtype)?);
            return Ok((products(&run(&choices::imposed(&program), &given)?, count)?, vec![]));
        }
        let program = choices::revealed(&program);
        let run = run(&program, &given)?;
        let made = choices::made(&program, |output| run.output(program.output(output)?))?;
        Ok((products(&run, count)?, made))
    }
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
        // A leftover in the temporary folder is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_case_and_tasks_that_read_files_wait_for_them() {
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMES.len());
        assert_eq!(usual(true), NAMES);
        let without = usual(false);
        assert!(!without.contains(&"learned_loss_wrn") && without.contains(&"learned_loss"));
    }

    #[test]
    fn every_small_model_is_a_loss_with_a_name_for_each_parameter() {
        for known in LOSSES {
            let graph = Graph::new();
            let case = (known.build)(&graph, DType::F64).unwrap();
            assert!(case.loss.check().unwrap().shape().is_empty(), "{}", known.name);
            assert_eq!((case.name, case.names.len()), (known.name, case.parameters.len()));
        }
    }

    #[test]
    fn a_task_that_reads_files_says_so_without_them() {
        let comparison = Comparison {
            cpu: Cpu::with_threads(1),
            jax: Peer::agreeing("no-such-python".as_ref()),
            seed: 0,
            data: None,
        };
        let error = comparison.run(&["invariance_mnist".into()], &[DType::F64]).unwrap_err().to_string();
        assert!(error.contains("--data DIR"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_peer_that_finds_other_numbers_makes_the_comparison_fail() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new().unwrap();
        let [number, python] = ["number.npy", "python"].map(|name| folder.0.join(name));
        npy::write(&number, &Array::scalar(1.0, DType::F64)).unwrap();
        // Called as: python -c PROGRAM FOLDER CASE. The parameters themselves are no gradient.
        let copies = "cp p0.npy g0.npy && cp p1.npy g1.npy && cp p0.npy h0.npy && cp p1.npy h1.npy";
        let text = format!("#!/bin/sh\ncd \"$3\" && cp {} loss.npy && {copies}\n", number.display());
        std::fs::write(&python, text).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let jax = Peer::agreeing(&python);
        let comparison = Comparison { cpu: Cpu::with_threads(1), jax, seed: 0, data: None };
        assert!(!comparison.run(&["logistic".into()], &[DType::F64]).unwrap());
        assert!(!comparison.run(&["logistic".into()], &[DType::F32]).unwrap(), "there is nothing to compare in f32");
    }
}
