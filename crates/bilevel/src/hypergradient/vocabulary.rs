//! Common imports of the files of `methods` and `parts`.

pub(crate) use crate::compiled::key::Key;
pub(crate) use crate::compiled::leaves::Leaves;
pub(crate) use crate::compiled::norms::LazyNorm;
pub(crate) use crate::compiled::routine::Routine;
pub(crate) use crate::compiled::session::Session;
pub(crate) use crate::compiled::state::State;
pub(crate) use crate::compiled::trace::{InnerLoss, Trace, or_zeros};
pub(crate) use crate::diagnostics::Cause;
pub(crate) use crate::error::require;
pub(crate) use crate::health::diagnostics::{Diagnostics, adjoint};
pub(crate) use crate::hypergradient::loop_use::{Descent, LoopUse, Noise};
pub(crate) use crate::hypergradient::parts::implicit::count;
pub(crate) use crate::hypergradient::parts::warm::{Like, Warm, number, set_number};
pub(crate) use crate::hypergradient::scale::Scale;
pub(crate) use crate::hypergradient::{Estimator, Hypergradient, MemoryTable, Method, Oracles};
pub(crate) use crate::inner::inner_loop::{InnerLoop, at_least_0, positive};
pub(crate) use crate::methods::claims::{Claims, Condition, FEW_PARAMETERS, Promise, Settling};
pub(crate) use crate::problem::AnyProblem;
pub(crate) use crate::{Error, Result};
pub(crate) use bilevel_graph::{DType, Graph, Program, Tensor};
pub(crate) use serde::{Deserialize, Serialize};

/// The name of a method whose settings are written by serde.
macro_rules! named {
    ($name:expr) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn settings(&self) -> $crate::hypergradient::settings::SettingsRecord {
            $crate::hypergradient::settings::SettingsRecord::of($name, self)
        }
    };
}

pub(crate) use named;
