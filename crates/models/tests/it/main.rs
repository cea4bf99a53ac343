//! The tests of this crate as one program, so that they are linked once.

mod common;
mod derivatives;
mod forward;
mod pretrained;
mod sizes;
mod training;
mod weights;
