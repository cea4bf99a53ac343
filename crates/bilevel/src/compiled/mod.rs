//! A problem compiled for an executor: traces, routines, and the buffers they run on.

pub(crate) mod evaluator;
pub(crate) mod initial;
pub(crate) mod key;
pub(crate) mod leaves;
pub(crate) mod losses;
pub(crate) mod norms;
pub(crate) mod purpose;
pub(crate) mod routine;
pub(crate) mod session;
pub(crate) mod shares;
pub(crate) mod state;
pub(crate) mod stretches;
pub(crate) mod trace;
