//! What makes λ good on rows that nobody has seen: splits, the guard of a run, and what a learned λ is compared with.

pub(crate) mod baselines;
pub(crate) mod folds;
pub(crate) mod guard;
pub(crate) mod retrain;
pub(crate) mod row_losses;
pub(crate) mod rows;
pub(crate) mod shrinkage;
pub(crate) mod split;
pub(crate) mod tables;
pub(crate) mod work;
