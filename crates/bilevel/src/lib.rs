//! Gradient-based bi-level optimization: a problem is two losses, a method estimates the derivative of the outer loss
//! through the inner training, and an outer loop follows it.

mod checkpoint;
mod checkpoint_error;
mod checkpoint_folder;
mod curvature;
mod diagnostics;
mod divergence;
mod driver;
mod error;
mod estimator;
mod estimators;
mod evaluator;
mod fingerprint;
mod json_lines;
mod losses;
mod methods;
mod observer;
mod optimizer;
mod outer_loop;
mod outer_step;
mod probe;
mod problem;
mod progress;
mod progress_line;
mod routine;
mod schedule;
mod scope;
mod spelling;
mod stopping;
mod trace;
mod variable;
pub mod whole_file;

pub use bilevel_cpu::Cpu;
pub use bilevel_graph as graph;
pub use bilevel_graph::{Array, DType, Leaf, Tensor, Tree};
pub use checkpoint::{Checkpoint, FORMAT_VERSION};
pub use checkpoint_error::CheckpointError;
pub use checkpoint_folder::{Checkpoints, Newest};
pub use curvature::Curvature;
pub use diagnostics::{Diagnostics, Warning};
pub use divergence::{Cause, Diagnosis};
pub use driver::Driver;
pub use error::{Error, Result};
pub use estimator::{Estimator, Hypergradient, Method, Oracles, State};
pub use estimators::{
    AmigoCg, AmigoSgd, Chains, Covariance, Es, Fmd, HpoSgld, IftCg, IftNeumann, Imaml, LangevinAdjoint, PreparedRmd,
    Reptile, Rmd, RmdFo, Storage,
};
pub use evaluator::Evaluator;
pub use fingerprint::Fingerprint;
pub use json_lines::JsonLines;
pub use losses::Losses;
pub use methods::{AnyMethod, MethodInfo, methods};
pub use observer::{Beginning, Iteration, Observer, Recorder};
pub use optimizer::{Adam, Momentum, Optimizer, Sgd};
pub use probe::InnerTime;
pub use problem::{Problem, ProblemBuilder};
pub use progress_line::ProgressLine;
pub use routine::Routine;
pub use schedule::Schedule;
pub use scope::Scope;
pub use spelling::{by_nearness, nearest};
pub use stopping::{Outcome, StopReason, StopSignal};
pub use trace::{Trace, or_zeros};
pub use variable::{Start, Variable};
