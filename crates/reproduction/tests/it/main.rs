//! The tests of this crate as one program, so that they are linked once.

mod manifests;
mod regularisers_and_losses;
mod reproduction;
