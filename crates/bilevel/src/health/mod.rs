//! Diagnostics of a hypergradient, checks against finite differences, and the post-mortem of a divergence.

pub(crate) mod check;
pub(crate) mod curvature;
pub(crate) mod diagnostics;
pub(crate) mod divergence;
pub(crate) mod final_losses;
pub(crate) mod postmortem;
pub(crate) mod precision_check;
pub mod precision_name;
pub(crate) mod probe;
