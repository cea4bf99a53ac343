//! The GPU executor: its correctness, its speed compared with JAX, and its memory.

pub mod check;
pub mod curves;
mod deep;
mod invariance;
mod learned_loss;
mod maml;
pub mod memory;
mod nowhere;
pub mod profile;
pub mod stay;
pub mod time;
mod watching;

use crate::cases::derivatives::{Products, inputs, program};
use crate::error::Result;
use bilevel::Driver;
use bilevel_cuda::Cuda;
use bilevel_graph::{Array, DType, Graph, Precision, Program};
use bilevel_models::VitConfig;
use deep::{Outer, adjoint, l1reg, wide_resnet};

/// The names of the cases, those of the peers first.
pub const NAMES: [&str; 8] =
    ["l1reg", "vit_adjoint", "maml", "invariance", "alexnet_loss", "wrn_grad", "wrn_hvp", "giant"];
/// The default cases; a billion parameters only on request.
pub const USUAL: usize = NAMES.len() - 1;
/// Classes of the ViTs.
const CLASSES: usize = 37;

/// The computation of a case.
enum Work {
    /// One outer iteration at a time.
    Outer(Box<Outer>),
    /// A program with the values of its inputs.
    Evaluation(Box<Program>, Vec<(String, Array)>),
}

/// The computation of the case of this name; any other name is that of `wrn_grad`.
fn work(case: &str, precision: Precision) -> Result<Work> {
    let (vit, f32) = (VitConfig::base(16, CLASSES), DType::F32);
    let outer = match case {
        "l1reg" => l1reg(&vit, precision)?,
        "giant" => l1reg(&VitConfig::giant(14, CLASSES), precision)?,
        "vit_adjoint" => adjoint(&vit, precision)?,
        "maml" => maml::maml(maml::FULL, f32, precision)?,
        "invariance" => invariance::invariance(invariance::FULL, f32, precision)?,
        "alexnet_loss" => {
            let (network, method) = (learned_loss::network(), learned_loss::METHOD);
            learned_loss::learned_loss(&network, learned_loss::BATCH, method, (f32, precision))?
        }
        _ => {
            let graph = Graph::new();
            let made = wide_resnet(&graph, f32)?;
            let products = if case == "wrn_hvp" { Products::GradientAndHessian } else { Products::Gradient };
            let program = program(&graph, &made, products)?.with_precision(precision);
            let values = inputs(&made, &program, 0)?;
            return Ok(Work::Evaluation(Box::new(program), values));
        }
    };
    Ok(Work::Outer(Box::new(outer)))
}

/// The programs of a case, as planned for a GPU that need not be there: of its first outer iteration, or its only one.
pub fn programs(case: &str, precision: Precision) -> Result<Vec<Program>> {
    let seen = watching::Watching::without_gpu();
    match work(case, precision)? {
        Work::Evaluation(program, _) => return Ok(vec![*program]),
        Work::Outer(outer) => {
            let driver = Driver::new(&outer.problem, outer.method.clone())
                .inner(outer.inner)
                .executor(seen.clone())
                .rate(deep::RATE);
            // It cannot end well without a machine, but the first iteration compiles all programs.
            if let (Err(error), true) = (driver.iterations(1).run(), seen.seen().is_empty()) {
                return Err(error.into());
            }
        }
    }
    Ok(seen.seen().into_iter().map(|(program, _)| program).collect())
}

/// The first GPU, and a line with its name.
pub fn open() -> Result<Cuda> {
    let cuda = Cuda::new(0)?;
    let info = cuda.info();
    eprintln!("on {} (sm_{}, {:.0} GiB)", info.name, info.architecture, info.total_bytes as f64 / f64::from(1 << 30));
    Ok(cuda)
}
