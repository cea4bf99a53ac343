//! Preparing data for a problem: splits, normalisation, label noise, fixed episodes. Everything random follows from a
//! [`Key`](bilevel::Key).

mod draws;
mod episodes;
mod label_noise;
mod normalise;
mod split;

pub use episodes::{Episodes, episodes};
pub use label_noise::{Noisy, flipped_labels, uniform_labels};
pub use normalise::Normalisation;
pub use split::{shuffled, split, split_by_class};
