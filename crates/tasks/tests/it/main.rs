//! The tests of this crate as one program, so that they are linked once.

mod advice;
mod applicability;
mod division;
mod held_out_switches;
mod pictures;
