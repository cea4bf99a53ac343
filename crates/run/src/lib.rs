//! Runs and studies: tasks, configurations, results, and tables that compare with published numbers.
//!
//! Use it to give your own problem or method the whole command: settings, run folders, reports and comparisons.
//!
//! A [`Task`] is a bilevel problem with settings; a [`Config`] holds everything that one run of it depends on. A
//! [`Study`] is a list of runs and measurements with a table of rows, each compared with a published number. A
//! [`Registry`] holds tasks, studies, methods and optimizers. It starts with the library's methods; crates and users
//! add the others.

#![forbid(unsafe_code)]

pub mod advise;
pub mod config;
mod duration;
mod figure;
mod kept;
mod label;
pub mod manifest;
mod plain;
pub mod price;
mod recipe;
mod registry;
mod row;
pub mod run;
mod settings;
pub mod spread;
pub mod statistics;
mod study;
mod task;
mod words;

pub use duration::duration;
pub use figure::{Series, figure};
pub use kept::Kept;
pub use label::label;
pub use plain::{PLAIN, Plain};
pub use recipe::Recipe;
pub use registry::{KnownMeasure, KnownMethod, KnownOptimizer, KnownTask, Registry, meanings};
pub use row::{Row, Verdict, row_table};
pub(crate) use run::optimizers;
pub use run::{Config, Device, Division, LambdaLeaf};
pub use settings::Settings;
pub use study::{
    AnyMeasure, Done, Findings, Finished, FinishedRun, Item, LAMBDA_FILE, Measure, Place, Plan, Scale, Study,
    THETA_FILE, Work, conduct, do_item, in_memory,
};
pub use task::{AnyTask, BuiltOn, Context, Defaults, Picture, Task};
pub use words::words_of_setting;
