//! Gradient-based bilevel optimisation: learns hyperparameters λ by differentiating a validation loss through training.
//!
//! Use it if you have more hyperparameters than a grid can handle: a penalty for each weight, a weight for each example,
//! an augmentation, a loss or an initialisation. A [`Problem`] is two losses written in plain Rust on symbolic tensors.
//! The inner loss trains parameters θ and depends on λ; the outer loss judges the trained θ. A method estimates the
//! hypergradient, the derivative of the outer loss through the whole training, with exact second-order products. A
//! [`Driver`] moves λ against it, with diagnostics, observers and checkpoints.
//!
//! ```
//! use bilevel::prelude::*;
//!
//! // Ridge regression: which weight decay e^λ makes the fit on three points best on two others?
//! let problem = Problem::builder(Leaf(Variable::constant([], 0.0)), Leaf(Variable::constant([2, 1], 0.0)))
//!     .data("x", Array::from_f64([3, 2], vec![1.0, 0.0, 1.0, 1.0, 1.0, 2.0])?)
//!     .data("y", Array::from_f64([3, 1], vec![0.2, 1.3, 1.7])?)
//!     .data("x_new", Array::from_f64([2, 2], vec![1.0, 3.0, 1.0, 4.0])?)
//!     .data("y_new", Array::from_f64([2, 1], vec![2.3, 3.1])?)
//!     .inner(|s, l, t| (s.data("x").matmul(t.0) - s.data("y")).square().sum_all() + l.0.exp() * t.0.square().sum_all())
//!     .outer(|s, _, t| (s.data("x_new").matmul(t.0) - s.data("y_new")).square().sum_all())
//!     .build()?;
//! let outcome = Driver::new(&problem, IftCg::default()).optimizer(Adam::default()).rate(0.1).iterations(100).run()?;
//! let decay = outcome.lambda.0.item().unwrap().exp();
//! assert!((decay - 0.436).abs() < 0.01, "{decay}");
//! # Ok::<(), bilevel::Error>(())
//! ```
//!
//! # Which method
//!
//! | your problem | method |
//! |---|---|
//! | anything, first; noisy or non-convex training | [`LangevinAdjoint`](methods::LangevinAdjoint) |
//! | training reaches a minimum | [`IftCg`](methods::IftCg); [`Nystrom`](methods::Nystrom) if the Hessian is nearly singular |
//! | training is short, or starts from λ | [`Rmd`](methods::Rmd); [`Fmd`](methods::Fmd) if λ has few numbers |
//! | many cheap outer iterations with minibatches | single-loop methods such as [`Soba`](methods::Soba) |
//! | second derivatives cost too much | [`F2sa`](methods::F2sa), [`Sama`](methods::Sama) |
//!
//! The command `bilevel advise` measures a problem and recommends a method. [`Problem::check`](AnyProblem::check)
//! compares a method with finite differences before a long run.
//!
//! # Modules
//!
//! - To configure a run: [`methods`], [`optimizers`], [`observers`], [`checkpoints`] and [`diagnostics`].
//! - For problems and their values: [`data`], [`splits`], [`training`] and [`files`].
//! - For your own derivatives: [`oracle`]. For your own methods: [`programs`] and [`parts`].
//! - The engine, with tensors and layers ([`graph::nn`]): [`graph`].
//!
//! # The guide
//!
//! [The guide](https://github.com/bilevel-rs/bilevel/blob/main/docs/guide/src/SUMMARY.md) explains the
//! [concepts](https://github.com/bilevel-rs/bilevel/blob/main/docs/guide/src/concepts.md), the
//! [choice of a method](https://github.com/bilevel-rs/bilevel/blob/main/docs/guide/src/methods.md) and
//! [writing a problem](https://github.com/bilevel-rs/bilevel/blob/main/docs/guide/src/problem.md), and has a
//! [gallery of ten examples](https://github.com/bilevel-rs/bilevel/blob/main/docs/guide/src/gallery.md).
//!
//! # Features
//!
//! `checkpoints`, on by default, saves runs, λ and θ in files. `ndarray` adds conversions between [`Array`] and the
//! arrays of the crate `ndarray`.

#![forbid(unsafe_code)]

#[cfg(feature = "checkpoints")]
mod checkpoint;
#[cfg(not(feature = "checkpoints"))]
#[path = "checkpoint/absent.rs"]
mod checkpoint;
mod compiled;
mod error;
mod generalisation;
mod health;
mod hypergradient;
mod inner;
pub mod oracle;
mod outer;
pub mod parts;
mod problem;
mod spelling;

pub use crate::compiled::key::Key;
pub use crate::compiled::session::Session;
pub use crate::compiled::state::State;
pub use crate::error::{Error, Result};
pub use crate::hypergradient::{Estimator, Hypergradient, Method};
pub use crate::inner::inner_loop::InnerLoop;
pub use crate::outer::driver::Driver;
pub use crate::outer::stopping::{Outcome, StopReason};
pub use crate::problem::named::Named;
pub use crate::problem::scope::Scope;
pub use crate::problem::typed::Problem;
pub use crate::problem::variable::Variable;
pub use crate::problem::{AnyProblem, ProblemBuilder};
pub use bilevel_cpu::Cpu;
pub use bilevel_graph as graph;
pub use bilevel_graph::{Array, DType, Leaf, Precision, Tensor, Tree};

pub mod checkpoints {
    //! Checkpoints: atomic, checksummed files from which a run resumes bit for bit.

