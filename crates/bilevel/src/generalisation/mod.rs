//! Generalisation of λ to unseen rows: splits, the guard of a run, and the baselines of a learned λ.

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