    #[cfg(feature = "checkpoints")]
    pub use crate::checkpoint::Checkpoint;
    pub use crate::checkpoint::error::CheckpointError;
    #[cfg(feature = "checkpoints")]
    pub use crate::checkpoint::file::FORMAT_VERSION;
    #[cfg(feature = "checkpoints")]
    pub use crate::checkpoint::fingerprint::Fingerprint;
    #[cfg(feature = "checkpoints")]
    pub use crate::checkpoint::folder::{Checkpoints, Newest};
}

pub mod data {
    //! Data that does not fit into memory or is drawn class by class: streams, classes and episodes. Initial values.

    pub use crate::problem::classes::{Classes, Episode, Shots};
    pub use crate::problem::feeding::stream::{Stream, StreamResult};
    pub use crate::problem::variable::Start;
}

pub mod diagnostics {
    //! Diagnoses of hypergradients and of runs, and checks of a problem before a run.

    pub use crate::health::check::{Agreement, Check, MethodReport, Moved, ProblemReport};
    pub use crate::health::curvature::Curvature;
    pub use crate::health::diagnostics::{Diagnostics, Warning};
    pub use crate::health::divergence::{Cause, Diagnosis};
    pub use crate::health::precision_check::{Compared, PrecisionReport, PrecisionRow};
    pub use crate::health::precision_name;
}

pub mod errors {
    //! The parts of an [`Error`](crate::Error), and the suggestions in its sentences.

    pub use crate::error::{IoError, OtherError, SettingValue};
    pub use crate::spelling::{by_nearness, nearest};
}

pub mod files {
    //! Atomic files, and λ and θ in safetensors files.

    pub use crate::checkpoint::whole_file;
    #[cfg(feature = "checkpoints")]
    pub use crate::problem::tree_file::{load_arrays, load_arrays_where, save_tree};
    pub use crate::problem::tree_file_error::TreeFileError;
}

pub mod methods {
    //! The methods, each a struct of settings, and the declarations of a method.

    pub use crate::health::probe::PreparedMethod;
    pub use crate::hypergradient::chains::Chains;
    pub use crate::hypergradient::claims;
    pub use crate::hypergradient::loop_use::{Descent, LoopUse, Noise, Output};
    pub use crate::hypergradient::methods::unrolled::fg2u::Directions;
    pub use crate::hypergradient::methods::unrolled::rmd::{PreparedRmd, Storage};
    pub use crate::hypergradient::parts::combination::{Combination, Fall, NamedCombination, Solver, Tolerance};
    pub use crate::hypergradient::parts::implicit::CurvatureProduct;
    pub use crate::hypergradient::paths::Path;
    pub use crate::hypergradient::ranges::check_settings;
    pub use crate::hypergradient::registry::registered::*;
    pub use crate::hypergradient::registry::{AnyMethod, MethodInfo, all, applicable_to, setting_meaning};
    pub use crate::hypergradient::scale::Scale;
    pub use crate::hypergradient::settings::SettingsRecord;
    pub use crate::hypergradient::{MemoryTable, Oracles};
}

pub mod observers {
    //! Observers of a run: closures, a recorder, a progress line, a metrics file; and the metrics they see.

    pub use crate::outer::json_lines::{JsonLines, LONGEST_LINE, iteration_fields};
    pub use crate::outer::measures::{Aim, Best, Measures};
    pub use crate::outer::observer::{Answer, Beginning, Iteration, Observer, Recorder};
    pub use crate::outer::progress_line::ProgressLine;
    pub use crate::outer::stopping::StopSignal;
}

pub mod optimizers {
    //! Optimizers of λ and of the inner loop, and schedules of their rates.

    pub use crate::inner::optimizer::{Adam, AdamW, InnerOptimizer, LeafStep, Momentum, Optimizer, RmsProp, Sgd};
    pub use crate::outer::schedule::{Schedule, ScheduleSettings, Shape};
}

pub mod programs {
    //! A problem as tensors and compiled programs, for your own methods.

    pub use crate::compiled::leaves::Leaves;
    pub use crate::compiled::losses::Losses;
    pub use crate::compiled::routine::Routine;
    pub use crate::compiled::state::Snapshot;
    pub use crate::compiled::trace::{InnerLoss, Trace, or_zeros};
    pub use crate::problem::traced::Traced;
}

pub mod splits {
    //! Rows for training, validation, the held-out guard and the test, and comparisons of λ on them.

    pub use crate::generalisation::baselines::{BaselineRow, Baselines, Comparison};
    pub use crate::generalisation::guard::{Guard, GuardReport};
    pub use crate::generalisation::row_losses::{Paired, RowLosses};
    pub use crate::generalisation::rows::{Part, Rows};
    pub use crate::generalisation::shrinkage::{Shrunk, ShrunkFound};
    pub use crate::generalisation::split::{Share, Split};
}

pub mod training {
    //! Training alone, without an outer loop, and the evaluation of losses and metrics.

    pub use crate::compiled::evaluator::Evaluator;
    pub use crate::inner::trainer::Trainer;
    pub use crate::inner::training::{Trained, Training};
}

pub mod prelude {
    //! The names that most programs use: `use bilevel::prelude::*;`

    pub use crate::methods::{HpoSgld, IftCg, LangevinAdjoint, Rmd};
    pub use crate::optimizers::{Adam, Schedule, Sgd};
    pub use crate::{
        Array, Cpu, DType, Driver, InnerLoop, Key, Leaf, Method, Outcome, Problem, Scope, StopReason, Tensor, Tree,
        Variable,
    };
}
